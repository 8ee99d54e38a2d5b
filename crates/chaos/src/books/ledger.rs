//! The ledger's tables, read from PostgreSQL in one state.

use std::error::Error;

use tokio_postgres::{IsolationLevel, NoTls, Row, Transaction};
use uuid::Uuid;

use super::{
    Barrier, Books, BooksError, Buyer, DeadLetter, Item, Order, OrderStep, Payment, PaymentEvent, Position,
    Refund, Restock, Sale, Status,
};
use crate::{ItemId, OrderId, SaleId};

/// Everything but the stock.
#[expect(clippy::disallowed_methods, reason = "the connection runs beside its one user and ends with it")]
pub(super) async fn read(url: &str, schema: &str) -> Result<Books, BooksError> {
    let (mut client, connection) = tokio_postgres::connect(url, NoTls).await?;
    let connection = tokio::spawn(connection);
    let schema = schema.replace('"', "\"\"");
    client.batch_execute(&format!("SET search_path TO \"{schema}\"")).await?;
    let state = client
        .build_transaction()
        .isolation_level(IsolationLevel::RepeatableRead)
        .read_only(true)
        .start()
        .await?;
    let books = read_all(&state).await?;
    state.commit().await?;
    drop(client);
    // It ends with its client; how it ends says nothing about what was read.
    let _ = connection.await;
    Ok(books)
}

async fn read_all(state: &Transaction<'_>) -> Result<Books, BooksError> {
    let now =
        state.query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint AS now", &[]).await?;
    Ok(Books {
        sales: all(state, "SELECT * FROM sale ORDER BY id", sale).await?,
        items: all(state, "SELECT * FROM item ORDER BY id", item).await?,
        buyers: all(state, "SELECT * FROM buyer ORDER BY sale, user_id", buyer).await?,
        orders: all(state, "SELECT * FROM orders ORDER BY id", order).await?,
        steps: all(state, "SELECT * FROM order_event ORDER BY id", step).await?,
        releases: all(state, "SELECT ord FROM release_row ORDER BY id", |row| order_id(row, "ord")).await?,
        payments: all(state, "SELECT * FROM payment ORDER BY provider, payment_id", payment).await?,
        payment_events: all(state, "SELECT * FROM payment_event ORDER BY provider, event_id", event).await?,
        refunds: all(state, "SELECT * FROM refund ORDER BY provider, payment_id", refund).await?,
        positions: all(state, "SELECT * FROM queue_offset ORDER BY topic, part", |row| place(row, "next"))
            .await?,
        barriers: all(state, "SELECT * FROM epoch_barrier ORDER BY sale, epoch, part", barrier).await?,
        restocks: all(state, "SELECT * FROM restock ORDER BY id", restock).await?,
        dead_letters: all(state, "SELECT * FROM dead_letter ORDER BY id", dead_letter).await?,
        read_at_ms: field(&now, "now")?,
        ..Books::default()
    })
}

async fn all<T>(
    state: &Transaction<'_>,
    sql: &str,
    read: impl Fn(&Row) -> Result<T, BooksError>,
) -> Result<Vec<T>, BooksError> {
    state.query(sql, &[]).await?.iter().map(read).collect()
}

fn sale(row: &Row) -> Result<Sale, BooksError> {
    Ok(Sale {
        id: SaleId(field(row, "id")?),
        state: field(row, "state")?,
        limit: count(row, "unit_limit")?,
        epoch: count(row, "epoch")?,
        recorded_seq: count(row, "recorded_seq")?,
        fence: field(row, "fence_reason")?,
    })
}

fn item(row: &Row) -> Result<Item, BooksError> {
    Ok(Item {
        id: ItemId(field(row, "id")?),
        sale: SaleId(field(row, "sale")?),
        quantity: field(row, "quantity")?,
        sold: field(row, "sold")?,
        paid: field(row, "paid")?,
    })
}

fn buyer(row: &Row) -> Result<Buyer, BooksError> {
    Ok(Buyer { sale: SaleId(field(row, "sale")?), user: user(row)?, units: field(row, "units")? })
}

