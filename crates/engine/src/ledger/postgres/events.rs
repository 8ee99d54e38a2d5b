//! Events and their deliveries in PostgreSQL.
//!
//! Numbers of a list are given out in another order than transactions commit, so whoever reads "what
//! is new" by number alone would skip the row that commits late. Only what is *settled* is read: a
//! note is taken of the highest numbers that are there, with the id of the transaction that took it;
//! whoever has a lower number was given a transaction id before, since an event is written behind
//! the row that it is about. Once every older transaction has ended, the noted numbers are settled.
//! Recording pays nothing for this: no column, no lock, no second write. (Refused: a column with each
//! row's transaction id. Read in its order, two steps of one order can come the wrong way round,
//! since a transaction may get its id long before it waits for the order's lock.)

use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresLedger;
use super::db::{CLOCK, Query, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::events::{self, ORDER_LIST, SHOP_LIST, Seen};
use crate::ledger::{
    About, Attempted, Delivery, DeliveryFilter, DeliveryState, DueDelivery, Event, EventType, Events, Then,
};
use crate::order::{ItemId, Order, OrderId, OrderStatus, SaleId};

#[async_trait]
impl Events for PostgresLedger {
    async fn register_endpoint(&self, endpoint: &str) -> Result<(), BackendError> {
        let sql = "INSERT INTO event_endpoint (name, order_cursor, shop_cursor) \
             SELECT $1, (SELECT coalesce(max(id), 0) FROM order_event), \
             (SELECT coalesce(max(id), 0) FROM shop_event) ON CONFLICT DO NOTHING";
        self.db
            .write("register an endpoint", |tx| async move { tx.rows((sql, &[&endpoint])).await.map(drop) })
            .await
    }

    async fn plan_deliveries(
        &self,
        endpoint: &str,
        types: &[EventType],
        limit: usize,
    ) -> Result<u64, BackendError> {
        // Looked at first: an endpoint that is told everything costs no transaction.
        let found = self.query_all("look for events", (LOOK, &[&endpoint]), Look::read).await?;
        if !found.first().is_some_and(Look::has_work) {
            return Ok(0);
        }
        self.db.write("plan deliveries", |tx| async move { plan(&tx, endpoint, types, limit).await }).await
    }

    async fn claim_deliveries(
        &self,
        endpoint: &str,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, BackendError> {
        self.db.write("claim deliveries", |tx| async move { claim(&tx, endpoint, lease, limit).await }).await
    }

    async fn note_deliveries(&self, attempted: &[Attempted]) -> Result<(), BackendError> {
        self.db.write("note deliveries", |tx| async move { note(&tx, attempted).await }).await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM event_delivery WHERE id < $1 AND ($2::text IS NULL OR endpoint = $2) \
             AND ($3::text IS NULL OR state = $3) AND ($4::text IS NULL OR subject = $4) \
             ORDER BY id DESC LIMIT $5"
        );
        let (before, state) = (before.unwrap_or(i64::MAX), filter.state.map(DeliveryState::as_str));
        let query: Query<'_> = (&sql, &[&before, &filter.endpoint, &state, &filter.subject, &at_most(limit)]);
        self.query_all("list deliveries", query, delivery).await
    }

    async fn delivery(&self, id: i64) -> Result<Option<(Delivery, Event)>, BackendError> {
        let sql = format!("SELECT {COLUMNS}, list, number FROM event_delivery WHERE id = $1");
        self.db
            .read("read a delivery", |tx| {
                let sql = &sql;
                async move {
                    let Some(row) = tx.rows((sql, &[&id])).await?.pop() else { return Ok(None) };
                    let place = (row.try_get("list")?, row.try_get("number")?);
                    let event = events_at(&tx, &[place]).await?.pop().map(|(_, event)| event);
                    event.map(|event| delivery(&row).map(|it| (it, event))).transpose()
                }
            })
            .await
    }

    async fn replay_delivery(&self, id: i64) -> Result<Option<Delivery>, BackendError> {
        let sql = format!(
            "UPDATE event_delivery SET state = 'waiting', tries = 0, next_at = $2 WHERE id = $1 RETURNING {COLUMNS}"
        );
        self.db
            .write("replay a delivery", |tx| {
                let sql = &sql;
                async move {
                    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                    rows::one(&tx.rows((sql, &[&id, &now])).await?, delivery)
                }
            })
            .await
    }

    async fn replay_dead(&self, endpoint: &str, limit: usize) -> Result<u64, BackendError> {
        let sql = "UPDATE event_delivery SET state = 'waiting', tries = 0, next_at = $2 WHERE id IN \
             (SELECT id FROM event_delivery WHERE endpoint = $1 AND state = 'dead' ORDER BY id LIMIT $3 FOR UPDATE) \
             RETURNING id";
        self.db
            .write("replay dead deliveries", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                Ok(tx.rows((sql, &[&endpoint, &now, &at_most(limit)])).await?.len() as u64)
            })
            .await
    }

    async fn forget_deliveries(
        &self,
        endpoint: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, BackendError> {
        let sql = "DELETE FROM event_delivery WHERE id IN (SELECT id FROM event_delivery WHERE endpoint = $1 \
             AND state <> 'waiting' AND attempted_at < $2 ORDER BY attempted_at LIMIT $3 FOR UPDATE SKIP LOCKED) \
             RETURNING id";
        self.db
            .write("forget deliveries", |tx| async move {
                Ok(tx.rows((sql, &[&endpoint, &before, &at_most(limit)])).await?.len() as u64)
            })
            .await
    }
}

/// Writes down what happened to a sale or one of its items.
pub(super) async fn note_shop_event(
    tx: &Tx,
    kind: EventType,
    sale: SaleId,
    item: Option<(ItemId, u64)>,
    now: Timestamp,
) -> Result<(), Failure> {
    let (item, units) = item.map(|(item, units)| (item, rows::signed(units))).unzip();
    let sql = "INSERT INTO shop_event (kind, sale, item, units, at) VALUES ($1, $2, $3, $4, $5)";
    tx.rows((sql, &[&kind.as_str(), &sale, &item, &units, &now])).await.map(drop)
}

/// The state of both lists and of an endpoint, in one snapshot. Ids of transactions are numbers of 64
/// bits that grow as long as the server's data lives.
const LOOK: &str = "SELECT pg_snapshot_xmin(s)::text::bigint AS oldest, pg_snapshot_xmax(s)::text::bigint AS newest, \
     (SELECT coalesce(max(id), 0) FROM order_event) AS orders_seen, \
     (SELECT coalesce(max(id), 0) FROM shop_event) AS shop_seen, \
     h.order_settled, h.shop_settled, h.order_next, h.shop_next, h.next_xid, e.order_cursor, e.shop_cursor \
     FROM pg_current_snapshot() AS s, event_horizon AS h, event_endpoint AS e WHERE e.name = $1";

/// What [`LOOK`] sees.
struct Look {
    /// Every transaction with a lower id has ended.
    oldest: i64,
    newest: i64,
    /// The highest numbers that are there, of both lists; some lower ones may be missing yet.
    seen: (i64, i64),
    horizon: Horizon,
    /// Up to where deliveries are written down.
    cursors: (i64, i64),
}

/// How far both lists are whole, and what will be once older transactions have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Horizon {
    settled: (i64, i64),
    next: (i64, i64),
    next_xid: i64,
}

