//! The main path: how a click becomes an order. Read [`Engine::purchase`] first.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;

use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::gate::{Attempt, Barred, Claim, Gate, GateParts, JwtVerifier, Limits, Refusal, Rooms, SaleTokens};
use crate::member::Level;
use crate::order::{OrderId, OrderPlaced, OrderStatus, Reservation, UserId};
use crate::sale::Catalog;
use crate::stock::{Batcher, BucketId, PAGE_MAX, ReserveOutcome, ReserveReply, ReserveRequest};
use crate::told::Told;
use crate::workers::{Backends, Backpressure};

/// Starts a future that runs to its end whoever waits for it. The server's, since only it knows
/// its runtimes and counts what is in flight.
pub type Detach = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// What every core's engine shares.
#[derive(Clone)]
pub struct Shared {
    /// The stages.
    pub backends: Backends,
    /// All sales, kept fresh by the watch.
    pub catalog: Arc<ArcSwap<Catalog>>,
    /// Whether new orders are refused because something is too far behind.
    pub backpressure: Arc<Backpressure>,
    /// Verifies access tokens.
    pub tokens: Arc<JwtVerifier>,
    /// Makes and verifies sale tokens.
    pub sale_tokens: Arc<SaleTokens>,
    /// How often addresses and users may come.
    pub limits: Arc<Limits>,
    /// Who may not buy any more, kept fresh by the doorman.
    pub barred: Arc<Barred>,
    /// The waiting rooms, kept fresh by the usher.
    pub rooms: Arc<Rooms>,
}

/// One core's way through the pipeline. Cores share the backends and no lock.
pub struct Engine {
    pub(crate) shared: Shared,
    gate: Gate,
    batcher: Batcher,
    detach: Detach,
    replays_told: Told,
    publishes_told: Told,
    holders_told: Told,
}

/// What the buyer hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PurchaseOutcome {
    /// Reserved and durably queued: 202.
    Accepted(OrderId),
    /// The same Idempotency-Key again: the same order as it stands now.
    Replayed {
        /// The order.
        order: OrderId,
        /// Where it stands.
        status: OrderStatus,
        /// Whether a payment may begin.
        payable: bool,
    },
    /// The gate let it go no further.
    Refused(Refusal),
    /// The user holds an order of this sale already: here it is.
    AlreadyPurchased(OrderId),
    /// With a limit above one: the user's orders use it up.
    LimitReached(Vec<OrderId>),
    /// Something is free, but less than wanted.
    NotEnough {
        /// Units free.
        left: u64,
    },
    /// The Idempotency-Key was used for another item or quantity.
    IdempotencyMismatch,
    /// It may have happened: the order will be settled, ask for it.
    OutcomeUnknown(OrderId),
}

impl From<Refusal> for PurchaseOutcome {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Shared {
    fn gate_parts(&self) -> GateParts {
        GateParts {
            catalog: Arc::clone(&self.catalog),
            tokens: Arc::clone(&self.tokens),
            sale_tokens: Arc::clone(&self.sale_tokens),
            limits: Arc::clone(&self.limits),
            barred: Arc::clone(&self.barred),
            rooms: Arc::clone(&self.rooms),
            clock: Arc::clone(&self.backends.clock),
        }
    }
}

impl Engine {
    /// One core's engine; `batcher` is that core's own.
    pub fn new(shared: Shared, batcher: Batcher, detach: Detach) -> Self {
        Self {
            gate: Gate::new(shared.gate_parts()),
            shared,
            batcher,
            detach,
            replays_told: Told::default(),
            publishes_told: Told::default(),
            holders_told: Told::default(),
        }
    }

    /// The gate of this core.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    /// What all cores share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The whole way of a click: admit → reserve → publish → answer.
    ///
    /// It never gives stock back: what a crash or a lost reply leaves is in the stock's outbox,
    /// and the sweeper and the ledger settle it.
    pub async fn purchase(self: &Arc<Self>, attempt: Attempt<'_>) -> PurchaseOutcome {
        match self.admit(&attempt) {
            Ok(claim) => self.carry(claim).await,
            Err(refusal) => refusal.into(),
        }
    }

