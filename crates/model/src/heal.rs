//! Healing: from any state, without further faults, everybody does their work until nothing is left.
//! Then the system must be at rest, and in order.
//!
//! This is how "in the end" is checked: not by waiting for it along every path, but by one fair
//! path from every state. Gateways die first, with what they were about to publish: whatever depends
//! on them is not repaired by anybody.

use crate::model::Protocol;
use crate::state::{Calls, FIRST_RETAKE, Payment, Phase, Releasing, State, Status, TWICE};
use crate::witness::Invariant;

/// Rounds after which healing has failed.
const ROUNDS: usize = 40;
/// Messages recorded in one round.
const RECORDED_IN_ROUND: usize = 32;

impl Protocol {
    /// The state in which everything has come to rest; nothing if it does not.
    fn heal(&self, state: &State) -> Option<State> {
        let mut state = *state;
        state.publishing = Default::default();
        state.recorders = Default::default();
        state.releasers = Default::default();
        state.loaders = Default::default();
        self.rest(&mut state).then_some(())?;
        // The reconciler finds a stock that differs and has it loaded anew. Only a stock that lost
        // something may differ: for all others it is never asked.
        if state.witness.is_damaged(state.ledger.epoch) && self.differs(&state) {
            state.bucket_mut(state.ledger.epoch).phase = Phase::Fenced;
            self.rest(&mut state).then_some(())?;
        }
        Some(state)
    }

    /// Lets all workers go on until nothing changes; says whether that came about.
    fn rest(&self, state: &mut State) -> bool {
        for _ in 0..ROUNDS {
            let before = *state;
            self.record_all(state);
            self.sweep_all(state);
            self.release_all(state);
            self.pay_all(state);
            self.rebuild(state);
            if *state == before {
                return true;
            }
        }
        false
    }

    fn record_all(&self, state: &mut State) {
        for _ in 0..RECORDED_IN_ROUND {
            if state.queue.len == 0 {
                return;
            }
            self.read(state, 0);
            self.commit(state, 0);
        }
    }

    /// One sweeper, with the memory that it has.
    fn sweep_all(&self, state: &mut State) {
        let epoch = state.ledger.epoch;
        if state.bucket().phase != Phase::Open {
            return;
        }
        for order in state.bucket().outbox.each() {
            if state.status(order).is_live() {
                self.confirm(state, order, epoch);
            } else if state.status(order).is_terminal() {
                self.ensure_release(state, order);
            } else if self.wants_end(state, 0, order) {
                self.note_end(state, 0, order);
            } else if self.is_due(state, 0, order) {
                self.publish_again(state, 0, order);
            }
        }
    }

    fn release_all(&self, state: &mut State) {
        let epoch = state.ledger.epoch;
        for order in state.ledger.releases.each() {
            self.read_release(state, 0, order, epoch);
            self.release(state, 0);
            self.delete_release(state, 0);
        }
        state.releasers = [Releasing::Idle; TWICE];
    }

    fn pay_all(&self, state: &mut State) {
        for payment in (0..2).take(self.scope.payments.len()) {
            let order = FIRST_RETAKE + payment;
            let Payment::Waiting { refused } = state.ledger.payments[usize::from(payment)] else { continue };
            if state.status(order) != Status::Unknown {
                self.settle(state, payment);
            } else if refused {
                self.decide_refused(state, payment);
            } else if state.calls[usize::from(order)] == Calls::Many {
                let epoch = state.ledger.epoch;
                self.reserve(state, order, epoch);
                // The payer publishes at once what it reserved; the sweeper would do it later.
                if state.publishing[usize::from(epoch)].has(order) && state.queue.len == 0 {
                    self.publish(state, order, epoch, true);
                }
                state.publishing = Default::default();
            }
        }
    }

    /// The invariants that do not hold once everything has come to rest.
    pub fn broken_at_rest(&self, state: &State) -> Vec<Invariant> {
        let Some(rest) = self.heal(state) else { return vec![Invariant::I18] };
        let lost = |order| rest.witness.damaged != 0 && rest.witness.lost.has(order);
        let waiting = |payment: &Payment| matches!(payment, Payment::Waiting { .. });
        let accepted_as =
            |status| rest.accepted.each().any(|order| rest.status(order) == status && !lost(order));
        let broken = [
            (Invariant::I4, accepted_as(Status::Unknown)),
            (Invariant::I6, rest.ledger.payments.iter().any(waiting)),
            (Invariant::I8, rest.bucket().holds != rest.orders_where(Status::is_live)),
            (Invariant::I12, self.strands(&rest)),
            (Invariant::I17, rest.witness.damaged == 0 && accepted_as(Status::Rejected)),
            (Invariant::I18, is_busy(&rest)),
        ];
        broken.into_iter().filter(|(_, broken)| *broken).map(|(invariant, _)| invariant).collect()
    }

    /// Whether the stock of the present epoch is not what the ledger says.
    fn differs(&self, state: &State) -> bool {
        state.bucket().holds != state.orders_where(Status::is_live) || self.strands(state)
    }

    /// Whether units are neither sold nor free.
    fn strands(&self, state: &State) -> bool {
        let sold = u8::try_from(state.ledger.sold).unwrap_or(0);
        state.bucket().free + sold != self.scope.quantity
    }
}

/// Whether somebody still has something to do.
fn is_busy(state: &State) -> bool {
    !state.bucket().outbox.is_empty()
        || !state.ledger.releases.is_empty()
        || state.ledger.fence.is_some()
        || state.bucket().phase != Phase::Open
}
