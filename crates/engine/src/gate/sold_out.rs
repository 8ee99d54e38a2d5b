//! The sold-out flag, per core and item.
//!
//! Set only by an answer of the stock with nothing free. It lives at most 200 ms; in the last
//! quarter of its life one request passes as a probe, which sets it anew or clears it. So returned
//! units are on sale again within 200 ms, and the stock sees a handful of calls a second.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::order::ItemId;

/// How long one answer of the stock is repeated.
pub(super) const LIFE: Duration = Duration::from_millis(200);

/// From this age on one request may ask again.
const PROBE_AFTER: Duration = Duration::from_millis(150);

#[derive(Clone, Copy, Debug)]
struct State {
    set_at: Duration,
    probing: bool,
}

/// One core's flags; at most one per item of the catalog.
#[derive(Debug, Default)]
pub(super) struct SoldOutFlags {
    // One core's threads only: never contended.
    states: Mutex<BTreeMap<ItemId, State>>,
}

impl SoldOutFlags {
    fn states(&self) -> MutexGuard<'_, BTreeMap<ItemId, State>> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether to say sold out without asking. Answers false to the one request that is the probe.
    pub(super) fn is_sold_out(&self, item: ItemId, now: Duration) -> bool {
        let mut states = self.states();
        let Some(state) = states.get_mut(&item) else { return false };
        let age = now.saturating_sub(state.set_at);
        if age >= LIFE {
            return false;
        }
        if age >= PROBE_AFTER && !state.probing {
            state.probing = true;
            return false;
        }
        true
    }

    pub(super) fn set(&self, item: ItemId, now: Duration) {
        self.states().insert(item, State { set_at: now, probing: false });
    }

    pub(super) fn clear(&self, item: ItemId) {
        self.states().remove(&item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ITEM: ItemId = ItemId(1);

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_flag_lives_at_most_200_ms() {
        let flags = SoldOutFlags::default();
        assert!(!flags.is_sold_out(ITEM, ms(0)));
        flags.set(ITEM, ms(0));
        assert!(flags.is_sold_out(ITEM, ms(149)));
        assert!(!flags.is_sold_out(ITEM, ms(200)));
        assert!(!flags.is_sold_out(ItemId(2), ms(10)));
    }

    #[test]
    fn one_request_probes_and_the_others_hear_sold_out() {
        let flags = SoldOutFlags::default();
        flags.set(ITEM, ms(0));
        let passed = (0..100).filter(|_| !flags.is_sold_out(ITEM, ms(160))).count();
        assert_eq!(passed, 1);
        flags.set(ITEM, ms(161));
        assert!(flags.is_sold_out(ITEM, ms(300)));
    }

    #[test]
    fn something_free_clears_it_at_once() {
        let flags = SoldOutFlags::default();
        flags.set(ITEM, ms(0));
        flags.clear(ITEM);
        assert!(!flags.is_sold_out(ITEM, ms(1)));
    }
}