    /// The first step: what 98 % of the clicks hear, and nobody waits for it.
    ///
    /// # Errors
    /// Why the gate lets the request go no further.
    pub fn admit(&self, attempt: &Attempt<'_>) -> Result<Claim, Refusal> {
        let admitted = self.gate.admit(attempt, || self.takes_orders());
        if let Err(Refusal::Shed(level)) = &admitted {
            self.shared.backpressure.shedding().note(*level);
        }
        admitted
    }

    /// The other steps. Dropping this future changes nothing: what was admitted is placed to the
    /// end.
    pub async fn carry(self: &Arc<Self>, claim: Claim) -> PurchaseOutcome {
        let (order, (answer, answered)) = (claim.order, oneshot::channel());
        let engine = Arc::clone(self);
        (self.detach)(Box::pin(async move {
            // A buyer who is gone finds the order under "my orders".
            let _ = answer.send(engine.place(claim).await);
        }));
        answered.await.unwrap_or(PurchaseOutcome::OutcomeUnknown(order))
    }

    /// Reserve → publish → answer.
    async fn place(self: &Arc<Self>, claim: Claim) -> PurchaseOutcome {
        FaultPoint::Admitted.reached();
        let (reservation, replayed) = match self.reserve(&claim).await {
            Ok(held) => held,
            Err(outcome) => return outcome,
        };
        FaultPoint::Reserved.reached();
        let placed = OrderPlaced { reservation, price: claim.price };
        let published = self.shared.backends.queue.publish(std::slice::from_ref(&placed)).await;
        match published.into_iter().next() {
            Some(Ok(())) => FaultPoint::Acknowledged.reached(),
            Some(Err(error)) => return self.unknown(claim.order, &error),
            None => return PurchaseOutcome::OutcomeUnknown(claim.order),
        }

        if replayed {
            PurchaseOutcome::Replayed { order: claim.order, status: OrderStatus::Pending, payable: false }
        } else {
            PurchaseOutcome::Accepted(claim.order)
        }
    }

    /// What was not acknowledged may have happened: the sweeper settles it.
    fn unknown(&self, order: OrderId, error: &BackendError) -> PurchaseOutcome {
        tracing::debug!(order.id = %order, error = error.chain(), "not acknowledged; the sweeper will settle it");
        if let Some(orders) = self.publishes_told.due(1) {
            tracing::warn!(
                orders,
                error = error.chain(),
                "orders are not acknowledged by the queue; their buyers hear OUTCOME_UNKNOWN, the sweeper settles them"
            );
        }
        PurchaseOutcome::OutcomeUnknown(order)
    }

