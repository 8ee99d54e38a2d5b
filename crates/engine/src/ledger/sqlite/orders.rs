//! Orders, releases and positions in SQLite.

use async_trait::async_trait;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use super::rows::{self, ORDER_COLUMNS, signed};
use super::{Now, SqliteLedger, attempts, events, record};
use crate::clock::Timestamp;
use crate::delivery::{Batch, Position};
use crate::fault::BackendError;
use crate::ledger::{
    CancelOutcome, EventType, Expired, Orders, Positions, RecordOutcome, ReleaseRow, Releases, rules,
};
use crate::order::{ItemId, Order, OrderId, OrderPlaced, OrderStatus, SaleId, UserId};

#[async_trait]
impl Orders for SqliteLedger {
    async fn record(&self, batch: &Batch) -> Result<RecordOutcome, BackendError> {
        let (batch, now) = (batch.clone(), self.clock.now());
        self.db.write("record a batch", move |tx| record::record(tx, &batch, now)).await
    }

    async fn expire(&self, limit: usize, hold: Duration) -> Result<Expired, BackendError> {
        let now = self.now();
        self.db.write("expire orders", move |tx| expire(tx, limit, hold, now)).await
    }

    async fn cancel(
        &self,
        id: OrderId,
        user: &UserId,
        queued: Option<&OrderPlaced>,
    ) -> Result<CancelOutcome, BackendError> {
        let (user, queued, now) = (user.clone(), queued.cloned(), self.now());
        self.db.write("cancel an order", move |tx| cancel(tx, id, &user, queued.as_ref(), now)).await
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, BackendError> {
        self.db.read("read an order", move |tx| rows::find_order(tx, id)).await
    }

    async fn struck(&self, sale: SaleId, strikes: u32) -> Result<Vec<UserId>, BackendError> {
        self.db
            .read("read strikes", move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT user FROM orders o WHERE sale = ?1 AND strike = 1 \
                     AND NOT EXISTS (SELECT 1 FROM payment p WHERE p.ord = o.id AND p.outcome <> 'AMOUNT_MISMATCH') \
                     AND NOT EXISTS (SELECT 1 FROM orders r WHERE r.retake_of = o.id) \
                     GROUP BY user HAVING count(*) >= ?2",
                )?;
                let users = statement.query_map((sale, strikes), |row| row.get(0))?;
                users.collect()
            })
            .await
    }

    async fn orders_of(&self, sale: SaleId, user: &UserId, limit: usize) -> Result<Vec<Order>, BackendError> {
        let user = user.clone();
        self.db
            .read("read a user's orders", move |tx| {
                let sql = format!(
                    "SELECT {ORDER_COLUMNS} FROM orders WHERE sale = ?1 AND user = ?2 ORDER BY reserved_at DESC, id DESC LIMIT ?3"
                );
                let mut statement = tx.prepare_cached(&sql)?;
                let orders = statement.query_map((sale, user, signed(limit as u64)), rows::order)?;
                orders.collect()
            })
            .await
    }

    async fn orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Vec<Order>, BackendError> {
        self.db
            .read("list orders", move |tx| {
                let sql = format!(
                    "SELECT {ORDER_COLUMNS} FROM orders WHERE sale = ?1 AND id > ?2 ORDER BY id LIMIT ?3"
                );
                let mut statement = tx.prepare_cached(&sql)?;
                let after = after.unwrap_or(OrderId(uuid::Uuid::nil()));
                let orders = statement.query_map((sale, after, signed(limit as u64)), rows::order)?;
                orders.collect()
            })
            .await
    }

    async fn statuses(&self, ids: &[OrderId]) -> Result<Vec<Option<OrderStatus>>, BackendError> {
        let ids = ids.to_vec();
        self.db
            .read("read orders' statuses", move |tx| {
                ids.into_iter().map(|id| Ok(rows::find_order(tx, id)?.map(|order| order.status))).collect()
            })
            .await
    }
}

