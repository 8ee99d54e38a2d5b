//! Sweepers: settle what is in the outbox of the present epoch against the ledger.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Phase, Record, State, Status};

impl Protocol {
    pub(crate) fn sweeper_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (epoch, bucket) in (0..).zip(&state.buckets) {
            for order in bucket.outbox.each() {
                let status = state.status(order);
                if status.is_live() {
                    actions.push(Action::Confirm { order, epoch });
                }
                if status.is_terminal() && bucket.phase == Phase::Open {
                    actions.push(Action::EnsureRelease { order });
                }
            }
        }
        for sweeper in 0..self.scope.sweepers {
            for order in self.sweepable(state) {
                if self.wants_end(state, sweeper, order) {
                    actions.push(Action::NoteEnd { sweeper, order });
                }
                if self.is_due(state, sweeper, order) && self.has_room(state) {
                    actions.push(Action::PublishAgain { sweeper, order });
                }
                if self.has(Planted::GiveUpByAge) {
                    actions.push(Action::GiveUp { sweeper, order });
                }
            }
        }
    }

    /// Orders in the present epoch's outbox that the ledger does not know.
    pub(crate) fn sweepable(&self, state: &State) -> impl Iterator<Item = u8> {
        let bucket = state.bucket();
        let open = bucket.phase == Phase::Open;
        let unknown = state.orders_where(|status| status == Status::Unknown);
        bucket.outbox.each().filter(move |order| open && unknown.has(*order))
    }

    /// Whether the sweeper has to read the queue's end: it never did since its last publish, or the
    /// queue lost what was there.
    pub(crate) fn wants_end(&self, state: &State, sweeper: u8, order: u8) -> bool {
        match state.noted[usize::from(sweeper)][usize::from(order)] {
            None => true,
            Some(end) => end > state.queue.len && !self.has(Planted::NotedEndNeverLowered),
        }
    }

    /// Whether the recorder has passed every place where the order's message could stand.
    pub(crate) fn is_due(&self, state: &State, sweeper: u8, order: u8) -> bool {
        let noted = state.noted[usize::from(sweeper)][usize::from(order)];
        noted == Some(0) || self.has(Planted::RepublishByAge)
    }

    pub(crate) fn confirm(&self, state: &mut State, order: u8, epoch: u8) {
        state.bucket_mut(epoch).outbox.drop(order);
    }

    pub(crate) fn ensure_release(&self, state: &mut State, order: u8) {
        state.ledger.releases.add(order);
    }

    pub(crate) fn note_end(&self, state: &mut State, sweeper: u8, order: u8) {
        state.noted[usize::from(sweeper)][usize::from(order)] = Some(state.queue.len);
    }

    pub(crate) fn publish_again(&self, state: &mut State, sweeper: u8, order: u8) {
        state.noted[usize::from(sweeper)][usize::from(order)] = None;
        let epoch = state.ledger.epoch;
        self.append(state, Record { order, epoch, swept: true });
    }

    pub(crate) fn give_up(&self, state: &mut State, order: u8) {
        self.close_unknown(state, order, Status::Rejected);
    }
}
