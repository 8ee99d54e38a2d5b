//! The deadlines of a core's connections: the head of a request, the idle time between requests,
//! and a request that never ends.
//!
//! One look at all of them, a few times in a deadline's length, instead of a timer for each: a
//! request arms nothing and reads no clock. Time is counted in looks.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use slab::Slab;

use super::Limits;

/// Longest time from a request's head to the end of its answer: the longest `?wait=` and the rest.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Shortest time between two looks.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// Time between two looks when the server stops.
pub(super) const LAST_LOOK: Duration = Duration::from_millis(10);
/// So many looks long an answer that is made may leave when the server stops: at least 30 ms.
const LEAVE_LOOKS: u8 = 4;

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const ANSWERING: u64 = 2;

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

/// What a connection is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Go on.
    Serve,
    /// Answer what was asked, then end.
    Finish,
    /// End at once.
    End,
}

/// What one connection is doing, and what it is told.
#[derive(Debug)]
pub(super) struct Activity {
    /// The number of the look since which it does what it does, times four, plus the state. One
    /// word, so that it changes in one step.
    word: AtomicU64,
    /// The looks so far: the core's own count.
    looks: Arc<AtomicU64>,
    suspicion: AtomicU8,
    told: AtomicU8,
    /// Looks in a row, while the server stops, that saw no request being answered.
    quiet: AtomicU8,
    /// Woken, not used up, by each change of `told`. Locked when a connection begins and is told
    /// something, never for a request.
    task: Mutex<Option<Waker>>,
}

impl Activity {
    fn new(looks: &Arc<AtomicU64>) -> Self {
        let activity = Self {
            word: AtomicU64::new(0),
            looks: Arc::clone(looks),
            suspicion: AtomicU8::new(Trust::Full as u8),
            told: AtomicU8::new(Told::Serve as u8),
            quiet: AtomicU8::new(0),
            task: Mutex::default(),
        };
        // The first head is awaited as long as any head.
        activity.set(HEAD);
        activity
    }

    fn set(&self, state: u64) {
        self.word.store(self.looks.load(Ordering::Relaxed) << 2 | state, Ordering::Relaxed);
    }

    fn state(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & 3
    }

    /// Bytes came in: a head begins if nothing else was going on.
    pub(super) fn received(&self) {
        if self.state() == IDLE {
            self.set(HEAD);
        }
    }

    /// A request's head is whole.
    pub(super) fn answering(&self) {
        self.set(ANSWERING);
    }

    /// The answer is made; the next request may come.
    pub(super) fn idle(&self) {
        self.set(IDLE);
    }

    /// Whether a request is being answered.
    pub(super) fn is_answering(&self) -> bool {
        self.state() == ANSWERING
    }

    /// The bytes say that no more than this is to be done with the request at hand.
    pub(super) fn suspect(&self, trust: Trust) {
        self.suspicion.fetch_max(trust as u8, Ordering::Relaxed);
    }

    /// What the bytes so far say about the request at hand.
    pub(super) fn trust(&self) -> Trust {
        const LAST_REQUEST: u8 = Trust::LastRequest as u8;
        match self.suspicion.load(Ordering::Relaxed) {
            0 => Trust::Full,
            LAST_REQUEST => Trust::LastRequest,
            _ => Trust::BadHead,
        }
    }

    fn task(&self) -> MutexGuard<'_, Option<Waker>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `task` is woken whenever the connection is told something.
    pub(super) fn wakes(&self, task: &Waker) {
        *self.task() = Some(task.clone());
    }

    /// What the connection is to do.
    pub(super) fn told(&self) -> Told {
        const FINISH: u8 = Told::Finish as u8;
        match self.told.load(Ordering::Relaxed) {
            0 => Told::Serve,
            FINISH => Told::Finish,
            _ => Told::End,
        }
    }

    fn tell(&self, told: Told) {
        self.told.fetch_max(told as u8, Ordering::Relaxed);
        if let Some(task) = &*self.task() {
            task.wake_by_ref();
        }
    }

    /// Whether it has been doing the same for longer than the limits allow, at the latest look.
    fn is_overdue(&self, limits: &Limits) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        let longest = match word & 3 {
            IDLE => limits.idle,
            HEAD => limits.header,
            _ => ANSWER_MAX + limits.body,
        };
        // It began after the look that it notes, at any time before the next.
        let whole = self.looks.load(Ordering::Relaxed).saturating_sub((word >> 2) + 1);
        pace(limits).saturating_mul(u32::try_from(whole).unwrap_or(u32::MAX)) >= longest
    }

    /// Whether no request is being answered, and the last answer had its time to leave.
    fn is_quiet(&self) -> bool {
        if self.is_answering() {
            self.quiet.store(0, Ordering::Relaxed);
            return false;
        }
        let looks = self.quiet.load(Ordering::Relaxed).saturating_add(1);
        self.quiet.store(looks, Ordering::Relaxed);
        looks >= LEAVE_LOOKS
    }
}

