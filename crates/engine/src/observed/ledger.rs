//! The ledger, measured.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;
use uuid::Uuid;

use super::Seen;
use crate::clock::Timestamp;
use crate::delivery::{Batch, Position};
use crate::fault::BackendError;
use crate::ledger::{
    Aftermath, Attempted, Attempts, Backlog, BeginOutcome, BookSnapshot, Books, CancelOutcome, ChangeOutcome,
    DeadLetter, DeadLetters, Delivery, DeliveryFilter, DropOutcome, DueDelivery, Event, EventType, Events,
    Expired, LatePayment, LateVerdict, Ledger, LoadSnapshot, Orders, PayOutcome, PaymentAttempt,
    PaymentAttemptId, PaymentEvent, PaymentEvidence, PaymentKey, PaymentRow, Payments, Positions,
    ProviderEvent, RebuildOutcome, ReceiveOutcome, RecordOutcome, Refund, RefundOutcome, RefundReport,
    RefundState, ReleaseRow, Releases, ReplayOutcome, RestockIntent, RestockOutcome, Restocks, Sales,
    SettleOutcome, Settlement, Then,
};
use crate::order::{Epoch, ItemId, Order, OrderId, OrderPlaced, OrderStatus, SaleId, UserId};
use crate::sale::{LoaderToken, NewSale, RebuildReason, Sale, SaleState};

pub(super) struct ObservedLedger {
    pub(super) inner: Arc<dyn Ledger>,
    pub(super) seen: Seen,
}

/// Places of the words in `ORDERS`.
const RECORDED: usize = 0;
const KNOWN_BEFORE: usize = 1;
const REJECTED: usize = 2;
const DEAD_LETTER: usize = 3;
const EXPIRED: usize = 4;
const CANCELLED: usize = 5;
const PAID: usize = 6;

/// The place of a reason in `REBUILDS`; what the product does not say itself, the staff did.
fn rebuild_index(reason: &str) -> usize {
    let own = RebuildReason::ALL.iter().position(|it| it.text() == reason);
    own.unwrap_or(RebuildReason::ALL.len())
}

/// The place of an outcome in `PAYMENTS`.
fn payment_index(outcome: PayOutcome) -> usize {
    match outcome {
        PayOutcome::Paid => 0,
        PayOutcome::Duplicate => 1,
        PayOutcome::RefundDue => 2,
        PayOutcome::AmountMismatch => 3,
        PayOutcome::NoOrder => 4,
        PayOutcome::Late => 5,
        PayOutcome::Refunded => 6,
    }
}

#[async_trait]
impl Sales for ObservedLedger {
    async fn create_sale(&self, sale: &NewSale) -> Result<Sale, BackendError> {
        self.seen.call(self.inner.create_sale(sale)).await
    }

    async fn sales(&self) -> Result<Vec<Sale>, BackendError> {
        self.seen.call(self.inner.sales()).await
    }

    async fn sale(&self, id: SaleId) -> Result<Option<Sale>, BackendError> {
        self.seen.call(self.inner.sale(id)).await
    }

    async fn change_state(
        &self,
        id: SaleId,
        to: SaleState,
        opens_at: Option<Timestamp>,
    ) -> Result<ChangeOutcome, BackendError> {
        self.seen.call(self.inner.change_state(id, to, opens_at)).await
    }

    async fn begin_rebuild(
        &self,
        id: SaleId,
        from: Epoch,
        reason: &str,
        token: LoaderToken,
        lease: Duration,
    ) -> Result<RebuildOutcome, BackendError> {
        let outcome = self.seen.call(self.inner.begin_rebuild(id, from, reason, token, lease)).await?;
        if let RebuildOutcome::Owned(sale) = &outcome
            && sale.epoch.0 == from.0 + 1
            && sale.fence.as_ref().is_some_and(|fence| fence.reason == reason)
        {
            self.seen.figures.rebuilds.add(rebuild_index(reason), 1);
        }
        Ok(outcome)
    }