fn expire(tx: &Connection, limit: usize, hold: Duration, now: Now) -> rusqlite::Result<Expired> {
    let sql = format!(
        "SELECT {ORDER_COLUMNS}, EXISTS (SELECT 1 FROM payment_attempt a \
             WHERE a.ord = orders.id AND a.closed_at IS NULL AND a.reference IS NOT NULL) AS paying \
         FROM orders WHERE status = 'PENDING' AND hold_until < ?1 ORDER BY hold_until, id LIMIT ?2"
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let due: Vec<_> = statement
        .query_map((now.at, signed(limit as u64)), |row| Ok((rows::order(row)?, row.get("paying")?)))?
        .collect();
    let mut expired = Expired { more: due.len() == limit, ..Expired::default() };
    for read in due {
        // One bad row does not stop the others: it is named once a step and left for the staff.
        let (order, paying) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::error!(%error, "an order that is due cannot be read");
                continue;
            }
        };
        if let Some(until) = rules::held_until(&order, paying, hold, now.at) {
            tx.prepare_cached("UPDATE orders SET hold_until = ?2 WHERE id = ?1")?
                .execute((order.reservation.order, until))?;
            expired.held += 1;
        } else {
            rows::close_order(tx, &order, OrderStatus::Expired, now)?;
            expired.closed += 1;
        }
    }
    Ok(expired)
}

fn cancel(
    tx: &Connection,
    id: OrderId,
    user: &UserId,
    queued: Option<&OrderPlaced>,
    now: Now,
) -> rusqlite::Result<CancelOutcome> {
    let known = rows::find_order(tx, id)?;
    let Some(order) = known else {
        let Some(placed) =
            queued.filter(|placed| placed.reservation.order == id && placed.reservation.user == *user)
        else {
            return Ok(CancelOutcome::Unknown);
        };
        let order = rules::stillborn(placed, OrderStatus::Cancelled, None, now.at);
        rows::insert_order(tx, &order, None, now.at)?;
        rows::note_release(tx, &order.reservation, now.release_at())?;
        return Ok(CancelOutcome::Cancelled(order));
    };
    if order.reservation.user != *user {
        return Ok(CancelOutcome::Unknown);
    }
    match rules::cancel(order) {
        ControlFlow::Break(answer) => Ok(answer),
        ControlFlow::Continue(order) => {
            rows::close_order(tx, &order, OrderStatus::Cancelled, now)?;
            attempts::ask_now(tx, id, now.at)?;
            Ok(CancelOutcome::Cancelled(Order { status: OrderStatus::Cancelled, ..order }))
        }
    }
}

/// Two ranges of the index, read from their ends: a sale that ended has many rows whose moment has not come.
const RELEASES_DUE: &str = "WITH due AS ( \
         SELECT * FROM (SELECT * FROM release_row \
             WHERE due_at <= ?3 AND sale NOT IN (SELECT value FROM json_each(?1)) \
             ORDER BY due_at, id LIMIT ?2) \
         UNION ALL \
         SELECT * FROM (SELECT * FROM release_row \
             WHERE due_at > ?4 AND sale NOT IN (SELECT value FROM json_each(?1)) \
             ORDER BY due_at, id LIMIT ?2) \
     ) SELECT due.ord, due.sale, due.user, s.epoch FROM due JOIN sale s ON s.id = due.sale \
     ORDER BY due.due_at, due.id LIMIT ?2";

#[async_trait]
impl Releases for SqliteLedger {
    async fn releases_due(&self, skip: &[SaleId], limit: usize) -> Result<Vec<ReleaseRow>, BackendError> {
        let skip = serde_json::to_string(skip).unwrap_or_else(|_| "[]".to_owned());
        let (now, latest) = (self.clock.now(), self.clock.now().plus(self.release_spread));
        self.db
            .read("read releases", move |tx| {
                let mut statement = tx.prepare_cached(RELEASES_DUE)?;
                let rows = statement.query_map((skip, signed(limit as u64), now, latest), |row| {
                    Ok(ReleaseRow {
                        order: row.get("ord")?,
                        sale: row.get("sale")?,
                        user: row.get("user")?,
                        epoch: row.get("epoch")?,
                    })
                })?;
                rows.collect()
            })
            .await
    }

