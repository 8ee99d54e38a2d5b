//! Attempts to pay, in SQLite.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{Now, SqliteLedger, payments, rows, settlement};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts;
use crate::ledger::{
    Attempts, BeginOutcome, PayOutcome, PaymentAttempt, PaymentAttemptId, PaymentEvidence, ProviderEvent,
    ReceiveOutcome,
};
use crate::order::OrderId;

#[async_trait]
impl Attempts for SqliteLedger {
    async fn begin_attempt(&self, order: OrderId, provider: &str) -> Result<BeginOutcome, BackendError> {
        let (provider, now) = (provider.to_owned(), self.clock.now());
        self.db.write("begin a payment", move |tx| begin(tx, order, &provider, now)).await
    }

    async fn note_attempt(
        &self,
        id: PaymentAttemptId,
        reference: &str,
        url: &str,
    ) -> Result<Option<PaymentAttempt>, BackendError> {
        let (reference, url) = (reference.to_owned(), url.to_owned());
        self.db
            .write("note where to pay", move |tx| {
                tx.prepare_cached(
                    "UPDATE payment_attempt SET reference = ?2, url = ?3 WHERE id = ?1 AND reference IS NULL \
                     AND NOT EXISTS (SELECT 1 FROM payment_attempt AS other \
                         WHERE other.provider = payment_attempt.provider AND other.reference = ?2)",
                )?
                .execute((id, reference, url))?;
                find(tx, id)
            })
            .await
    }

    async fn take_attempts(&self, provider: &str, limit: usize) -> Result<Vec<PaymentAttempt>, BackendError> {
        let (provider, now) = (provider.to_owned(), self.clock.now());
        self.db.write("take open payments", move |tx| take(tx, &provider, limit, now)).await
    }

    async fn close_attempt(&self, id: PaymentAttemptId) -> Result<(), BackendError> {
        let now = self.clock.now();
        self.db.write("close a payment's attempt", move |tx| close(tx, id, now)).await
    }

    async fn receive(&self, event: &ProviderEvent, hold: Duration) -> Result<ReceiveOutcome, BackendError> {
        let (event, now) = (event.clone(), self.now());
        self.db.write("receive a provider's event", move |tx| receive(tx, &event, hold, now)).await
    }

    async fn payment_evidence(
        &self,
        order: OrderId,
        limit: usize,
    ) -> Result<Vec<PaymentEvidence>, BackendError> {
        self.db
            .read("read what was said about an order", move |tx| {
                tx.prepare_cached(
                    "SELECT * FROM payment_event WHERE ord = ?1 ORDER BY at, provider, event_id LIMIT ?2",
                )?
                .query_map((order, rows::signed(limit as u64)), evidence)?
                .collect()
            })
            .await
    }
}

fn attempt(row: &Row<'_>) -> rusqlite::Result<PaymentAttempt> {
    Ok(PaymentAttempt {
        id: row.get("id")?,
        order: row.get("ord")?,
        provider: row.get("provider")?,
        reference: row.get("reference")?,
        url: row.get("url")?,
        begun_at: row.get("begun_at")?,
    })
}

fn evidence(row: &Row<'_>) -> rusqlite::Result<PaymentEvidence> {
    Ok(PaymentEvidence {
        provider: row.get("provider")?,
        event_id: row.get("event_id")?,
        payment_id: row.get("payment_id")?,
        kind: row.get("kind")?,
        amount_minor: row.get("amount_minor")?,
        currency: row.get("currency")?,
        outcome: row.get("outcome")?,
        at: row.get("at")?,
    })
}

fn find(tx: &Connection, id: PaymentAttemptId) -> rusqlite::Result<Option<PaymentAttempt>> {
    tx.prepare_cached("SELECT * FROM payment_attempt WHERE id = ?1")?.query_row([id], attempt).optional()
}

