//! Sales in PostgreSQL: states, fences, epochs, barriers, what a stock is loaded from. Whoever
//! changes one of them holds the sale's lock alone.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::db::{CLOCK, LOCK_SALE_ALONE, Tx};
use super::failure::Failure;
use super::orders::page_query;
use super::rows::{self, SALES, at_most, signed};
use super::{PostgresLedger, events};
use crate::clock::Timestamp;
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::ledger::{ChangeOutcome, LoadSnapshot, RebuildOutcome, Sales, rules};
use crate::order::{Epoch, OrderId, SaleId};
use crate::sale::{Fence, LoaderToken, NewSale, Sale, SaleState};

#[async_trait]
impl Sales for PostgresLedger {
    async fn create_sale(&self, sale: &NewSale) -> Result<Sale, BackendError> {
        self.db.write("create a sale", |tx| async move { create(&tx, sale).await }).await
    }

    async fn sales(&self) -> Result<Vec<Sale>, BackendError> {
        self.read_sales(None).await
    }

    async fn sale(&self, id: SaleId) -> Result<Option<Sale>, BackendError> {
        Ok(self.read_sales(Some(id)).await?.pop())
    }

    async fn change_state(
        &self,
        id: SaleId,
        to: SaleState,
        opens_at: Option<Timestamp>,
    ) -> Result<ChangeOutcome, BackendError> {
        self.db
            .write("change a sale's state", |tx| async move { change_state(&tx, id, to, opens_at).await })
            .await
    }

    async fn begin_rebuild(
        &self,
        id: SaleId,
        from: Epoch,
        reason: &str,
        token: LoaderToken,
        lease: Duration,
    ) -> Result<RebuildOutcome, BackendError> {
        self.db
            .write("begin a rebuild", |tx| async move {
                let (Some(sale), since) = lock_alone(&tx, id).await? else {
                    return Ok(RebuildOutcome::NoSale);
                };
                let mine = Fence { reason: reason.to_owned(), token, since };
                begin_rebuild(&tx, sale, from, &mine, lease).await
            })
            .await
    }

    async fn put_barriers(
        &self,
        id: SaleId,
        token: LoaderToken,
        ends: &[Position],
    ) -> Result<Option<Vec<Position>>, BackendError> {
        self.db.write("store barriers", |tx| async move { put_barriers(&tx, id, token, ends).await }).await
    }

