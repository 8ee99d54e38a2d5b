//! Orders in PostgreSQL.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use async_trait::async_trait;
use uuid::Uuid;

use super::closing::{self, PLACE, Place, close};
use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use super::{PostgresLedger, record};
use crate::delivery::Batch;
use crate::fault::{BackendError, Fault};
use crate::ledger::{CancelOutcome, Orders, RecordOutcome, rules};
use crate::order::{Order, OrderId, OrderPlaced, OrderStatus, SaleId, UserId};

/// Most orders that one transaction expires: it holds their items' locks meanwhile.
const EXPIRE_MAX: usize = 500;

#[async_trait]
impl Orders for PostgresLedger {
    async fn record(&self, batch: &Batch) -> Result<RecordOutcome, BackendError> {
        self.db.write("record a batch", |tx| async move { record::record(&tx, batch).await }).await
    }

    async fn expire(&self, limit: usize) -> Result<u64, BackendError> {
        let due = self
            .db
            .read("read what is due", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let due = tx.rows((DUE, &[&now, &at_most(limit.min(EXPIRE_MAX))])).await?;
                // A row that cannot be read is left for the staff; the others go on.
                let due = due.iter().map(|row| Ok((row.try_get("id")?, Place::read(row)?)));
                Ok(due.filter_map(named).collect::<Vec<_>>())
            })
            .await?;
        self.expire_these(&due).await
    }

    async fn cancel(
        &self,
        id: OrderId,
        user: &UserId,
        queued: Option<&OrderPlaced>,
    ) -> Result<CancelOutcome, BackendError> {
        let queued =
            queued.filter(|placed| placed.reservation.order == id && placed.reservation.user == *user);
        self.db.write("cancel an order", |tx| async move { cancel(&tx, id, user, queued).await }).await
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, BackendError> {
        let sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = $1");
        let found = self.query_all("read an order", (&sql, &[&id]), rows::order).await?;
        Ok(found.into_iter().next())
    }

    async fn orders_of(&self, sale: SaleId, user: &UserId, limit: usize) -> Result<Vec<Order>, BackendError> {
        let sql = format!(
            "SELECT {ORDER_COLUMNS} FROM orders WHERE sale = $1 AND user_id = $2 \
             ORDER BY reserved_at DESC, id DESC LIMIT $3"
        );
        self.query_all("read a user's orders", (&sql, &[&sale, user, &at_most(limit)]), rows::order).await
    }

    async fn orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Vec<Order>, BackendError> {
        let query = page_query();
        let after = after.unwrap_or(OrderId(Uuid::nil()));
        self.query_all("list orders", (&query, &[&sale, &after, &at_most(limit)]), rows::order).await
    }

    async fn statuses(&self, ids: &[OrderId]) -> Result<Vec<Option<OrderStatus>>, BackendError> {
        let sql = "SELECT o.status FROM unnest($1::uuid[]) WITH ORDINALITY AS asked (id, n) \
             LEFT JOIN orders o ON o.id = asked.id ORDER BY asked.n";
        self.query_all("read orders' statuses", (sql, &[&ids]), |row| rows::word_or_null(row, "status")).await
    }
}

/// A sale's orders by id: `$1` the sale, `$2` the id to go on behind, `$3` how many.
pub(super) fn page_query() -> String {
    format!("SELECT {ORDER_COLUMNS} FROM orders WHERE sale = $1 AND id > $2 ORDER BY id LIMIT $3")
}

const DUE: &str = "SELECT id, sale, item, user_id FROM orders \
     WHERE status = 'PENDING' AND hold_until < $1 ORDER BY hold_until, id LIMIT $2";

/// What was read, or nothing and a line for the staff.
fn named<T>(read: Result<T, Failure>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(?error, "an order that is due cannot be read")).ok()
}

impl PostgresLedger {
    /// Expires what is still due of these, in one transaction. One bad row does not stop the
    /// others: it is found by halving, named once a step, and left for the staff.
    async fn expire_these(&self, due: &[(OrderId, Place)]) -> Result<u64, BackendError> {
        if due.is_empty() {
            return Ok(0);
        }
        match self.db.write("expire orders", |tx| async move { expire(&tx, due).await }).await {
            Err(error) if error.fault == Fault::Permanent => match due {
                [(order, _)] => {
                    tracing::error!(order.id = %order, error = error.chain(), "an order that is due cannot be expired");
                    Ok(0)
                }
                _ => {
                    let (first, second) = due.split_at(due.len() / 2);
                    Ok(Box::pin(self.expire_these(first)).await?
                        + Box::pin(self.expire_these(second)).await?)
                }
            },
            other => other,
        }
    }
}

async fn expire(tx: &Tx, due: &[(OrderId, Place)]) -> Result<u64, Failure> {
    let places: BTreeSet<Place> = due.iter().map(|(_, place)| place.clone()).collect();
    let ids: Vec<OrderId> = due.iter().map(|(id, _)| *id).collect();
    let (locked, now) = closing::lock(tx, &places, &ids, true).await?;
    // Paid, cancelled or prolonged meanwhile: read again behind the lock.
    let still_due = |order: &Order| order.status == OrderStatus::Pending && order.hold_until < now;
    let orders = locked.iter().map(rows::order).filter_map(named).filter(still_due);
    let ids: Vec<OrderId> = orders.map(|order| order.reservation.order).collect();
    close(tx, &ids, OrderStatus::Pending, OrderStatus::Expired, now).await
}

async fn cancel(
    tx: &Tx,
    id: OrderId,
    user: &UserId,
    queued: Option<&OrderPlaced>,
) -> Result<CancelOutcome, Failure> {
    let known = rows::one(&tx.rows((PLACE, &[&id])).await?, Place::read)?;
    let queued_place = || queued.map(|placed| Place::of(&placed.reservation));
    let Some(place) = known.or_else(queued_place) else { return Ok(CancelOutcome::Unknown) };
    let (locked, now) = closing::lock(tx, &BTreeSet::from([place]), &[id], false).await?;

    let order = match (rows::one(&locked, rows::order)?, queued) {
        (Some(order), _) => order,
        (None, Some(placed)) => {
            let order = rules::stillborn(placed, OrderStatus::Cancelled, None, now);
            return if closing::insert_stillborn(tx, &order, now).await? {
                Ok(CancelOutcome::Cancelled(order))
            } else if tx.rows((PLACE, &[&id])).await?.is_empty() {
                Err(Failure::Refused("the ledger has no such item in this sale"))
            } else {
                // Written meanwhile under another item's lock than ours.
                Err(Failure::Overtaken)
            };
        }
        (None, None) => return Ok(CancelOutcome::Unknown),
    };
    if order.reservation.user != *user {
        return Ok(CancelOutcome::Unknown);
    }
    match rules::cancel(order) {
        ControlFlow::Break(answer) => Ok(answer),
        ControlFlow::Continue(order) => {
            close(tx, &[id], OrderStatus::Pending, OrderStatus::Cancelled, now).await?;
            Ok(CancelOutcome::Cancelled(Order { status: OrderStatus::Cancelled, ..order }))
        }
    }
}
