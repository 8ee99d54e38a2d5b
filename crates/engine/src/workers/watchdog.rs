//! Watchdog: whether the recorder of this process gets on.
//!
//! A process whose recorder hangs looks healthy: it answers probes, and Kafka's library beats the
//! heart by itself. What counts is progress: steps that end well, and records that reach the ledger
//! while some wait. The watchdog only says what it sees; it stops nothing, since every step has its
//! time-outs, and another recorder takes over what a stuck one had.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::{Step, Worker};
use crate::clock::Clock;
use crate::fault::BackendError;

/// Watches one recorder.
pub struct Watchdog {
    patience: Duration,
    clock: Arc<dyn Clock>,
    seen: Mutex<Seen>,
}

/// What was seen last; times are of the monotonic clock.
struct Seen {
    /// When the present step began; nothing between two steps.
    begun: Option<Duration>,
    /// When a step last ended well.
    ended_well: Duration,
    /// How the steps since then failed.
    fault: Option<String>,
    /// Orders that wait to be recorded.
    waiting: u64,
    /// How many records have been recorded, of all partitions together.
    recorded: u64,
    /// When that number last grew, or nothing waited.
    moved: Duration,
}

impl Watchdog {
    /// A watchdog that complains when there is no progress for `patience`.
    pub fn new(patience: Duration, clock: Arc<dyn Clock>) -> Self {
        let now = clock.monotonic();
        let seen = Seen { begun: None, ended_well: now, fault: None, waiting: 0, recorded: 0, moved: now };
        Self { patience, clock, seen: Mutex::new(seen) }
    }

    /// The recorder, watched.
    pub fn over(self: &Arc<Self>, recorder: Box<dyn Worker>) -> Box<dyn Worker> {
        Box::new(Watched { recorder, watchdog: Arc::clone(self) })
    }

    /// Notes how many orders wait, and how many records have been recorded so far.
    pub fn note_waiting(&self, waiting: u64, recorded: u64) {
        let now = self.clock.monotonic();
        let mut seen = self.seen();
        if waiting == 0 || recorded != seen.recorded || seen.waiting == 0 {
            seen.moved = now;
        }
        (seen.waiting, seen.recorded) = (waiting, recorded);
    }

    /// What is wrong and since when; nothing when the recorder gets on.
    pub fn complaint(&self) -> Option<String> {
        let now = self.clock.monotonic();
        let seen = self.seen();
        let lasts = |since: Duration| Some(now.saturating_sub(since)).filter(|time| *time >= self.patience);
        let waiting = seen.waiting;
        // A step waits for records only briefly, so one that lasts holds some, whatever the last count says.
        if let Some(time) = seen.begun.and_then(lasts) {
            return Some(format!(
                "the recorder of this process has been stuck in one step for {} s (orders that wait: {waiting}): look for \
                 a ledger or a stock that does not answer, and restart it if it does not go on by itself",
                time.as_secs()
            ));
        }
        if waiting == 0 {
            return None;
        }
        if let (Some(fault), Some(time)) = (&seen.fault, lasts(seen.ended_well.max(seen.moved))) {
            return Some(format!(
                "the recorder of this process has failed for {} s while orders wait ({waiting}): {fault}",
                time.as_secs()
            ));
        }
        lasts(seen.moved).map(|time| {
            format!(
                "no recorder has recorded anything for {} s while orders wait ({waiting}): look whether one reads \
                 them, and restart this one",
                time.as_secs()
            )
        })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Watched {
    recorder: Box<dyn Worker>,
    watchdog: Arc<Watchdog>,
}

#[async_trait]
impl Worker for Watched {
    fn name(&self) -> &'static str {
        self.recorder.name()
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let stepping = Stepping::begin(&self.watchdog);
        let step = self.recorder.step().await;
        stepping.end(&step);
        step
    }
}

/// A step that runs. Dropped without an end, it broke off.
struct Stepping<'a> {
    watchdog: &'a Watchdog,
}

impl<'a> Stepping<'a> {
    fn begin(watchdog: &'a Watchdog) -> Self {
        watchdog.seen().begun = Some(watchdog.clock.monotonic());
        Self { watchdog }
    }

    fn end(self, step: &Result<Step, BackendError>) {
        let now = self.watchdog.clock.monotonic();
        let mut seen = self.watchdog.seen();
        match step {
            Ok(_) => (seen.ended_well, seen.fault) = (now, None),
            Err(error) => seen.fault = Some(error.to_string()),
        }
    }
}

