//! The real backends behind their fates, and the faults that can be planted in them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::block::{Block, NewBlocks};
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::delivery::{Batch, Position};
use doorbuster_engine::fault::{BackendError, Fault, Layer};
use doorbuster_engine::ledger::*;
use doorbuster_engine::order::{
    Epoch, ItemId, Order, OrderId, OrderPlaced, OrderStatus, Reservation, SaleId, UserId,
};
use doorbuster_engine::queue::{Queue, Reader};
use doorbuster_engine::sale::{LoaderToken, NewSale, Sale, SaleState, Terms};
use doorbuster_engine::stock::*;
use doorbuster_engine::switches::{SwitchChange, TurnedSwitch};
use uuid::Uuid;

use crate::fate::Fate;
use crate::planted::Planted;

type Answer<T> = Result<T, BackendError>;

/// A stock that can be lost or go back.
pub(crate) struct SimStock {
    pub(crate) inner: Mutex<Arc<EmbeddedStock>>,
    pub(crate) fate: Fate,
    pub(crate) planted: Option<Planted>,
    /// The first bucket that was ever used, for a release on a cached epoch.
    pub(crate) cached: Mutex<Option<BucketId>>,
}

impl SimStock {
    pub(crate) fn inner(&self) -> Arc<EmbeddedStock> {
        Arc::clone(&self.inner.lock().unwrap())
    }

    fn planted(&self, fault: Planted) -> bool {
        self.planted == Some(fault)
    }

    async fn lie(&self, bucket: BucketId, requests: &[ReserveRequest], outcomes: &mut [ReserveOutcome]) {
        for (request, outcome) in requests.iter().zip(outcomes) {
            let level = self.inner().level(bucket).await.unwrap();
            let free = level
                .map_or(0, |it| it.items.iter().find(|it| it.item == request.item).map_or(0, |it| it.free));
            let lie = match outcome {
                ReserveOutcome::NotLoaded => self.planted(Planted::MissingKeyIsSoldOut),
                ReserveOutcome::NotEnough { .. } => self.planted(Planted::NotEnoughIsSoldOut),
                ReserveOutcome::HeldBefore { .. } | ReserveOutcome::Limit { .. } => {
                    free == 0 && self.planted(Planted::StockBeforeDuplicate)
                }
                _ => false,
            };
            if lie {
                *outcome = ReserveOutcome::SoldOut { seq: 0 };
            }
        }
    }

    async fn release_by_user(
        &self,
        bucket: BucketId,
        orders: &[(OrderId, UserId)],
    ) -> Answer<Vec<ReleaseOutcome>> {
        let mut outcomes = Vec::new();
        for (order, user) in orders {
            let held = self.inner().holds_of(bucket, user).await?.unwrap_or_default();
            let mut all: Vec<_> = held.into_iter().map(|(hold, _)| (hold.order, hold.user)).collect();
            all.push((*order, user.clone()));
            outcomes.push(self.inner().release(bucket, &all).await?[0]);
        }
        Ok(outcomes)
    }
}

