//! How values stand in PostgreSQL's columns.

use std::error::Error;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use uuid::Uuid;

use super::failure::Failure;
use crate::clock::Timestamp;
use crate::delivery::{Position, TopicId};
use crate::ledger::PaymentAttemptId;
use crate::order::{
    Currency, Epoch, InvalidValue, ItemId, Money, Order, OrderId, OrderStatus, RejectReason, Reservation,
    SaleId, Units, UserId,
};
use crate::sale::{Fence, Item, LoaderToken, Sale, SaleState, Terms};

type Converted<T> = Result<T, Box<dyn Error + Sync + Send>>;

/// A value stands in a column of the type that `$column` stands in.
macro_rules! column {
    ($($name:ty as $column:ty: $get:expr, $make:expr;)*) => {$(
        impl ToSql for $name {
            fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Converted<IsNull> {
                let get: fn(&$name) -> $column = $get;
                get(self).to_sql(ty, out)
            }

            fn accepts(ty: &Type) -> bool {
                <$column as ToSql>::accepts(ty)
            }

            to_sql_checked!();
        }

        impl<'a> FromSql<'a> for $name {
            fn from_sql(ty: &Type, raw: &'a [u8]) -> Converted<Self> {
                let make: fn($column) -> Option<$name> = $make;
                let value = <$column as FromSql>::from_sql(ty, raw)?;
                make(value).ok_or_else(|| InvalidValue("a number is out of its range").into())
            }

            fn accepts(ty: &Type) -> bool {
                <$column as FromSql>::accepts(ty)
            }
        }
    )*};
}

column! {
    SaleId as i64: |it| it.0, |value| Some(SaleId(value));
    ItemId as i64: |it| it.0, |value| Some(ItemId(value));
    Timestamp as i64: |it| it.as_ms(), |value| Some(Timestamp::from_ms(value));
    Units as i64: |it| i64::from(it.0), |value| u32::try_from(value).ok().map(Units);
    Epoch as i64: |it| signed(it.0), |value| u64::try_from(value).ok().map(Epoch);
    LoaderToken as i64: |it| signed(it.0), |value| u64::try_from(value).ok().map(LoaderToken);
    OrderId as Uuid: |it| it.0, |value| Some(OrderId(value));
    PaymentAttemptId as Uuid: |it| it.0, |value| Some(PaymentAttemptId(value));
}

impl ToSql for UserId {
    fn to_sql(&self, ty: &Type, out: &mut BytesMut) -> Converted<IsNull> {
        self.as_bytes().to_sql(ty, out)
    }

