//! The list of those who are kept out, in SQLite.

use async_trait::async_trait;
use rusqlite::types::FromSqlError;
use rusqlite::{Connection, OptionalExtension, Row};

use super::SqliteLedger;
use super::rows::{self, signed};
use crate::block::{Block, BlockChange, Blocked, Lifted, NewBlocks};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::{BlockChanges, BlockFilter, BlockOutcome, Blocks};
use crate::order::SaleId;

#[async_trait]
impl Blocks for SqliteLedger {
    async fn block(&self, new: &NewBlocks, most: u64) -> Result<BlockOutcome, BackendError> {
        let (new, at) = (new.clone(), self.clock.now());
        self.db.write("block users and networks", move |tx| add(tx, &new, most, at)).await
    }

    async fn lift_block(&self, id: i64, reason: &str, by: &str) -> Result<Option<Block>, BackendError> {
        let (reason, by, at) = (reason.to_owned(), by.to_owned(), self.clock.now());
        self.db
            .write("lift a block", move |tx| {
                let lifted = tx.execute(
                    "UPDATE block SET lifted_reason = ?2, lifted_by = ?3, lifted_at = ?4, \
                     changed = (SELECT changed + 1 FROM block_state) WHERE id = ?1 AND lifted_at IS NULL",
                    (id, &reason, &by, at),
                )?;
                if lifted > 0 {
                    tx.execute("UPDATE block_state SET changed = changed + 1, standing = standing - 1", [])?;
                }
                tx.query_row("SELECT * FROM block WHERE id = ?1", [id], block).optional()
            })
            .await
    }

    async fn blocks(
        &self,
        filter: &BlockFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Block>, BackendError> {
        let filter = filter.clone();
        self.db
            .read("read the blocks", move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT * FROM block WHERE id < ?1 AND (?2 OR lifted_at IS NULL) \
                     AND (?3 IS NULL OR value = ?3) ORDER BY id DESC LIMIT ?4",
                )?;
                let before = before.unwrap_or(i64::MAX);
                let blocks = statement
                    .query_map((before, filter.lifted, &filter.value, signed(limit as u64)), block)?;
                blocks.collect()
            })
            .await
    }

    async fn block_changes(&self, seen: i64, limit: usize) -> Result<BlockChanges, BackendError> {
        self.db
            .read("read what was blocked and lifted", move |tx| {
                let newest = tx.query_row("SELECT changed FROM block_state", [], |row| row.get(0))?;
                let mut statement = tx.prepare_cached(
                    "SELECT * FROM block WHERE changed > ?1 AND (?1 > 0 OR lifted_at IS NULL) \
                     ORDER BY changed LIMIT ?2",
                )?;
                let changes = statement.query_map((seen, signed(limit as u64)), change)?;
                Ok(BlockChanges { newest, changes: changes.collect::<rusqlite::Result<_>>()? })
            })
            .await
    }
}

fn add(tx: &Connection, new: &NewBlocks, most: u64, at: Timestamp) -> rusqlite::Result<BlockOutcome> {
    if let Some(sale) = new.sale
        && rows::sale(tx, sale)?.is_none()
    {
        return Ok(BlockOutcome::NoSale);
    }
    let (mut changed, standing): (i64, i64) =
        tx.query_row("SELECT changed, standing FROM block_state", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let standing = u64::try_from(standing).unwrap_or(0);
    if standing.saturating_add(new.blocked.len() as u64) > most {
        return Ok(BlockOutcome::Full { standing });
    }

    let mut added = 0;
    let mut statement = tx.prepare_cached(
        "INSERT INTO block (kind, value, sale, reason, set_by, at, changed) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT DO NOTHING",
    )?;
    for blocked in &new.blocked {
        changed += 1;
        let sale = new.sale.unwrap_or(SaleId(0));
        let row = (blocked.kind(), blocked.value(), sale, &new.reason, &new.by, at, changed);
        added += statement.execute(row)? as u64;
    }
    tx.execute("UPDATE block_state SET changed = ?1, standing = standing + ?2", (changed, signed(added)))?;
    Ok(BlockOutcome::Stand { added })
}

fn blocked(row: &Row<'_>) -> rusqlite::Result<Blocked> {
    let (kind, value): (String, String) = (row.get("kind")?, row.get("value")?);
    Blocked::of(&kind, &value).map_err(|error| {
        let error = FromSqlError::Other(Box::new(error));
        rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error))
    })
}

fn sale(row: &Row<'_>) -> rusqlite::Result<Option<SaleId>> {
    let sale: SaleId = row.get("sale")?;
    Ok((sale != SaleId(0)).then_some(sale))
}

fn block(row: &Row<'_>) -> rusqlite::Result<Block> {
    let lifted_at: Option<Timestamp> = row.get("lifted_at")?;
    let lifted = match lifted_at {
        Some(at) => Some(Lifted { reason: row.get("lifted_reason")?, by: row.get("lifted_by")?, at }),
        None => None,
    };
    Ok(Block {
        id: row.get("id")?,
        blocked: blocked(row)?,
        sale: sale(row)?,
        reason: row.get("reason")?,
        by: row.get("set_by")?,
        at: row.get("at")?,
        lifted,
    })
}

fn change(row: &Row<'_>) -> rusqlite::Result<BlockChange> {
    let lifted_at: Option<Timestamp> = row.get("lifted_at")?;
    Ok(BlockChange {
        number: row.get("changed")?,
        id: row.get("id")?,
        blocked: blocked(row)?,
        sale: sale(row)?,
        stands: lifted_at.is_none(),
    })
}
