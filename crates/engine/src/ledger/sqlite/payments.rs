//! Payments in SQLite: stored by event id, decided by payment id, in one transaction.

use async_trait::async_trait;
use rusqlite::Connection;

use super::{SqliteLedger, rows};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts::Said;
use crate::ledger::{PayOutcome, PaymentEvent, PaymentEventKind, Payments, ReceiveOutcome, rules};
use crate::order::{Order, OrderStatus};

#[async_trait]
impl Payments for SqliteLedger {
    async fn pay(&self, event: &PaymentEvent) -> Result<PayOutcome, BackendError> {
        let (event, now) = (event.clone(), self.clock.now());
        self.db.write("apply a payment", move |tx| pay(tx, &event, now)).await
    }
}

pub(super) fn pay(tx: &Connection, event: &PaymentEvent, now: Timestamp) -> rusqlite::Result<PayOutcome> {
    if !note_event(tx, event, (PaymentEventKind::Succeeded, None), now)? || decided(tx, event)? {
        return Ok(PayOutcome::Duplicate);
    }
    let order = rows::find_order(tx, event.order)?;
    let outcome = rules::pay(event, order.as_ref(), now);
    store(tx, event, outcome, now)?;
    match (outcome, &order) {
        (PayOutcome::Paid, Some(order)) => mark_paid(tx, order, now)?,
        // Pending past its deadline: nobody has expired it yet, so it is done here.
        (PayOutcome::RefundDue, Some(order)) if order.status == OrderStatus::Pending => {
            rows::close_order(tx, order, OrderStatus::Expired, now)?;
        }
        _ => {}
    }
    Ok(outcome)
}

/// Stores an event by its id; false when it is stored already.
pub(super) fn note_event(
    tx: &Connection,
    event: &PaymentEvent,
    (kind, outcome): Said,
    now: Timestamp,
) -> rusqlite::Result<bool> {
    let new = tx
        .prepare_cached(
            "INSERT INTO payment_event (provider, event_id, payment_id, at, kind, ord, amount_minor, currency, outcome) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING",
        )?
        .execute((
            &event.provider,
            &event.event_id,
            &event.payment_id,
            now,
            kind.as_str(),
            event.order,
            event.amount_minor,
            event.currency.as_str(),
            outcome.map(ReceiveOutcome::as_str),
        ))?;
    Ok(new == 1)
}

/// Whether this payment has an outcome that ends it. A mismatch or a missing order does not: a
/// later event of the same payment may be right.
fn decided(tx: &Connection, event: &PaymentEvent) -> rusqlite::Result<bool> {
    tx.prepare_cached(
        "SELECT 1 FROM payment WHERE provider = ?1 AND payment_id = ?2 AND outcome IN ('PAID', 'REFUND_DUE')",
    )?
    .exists((&event.provider, &event.payment_id))
}

fn mark_paid(tx: &Connection, order: &Order, now: Timestamp) -> rusqlite::Result<()> {
    let it = &order.reservation;
    tx.prepare_cached("UPDATE orders SET status = 'PAID' WHERE id = ?1 AND status = 'PENDING'")?
        .execute([it.order])?;
    tx.prepare_cached("UPDATE item SET paid = paid + ?2 WHERE id = ?1")?.execute((it.item, it.units))?;
    rows::note_step(tx, it.order, Some(OrderStatus::Pending), OrderStatus::Paid, now)
}

fn store(tx: &Connection, event: &PaymentEvent, outcome: PayOutcome, now: Timestamp) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO payment (provider, payment_id, ord, amount_minor, currency, outcome, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) \
         ON CONFLICT (provider, payment_id) DO UPDATE SET ord = excluded.ord, amount_minor = excluded.amount_minor, \
         currency = excluded.currency, outcome = excluded.outcome, at = excluded.at",
    )?
    .execute((
        &event.provider,
        &event.payment_id,
        event.order,
        event.amount_minor,
        event.currency.as_str(),
        outcome.as_str(),
        now,
    ))?;
    Ok(())
}
