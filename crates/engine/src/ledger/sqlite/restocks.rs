//! Restocks in SQLite.

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::{SqliteLedger, rows};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::{RestockIntent, RestockOutcome, RestockState, Restocks, rules};
use crate::order::{ItemId, SaleId};

#[async_trait]
impl Restocks for SqliteLedger {
    async fn begin_restock(
        &self,
        operation: Uuid,
        sale: SaleId,
        item: ItemId,
        units: i64,
    ) -> Result<RestockOutcome, BackendError> {
        let now = self.clock.now();
        self.db.write("begin a restock", move |tx| begin(tx, operation, sale, item, units, now)).await
    }

    async fn end_restock(
        &self,
        operation: Uuid,
        applied: bool,
    ) -> Result<Option<RestockIntent>, BackendError> {
        self.db.write("end a restock", move |tx| end(tx, operation, applied)).await
    }

    async fn open_restocks(&self) -> Result<Vec<RestockIntent>, BackendError> {
        self.db
            .read("read open restocks", |tx| {
                let mut statement =
                    tx.prepare_cached("SELECT * FROM restock WHERE state = 'open' ORDER BY id")?;
                let intents = statement.query_map([], intent)?;
                intents.collect()
            })
            .await
    }
}

fn intent(row: &Row<'_>) -> rusqlite::Result<RestockIntent> {
    let state: String = row.get("state")?;
    Ok(RestockIntent {
        operation: Uuid::from_bytes(row.get("operation")?),
        sale: row.get("sale")?,
        item: row.get("item")?,
        units: row.get("units")?,
        epoch: row.get("epoch")?,
        state: rules::restock_state(&state),
    })
}

fn find(tx: &Connection, operation: Uuid) -> rusqlite::Result<Option<RestockIntent>> {
    tx.query_row("SELECT * FROM restock WHERE operation = ?1", [operation.as_bytes()], intent).optional()
}

fn begin(
    tx: &Connection,
    operation: Uuid,
    sale: SaleId,
    item: ItemId,
    units: i64,
    now: Timestamp,
) -> rusqlite::Result<RestockOutcome> {
    if let Some(found) = find(tx, operation)? {
        let same = (found.sale, found.item, found.units) == (sale, item, units);
        return Ok(if same { RestockOutcome::Intent(found) } else { RestockOutcome::OtherContent });
    }
    let Some(sale) = rows::sale(tx, sale)? else { return Ok(RestockOutcome::NoItem) };
    if let Some(refused) = rules::restock_refused(&sale, item, units) {
        return Ok(refused);
    }

    if units > 0 {
        tx.execute("UPDATE item SET quantity = quantity + ?2 WHERE id = ?1", (item, units))?;
    }
    tx.execute(
        "INSERT INTO restock (operation, sale, item, units, epoch, state, at) VALUES (?1, ?2, ?3, ?4, ?5, 'open', ?6)",
        (operation.as_bytes(), sale.id, item, units, sale.epoch, now),
    )?;
    Ok(find(tx, operation)?.map_or(RestockOutcome::NoItem, RestockOutcome::Intent))
}

fn end(tx: &Connection, operation: Uuid, applied: bool) -> rusqlite::Result<Option<RestockIntent>> {
    let Some(found) = find(tx, operation)? else { return Ok(None) };
    let sale = rows::sale(tx, found.sale)?;
    let same_epoch = sale.is_some_and(|sale| sale.epoch == found.epoch);
    if found.state != RestockState::Open || !same_epoch {
        return Ok(Some(found));
    }
    let state = if applied { RestockState::Done } else { RestockState::Cancelled };
    tx.execute(
        "UPDATE restock SET state = ?2 WHERE operation = ?1",
        (operation.as_bytes(), rules::restock_word(state)),
    )?;
    if applied && found.units < 0 {
        tx.execute("UPDATE item SET quantity = quantity + ?2 WHERE id = ?1", (found.item, found.units))?;
    }
    find(tx, operation)
}
