//! Sales in SQLite: states, fences, epochs, barriers, what a stock is loaded from.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension};

use super::rows::{self, signed};
use super::{SqliteLedger, events};
use crate::clock::Timestamp;
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::ledger::{ChangeOutcome, LoadSnapshot, RebuildOutcome, Sales, rules};
use crate::order::{Epoch, OrderId, SaleId};
use crate::sale::{Fence, LoaderToken, NewSale, Sale, SaleState};

#[async_trait]
impl Sales for SqliteLedger {
    async fn create_sale(&self, sale: &NewSale) -> Result<Sale, BackendError> {
        let sale = sale.clone();
        self.db.write("create sale", move |tx| create(tx, &sale)).await
    }

    async fn sales(&self) -> Result<Vec<Sale>, BackendError> {
        self.db.read("read sales", |tx| rows::sales(tx)).await
    }

    async fn sale(&self, id: SaleId) -> Result<Option<Sale>, BackendError> {
        self.db.read("read sale", move |tx| rows::sale(tx, id)).await
    }

    async fn change_state(
        &self,
        id: SaleId,
        to: SaleState,
        opens_at: Option<Timestamp>,
    ) -> Result<ChangeOutcome, BackendError> {
        let now = self.clock.now();
        self.db.write("change a sale's state", move |tx| change_state(tx, id, to, opens_at, now)).await
    }

    async fn begin_rebuild(
        &self,
        id: SaleId,
        from: Epoch,
        reason: &str,
        token: LoaderToken,
        lease: Duration,
    ) -> Result<RebuildOutcome, BackendError> {
        let fence = Fence { reason: reason.to_owned(), token, since: self.clock.now() };
        self.db.write("begin a rebuild", move |tx| begin_rebuild(tx, id, from, &fence, lease)).await
    }

    async fn put_barriers(
        &self,
        id: SaleId,
        token: LoaderToken,
        ends: &[Position],
    ) -> Result<Option<Vec<Position>>, BackendError> {
        let ends = ends.to_vec();
        self.db.write("store barriers", move |tx| put_barriers(tx, id, token, &ends)).await
    }

