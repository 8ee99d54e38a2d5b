//! Payments in SQLite: stored by event id, decided by payment id, in one transaction.

use std::time::Duration;

use async_trait::async_trait;
use rusqlite::Connection;

use super::{Now, SqliteLedger, rows, settlement};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts::{self, Said};
use crate::ledger::{PayOutcome, PaymentEvent, PaymentEventKind, Payments, ReceiveOutcome, rules};
use crate::order::{Order, OrderStatus};

#[async_trait]
impl Payments for SqliteLedger {
    async fn pay(&self, event: &PaymentEvent) -> Result<PayOutcome, BackendError> {
        let (event, now) = (event.clone(), self.now());
        self.db.write("apply a payment", move |tx| pay(tx, &event, Duration::ZERO, now)).await
    }
}

pub(super) fn pay(
    tx: &Connection,
    event: &PaymentEvent,
    hold: Duration,
    now: Now,
) -> rusqlite::Result<PayOutcome> {
    let key = settlement::key_of(event);
    let earlier = settlement::payment(tx, &key)?;
    if earlier.as_ref().is_some_and(|it| attempts::is_decided(&it.outcome)) {
        note_event(tx, event, (PaymentEventKind::Succeeded, None), now.at)?;
        return Ok(PayOutcome::Duplicate);
    }
    let new = note_event(tx, event, (PaymentEventKind::Succeeded, None), now.at)?;
    // Told again of a payment whose order was not known then: the ledger may know it now.
    if !new && earlier.is_none_or(|it| it.outcome != PayOutcome::NoOrder.as_str()) {
        return Ok(PayOutcome::Duplicate);
    }
    let order = rows::find_order(tx, event.order)?.map(|order| held(tx, order, hold, now.at)).transpose()?;
    let outcome = if given_back(tx, event)? {
        PayOutcome::Refunded
    } else {
        rules::pay(event, order.as_ref(), has_rival(tx, event)?, now.at)
    };
    store(tx, event, outcome, now.at)?;
    match (outcome, &order) {
        (PayOutcome::Paid, Some(order)) => mark_paid(tx, order, now.at)?,
        // Pending past its deadline: nobody has expired it yet, so it is done here.
        (PayOutcome::Late | PayOutcome::RefundDue, Some(order)) if order.status == OrderStatus::Pending => {
            rows::close_order(tx, order, OrderStatus::Expired, now)?;
        }
        _ => {}
    }
    if outcome == PayOutcome::RefundDue {
        settlement::note_refund_due(tx, &key, now.at)?;
    }
    Ok(outcome)
}

/// The order, held by its open attempt if it is due and was not held before: the expirer has not come by yet.
fn held(tx: &Connection, order: Order, hold: Duration, now: Timestamp) -> rusqlite::Result<Order> {
    let Some(until) = rules::held_until(&order, true, hold, now).filter(|_| rules::is_due(&order, now))
    else {
        return Ok(order);
    };
    let paying = tx
        .prepare_cached(
            "SELECT 1 FROM payment_attempt WHERE ord = ?1 AND closed_at IS NULL AND reference IS NOT NULL",
        )?
        .exists([order.reservation.order])?;
    if !paying {
        return Ok(order);
    }
    tx.prepare_cached("UPDATE orders SET hold_until = ?2 WHERE id = ?1")?
        .execute((order.reservation.order, until))?;
    Ok(Order { hold_until: until, ..order })
}

/// Whether the provider has said before that it gave all of this payment's money back.
fn given_back(tx: &Connection, event: &PaymentEvent) -> rusqlite::Result<bool> {
    tx.prepare_cached(
        "SELECT 1 FROM payment_event WHERE provider = ?1 AND payment_id = ?2 AND kind = 'REFUNDED' \
         AND ord = ?3 AND amount_minor >= ?4",
    )?
    .exists((&event.provider, &event.payment_id, event.order, event.amount_minor))
}

/// Whether another payment of the same order waits to buy again, or has.
fn has_rival(tx: &Connection, event: &PaymentEvent) -> rusqlite::Result<bool> {
    tx.prepare_cached("SELECT 1 FROM payment WHERE ord = ?1 AND outcome IN ('LATE', 'PAID')")?
        .exists([event.order])
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

/// Also ends the order's open attempt: nobody needs to ask about it.
pub(super) fn mark_paid(tx: &Connection, order: &Order, now: Timestamp) -> rusqlite::Result<()> {
    let it = &order.reservation;
    tx.prepare_cached("UPDATE orders SET status = 'PAID' WHERE id = ?1 AND status = 'PENDING'")?
        .execute([it.order])?;
    tx.prepare_cached("UPDATE item SET paid = paid + ?2 WHERE id = ?1")?.execute((it.item, it.units))?;
    tx.prepare_cached("UPDATE payment_attempt SET closed_at = ?2 WHERE ord = ?1 AND closed_at IS NULL")?
        .execute((it.order, now))?;
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
