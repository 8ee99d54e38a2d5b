//! Gateways: reserve, publish, answer. Calls may be lost, late, and come more than once.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Calls, FIRST_RETAKE, Payment, Phase, Record, State};
use crate::stock::ReserveOutcome;
use crate::witness::Invariant;

impl Protocol {
    pub(crate) fn gateway_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for order in self.orders() {
            let calls = state.calls[usize::from(order)];
            let told = state.refused.has(order) && calls == Calls::One;
            if self.scope.repeats && order < FIRST_RETAKE && calls != Calls::Many && !told {
                actions.push(Action::Repeat { order });
            }
            for epoch in 0..=state.ledger.epoch {
                if calls != Calls::Answered && !told && self.is_wanted(state, order) {
                    actions.push(Action::Reserve { order, epoch });
                }
                if state.publishing[usize::from(epoch)].has(order) && self.has_room(state) {
                    actions.push(Action::Publish { order, epoch, acknowledged: true });
                    actions.push(Action::Publish { order, epoch, acknowledged: false });
                }
            }
        }
    }

    /// Whether somebody places this order: a buyer, or a payment that came late.
    fn is_wanted(&self, state: &State, order: u8) -> bool {
        order < FIRST_RETAKE || state.calls[usize::from(order)] == Calls::Many
    }

    pub(crate) fn repeat(&self, state: &mut State, order: u8) {
        state.calls[usize::from(order)] = Calls::Many;
    }

    pub(crate) fn reserve(&self, state: &mut State, order: u8, epoch: u8) {
        let outcome = self.reserve_units(state, order, epoch);
        match outcome {
            ReserveOutcome::Taken | ReserveOutcome::Held { waiting: true } => {
                if state.calls[usize::from(order)] == Calls::One {
                    state.calls[usize::from(order)] = Calls::Answered;
                }
                state.publishing[usize::from(epoch)].add(order);
                if self.has(Planted::AcceptedBeforeAcknowledged) {
                    state.accepted.add(order);
                }
            }
            ReserveOutcome::SoldOut => {
                let bucket = &state.buckets[usize::from(epoch)];
                let ready = matches!(bucket.phase, Phase::Open | Phase::Fenced);
                if !ready || bucket.free >= self.buyer(order).units {
                    state.witness.note(Invariant::I14);
                }
                if self.has(Planted::StockBeforeDuplicate) && bucket.holds.has(order) {
                    // A winner who clicks again is told so by a gateway that knows of no first call.
                    state.refused.add(order);
                }
                self.refuse(state, order);
            }
            ReserveOutcome::Limit(held) => {
                let replaced = self.retake_of(order).map(|payment| self.scope.payments[usize::from(payment)]);
                // A limit that names the order to be replaced is waited out.
                if replaced.is_none_or(|replaced| !held.has(replaced)) {
                    self.refuse(state, order);
                }
            }
            // 503 or the ledger's status: nothing follows from it.
            ReserveOutcome::Held { waiting: false }
            | ReserveOutcome::Gone
            | ReserveOutcome::Fenced
            | ReserveOutcome::NotReady => {}
        }
    }

    /// A refusal is final only when no other copy of the call is under way.
    fn refuse(&self, state: &mut State, order: u8) {
        if let Some(payment) = self.retake_of(order) {
            let payment = &mut state.ledger.payments[usize::from(payment)];
            if matches!(payment, Payment::Waiting { .. }) {
                *payment = Payment::Waiting { refused: true };
            }
        } else if state.calls[usize::from(order)] == Calls::One || self.has(Planted::RepeatedCallRefused) {
            state.refused.add(order);
        }
    }

    pub(crate) fn publish(&self, state: &mut State, order: u8, epoch: u8, acknowledged: bool) {
        state.publishing[usize::from(epoch)].drop(order);
        self.append(state, Record { order, epoch, swept: false });
        if acknowledged && order < FIRST_RETAKE {
            state.accepted.add(order);
        }
        if !acknowledged && self.has(Planted::ReleaseOnFailedPublish) {
            self.release_units(state, order, epoch);
        }
    }
}
