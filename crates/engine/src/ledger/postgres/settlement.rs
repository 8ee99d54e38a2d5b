//! Late payments and refunds in PostgreSQL: decided under the lock of the payment's row, which is taken
//! before those of sale, items, buyers and orders.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use tokio_postgres::Row;

use super::closing::{self, PLACE, Place, close};
use super::db::{CLOCK, Tx};
use super::failure::Failure;
use super::rows::{self, ORDER_COLUMNS, at_most};
use super::{PostgresLedger, payments};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts;
use crate::ledger::settlement::{Settling, refund_gap, settle};
use crate::ledger::{
    Aftermath, LatePayment, LateVerdict, PayOutcome, PaymentEvent, PaymentKey, Refund, RefundOutcome,
    RefundReport, RefundState, SettleOutcome, Settlement, rules,
};
use crate::order::{Order, OrderId, OrderPlaced, OrderStatus, RejectReason};

#[async_trait]
impl Settlement for PostgresLedger {
    async fn late_payments(&self, limit: usize) -> Result<Vec<LatePayment>, BackendError> {
        self.db.read("read late payments", |tx| async move { late(&tx, limit).await }).await
    }

    async fn settle_late(
        &self,
        key: &PaymentKey,
        verdict: &LateVerdict,
    ) -> Result<SettleOutcome, BackendError> {
        let what = "settle a late payment";
        self.db.write(what, |tx| async move { settle_late(&tx, key, verdict).await }).await
    }

    async fn refund_order(&self, id: OrderId) -> Result<RefundOutcome, BackendError> {
        self.db.write("refund an order", |tx| async move { refund_order(&tx, id).await }).await
    }

