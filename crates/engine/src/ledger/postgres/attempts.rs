//! Attempts to pay, in PostgreSQL.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use super::{PostgresLedger, payments, settlement};
use crate::fault::BackendError;
use crate::ledger::attempts::{self, Earlier};
use crate::ledger::{
    Attempts, BeginOutcome, PayOutcome, PaymentAttempt, PaymentAttemptId, PaymentEvidence, ProviderEvent,
    ReceiveOutcome,
};
use crate::order::OrderId;

#[async_trait]
impl Attempts for PostgresLedger {
    async fn begin_attempt(&self, order: OrderId, provider: &str) -> Result<BeginOutcome, BackendError> {
        self.db.write("begin a payment", |tx| async move { begin(&tx, order, provider).await }).await
    }

    async fn note_attempt(
        &self,
        id: PaymentAttemptId,
        reference: &str,
        url: &str,
    ) -> Result<Option<PaymentAttempt>, BackendError> {
        self.db
            .write("note where to pay", |tx| async move {
                tx.rows((NOTE_ATTEMPT, &[&id, &reference, &url])).await?;
                rows::one(&tx.rows((ATTEMPT, &[&id])).await?, attempt)
            })
            .await
    }

    async fn take_attempts(&self, provider: &str, limit: usize) -> Result<Vec<PaymentAttempt>, BackendError> {
        self.db
            .write("take open payments", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let due = tx.rows((TAKE, &[&provider, &now, &at_most(limit)])).await?;
                let (mut ids, mut again) = (Vec::new(), Vec::new());
                for row in &due {
                    ids.push(row.try_get::<_, PaymentAttemptId>("id")?);
                    again.push(now.plus(attempts::ask_gap(rows::narrow(row, "asks")?)));
                }
                if !ids.is_empty() {
                    tx.rows((ASK_AGAIN, &[&ids, &again])).await?;
                }
                rows::all(&due, attempt)
            })
            .await
    }

    async fn close_attempt(&self, id: PaymentAttemptId) -> Result<(), BackendError> {
        self.db
            .write("close a payment's attempt", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                tx.rows((CLOSE_ATTEMPT, &[&id, &now])).await?;
                tx.rows((END_HOLD, &[&id])).await.map(drop)
            })
            .await
    }

    async fn receive(&self, event: &ProviderEvent, hold: Duration) -> Result<ReceiveOutcome, BackendError> {
        self.db.write("receive a provider's event", |tx| async move { receive(&tx, event, hold).await }).await
    }

    async fn payment_evidence(
        &self,
        order: OrderId,
        limit: usize,
    ) -> Result<Vec<PaymentEvidence>, BackendError> {
        let what = "read what was said about an order";
        let found = self.db.query(what, (EVIDENCE, &[&order, &at_most(limit)])).await?;
        rows::all(&found, evidence).map_err(|failure| failure.before_commit(what))
    }
}

const ATTEMPT: &str = "SELECT id, ord, provider, reference, url, begun_at FROM payment_attempt WHERE id = $1";

const MAKE_ATTEMPT: &str = "INSERT INTO payment_attempt (id, ord, provider, begun_at, ask_at) \
     VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";

/// The provider of a closed order's open attempt is asked at once.
pub(super) const ASK_NOW: &str =
    "UPDATE payment_attempt SET ask_at = $2 WHERE ord = $1 AND closed_at IS NULL";

/// Rows that another keeper takes at the same moment are left to it.
const TAKE: &str = "SELECT a.id, a.ord, a.provider, a.reference, a.url, a.begun_at, a.asks \
     FROM payment_attempt a JOIN orders o ON o.id = a.ord \
     WHERE a.provider = $1 AND a.closed_at IS NULL AND a.reference IS NOT NULL AND a.ask_at < $2 \
     AND (o.status <> 'PENDING' OR o.hold_until > o.expires_at) \
     ORDER BY a.ask_at, a.id LIMIT $3 FOR UPDATE OF a SKIP LOCKED";

const ASK_AGAIN: &str = "UPDATE payment_attempt SET ask_at = again.at, asks = asks + 1 \
     FROM unnest($1::uuid[], $2::bigint[]) AS again (id, at) WHERE payment_attempt.id = again.id";

const CLOSE_ATTEMPT: &str = "UPDATE payment_attempt SET closed_at = $2 WHERE id = $1 AND closed_at IS NULL";

/// One row, whose status does not change by it, so its item's lock is not needed.
const END_HOLD: &str = "UPDATE orders SET hold_until = expires_at \
     WHERE status = 'PENDING' AND hold_until > expires_at \
     AND id = (SELECT ord FROM payment_attempt WHERE id = $1) \
     AND NOT EXISTS (SELECT 1 FROM payment_attempt a \
         WHERE a.ord = orders.id AND a.closed_at IS NULL AND a.reference IS NOT NULL)";

