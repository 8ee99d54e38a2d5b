//! Recorders: read a record, then commit it with the position that it was read from. Two may have
//! read the same one; the slower finds the position moved and drops what it has.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Reading, State, Status};
use crate::witness::Invariant;

impl Protocol {
    pub(crate) fn recorder_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for recorder in 0..self.scope.recorders {
            match state.recorders[usize::from(recorder)] {
                None if state.queue.len > 0 => actions.push(Action::Read { recorder }),
                None => {}
                Some(_) => {
                    actions.push(Action::Commit { recorder });
                    if state.budget.dead_letters > 0 {
                        actions.push(Action::DeadLetter { recorder });
                        actions.push(Action::Park { recorder });
                    }
                }
            }
        }
    }

    pub(crate) fn read(&self, state: &mut State, recorder: u8) {
        state.recorders[usize::from(recorder)] = Some(Reading { record: state.queue.records[0], at: 0 });
    }

    pub(crate) fn commit(&self, state: &mut State, recorder: u8) {
        if let Some(reading) = self.take_current(state, recorder) {
            self.record(state, reading.record);
            self.advance(state);
        }
    }

    pub(crate) fn dead_letter(&self, state: &mut State, recorder: u8) {
        if let Some(reading) = self.take_current(state, recorder) {
            state.budget.dead_letters -= 1;
            let order = reading.record.order;
            if self.has(Planted::DeadLetterTouchesRow) && state.status(order) != Status::Unknown {
                state.ledger.releases.add(order);
            }
            self.close_unknown(state, order, Status::Unreadable);
            self.advance(state);
        }
    }

    /// Nobody knows whose record it was: the outbox still has the order.
    pub(crate) fn park(&self, state: &mut State, recorder: u8) {
        if let Some(reading) = self.take_current(state, recorder) {
            state.budget.dead_letters -= 1;
            state.witness.lost.add(reading.record.order);
            self.advance(state);
        }
    }

    /// What the recorder has read, if the position is still where it was read from.
    fn take_current(&self, state: &mut State, recorder: u8) -> Option<Reading> {
        let reading = state.recorders[usize::from(recorder)].take()?;
        if reading.at == 0 {
            return Some(reading);
        }
        if self.has(Planted::PositionWithoutCompareAndSet) {
            // The position is set to behind this record: it goes back, and others come again.
            state.witness.note(Invariant::I13);
        }
        None
    }
}