impl Look {
    fn read(row: &Row) -> Result<Self, Failure> {
        Ok(Self {
            oldest: row.try_get("oldest")?,
            newest: row.try_get("newest")?,
            seen: (row.try_get("orders_seen")?, row.try_get("shop_seen")?),
            horizon: Horizon {
                settled: (row.try_get("order_settled")?, row.try_get("shop_settled")?),
                next: (row.try_get("order_next")?, row.try_get("shop_next")?),
                next_xid: row.try_get("next_xid")?,
            },
            cursors: (row.try_get("order_cursor")?, row.try_get("shop_cursor")?),
        })
    }

    /// Whether a transaction would get anywhere now.
    fn has_work(&self) -> bool {
        let moved = self.horizon.moved(self, i64::MAX);
        moved != self.horizon || self.cursors.0 < moved.settled.0 || self.cursors.1 < moved.settled.1
    }
}

impl Horizon {
    /// Where it stands after a look, which was taken before the transaction `own` got its id.
    fn moved(self, look: &Look, own: i64) -> Self {
        let mut horizon = self;
        // A note from beyond every id was taken on another server, from which this one's data was copied.
        if look.oldest >= self.next_xid || self.next_xid > look.newest {
            if look.oldest >= self.next_xid {
                horizon.settled = self.next;
            }
            if look.seen != horizon.settled {
                (horizon.next, horizon.next_xid) = (look.seen, own);
            }
        }
        horizon
    }
}

