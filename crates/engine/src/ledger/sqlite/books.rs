//! The whole of the books in one state, for the auditor.

use async_trait::async_trait;
use rusqlite::{Connection, Row};

use super::{SqliteLedger, record, rows};
use crate::fault::BackendError;
use crate::ledger::{Backlog, BookSnapshot, Books, PaymentKey, PaymentRow};
use crate::order::{OrderStatus, SaleId};

#[async_trait]
impl Books for SqliteLedger {
    async fn books(&self) -> Result<BookSnapshot, BackendError> {
        self.db.read("read the books", |tx| books(tx)).await
    }

    async fn payments(
        &self,
        sale: SaleId,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<PaymentRow>, BackendError> {
        let after =
            after.cloned().unwrap_or(PaymentKey { provider: String::new(), payment_id: String::new() });
        self.db
            .read("list payments", move |tx| {
                let sql = format!(
                    "SELECT {PAYMENT_COLUMNS} FROM payment WHERE (provider, payment_id) > (?1, ?2) \
                     AND EXISTS (SELECT 1 FROM orders WHERE id = payment.ord AND sale = ?3) \
                     ORDER BY provider, payment_id LIMIT ?4"
                );
                let mut statement = tx.prepare_cached(&sql)?;
                let limit = rows::signed(limit as u64);
                let found = statement.query_map((after.provider, after.payment_id, sale, limit), payment)?;
                found.collect()
            })
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
        self.db
            .read("count what waits", move |tx| {
                tx.prepare_cached(sql)?.query_row([], |row| {
                    Ok(Backlog {
                        release_rows: rows::count(row, "release_rows")?,
                        open_dead_letters: rows::count(row, "open_dead_letters")?,
                        late_payments: rows::count(row, "late_payments")?,
                        refunds_due: rows::count(row, "refunds_due")?,
                        refunds_refused: rows::count(row, "refunds_refused")?,
                        waiting_deliveries: rows::count(row, "waiting_deliveries")?,
                        dead_deliveries: rows::count(row, "dead_deliveries")?,
                    })
                })
            })
            .await
    }
}

const PAYMENT_COLUMNS: &str =
    "provider, payment_id, ord AS meant, coalesce(retake, ord) AS ord, outcome, amount_minor, currency";

fn payment(row: &Row<'_>) -> rusqlite::Result<PaymentRow> {
    Ok(PaymentRow {
        payment: PaymentKey { provider: row.get("provider")?, payment_id: row.get("payment_id")? },
        meant: row.get("meant")?,
        order: row.get("ord")?,
        outcome: row.get("outcome")?,
        amount_minor: row.get("amount_minor")?,
        currency: row.get("currency")?,
    })
}

fn books(tx: &Connection) -> rusqlite::Result<BookSnapshot> {
    let orders = format!("SELECT {} FROM orders", rows::ORDER_COLUMNS);
    Ok(BookSnapshot {
        sales: rows::sales(tx)?,
        orders: all(tx, &orders, rows::order)?,
        buyers: all(tx, "SELECT sale, user, units FROM buyer", |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?,
        steps: all(tx, "SELECT ord, from_status, to_status FROM order_event ORDER BY id", |row| {
            let from: Option<String> = row.get("from_status")?;
            let from = from.is_some().then(|| rows::word::<OrderStatus>(row, "from_status")).transpose()?;
            Ok((row.get("ord")?, from, rows::word(row, "to_status")?))
        })?,
        payments: all(tx, &format!("SELECT {PAYMENT_COLUMNS} FROM payment"), payment)?,
        releases: all(tx, "SELECT ord FROM release_row", |row| row.get(0))?,
        positions: all(tx, "SELECT topic, part, next FROM queue_offset", record::position)?,
        barriers: all(tx, "SELECT sale, epoch, topic, part, barrier AS next FROM epoch_barrier", |row| {
            Ok((row.get("sale")?, row.get("epoch")?, record::position(row)?))
        })?,
        recorded_at: all(tx, "SELECT id, part, part_offset FROM orders WHERE part IS NOT NULL", |row| {
            Ok((row.get("id")?, row.get("part")?, rows::count(row, "part_offset")?))
        })?,
        open_restocks: all(tx, "SELECT 1 FROM restock WHERE state = 'open'", |_| Ok(()))?.len() as u64,
    })
}

fn all<T>(
    tx: &Connection,
    sql: &str,
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Vec<T>> {
    let mut statement = tx.prepare_cached(sql)?;
    let found = statement.query_map([], read)?;
    found.collect()
}
