//! How often a log line that repeats is told: a fault that stands must not bury what else happens.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two lines that say the same.
pub const TELL_EVERY: Duration = Duration::from_secs(5);

/// When one line was told last, and what came since, which the metrics have at once. It goes by the
/// runtime's clock: no order is decided by it.
#[derive(Debug, Default)]
pub struct Told(Mutex<Since>);

#[derive(Debug, Default)]
struct Since {
    told: Option<Instant>,
    untold: u64,
}

impl Told {
    /// Counts `times`; answers how many there were since the last line when another one is due.
    pub fn due(&self, times: u64) -> Option<u64> {
        self.due_at(Instant::now(), times)
    }

    fn due_at(&self, now: Instant, times: u64) -> Option<u64> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        since.untold = since.untold.saturating_add(times);
        if since.told.is_some_and(|told| now.duration_since(told) < TELL_EVERY) {
            return None;
        }
        since.told = Some(now);
        Some(std::mem::take(&mut since.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_told_at_once_and_the_others_are_added_up() {
        let (told, begun) = (Told::default(), Instant::now());
        assert_eq!(told.due_at(begun, 1), Some(1));
        for ms in 1..=100 {
            assert_eq!(told.due_at(begun + Duration::from_millis(ms), 2), None);
        }
        assert_eq!(told.due_at(begun + TELL_EVERY, 1), Some(201));
        assert_eq!(told.due_at(begun + TELL_EVERY, 1), None);
    }
}