impl Drop for Stepping<'_> {
    fn drop(&mut self) {
        self.watchdog.seen().begun = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, Timestamp};
    use crate::fault::{Fault, Layer};

    const PATIENCE: Duration = Duration::from_secs(30);

    struct Case {
        clock: Arc<ManualClock>,
        watchdog: Arc<Watchdog>,
    }

    fn case() -> Case {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(0)));
        let watchdog = Arc::new(Watchdog::new(PATIENCE, Arc::clone(&clock) as _));
        Case { clock, watchdog }
    }

    impl Case {
        fn ends(&self, step: Result<Step, BackendError>) {
            Stepping::begin(&self.watchdog).end(&step);
        }

        fn fails(&self) {
            self.ends(Err(BackendError::new(Layer::Ledger, Fault::Transient, "no connection")));
        }

        fn says(&self, words: &str) {
            let complaint = self.watchdog.complaint().unwrap_or_default();
            assert!(complaint.contains(words), "{words:?} is missing in {complaint:?}");
        }
    }

    #[test]
    fn steps_without_work_are_no_stall_however_long_it_lasts() {
        let case = case();
        for _ in 0..10 {
            case.clock.advance(PATIENCE);
            case.ends(Ok(Step::Idle));
            case.watchdog.note_waiting(0, 7);
            assert_eq!(case.watchdog.complaint(), None);
        }
        // Nor is a ledger that is away while nothing waits: that is told by whoever asks the ledger.
        case.clock.advance(PATIENCE * 2);
        case.fails();
        assert_eq!(case.watchdog.complaint(), None);
    }

    #[test]
    fn a_step_that_does_not_end_is_a_stall_until_it_ends() {
        let case = case();
        case.watchdog.note_waiting(12, 0);
        let step = Stepping::begin(&case.watchdog);
        case.clock.advance(PATIENCE - Duration::from_secs(1));
        assert_eq!(case.watchdog.complaint(), None);
        case.clock.advance(Duration::from_secs(5));
        case.says("stuck in one step for 34 s (orders that wait: 12)");
        // The count may be old: whoever would bring it may hang in the same place.
        case.watchdog.note_waiting(0, 0);
        case.says("stuck in one step for 34 s");
        step.end(&Ok(Step::Worked(12)));
        assert_eq!(case.watchdog.complaint(), None);
    }

    #[test]
    fn a_step_that_breaks_off_is_not_taken_for_one_that_runs() {
        let case = case();
        drop(Stepping::begin(&case.watchdog));
        case.clock.advance(PATIENCE);
        assert_eq!(case.watchdog.complaint(), None);
    }

    #[test]
    fn steps_that_fail_while_orders_wait_are_a_stall_with_their_cause() {
        let case = case();
        case.watchdog.note_waiting(3, 5);
        case.clock.advance(PATIENCE / 2);
        case.fails();
        assert_eq!(case.watchdog.complaint(), None);
        case.clock.advance(PATIENCE / 2);
        case.fails();
        case.says("failed for 30 s while orders wait (3)");
        case.says("no connection");
        case.ends(Ok(Step::Worked(3)));
        case.watchdog.note_waiting(0, 8);
        assert_eq!(case.watchdog.complaint(), None);
    }

    #[test]
    fn steps_that_find_nothing_while_orders_wait_are_a_stall_unless_another_recorder_gets_on() {
        let case = case();
        let mut recorded = 0;
        for _ in 0..4 {
            recorded += 1;
            case.watchdog.note_waiting(100, recorded);
            case.clock.advance(PATIENCE - Duration::from_secs(1));
            case.ends(Ok(Step::Idle));
            assert_eq!(case.watchdog.complaint(), None, "another process records");
        }
        case.watchdog.note_waiting(100, recorded);
        case.clock.advance(Duration::from_secs(1));
        case.says("no recorder has recorded anything for 30 s while orders wait (100)");
        case.watchdog.note_waiting(99, recorded + 1);
        assert_eq!(case.watchdog.complaint(), None);
    }

    #[test]
    fn orders_that_come_after_a_long_quiet_time_have_not_waited_long() {
        let case = case();
        case.watchdog.note_waiting(0, 5);
        case.clock.advance(PATIENCE * 10);
        case.fails();
        case.watchdog.note_waiting(1, 5);
        assert_eq!(case.watchdog.complaint(), None);
    }
}
