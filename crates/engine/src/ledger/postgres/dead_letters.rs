//! Dead letters in PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use super::{PostgresLedger, record};
use crate::clock::Timestamp;
use crate::delivery::{Position, TopicId};
use crate::fault::BackendError;
use crate::ledger::dead_letters::{self, DROPPED, REPLAYED, Replay};
use crate::ledger::{DeadLetter, DeadLetterClosing, DeadLetters, DropOutcome, ReplayOutcome};
use crate::order::OrderPlaced;

#[async_trait]
impl DeadLetters for PostgresLedger {
    async fn dead_letters(
        &self,
        after: Option<i64>,
        limit: usize,
        closed: bool,
    ) -> Result<Vec<DeadLetter>, BackendError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM dead_letter WHERE id > $1 AND ($3 OR closed_at IS NULL) ORDER BY id LIMIT $2"
        );
        let after = after.unwrap_or(0);
        self.query_all("list dead letters", (&sql, &[&after, &at_most(limit), &closed]), letter).await
    }

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>, BackendError> {
        let sql = format!("SELECT {COLUMNS} FROM dead_letter WHERE id = $1");
        Ok(self.query_all("read a dead letter", (&sql, &[&id]), letter).await?.pop())
    }

    async fn replay_dead_letter(
        &self,
        id: i64,
        order: &OrderPlaced,
        by: &str,
    ) -> Result<ReplayOutcome, BackendError> {
        self.db.write("replay a dead letter", |tx| async move { replay(&tx, id, order, by).await }).await
    }

    async fn drop_dead_letter(&self, id: i64, by: &str, reason: &str) -> Result<DropOutcome, BackendError> {
        self.db
            .write("drop a dead letter", |tx| async move {
                let (lock, clock) = (lock_query(), tx.clock());
                let [found, now] = tx.pipeline([(&lock, &[&id]), (CLOCK, &[&clock])]).await?;
                match rows::one(&found, letter)? {
                    None => Ok(DropOutcome::NoLetter),
                    Some(letter) if letter.closing.is_some() => Ok(DropOutcome::ClosedBefore(letter)),
                    Some(letter) => {
                        let closing = close(&tx, id, DROPPED, (by, reason), rows::time(&now)?).await?;
                        Ok(DropOutcome::Dropped(DeadLetter { closing: Some(closing), ..letter }))
                    }
                }
            })
            .await
    }
}

const COLUMNS: &str =
    "id, topic, part, part_offset, bytes, why, at, closed_at, closed_how, closed_by, closed_reason";

/// Letters are locked before sales: nothing else ever waits for them.
fn lock_query() -> String {
    format!("SELECT {COLUMNS} FROM dead_letter WHERE id = $1 FOR UPDATE")
}

fn letter(row: &Row) -> Result<DeadLetter, Failure> {
    let closed_at: Option<Timestamp> = row.try_get("closed_at")?;
    let closing = match closed_at {
        None => None,
        Some(at) => Some(DeadLetterClosing {
            at,
            how: row.try_get("closed_how")?,
            by: row.try_get("closed_by")?,
            reason: row.try_get("closed_reason")?,
        }),
    };
    Ok(DeadLetter {
        id: row.try_get("id")?,
        place: Position {
            topic: TopicId(row.try_get("topic")?),
            partition: rows::narrow(row, "part")?,
            next: rows::count(row, "part_offset")?,
        },
        bytes: row.try_get("bytes")?,
        why: row.try_get("why")?,
        parked_at: row.try_get("at")?,
        closing,
    })
}

async fn close(
    tx: &Tx,
    id: i64,
    how: &str,
    (by, reason): (&str, &str),
    at: Timestamp,
) -> Result<DeadLetterClosing, Failure> {
    let sql = "UPDATE dead_letter SET closed_at = $2, closed_how = $3, closed_by = $4, closed_reason = $5 \
         WHERE id = $1";
    tx.rows((sql, &[&id, &at, &how, &by, &reason])).await?;
    Ok(DeadLetterClosing { at, how: how.to_owned(), by: by.to_owned(), reason: reason.to_owned() })
}

async fn replay(tx: &Tx, id: i64, placed: &OrderPlaced, by: &str) -> Result<ReplayOutcome, Failure> {
    let lock = lock_query();
    let found = rows::one(&tx.rows((&lock, &[&id])).await?, letter)?;
    let Some(letter) = found else { return Ok(ReplayOutcome::NoLetter) };
    if letter.closing.is_some() {
        return Ok(ReplayOutcome::ClosedBefore(letter));
    }
    let batch = dead_letters::again(&letter.place, placed, letter.parked_at);
    let (_, judged) = record::judge_one(tx, (&lock, &[&id]), &batch).await?;
    let Some(judged) = judged else { return Err(Failure::Overtaken) };
    let now = judged.now;
    // Read behind the item's lock: who writes a row holds it.
    let sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = $1");
    let known = rows::one(&tx.rows((&sql, &[&placed.reservation.order])).await?, rows::order)?;
    let (order, new) = match dead_letters::replay(judged.verdict.clone(), known) {
        Replay::Stays(outcome) => return Ok(outcome),
        Replay::Known(order) => (order, false),
        Replay::Write(_) => (judged.write(tx, &batch).await?.ok_or(Failure::Overtaken)?, true),
    };
    close(tx, id, REPLAYED, (by, &dead_letters::replay_reason(&order)), now).await?;
    Ok(if new { ReplayOutcome::Recorded(order) } else { ReplayOutcome::Known(order) })
}
