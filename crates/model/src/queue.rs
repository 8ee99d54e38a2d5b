//! The queue's one partition. All places are counted from the ledger's position, so that two states
//! that differ only in what was recorded long ago are one state.

use crate::model::Protocol;
use crate::state::{Record, Stage, State};

impl Protocol {
    /// Whether a message still finds room; the model's bound, not the protocol's.
    pub(crate) fn has_room(&self, state: &State) -> bool {
        state.queue.len < self.scope.queue
    }

    /// Appends a message.
    pub(crate) fn append(&self, state: &mut State, record: Record) {
        let queue = &mut state.queue;
        if queue.behind > 0 {
            // The place was recorded before the queue lost it: nobody reads there any more.
            queue.behind -= 1;
            state.witness.lost.add(record.order);
            return;
        }
        if let Some(place) = queue.records.get_mut(usize::from(queue.len)) {
            *place = record;
            queue.len += 1;
        }
    }

    /// Loses the last record, be it recorded or not.
    pub(crate) fn lose_last(&self, state: &mut State) {
        let queue = &mut state.queue;
        if queue.len == 0 {
            queue.behind += 1;
            return;
        }
        queue.len -= 1;
        let last = std::mem::take(&mut queue.records[usize::from(queue.len)]);
        state.witness.lost.add(last.order);
    }

    /// The ledger's position goes over one record.
    pub(crate) fn advance(&self, state: &mut State) {
        let queue = &mut state.queue;
        if queue.len == 0 {
            queue.behind += 1;
        } else {
            queue.records.rotate_left(1);
            queue.len -= 1;
            queue.records[usize::from(queue.len)] = Record::default();
        }
        self.move_places(state, -1);
    }

    /// The ledger's position goes back to the queue's end.
    pub(crate) fn cut_back(&self, state: &mut State) {
        let by = i8::try_from(std::mem::take(&mut state.queue.behind)).unwrap_or(i8::MAX);
        self.move_places(state, by);
    }

    /// Counts all places anew, since the position went the other way. Places that nobody can come
    /// back to are one.
    fn move_places(&self, state: &mut State, by: i8) {
        let losses = i8::try_from(self.scope.faults.losses).unwrap_or(i8::MAX);
        let read = state.loaders.iter_mut().filter(|loader| loader.stage == Stage::EndRead);
        let ends = read.map(|loader| &mut loader.end);
        for place in state.ledger.barriers.iter_mut().flatten().chain(ends) {
            *place = (*place + by).max(-losses);
        }
        for reading in state.recorders.iter_mut().flatten() {
            reading.at = (reading.at + by).max(-losses - 1);
        }
        for noted in state.noted.iter_mut().flatten().flatten() {
            *noted = noted.saturating_add_signed(by);
        }
    }
}
