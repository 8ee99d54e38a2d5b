//! What closes orders: the expirer, and buyers who cancel.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{FIRST_RETAKE, Phase, State, Status};

impl Protocol {
    pub(crate) fn closer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for order in self.orders() {
            let pending = state.status(order) == Status::Pending;
            if self.scope.expires && pending {
                actions.push(Action::Expire { order });
                if self.has(Planted::ReleaseInsideTransaction) {
                    actions.push(Action::ReleaseEarly { order });
                }
            }
            let bucket = state.bucket();
            let queued = state.status(order) == Status::Unknown
                && matches!(bucket.phase, Phase::Open | Phase::Fenced)
                && bucket.holds.has(order);
            if self.scope.cancels && order < FIRST_RETAKE && (pending || queued) {
                actions.push(Action::Cancel { order });
            }
        }
    }

    pub(crate) fn expire(&self, state: &mut State, order: u8) {
        self.close(state, order, Status::Expired);
    }

    pub(crate) fn cancel(&self, state: &mut State, order: u8) {
        self.close(state, order, Status::Cancelled);
    }

    /// The planted fault: the stock is called inside the transaction, which then fails.
    pub(crate) fn release_early(&self, state: &mut State, order: u8) {
        self.release_units(state, order, state.ledger.epoch);
    }
}
