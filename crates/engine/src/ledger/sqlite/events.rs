//! Events and their deliveries in SQLite. One writer gives out the numbers of both lists, so what is
//! there is whole.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteLedger;
use super::rows::{self, signed};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::events::{self, ORDER_LIST, SHOP_LIST, Seen};
use crate::ledger::{
    About, Attempted, Delivery, DeliveryFilter, DeliveryState, DueDelivery, Event, EventType, Events, Then,
};
use crate::order::{ItemId, OrderId, SaleId};

#[async_trait]
impl Events for SqliteLedger {
    async fn register_endpoint(&self, endpoint: &str) -> Result<(), BackendError> {
        let endpoint = endpoint.to_owned();
        self.db
            .write("register an endpoint", move |tx| {
                tx.execute(
                    "INSERT INTO event_endpoint (name, order_cursor, shop_cursor) \
                     SELECT ?1, (SELECT coalesce(max(id), 0) FROM order_event), \
                     (SELECT coalesce(max(id), 0) FROM shop_event) WHERE true ON CONFLICT DO NOTHING",
                    [endpoint],
                )
                .map(drop)
            })
            .await
    }

    async fn plan_deliveries(
        &self,
        endpoint: &str,
        types: &[EventType],
        limit: usize,
    ) -> Result<u64, BackendError> {
        let (name, types, now) = (endpoint.to_owned(), types.to_vec(), self.clock.now());
        // Looked at first: an endpoint that is told everything costs no turn of the writer.
        let behind = self.db.read("look for events", move |tx| Ok(read_new(tx, &name, 1)?.is_some()));
        if !behind.await? {
            return Ok(0);
        }
        let name = endpoint.to_owned();
        self.db.write("plan deliveries", move |tx| plan(tx, &name, &types, limit, now)).await
    }