    async fn put_barriers(
        &self,
        id: SaleId,
        token: LoaderToken,
        ends: &[Position],
    ) -> Result<Option<Vec<Position>>, BackendError> {
        self.seen.call(self.inner.put_barriers(id, token, ends)).await
    }

    async fn load_snapshot(
        &self,
        id: SaleId,
        token: LoaderToken,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Option<LoadSnapshot>, BackendError> {
        self.seen.call(self.inner.load_snapshot(id, token, after, limit)).await
    }

    async fn finish_rebuild(&self, id: SaleId, token: LoaderToken) -> Result<bool, BackendError> {
        let lifted = self.seen.call(self.inner.finish_rebuild(id, token)).await?;
        self.seen.figures.rebuilds_finished.fetch_add(u64::from(lifted), Ordering::Relaxed);
        Ok(lifted)
    }
}

#[async_trait]
impl Restocks for ObservedLedger {
    async fn begin_restock(
        &self,
        operation: Uuid,
        sale: SaleId,
        item: ItemId,
        units: i64,
    ) -> Result<RestockOutcome, BackendError> {
        self.seen.call(self.inner.begin_restock(operation, sale, item, units)).await
    }

    async fn end_restock(
        &self,
        operation: Uuid,
        applied: bool,
    ) -> Result<Option<RestockIntent>, BackendError> {
        self.seen.call(self.inner.end_restock(operation, applied)).await
    }

