//! Closing live orders, and the locks for it, in the order that everybody keeps: sale, items,
//! buyers, orders.

use std::collections::BTreeSet;

use tokio_postgres::Row;

use super::db::{CLOCK, LOCK_SALES, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS};
use crate::clock::Timestamp;
use crate::ledger::rules;
use crate::order::{ItemId, Order, OrderId, OrderStatus, RejectReason, Reservation, SaleId, UserId};

/// Where an order counts: what must be locked before its row.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    sale: SaleId,
    item: ItemId,
    user: UserId,
}

impl Place {
    /// Where `order` counts.
    pub(super) fn of(order: &Reservation) -> Self {
        Self { sale: order.sale, item: order.item, user: order.user.clone() }
    }

    /// From the columns `sale`, `item` and `user_id`.
    pub(super) fn read(row: &Row) -> Result<Self, Failure> {
        Ok(Self { sale: row.try_get("sale")?, item: row.try_get("item")?, user: row.try_get("user_id")? })
    }
}

/// Where an order counts, read without a lock: these columns never change.
pub(super) const PLACE: &str = "SELECT sale, item, user_id FROM orders WHERE id = $1";

const LOCK_ITEMS: &str = "SELECT id FROM item WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";

const LOCK_BUYERS: &str = "SELECT b.units FROM unnest($1::bigint[], $2::bytea[]) AS wanted (sale, user_id) \
     JOIN buyer b ON b.sale = wanted.sale AND b.user_id = wanted.user_id \
     ORDER BY b.sale, b.user_id FOR NO KEY UPDATE OF b";

/// Locks the `places`, then the orders `ids`, leaving out those that somebody else holds if `skip`.
/// Answers the orders' rows and the time behind the last lock, in one round trip.
pub(super) async fn lock(
    tx: &Tx,
    places: &BTreeSet<Place>,
    ids: &[OrderId],
    skip: bool,
) -> Result<(Vec<Row>, Timestamp), Failure> {
    let keys = tx.lock_keys(places.iter().map(|place| place.sale));
    let items: Vec<ItemId> = places.iter().map(|place| place.item).collect();
    let sales: Vec<SaleId> = places.iter().map(|place| place.sale).collect();
    let users: Vec<&UserId> = places.iter().map(|place| &place.user).collect();
    let skip_locked = if skip { " SKIP LOCKED" } else { "" };
    let orders =
        format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = ANY($1) ORDER BY id FOR UPDATE{skip_locked}");
    let [_, _, _, orders, now] = tx
        .pipeline([
            (LOCK_SALES, &[&keys]),
            (LOCK_ITEMS, &[&items]),
            (LOCK_BUYERS, &[&sales, &users]),
            (&orders, &[&ids]),
            (CLOCK, &[&tx.clock()]),
        ])
        .await?;
    Ok((orders, rows::time(&now)?))
}

/// Rows, items' and buyers' units, history and release rows follow from the rows that changed. As an
/// expression the status leads to no partial index, of which all that is pending would be read.
const CLOSE: &str = "WITH closed AS ( \
         UPDATE orders SET status = $3, strike = $2 = 'PENDING' AND ($3 = 'EXPIRED' \
             OR $3 = 'CANCELLED' AND $4 > reserved_at + $6) WHERE id = ANY($1) AND status || '' = $2 \
         RETURNING id, sale, item, user_id, units \
     ), history AS ( \
         INSERT INTO order_event (ord, from_status, to_status, at) SELECT id, $2, $3, $4 FROM closed \
     ), release AS ( \
         INSERT INTO release_row (ord, sale, user_id, due_at) \
         SELECT id, sale, user_id, $4 + floor(random() * $5)::bigint FROM closed \
         ON CONFLICT (ord) DO NOTHING \
     ), returned AS ( \
         UPDATE item SET sold = sold - back.units, paid = paid - CASE $2 WHEN 'PAID' THEN back.units ELSE 0 END \
         FROM (SELECT item, sum(units)::bigint AS units FROM closed GROUP BY item) AS back \
         WHERE item.id = back.item \
     ), given_up AS ( \
         UPDATE buyer SET units = buyer.units - back.units \
         FROM (SELECT sale, user_id, sum(units)::bigint AS units FROM closed GROUP BY sale, user_id) AS back \
         WHERE buyer.sale = back.sale AND buyer.user_id = back.user_id \
     ) SELECT id FROM closed";

/// Closes these orders, which are locked and `from`; answers how many.
pub(super) async fn close(
    tx: &Tx,
    ids: &[OrderId],
    from: OrderStatus,
    to: OrderStatus,
    now: Timestamp,
) -> Result<u64, Failure> {
    let spread = tx.release_spread;
    let grace = i64::try_from(rules::CANCEL_GRACE.as_millis()).unwrap_or(i64::MAX);
    let closed = tx.rows((CLOSE, &[&ids, &from.as_str(), &to.as_str(), &now, &spread, &grace])).await?;
    Ok(closed.len() as u64)
}

/// A row that never was live, with its history and its release row; whether it is new.
pub(super) async fn insert_stillborn(tx: &Tx, order: &Order, now: Timestamp) -> Result<bool, Failure> {
    let it = &order.reservation;
    let new = tx
        .rows((
            INSERT_STILLBORN,
            &[
                &it.order,
                &it.sale,
                &it.item,
                &it.user,
                &it.units,
                &order.total.minor,
                &order.total.currency.as_str(),
                &order.status.as_str(),
                &order.reason.map(RejectReason::as_str),
                &it.reserved_at,
                &order.expires_at,
                &i64::from(it.bucket),
                &it.epoch,
                &rows::signed(it.seq),
                &it.trace,
                &it.retake_of,
                &now,
                &(tx.release_spread),
            ],
        ))
        .await?;
    Ok(!new.is_empty())
}

const INSERT_STILLBORN: &str = "WITH new AS ( \
         INSERT INTO orders (id, sale, item, user_id, units, total_minor, currency, status, reason, reserved_at, \
             expires_at, hold_until, bucket, epoch, seq, trace, retake_of) \
         SELECT $1, item.sale, item.id, $4, $5, $6, $7, $8, $9, $10, $11, $11, $12, $13, $14, $15, $16 \
         FROM item WHERE item.sale = $2 AND item.id = $3 \
         ON CONFLICT (id) DO NOTHING \
         RETURNING id, sale, user_id, status \
     ), history AS ( \
         INSERT INTO order_event (ord, from_status, to_status, at) SELECT id, NULL, status, $17 FROM new \
     ), release AS ( \
         INSERT INTO release_row (ord, sale, user_id, due_at) \
         SELECT id, sale, user_id, $17 + floor(random() * $18)::bigint FROM new \
         ON CONFLICT (ord) DO NOTHING \
     ) SELECT id FROM new";
