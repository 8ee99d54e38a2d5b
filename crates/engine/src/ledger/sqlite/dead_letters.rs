//! Dead letters in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};

use super::rows::{self, signed};
use super::{SqliteLedger, record};
use crate::clock::Timestamp;
use crate::delivery::{Position, TopicId};
use crate::fault::BackendError;
use crate::ledger::dead_letters::{self, DROPPED, REPLAYED, Replay};
use crate::ledger::{DeadLetter, DeadLetterClosing, DeadLetters, DropOutcome, ReplayOutcome};
use crate::order::OrderPlaced;

#[async_trait]
impl DeadLetters for SqliteLedger {
    async fn dead_letters(
        &self,
        after: Option<i64>,
        limit: usize,
        closed: bool,
    ) -> Result<Vec<DeadLetter>, BackendError> {
        self.db
            .read("list dead letters", move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT * FROM dead_letter WHERE id > ?1 AND (?3 OR closed_at IS NULL) ORDER BY id LIMIT ?2",
                )?;
                let letters =
                    statement.query_map((after.unwrap_or(0), signed(limit as u64), closed), letter)?;
                letters.collect()
            })
            .await
    }

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>, BackendError> {
        self.db.read("read a dead letter", move |tx| find(tx, id)).await
    }

    async fn replay_dead_letter(
        &self,
        id: i64,
        order: &OrderPlaced,
        by: &str,
    ) -> Result<ReplayOutcome, BackendError> {
        let (order, by, now) = (order.clone(), by.to_owned(), self.clock.now());
        self.db.write("replay a dead letter", move |tx| replay(tx, id, &order, &by, now)).await
    }

    async fn drop_dead_letter(&self, id: i64, by: &str, reason: &str) -> Result<DropOutcome, BackendError> {
        let (by, reason, now) = (by.to_owned(), reason.to_owned(), self.clock.now());
        self.db
            .write("drop a dead letter", move |tx| match find(tx, id)? {
                None => Ok(DropOutcome::NoLetter),
                Some(letter) if letter.closing.is_some() => Ok(DropOutcome::ClosedBefore(letter)),
                Some(letter) => {
                    let closing = closing(now, DROPPED, &by, reason);
                    close(tx, id, &closing)?;
                    Ok(DropOutcome::Dropped(DeadLetter { closing: Some(closing), ..letter }))
                }
            })
            .await
    }
}

fn letter(row: &Row<'_>) -> rusqlite::Result<DeadLetter> {
    let closed_at: Option<Timestamp> = row.get("closed_at")?;
    let closing = match closed_at {
        None => None,
        Some(at) => Some(DeadLetterClosing {
            at,
            how: row.get("closed_how")?,
            by: row.get("closed_by")?,
            reason: row.get("closed_reason")?,
        }),
    };
    Ok(DeadLetter {
        id: row.get("id")?,
        place: Position {
            topic: TopicId(row.get("topic")?),
            partition: row.get("part")?,
            next: rows::count(row, "part_offset")?,
        },
        bytes: row.get("bytes")?,
        why: row.get("why")?,
        parked_at: row.get("at")?,
        closing,
    })
}

fn find(tx: &Connection, id: i64) -> rusqlite::Result<Option<DeadLetter>> {
    tx.prepare_cached("SELECT * FROM dead_letter WHERE id = ?1")?.query_row([id], letter).optional()
}

fn closing(at: Timestamp, how: &str, by: &str, reason: String) -> DeadLetterClosing {
    DeadLetterClosing { at, how: how.to_owned(), by: by.to_owned(), reason }
}

fn close(tx: &Connection, id: i64, closing: &DeadLetterClosing) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE dead_letter SET closed_at = ?2, closed_how = ?3, closed_by = ?4, closed_reason = ?5 WHERE id = ?1",
    )?
    .execute((id, closing.at, &closing.how, &closing.by, &closing.reason))?;
    Ok(())
}

fn replay(
    tx: &Connection,
    id: i64,
    placed: &OrderPlaced,
    by: &str,
    now: Timestamp,
) -> rusqlite::Result<ReplayOutcome> {
    let Some(letter) = find(tx, id)? else { return Ok(ReplayOutcome::NoLetter) };
    if letter.closing.is_some() {
        return Ok(ReplayOutcome::ClosedBefore(letter));
    }
    let known = rows::find_order(tx, placed.reservation.order)?;
    let batch = dead_letters::again(&letter.place, placed, now);
    let (order, new) = match dead_letters::replay(record::judge_one(tx, &batch)?, known) {
        Replay::Stays(outcome) => return Ok(outcome),
        Replay::Known(order) => (order, false),
        Replay::Write(verdict) => (record::write_one(tx, placed, verdict, now)?, true),
    };
    close(tx, id, &closing(now, REPLAYED, by, dead_letters::replay_reason(&order)))?;
    Ok(if new { ReplayOutcome::Recorded(order) } else { ReplayOutcome::Known(order) })
}