    async fn releases_waiting(&self, limit: usize) -> Result<Vec<OrderId>, BackendError> {
        self.db
            .read("read who waits for a release", move |tx| {
                tx.prepare_cached("SELECT ord FROM release_row ORDER BY id LIMIT ?1")?
                    .query_map([signed(limit as u64)], |row| row.get(0))?
                    .collect()
            })
            .await
    }

    async fn releases_done(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        let (orders, now) = (orders.to_vec(), self.clock.now());
        self.db.write("drop releases", move |tx| releases_done(tx, &orders, now)).await
    }

    async fn ensure_releases(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        let (orders, now) = (orders.to_vec(), self.clock.now());
        self.db
            .write("make sure of releases", move |tx| {
                for id in orders {
                    if let Some(order) = rows::find_order(tx, id)?.filter(|order| !order.status.is_live()) {
                        rows::note_release(tx, &order.reservation, now)?;
                    }
                }
                Ok(())
            })
            .await
    }
}

/// Drops the rows; what they gave back can be bought from now on, and the shop is told.
fn releases_done(tx: &Connection, orders: &[OrderId], now: Timestamp) -> rusqlite::Result<()> {
    let mut back: BTreeMap<(SaleId, ItemId), u64> = BTreeMap::new();
    for order in orders {
        let gone = tx.prepare_cached("DELETE FROM release_row WHERE ord = ?1")?.execute([order])?;
        if gone == 1
            && let Some(order) = rows::find_order(tx, *order)?
            && order.reservation.has_step()
        {
            let it = &order.reservation;
            *back.entry((it.sale, it.item)).or_default() += u64::from(it.units.0);
        }
    }
    for ((sale, item), units) in back {
        events::note_shop_event(tx, EventType::StockReturned, sale, Some((item, units)), now)?;
    }
    Ok(())
}

#[async_trait]
impl Positions for SqliteLedger {
    async fn register(&self, partitions: &[Position]) -> Result<(), BackendError> {
        let partitions = partitions.to_vec();
        self.db
            .write("register partitions", move |tx| {
                let mut statement = tx.prepare_cached(
                    "INSERT INTO queue_offset (topic, part, next) VALUES (?1, ?2, 0) ON CONFLICT DO NOTHING",
                )?;
                partitions
                    .into_iter()
                    .try_for_each(|it| statement.execute((it.topic.0, it.partition)).map(drop))
            })
            .await
    }

    async fn cut_back(&self, from: &Position, end: u64) -> Result<bool, BackendError> {
        let from = from.clone();
        self.db
            .write("cut a position back", move |tx| {
                let sql = "UPDATE queue_offset SET next = ?4 WHERE topic = ?1 AND part = ?2 AND next = ?3 AND next > ?4";
                let place = (from.topic.0, from.partition, rows::signed(from.next), rows::signed(end));
                Ok(tx.execute(sql, place)? == 1)
            })
            .await
    }

    async fn positions(&self) -> Result<Vec<Position>, BackendError> {
        self.db
            .read("read positions", |tx| {
                let mut statement =
                    tx.prepare_cached("SELECT topic, part, next FROM queue_offset ORDER BY topic, part")?;
                let positions = statement.query_map([], record::position)?;
                positions.collect()
            })
            .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_found_by_its_index() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(
            "CREATE TABLE sale (id INTEGER PRIMARY KEY, epoch INTEGER); \
             CREATE TABLE release_row (id INTEGER PRIMARY KEY, ord BLOB, sale INTEGER, user BLOB, due_at INTEGER); \
             CREATE INDEX release_row_due ON release_row (due_at);",
        )
        .unwrap();
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {RELEASES_DUE}")).unwrap();
        let steps = statement.query_map(("[]", 1, 1, 1), |row| row.get::<_, String>("detail")).unwrap();
        let steps: Vec<String> = steps.map(Result::unwrap).collect();
        let searches =
            steps.iter().filter(|it| it.starts_with("SEARCH release_row USING INDEX release_row_due"));
        assert_eq!(searches.count(), 2, "{steps:#?}");
        assert!(!steps.iter().any(|it| it.contains("SCAN release_row")), "{steps:#?}");
    }
}
