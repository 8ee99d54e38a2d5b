//! The list of those who are kept out, in PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresLedger;
use super::db::{CLOCK, Query, Tx};
use super::failure::Failure;
use super::rows::{self, at_most, signed};
use crate::block::{Block, BlockChange, Blocked, Lifted, NewBlocks};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::{BlockChanges, BlockFilter, BlockOutcome, Blocks};
use crate::order::SaleId;

/// The columns of [`block`].
const COLUMNS: &str = "id, kind, value, sale, reason, set_by, at, lifted_reason, lifted_by, lifted_at";

/// Who changes the list goes first through its one row of state, so that numbers are seen in their order.
const LOCK: &str = "SELECT changed, standing FROM block_state FOR UPDATE";

#[async_trait]
impl Blocks for PostgresLedger {
    async fn block(&self, new: &NewBlocks, most: u64) -> Result<BlockOutcome, BackendError> {
        self.db.write("block users and networks", |tx| async move { add(&tx, new, most).await }).await
    }

    async fn lift_block(&self, id: i64, reason: &str, by: &str) -> Result<Option<Block>, BackendError> {
        let lift = "UPDATE block SET lifted_reason = $2, lifted_by = $3, lifted_at = $4, changed = $5 \
             WHERE id = $1 AND lifted_at IS NULL RETURNING 1";
        let count = "UPDATE block_state SET changed = $1, standing = standing - 1";
        let look = &format!("SELECT {COLUMNS} FROM block WHERE id = $1");
        self.db
            .write("lift a block", |tx| async move {
                let (changed, _) = state(&tx).await?;
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let next = changed + 1;
                if !tx.rows((lift, &[&id, &reason, &by, &now, &next])).await?.is_empty() {
                    tx.rows((count, &[&next])).await?;
                }
                rows::one(&tx.rows((look, &[&id])).await?, block)
            })
            .await
    }

    async fn blocks(
        &self,
        filter: &BlockFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Block>, BackendError> {
        let sql = &format!(
            "SELECT {COLUMNS} FROM block WHERE id < $1 AND ($2::boolean OR lifted_at IS NULL) \
             AND ($3::text IS NULL OR value = $3) ORDER BY id DESC LIMIT $4"
        );
        let (before, most) = (before.unwrap_or(i64::MAX), at_most(limit));
        let query: Query<'_> = (sql, &[&before, &filter.lifted, &filter.value, &most]);
        self.query_all("read the blocks", query, block).await
    }

    async fn block_changes(&self, seen: i64, limit: usize) -> Result<BlockChanges, BackendError> {
        let what = "read what was blocked and lifted";
        // The number first: what happens between the two is told of, or has a higher one.
        let newest =
            self.query_all(what, ("SELECT changed FROM block_state", &[]), |row| Ok(row.try_get(0)?));
        let newest = newest.await?.into_iter().next().unwrap_or(0);
        let sql = "SELECT id, kind, value, sale, lifted_at, changed FROM block \
             WHERE changed > $1 AND ($1 > 0 OR lifted_at IS NULL) ORDER BY changed LIMIT $2";
        let changes = self.query_all(what, (sql, &[&seen, &at_most(limit)]), change).await?;
        Ok(BlockChanges { newest, changes })
    }
}

/// The newest number and how many blocks stand; nobody else changes them until the transaction ends.
async fn state(tx: &Tx) -> Result<(i64, u64), Failure> {
    let read = |row: &Row| {
        let standing: i64 = row.try_get("standing")?;
        Ok((row.try_get("changed")?, u64::try_from(standing).unwrap_or(0)))
    };
    rows::one(&tx.rows((LOCK, &[])).await?, read)?.ok_or(Failure::Refused("the list of blocks has no state"))
}

async fn add(tx: &Tx, new: &NewBlocks, most: u64) -> Result<BlockOutcome, Failure> {
    let (changed, standing) = state(tx).await?;
    if let Some(sale) = new.sale
        && tx.rows(("SELECT 1 FROM sale WHERE id = $1", &[&sale])).await?.is_empty()
    {
        return Ok(BlockOutcome::NoSale);
    }
    if standing.saturating_add(new.blocked.len() as u64) > most {
        return Ok(BlockOutcome::Full { standing });
    }

    let insert = "INSERT INTO block (kind, value, sale, reason, set_by, at, changed) \
         SELECT kind, value, $3::bigint, $4::text, $5::text, $6::bigint, $7::bigint + place \
         FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS it (kind, value, place) \
         ON CONFLICT DO NOTHING RETURNING 1";
    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
    let kinds: Vec<&str> = new.blocked.iter().map(Blocked::kind).collect();
    let values: Vec<String> = new.blocked.iter().map(Blocked::value).collect();
    let sale = new.sale.unwrap_or(SaleId(0));
    let inserted = tx.rows((insert, &[&kinds, &values, &sale, &new.reason, &new.by, &now, &changed])).await?;
    let added = inserted.len() as u64;
    let count = "UPDATE block_state SET changed = changed + $1, standing = standing + $2";
    tx.rows((count, &[&signed(new.blocked.len() as u64), &signed(added)])).await?;
    Ok(BlockOutcome::Stand { added })
}

fn blocked(row: &Row) -> Result<Blocked, Failure> {
    let (kind, value): (&str, &str) = (row.try_get("kind")?, row.try_get("value")?);
    Blocked::of(kind, value).map_err(|error| Failure::Column("value".to_owned(), error))
}

fn sale(row: &Row) -> Result<Option<SaleId>, Failure> {
    let sale: SaleId = row.try_get("sale")?;
    Ok((sale != SaleId(0)).then_some(sale))
}

fn block(row: &Row) -> Result<Block, Failure> {
    let lifted_at: Option<Timestamp> = row.try_get("lifted_at")?;
    let lifted = match lifted_at {
        Some(at) => Some(Lifted { reason: row.try_get("lifted_reason")?, by: row.try_get("lifted_by")?, at }),
        None => None,
    };
    Ok(Block {
        id: row.try_get("id")?,
        blocked: blocked(row)?,
        sale: sale(row)?,
        reason: row.try_get("reason")?,
        by: row.try_get("set_by")?,
        at: row.try_get("at")?,
        lifted,
    })
}

fn change(row: &Row) -> Result<BlockChange, Failure> {
    let lifted_at: Option<Timestamp> = row.try_get("lifted_at")?;
    Ok(BlockChange {
        number: row.try_get("changed")?,
        id: row.try_get("id")?,
        blocked: blocked(row)?,
        sale: sale(row)?,
        stands: lifted_at.is_none(),
    })
}