    async fn take_refunds(
        &self,
        provider: &str,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<Refund>, BackendError> {
        self.db
            .write("take refunds", |tx| async move {
                let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
                let due = tx.rows((TAKE_REFUNDS, &[&provider, &now, &at_most(limit)])).await?;
                let due = rows::all(&due, refund)?;
                if !due.is_empty() {
                    let payments: Vec<&str> = due.iter().map(|it| it.key.payment_id.as_str()).collect();
                    tx.rows((HOLD_REFUNDS, &[&provider, &payments, &now.plus(lease)])).await?;
                }
                Ok(due)
            })
            .await
    }

    async fn note_refund(
        &self,
        key: &PaymentKey,
        report: &RefundReport,
    ) -> Result<Option<Refund>, BackendError> {
        self.db.write("note a refund", |tx| async move { note_report(&tx, key, report).await }).await
    }

    async fn refunds(
        &self,
        state: Option<RefundState>,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<Refund>, BackendError> {
        let state = state.map(RefundState::as_str);
        let (provider, payment) =
            after.map(|it| (it.provider.as_str(), it.payment_id.as_str())).unwrap_or_default();
        self.query_all(
            "list refunds",
            (LIST_REFUNDS, &[&provider, &payment, &state, &at_most(limit)]),
            refund,
        )
        .await
    }

    async fn aftermath(&self, order: OrderId) -> Result<Aftermath, BackendError> {
        self.db
            .read("read what followed an order", |tx| async move {
                let [retaken, refunded] =
                    tx.pipeline([(RETAKEN_BY, &[&order]), (REFUND_OF, &[&order])]).await?;
                let retaken_by = rows::one(&retaken, |row| Ok(row.try_get("id")?))?;
                let refund = rows::one(&refunded, refund)?.map(|it| it.state);
                Ok(Aftermath { retaken_by, refund })
            })
            .await
    }
}

const REFUND: &str = "SELECT provider, payment_id, ord, amount_minor, currency, state, reference, said, tries, at FROM refund \
     WHERE provider = $1 AND payment_id = $2 FOR UPDATE";

/// Text is sorted by its bytes, as SQLite does. Rows that another keeper takes are left to it.
const TAKE_REFUNDS: &str = "SELECT provider, payment_id, ord, amount_minor, currency, state, reference, said, tries, at FROM refund \
     WHERE provider = $1 AND state = 'DUE' AND due_at <= $2 \
     ORDER BY due_at, payment_id COLLATE \"C\" LIMIT $3 FOR UPDATE SKIP LOCKED";

const HOLD_REFUNDS: &str = "UPDATE refund SET due_at = $3, tries = tries + 1 \
     WHERE provider = $1 AND payment_id = ANY($2::text[])";

const LIST_REFUNDS: &str = "SELECT provider, payment_id, ord, amount_minor, currency, state, reference, said, tries, at FROM refund \
     WHERE (provider COLLATE \"C\", payment_id COLLATE \"C\") > ($1, $2) AND ($3::text IS NULL OR state = $3) \
     ORDER BY provider COLLATE \"C\", payment_id COLLATE \"C\" LIMIT $4";

const REFUND_OF: &str = "SELECT provider, payment_id, ord, amount_minor, currency, state, reference, said, tries, at FROM refund \
     WHERE ord = $1 ORDER BY at DESC, payment_id COLLATE \"C\" LIMIT 1";

const RETAKEN_BY: &str = "SELECT id FROM orders WHERE retake_of = $1 AND status <> 'REJECTED' \
     ORDER BY reserved_at DESC, id DESC LIMIT 1";

/// What is there already stays.
const NOTE_REFUND_DUE: &str = "INSERT INTO refund (provider, payment_id, ord, amount_minor, currency, state, due_at, at) \
     SELECT provider, payment_id, coalesce(retake, ord), amount_minor, currency, 'DUE', $3, $3 FROM payment \
     WHERE provider = $1 AND payment_id = $2 ON CONFLICT DO NOTHING";

const LOCK_PAYMENT: &str = "SELECT outcome, coalesce(retake, ord) AS ord FROM payment \
     WHERE provider = $1 AND payment_id = $2 FOR UPDATE";

const DECIDE: &str = "UPDATE payment SET outcome = $3, retake = $4 WHERE provider = $1 AND payment_id = $2";

const GIVE_BACK: &str = "UPDATE payment SET outcome = 'REFUND_DUE' WHERE provider = $1 AND payment_id = $2";

const LATE: &str = "SELECT provider, payment_id, ord FROM payment WHERE outcome = 'LATE' \
     ORDER BY at, provider COLLATE \"C\", payment_id COLLATE \"C\" LIMIT $1";

/// The payment that paid `$1`, which may be the retake of `$2`.
const PAID_BY: &str = "SELECT provider, payment_id FROM payment \
     WHERE (ord = $1 OR ord = $2) AND coalesce(retake, ord) = $1 AND outcome = 'PAID' FOR UPDATE";

const CAME_BACK: &str = "UPDATE refund SET state = 'DONE', said = 'the provider gave it back' \
     WHERE provider = $1 AND payment_id = $2 AND state <> 'DONE' AND said IS DISTINCT FROM $3";

const FAILED: &str = "UPDATE refund SET state = 'REFUSED', said = $3 \
     WHERE provider = $1 AND payment_id = $2 AND (state <> 'DONE' OR reference IS NULL OR reference = $4)";

const NOTE_REPORT: &str = "UPDATE refund SET state = $3, reference = coalesce($4, reference), said = $5, due_at = $6 \
     WHERE provider = $1 AND payment_id = $2 AND state <> 'DONE' \
     AND ($3 = 'DONE' OR said IS DISTINCT FROM $7)";

fn key(row: &Row) -> Result<PaymentKey, Failure> {
    Ok(PaymentKey { provider: row.try_get("provider")?, payment_id: row.try_get("payment_id")? })
}

fn refund(row: &Row) -> Result<Refund, Failure> {
    Ok(Refund {
        key: key(row)?,
        order: row.try_get("ord")?,
        amount: rows::money(row, "amount_minor")?,
        state: rows::word(row, "state")?,
        reference: row.try_get("reference")?,
        said: row.try_get("said")?,
        tries: rows::narrow(row, "tries")?,
        at: row.try_get("at")?,
    })
}

/// Puts a payment's money into the outbox.
pub(super) async fn note_refund_due(
    tx: &Tx,
    provider: &str,
    payment_id: &str,
    now: Timestamp,
) -> Result<(), Failure> {
    tx.rows((NOTE_REFUND_DUE, &[&provider, &payment_id, &now])).await.map(drop)
}

/// The provider has given a decided payment's money back by itself.
pub(super) async fn came_back(tx: &Tx, event: &PaymentEvent) -> Result<(), Failure> {
    let (provider, payment) = (event.provider.as_str(), event.payment_id.as_str());
    let locked = tx.rows((LOCK_PAYMENT, &[&provider, &payment])).await?;
    let Some((outcome, order)) = rows::one(&locked, |row| {
        Ok((row.try_get::<_, String>("outcome")?, row.try_get::<_, OrderId>("ord")?))
    })?
    else {
        return Ok(());
    };
    let (order, now) = lock_order(tx, order, None).await?;
    let paid = order.filter(|it| it.status == OrderStatus::Paid && outcome == PayOutcome::Paid.as_str());
    if let Some(order) = paid {
        close(tx, &[order.reservation.order], OrderStatus::Paid, OrderStatus::Refunded, now).await?;
    }
    if [PayOutcome::Late, PayOutcome::Paid].map(PayOutcome::as_str).contains(&outcome.as_str()) {
        tx.rows((GIVE_BACK, &[&provider, &payment])).await?;
    }
    note_refund_due(tx, provider, payment, now).await?;
    tx.rows((CAME_BACK, &[&provider, &payment, &attempts::REFUND_FAILED])).await.map(drop)
}

/// A refund that the provider had accepted did not arrive: the staff has to give the money back.
/// One that they closed under a name of their own stays so.
pub(super) async fn refund_failed(
    tx: &Tx,
    event: &PaymentEvent,
    refund: Option<&str>,
) -> Result<(), Failure> {
    let (provider, payment) = (event.provider.as_str(), event.payment_id.as_str());
    tx.rows((FAILED, &[&provider, &payment, &attempts::REFUND_FAILED, &refund])).await.map(drop)
}

/// One order under its locks, and the time behind them. `placed` is where it would count if the ledger
/// does not know it.
async fn lock_order(
    tx: &Tx,
    id: OrderId,
    placed: Option<&OrderPlaced>,
) -> Result<(Option<Order>, Timestamp), Failure> {
    let known = rows::one(&tx.rows((PLACE, &[&id])).await?, Place::read)?;
    let places: BTreeSet<Place> =
        known.or_else(|| placed.map(|it| Place::of(&it.reservation))).into_iter().collect();
    let (locked, now) = closing::lock(tx, &places, &[id], false).await?;
    Ok((rows::one(&locked, rows::order)?, now))
}

async fn late(tx: &Tx, limit: usize) -> Result<Vec<LatePayment>, Failure> {
    let waiting = tx.rows((LATE, &[&at_most(limit)])).await?;
    let waiting = rows::all(&waiting, |row| Ok((key(row)?, row.try_get::<_, OrderId>("ord")?)))?;
    let ids: Vec<OrderId> = waiting.iter().flat_map(|(key, order)| [*order, key.retake()]).collect();
    let sql = format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = ANY($1)");
    let orders = rows::all(&tx.rows((&sql, &[&ids])).await?, rows::order)?;
    let find = |id: OrderId| orders.iter().find(|order| order.reservation.order == id);
    let late = waiting.into_iter().filter_map(|(key, order)| {
        let retake = find(key.retake()).map(|order| order.status);
        Some(LatePayment { order: find(order)?.clone(), retake, key })
    });
    Ok(late.collect())
}

async fn settle_late(tx: &Tx, key: &PaymentKey, verdict: &LateVerdict) -> Result<SettleOutcome, Failure> {
    let (provider, payment) = (key.provider.as_str(), key.payment_id.as_str());
    let locked = tx.rows((LOCK_PAYMENT, &[&provider, &payment])).await?;
    let waits = locked.first().is_some_and(|row| row.get::<_, &str>("outcome") == PayOutcome::Late.as_str());
    if !waits {
        return Ok(SettleOutcome::Settled);
    }
    let placed = match verdict {
        LateVerdict::Refused(placed) => Some(placed.as_ref()),
        LateVerdict::ByRetake | LateVerdict::Refund => None,
    };
    let (retake, now) = lock_order(tx, key.retake(), placed).await?;
    let settling = match settle(retake.map(|order| order.status), verdict) {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(settling) => settling,
    };
    match settling {
        Settling::Pay => {
            payments::mark_paid(tx, key.retake(), now).await?;
            decide(tx, provider, payment, PayOutcome::Paid, Some(key.retake())).await?;
            return Ok(SettleOutcome::Paid);
        }
        Settling::Refund(Some(placed)) => {
            let refused = Some(RejectReason::RetakeRefused);
            let order = rules::stillborn(&placed, OrderStatus::Rejected, refused, now);
            if !closing::insert_stillborn(tx, &order, now).await? {
                // Recorded meanwhile, under another item's lock than ours: look again.
                return Err(Failure::Overtaken);
            }
        }
        Settling::Refund(None) => {}
    }
    decide(tx, provider, payment, PayOutcome::RefundDue, None).await?;
    note_refund_due(tx, provider, payment, now).await?;
    Ok(SettleOutcome::RefundDue)
}

async fn decide(
    tx: &Tx,
    provider: &str,
    payment: &str,
    outcome: PayOutcome,
    retake: Option<OrderId>,
) -> Result<(), Failure> {
    tx.rows((DECIDE, &[&provider, &payment, &outcome.as_str(), &retake])).await.map(drop)
}

async fn refund_order(tx: &Tx, id: OrderId) -> Result<RefundOutcome, Failure> {
    // The payment's row before the order's, as everybody locks them.
    let found = tx.rows((&format!("SELECT {ORDER_COLUMNS} FROM orders WHERE id = $1"), &[&id])).await?;
    let Some(unlocked) = rows::one(&found, rows::order)? else { return Ok(RefundOutcome::Unknown) };
    let paid_by = tx.rows((PAID_BY, &[&id, &unlocked.reservation.retake_of])).await?;
    let paid_by = rows::one(&paid_by, key)?;
    let (order, now) = lock_order(tx, id, None).await?;
    let Some(order) = order else { return Ok(RefundOutcome::Unknown) };
    match order.status {
        OrderStatus::Refunded => return Ok(RefundOutcome::Refunded(order)),
        // Paid a moment ago, behind our look at its payment.
        OrderStatus::Paid if paid_by.is_none() => return Err(Failure::Overtaken),
        OrderStatus::Paid => {}
        OrderStatus::Pending | OrderStatus::Expired | OrderStatus::Cancelled | OrderStatus::Rejected => {
            return Ok(RefundOutcome::NotPaid(order));
        }
    }
    close(tx, &[id], OrderStatus::Paid, OrderStatus::Refunded, now).await?;
    if let Some(paid_by) = paid_by {
        tx.rows((GIVE_BACK, &[&paid_by.provider, &paid_by.payment_id])).await?;
        note_refund_due(tx, &paid_by.provider, &paid_by.payment_id, now).await?;
    }
    Ok(RefundOutcome::Refunded(Order { status: OrderStatus::Refunded, ..order }))
}

async fn note_report(tx: &Tx, key: &PaymentKey, report: &RefundReport) -> Result<Option<Refund>, Failure> {
    let (provider, payment) = (key.provider.as_str(), key.payment_id.as_str());
    let [before, now] = tx.pipeline([(REFUND, &[&provider, &payment]), (CLOCK, &[&tx.clock()])]).await?;
    let (Some(before), now) = (rows::one(&before, refund)?, rows::time(&now)?) else { return Ok(None) };
    let (state, reference, said) = match report {
        RefundReport::Done { reference } => (RefundState::Done, Some(reference), None),
        RefundReport::Refused { why } => (RefundState::Refused, None, Some(why)),
        RefundReport::Later { why } => (RefundState::Due, None, Some(why)),
    };
    let again = now.plus(refund_gap(before.tries));
    let failed = attempts::REFUND_FAILED;
    tx.rows((NOTE_REPORT, &[&provider, &payment, &state.as_str(), &reference, &said, &again, &failed]))
        .await?;
    rows::one(&tx.rows((REFUND, &[&provider, &payment])).await?, refund)
}
