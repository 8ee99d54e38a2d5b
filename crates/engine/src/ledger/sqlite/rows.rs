//! How values stand in SQLite's columns.

use std::str::FromStr;
use std::time::Duration;

use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row};
use uuid::Uuid;

use super::Now;
use crate::clock::Timestamp;
use crate::ledger::{PaymentAttemptId, rules};
use crate::order::{
    Currency, Epoch, InvalidValue, ItemId, Money, Order, OrderId, OrderStatus, RejectReason, Reservation,
    SaleId, Units, UserId,
};
use crate::sale::{Fence, Item, LoaderToken, Sale, SaleState, Terms};

macro_rules! integer_column {
    ($($name:ident => $get:expr, $make:expr;)*) => {$(
        impl ToSql for $name {
            fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
                let get: fn(&$name) -> i64 = $get;
                Ok(get(self).into())
            }
        }
        impl FromSql for $name {
            fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
                let make: fn(i64) -> Option<$name> = $make;
                make(value.as_i64()?).ok_or(FromSqlError::InvalidType)
            }
        }
    )*};
}

integer_column! {
    SaleId => |it| it.0, |value| Some(SaleId(value));
    ItemId => |it| it.0, |value| Some(ItemId(value));
    Timestamp => |it| it.as_ms(), |value| Some(Timestamp::from_ms(value));
    Units => |it| i64::from(it.0), |value| u32::try_from(value).ok().map(Units);
    Epoch => |it| signed(it.0), |value| u64::try_from(value).ok().map(Epoch);
    LoaderToken => |it| signed(it.0), |value| u64::try_from(value).ok().map(LoaderToken);
}

impl ToSql for OrderId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_bytes().as_slice().into())
    }
}

impl FromSql for OrderId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Uuid::from_slice(value.as_blob()?).map(OrderId).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

impl ToSql for PaymentAttemptId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.0.as_bytes().as_slice().into())
    }
}

impl FromSql for PaymentAttemptId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        OrderId::column_result(value).map(|OrderId(id)| Self(id))
    }
}

impl ToSql for UserId {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_bytes().into())
    }
}

impl FromSql for UserId {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let text =
            std::str::from_utf8(value.as_blob()?).map_err(|error| FromSqlError::Other(Box::new(error)))?;
        UserId::new(text).map_err(|error| FromSqlError::Other(Box::new(error)))
    }
}

/// A count as SQLite stores it; counts above `i64::MAX` do not occur.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A text column with one of our words.
pub(super) fn word<T: FromStr<Err = InvalidValue>>(row: &Row<'_>, column: &str) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    text.parse().map_err(|error| bad_column(column, error))
}

