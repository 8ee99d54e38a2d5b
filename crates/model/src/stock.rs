//! The stock's scripts: each is one atomic step over one bucket.

use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Bucket, Orders, Phase, State};
use crate::witness::Invariant;

/// What the stock answers to a reserve call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReserveOutcome {
    /// The units are the order's now.
    Taken,
    /// The order had them already; whether its outbox entry is still there.
    Held { waiting: bool },
    /// The order is closed.
    Gone,
    /// The bucket takes no reservations any more.
    Fenced,
    /// The bucket is not there, or not loaded yet.
    NotReady,
    /// The user would have too many; the orders that it holds.
    Limit(Orders),
    /// Less is free than was asked for.
    SoldOut,
}

impl Protocol {
    /// Reserves units, in the order of checks that the protocol's step 1 gives.
    pub(crate) fn reserve_units(&self, state: &mut State, order: u8, epoch: u8) -> ReserveOutcome {
        let buyer = self.buyer(order);
        let held = self.held_by(&state.buckets[usize::from(epoch)], buyer.user);
        let units = held.each().map(|other| self.buyer(other).units).sum::<u8>();
        let bucket = state.bucket_mut(epoch);
        match bucket.phase {
            Phase::Missing if self.has(Planted::MissingKeyIsZero) => return ReserveOutcome::SoldOut,
            Phase::Missing | Phase::Loading => return ReserveOutcome::NotReady,
            Phase::Open | Phase::Fenced => {}
        }
        if self.has(Planted::StockBeforeDuplicate) && bucket.free < buyer.units {
            return ReserveOutcome::SoldOut;
        }
        if bucket.holds.has(order) {
            return ReserveOutcome::Held { waiting: bucket.outbox.has(order) };
        }
        if bucket.gone.has(order) && !self.has(Planted::NoGone) {
            return ReserveOutcome::Gone;
        }
        if bucket.phase == Phase::Fenced {
            return ReserveOutcome::Fenced;
        }
        if units + buyer.units > self.scope.limit {
            return ReserveOutcome::Limit(held);
        }
        if bucket.free < buyer.units {
            return ReserveOutcome::SoldOut;
        }

        bucket.free -= buyer.units;
        bucket.holds.add(order);
        if !self.has(Planted::NoOutbox) {
            bucket.outbox.add(order);
        }
        let again = bucket.taken.has(order);
        bucket.taken.add(order);
        if again {
            state.witness.note(Invariant::I9);
        }
        ReserveOutcome::Taken
    }

    /// Ends an order in the stock, whatever the bucket's phase: its caller has asked for that.
    pub(crate) fn release_units(&self, state: &mut State, order: u8, epoch: u8) {
        let user = self.buyer(order).user;
        let bucket = state.bucket_mut(epoch);
        bucket.gone.add(order);
        bucket.outbox.drop(order);
        let freed = match self.held_by(bucket, user).each().next() {
            Some(other) if self.has(Planted::ReleaseByUser) => other,
            _ if bucket.holds.has(order) => order,
            _ => return,
        };
        bucket.holds.drop(freed);
        bucket.outbox.drop(freed);
        bucket.free += self.buyer(freed).units;
        if !state.status(freed).is_terminal() {
            state.witness.note(Invariant::I10);
        }
    }

    /// What a user holds in a bucket.
    pub(crate) fn held_by(&self, bucket: &Bucket, user: u8) -> Orders {
        let mut held = Orders::default();
        for order in bucket.holds.each().filter(|order| self.buyer(*order).user == user) {
            held.add(order);
        }
        held
    }

    /// Units that the orders have together.
    pub(crate) fn units_of(&self, orders: Orders) -> u8 {
        orders.each().map(|order| self.buyer(order).units).sum()
    }
}