    async fn claim_deliveries(
        &self,
        endpoint: &str,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, BackendError> {
        let (name, now) = (endpoint.to_owned(), self.clock.now());
        let due = self.db.read("look for deliveries", move |tx| Ok(!due(tx, &name, now, 1)?.is_empty()));
        if !due.await? {
            return Ok(Vec::new());
        }
        let name = endpoint.to_owned();
        self.db.write("claim deliveries", move |tx| claim(tx, &name, lease, limit, now)).await
    }

    async fn note_deliveries(&self, attempted: &[Attempted]) -> Result<(), BackendError> {
        let (attempted, now) = (attempted.to_vec(), self.clock.now());
        self.db
            .write("note deliveries", move |tx| attempted.iter().try_for_each(|it| note(tx, it, now)))
            .await
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        let filter = filter.clone();
        self.db
            .read("list deliveries", move |tx| {
                let mut statement = tx.prepare_cached(
                    "SELECT * FROM event_delivery WHERE id < ?1 AND (?2 IS NULL OR endpoint = ?2) \
                     AND (?3 IS NULL OR state = ?3) AND (?4 IS NULL OR subject = ?4) ORDER BY id DESC LIMIT ?5",
                )?;
                let state = filter.state.map(DeliveryState::as_str);
                let before = before.unwrap_or(i64::MAX);
                let found = statement.query_map(
                    (before, filter.endpoint, state, filter.subject, signed(limit as u64)),
                    delivery,
                )?;
                found.collect()
            })
            .await
    }

    async fn delivery(&self, id: i64) -> Result<Option<(Delivery, Event)>, BackendError> {
        self.db
            .read("read a delivery", move |tx| {
                let Some((found, list, number)) = find(tx, id)? else { return Ok(None) };
                Ok(event(tx, &list, number)?.map(|event| (found, event)))
            })
            .await
    }

    async fn replay_delivery(&self, id: i64) -> Result<Option<Delivery>, BackendError> {
        let now = self.clock.now();
        self.db
            .write("replay a delivery", move |tx| {
                tx.execute(
                    "UPDATE event_delivery SET state = 'waiting', tries = 0, next_at = ?2 WHERE id = ?1",
                    (id, now),
                )?;
                Ok(find(tx, id)?.map(|(found, ..)| found))
            })
            .await
    }

    async fn replay_dead(&self, endpoint: &str, limit: usize) -> Result<u64, BackendError> {
        let (endpoint, now) = (endpoint.to_owned(), self.clock.now());
        self.db
            .write("replay dead deliveries", move |tx| {
                let replayed = tx.execute(
                    "UPDATE event_delivery SET state = 'waiting', tries = 0, next_at = ?2 WHERE id IN \
                     (SELECT id FROM event_delivery WHERE endpoint = ?1 AND state = 'dead' ORDER BY id LIMIT ?3)",
                    (endpoint, now, signed(limit as u64)),
                )?;
                Ok(replayed as u64)
            })
            .await
    }

    async fn forget_deliveries(
        &self,
        endpoint: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, BackendError> {
        let endpoint = endpoint.to_owned();
        self.db
            .write("forget deliveries", move |tx| {
                let dropped = tx.execute(
                    "DELETE FROM event_delivery WHERE id IN (SELECT id FROM event_delivery WHERE endpoint = ?1 \
                     AND state <> 'waiting' AND attempted_at < ?2 ORDER BY attempted_at LIMIT ?3)",
                    (endpoint, before, signed(limit as u64)),
                )?;
                Ok(dropped as u64)
            })
            .await
    }
}

/// Writes down what happened to a sale or one of its items.
pub(super) fn note_shop_event(
    tx: &Connection,
    kind: EventType,
    sale: SaleId,
    item: Option<(ItemId, u64)>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (item, units) = item.map(|(item, units)| (item, signed(units))).unzip();
    tx.prepare_cached("INSERT INTO shop_event (kind, sale, item, units, at) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .execute((kind.as_str(), sale, item, units, now))?;
    Ok(())
}

/// What an endpoint has not been told of, and how far that is in both lists.
struct New {
    seen: Vec<Seen>,
    order_cursor: i64,
    shop_cursor: i64,
}

/// The next events of both lists behind the endpoint's places; `None` when there are none.
fn read_new(tx: &Connection, endpoint: &str, limit: usize) -> rusqlite::Result<Option<New>> {
    let places = tx
        .prepare_cached("SELECT order_cursor, shop_cursor FROM event_endpoint WHERE name = ?1")?
        .query_row([endpoint], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((order_cursor, shop_cursor)) = places else { return Ok(None) };
    let mut new = New { seen: Vec::new(), order_cursor, shop_cursor };
    let limit = signed(limit as u64);
    let mut steps =
        tx.prepare_cached("SELECT id, ord, to_status FROM order_event WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    for step in steps.query_map((order_cursor, limit), |row| {
        Ok(Seen::step(row.get("id")?, row.get("ord")?, rows::word(row, "to_status")?))
    })? {
        let step = step?;
        new.order_cursor = step.number;
        new.seen.push(step);
    }
    let mut others =
        tx.prepare_cached("SELECT id, kind, sale, at FROM shop_event WHERE id > ?1 ORDER BY id LIMIT ?2")?;
    for other in others.query_map((shop_cursor, limit), |row| {
        Ok(Seen::of_sale(row.get("id")?, rows::word(row, "kind")?, row.get("sale")?, row.get("at")?))
    })? {
        let other = other?;
        new.shop_cursor = other.number;
        new.seen.push(other);
    }
    Ok((!new.seen.is_empty()).then_some(new))
}

fn plan(
    tx: &Connection,
    endpoint: &str,
    types: &[EventType],
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<u64> {
    let Some(new) = read_new(tx, endpoint, limit)? else { return Ok(0) };
    let mut insert = tx.prepare_cached(
        "INSERT INTO event_delivery (endpoint, list, number, event, kind, subject, next_at) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (endpoint, event) DO NOTHING",
    )?;
    for it in new.seen.iter().filter(|it| types.contains(&it.kind)) {
        insert.execute((endpoint, it.list, it.number, &it.id, it.kind.as_str(), &it.subject, now))?;
    }
    tx.prepare_cached("UPDATE event_endpoint SET order_cursor = ?2, shop_cursor = ?3 WHERE name = ?1")?
        .execute((endpoint, new.order_cursor, new.shop_cursor))?;
    Ok(new.seen.len() as u64)
}

/// Numbers of deliveries that may be sent now.
fn due(tx: &Connection, endpoint: &str, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<i64>> {
    let mut statement = tx.prepare_cached(
        "SELECT id FROM event_delivery AS it WHERE endpoint = ?1 AND state = 'waiting' AND next_at <= ?2 \
         AND leased_until <= ?2 AND NOT EXISTS (SELECT 1 FROM event_delivery AS earlier \
         WHERE earlier.subject = it.subject AND earlier.endpoint = it.endpoint AND earlier.id < it.id \
         AND earlier.state = 'waiting') ORDER BY next_at, id LIMIT ?3",
    )?;
    let ids = statement.query_map((endpoint, now, signed(limit as u64)), |row| row.get(0))?;
    ids.collect()
}

fn claim(
    tx: &Connection,
    endpoint: &str,
    lease: Duration,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<DueDelivery>> {
    let mut claimed = Vec::new();
    for id in due(tx, endpoint, now, limit)? {
        let mut take = tx.prepare_cached(
            "UPDATE event_delivery SET attempts = attempts + 1, tries = tries + 1, leased_until = ?2 \
             WHERE id = ?1 RETURNING attempts, tries, list, number",
        )?;
        let (attempt, tries, list, number) = take.query_row((id, now.plus(lease)), |row| {
            let (list, number): (String, i64) = (row.get("list")?, row.get("number")?);
            Ok((rows::count(row, "attempts")?, row.get("tries")?, list, number))
        })?;
        if let Some(event) = event(tx, &list, number)? {
            claimed.push(DueDelivery { id, attempt, tries, event });
        }
    }
    Ok(claimed)
}

fn note(tx: &Connection, it: &Attempted, now: Timestamp) -> rusqlite::Result<()> {
    let (state, next_at) = match it.then {
        Then::Delivered => (DeliveryState::Delivered, now),
        Then::Again(wait) => (DeliveryState::Waiting, now.plus(wait)),
        Then::Dead => (DeliveryState::Dead, now),
    };
    let answer = events::kept(&it.answer);
    let noted = tx
        .prepare_cached(
            "UPDATE event_delivery SET state = ?3, next_at = ?4, leased_until = 0, attempted_at = ?5, \
             status = ?6, answer = ?7 WHERE id = ?1 AND attempts = ?2 AND state = 'waiting'",
        )?
        .execute(params![it.id, signed(it.attempt), state.as_str(), next_at, now, it.status, answer])?;
    if noted == 1 && matches!(it.then, Then::Again(_)) {
        // What stands behind it cannot be due before it: it is not looked at meanwhile.
        tx.prepare_cached(
            "UPDATE event_delivery SET next_at = max(next_at, ?2) WHERE state = 'waiting' AND id > ?1 \
             AND (subject, endpoint) = (SELECT subject, endpoint FROM event_delivery WHERE id = ?1)",
        )?
        .execute((it.id, next_at))?;
    }
    Ok(())
}

fn delivery(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    Ok(Delivery {
        id: row.get("id")?,
        endpoint: row.get("endpoint")?,
        event: row.get("event")?,
        kind: rows::word(row, "kind")?,
        subject: row.get("subject")?,
        state: rows::word(row, "state")?,
        attempts: rows::count(row, "attempts")?,
        next_at: row.get("next_at")?,
        attempted_at: row.get("attempted_at")?,
        status: row.get("status")?,
        answer: row.get("answer")?,
    })
}

/// A delivery, and where its event stands.
fn find(tx: &Connection, id: i64) -> rusqlite::Result<Option<(Delivery, String, i64)>> {
    tx.prepare_cached("SELECT * FROM event_delivery WHERE id = ?1")?
        .query_row([id], |row| Ok((delivery(row)?, row.get("list")?, row.get("number")?)))
        .optional()
}

/// The event with this number in one of the lists.
fn event(tx: &Connection, list: &str, number: i64) -> rusqlite::Result<Option<Event>> {
    match list {
        ORDER_LIST => {
            let step = tx
                .prepare_cached("SELECT ord, to_status, at FROM order_event WHERE id = ?1")?
                .query_row([number], |row| {
                    let order: OrderId = row.get("ord")?;
                    Ok((order, rows::word(row, "to_status")?, row.get("at")?))
                })
                .optional()?;
            let Some((order, to, at)) = step else { return Ok(None) };
            Ok(rows::find_order(tx, order)?.map(|order| events::event_of_step(order, to, at)))
        }
        SHOP_LIST => tx
            .prepare_cached("SELECT * FROM shop_event WHERE id = ?1")?
            .query_row([number], |row| {
                let (kind, at): (EventType, Timestamp) = (rows::word(row, "kind")?, row.get("at")?);
                let units: Option<i64> = row.get("units")?;
                let about = About::Sale {
                    sale: row.get("sale")?,
                    item: row.get("item")?,
                    units: units.and_then(|units| u64::try_from(units).ok()),
                };
                Ok(Event { id: kind.id_of_number(number, at), kind, at, about })
            })
            .optional(),
        _ => Ok(None),
    }
}