/// Time between two looks: a connection is closed when it is overdue, and at most half as late
/// again.
pub(super) fn pace(limits: &Limits) -> Duration {
    (limits.header.min(limits.idle) / 4).max(LOOK_MIN)
}

/// The open connections of one core. One thread's only, so its lock is never contended.
#[derive(Debug, Default)]
pub(super) struct Open {
    activities: Mutex<Slab<Arc<Activity>>>,
    looks: Arc<AtomicU64>,
}

impl Open {
    fn activities(&self) -> MutexGuard<'_, Slab<Arc<Activity>>> {
        self.activities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new connection, by its key.
    pub(super) fn enter(&self) -> (usize, Arc<Activity>) {
        let activity = Arc::new(Activity::new(&self.looks));
        (self.activities().insert(Arc::clone(&activity)), activity)
    }

    /// A connection has ended.
    pub(super) fn leave(&self, key: usize) {
        self.activities().remove(key);
    }

    /// One look: ends every connection that has kept us waiting too long.
    pub(super) fn look(&self, limits: &Limits) {
        self.looks.fetch_add(1, Ordering::Relaxed);
        for (_, activity) in &*self.activities() {
            if activity.is_overdue(limits) {
                activity.tell(Told::End);
            }
        }
    }

    /// The server stops: every connection ends behind the request that it has.
    pub(super) fn finish(&self) {
        for (_, activity) in &*self.activities() {
            activity.tell(Told::Finish);
        }
    }

    /// One look while the server stops: ends every connection that has no request and whose last
    /// answer had its time to leave.
    pub(super) fn end_quiet(&self) {
        for (_, activity) in &*self.activities() {
            if activity.is_quiet() {
                activity.tell(Told::End);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Wake;

    use super::*;

    fn limits() -> Limits {
        let second = Duration::from_secs(1);
        Limits {
            connections: 1,
            connections_per_address: 1,
            header: 4 * second,
            body: second,
            idle: 8 * second,
            drain: second,
        }
    }

    fn looks_until_told(open: &Open, activity: &Activity) -> u32 {
        (1..1_000).find(|_| (open.look(&limits()), activity.told()).1 == Told::End).unwrap()
    }

    #[test]
    fn a_connection_is_ended_when_it_is_overdue_and_not_much_later() {
        assert_eq!(pace(&limits()), Duration::from_secs(1));
        for (set, seconds) in
            [(Activity::received as fn(&Activity), 4), (Activity::idle, 8), (Activity::answering, 61)]
        {
            let open = Open::default();
            open.look(&limits());
            let (_, activity) = open.enter();
            set(&activity);
            // The state began within one look, so its age is known to within one.
            assert_eq!(looks_until_told(&open, &activity), seconds + 1);
        }
    }

    #[test]
    fn a_new_head_gets_its_own_time() {
        let open = Open::default();
        let (_, activity) = open.enter();
        for _ in 0..3 {
            open.look(&limits());
        }
        activity.answering();
        activity.idle();
        activity.received();
        activity.received();
        assert_eq!(looks_until_told(&open, &activity), 5);
    }

    #[derive(Default)]
    struct Wakes(AtomicU64);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn everything_that_a_connection_is_told_wakes_it() {
        let open = Open::default();
        let (_, activity) = open.enter();
        let wakes = Arc::new(Wakes::default());
        activity.wakes(&Waker::from(Arc::clone(&wakes)));
        open.finish();
        assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
        for _ in 0..LEAVE_LOOKS {
            open.end_quiet();
        }
        assert_eq!((activity.told(), wakes.0.load(Ordering::Relaxed)), (Told::End, 2));
        for _ in 0..1_000 {
            open.end_quiet();
        }
    }

    #[test]
    fn a_stopping_server_waits_for_answers_and_a_little_for_their_leaving() {
        let open = Open::default();
        let (key, activity) = open.enter();
        open.finish();
        assert_eq!(activity.told(), Told::Finish);
        activity.answering();
        for _ in 0..100 {
            open.end_quiet();
        }
        assert_eq!(activity.told(), Told::Finish);
        activity.idle();
        for _ in 0..LEAVE_LOOKS {
            assert_eq!(activity.told(), Told::Finish);
            open.end_quiet();
        }
        assert_eq!(activity.told(), Told::End);
        open.leave(key);
        assert!(open.activities().is_empty());
    }
}
