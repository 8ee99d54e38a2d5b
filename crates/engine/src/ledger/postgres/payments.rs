//! Payments in PostgreSQL: stored by event id, decided under the lock of its payment row and its
//! order's row, in one transaction.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::attempts::EARLIER;
use super::closing::{self, PLACE, Place, close};
use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows;
use super::{PostgresLedger, settlement};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts::{self, Said};
use crate::ledger::{PayOutcome, PaymentEvent, PaymentEventKind, Payments, ReceiveOutcome, rules};
use crate::order::{Order, OrderId, OrderStatus};

#[async_trait]
impl Payments for PostgresLedger {
    async fn pay(&self, event: &PaymentEvent) -> Result<PayOutcome, BackendError> {
        self.db.write("apply a payment", |tx| async move { pay(&tx, event, Duration::ZERO).await }).await
    }
}

const NOTE_EVENT: &str = "INSERT INTO payment_event \
     (provider, event_id, payment_id, at, kind, ord, amount_minor, currency, outcome) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT DO NOTHING RETURNING 1";

/// Makes the payment's row, or locks the one that is there without changing it.
const LOCK_PAYMENT: &str = "INSERT INTO payment (provider, payment_id, ord, amount_minor, currency, outcome, at) \
     VALUES ($1, $2, $3, $4, $5, 'NO_ORDER', $6) \
     ON CONFLICT (provider, payment_id) DO UPDATE SET outcome = payment.outcome RETURNING outcome";

const DECIDE_PAYMENT: &str = "UPDATE payment SET ord = $3, amount_minor = $4, currency = $5, outcome = $6, at = $7 \
     WHERE provider = $1 AND payment_id = $2";

const MARK_PAID: &str = "WITH paid AS ( \
         UPDATE orders SET status = 'PAID' WHERE id = $1 AND status = 'PENDING' RETURNING id, item, units \
     ), history AS ( \
         INSERT INTO order_event (ord, from_status, to_status, at) SELECT id, 'PENDING', 'PAID', $2 FROM paid \
     ) UPDATE item SET paid = item.paid + paid.units FROM paid WHERE item.id = paid.item";

const END_ATTEMPT: &str = "UPDATE payment_attempt SET closed_at = $2 WHERE ord = $1 AND closed_at IS NULL";

/// Whether the provider has said before that it gave all of a payment's money back.
const GIVEN_BACK: &str = "SELECT 1 FROM payment_event WHERE provider = $1 AND payment_id = $2 \
     AND kind = 'REFUNDED' AND ord = $3 AND amount_minor >= $4";

/// Other payments of the same order that wait to buy again, or have.
const RIVALS: &str = "SELECT 1 FROM payment WHERE ord = $1 AND (provider, payment_id) <> ($2, $3) \
     AND outcome IN ('LATE', 'PAID') LIMIT 1";

/// Whether an order has an attempt to pay that is open at its provider.
const PAYING: &str =
    "SELECT 1 FROM payment_attempt WHERE ord = $1 AND closed_at IS NULL AND reference IS NOT NULL LIMIT 1";

const HOLD: &str = "UPDATE orders SET hold_until = $2 WHERE id = $1";