fn order(row: &Row) -> Result<Order, BooksError> {
    let place = match field::<Option<i64>>(row, "part")? {
        None => None,
        Some(_) => Some((count(row, "part")?, count(row, "part_offset")?)),
    };
    Ok(Order {
        id: order_id(row, "id")?,
        sale: SaleId(field(row, "sale")?),
        item: ItemId(field(row, "item")?),
        user: user(row)?,
        units: count(row, "units")?,
        total_minor: field(row, "total_minor")?,
        currency: field(row, "currency")?,
        status: status(&field::<String>(row, "status")?)?,
        reason: field(row, "reason")?,
        reserved_at_ms: field(row, "reserved_at")?,
        bucket: count(row, "bucket")?,
        epoch: count(row, "epoch")?,
        seq: count(row, "seq")?,
        retake_of: field::<Option<Uuid>>(row, "retake_of")?.map(OrderId),
        place,
    })
}

fn step(row: &Row) -> Result<OrderStep, BooksError> {
    let from = field::<Option<String>>(row, "from_status")?;
    Ok(OrderStep {
        order: order_id(row, "ord")?,
        from: from.map(|word| status(&word)).transpose()?,
        to: status(&field::<String>(row, "to_status")?)?,
        at_ms: field(row, "at")?,
    })
}

fn payment(row: &Row) -> Result<Payment, BooksError> {
    let retake = field::<Option<Uuid>>(row, "retake")?.map(OrderId);
    Ok(Payment {
        provider: field(row, "provider")?,
        payment: field(row, "payment_id")?,
        order: retake.map_or_else(|| order_id(row, "ord"), Ok)?,
        amount_minor: field(row, "amount_minor")?,
        currency: field(row, "currency")?,
        outcome: field(row, "outcome")?,
    })
}

fn refund(row: &Row) -> Result<Refund, BooksError> {
    Ok(Refund {
        provider: field(row, "provider")?,
        payment: field(row, "payment_id")?,
        amount_minor: field(row, "amount_minor")?,
    })
}

fn event(row: &Row) -> Result<PaymentEvent, BooksError> {
    Ok(PaymentEvent {
        provider: field(row, "provider")?,
        event: field(row, "event_id")?,
        payment: field(row, "payment_id")?,
    })
}

/// A place in the queue; `offset` names its column.
fn place(row: &Row, offset: &str) -> Result<Position, BooksError> {
    Ok(Position { topic: field(row, "topic")?, partition: count(row, "part")?, next: count(row, offset)? })
}

fn barrier(row: &Row) -> Result<Barrier, BooksError> {
    let sale = SaleId(field(row, "sale")?);
    Ok(Barrier { sale, epoch: count(row, "epoch")?, at: place(row, "barrier")? })
}

fn restock(row: &Row) -> Result<Restock, BooksError> {
    Ok(Restock {
        operation: field::<Uuid>(row, "operation")?.to_string(),
        sale: SaleId(field(row, "sale")?),
        item: ItemId(field(row, "item")?),
        units: field(row, "units")?,
        epoch: count(row, "epoch")?,
        state: field(row, "state")?,
    })
}

fn dead_letter(row: &Row) -> Result<DeadLetter, BooksError> {
    Ok(DeadLetter { at: place(row, "part_offset")?, why: field(row, "why")? })
}

fn field<'a, T: tokio_postgres::types::FromSql<'a>>(row: &'a Row, name: &str) -> Result<T, BooksError> {
    row.try_get(name).map_err(BooksError::Ledger)
}

fn order_id(row: &Row, name: &str) -> Result<OrderId, BooksError> {
    field(row, name).map(OrderId)
}

/// A number that is never negative.
fn count(row: &Row, name: &str) -> Result<u64, BooksError> {
    let value: i64 = field(row, name)?;
    value.try_into().map_err(|error| strange("a negative number", &error, value))
}

fn user(row: &Row) -> Result<String, BooksError> {
    let bytes: Vec<u8> = field(row, "user_id")?;
    String::from_utf8(bytes)
        .map_err(|error| strange("a user that is no text", &error, String::from_utf8_lossy(error.as_bytes())))
}

fn status(word: &str) -> Result<Status, BooksError> {
    Status::read(word)
        .ok_or_else(|| BooksError::Value { what: "a status that is none", value: word.to_owned() })
}

fn strange(what: &'static str, error: &dyn Error, value: impl std::fmt::Display) -> BooksError {
    BooksError::Value { what, value: format!("{value} ({error})") }
}