async fn plan(tx: &Tx, endpoint: &str, types: &[EventType], limit: usize) -> Result<u64, Failure> {
    // One plans at a time. This lock gives us no transaction id yet, so ours is given out behind the look.
    let [_, look, own, now] = tx
        .pipeline([
            ("SELECT pg_advisory_xact_lock($1)", &[&tx.events_key()]),
            (LOOK, &[&endpoint]),
            ("SELECT pg_current_xact_id()::text::bigint AS own", &[]),
            (CLOCK, &[&tx.clock()]),
        ])
        .await?;
    let Some(look) = rows::one(&look, Look::read)? else { return Ok(0) };
    let own: i64 = own.first().ok_or(Failure::Overtaken)?.try_get("own")?;
    let moved = look.horizon.moved(&look, own);
    if moved != look.horizon {
        let sql = "UPDATE event_horizon SET order_settled = $1, shop_settled = $2, order_next = $3, \
             shop_next = $4, next_xid = $5";
        let (settled, next) = (moved.settled, moved.next);
        tx.rows((sql, &[&settled.0, &settled.1, &next.0, &next.1, &moved.next_xid])).await?;
    }

    let (order_cursor, shop_cursor) = look.cursors;
    let [steps, others] = tx
        .pipeline([
            (
                "SELECT id, ord, to_status FROM order_event WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                &[&order_cursor, &moved.settled.0, &at_most(limit)],
            ),
            (
                "SELECT id, kind, sale, at FROM shop_event WHERE id > $1 AND id <= $2 ORDER BY id LIMIT $3",
                &[&shop_cursor, &moved.settled.1, &at_most(limit)],
            ),
        ])
        .await?;
    let steps = rows::all(&steps, |row| {
        Ok(Seen::step(row.try_get("id")?, row.try_get("ord")?, rows::word(row, "to_status")?))
    })?;
    let others = rows::all(&others, |row| {
        let kind = rows::word(row, "kind")?;
        Ok(Seen::of_sale(row.try_get("id")?, kind, row.try_get("sale")?, row.try_get("at")?))
    })?;
    let order_cursor = reached(order_cursor, moved.settled.0, &steps, limit);
    let shop_cursor = reached(shop_cursor, moved.settled.1, &others, limit);
    let done = steps.len() + others.len();
    let wanted: Vec<Seen> = steps.into_iter().chain(others).filter(|it| types.contains(&it.kind)).collect();
    insert(tx, endpoint, &wanted, rows::time(&now)?).await?;
    let sql = "UPDATE event_endpoint SET order_cursor = $2, shop_cursor = $3 WHERE name = $1";
    tx.rows((sql, &[&endpoint, &order_cursor, &shop_cursor])).await?;
    Ok(done as u64 + u64::from(moved != look.horizon))
}

/// Up to where a list was read: to its settled end, unless the page was full.
fn reached(cursor: i64, settled: i64, page: &[Seen], limit: usize) -> i64 {
    match page.last() {
        Some(last) if page.len() == limit => last.number,
        _ => settled.max(cursor),
    }
}

async fn insert(tx: &Tx, endpoint: &str, wanted: &[Seen], now: Timestamp) -> Result<(), Failure> {
    if wanted.is_empty() {
        return Ok(());
    }
    let lists: Vec<&str> = wanted.iter().map(|it| it.list).collect();
    let numbers: Vec<i64> = wanted.iter().map(|it| it.number).collect();
    let ids: Vec<&str> = wanted.iter().map(|it| it.id.as_str()).collect();
    let kinds: Vec<&str> = wanted.iter().map(|it| it.kind.as_str()).collect();
    let subjects: Vec<&str> = wanted.iter().map(|it| it.subject.as_str()).collect();
    let sql = "INSERT INTO event_delivery (endpoint, list, number, event, kind, subject, next_at) \
         SELECT $1, list, number, event, kind, subject, $2 \
         FROM unnest($3::text[], $4::bigint[], $5::text[], $6::text[], $7::text[]) WITH ORDINALITY \
             AS t (list, number, event, kind, subject, n) \
         ORDER BY n ON CONFLICT (endpoint, event) DO NOTHING";
    tx.rows((sql, &[&endpoint, &now, &lists, &numbers, &ids, &kinds, &subjects])).await.map(drop)
}