    fn accepts(ty: &Type) -> bool {
        <&[u8] as ToSql>::accepts(ty)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for UserId {
    fn from_sql(ty: &Type, raw: &'a [u8]) -> Converted<Self> {
        Ok(Self::new(std::str::from_utf8(<&[u8] as FromSql>::from_sql(ty, raw)?)?)?)
    }

    fn accepts(ty: &Type) -> bool {
        <&[u8] as FromSql>::accepts(ty)
    }
}

/// A count as a signed column stores it; counts above `i64::MAX` do not occur.
pub(super) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// As many rows as a `LIMIT` asks for.
pub(super) fn at_most(limit: usize) -> i64 {
    signed(limit as u64)
}

/// A text column with one of our words.
pub(super) fn word<T: FromStr<Err = InvalidValue>>(row: &Row, column: &str) -> Result<T, Failure> {
    parsed(column, row.try_get(column)?)
}

/// A text column with one of our words, or nothing.
pub(super) fn word_or_null<T: FromStr<Err = InvalidValue>>(
    row: &Row,
    column: &str,
) -> Result<Option<T>, Failure> {
    row.try_get::<_, Option<&str>>(column)?.map(|text| parsed(column, text)).transpose()
}

fn parsed<T: FromStr<Err = InvalidValue>>(column: &str, text: &str) -> Result<T, Failure> {
    text.parse().map_err(|error| Failure::Column(column.to_owned(), error))
}

/// A column with a count.
pub(super) fn count(row: &Row, column: &str) -> Result<u64, Failure> {
    narrow(row, column)
}

/// A column whose numbers fit a narrower type.
pub(super) fn narrow<T: TryFrom<i64>>(row: &Row, column: &str) -> Result<T, Failure> {
    let out_of_range = |_| Failure::Column(column.to_owned(), InvalidValue("a number is out of its range"));
    T::try_from(row.try_get::<_, i64>(column)?).map_err(out_of_range)
}

/// Every row, read by `read`.
pub(super) fn all<T>(rows: &[Row], read: impl FnMut(&Row) -> Result<T, Failure>) -> Result<Vec<T>, Failure> {
    rows.iter().map(read).collect()
}

/// The one value of the one row of [`CLOCK`](super::db::CLOCK).
pub(super) fn time(rows: &[Row]) -> Result<Timestamp, Failure> {
    Ok(rows.first().ok_or(Failure::Overtaken)?.try_get(0)?)
}

/// The columns of [`position`].
pub(super) const POSITION_COLUMNS: &str = "topic, part, next";

pub(super) fn position(row: &Row) -> Result<Position, Failure> {
    Ok(Position {
        topic: TopicId(row.try_get("topic")?),
        partition: narrow(row, "part")?,
        next: count(row, "next")?,
    })
}

/// The columns of [`order`].
pub(super) const ORDER_COLUMNS: &str = "id, sale, item, user_id, units, total_minor, currency, status, reason, \
     reserved_at, expires_at, hold_until, bucket, epoch, seq, trace, retake_of";

fn reservation(row: &Row) -> Result<Reservation, Failure> {
    Ok(Reservation {
        order: row.try_get("id")?,
        sale: row.try_get("sale")?,
        bucket: narrow(row, "bucket")?,
        item: row.try_get("item")?,
        user: row.try_get("user_id")?,
        units: row.try_get("units")?,
        epoch: row.try_get("epoch")?,
        seq: count(row, "seq")?,
        reserved_at: row.try_get("reserved_at")?,
        trace: row.try_get("trace")?,
        retake_of: row.try_get("retake_of")?,
    })
}

pub(super) fn money(row: &Row, column: &str) -> Result<Money, Failure> {
    let currency: Currency = word(row, "currency")?;
    Ok(Money { minor: row.try_get(column)?, currency })
}

pub(super) fn order(row: &Row) -> Result<Order, Failure> {
    Ok(Order {
        reservation: reservation(row)?,
        total: money(row, "total_minor")?,
        status: word::<OrderStatus>(row, "status")?,
        reason: word_or_null::<RejectReason>(row, "reason")?,
        expires_at: row.try_get("expires_at")?,
        hold_until: row.try_get("hold_until")?,
    })
}

/// The first row, for a query by a key.
pub(super) fn one<T>(
    rows: &[Row],
    read: impl FnOnce(&Row) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    rows.first().map(read).transpose()
}

/// Sales with their items, one row per item, in one statement and so in one state. `$1` is the one
/// wanted, or null for all.
pub(super) const SALES: &str = "SELECT s.id, s.name, s.state, s.opens_at, s.closes_at, s.payment_window_ms, \
     s.unit_limit, s.epoch, s.recorded_seq, s.fence_reason, s.fence_token, s.fence_since, \
     i.id AS item_id, i.product_id, i.title, i.quantity, i.sold, i.paid, i.price_minor, \
     i.currency, i.list_price_minor \
     FROM sale s LEFT JOIN item i ON i.sale = s.id \
     WHERE $1::bigint IS NULL OR s.id = $1 ORDER BY s.id, i.id";

/// The sales in the rows of [`SALES`].
pub(super) fn sales(rows: &[Row]) -> Result<Vec<Sale>, Failure> {
    let mut sales: Vec<Sale> = Vec::new();
    for row in rows {
        let id: SaleId = row.try_get("id")?;
        if sales.last().is_none_or(|sale| sale.id != id) {
            sales.push(sale(row)?);
        }
        if let (Some(sale), Some(item)) = (sales.last_mut(), item(row)?) {
            sale.items.push(item);
        }
    }
    Ok(sales)
}

fn sale(row: &Row) -> Result<Sale, Failure> {
    let reason: Option<String> = row.try_get("fence_reason")?;
    let fence = match reason {
        None => None,
        Some(reason) => {
            Some(Fence { reason, token: row.try_get("fence_token")?, since: row.try_get("fence_since")? })
        }
    };
    Ok(Sale {
        id: row.try_get("id")?,
        name: row.try_get("name")?,
        terms: Terms {
            state: word::<SaleState>(row, "state")?,
            opens_at: row.try_get("opens_at")?,
            closes_at: row.try_get("closes_at")?,
            limit: row.try_get("unit_limit")?,
        },
        payment_window: Duration::from_millis(count(row, "payment_window_ms")?),
        epoch: row.try_get("epoch")?,
        recorded_seq: count(row, "recorded_seq")?,
        fence,
        items: Vec::new(),
    })
}

fn item(row: &Row) -> Result<Option<Item>, Failure> {
    let Some(id) = row.try_get("item_id")? else { return Ok(None) };
    Ok(Some(Item {
        id,
        product_id: row.try_get("product_id")?,
        title: row.try_get("title")?,
        quantity: count(row, "quantity")?,
        sold: count(row, "sold")?,
        paid: count(row, "paid")?,
        price: money(row, "price_minor")?,
        list_price_minor: row.try_get("list_price_minor")?,
    }))
}
