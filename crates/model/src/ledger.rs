//! The ledger's rows: every change of a status goes through here, with the counts of its transaction.

use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Record, State, Status};
use crate::witness::Invariant;

impl Protocol {
    /// Writes an order's status, and sold and buyer units with it.
    pub(crate) fn set_status(&self, state: &mut State, order: u8, status: Status) {
        let buyer = self.buyer(order);
        let before = std::mem::replace(&mut state.ledger.orders[usize::from(order)], status);
        let by = i8::from(status.is_live()) - i8::from(before.is_live());
        let units = i8::try_from(buyer.units).unwrap_or(i8::MAX) * by;
        state.ledger.sold += units;
        state.ledger.buyers[usize::from(buyer.user)] += units;
        for noted in &mut state.noted {
            // What has a row is not chased any more.
            noted[usize::from(order)] = None;
        }
        if !may_become(before, status) {
            state.witness.note(Invariant::I5);
        }
        if before == Status::Paid {
            state.witness.note(Invariant::I6);
        }
    }

    /// Closes an order, with its release row in the same transaction.
    pub(crate) fn close(&self, state: &mut State, order: u8, status: Status) {
        self.set_status(state, order, status);
        state.ledger.releases.add(order);
    }

    /// Closes an order that has no row; one that has is left alone.
    pub(crate) fn close_unknown(&self, state: &mut State, order: u8, status: Status) {
        if state.status(order) == Status::Unknown {
            self.close(state, order, status);
        }
    }

    /// Whether the ledger may sell the order: there is room, and the user is within the limit.
    pub(crate) fn is_sellable(&self, state: &State, order: u8) -> bool {
        let buyer = self.buyer(order);
        let after = |units: i8| units + i8::try_from(buyer.units).unwrap_or(i8::MAX);
        let fits = |units: i8, most: u8| after(units) <= i8::try_from(most).unwrap_or(i8::MAX);
        let room = fits(state.ledger.sold, self.scope.quantity) || self.has(Planted::RoomOnlyInStock);
        let bought = state.ledger.buyers[usize::from(buyer.user)];
        room && (fits(bought, self.scope.limit) || self.has(Planted::LimitOnlyInStock))
    }

    /// Applies the record at the ledger's position: the protocol's step 3.
    pub(crate) fn record(&self, state: &mut State, record: Record) {
        let Record { order, epoch, .. } = record;
        if state.status(order) != Status::Unknown {
            if self.has(Planted::StockRulesBeforeDuplicates) && !self.is_sellable(state, order) {
                state.ledger.releases.add(order);
            }
            if self.has(Planted::CountsEveryRecord) && state.status(order).is_live() {
                state.ledger.sold += i8::try_from(self.buyer(order).units).unwrap_or(i8::MAX);
            }
            return;
        }
        if self.has(Planted::UniqueUser) && self.has_a_row(state, order) {
            return;
        }
        let later = state.ledger.barriers.iter().skip(usize::from(epoch) + 1);
        if later.flatten().any(|barrier| *barrier <= 0) {
            return self.close(state, order, Status::Rejected);
        }
        if !self.is_sellable(state, order) {
            if state.witness.damaged == 0 {
                // The stock handed out more than the ledger has, and nothing was lost.
                state.witness.note(Invariant::I17);
            }
            return self.close(state, order, Status::Rejected);
        }

        self.set_status(state, order, Status::Pending);
        let now = usize::from(state.ledger.epoch);
        if epoch < state.ledger.epoch && state.witness.opened[now] > 0 {
            state.witness.note(Invariant::I16);
        }
        self.settle_recorded(state, order);
    }

    /// Whether another order of the same user has a row, whatever its status.
    fn has_a_row(&self, state: &State, order: u8) -> bool {
        let user = self.buyer(order).user;
        let known = state.orders_where(|status| status != Status::Unknown);
        known.each().any(|other| self.buyer(other).user == user)
    }
}

/// The arrows of an order's life.
fn may_become(before: Status, after: Status) -> bool {
    match before {
        Status::Unknown => after != Status::Unknown && after != Status::Expired,
        Status::Pending => matches!(after, Status::Paid | Status::Expired | Status::Cancelled),
        Status::Paid | Status::Expired | Status::Cancelled | Status::Rejected | Status::Unreadable => false,
    }
}