/// Events and payments are locked before sales: nothing else ever waits for them.
pub(super) async fn pay(tx: &Tx, event: &PaymentEvent, hold: Duration) -> Result<PayOutcome, Failure> {
    let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
    // Told again of a payment whose order was not known then: the ledger may know it now.
    if !note_event(tx, event, (PaymentEventKind::Succeeded, None), now).await? {
        let before = tx.rows((EARLIER, &[&event.provider, &event.payment_id])).await?;
        if before.first().is_none_or(|row| row.get::<_, &str>("outcome") != PayOutcome::NoOrder.as_str()) {
            return Ok(PayOutcome::Duplicate);
        }
    }
    let (amount, currency) = (event.amount_minor, event.currency.as_str());
    let [payment, given_back, place] = tx
        .pipeline([
            (LOCK_PAYMENT, &[&event.provider, &event.payment_id, &event.order, &amount, &currency, &now]),
            (GIVEN_BACK, &[&event.provider, &event.payment_id, &event.order, &amount]),
            (PLACE, &[&event.order]),
        ])
        .await?;
    let earlier = payment.first().map_or("", |row| row.get::<_, &str>("outcome"));
    if attempts::is_decided(earlier) {
        return Ok(PayOutcome::Duplicate);
    }
    let (order, now) = match rows::one(&place, Place::read)? {
        None => (None, now),
        Some(place) => {
            let (locked, now) = closing::lock(tx, &BTreeSet::from([place]), &[event.order], false).await?;
            match rows::one(&locked, rows::order)? {
                Some(order) => (Some(held(tx, order, hold, now).await?), now),
                None => (None, now),
            }
        }
    };

    let outcome = if given_back.is_empty() {
        // Behind the order's lock: of two late payments, the second sees the first.
        let rivals = tx.rows((RIVALS, &[&event.order, &event.provider, &event.payment_id])).await?;
        rules::pay(event, order.as_ref(), !rivals.is_empty(), now)
    } else {
        PayOutcome::Refunded
    };
    let word = outcome.as_str();
    tx.rows((
        DECIDE_PAYMENT,
        &[&event.provider, &event.payment_id, &event.order, &amount, &currency, &word, &now],
    ))
    .await?;
    settle(tx, event, outcome, order.as_ref(), now).await?;
    Ok(outcome)
}

/// The order, held by its open attempt if it is due and was not held before: the expirer has not come by yet.
async fn held(tx: &Tx, order: Order, hold: Duration, now: Timestamp) -> Result<Order, Failure> {
    let Some(until) = rules::held_until(&order, true, hold, now).filter(|_| rules::is_due(&order, now))
    else {
        return Ok(order);
    };
    if tx.rows((PAYING, &[&order.reservation.order])).await?.is_empty() {
        return Ok(order);
    }
    tx.rows((HOLD, &[&order.reservation.order, &until])).await?;
    Ok(Order { hold_until: until, ..order })
}

/// Stores an event by its id; false when it is stored already.
pub(super) async fn note_event(
    tx: &Tx,
    event: &PaymentEvent,
    (kind, outcome): Said,
    now: Timestamp,
) -> Result<bool, Failure> {
    let new = tx
        .rows((
            NOTE_EVENT,
            &[
                &event.provider,
                &event.event_id,
                &event.payment_id,
                &now,
                &kind.as_str(),
                &event.order,
                &event.amount_minor,
                &event.currency.as_str(),
                &outcome.map(ReceiveOutcome::as_str),
            ],
        ))
        .await?;
    Ok(!new.is_empty())
}

/// What the outcome does to the order, and to the money.
async fn settle(
    tx: &Tx,
    event: &PaymentEvent,
    outcome: PayOutcome,
    order: Option<&Order>,
    now: Timestamp,
) -> Result<(), Failure> {
    match (outcome, order) {
        (PayOutcome::Paid, Some(order)) => mark_paid(tx, order.reservation.order, now).await?,
        // Pending past its deadline: nobody has expired it yet, so it is done here.
        (PayOutcome::Late | PayOutcome::RefundDue, Some(order)) if order.status == OrderStatus::Pending => {
            let id = order.reservation.order;
            close(tx, &[id], OrderStatus::Pending, OrderStatus::Expired, now).await?;
        }
        _ => {}
    }
    if outcome == PayOutcome::RefundDue {
        settlement::note_refund_due(tx, &event.provider, &event.payment_id, now).await?;
    }
    Ok(())
}

/// Also ends the order's open attempt: nobody needs to ask about it.
pub(super) async fn mark_paid(tx: &Tx, order: OrderId, now: Timestamp) -> Result<(), Failure> {
    tx.pipeline([(MARK_PAID, &[&order, &now]), (END_ATTEMPT, &[&order, &now])]).await.map(drop)
}