const CLAIM: &str = "UPDATE event_delivery SET attempts = attempts + 1, tries = tries + 1, leased_until = $3 \
     WHERE id IN (SELECT id FROM event_delivery AS it WHERE endpoint = $1 AND state = 'waiting' \
         AND next_at <= $2 AND leased_until <= $2 AND NOT EXISTS (SELECT 1 FROM event_delivery AS earlier \
             WHERE earlier.subject = it.subject AND earlier.endpoint = it.endpoint AND earlier.id < it.id \
             AND earlier.state = 'waiting') \
         ORDER BY next_at, id LIMIT $4 FOR UPDATE SKIP LOCKED) \
     RETURNING id, attempts, tries, list, number";

async fn claim(tx: &Tx, endpoint: &str, lease: Duration, limit: usize) -> Result<Vec<DueDelivery>, Failure> {
    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
    let claimed = tx.rows((CLAIM, &[&endpoint, &now, &now.plus(lease), &at_most(limit)])).await?;
    if claimed.is_empty() {
        return Ok(Vec::new());
    }
    let place = |row: &Row| Ok((row.try_get("list")?, row.try_get("number")?));
    let found = events_at(tx, &rows::all(&claimed, place)?).await?;
    let mut due = Vec::with_capacity(claimed.len());
    for row in &claimed {
        let place: (String, i64) = place(row)?;
        let Some((_, event)) = found.iter().find(|(at, _)| *at == place) else { continue };
        due.push(DueDelivery {
            id: row.try_get("id")?,
            attempt: rows::count(row, "attempts")?,
            tries: rows::narrow(row, "tries")?,
            event: event.clone(),
        });
    }
    Ok(due)
}

/// The events at these places, each a list and a number in it.
async fn events_at(tx: &Tx, places: &[(String, i64)]) -> Result<Vec<((String, i64), Event)>, Failure> {
    let numbers = |list: &str| -> Vec<i64> {
        places.iter().filter(|(it, _)| it == list).map(|(_, number)| *number).collect()
    };
    let orders = format!(
        "SELECT {ORDER_COLUMNS} FROM orders WHERE id IN (SELECT ord FROM order_event WHERE id = ANY($1))"
    );
    let (step_numbers, shop_numbers) = (numbers(ORDER_LIST), numbers(SHOP_LIST));
    let [steps, orders, others] = tx
        .pipeline([
            ("SELECT id, ord, to_status, at FROM order_event WHERE id = ANY($1)", &[&step_numbers]),
            (&orders, &[&step_numbers]),
            ("SELECT id, kind, sale, item, units, at FROM shop_event WHERE id = ANY($1)", &[&shop_numbers]),
        ])
        .await?;
    let orders: Vec<Order> = rows::all(&orders, rows::order)?;
    let mut found = Vec::with_capacity(places.len());
    for row in &steps {
        let (number, id): (i64, OrderId) = (row.try_get("id")?, row.try_get("ord")?);
        let to: OrderStatus = rows::word(row, "to_status")?;
        if let Some(order) = orders.iter().find(|it| it.reservation.order == id) {
            let event = events::event_of_step(order.clone(), to, row.try_get("at")?);
            found.push(((ORDER_LIST.to_owned(), number), event));
        }
    }
    for row in &others {
        let (number, at): (i64, Timestamp) = (row.try_get("id")?, row.try_get("at")?);
        let kind: EventType = rows::word(row, "kind")?;
        let units: Option<i64> = row.try_get("units")?;
        let about = About::Sale {
            sale: row.try_get("sale")?,
            item: row.try_get("item")?,
            units: units.and_then(|units| u64::try_from(units).ok()),
        };
        let event = Event { id: kind.id_of_number(number, at), kind, at, about };
        found.push(((SHOP_LIST.to_owned(), number), event));
    }
    Ok(found)
}