fn bad_column(column: &str, error: InvalidValue) -> rusqlite::Error {
    tracing::error!(column, "the ledger's file has a value that this program never writes");
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

/// A column with a count.
pub(super) fn count(row: &Row<'_>, column: &str) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| bad_column(column, InvalidValue("a count is not negative")))
}

pub(super) fn money(row: &Row<'_>, column: &str) -> rusqlite::Result<Money> {
    let currency: Currency = word(row, "currency")?;
    Ok(Money { minor: row.get(column)?, currency })
}

/// The columns of [`order`].
pub(super) const ORDER_COLUMNS: &str = "id, sale, item, user, units, total_minor, currency, status, reason, \
     reserved_at, expires_at, hold_until, bucket, epoch, seq, trace, retake_of";

pub(super) fn reservation(row: &Row<'_>) -> rusqlite::Result<Reservation> {
    Ok(Reservation {
        order: row.get("id")?,
        sale: row.get("sale")?,
        bucket: row.get("bucket")?,
        item: row.get("item")?,
        user: row.get("user")?,
        units: row.get("units")?,
        epoch: row.get("epoch")?,
        seq: count(row, "seq")?,
        reserved_at: row.get("reserved_at")?,
        trace: row.get("trace")?,
        retake_of: row.get("retake_of")?,
    })
}

pub(super) fn order(row: &Row<'_>) -> rusqlite::Result<Order> {
    let reason: Option<String> = row.get("reason")?;
    let reason = reason.map(|text| text.parse::<RejectReason>().map_err(|error| bad_column("reason", error)));
    Ok(Order {
        reservation: reservation(row)?,
        total: money(row, "total_minor")?,
        status: word::<OrderStatus>(row, "status")?,
        reason: reason.transpose()?,
        expires_at: row.get("expires_at")?,
        hold_until: row.get("hold_until")?,
    })
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    Ok(Item {
        id: row.get("id")?,
        product_id: row.get("product_id")?,
        title: row.get("title")?,
        quantity: count(row, "quantity")?,
        sold: count(row, "sold")?,
        paid: count(row, "paid")?,
        price: money(row, "price_minor")?,
        list_price_minor: row.get("list_price_minor")?,
    })
}

fn sale_row(row: &Row<'_>) -> rusqlite::Result<Sale> {
    let reason: Option<String> = row.get("fence_reason")?;
    let fence = match reason {
        None => None,
        Some(reason) => {
            Some(Fence { reason, token: row.get("fence_token")?, since: row.get("fence_since")? })
        }
    };
    Ok(Sale {
        id: row.get("id")?,
        name: row.get("name")?,
        terms: Terms {
            state: word::<SaleState>(row, "state")?,
            opens_at: row.get("opens_at")?,
            closes_at: row.get("closes_at")?,
            limit: row.get("unit_limit")?,
        },
        payment_window: Duration::from_millis(count(row, "payment_window_ms")?),
        epoch: row.get("epoch")?,
        recorded_seq: count(row, "recorded_seq")?,
        fence,
        items: Vec::new(),
    })
}

pub(super) fn sale(connection: &Connection, id: SaleId) -> rusqlite::Result<Option<Sale>> {
    let mut statement = connection.prepare_cached("SELECT * FROM sale WHERE id = ?1")?;
    let found = statement.query_row([id], sale_row).optional()?;
    let Some(mut sale) = found else { return Ok(None) };
    let mut items = connection.prepare_cached("SELECT * FROM item WHERE sale = ?1 ORDER BY id")?;
    sale.items = items.query_map([id], item)?.collect::<rusqlite::Result<_>>()?;
    Ok(Some(sale))
}

pub(super) fn sales(connection: &Connection) -> rusqlite::Result<Vec<Sale>> {
    let mut ids = connection.prepare_cached("SELECT id FROM sale ORDER BY id")?;
    let ids: Vec<SaleId> = ids.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    ids.into_iter().filter_map(|id| sale(connection, id).transpose()).collect()
}

pub(super) fn find_order(connection: &Connection, id: OrderId) -> rusqlite::Result<Option<Order>> {
    let sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = ?1");
    connection.prepare_cached(&sql)?.query_row([id], order).optional()
}

/// One step of an order's life, kept for ever.
pub(super) fn note_step(
    connection: &Connection,
    id: OrderId,
    from: Option<OrderStatus>,
    to: OrderStatus,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT INTO order_event (ord, from_status, to_status, at) VALUES (?1, ?2, ?3, ?4)")?
        .execute((id, from.map(OrderStatus::as_str), to.as_str(), now))?;
    Ok(())
}

/// Units of this order shall go back to the stock, from `due_at` on.
pub(super) fn note_release(
    connection: &Connection,
    order: &Reservation,
    due_at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO release_row (ord, sale, user, due_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?
        .execute((order.order, order.sale, &order.user, due_at))?;
    Ok(())
}

/// Closes a live order: its row, the item's and the buyer's units, its history, its release row.
/// The caller has checked under the same lock that `to` may follow.
pub(super) fn close_order(
    connection: &Connection,
    order: &Order,
    to: OrderStatus,
    now: Now,
) -> rusqlite::Result<()> {
    let it = &order.reservation;
    let changed = connection
        .prepare_cached("UPDATE orders SET status = ?3, strike = ?4 WHERE id = ?1 AND status = ?2")?
        .execute((it.order, order.status.as_str(), to.as_str(), rules::is_strike(order, to, now.at)))?;
    if changed == 0 {
        return Ok(());
    }
    let paid = if order.status == OrderStatus::Paid { it.units } else { Units(0) };
    connection
        .prepare_cached("UPDATE item SET sold = sold - ?2, paid = paid - ?3 WHERE id = ?1")?
        .execute((it.item, it.units, paid))?;
    connection
        .prepare_cached("UPDATE buyer SET units = units - ?3 WHERE sale = ?1 AND user = ?2")?
        .execute((it.sale, &it.user, it.units))?;
    note_step(connection, it.order, Some(order.status), to, now.at)?;
    note_release(connection, it, now.release_at())
}

/// A new row, whatever its status. Answers whether it was inserted.
pub(super) fn insert_order(
    connection: &Connection,
    order: &Order,
    place: Option<(u32, u64)>,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let it = &order.reservation;
    let inserted = connection
        .prepare_cached(
            "INSERT INTO orders (id, sale, item, user, units, total_minor, currency, status, reason, reserved_at, \
             expires_at, hold_until, bucket, epoch, seq, trace, retake_of, part, part_offset) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19) \
             ON CONFLICT (id) DO NOTHING",
        )?
        .execute(rusqlite::params![
            it.order,
            it.sale,
            it.item,
            it.user,
            it.units,
            order.total.minor,
            order.total.currency.as_str(),
            order.status.as_str(),
            order.reason.map(RejectReason::as_str),
            it.reserved_at,
            order.expires_at,
            order.hold_until,
            it.bucket,
            it.epoch,
            signed(it.seq),
            it.trace,
            it.retake_of,
            place.map(|(part, _)| part),
            place.map(|(_, offset)| signed(offset)),
        ])?;
    if inserted == 1 {
        note_step(connection, it.order, None, order.status, now)?;
    }
    Ok(inserted == 1)
}
