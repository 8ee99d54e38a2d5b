//! The whole of the books in one state, for the auditor.

use async_trait::async_trait;
use tokio_postgres::Row;

use super::PostgresLedger;
use super::db::Tx;
use super::failure::Failure;
use super::rows::{self, POSITION_COLUMNS, SALES};
use crate::fault::BackendError;
use crate::ledger::{Backlog, BookSnapshot, Books, PaymentKey, PaymentRow};
use crate::order::SaleId;

#[async_trait]
impl Books for PostgresLedger {
    async fn books(&self) -> Result<BookSnapshot, BackendError> {
        self.db.read("read the books", |tx| async move { books(&tx).await }).await
    }

    async fn payments(
        &self,
        sale: SaleId,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<PaymentRow>, BackendError> {
        let sql = format!(
            "SELECT {PAYMENT_COLUMNS} FROM payment WHERE (provider, payment_id) > ($1, $2) \
             AND EXISTS (SELECT 1 FROM orders WHERE id = payment.ord AND sale = $3) \
             ORDER BY provider, payment_id LIMIT $4"
        );
        let (provider, payment_id) =
            after.map_or(("", ""), |after| (after.provider.as_str(), after.payment_id.as_str()));
        self.query_all(
            "list payments",
            (&sql, &[&provider, &payment_id, &sale, &rows::at_most(limit)]),
            payment,
        )
        .await
    }

    async fn backlog(&self) -> Result<Backlog, BackendError> {
        let sql = "SELECT (SELECT count(*) FROM release_row) AS release_rows, \
             (SELECT count(*) FROM dead_letter WHERE closed_at IS NULL) AS open_dead_letters, \
             (SELECT count(*) FROM payment WHERE outcome = 'LATE') AS late_payments, \
             (SELECT count(*) FROM refund WHERE state = 'DUE') AS refunds_due, \
             (SELECT count(*) FROM refund WHERE state = 'REFUSED') AS refunds_refused, \
             (SELECT count(*) FROM event_delivery WHERE state = 'waiting') AS waiting_deliveries, \
             (SELECT count(*) FROM event_delivery WHERE state = 'dead') AS dead_deliveries";
        let found = self.query_all("count what waits", (sql, &[]), |row| {
            Ok(Backlog {
                release_rows: rows::count(row, "release_rows")?,
                open_dead_letters: rows::count(row, "open_dead_letters")?,
                late_payments: rows::count(row, "late_payments")?,
                refunds_due: rows::count(row, "refunds_due")?,
                refunds_refused: rows::count(row, "refunds_refused")?,
                waiting_deliveries: rows::count(row, "waiting_deliveries")?,
                dead_deliveries: rows::count(row, "dead_deliveries")?,
            })
        });
        Ok(found.await?.pop().unwrap_or_default())
    }
}

const PAYMENT_COLUMNS: &str =
    "provider, payment_id, ord AS meant, coalesce(retake, ord) AS ord, outcome, amount_minor, currency";

async fn books(tx: &Tx) -> Result<BookSnapshot, Failure> {
    let orders = format!("SELECT {}, part, part_offset FROM orders ORDER BY id", rows::ORDER_COLUMNS);
    let positions = format!("SELECT {POSITION_COLUMNS} FROM queue_offset");
    let [sales, orders, buyers, steps, payments, releases, positions, barriers, open] = tx
        .pipeline([
            (SALES, &[&None::<SaleId>]),
            (&orders, &[]),
            ("SELECT sale, user_id, units FROM buyer", &[]),
            ("SELECT ord, from_status, to_status FROM order_event ORDER BY id", &[]),
            (&format!("SELECT {PAYMENT_COLUMNS} FROM payment"), &[]),
            ("SELECT ord FROM release_row ORDER BY ord", &[]),
            (&positions, &[]),
            ("SELECT sale, epoch, topic, part, barrier AS next FROM epoch_barrier", &[]),
            ("SELECT 1 FROM restock WHERE state = 'open'", &[]),
        ])
        .await?;
    let recorded = orders.iter().filter_map(|row| recorded_at(row).transpose());
    Ok(BookSnapshot {
        sales: rows::sales(&sales)?,
        orders: rows::all(&orders, rows::order)?,
        buyers: rows::all(&buyers, |row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?)))?,
        steps: rows::all(&steps, |row| {
            let from = rows::word_or_null(row, "from_status")?;
            Ok((row.try_get("ord")?, from, rows::word(row, "to_status")?))
        })?,
        payments: rows::all(&payments, payment)?,
        releases: rows::all(&releases, |row| Ok(row.try_get(0)?))?,
        positions: rows::all(&positions, rows::position)?,
        barriers: rows::all(&barriers, |row| {
            Ok((row.try_get("sale")?, row.try_get("epoch")?, rows::position(row)?))
        })?,
        recorded_at: recorded.collect::<Result<_, _>>()?,
        open_restocks: open.len() as u64,
    })
}

fn payment(row: &Row) -> Result<PaymentRow, Failure> {
    Ok(PaymentRow {
        payment: PaymentKey { provider: row.try_get("provider")?, payment_id: row.try_get("payment_id")? },
        meant: row.try_get("meant")?,
        order: row.try_get("ord")?,
        outcome: row.try_get("outcome")?,
        amount_minor: row.try_get("amount_minor")?,
        currency: row.try_get("currency")?,
    })
}

fn recorded_at(row: &Row) -> Result<Option<(crate::order::OrderId, u32, u64)>, Failure> {
    if row.try_get::<_, Option<i64>>("part")?.is_none() {
        return Ok(None);
    }
    Ok(Some((row.try_get("id")?, rows::narrow(row, "part")?, rows::count(row, "part_offset")?)))
}