/// What stands behind a delivery that failed cannot be due before it: it is not looked at meanwhile.
const NOTE: &str = "WITH noted AS ( \
         UPDATE event_delivery AS it SET state = t.state, next_at = t.next_at, leased_until = 0, \
             attempted_at = $1, status = t.status, answer = t.answer \
         FROM unnest($2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::text[]) \
             AS t (id, attempt, state, next_at, status, answer) \
         WHERE it.id = t.id AND it.attempts = t.attempt AND it.state = 'waiting' \
         RETURNING it.id, it.endpoint, it.subject, it.state, it.next_at \
     ) UPDATE event_delivery AS behind SET next_at = noted.next_at FROM noted \
     WHERE noted.state = 'waiting' AND behind.subject = noted.subject AND behind.endpoint = noted.endpoint \
         AND behind.id > noted.id AND behind.state = 'waiting' AND behind.next_at < noted.next_at";

async fn note(tx: &Tx, attempted: &[Attempted]) -> Result<(), Failure> {
    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
    let then = |it: &Attempted| match it.then {
        Then::Delivered => (DeliveryState::Delivered.as_str(), now),
        Then::Again(wait) => (DeliveryState::Waiting.as_str(), now.plus(wait)),
        Then::Dead => (DeliveryState::Dead.as_str(), now),
    };
    let (states, nexts): (Vec<&str>, Vec<Timestamp>) = attempted.iter().map(then).unzip();
    let ids: Vec<i64> = attempted.iter().map(|it| it.id).collect();
    let attempts: Vec<i64> = attempted.iter().map(|it| rows::signed(it.attempt)).collect();
    let statuses: Vec<Option<i64>> = attempted.iter().map(|it| it.status.map(i64::from)).collect();
    let answers: Vec<String> = attempted.iter().map(|it| events::kept(&it.answer)).collect();
    tx.rows((NOTE, &[&now, &ids, &attempts, &states, &nexts, &statuses, &answers])).await.map(drop)
}

/// The columns of [`delivery`].
const COLUMNS: &str =
    "id, endpoint, event, kind, subject, state, attempts, next_at, attempted_at, status, answer";

fn delivery(row: &Row) -> Result<Delivery, Failure> {
    let status: Option<i64> = row.try_get("status")?;
    Ok(Delivery {
        id: row.try_get("id")?,
        endpoint: row.try_get("endpoint")?,
        event: row.try_get("event")?,
        kind: rows::word(row, "kind")?,
        subject: row.try_get("subject")?,
        state: rows::word(row, "state")?,
        attempts: rows::count(row, "attempts")?,
        next_at: row.try_get("next_at")?,
        attempted_at: row.try_get("attempted_at")?,
        status: status.and_then(|status| u16::try_from(status).ok()),
        answer: row.try_get("answer")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(oldest: i64, newest: i64, seen: i64) -> Look {
        let horizon = Horizon { settled: (0, 0), next: (0, 0), next_xid: 0 };
        Look { oldest, newest, seen: (seen, 0), horizon, cursors: (0, 0) }
    }

    #[test]
    fn numbers_are_settled_once_everybody_who_was_there_has_ended() {
        let new = Horizon { settled: (0, 0), next: (0, 0), next_xid: 0 };
        let noted = new.moved(&look(90, 101, 7), 102);
        assert_eq!(noted, Horizon { settled: (0, 0), next: (7, 0), next_xid: 102 });
        assert_eq!(noted.moved(&look(101, 110, 9), 111), noted, "101 may still write number 6");
        let settled = noted.moved(&look(102, 110, 9), 111);
        assert_eq!(settled, Horizon { settled: (7, 0), next: (9, 0), next_xid: 111 });
        let quiet = settled.moved(&look(120, 120, 9), 121);
        assert_eq!(quiet, Horizon { settled: (9, 0), ..settled });
        assert_eq!(quiet.moved(&look(130, 130, 9), 131), quiet, "nothing is written while nothing is new");
    }

    #[test]
    fn a_note_from_another_servers_future_is_taken_again() {
        let copied = Horizon { settled: (5, 0), next: (7, 0), next_xid: 1_000_000 };
        let again = copied.moved(&look(90, 101, 7), 102);
        assert_eq!(again, Horizon { settled: (5, 0), next: (7, 0), next_xid: 102 });
    }
}