const NOTE_ATTEMPT: &str = "UPDATE payment_attempt SET reference = $2, url = $3 WHERE id = $1 AND reference IS NULL \
     AND NOT EXISTS (SELECT 1 FROM payment_attempt other \
         WHERE other.provider = payment_attempt.provider AND other.reference = $2)";

/// What an event's attempt and payment name. An attempt's order never changes, so no lock is needed.
const NAMED: &str = "SELECT id, ord, provider, reference, url, begun_at FROM payment_attempt \
     WHERE id = $1 OR (provider = $2 AND reference = $3) ORDER BY id";

/// A payment as it was decided before.
pub(super) const EARLIER: &str =
    "SELECT ord, outcome, amount_minor FROM payment WHERE provider = $1 AND payment_id = $2";

/// Text is sorted by its bytes, as SQLite does.
const EVIDENCE: &str = "SELECT provider, event_id, payment_id, kind, amount_minor, currency, outcome, at \
     FROM payment_event WHERE ord = $1 ORDER BY at, provider COLLATE \"C\", event_id COLLATE \"C\" LIMIT $2";

fn attempt(row: &Row) -> Result<PaymentAttempt, Failure> {
    Ok(PaymentAttempt {
        id: row.try_get("id")?,
        order: row.try_get("ord")?,
        provider: row.try_get("provider")?,
        reference: row.try_get("reference")?,
        url: row.try_get("url")?,
        begun_at: row.try_get("begun_at")?,
    })
}

fn evidence(row: &Row) -> Result<PaymentEvidence, Failure> {
    Ok(PaymentEvidence {
        provider: row.try_get("provider")?,
        event_id: row.try_get("event_id")?,
        payment_id: row.try_get("payment_id")?,
        kind: row.try_get("kind")?,
        amount_minor: row.try_get("amount_minor")?,
        currency: row.try_get("currency")?,
        outcome: row.try_get("outcome")?,
        at: row.try_get("at")?,
    })
}

/// No lock: whether the order is payable is only asked here, and decided when the payment comes.
async fn begin(tx: &Tx, order: OrderId, provider: &str) -> Result<BeginOutcome, Failure> {
    let find = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = $1");
    let [order, now] = tx.pipeline([(&find, &[&order]), (CLOCK, &[&tx.clock()])]).await?;
    let now = rows::time(&now)?;
    let order = match attempts::begin(rows::one(&order, rows::order)?, now) {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(order) => order,
    };
    let id = PaymentAttemptId::derived(provider, order.reservation.order);

    let end = order.expires_at;
    tx.rows((MAKE_ATTEMPT, &[&id, &order.reservation.order, &provider, &now, &end])).await?;
    let made = tx.rows((ATTEMPT, &[&id])).await?;
    let attempt = rows::one(&made, attempt)?.ok_or(Failure::Overtaken)?;
    Ok(BeginOutcome::Begun(attempt, Box::new(order)))
}

async fn receive(tx: &Tx, event: &ProviderEvent, hold: Duration) -> Result<ReceiveOutcome, Failure> {
    let payment = &event.payment;
    let [named, earlier, now] = tx
        .pipeline([
            (NAMED, &[&event.attempt, &payment.provider, &payment.payment_id]),
            (EARLIER, &[&payment.provider, &payment.payment_id]),
            (CLOCK, &[&tx.clock()]),
        ])
        .await?;
    let earlier = rows::one(&earlier, |row| {
        Ok(Earlier {
            order: row.try_get("ord")?,
            outcome: row.try_get("outcome")?,
            amount_minor: row.try_get("amount_minor")?,
        })
    })?;
    match attempts::weigh(event, &rows::all(&named, attempt)?, earlier.as_ref()) {
        ControlFlow::Continue(()) => Ok(ReceiveOutcome::Decided(payments::pay(tx, payment, hold).await?)),
        ControlFlow::Break(outcome) => {
            let said = (event.kind, Some(outcome));
            if !payments::note_event(tx, payment, said, rows::time(&now)?).await? {
                return Ok(ReceiveOutcome::Decided(PayOutcome::Duplicate));
            }
            if attempts::came_back(event, earlier.as_ref()) {
                settlement::came_back(tx, payment).await?;
            }
            if outcome == ReceiveOutcome::RefundFailed {
                settlement::refund_failed(tx, payment, event.refund.as_deref()).await?;
            }
            Ok(outcome)
        }
    }
}