    /// Takes the units, or says why not; also notes what the answer tells this core. Beside the
    /// reservation: whether an earlier request with the same key had made it.
    async fn reserve(self: &Arc<Self>, claim: &Claim) -> Result<(Reservation, bool), PurchaseOutcome> {
        let bucket = BucketId { sale: claim.sale, epoch: claim.epoch };
        let request = ReserveRequest {
            order: claim.order,
            user: claim.user.clone(),
            item: claim.item,
            units: claim.units,
            trace: claim.trace.clone(),
            retake_of: None,
        };
        let (outcome, repeated) = match self.batcher.reserve(bucket, request).await {
            ReserveReply::Answered { outcome, repeated } => (outcome, repeated),
            ReserveReply::Busy => return Err(Refusal::Busy.into()),
            ReserveReply::Unknown => return Err(PurchaseOutcome::OutcomeUnknown(claim.order)),
        };
        match outcome {
            ReserveOutcome::Held { reservation, left } => {
                self.gate.note_holder(claim.sale, &claim.user);
                if left == 0 {
                    self.note_sold_out(claim, bucket, reservation.seq);
                } else {
                    self.gate.note_free(claim.item);
                }
                Ok((reservation, false))
            }
            ReserveOutcome::HeldBefore { reservation, in_outbox: true } => Ok((reservation, !repeated)),
            ReserveOutcome::HeldBefore { in_outbox: false, .. } | ReserveOutcome::Gone => {
                Err(self.replay(claim).await)
            }
            ReserveOutcome::Mismatch => Err(PurchaseOutcome::IdempotencyMismatch),
            ReserveOutcome::Limit { orders } => {
                self.gate.note_holder(claim.sale, &claim.user);
                Err(over_limit(claim, orders))
            }
            ReserveOutcome::SoldOut { seq } => {
                self.note_sold_out(claim, bucket, seq);
                Err(Refusal::SoldOut.into())
            }
            ReserveOutcome::NotEnough { left } => {
                self.gate.note_free(claim.item);
                Err(PurchaseOutcome::NotEnough { left })
            }
            ReserveOutcome::Early { starts_in_ms } => {
                let opens_at =
                    self.shared.backends.clock.now().plus(std::time::Duration::from_millis(starts_in_ms));
                Err(Refusal::NotStarted { opens_at, starts_in_ms }.into())
            }
            ReserveOutcome::Ended => Err(Refusal::Ended.into()),
            ReserveOutcome::NoItem => Err(Refusal::InvalidQuantity { limit: claim.limit }.into()),
            ReserveOutcome::NotLoaded | ReserveOutcome::Fenced | ReserveOutcome::NotOpen => {
                Err(Refusal::NotReady.into())
            }
        }
    }

    /// A key that was used before and whose order is recorded or closed: the order as it stands.
    async fn replay(&self, claim: &Claim) -> PurchaseOutcome {
        let Backends { ledger, clock, .. } = &self.shared.backends;
        match ledger.order(claim.order).await {
            Ok(Some(order)) => {
                let it = &order.reservation;
                if (it.item, it.units) != (claim.item, claim.units) {
                    return PurchaseOutcome::IdempotencyMismatch;
                }
                PurchaseOutcome::Replayed {
                    order: claim.order,
                    status: order.status,
                    payable: order.payable(clock.now()),
                }
            }
            Ok(None) => PurchaseOutcome::OutcomeUnknown(claim.order),
            Err(error) => {
                if let Some(orders) = self.replays_told.due(1) {
                    tracing::warn!(orders, error = error.chain(), "repeated orders could not be looked up");
                }
                PurchaseOutcome::OutcomeUnknown(claim.order)
            }
        }
    }

    /// From which level on orders are taken, if any are.
    fn takes_orders(&self) -> Option<Level> {
        let taken_from = self.shared.backpressure.taken_from()?;
        self.shared.backends.queue.accepting().is_ok().then_some(taken_from)
    }

    /// Sets this core's flag; when the stock has moved, also reads anew who holds units.
    fn note_sold_out(self: &Arc<Self>, claim: &Claim, bucket: BucketId, seq: u64) {
        if self.gate.note_sold_out(claim.sale, claim.item, seq) {
            let engine = Arc::clone(self);
            (self.detach)(Box::pin(async move { engine.read_holders(bucket).await }));
        }
    }

    async fn read_holders(&self, bucket: BucketId) {
        let mut users: Vec<UserId> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            match self.shared.backends.stock.holders(bucket, cursor.as_deref(), PAGE_MAX).await {
                Ok(page) => {
                    users.extend(page.holds.into_iter().map(|hold| hold.user));
                    cursor = page.next;
                }
                Err(error) => {
                    // The old list stays; a winner it lacks may hear "sold out" until the next probe.
                    if let Some(times) = self.holders_told.due(1) {
                        tracing::warn!(times, error = error.chain(), "the holders could not be read");
                    }
                    return;
                }
            }
            if cursor.is_none() {
                break;
            }
        }
        self.gate.replace_holders(bucket.sale, users);
    }
}

fn over_limit(claim: &Claim, orders: Vec<OrderId>) -> PurchaseOutcome {
    match orders.first() {
        Some(order) if claim.limit.0 == 1 => PurchaseOutcome::AlreadyPurchased(*order),
        _ => PurchaseOutcome::LimitReached(orders),
    }
}