    async fn load_snapshot(
        &self,
        id: SaleId,
        token: LoaderToken,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Option<LoadSnapshot>, BackendError> {
        let now = self.clock.now();
        self.db.write("read what to load", move |tx| load_snapshot(tx, id, token, (after, limit), now)).await
    }

    async fn finish_rebuild(&self, id: SaleId, token: LoaderToken) -> Result<bool, BackendError> {
        self.db
            .write("finish a rebuild", move |tx| {
                let changed = tx.execute(
                    "UPDATE sale SET fence_reason = NULL, fence_token = NULL, fence_since = NULL, \
                     state = CASE state WHEN 'draft' THEN 'preheated' ELSE state END \
                     WHERE id = ?1 AND fence_token = ?2",
                    (id, token),
                )?;
                Ok(changed == 1)
            })
            .await
    }
}

fn create(tx: &Connection, sale: &NewSale) -> rusqlite::Result<Sale> {
    tx.execute(
        "INSERT INTO sale (name, state, opens_at, closes_at, payment_window_ms, unit_limit) VALUES (?1, 'draft', ?2, ?3, ?4, ?5)",
        (
            &sale.name,
            sale.opens_at,
            sale.closes_at,
            i64::try_from(sale.payment_window.as_millis()).unwrap_or(i64::MAX),
            sale.limit,
        ),
    )?;
    let id = SaleId(tx.last_insert_rowid());
    for item in &sale.items {
        tx.prepare_cached(
            "INSERT INTO item (sale, product_id, title, quantity, price_minor, currency, list_price_minor) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
        )?
        .execute((
            id,
            &item.product_id,
            &item.title,
            signed(item.quantity),
            item.price.minor,
            item.price.currency.as_str(),
            item.list_price_minor,
        ))?;
    }
    found(rows::sale(tx, id)?)
}

/// A row that this transaction has just written or locked.
fn found<T>(row: Option<T>) -> rusqlite::Result<T> {
    row.ok_or(rusqlite::Error::QueryReturnedNoRows)
}

fn change_state(
    tx: &Connection,
    id: SaleId,
    to: SaleState,
    opens_at: Option<Timestamp>,
    now: Timestamp,
) -> rusqlite::Result<ChangeOutcome> {
    let Some(sale) = rows::sale(tx, id)? else { return Ok(ChangeOutcome::NoSale) };
    let told = rules::told_of_state(sale.terms.state, to);
    match rules::change_state(sale, to, opens_at, now) {
        ControlFlow::Break(answer) => Ok(answer),
        ControlFlow::Continue(opens_at) => {
            tx.execute(
                "UPDATE sale SET state = ?2, opens_at = ?3 WHERE id = ?1",
                (id, to.as_str(), opens_at),
            )?;
            if let Some(kind) = told {
                events::note_shop_event(tx, kind, id, None, now)?;
            }
            Ok(ChangeOutcome::Done(found(rows::sale(tx, id)?)?))
        }
    }
}

fn begin_rebuild(
    tx: &Connection,
    id: SaleId,
    from: Epoch,
    mine: &Fence,
    lease: Duration,
) -> rusqlite::Result<RebuildOutcome> {
    let Some(sale) = rows::sale(tx, id)? else { return Ok(RebuildOutcome::NoSale) };
    match sale.fence {
        Some(fence) if !rules::may_take_over(&fence, mine, lease) => {
            return Ok(RebuildOutcome::OwnedByOther(fence));
        }
        // While a rebuild's fence stands, nothing starts a new epoch: it is taken over.
        Some(_) => {
            tx.execute(
                "UPDATE sale SET fence_token = ?2, fence_since = ?3 WHERE id = ?1",
                (id, mine.token, mine.since),
            )?;
        }
        None if sale.epoch != from => return Ok(RebuildOutcome::Overtaken),
        None => {
            tx.execute(
                "UPDATE sale SET epoch = epoch + 1, recorded_seq = 0, fence_reason = ?2, fence_token = ?3, fence_since = ?4 WHERE id = ?1",
                (id, &mine.reason, mine.token, mine.since),
            )?;
        }
    }
    Ok(RebuildOutcome::Owned(found(rows::sale(tx, id)?)?))
}

fn owns(tx: &Connection, id: SaleId, token: LoaderToken) -> rusqlite::Result<Option<Sale>> {
    Ok(rows::sale(tx, id)?.filter(|sale| sale.fence.as_ref().is_some_and(|fence| fence.token == token)))
}

fn put_barriers(
    tx: &Connection,
    id: SaleId,
    token: LoaderToken,
    ends: &[Position],
) -> rusqlite::Result<Option<Vec<Position>>> {
    let Some(sale) = owns(tx, id, token)? else { return Ok(None) };
    for end in ends {
        let next: Option<i64> = tx
            .query_row(
                "SELECT next FROM queue_offset WHERE topic = ?1 AND part = ?2",
                (&end.topic.0, end.partition),
                |row| row.get(0),
            )
            .optional()?;
        let barrier = signed(end.next).max(next.unwrap_or(0));
        tx.execute(
            "INSERT INTO epoch_barrier (sale, epoch, topic, part, barrier) VALUES (?1, ?2, ?3, ?4, ?5) \
             ON CONFLICT (sale, epoch, topic, part) DO UPDATE SET barrier = min(barrier, excluded.barrier)",
            (id, sale.epoch, &end.topic.0, end.partition, barrier),
        )?;
    }
    let mut stored = tx.prepare_cached(
        "SELECT topic, part, barrier AS next FROM epoch_barrier WHERE sale = ?1 AND epoch = ?2 ORDER BY part",
    )?;
    let barriers = stored.query_map((id, sale.epoch), super::record::position)?;
    Ok(Some(barriers.collect::<rusqlite::Result<_>>()?))
}

fn load_snapshot(
    tx: &Connection,
    id: SaleId,
    token: LoaderToken,
    (after, limit): (Option<OrderId>, usize),
    now: Timestamp,
) -> rusqlite::Result<Option<LoadSnapshot>> {
    if owns(tx, id, token)?.is_none() {
        return Ok(None);
    }
    tx.execute("UPDATE sale SET fence_since = ?2 WHERE id = ?1", (id, now))?;
    if after.is_none() {
        // The load sees a finished addition and no removal: both kinds of open intent end here.
        tx.execute(
            "UPDATE restock SET state = CASE WHEN units > 0 THEN 'done' ELSE 'cancelled' END \
             WHERE sale = ?1 AND state = 'open'",
            [id],
        )?;
    }
    let sql = format!(
        "SELECT {} FROM orders WHERE sale = ?1 AND id > ?2 ORDER BY id LIMIT ?3",
        rows::ORDER_COLUMNS
    );
    let mut statement = tx.prepare_cached(&sql)?;
    let after = after.unwrap_or(OrderId(uuid::Uuid::nil()));
    let orders = statement.query_map((id, after, signed(limit as u64)), rows::order)?;
    let orders: Vec<_> = orders.collect::<rusqlite::Result<_>>()?;
    Ok(Some(rules::load_page(orders, limit)))
}
