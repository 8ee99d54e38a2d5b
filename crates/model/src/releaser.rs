//! Releasers: read a release row and the sale's epoch in one statement, give the units back to that
//! epoch's stock, delete the row. They may stop between any two of these.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Phase, Releasing, State};

impl Protocol {
    pub(crate) fn releaser_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let now = state.ledger.epoch;
        let oldest = if self.has(Planted::ReleaseOnCachedEpoch) { 0 } else { now };
        for releaser in 0..self.scope.releasers {
            match state.releasers[usize::from(releaser)] {
                Releasing::Idle => {
                    for order in state.ledger.releases.each() {
                        let read = |epoch| Action::ReadRelease { releaser, order, epoch };
                        actions.extend((oldest..=now).map(read));
                    }
                }
                Releasing::Read { .. } => actions.push(Action::Release { releaser }),
                Releasing::Applied { .. } => actions.push(Action::DeleteRelease { releaser }),
            }
        }
    }

    pub(crate) fn read_release(&self, state: &mut State, releaser: u8, order: u8, epoch: u8) {
        state.releasers[usize::from(releaser)] = Releasing::Read { order, epoch };
    }

    pub(crate) fn release(&self, state: &mut State, releaser: u8) {
        let Releasing::Read { order, epoch } = state.releasers[usize::from(releaser)] else { return };
        let open = state.buckets[usize::from(epoch)].phase == Phase::Open;
        if open {
            self.release_units(state, order, epoch);
        }
        let applied = open || self.has(Planted::ReleaseWhileNotOpen);
        state.releasers[usize::from(releaser)] =
            if applied { Releasing::Applied { order } } else { Releasing::Idle };
    }

    pub(crate) fn delete_release(&self, state: &mut State, releaser: u8) {
        if let Releasing::Applied { order } = state.releasers[usize::from(releaser)] {
            state.ledger.releases.drop(order);
            state.releasers[usize::from(releaser)] = Releasing::Idle;
        }
    }
}
