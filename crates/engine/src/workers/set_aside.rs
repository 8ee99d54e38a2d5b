//! Sales that are set aside after a fault, each for a growing time, so that they hold up no other.

use std::collections::HashMap;
use std::time::Duration;

use crate::order::SaleId;
use crate::told::TELL_EVERY;

/// First time for which a sale is set aside; doubled by each further fault.
const FIRST: Duration = Duration::from_millis(50);

/// Longest time: within it, units are on sale again after their stock has come back.
const LONGEST: Duration = Duration::from_secs(1);

/// All times are the monotonic clock's.
#[derive(Default)]
pub(super) struct SetAside {
    sales: HashMap<SaleId, Wait>,
}

#[derive(Default)]
struct Wait {
    times: u32,
    until: Duration,
    told: Option<Duration>,
}

impl SetAside {
    /// Every sale that is set aside, whether its time is over or not.
    pub(super) fn all(&self) -> Vec<SaleId> {
        self.sales.keys().copied().collect()
    }

    /// Those whose time is not over.
    pub(super) fn waiting(&self, now: Duration) -> Vec<SaleId> {
        self.sales.iter().filter(|(_, wait)| now < wait.until).map(|(sale, _)| *sale).collect()
    }

    /// Sets a sale aside, for longer each time.
    pub(super) fn add(&mut self, sale: SaleId, now: Duration) {
        let wait = self.sales.entry(sale).or_default();
        wait.until = now + FIRST.saturating_mul(1 << wait.times.min(10)).min(LONGEST);
        wait.times = wait.times.saturating_add(1);
    }

    /// Whether to tell of the fault of a sale that is set aside: the first time, and now and then.
    pub(super) fn is_to_be_told(&mut self, sale: SaleId, now: Duration) -> bool {
        let wait = self.sales.entry(sale).or_default();
        let tell = wait.told.is_none_or(|told| now.saturating_sub(told) >= TELL_EVERY);
        if tell {
            wait.told = Some(now);
        }
        tell
    }

    /// Forgets the faults of a sale.
    pub(super) fn sound(&mut self, sale: SaleId) {
        self.sales.remove(&sale);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sale_waits_longer_after_each_fault_and_is_told_of_now_and_then() {
        let (mut aside, sale) = (SetAside::default(), SaleId(1));
        let (mut now, mut told, mut tries) = (Duration::ZERO, 0, 0);
        while now < Duration::from_secs(60) {
            if aside.waiting(now).is_empty() {
                tries += 1;
                aside.add(sale, now);
                told += u32::from(aside.is_to_be_told(sale, now));
            }
            now += Duration::from_millis(10);
        }
        assert!((60..70).contains(&tries), "{tries}");
        assert!((10..=13).contains(&told), "{told}");
        assert_eq!(aside.all(), [sale]);
        aside.sound(sale);
        assert!(aside.all().is_empty());
        aside.add(sale, now);
        assert_eq!(aside.waiting(now + FIRST - Duration::from_millis(1)), [sale]);
        assert!(aside.waiting(now + FIRST).is_empty());
        assert!(aside.is_to_be_told(sale, now), "a new fault is told at once, also behind a silent one");
    }
}
