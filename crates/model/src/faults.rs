//! Faults of the servers around us.

use crate::actions::Action;
use crate::model::Protocol;
use crate::state::{Bucket, EPOCHS, State, Status};

impl Protocol {
    pub(crate) fn fault_actions(&self, state: &State, actions: &mut Vec<Action>) {
        let budget = &state.budget;
        if budget.flushes > 0 {
            actions.push(Action::Flush);
        }
        if budget.rewinds > 0 {
            actions.push(if state.saved.is_some() { Action::GoBack } else { Action::Save });
        }
        let recorded = state.orders_where(|status| status != Status::Unknown);
        if budget.losses > 0 && (state.queue.len > 0 || !recorded.is_empty()) {
            actions.push(Action::LoseRecord);
        }
        if budget.duplicates > 0 && state.queue.len > 0 && self.has_room(state) {
            actions.push(Action::Duplicate);
        }
    }

    pub(crate) fn flush(&self, state: &mut State) {
        state.budget.flushes -= 1;
        self.replace_stock(state, [Bucket::default(); EPOCHS]);
    }

    pub(crate) fn save(&self, state: &mut State) {
        state.saved = Some(state.buckets);
    }

    pub(crate) fn go_back(&self, state: &mut State) {
        if let Some(saved) = state.saved.take() {
            state.budget.rewinds -= 1;
            self.replace_stock(state, saved);
        }
    }

    pub(crate) fn lose_record(&self, state: &mut State) {
        state.budget.losses -= 1;
        self.lose_last(state);
    }

    pub(crate) fn duplicate(&self, state: &mut State) {
        state.budget.duplicates -= 1;
        self.append(state, state.queue.records[0]);
    }

    /// Another stock stands where the stock was. An epoch that was open is damaged by that; one
    /// that was only being loaded is not, since it may not open unless it is as it was read back.
    fn replace_stock(&self, state: &mut State, stock: [Bucket; EPOCHS]) {
        for (epoch, (before, after)) in state.buckets.iter().zip(&stock).enumerate() {
            if state.witness.opened[epoch] > 0 && before != after {
                state.witness.damaged |= 1 << epoch;
            }
        }
        state.buckets = stock;
    }
}