    async fn open_restocks(&self) -> Result<Vec<RestockIntent>, BackendError> {
        self.seen.call(self.inner.open_restocks()).await
    }
}

#[async_trait]
impl Orders for ObservedLedger {
    async fn record(&self, batch: &Batch) -> Result<RecordOutcome, BackendError> {
        let figures = &self.seen.figures;
        let call = self.seen.call(self.inner.record(batch));
        let outcome = self.seen.timed(&figures.record, call).await?;
        match &outcome {
            RecordOutcome::Recorded(recorded) => {
                figures.orders.add(RECORDED, recorded.pending);
                figures.orders.add(KNOWN_BEFORE, recorded.known);
                figures.orders.add(REJECTED, recorded.rejected);
                figures.orders.add(DEAD_LETTER, recorded.dead);
            }
            RecordOutcome::Zombie => {
                figures.zombie_batches.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(outcome)
    }

    async fn expire(&self, limit: usize, hold: Duration) -> Result<Expired, BackendError> {
        let expired = self.seen.call(self.inner.expire(limit, hold)).await?;
        self.seen.figures.orders.add(EXPIRED, expired.closed);
        Ok(expired)
    }

    async fn cancel(
        &self,
        id: OrderId,
        user: &UserId,
        queued: Option<&OrderPlaced>,
    ) -> Result<CancelOutcome, BackendError> {
        let outcome = self.seen.call(self.inner.cancel(id, user, queued)).await?;
        if matches!(outcome, CancelOutcome::Cancelled(_)) {
            self.seen.figures.orders.add(CANCELLED, 1);
        }
        Ok(outcome)
    }

    async fn order(&self, id: OrderId) -> Result<Option<Order>, BackendError> {
        self.seen.call(self.inner.order(id)).await
    }

    async fn struck(&self, sale: SaleId, strikes: u32) -> Result<Vec<UserId>, BackendError> {
        self.seen.call(self.inner.struck(sale, strikes)).await
    }

    async fn orders_of(&self, sale: SaleId, user: &UserId, limit: usize) -> Result<Vec<Order>, BackendError> {
        self.seen.call(self.inner.orders_of(sale, user, limit)).await
    }

    async fn orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Vec<Order>, BackendError> {
        self.seen.call(self.inner.orders(sale, after, limit)).await
    }

    async fn statuses(&self, ids: &[OrderId]) -> Result<Vec<Option<OrderStatus>>, BackendError> {
        self.seen.call(self.inner.statuses(ids)).await
    }
}

#[async_trait]
impl Payments for ObservedLedger {
    async fn pay(&self, event: &PaymentEvent) -> Result<PayOutcome, BackendError> {
        let outcome = self.seen.call(self.inner.pay(event)).await?;
        let figures = &self.seen.figures;
        if outcome == PayOutcome::Paid {
            figures.orders.add(PAID, 1);
        }
        figures.payments.add(payment_index(outcome), 1);
        Ok(outcome)
    }
}

#[async_trait]
impl Attempts for ObservedLedger {
    async fn begin_attempt(&self, order: OrderId, provider: &str) -> Result<BeginOutcome, BackendError> {
        self.seen.call(self.inner.begin_attempt(order, provider)).await
    }

    async fn note_attempt(
        &self,
        id: PaymentAttemptId,
        reference: &str,
        url: &str,
    ) -> Result<Option<PaymentAttempt>, BackendError> {
        self.seen.call(self.inner.note_attempt(id, reference, url)).await
    }

    async fn take_attempts(&self, provider: &str, limit: usize) -> Result<Vec<PaymentAttempt>, BackendError> {
        self.seen.call(self.inner.take_attempts(provider, limit)).await
    }

    async fn close_attempt(&self, id: PaymentAttemptId) -> Result<(), BackendError> {
        self.seen.call(self.inner.close_attempt(id)).await
    }

    async fn receive(&self, event: &ProviderEvent, hold: Duration) -> Result<ReceiveOutcome, BackendError> {
        let outcome = self.seen.call(self.inner.receive(event, hold)).await?;
        if let ReceiveOutcome::Decided(decided) = outcome {
            self.seen.figures.orders.add(PAID, u64::from(decided == PayOutcome::Paid));
            self.seen.figures.payments.add(payment_index(decided), 1);
        }
        Ok(outcome)
    }

    async fn payment_evidence(
        &self,
        order: OrderId,
        limit: usize,
    ) -> Result<Vec<PaymentEvidence>, BackendError> {
        self.seen.call(self.inner.payment_evidence(order, limit)).await
    }
}

#[async_trait]
impl Settlement for ObservedLedger {
    async fn late_payments(&self, limit: usize) -> Result<Vec<LatePayment>, BackendError> {
        self.seen.call(self.inner.late_payments(limit)).await
    }

    async fn settle_late(
        &self,
        key: &PaymentKey,
        verdict: &LateVerdict,
    ) -> Result<SettleOutcome, BackendError> {
        let outcome = self.seen.call(self.inner.settle_late(key, verdict)).await?;
        if outcome == SettleOutcome::Paid {
            self.seen.figures.orders.add(PAID, 1);
        }
        Ok(outcome)
    }

    async fn refund_order(&self, id: OrderId) -> Result<RefundOutcome, BackendError> {
        self.seen.call(self.inner.refund_order(id)).await
    }

    async fn take_refunds(
        &self,
        provider: &str,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<Refund>, BackendError> {
        self.seen.call(self.inner.take_refunds(provider, limit, lease)).await
    }

    async fn note_refund(
        &self,
        key: &PaymentKey,
        report: &RefundReport,
    ) -> Result<Option<Refund>, BackendError> {
        self.seen.call(self.inner.note_refund(key, report)).await
    }

    async fn refunds(
        &self,
        state: Option<RefundState>,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<Refund>, BackendError> {
        self.seen.call(self.inner.refunds(state, after, limit)).await
    }

    async fn aftermath(&self, order: OrderId) -> Result<Aftermath, BackendError> {
        self.seen.call(self.inner.aftermath(order)).await
    }
}

#[async_trait]
impl Releases for ObservedLedger {
    async fn releases_due(&self, skip: &[SaleId], limit: usize) -> Result<Vec<ReleaseRow>, BackendError> {
        self.seen.call(self.inner.releases_due(skip, limit)).await
    }

    async fn releases_waiting(&self, limit: usize) -> Result<Vec<OrderId>, BackendError> {
        self.seen.call(self.inner.releases_waiting(limit)).await
    }

    async fn releases_done(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        self.seen.call(self.inner.releases_done(orders)).await
    }

    async fn ensure_releases(&self, orders: &[OrderId]) -> Result<(), BackendError> {
        self.seen.call(self.inner.ensure_releases(orders)).await
    }
}

#[async_trait]
impl Positions for ObservedLedger {
    async fn register(&self, partitions: &[Position]) -> Result<(), BackendError> {
        self.seen.call(self.inner.register(partitions)).await
    }

    async fn cut_back(&self, from: &Position, end: u64) -> Result<bool, BackendError> {
        self.seen.call(self.inner.cut_back(from, end)).await
    }

    async fn positions(&self) -> Result<Vec<Position>, BackendError> {
        self.seen.call(self.inner.positions()).await
    }
}

#[async_trait]
impl DeadLetters for ObservedLedger {
    async fn dead_letters(
        &self,
        after: Option<i64>,
        limit: usize,
        closed: bool,
    ) -> Result<Vec<DeadLetter>, BackendError> {
        self.seen.call(self.inner.dead_letters(after, limit, closed)).await
    }

    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>, BackendError> {
        self.seen.call(self.inner.dead_letter(id)).await
    }

    async fn replay_dead_letter(
        &self,
        id: i64,
        order: &OrderPlaced,
        by: &str,
    ) -> Result<ReplayOutcome, BackendError> {
        self.seen.call(self.inner.replay_dead_letter(id, order, by)).await
    }

    async fn drop_dead_letter(&self, id: i64, by: &str, reason: &str) -> Result<DropOutcome, BackendError> {
        self.seen.call(self.inner.drop_dead_letter(id, by, reason)).await
    }
}

/// The place of what became of an attempt in `DELIVERIES`.
fn delivery_index(then: Then) -> usize {
    match then {
        Then::Delivered => 0,
        Then::Again(_) => 1,
        Then::Dead => 2,
    }
}

#[async_trait]
impl Events for ObservedLedger {
    async fn register_endpoint(&self, endpoint: &str) -> Result<(), BackendError> {
        self.seen.call(self.inner.register_endpoint(endpoint)).await
    }

    async fn plan_deliveries(
        &self,
        endpoint: &str,
        types: &[EventType],
        limit: usize,
    ) -> Result<u64, BackendError> {
        self.seen.call(self.inner.plan_deliveries(endpoint, types, limit)).await
    }

    async fn claim_deliveries(
        &self,
        endpoint: &str,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, BackendError> {
        self.seen.call(self.inner.claim_deliveries(endpoint, lease, limit)).await
    }

    async fn note_deliveries(&self, attempted: &[Attempted]) -> Result<(), BackendError> {
        self.seen.call(self.inner.note_deliveries(attempted)).await?;
        for it in attempted {
            self.seen.figures.deliveries.add(delivery_index(it.then), 1);
        }
        Ok(())
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Delivery>, BackendError> {
        self.seen.call(self.inner.deliveries(filter, before, limit)).await
    }

    async fn delivery(&self, id: i64) -> Result<Option<(Delivery, Event)>, BackendError> {
        self.seen.call(self.inner.delivery(id)).await
    }

    async fn replay_delivery(&self, id: i64) -> Result<Option<Delivery>, BackendError> {
        self.seen.call(self.inner.replay_delivery(id)).await
    }

    async fn replay_dead(&self, endpoint: &str, limit: usize) -> Result<u64, BackendError> {
        self.seen.call(self.inner.replay_dead(endpoint, limit)).await
    }

    async fn forget_deliveries(
        &self,
        endpoint: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, BackendError> {
        self.seen.call(self.inner.forget_deliveries(endpoint, before, limit)).await
    }
}

#[async_trait]
impl Books for ObservedLedger {
    async fn books(&self) -> Result<BookSnapshot, BackendError> {
        self.seen.call(self.inner.books()).await
    }

    async fn payments(
        &self,
        sale: SaleId,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<PaymentRow>, BackendError> {
        self.seen.call(self.inner.payments(sale, after, limit)).await
    }

    async fn backlog(&self) -> Result<Backlog, BackendError> {
        self.seen.call(self.inner.backlog()).await
    }
}
