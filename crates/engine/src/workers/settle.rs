//! Settle: a payment that came too late buys again, or goes back.

use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::ledger::{LatePayment, LateVerdict, SettleOutcome};
use crate::order::{Epoch, OrderPlaced, Reservation};
use crate::sale::{Sale, SaleState};
use crate::stock::{BucketId, ReserveOutcome, ReserveRequest};

/// Late payments looked at in one step. They are rare: a buyer was paying as the deadline passed.
const STEP_MAX: usize = 1_000;

/// What becomes of a payment whose order has expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatePolicy {
    /// The same is bought again for it, as a new order; with nothing free, the money goes back.
    #[default]
    Retake,
    /// The money goes back.
    Refund,
}

/// Settles late payments. The order that buys again is named by its payment and takes the ordinary
/// steps, so a settler may die anywhere, and any number of them may run: they place the same order, and
/// the ledger settles the payment by that order's row, once.
pub struct Settler {
    backends: Backends,
    policy: LatePolicy,
    rounds: Rounds,
}

/// What the stock said of a retake.
enum Placing {
    /// Its units are held, and its message is on its way.
    Placed,
    /// It is on its way already, or not to be decided now.
    Wait,
    /// There is nothing for it.
    Refused,
}

impl Settler {
    /// A settler over these backends.
    pub fn new(backends: Backends, policy: LatePolicy) -> Self {
        Self { backends, policy, rounds: Rounds::default() }
    }

    /// Moves one payment on by a step; answers 1 if it moved.
    async fn settle(&self, late: &LatePayment) -> Result<u64, BackendError> {
        let verdict = match (late.retake, self.policy) {
            (Some(_), _) => LateVerdict::ByRetake,
            (None, LatePolicy::Refund) => LateVerdict::Refund,
            (None, LatePolicy::Retake) => {
                let Some(sale) = self.backends.ledger.sale(late.order.reservation.sale).await? else {
                    return Ok(0);
                };
                let retake = self.retake(late, &sale);
                match self.place(&retake, &sale).await? {
                    Placing::Placed => return Ok(1),
                    Placing::Wait => return Ok(0),
                    Placing::Refused => LateVerdict::Refused(Box::new(retake)),
                }
            }
        };
        let outcome = self.backends.ledger.settle_late(&late.key, &verdict).await?;
        FaultPoint::Settled.reached();
        if outcome == SettleOutcome::RefundDue {
            let order = late.order.reservation.order;
            tracing::info!(order.id = %order, payment.id = late.key.payment_id, "a late payment is to be given back");
        }
        Ok(u64::from(outcome != SettleOutcome::Waits))
    }

    /// The new order, which is the expired one's like in everything but its id.
    fn retake(&self, late: &LatePayment, sale: &Sale) -> OrderPlaced {
        let old = &late.order.reservation;
        let price = sale.item(old.item).map_or(late.order.total, |item| item.price);
        let reservation = Reservation {
            order: late.key.retake(),
            retake_of: Some(old.order),
            epoch: sale.epoch,
            // Until the stock has taken a step for it.
            seq: 0,
            reserved_at: self.backends.clock.now(),
            ..old.clone()
        };
        OrderPlaced { reservation, price }
    }

    /// Reserve and publish, as a click does. Whatever is lost on the way is in the outbox, and the
    /// sweeper's.
    async fn place(&self, retake: &OrderPlaced, sale: &Sale) -> Result<Placing, BackendError> {
        // A stock may have forgotten a sale that is over. Not by this machine's clock: the stock's ends it.
        if sale.terms.state == SaleState::Closed {
            return Ok(Placing::Refused);
        }
        if sale.epoch == Epoch(0) || sale.fence.is_some() || sale.terms.state == SaleState::Paused {
            return Ok(Placing::Wait);
        }
        let it = &retake.reservation;
        let request = ReserveRequest {
            order: it.order,
            user: it.user.clone(),
            item: it.item,
            units: it.units,
            trace: it.trace.clone(),
            retake_of: it.retake_of,
        };
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        let outcomes = self.backends.stock.reserve(bucket, std::slice::from_ref(&request)).await?;
        let Some(outcome) = outcomes.into_iter().next() else { return Ok(Placing::Wait) };
        match outcome {
            ReserveOutcome::Held { reservation, .. } => {
                FaultPoint::Retaken.reached();
                let placed = OrderPlaced { reservation, price: retake.price };
                let published = self.backends.queue.publish(std::slice::from_ref(&placed)).await;
                published.into_iter().collect::<Result<Vec<()>, _>>()?;
                Ok(Placing::Placed)
            }
            // Its release, or the rebuild, comes first.
            ReserveOutcome::Limit { orders } if it.retake_of.is_some_and(|old| orders.contains(&old)) => {
                Ok(Placing::Wait)
            }
            ReserveOutcome::NotLoaded
            | ReserveOutcome::NotOpen
            | ReserveOutcome::HeldBefore { .. }
            | ReserveOutcome::Gone
            | ReserveOutcome::Fenced
            | ReserveOutcome::Early { .. } => Ok(Placing::Wait),
            ReserveOutcome::Mismatch
            | ReserveOutcome::Limit { .. }
            | ReserveOutcome::Ended
            | ReserveOutcome::NoItem
            | ReserveOutcome::SoldOut { .. }
            | ReserveOutcome::NotEnough { .. } => Ok(Placing::Refused),
        }
    }
}

#[async_trait]
impl Worker for Settler {
    fn name(&self) -> &'static str {
        "settle"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let mut round = Round::default();
        for late in self.backends.ledger.late_payments(STEP_MAX).await? {
            round.note(self.settle(&late).await);
        }
        self.rounds.end(round, self.name())
    }
}
