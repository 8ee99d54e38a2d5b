//! Late payments and refunds in SQLite.

use std::ops::ControlFlow;
use std::time::Duration;

use async_trait::async_trait;
use rusqlite::{Connection, OptionalExtension, Row};

use super::{Now, SqliteLedger, payments, rows};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::attempts::{self, Earlier};
use crate::ledger::settlement::{Settling, refund_gap, settle};
use crate::ledger::{
    Aftermath, LatePayment, LateVerdict, PayOutcome, PaymentEvent, PaymentKey, Refund, RefundOutcome,
    RefundReport, RefundState, SettleOutcome, Settlement, rules,
};
use crate::order::{Order, OrderId, OrderStatus, RejectReason};

#[async_trait]
impl Settlement for SqliteLedger {
    async fn late_payments(&self, limit: usize) -> Result<Vec<LatePayment>, BackendError> {
        self.db.read("read late payments", move |tx| late(tx, limit)).await
    }

    async fn settle_late(
        &self,
        key: &PaymentKey,
        verdict: &LateVerdict,
    ) -> Result<SettleOutcome, BackendError> {
        let (key, verdict, now) = (key.clone(), verdict.clone(), self.now());
        self.db.write("settle a late payment", move |tx| settle_late(tx, &key, &verdict, now)).await
    }

    async fn refund_order(&self, id: OrderId) -> Result<RefundOutcome, BackendError> {
        let now = self.now();
        self.db.write("refund an order", move |tx| refund_order(tx, id, now)).await
    }