    async fn load_snapshot(
        &self,
        id: SaleId,
        token: LoaderToken,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Option<LoadSnapshot>, BackendError> {
        self.db
            .write("read what to load", |tx| async move { load_snapshot(&tx, id, token, after, limit).await })
            .await
    }

    async fn finish_rebuild(&self, id: SaleId, token: LoaderToken) -> Result<bool, BackendError> {
        let sql = "UPDATE sale SET fence_reason = NULL, fence_token = NULL, fence_since = NULL, \
             state = CASE state WHEN 'draft' THEN 'preheated' ELSE state END \
             WHERE id = $1 AND fence_token = $2 RETURNING id";
        self.db
            .write("finish a rebuild", |tx| async move {
                let keys = tx.lock_keys([id]);
                let [_, lifted] = tx.pipeline([(LOCK_SALE_ALONE, &[&keys]), (sql, &[&id, &token])]).await?;
                Ok(!lifted.is_empty())
            })
            .await
    }
}

impl PostgresLedger {
    async fn read_sales(&self, id: Option<SaleId>) -> Result<Vec<Sale>, BackendError> {
        let what = "read sales";
        let found = self.db.query(what, (SALES, &[&id])).await?;
        rows::sales(&found).map_err(|failure| failure.before_commit(what))
    }
}

const INSERT_SALE: &str = "INSERT INTO sale (name, state, opens_at, closes_at, payment_window_ms, unit_limit) \
     VALUES ($1, 'draft', $2, $3, $4, $5) RETURNING id";

const INSERT_ITEM: &str = "INSERT INTO item (sale, product_id, title, quantity, price_minor, currency, list_price_minor) \
     VALUES ($1, $2, $3, $4, $5, $6, $7)";

async fn create(tx: &Tx, sale: &NewSale) -> Result<Sale, Failure> {
    let window = signed(u64::try_from(sale.payment_window.as_millis()).unwrap_or(u64::MAX));
    let made =
        tx.rows((INSERT_SALE, &[&sale.name, &sale.opens_at, &sale.closes_at, &window, &sale.limit])).await?;
    let id: SaleId = found(made.first())?.try_get("id")?;
    for item in &sale.items {
        tx.rows((
            INSERT_ITEM,
            &[
                &id,
                &item.product_id,
                &item.title,
                &signed(item.quantity),
                &item.price.minor,
                &item.price.currency.as_str(),
                &item.list_price_minor,
            ],
        ))
        .await?;
    }
    read(tx, id).await
}

/// A sale that this transaction has just written or locked.
async fn read(tx: &Tx, id: SaleId) -> Result<Sale, Failure> {
    found(rows::sales(&tx.rows((SALES, &[&Some(id)])).await?)?.pop())
}

/// A row that this transaction has just written or locked.
fn found<T>(row: Option<T>) -> Result<T, Failure> {
    row.ok_or(Failure::Overtaken)
}

/// Takes the sale's lock alone, reads the sale behind it, and the time.
async fn lock_alone(tx: &Tx, id: SaleId) -> Result<(Option<Sale>, Timestamp), Failure> {
    let keys = tx.lock_keys([id]);
    let [_, sales, now] =
        tx.pipeline([(LOCK_SALE_ALONE, &[&keys]), (SALES, &[&Some(id)]), (CLOCK, &[&tx.clock()])]).await?;
    Ok((rows::sales(&sales)?.pop(), rows::time(&now)?))
}

async fn change_state(
    tx: &Tx,
    id: SaleId,
    to: SaleState,
    opens_at: Option<Timestamp>,
) -> Result<ChangeOutcome, Failure> {
    let (Some(sale), now) = lock_alone(tx, id).await? else { return Ok(ChangeOutcome::NoSale) };
    let told = rules::told_of_state(sale.terms.state, to);
    match rules::change_state(sale, to, opens_at, now) {
        ControlFlow::Break(answer) => Ok(answer),
        ControlFlow::Continue(opens_at) => {
            let sql = "UPDATE sale SET state = $2, opens_at = $3 WHERE id = $1";
            tx.rows((sql, &[&id, &to.as_str(), &opens_at])).await?;
            if let Some(kind) = told {
                events::note_shop_event(tx, kind, id, None, now).await?;
            }
            Ok(ChangeOutcome::Done(read(tx, id).await?))
        }
    }
}

async fn begin_rebuild(
    tx: &Tx,
    sale: Sale,
    from: Epoch,
    mine: &Fence,
    lease: Duration,
) -> Result<RebuildOutcome, Failure> {
    match sale.fence {
        Some(fence) if !rules::may_take_over(&fence, mine, lease) => {
            return Ok(RebuildOutcome::OwnedByOther(fence));
        }
        // While a rebuild's fence stands, nothing starts a new epoch: it is taken over.
        Some(_) => {
            let sql = "UPDATE sale SET fence_token = $2, fence_since = $3 WHERE id = $1";
            tx.rows((sql, &[&sale.id, &mine.token, &mine.since])).await?;
        }
        None if sale.epoch != from => return Ok(RebuildOutcome::Overtaken),
        None => {
            let sql = "UPDATE sale SET epoch = epoch + 1, recorded_seq = 0, fence_reason = $2, \
                 fence_token = $3, fence_since = $4 WHERE id = $1";
            tx.rows((sql, &[&sale.id, &mine.reason, &mine.token, &mine.since])).await?;
        }
    }
    Ok(RebuildOutcome::Owned(read(tx, sale.id).await?))
}

fn owned(sale: Option<Sale>, token: LoaderToken) -> Option<Sale> {
    sale.filter(|sale| sale.fence.as_ref().is_some_and(|fence| fence.token == token))
}

async fn put_barriers(
    tx: &Tx,
    id: SaleId,
    token: LoaderToken,
    ends: &[Position],
) -> Result<Option<Vec<Position>>, Failure> {
    let (sale, _) = lock_alone(tx, id).await?;
    let Some(sale) = owned(sale, token) else { return Ok(None) };
    let topics: Vec<&str> = ends.iter().map(|end| end.topic.0.as_str()).collect();
    let parts: Vec<i64> = ends.iter().map(|end| i64::from(end.partition)).collect();
    let nexts: Vec<i64> = ends.iter().map(|end| signed(end.next)).collect();
    // A recorder that holds records of this sale has committed, or waits for this lock.
    let put = "INSERT INTO epoch_barrier (sale, epoch, topic, part, barrier) \
         SELECT $1, $2, t.topic, t.part, greatest(t.next, coalesce(q.next, 0)) \
         FROM unnest($3::text[], $4::bigint[], $5::bigint[]) AS t (topic, part, next) \
         LEFT JOIN queue_offset q ON q.topic = t.topic AND q.part = t.part \
         ON CONFLICT (sale, epoch, topic, part) DO UPDATE \
         SET barrier = least(epoch_barrier.barrier, excluded.barrier)";
    let stored =
        "SELECT topic, part, barrier AS next FROM epoch_barrier WHERE sale = $1 AND epoch = $2 ORDER BY part";
    let [_, stored] = tx
        .pipeline([(put, &[&id, &sale.epoch, &topics, &parts, &nexts]), (stored, &[&id, &sale.epoch])])
        .await?;
    Ok(Some(rows::all(&stored, rows::position)?))
}

async fn load_snapshot(
    tx: &Tx,
    id: SaleId,
    token: LoaderToken,
    after: Option<OrderId>,
    limit: usize,
) -> Result<Option<LoadSnapshot>, Failure> {
    let first = after.is_none();
    let (keys, after) = (tx.lock_keys([id]), after.unwrap_or(OrderId(Uuid::nil())));
    let heard_of = "UPDATE sale SET fence_since = \
         coalesce($3::bigint, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint) \
         WHERE id = $1 AND fence_token = $2 RETURNING id";
    let [_, mine] =
        tx.pipeline([(LOCK_SALE_ALONE, &[&keys]), (heard_of, &[&id, &token, &tx.clock()])]).await?;
    if mine.is_empty() {
        return Ok(None);
    }
    if first {
        // The load sees a finished addition and no removal: both kinds of open intent end here.
        let sql = "UPDATE restock SET state = CASE WHEN units > 0 THEN 'done' ELSE 'cancelled' END \
             WHERE sale = $1 AND state = 'open'";
        tx.rows((sql, &[&id])).await?;
    }
    let orders = tx.rows((&page_query(), &[&id, &after, &at_most(limit)])).await?;
    Ok(Some(rules::load_page(rows::all(&orders, rows::order)?, limit)))
}
