//! One connection's deadlines: the head of a request, the idle time between requests, and a
//! request that never ends. One timer per connection that looks a few times in a deadline's
//! length, instead of one armed and disarmed for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Limits;

/// Longest time from a request's head to the end of its answer: the longest `?wait=` and the rest.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Shortest time between two looks at a connection.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// How long an answer that is made gets to leave when the server stops.
const LEAVE: Duration = Duration::from_millis(30);

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const ANSWERING: u64 = 2;

/// What a connection is doing, and since when: milliseconds since it was accepted, times four,
/// plus the state. One word, so that it changes in one step.
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    word: AtomicU64,
    suspicion: AtomicU8,
}

const NONE: u8 = 0;
const LAST_REQUEST: u8 = 1;
const BAD_HEAD: u8 = 2;

/// What is to be done with the request that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Answer it.
    Full,
    /// Answer it, and close the connection behind it.
    LastRequest,
    /// Refuse it, and close the connection.
    BadHead,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        // The first head is awaited as long as any head.
        Arc::new(Self {
            accepted: Instant::now(),
            word: AtomicU64::new(HEAD),
            suspicion: AtomicU8::new(NONE),
        })
    }

    fn set(&self, state: u64) -> Duration {
        let now = self.accepted.elapsed();
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX >> 2);
        self.word.store(ms << 2 | state, Ordering::Relaxed);
        now
    }

    /// Whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.state() == ANSWERING
    }

    /// The bytes say that this is to be done with the request at hand.
    pub(super) fn suspect(&self, trust: Trust) {
        let suspicion = match trust {
            Trust::Full => NONE,
            Trust::LastRequest => LAST_REQUEST,
            Trust::BadHead => BAD_HEAD,
        };
        self.suspicion.fetch_max(suspicion, Ordering::Relaxed);
    }

    fn state(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & 3
    }

    fn get(&self) -> (u64, Duration) {
        let word = self.word.load(Ordering::Relaxed);
        let since = Duration::from_millis(word >> 2);
        (word & 3, self.accepted.elapsed().saturating_sub(since))
    }

    /// Bytes came in: a head begins if nothing else was going on.
    pub(super) fn received(&self) {
        if self.state() == IDLE {
            self.set(HEAD);
        }
    }

    /// A request's head is whole. Answers the connection's age.
    pub(super) fn answering(&self) -> Duration {
        self.set(ANSWERING)
    }

    /// The answer is made; the next request may come. Answers the connection's age.
    pub(super) fn idle(&self) -> Duration {
        self.set(IDLE)
    }

    /// What the bytes so far say about the request at hand.
    pub(super) fn trust(&self) -> Trust {
        match self.suspicion.load(Ordering::Relaxed) {
            NONE => Trust::Full,
            LAST_REQUEST => Trust::LastRequest,
            _ => Trust::BadHead,
        }
    }

    /// Returns when no request is being answered, and the last answer had its time to leave.
    pub(super) async fn quiet(&self) {
        let mut look = tokio::time::interval(LEAVE);
        let mut quiet = 0;
        while quiet < 2 {
            look.tick().await;
            quiet = if self.is_answering() { 0 } else { quiet + 1 };
        }
    }

    /// Returns when the connection has kept us waiting too long.
    pub(super) async fn overdue(&self, limits: Limits) {
        let mut look = tokio::time::interval((limits.header.min(limits.idle) / 2).max(LOOK_MIN));
        loop {
            look.tick().await;
            let (state, age) = self.get();
            let longest = match state {
                IDLE => limits.idle,
                HEAD => limits.header,
                _ => ANSWER_MAX + limits.body,
            };
            if age >= longest {
                return;
            }
        }
    }
}