#[async_trait]
impl Stock for SimStock {
    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Answer<BeginLoadOutcome> {
        self.fate.before(Layer::Stock).await?;
        let outcome = self.inner().begin_load(bucket, terms, token).await;
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Answer<LoadOutcome> {
        self.fate.before(Layer::Stock).await?;
        let outcome = self.inner().load(bucket, token, page, contents).await;
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Answer<FinishOutcome> {
        self.fate.before(Layer::Stock).await?;
        let outcome = self.inner().finish_load(bucket, token, read_back).await;
        self.cached.lock().unwrap().get_or_insert(bucket);
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn fence(&self, bucket: BucketId) -> Answer<()> {
        self.fate.before(Layer::Stock).await?;
        self.inner().fence(bucket).await?;
        self.fate.after(Layer::Stock).await
    }

    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Answer<bool> {
        self.fate.before(Layer::Stock).await?;
        let outcome = self.inner().set_terms(bucket, terms).await;
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn reserve(&self, bucket: BucketId, requests: &[ReserveRequest]) -> Answer<Vec<ReserveOutcome>> {
        self.fate.before(Layer::Stock).await?;
        let mut outcomes = self.inner().reserve(bucket, requests).await?;
        if self.planted.is_some() {
            self.lie(bucket, requests, &mut outcomes).await;
        }
        self.fate.after(Layer::Stock).await?;
        Ok(outcomes)
    }

    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Answer<()> {
        self.fate.before(Layer::Stock).await?;
        self.inner().confirm(bucket, orders).await?;
        self.fate.after(Layer::Stock).await
    }

    async fn release(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Answer<Vec<ReleaseOutcome>> {
        self.fate.before(Layer::Stock).await?;
        let outcome = if self.planted(Planted::ReleaseByUser) {
            self.release_by_user(bucket, orders).await
        } else if self.planted(Planted::ReleaseOnCachedEpoch) {
            let cached = self.cached.lock().unwrap().unwrap_or(bucket);
            let answer = self.inner().release(cached, orders).await?;
            let believed = |it| if it == ReleaseOutcome::NotNow { ReleaseOutcome::NotHeld } else { it };
            Ok(answer.into_iter().map(believed).collect())
        } else {
            self.inner().release(bucket, orders).await
        };
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn adjust(
        &self,
        bucket: BucketId,
        operation: Uuid,
        item: ItemId,
        units: i64,
    ) -> Answer<AdjustOutcome> {
        self.fate.before(Layer::Stock).await?;
        let operation = if self.planted(Planted::AdjustWithoutOperation) {
            Uuid::from_u128(rand::random())
        } else {
            operation
        };
        let outcome = self.inner().adjust(bucket, operation, item, units).await;
        self.fate.after(Layer::Stock).await?;
        outcome
    }

    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Answer<Vec<Reservation>> {
        self.fate.before(Layer::Stock).await?;
        if self.planted(Planted::NoOutbox) {
            return Ok(Vec::new());
        }
        self.inner().unconfirmed(bucket, before, limit).await
    }

    async fn holds_of(&self, bucket: BucketId, user: &UserId) -> Answer<Option<Vec<(Reservation, bool)>>> {
        self.fate.before(Layer::Stock).await?;
        self.inner().holds_of(bucket, user).await
    }

    /// Without a fate: gateways read it beside the main path, and a drawn fate there would make
    /// the trace depend on which thread was faster.
    async fn holders(&self, bucket: BucketId, cursor: Option<&str>, limit: usize) -> Answer<HolderPage> {
        self.inner().holders(bucket, cursor, limit).await
    }

    async fn level(&self, bucket: BucketId) -> Answer<Option<Level>> {
        self.fate.before(Layer::Stock).await?;
        self.inner().level(bucket).await
    }
}

/// What happens to what is published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Publishing {
    #[default]
    Honest,
    /// Not appended; the publisher hears of a time-out.
    Lost,
    /// Appended; the publisher hears of a time-out.
    AckLost,
    /// Appended twice.
    Twice,
    /// Kept back, to be appended later in another order; the publisher hears of a time-out.
    Delayed,
}

/// What outlives the process on its way to the queue.
#[derive(Default)]
pub(crate) struct Wire {
    pub(crate) publishing: Publishing,
    pub(crate) delayed: Vec<OrderPlaced>,
}

pub(crate) struct SimQueue {
    pub(crate) inner: Arc<dyn Queue>,
    pub(crate) fate: Fate,
    pub(crate) wire: Arc<Mutex<Wire>>,
    pub(crate) disk: crate::disk::Disk,
    pub(crate) planted: Option<Planted>,
}

impl SimQueue {
    /// One after the other: how many of several the writer thread makes durable together depends on who
    /// is faster, and with it at which call to the disk the power goes.
    async fn append(&self, orders: &[OrderPlaced]) -> Vec<Answer<()>> {
        let mut results = Vec::with_capacity(orders.len());
        for order in orders {
            results.extend(self.inner.publish(std::slice::from_ref(order)).await);
        }
        results
    }
}

#[async_trait]
impl Queue for SimQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Answer<()>> {
        let all = |error: &dyn Fn() -> BackendError| orders.iter().map(|_| Err(error())).collect();
        if self.fate.before(Layer::Queue).await.is_err() {
            return all(&|| BackendError::new(Layer::Queue, Fault::Transient, "refused"));
        }
        let timeout = || BackendError::new(Layer::Queue, Fault::Ambiguous, "timed out");
        let publishing = self.wire.lock().unwrap().publishing;
        let mut results = match publishing {
            Publishing::Honest => self.append(orders).await,
            Publishing::Lost => all(&timeout),
            Publishing::AckLost => {
                self.append(orders).await;
                all(&timeout)
            }
            Publishing::Twice => {
                self.append(orders).await;
                self.append(orders).await
            }
            Publishing::Delayed => {
                self.wire.lock().unwrap().delayed.extend(orders.iter().cloned());
                all(&timeout)
            }
        };
        if self.planted == Some(Planted::AcceptedBeforeAcknowledged) {
            results = orders.iter().map(|_| Ok(())).collect();
        }
        if self.fate.after(Layer::Queue).await.is_err() {
            return all(&timeout);
        }
        results
    }

    /// A full disk is looked at again beside the main path; here it is waited for, so that the
    /// trace does not depend on which thread was faster.
    fn accepting(&self) -> Answer<()> {
        if self.disk.is_full() || self.disk.is_off() {
            return Err(BackendError::new(Layer::Queue, Fault::Transient, "the disk takes nothing"));
        }
        for _ in 0..100_000 {
            if self.inner.accepting().is_ok() {
                break;
            }
            std::thread::yield_now();
        }
        self.inner.accepting()
    }

    async fn end_positions(&self) -> Answer<Vec<Position>> {
        self.fate.before(Layer::Queue).await?;
        self.inner.end_positions().await
    }

    async fn reader(&self) -> Answer<Box<dyn Reader>> {
        self.fate.before(Layer::Queue).await?;
        self.inner.reader().await
    }
}

pub(crate) struct SimLedger {
    pub(crate) inner: Arc<SqliteLedger>,
    pub(crate) stock: Arc<SimStock>,
    pub(crate) fate: Fate,
    pub(crate) planted: Option<Planted>,
}

impl SimLedger {
    async fn bucket(&self, sale: SaleId) -> Option<BucketId> {
        let sale = self.inner.sale(sale).await.unwrap()?;
        Some(BucketId { sale: sale.id, epoch: sale.epoch })
    }

    /// What the planted faults do beside recording.
    async fn spoil(&self, batch: &mut Batch) {
        if self.planted == Some(Planted::StockRulesBeforeDuplicates) {
            for order in batch.records.iter().filter_map(|it| it.contents.order()).map(|it| &it.reservation) {
                let full = self.inner.sale(order.sale).await.unwrap();
                let full =
                    full.is_some_and(|it| it.item(order.item).is_some_and(|it| it.sold == it.quantity));
                let known = self.inner.order(order.order).await.unwrap().is_some();
                if let (true, true, Some(bucket)) = (full, known, self.bucket(order.sale).await) {
                    self.stock.inner().release(bucket, &[(order.order, order.user.clone())]).await.unwrap();
                }
            }
        }
        if self.planted == Some(Planted::UniqueItemAndUser) {
            let mut kept = Vec::new();
            for record in batch.records.drain(..) {
                let again = match record.contents.order().map(|it| &it.reservation) {
                    Some(it) => {
                        let before = self.inner.orders_of(it.sale, &it.user, 100).await.unwrap();
                        before
                            .iter()
                            .any(|row| row.reservation.item == it.item && row.reservation.order != it.order)
                    }
                    None => false,
                };
                if !again {
                    kept.push(record);
                }
            }
            batch.records = kept;
        }
        if self.planted == Some(Planted::PositionWithoutCompareAndSet) {
            let stored = self.inner.positions().await.unwrap();
            if let Some(stored) = stored.iter().find(|it| it.topic == batch.from.topic) {
                batch.from.next = stored.next;
            }
        }
    }

    /// Units go back before the transaction that expires their orders, which then fails.
    async fn release_too_early(&self) -> bool {
        let due = self.inner.books().await.unwrap();
        let now = self.stock.inner().clock().now();
        let mut early = false;
        for order in due.orders.iter().filter(|it| it.status == OrderStatus::Pending && it.hold_until < now) {
            let it = &order.reservation;
            if let Some(bucket) = self.bucket(it.sale).await {
                self.stock.inner().release(bucket, &[(it.order, it.user.clone())]).await.unwrap();
                early = true;
            }
        }
        early
    }
}

macro_rules! behind_fate {
    ($($trait:ident { $(fn $name:ident($($arg:ident: $type:ty),*) -> $answer:ty;)* })*) => {$(
        #[async_trait]
        impl $trait for SimLedger {$(
            async fn $name(&self, $($arg: $type),*) -> Answer<$answer> {
                self.fate.before(Layer::Ledger).await?;
                let answer = self.inner.$name($($arg),*).await;
                self.fate.after(Layer::Ledger).await?;
                answer
            }
        )*}
    )*};
}

behind_fate! {
    Staff {
        fn turn_switch(change: &SwitchChange) -> Option<TurnedSwitch>;
        fn switches() -> Vec<TurnedSwitch>;
        fn switch_history(before: Option<i64>, limit: usize) -> Vec<TurnedSwitch>;
        fn begin_action(action: &StaffAction) -> BeginActionOutcome;
        fn end_action(id: i64, answer: &ActionAnswer) -> ();
        fn trail(before: Option<i64>, limit: usize) -> Vec<TrailEntry>;
    }
    Blocks {
        fn block(new: &NewBlocks, most: u64) -> BlockOutcome;
        fn lift_block(id: i64, reason: &str, by: &str) -> Option<Block>;
        fn blocks(filter: &BlockFilter, before: Option<i64>, limit: usize) -> Vec<Block>;
        fn block_changes(seen: i64, limit: usize) -> BlockChanges;
    }
    Sales {
        fn create_sale(sale: &NewSale) -> Sale;
        fn sales() -> Vec<Sale>;
        fn sale(id: SaleId) -> Option<Sale>;
        fn change_state(id: SaleId, to: SaleState, opens_at: Option<Timestamp>) -> ChangeOutcome;
        fn begin_rebuild(id: SaleId, from: Epoch, reason: &str, token: LoaderToken, lease: Duration) -> RebuildOutcome;
        fn put_barriers(id: SaleId, token: LoaderToken, ends: &[Position]) -> Option<Vec<Position>>;
        fn load_snapshot(id: SaleId, token: LoaderToken, after: Option<OrderId>, limit: usize) -> Option<LoadSnapshot>;
        fn finish_rebuild(id: SaleId, token: LoaderToken) -> bool;
    }
    Restocks {
        fn begin_restock(operation: Uuid, sale: SaleId, item: ItemId, units: i64) -> RestockOutcome;
        fn end_restock(operation: Uuid, applied: bool) -> Option<RestockIntent>;
        fn open_restocks() -> Vec<RestockIntent>;
    }
    Releases {
        fn releases_due(skip: &[SaleId], limit: usize) -> Vec<ReleaseRow>;
        fn releases_waiting(limit: usize) -> Vec<OrderId>;
        fn releases_done(orders: &[OrderId]) -> ();
        fn ensure_releases(orders: &[OrderId]) -> ();
    }
    Positions {
        fn register(partitions: &[Position]) -> ();
        fn cut_back(from: &Position, end: u64) -> bool;
        fn positions() -> Vec<Position>;
    }
    Books {
        fn books() -> BookSnapshot;
        fn payments(sale: SaleId, after: Option<&PaymentKey>, limit: usize) -> Vec<PaymentRow>;
        fn backlog() -> Backlog;
    }
    DeadLetters {
        fn dead_letters(after: Option<i64>, limit: usize, closed: bool) -> Vec<DeadLetter>;
        fn dead_letter(id: i64) -> Option<DeadLetter>;
        fn replay_dead_letter(id: i64, order: &OrderPlaced, by: &str) -> ReplayOutcome;
        fn drop_dead_letter(id: i64, by: &str, reason: &str) -> DropOutcome;
    }
    Attempts {
        fn begin_attempt(order: OrderId, provider: &str) -> BeginOutcome;
        fn note_attempt(id: PaymentAttemptId, reference: &str, url: &str) -> Option<PaymentAttempt>;
        fn take_attempts(provider: &str, limit: usize) -> Vec<PaymentAttempt>;
        fn close_attempt(id: PaymentAttemptId) -> ();
        fn receive(event: &ProviderEvent, hold: Duration) -> ReceiveOutcome;
        fn payment_evidence(order: OrderId, limit: usize) -> Vec<PaymentEvidence>;
    }
    Settlement {
        fn late_payments(limit: usize) -> Vec<LatePayment>;
        fn settle_late(key: &PaymentKey, verdict: &LateVerdict) -> SettleOutcome;
        fn refund_order(id: OrderId) -> RefundOutcome;
        fn take_refunds(provider: &str, limit: usize, lease: Duration) -> Vec<Refund>;
        fn note_refund(key: &PaymentKey, report: &RefundReport) -> Option<Refund>;
        fn refunds(state: Option<RefundState>, after: Option<&PaymentKey>, limit: usize) -> Vec<Refund>;
        fn aftermath(order: OrderId) -> Aftermath;
    }
}

#[async_trait]
impl Events for SimLedger {
    async fn register_endpoint(&self, endpoint: &str) -> Answer<()> {
        self.inner.register_endpoint(endpoint).await
    }

    async fn plan_deliveries(&self, endpoint: &str, types: &[EventType], limit: usize) -> Answer<u64> {
        self.fate.before(Layer::Ledger).await?;
        let answer = self.inner.plan_deliveries(endpoint, types, limit).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }

    async fn claim_deliveries(
        &self,
        endpoint: &str,
        lease: Duration,
        limit: usize,
    ) -> Answer<Vec<DueDelivery>> {
        self.fate.before(Layer::Ledger).await?;
        let claimed = self.inner.claim_deliveries(endpoint, lease, limit).await?;
        if self.planted == Some(Planted::ToldBeforeSent) {
            let told = claimed.iter().map(|due| Attempted {
                id: due.id,
                attempt: due.attempt,
                then: Then::Delivered,
                status: None,
                answer: String::new(),
            });
            self.inner.note_deliveries(&told.collect::<Vec<_>>()).await?;
        }
        self.fate.after(Layer::Ledger).await?;
        Ok(claimed)
    }

    async fn note_deliveries(&self, attempted: &[Attempted]) -> Answer<()> {
        self.fate.before(Layer::Ledger).await?;
        let answer = self.inner.note_deliveries(attempted).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }

    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Answer<Vec<Delivery>> {
        self.inner.deliveries(filter, before, limit).await
    }

    async fn delivery(&self, id: i64) -> Answer<Option<(Delivery, Event)>> {
        self.inner.delivery(id).await
    }

    async fn replay_delivery(&self, id: i64) -> Answer<Option<Delivery>> {
        self.inner.replay_delivery(id).await
    }

    async fn replay_dead(&self, endpoint: &str, limit: usize) -> Answer<u64> {
        self.inner.replay_dead(endpoint, limit).await
    }

    async fn forget_deliveries(&self, endpoint: &str, before: Timestamp, limit: usize) -> Answer<u64> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.forget_deliveries(endpoint, before, limit).await
    }
}

#[async_trait]
impl Orders for SimLedger {
    async fn record(&self, batch: &Batch) -> Answer<RecordOutcome> {
        self.fate.before(Layer::Ledger).await?;
        let mut batch = batch.clone();
        self.spoil(&mut batch).await;
        let answer = self.inner.record(&batch).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }

    async fn expire(&self, limit: usize, hold: Duration) -> Answer<Expired> {
        self.fate.before(Layer::Ledger).await?;
        if self.planted == Some(Planted::ReleaseInsideTransaction) && self.release_too_early().await {
            return Err(BackendError::new(Layer::Ledger, Fault::Transient, "rolled back"));
        }
        let answer = self.inner.expire(limit, hold).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }

    async fn cancel(
        &self,
        id: OrderId,
        user: &UserId,
        queued: Option<&OrderPlaced>,
    ) -> Answer<CancelOutcome> {
        self.fate.before(Layer::Ledger).await?;
        let answer = self.inner.cancel(id, user, queued).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }

    async fn order(&self, id: OrderId) -> Answer<Option<Order>> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.order(id).await
    }

    async fn struck(&self, sale: SaleId, strikes: u32) -> Answer<Vec<UserId>> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.struck(sale, strikes).await
    }

    async fn orders_of(&self, sale: SaleId, user: &UserId, limit: usize) -> Answer<Vec<Order>> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.orders_of(sale, user, limit).await
    }

    async fn orders(&self, sale: SaleId, after: Option<OrderId>, limit: usize) -> Answer<Vec<Order>> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.orders(sale, after, limit).await
    }

    async fn statuses(&self, ids: &[OrderId]) -> Answer<Vec<Option<OrderStatus>>> {
        self.fate.before(Layer::Ledger).await?;
        self.inner.statuses(ids).await
    }
}

#[async_trait]
impl Payments for SimLedger {
    async fn pay(&self, event: &PaymentEvent) -> Answer<PayOutcome> {
        self.fate.before(Layer::Ledger).await?;
        let mut event = event.clone();
        if self.planted == Some(Planted::PaymentsByEventOnly) {
            event.payment_id = event.event_id.clone();
        }
        let answer = self.inner.pay(&event).await;
        self.fate.after(Layer::Ledger).await?;
        answer
    }
}