    async fn take_refunds(
        &self,
        provider: &str,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<Refund>, BackendError> {
        let (provider, now) = (provider.to_owned(), self.clock.now());
        self.db
            .write("take refunds", move |tx| {
                let due: Vec<Refund> = tx
                    .prepare_cached(
                        "SELECT * FROM refund WHERE provider = ?1 AND state = 'DUE' AND due_at <= ?2 \
                         ORDER BY due_at, payment_id LIMIT ?3",
                    )?
                    .query_map((provider, now, rows::signed(limit as u64)), refund)?
                    .collect::<rusqlite::Result<_>>()?;
                let mut hold = tx.prepare_cached(
                    "UPDATE refund SET due_at = ?3, tries = tries + 1 WHERE provider = ?1 AND payment_id = ?2",
                )?;
                for it in &due {
                    hold.execute((&it.key.provider, &it.key.payment_id, now.plus(lease)))?;
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
        let (key, report, now) = (key.clone(), report.clone(), self.clock.now());
        self.db.write("note a refund", move |tx| note_report(tx, &key, &report, now)).await
    }

    async fn refunds(
        &self,
        state: Option<RefundState>,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<Refund>, BackendError> {
        let state = state.map(RefundState::as_str);
        let (provider, payment) =
            after.map(|it| (it.provider.clone(), it.payment_id.clone())).unwrap_or_default();
        self.db
            .read("list refunds", move |tx| {
                tx.prepare_cached(
                    "SELECT * FROM refund WHERE (provider, payment_id) > (?1, ?2) AND (?3 IS NULL OR state = ?3) \
                     ORDER BY provider, payment_id LIMIT ?4",
                )?
                .query_map((provider, payment, state, rows::signed(limit as u64)), refund)?
                .collect()
            })
            .await
    }

    async fn aftermath(&self, order: OrderId) -> Result<Aftermath, BackendError> {
        self.db
            .read("read what followed an order", move |tx| {
                let retaken_by = tx
                    .prepare_cached(
                        "SELECT id FROM orders WHERE retake_of = ?1 AND status <> 'REJECTED' \
                         ORDER BY reserved_at DESC, id DESC LIMIT 1",
                    )?
                    .query_row([order], |row| row.get(0))
                    .optional()?;
                let refund: Option<RefundState> = tx
                    .prepare_cached(
                        "SELECT * FROM refund WHERE ord = ?1 ORDER BY at DESC, payment_id LIMIT 1",
                    )?
                    .query_row([order], |row| Ok(refund(row)?.state))
                    .optional()?;
                Ok(Aftermath { retaken_by, refund })
            })
            .await
    }
}

/// The name of the payment that an event is about.
pub(super) fn key_of(event: &PaymentEvent) -> PaymentKey {
    PaymentKey { provider: event.provider.clone(), payment_id: event.payment_id.clone() }
}

/// A payment as it was decided before.
pub(super) fn payment(tx: &Connection, key: &PaymentKey) -> rusqlite::Result<Option<Earlier>> {
    tx.prepare_cached(
        "SELECT ord, outcome, amount_minor FROM payment WHERE provider = ?1 AND payment_id = ?2",
    )?
    .query_row((&key.provider, &key.payment_id), |row| {
        Ok(Earlier {
            order: row.get("ord")?,
            outcome: row.get("outcome")?,
            amount_minor: row.get("amount_minor")?,
        })
    })
    .optional()
}

/// Puts a payment's money into the outbox; what is there already stays.
pub(super) fn note_refund_due(tx: &Connection, key: &PaymentKey, now: Timestamp) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "INSERT INTO refund (provider, payment_id, ord, amount_minor, currency, state, due_at, at) \
         SELECT provider, payment_id, coalesce(retake, ord), amount_minor, currency, 'DUE', ?3, ?3 FROM payment \
         WHERE provider = ?1 AND payment_id = ?2 ON CONFLICT DO NOTHING",
    )?
    .execute((&key.provider, &key.payment_id, now))?;
    Ok(())
}

/// The provider has given a decided payment's money back by itself.
pub(super) fn came_back(tx: &Connection, key: &PaymentKey, now: Now) -> rusqlite::Result<()> {
    let paid: Option<OrderId> = tx
        .prepare_cached(
            "SELECT coalesce(retake, ord) FROM payment WHERE provider = ?1 AND payment_id = ?2 AND outcome = 'PAID'",
        )?
        .query_row((&key.provider, &key.payment_id), |row| row.get(0))
        .optional()?;
    let paid = paid.map(|id| rows::find_order(tx, id)).transpose()?.flatten();
    if let Some(order) = paid.filter(|order| order.status == OrderStatus::Paid) {
        rows::close_order(tx, &order, OrderStatus::Refunded, now)?;
    }
    tx.prepare_cached(
        "UPDATE payment SET outcome = 'REFUND_DUE' \
         WHERE provider = ?1 AND payment_id = ?2 AND outcome IN ('LATE', 'PAID')",
    )?
    .execute((&key.provider, &key.payment_id))?;
    note_refund_due(tx, key, now.at)?;
    tx.prepare_cached(
        "UPDATE refund SET state = 'DONE', said = 'the provider gave it back' \
         WHERE provider = ?1 AND payment_id = ?2 AND state <> 'DONE' AND said IS NOT ?3",
    )?
    .execute((&key.provider, &key.payment_id, attempts::REFUND_FAILED))?;
    Ok(())
}

fn late(tx: &Connection, limit: usize) -> rusqlite::Result<Vec<LatePayment>> {
    let waiting: Vec<(PaymentKey, OrderId)> = tx
        .prepare_cached(
            "SELECT provider, payment_id, ord FROM payment WHERE outcome = 'LATE' \
             ORDER BY at, provider, payment_id LIMIT ?1",
        )?
        .query_map([rows::signed(limit as u64)], |row| Ok((key(row)?, row.get("ord")?)))?
        .collect::<rusqlite::Result<_>>()?;
    let mut late = Vec::with_capacity(waiting.len());
    for (key, order) in waiting {
        let Some(order) = rows::find_order(tx, order)? else { continue };
        let retake = rows::find_order(tx, key.retake())?.map(|order| order.status);
        late.push(LatePayment { key, order, retake });
    }
    Ok(late)
}

fn settle_late(
    tx: &Connection,
    key: &PaymentKey,
    verdict: &LateVerdict,
    now: Now,
) -> rusqlite::Result<SettleOutcome> {
    let waits = payment(tx, key)?.is_some_and(|it| it.outcome == PayOutcome::Late.as_str());
    if !waits {
        return Ok(SettleOutcome::Settled);
    }
    let retake = rows::find_order(tx, key.retake())?;
    let settling = match settle(retake.as_ref().map(|order| order.status), verdict) {
        ControlFlow::Break(outcome) => return Ok(outcome),
        ControlFlow::Continue(settling) => settling,
    };
    match (settling, retake) {
        (Settling::Pay, Some(order)) => {
            payments::mark_paid(tx, &order, now.at)?;
            decide(tx, key, PayOutcome::Paid, Some(order.reservation.order))?;
            Ok(SettleOutcome::Paid)
        }
        (Settling::Refund(Some(placed)), None) => {
            let refused = Some(RejectReason::RetakeRefused);
            let order = rules::stillborn(&placed, OrderStatus::Rejected, refused, now.at);
            rows::insert_order(tx, &order, None, now.at)?;
            rows::note_release(tx, &order.reservation, now.release_at())?;
            give_back(tx, key, now.at)
        }
        _ => give_back(tx, key, now.at),
    }
}

fn give_back(tx: &Connection, key: &PaymentKey, now: Timestamp) -> rusqlite::Result<SettleOutcome> {
    decide(tx, key, PayOutcome::RefundDue, None)?;
    note_refund_due(tx, key, now)?;
    Ok(SettleOutcome::RefundDue)
}

fn decide(
    tx: &Connection,
    key: &PaymentKey,
    outcome: PayOutcome,
    retake: Option<OrderId>,
) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE payment SET outcome = ?3, retake = ?4 WHERE provider = ?1 AND payment_id = ?2",
    )?
    .execute((&key.provider, &key.payment_id, outcome.as_str(), retake))?;
    Ok(())
}

fn refund_order(tx: &Connection, id: OrderId, now: Now) -> rusqlite::Result<RefundOutcome> {
    let Some(order) = rows::find_order(tx, id)? else { return Ok(RefundOutcome::Unknown) };
    match order.status {
        OrderStatus::Refunded => return Ok(RefundOutcome::Refunded(order)),
        OrderStatus::Paid => {}
        OrderStatus::Pending | OrderStatus::Expired | OrderStatus::Cancelled | OrderStatus::Rejected => {
            return Ok(RefundOutcome::NotPaid(order));
        }
    }
    let paid_by: Option<PaymentKey> = tx
        .prepare_cached(
            "SELECT provider, payment_id FROM payment \
             WHERE (ord = ?1 OR ord = ?2) AND coalesce(retake, ord) = ?1 AND outcome = 'PAID'",
        )?
        .query_row((id, order.reservation.retake_of), key)
        .optional()?;
    rows::close_order(tx, &order, OrderStatus::Refunded, now)?;
    if let Some(paid_by) = paid_by {
        tx.prepare_cached(
            "UPDATE payment SET outcome = 'REFUND_DUE' WHERE provider = ?1 AND payment_id = ?2",
        )?
        .execute((&paid_by.provider, &paid_by.payment_id))?;
        note_refund_due(tx, &paid_by, now.at)?;
    }
    Ok(RefundOutcome::Refunded(Order { status: OrderStatus::Refunded, ..order }))
}

/// A refund that the provider had accepted did not arrive: the staff has to give the money back.
/// One that they closed under a name of their own stays so.
pub(super) fn refund_failed(tx: &Connection, key: &PaymentKey, refund: Option<&str>) -> rusqlite::Result<()> {
    tx.prepare_cached(
        "UPDATE refund SET state = 'REFUSED', said = ?3 \
         WHERE provider = ?1 AND payment_id = ?2 AND (state <> 'DONE' OR reference IS NULL OR reference = ?4)",
    )?
    .execute((&key.provider, &key.payment_id, attempts::REFUND_FAILED, refund))?;
    Ok(())
}

fn note_report(
    tx: &Connection,
    key: &PaymentKey,
    report: &RefundReport,
    now: Timestamp,
) -> rusqlite::Result<Option<Refund>> {
    let find = "SELECT * FROM refund WHERE provider = ?1 AND payment_id = ?2";
    let names = (&key.provider, &key.payment_id);
    let Some(before) = tx.prepare_cached(find)?.query_row(names, refund).optional()? else { return Ok(None) };
    let (state, reference, said) = match report {
        RefundReport::Done { reference } => (RefundState::Done, Some(reference), None),
        RefundReport::Refused { why } => (RefundState::Refused, None, Some(why)),
        RefundReport::Later { why } => (RefundState::Due, None, Some(why)),
    };
    tx.prepare_cached(
        "UPDATE refund SET state = ?3, reference = coalesce(?4, reference), said = ?5, due_at = ?6 \
         WHERE provider = ?1 AND payment_id = ?2 AND state <> 'DONE' AND (?3 = 'DONE' OR said IS NOT ?7)",
    )?
    .execute((
        &key.provider,
        &key.payment_id,
        state.as_str(),
        reference,
        said,
        now.plus(refund_gap(before.tries)),
        attempts::REFUND_FAILED,
    ))?;
    tx.prepare_cached(find)?.query_row(names, refund).optional()
}

fn key(row: &Row<'_>) -> rusqlite::Result<PaymentKey> {
    Ok(PaymentKey { provider: row.get("provider")?, payment_id: row.get("payment_id")? })
}

fn refund(row: &Row<'_>) -> rusqlite::Result<Refund> {
    Ok(Refund {
        key: key(row)?,
        order: row.get("ord")?,
        amount: rows::money(row, "amount_minor")?,
        state: rows::word(row, "state")?,
        reference: row.get("reference")?,
        said: row.get("said")?,
        tries: row.get("tries")?,
        at: row.get("at")?,
    })
}
