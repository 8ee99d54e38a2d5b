//! Orders in PostgreSQL.

use std::collections::{BTreeSet, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;
use uuid::Uuid;

use super::attempts::ASK_NOW;
use super::closing::{self, PLACE, Place, close};
use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use super::{PostgresLedger, record};
use crate::delivery::Batch;
use crate::fault::{BackendError, Fault};
use crate::ledger::{CancelOutcome, Expired, Orders, RecordOutcome, rules};
use crate::order::{Order, OrderId, OrderPlaced, OrderStatus, SaleId, UserId};

/// Most orders that one transaction expires: it holds their items' locks meanwhile.
const EXPIRE_MAX: usize = 500;

#[async_trait]
impl Orders for PostgresLedger {
    async fn record(&self, batch: &Batch) -> Result<RecordOutcome, BackendError> {
        self.db.write_batch("record a batch", |tx| async move { record::record(&tx, batch).await }).await
    }

    async fn expire(&self, limit: usize, hold: Duration) -> Result<Expired, BackendError> {
        let limit = limit.min(EXPIRE_MAX);
        let (due, more) = self
            .db
            .read_batch("read what is due", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let due = tx.rows((DUE, &[&now, &at_most(limit)])).await?;
                let more = due.len() == limit;
                // A row that cannot be read is left for the staff; the others go on.
                let due = due.iter().map(Due::read);
                Ok((due.filter_map(named).collect::<Vec<_>>(), more))
            })
            .await?;
        Ok(Expired { more, ..self.expire_these(&due, hold).await? })
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

    async fn struck(&self, sale: SaleId, strikes: u32) -> Result<Vec<UserId>, BackendError> {
        let sql = "SELECT user_id FROM orders o WHERE sale = $1 AND strike \
             AND NOT EXISTS (SELECT FROM payment p WHERE p.ord = o.id AND p.outcome <> 'AMOUNT_MISMATCH') \
             AND NOT EXISTS (SELECT FROM orders r WHERE r.retake_of = o.id) \
             GROUP BY user_id HAVING count(*) >= $2";
        let user = |row: &Row| Ok(row.try_get("user_id")?);
        self.query_all("read strikes", (sql, &[&sale, &i64::from(strikes)]), user).await
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

const DUE: &str = "SELECT id, sale, item, user_id, EXISTS (SELECT 1 FROM payment_attempt a \
         WHERE a.ord = orders.id AND a.closed_at IS NULL AND a.reference IS NOT NULL) AS paying \
     FROM orders WHERE status = 'PENDING' AND hold_until < $1 ORDER BY hold_until, id LIMIT $2";

const HOLD: &str = "UPDATE orders SET hold_until = held.until \
     FROM unnest($1::uuid[], $2::bigint[]) AS held (id, until) WHERE orders.id = held.id";

/// An order whose deadline is over, as it was read without a lock.
struct Due {
    id: OrderId,
    place: Place,
    /// Whether its buyer has an open attempt to pay. No other can begin behind the deadline.
    paying: bool,
}

impl Due {
    fn read(row: &Row) -> Result<Self, Failure> {
        Ok(Self { id: row.try_get("id")?, place: Place::read(row)?, paying: row.try_get("paying")? })
    }
}

/// What was read, or nothing and a line for the staff.
fn named<T>(read: Result<T, Failure>) -> Option<T> {
    read.inspect_err(|error| tracing::error!(?error, "an order that is due cannot be read")).ok()
}

impl PostgresLedger {
    /// Expires what is still due of these, in one transaction. One bad row does not stop the
    /// others: it is found by halving, named once a step, and left for the staff.
    async fn expire_these(&self, due: &[Due], hold: Duration) -> Result<Expired, BackendError> {
        if due.is_empty() {
            return Ok(Expired::default());
        }
        match self.db.write_batch("expire orders", |tx| async move { expire(&tx, due, hold).await }).await {
            Err(error) if error.fault == Fault::Permanent => match due {
                [it] => {
                    tracing::error!(order.id = %it.id, error = error.chain(), "an order that is due cannot be expired");
                    Ok(Expired::default())
                }
                _ => {
                    let (first, second) = due.split_at(due.len() / 2);
                    let mut expired = Box::pin(self.expire_these(first, hold)).await?;
                    let second = Box::pin(self.expire_these(second, hold)).await?;
                    expired.closed += second.closed;
                    expired.held += second.held;
                    Ok(expired)
                }
            },
            other => other,
        }
    }
}

async fn expire(tx: &Tx, due: &[Due], hold: Duration) -> Result<Expired, Failure> {
    let places: BTreeSet<Place> = due.iter().map(|it| it.place.clone()).collect();
    let ids: Vec<OrderId> = due.iter().map(|it| it.id).collect();
    let paying: HashSet<OrderId> = due.iter().filter(|it| it.paying).map(|it| it.id).collect();
    let (locked, now) = closing::lock(tx, &places, &ids, true).await?;
    // Paid, cancelled or held meanwhile: read again behind the lock.
    let still_due = |order: &Order| rules::is_due(order, now);
    let (mut over, mut held, mut until) = (Vec::new(), Vec::new(), Vec::new());
    for order in locked.iter().map(rows::order).filter_map(named).filter(still_due) {
        let id = order.reservation.order;
        match rules::held_until(&order, paying.contains(&id), hold, now) {
            None => over.push(id),
            Some(time) => {
                held.push(id);
                until.push(time);
            }
        }
    }
    if !held.is_empty() {
        tx.rows((HOLD, &[&held, &until])).await?;
    }
    let closed = close(tx, &over, OrderStatus::Pending, OrderStatus::Expired, now).await?;
    Ok(Expired { closed, held: held.len() as u64, more: false })
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
            tx.rows((ASK_NOW, &[&id, &now])).await?;
            Ok(CancelOutcome::Cancelled(Order { status: OrderStatus::Cancelled, ..order }))
        }
    }
}
