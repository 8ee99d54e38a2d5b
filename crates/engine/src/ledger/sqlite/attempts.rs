//! Attempts to pay, in SQLite.

use std::ops::ControlFlow;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{SqliteLedger, payments, rows};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts::{self, Earlier};
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

    async fn receive(&self, event: &ProviderEvent) -> Result<ReceiveOutcome, BackendError> {
        let (event, now) = (event.clone(), self.clock.now());
        self.db.write("receive a provider's event", move |tx| receive(tx, &event, now)).await
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
        "INSERT INTO payment_attempt (id, ord, provider, begun_at) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
    )?
    .execute((id, order.reservation.order, provider, now))?;
    let attempt =
        tx.prepare_cached("SELECT * FROM payment_attempt WHERE id = ?1")?.query_row([id], attempt)?;
    Ok(BeginOutcome::Begun(attempt, Box::new(order)))
}

fn receive(tx: &Connection, event: &ProviderEvent, now: Timestamp) -> rusqlite::Result<ReceiveOutcome> {
    let payment = &event.payment;
    let named: Vec<PaymentAttempt> = tx
        .prepare_cached(
            "SELECT * FROM payment_attempt WHERE id = ?1 OR (provider = ?2 AND reference = ?3) ORDER BY id",
        )?
        .query_map((event.attempt, &payment.provider, &payment.payment_id), attempt)?
        .collect::<rusqlite::Result<_>>()?;
    let earlier = tx
        .prepare_cached("SELECT ord, outcome FROM payment WHERE provider = ?1 AND payment_id = ?2")?
        .query_row((&payment.provider, &payment.payment_id), |row| {
            Ok(Earlier { order: row.get("ord")?, outcome: row.get("outcome")? })
        })
        .optional()?;
    match attempts::weigh(event, &named, earlier.as_ref()) {
        ControlFlow::Continue(()) => Ok(ReceiveOutcome::Decided(payments::pay(tx, payment, now)?)),
        ControlFlow::Break(outcome) => {
            let new = payments::note_event(tx, payment, (event.kind, Some(outcome)), now)?;
            Ok(if new { outcome } else { ReceiveOutcome::Decided(PayOutcome::Duplicate) })
        }
    }
}
