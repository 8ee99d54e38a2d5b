//! Who is refused first while something behind the gate falls behind: whoever is least near to the shop.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::member::{LEVELS_MAX, Level};

/// How far the pressure must fall behind a step before the step is taken back: one that hovers does not flap.
const SLACK_PERCENT: u32 = 5;

/// From which pressure on which levels are refused, and how many were.
#[derive(Debug, Default)]
pub struct Shedding {
    from_percent: u32,
    highest: Level,
    /// The worst of the measured values, in percent of its limit.
    pressure_percent: AtomicU32,
    /// The lowest level of which orders are taken.
    taken_from: AtomicU8,
    /// Refused, by level.
    shed: [AtomicU64; LEVELS_MAX],
}

impl Shedding {
    /// Users without a level are refused from `from_percent` on, each level above from a further step on, and those of
    /// the `highest` with everybody else.
    pub fn new(from_percent: u32, highest: Level) -> Self {
        Self { from_percent, highest, ..Self::default() }
    }

    /// The lowest level of which orders are taken.
    pub fn taken_from(&self) -> Level {
        Level(self.taken_from.load(Ordering::Relaxed))
    }

    /// The worst of what was measured, in percent of its limit.
    pub fn pressure_percent(&self) -> u32 {
        self.pressure_percent.load(Ordering::Relaxed)
    }

    /// How many orders of each level were refused, from those without a level on.
    pub fn counts(&self) -> impl Iterator<Item = u64> {
        let levels = usize::from(self.highest.0).max(1);
        self.shed.iter().take(levels).map(|count| count.load(Ordering::Relaxed))
    }

    /// An order of this level was refused.
    pub(crate) fn note(&self, level: Level) {
        if let Some(count) = self.shed.get(usize::from(level.0)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The pressure is this now.
    pub(super) fn set(&self, percent: u32) {
        self.pressure_percent.store(percent, Ordering::Relaxed);
        let (was, at_least) = (self.taken_from(), self.least_at(percent));
        let kept = was.min(self.least_at(percent.saturating_add(SLACK_PERCENT)));
        let taken_from = at_least.max(kept);
        if taken_from != was {
            self.taken_from.store(taken_from.0, Ordering::Relaxed);
            tracing::warn!(
                pressure_percent = percent,
                level = taken_from.0,
                "new orders of users below this level are refused as BUSY"
            );
        }
    }

    /// The lowest level that is not refused at this pressure.
    fn least_at(&self, percent: u32) -> Level {
        if percent < self.from_percent {
            return Level(0);
        }
        let room = 100_u32.saturating_sub(self.from_percent).max(1);
        let steps = (percent - self.from_percent).saturating_mul(u32::from(self.highest.0)) / room;
        let least = steps.saturating_add(1).min(u32::from(self.highest.0));
        Level(u8::try_from(least).unwrap_or(self.highest.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_refused_in_rising_steps_and_the_highest_only_with_everybody() {
        for (from, highest, steps) in [
            (70, 2, &[(0, 0), (69, 0), (70, 1), (84, 1), (85, 2), (99, 2), (100, 2), (5_000, 2)][..]),
            (70, 1, &[(69, 0), (70, 1), (100, 1)]),
            (70, 3, &[(69, 0), (70, 1), (79, 1), (80, 2), (90, 3), (100, 3)]),
            (50, 7, &[(49, 0), (50, 1), (57, 1), (58, 2), (93, 7), (100, 7)]),
            (99, 2, &[(98, 0), (99, 1), (100, 2)]),
            (100, 2, &[(99, 0), (100, 1)]),
            (70, 0, &[(70, 0), (100, 0), (u32::MAX, 0)]),
        ] {
            let shedding = Shedding::new(from, Level(highest));
            for (percent, least) in steps {
                assert_eq!(shedding.least_at(*percent), Level(*least), "{from} {highest} {percent}");
            }
        }
        assert_eq!(Shedding::default().least_at(u32::MAX), Level(0));
    }

    #[test]
    fn a_pressure_that_hovers_around_a_step_does_not_flap() {
        let shedding = Shedding::new(70, Level(2));
        for (percent, least) in [
            (69, 0),
            (70, 1),
            (66, 1),
            (65, 1),
            (64, 0),
            (69, 0),
            (90, 2),
            (81, 2),
            (79, 1),
            (0, 0),
            (100, 2),
        ] {
            shedding.set(percent);
            assert_eq!((shedding.taken_from(), shedding.pressure_percent()), (Level(least), percent));
        }
    }

    #[test]
    fn what_is_refused_is_counted_by_level() {
        let shedding = Shedding::new(70, Level(2));
        for level in [0, 1, 1, 200] {
            shedding.note(Level(level));
        }
        assert_eq!(shedding.counts().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(Shedding::default().counts().count(), 1);
    }
}
