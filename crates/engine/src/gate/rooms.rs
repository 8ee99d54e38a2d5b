//! How the sales' waiting rooms stand, as the usher last saw them. Read on the purchase path, written beside it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;

use crate::order::SaleId;
use crate::switches::RoomMode;

/// One sale's waiting room.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoomState {
    /// Whether a sale whose room is automatic sells to nobody who was not let in.
    pub is_needed: bool,
    /// Users who wait.
    pub waiting: u64,
    /// Users who were let in and whose turn is not over.
    pub inside: u64,
    /// Users let in since the room began.
    pub admitted: u64,
    /// Units free in the sale, over its items; nothing while the stock does not say.
    pub free: Option<u64>,
    /// Users let in per second, over the last half minute; nothing when that is not known.
    pub per_second: Option<f64>,
}

/// The rooms of all sales; all cores of a process share it.
#[derive(Debug, Default)]
pub struct Rooms {
    states: ArcSwap<BTreeMap<SaleId, RoomState>>,
    silent: AtomicBool,
}

impl Rooms {
    /// One sale's room as it was seen last; nothing where nobody has looked.
    pub fn of(&self, sale: SaleId) -> Option<RoomState> {
        self.states.load().get(&sale).copied()
    }

    /// Whether nobody buys in this sale who was not let in. An automatic room that nobody has looked at yet is there:
    /// a gateway that has just started is no way around it.
    pub(super) fn is_needed(&self, sale: SaleId, mode: RoomMode) -> bool {
        match mode {
            RoomMode::Off => false,
            RoomMode::On => true,
            RoomMode::Automatic => self.of(sale).is_none_or(|state| state.is_needed),
        }
    }

    /// Every sale's room.
    pub fn all(&self) -> Vec<(SaleId, RoomState)> {
        self.states.load().iter().map(|(sale, state)| (*sale, *state)).collect()
    }

    /// Replaces what is known.
    pub fn replace(&self, states: BTreeMap<SaleId, RoomState>) {
        self.states.store(states.into());
    }

    /// Whether the rooms answered when they were last asked.
    pub fn answer(&self) -> bool {
        !self.silent.load(Ordering::Relaxed)
    }

    /// Notes whether they did.
    pub fn note_answer(&self, answered: bool) {
        self.silent.store(!answered, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_that_nobody_has_looked_at_is_no_open_door() {
        let rooms = Rooms::default();
        let needed = |rooms: &Rooms| {
            [RoomMode::Off, RoomMode::On, RoomMode::Automatic].map(|it| rooms.is_needed(SaleId(1), it))
        };
        assert_eq!(needed(&rooms), [false, true, true]);
        rooms.replace(BTreeMap::from([(SaleId(1), RoomState::default())]));
        assert_eq!(needed(&rooms), [false, true, false]);
        rooms.replace(BTreeMap::from([(SaleId(1), RoomState { is_needed: true, ..RoomState::default() })]));
        assert_eq!(needed(&rooms), [false, true, true]);
    }
}