fn begin(tx: &Connection, order: OrderId, provider: &str, now: Timestamp) -> rusqlite::Result<BeginOutcome> {
    let order = match attempts::begin(rows::find_order(tx, order)?, now) {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(order) => order,
    };
    let id = PaymentAttemptId::derived(provider, order.reservation.order);

    tx.prepare_cached(
        "INSERT INTO payment_attempt (id, ord, provider, begun_at, ask_at) VALUES (?1, ?2, ?3, ?4, ?5) \
         ON CONFLICT DO NOTHING",
    )?
    .execute((id, order.reservation.order, provider, now, order.expires_at))?;
    let attempt =
        tx.prepare_cached("SELECT * FROM payment_attempt WHERE id = ?1")?.query_row([id], attempt)?;
    Ok(BeginOutcome::Begun(attempt, Box::new(order)))
}

/// The provider of a closed order's open attempt is asked at once.
pub(super) fn ask_now(tx: &Connection, order: OrderId, now: Timestamp) -> rusqlite::Result<()> {
    tx.prepare_cached("UPDATE payment_attempt SET ask_at = ?2 WHERE ord = ?1 AND closed_at IS NULL")?
        .execute((order, now))?;
    Ok(())
}

fn take(
    tx: &Connection,
    provider: &str,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<PaymentAttempt>> {
    let due: Vec<(PaymentAttempt, u32)> = tx
        .prepare_cached(
            "SELECT a.* FROM payment_attempt a JOIN orders o ON o.id = a.ord \
             WHERE a.provider = ?1 AND a.closed_at IS NULL AND a.reference IS NOT NULL AND a.ask_at < ?2 \
             AND (o.status <> 'PENDING' OR o.hold_until > o.expires_at) ORDER BY a.ask_at, a.id LIMIT ?3",
        )?
        .query_map((provider, now, rows::signed(limit as u64)), |row| Ok((attempt(row)?, row.get("asks")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut again =
        tx.prepare_cached("UPDATE payment_attempt SET ask_at = ?2, asks = asks + 1 WHERE id = ?1")?;
    for (it, asks) in &due {
        again.execute((it.id, now.plus(attempts::ask_gap(*asks))))?;
    }
    Ok(due.into_iter().map(|(it, _)| it).collect())
}

fn close(tx: &Connection, id: PaymentAttemptId, now: Timestamp) -> rusqlite::Result<()> {
    tx.prepare_cached("UPDATE payment_attempt SET closed_at = ?2 WHERE id = ?1 AND closed_at IS NULL")?
        .execute((id, now))?;
    tx.prepare_cached(
        "UPDATE orders SET hold_until = expires_at WHERE status = 'PENDING' AND hold_until > expires_at \
         AND id = (SELECT ord FROM payment_attempt WHERE id = ?1) \
         AND NOT EXISTS (SELECT 1 FROM payment_attempt a \
             WHERE a.ord = orders.id AND a.closed_at IS NULL AND a.reference IS NOT NULL)",
    )?
    .execute([id])?;
    Ok(())
}

fn receive(
    tx: &Connection,
    event: &ProviderEvent,
    hold: Duration,
    now: Now,
) -> rusqlite::Result<ReceiveOutcome> {
    let payment = &event.payment;
    let named: Vec<PaymentAttempt> = tx
        .prepare_cached(
            "SELECT * FROM payment_attempt WHERE id = ?1 OR (provider = ?2 AND reference = ?3) ORDER BY id",
        )?
        .query_map((event.attempt, &payment.provider, &payment.payment_id), attempt)?
        .collect::<rusqlite::Result<_>>()?;
    let key = settlement::key_of(payment);
    let earlier = settlement::payment(tx, &key)?;
    match attempts::weigh(event, &named, earlier.as_ref()) {
        ControlFlow::Continue(()) => Ok(ReceiveOutcome::Decided(payments::pay(tx, payment, hold, now)?)),
        ControlFlow::Break(outcome) => {
            if !payments::note_event(tx, payment, (event.kind, Some(outcome)), now.at)? {
                return Ok(ReceiveOutcome::Decided(PayOutcome::Duplicate));
            }
            if attempts::came_back(event, earlier.as_ref()) {
                settlement::came_back(tx, &key, now)?;
            }
            if outcome == ReceiveOutcome::RefundFailed {
                settlement::refund_failed(tx, &key, event.refund.as_deref())?;
            }
            Ok(outcome)
        }
    }
}
