//! Time comes from outside: a [`Clock`] is passed in, so that a test can move it.

use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A moment in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// From milliseconds since the epoch.
    pub const fn from_ms(ms: i64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the epoch.
    pub const fn as_ms(self) -> i64 {
        self.0
    }

    /// This moment plus `duration`, at most the last representable one.
    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration_ms(duration)))
    }

    /// This moment minus `duration`, at least the first representable one.
    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration_ms(duration)))
    }

    /// This moment as a clock shows it that is `ms` milliseconds ahead of ours, or behind when negative.
    pub fn ahead_by(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// How long ago `earlier` was; zero when it is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

fn duration_ms(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

/// Tells the time of day, which may jump, and a time that only grows.
pub trait Clock: Send + Sync + 'static {
    /// The time of day. It may jump either way; deadlines are decided by it.
    fn now(&self) -> Timestamp;

    /// Time since a fixed moment of this process; never goes back. Ages and time-outs use it.
    fn monotonic(&self) -> Duration;
}

/// The machine's clocks.
#[derive(Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// Starts the monotonic time at zero.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    pub fn new() -> Self {
        Self { started: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Timestamp(duration_ms(since))
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }
}

/// A clock that moves only when told to.
#[derive(Debug)]
pub struct ManualClock {
    now_ms: AtomicI64,
    elapsed_ms: AtomicI64,
}

impl ManualClock {
    /// A clock that stands at `now`.
    pub fn at(now: Timestamp) -> Self {
        Self { now_ms: AtomicI64::new(now.0), elapsed_ms: AtomicI64::new(0) }
    }

    /// Lets `duration` pass on both clocks.
    pub fn advance(&self, duration: Duration) {
        self.now_ms.fetch_add(duration_ms(duration), Ordering::SeqCst);
        self.elapsed_ms.fetch_add(duration_ms(duration), Ordering::SeqCst);
    }

    /// Makes the time of day jump to `now`; the monotonic time stays.
    pub fn jump(&self, now: Timestamp) {
        self.now_ms.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now_ms.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(u64::try_from(self.elapsed_ms.load(Ordering::SeqCst)).unwrap_or(0))
    }
}
