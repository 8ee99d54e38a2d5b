//! Restocks in PostgreSQL.

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;

use super::PostgresLedger;
use super::db::{CLOCK, LOCK_SALE_ALONE, Tx};
use super::failure::Failure;
use super::rows::{self, SALES};
use crate::fault::BackendError;
use crate::ledger::{RestockIntent, RestockOutcome, RestockState, Restocks, rules};
use crate::order::{ItemId, SaleId};
use crate::sale::Sale;

#[async_trait]
impl Restocks for PostgresLedger {
    async fn begin_restock(
        &self,
        operation: Uuid,
        sale: SaleId,
        item: ItemId,
        units: i64,
    ) -> Result<RestockOutcome, BackendError> {
        self.db
            .write("begin a restock", |tx| async move {
                let (found, sale_row) = lock(&tx, operation, sale).await?;
                match (found, sale_row) {
                    (Some(found), _) => Ok(answer(found, (sale, item, units))),
                    (None, None) => Ok(RestockOutcome::NoItem),
                    (None, Some(sale)) => begin(&tx, operation, &sale, item, units).await,
                }
            })
            .await
    }

    async fn end_restock(
        &self,
        operation: Uuid,
        applied: bool,
    ) -> Result<Option<RestockIntent>, BackendError> {
        self.db.write("end a restock", |tx| async move { end(&tx, operation, applied).await }).await
    }

    async fn open_restocks(&self) -> Result<Vec<RestockIntent>, BackendError> {
        let sql =
            "SELECT operation, sale, item, units, epoch, state FROM restock WHERE state = 'open' ORDER BY id";
        self.query_all("read open restocks", (sql, &[]), intent).await
    }
}

const FIND: &str = "SELECT operation, sale, item, units, epoch, state FROM restock WHERE operation = $1";

const MOVE_QUANTITY: &str = "UPDATE item SET quantity = quantity + $2 WHERE id = $1";

fn intent(row: &Row) -> Result<RestockIntent, Failure> {
    Ok(RestockIntent {
        operation: row.try_get("operation")?,
        sale: row.try_get("sale")?,
        item: row.try_get("item")?,
        units: row.try_get("units")?,
        epoch: row.try_get("epoch")?,
        state: rules::restock_state(row.try_get("state")?),
    })
}

/// Takes the sale's lock alone and reads behind it.
async fn lock(
    tx: &Tx,
    operation: Uuid,
    sale: SaleId,
) -> Result<(Option<RestockIntent>, Option<Sale>), Failure> {
    let keys = tx.lock_keys([sale]);
    let [_, found, sales] =
        tx.pipeline([(LOCK_SALE_ALONE, &[&keys]), (FIND, &[&operation]), (SALES, &[&Some(sale)])]).await?;
    Ok((rows::one(&found, intent)?, rows::sales(&sales)?.pop()))
}

fn answer(found: RestockIntent, asked: (SaleId, ItemId, i64)) -> RestockOutcome {
    if (found.sale, found.item, found.units) == asked {
        RestockOutcome::Intent(found)
    } else {
        RestockOutcome::OtherContent
    }
}

async fn begin(
    tx: &Tx,
    operation: Uuid,
    sale: &Sale,
    item: ItemId,
    units: i64,
) -> Result<RestockOutcome, Failure> {
    if let Some(refused) = rules::restock_refused(sale, item, units) {
        return Ok(refused);
    }

    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
    let state = rules::restock_word(RestockState::Open);
    let sql = "INSERT INTO restock (operation, sale, item, units, epoch, state, at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (operation) DO NOTHING \
         RETURNING operation, sale, item, units, epoch, state";
    let written = tx.rows((sql, &[&operation, &sale.id, &item, &units, &sale.epoch, &state, &now])).await?;
    // No row: another sale's restock took this operation id a moment ago.
    let Some(begun) = rows::one(&written, intent)? else { return Err(Failure::Overtaken) };
    if units > 0 {
        tx.rows((MOVE_QUANTITY, &[&item, &units])).await?;
    }
    Ok(RestockOutcome::Intent(begun))
}

async fn end(tx: &Tx, operation: Uuid, applied: bool) -> Result<Option<RestockIntent>, Failure> {
    let Some(found) = rows::one(&tx.rows((FIND, &[&operation])).await?, intent)? else { return Ok(None) };
    let (Some(found), Some(sale)) = lock(tx, operation, found.sale).await? else { return Ok(None) };
    if found.state != RestockState::Open || sale.epoch != found.epoch {
        return Ok(Some(found));
    }

    let state = if applied { RestockState::Done } else { RestockState::Cancelled };
    let sql = "UPDATE restock SET state = $2 WHERE operation = $1";
    tx.rows((sql, &[&operation, &rules::restock_word(state)])).await?;
    if applied && found.units < 0 {
        tx.rows((MOVE_QUANTITY, &[&found.item, &found.units])).await?;
    }
    Ok(Some(RestockIntent { state, ..found }))
}
