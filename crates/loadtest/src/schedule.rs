//! When which user clicks: the part of a storm that its seed decides.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::plan::Plan;

/// One click that is due, first or again. Moments are microseconds after the first possible click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Click {
    /// The intended moment of the click itself; a retry keeps it.
    pub(crate) at_us: u32,
    /// The user's place in the storm, `0..users`.
    pub(crate) user: u32,
    /// How often this click was sent before.
    pub(crate) retries: u16,
    /// Whether it is an impatient user's second click.
    pub(crate) second: bool,
}

/// A click that waits for its next attempt.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Waiting {
    due_us: u32,
    at_us: u32,
    user: u32,
    retries: u16,
    second: bool,
}

/// The clicks of one generator thread, in the order of their moments.
pub(crate) struct Schedule {
    clicks: Vec<Click>,
    next: usize,
    /// Bounded by the clicks: a click is in flight, waiting here, or done.
    waiting: BinaryHeap<Reverse<Waiting>>,
    in_flight: usize,
}

impl Schedule {
    /// The share of thread `thread` of `plan.threads`: the users whose place leaves that remainder.
    pub(crate) fn of_thread(plan: &Plan, thread: usize) -> Self {
        let users = u32::try_from(plan.users).unwrap_or(u32::MAX);
        let firsts = (users as usize).div_ceil(plan.threads.max(1));
        let mut clicks = Vec::with_capacity(firsts + firsts / 16);
        for user in (0..users).skip(thread).step_by(plan.threads.max(1)) {
            let number = plan.first_user + u64::from(user);
            let first = Click { at_us: moment_us(plan, number), user, retries: 0, second: false };
            clicks.push(first);
            if is_impatient(plan, number) {
                let later_us = 100_000 + below(mix(plan.seed, number, Draw::SecondClick), 500_001);
                clicks.push(Click { at_us: first.at_us.saturating_add(later_us), second: true, ..first });
            }
        }
        clicks.sort_unstable_by_key(|click| (click.at_us, click.user));
        Self { clicks, next: 0, waiting: BinaryHeap::new(), in_flight: 0 }
    }

    /// How many clicks there are, retries not counted.
    pub(crate) fn clicks(&self) -> usize {
        self.clicks.len()
    }

    /// How many clicks were taken at least once.
    pub(crate) fn begun(&self) -> usize {
        self.next
    }

    /// Whether every click was taken at least once.
    pub(crate) fn all_begun(&self) -> bool {
        self.next == self.clicks.len()
    }

    /// How many clicks wait for their next attempt.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether every click has its final answer.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.clicks.len() && self.waiting.is_empty() && self.in_flight == 0
    }

    /// The moment of the next click or retry.
    pub(crate) fn next_due_us(&self) -> Option<u32> {
        let click = self.clicks.get(self.next).map(|click| click.at_us);
        let retry = self.waiting.peek().map(|Reverse(waiting)| waiting.due_us);
        match (click, retry) {
            (Some(click), Some(retry)) => Some(click.min(retry)),
            (one, other) => one.or(other),
        }
    }

    /// How many clicks are due, counted up to `enough` (retries are counted as one).
    pub(crate) fn due(&self, now_us: u32, enough: usize) -> usize {
        let clicks =
            self.clicks[self.next..].iter().take(enough).take_while(|click| click.at_us <= now_us).count();
        let retry = self.waiting.peek().is_some_and(|Reverse(waiting)| waiting.due_us <= now_us);
        (clicks + usize::from(retry)).min(enough)
    }

    /// Takes the click or retry that has been due longest, to be ended by [`done`](Self::done) or
    /// [`again`](Self::again).
    pub(crate) fn take_due(&mut self, now_us: u32) -> Option<Click> {
        let due_us = self.next_due_us().filter(|due_us| *due_us <= now_us)?;
        self.in_flight += 1;
        let is_retry = self.waiting.peek().is_some_and(|Reverse(waiting)| waiting.due_us == due_us);
        if is_retry && let Some(Reverse(waiting)) = self.waiting.pop() {
            return Some(Click {
                at_us: waiting.at_us,
                user: waiting.user,
                retries: waiting.retries,
                second: waiting.second,
            });
        }
        let click = self.clicks[self.next];
        self.next += 1;
        Some(click)
    }

    /// The click has its final answer.
    pub(crate) fn done(&mut self) {
        self.in_flight -= 1;
    }

    /// The click is to be sent again at `due_us`.
    pub(crate) fn again(&mut self, click: Click, due_us: u32) {
        self.in_flight -= 1;
        self.waiting.push(Reverse(Waiting {
            due_us,
            at_us: click.at_us,
            user: click.user,
            retries: click.retries.saturating_add(1),
            second: click.second,
        }));
    }
}

/// What a random number is drawn for: draws for different purposes are independent.
#[derive(Clone, Copy)]
enum Draw {
    Moment = 1,
    Impatient = 2,
    SecondClick = 3,
    Item = 4,
    Jitter = 5,
    Life = 6,
}

/// A number drawn for one user, from the seed alone.
///
/// `splitmix64`'s finalizer, written out: the generators of the `rand` crate may change their
/// sequence between versions, and a seed in an old report must give the same storm again.
fn mix(seed: u64, number: u64, draw: Draw) -> u64 {
    let mut state = seed;
    for part in [number, draw as u64] {
        state = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}

/// Maps a random number evenly to `0..bound`; 0 when the bound is 0.
fn below(random: u64, bound: u32) -> u32 {
    let scaled = (u128::from(random) * u128::from(bound)) >> 64;
    u32::try_from(scaled).unwrap_or(0)
}

fn moment_us(plan: &Plan, number: u64) -> u32 {
    let window_us = u32::try_from(plan.window.as_micros()).unwrap_or(u32::MAX);
    below(mix(plan.seed, number, Draw::Moment), window_us)
}

fn is_impatient(plan: &Plan, number: u64) -> bool {
    let share_ppm = 1_000_000.0 * plan.impatient;
    f64::from(below(mix(plan.seed, number, Draw::Impatient), 1_000_000)) < share_ppm
}

/// Which of `items` items user `number` wants.
pub(crate) fn item_of(plan: &Plan, number: u64, items: usize) -> usize {
    let items = u32::try_from(items).unwrap_or(u32::MAX);
    below(mix(plan.seed, number, Draw::Item), items) as usize
}

/// A number of 0 to 99 that decides what user `number` does after the storm.
pub(crate) fn life_percent(seed: u64, number: u64) -> u32 {
    below(mix(seed, number, Draw::Life), 100)
}

/// How long to wait before a retry: what the server asked for, plus up to a quarter and 50 ms, so
/// that the refused do not come back together.
pub(crate) fn pause_us(plan: &Plan, number: u64, retries: u16, asked_s: u64) -> u64 {
    let asked_us = asked_s.saturating_mul(1_000_000);
    let spread = u32::try_from(asked_us / 4 + 50_000).unwrap_or(u32::MAX);
    let random = mix(plan.seed ^ u64::from(retries).rotate_left(32), number, Draw::Jitter);
    asked_us.saturating_add(u64::from(below(random, spread)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Click, Schedule, item_of};
    use crate::{Plan, TokenSigner};

    fn plan(seed: u64) -> Plan {
        let tokens = TokenSigner::with_defaults(b"secret").unwrap();
        Plan {
            seed,
            threads: 2,
            impatient: 0.1,
            ..Plan::new(vec!["http://127.0.0.1:1".to_owned()], "1", 10_000, tokens)
        }
    }

    fn all(plan: &Plan) -> Vec<Click> {
        (0..plan.threads).flat_map(|thread| Schedule::of_thread(plan, thread).clicks).collect()
    }

    #[test]
    fn same_seed_gives_same_schedule_and_another_seed_another() {
        assert_eq!(all(&plan(7)), all(&plan(7)));
        assert_ne!(all(&plan(7)), all(&plan(8)));
    }

    #[test]
    fn number_of_threads_does_not_change_who_clicks_when() {
        let sorted = |threads| {
            let mut clicks = all(&Plan { threads, ..plan(7) });
            clicks.sort_unstable_by_key(|click| (click.at_us, click.user));
            clicks
        };
        assert_eq!(sorted(1), sorted(3));
    }

    #[test]
    fn every_user_clicks_once_within_the_window_and_a_share_twice() {
        let clicks = all(&plan(3));
        let first: Vec<_> = clicks.iter().filter(|click| !click.second).collect();
        assert_eq!(first.len(), 10_000);
        assert!(first.iter().all(|click| click.at_us < 2_000_000));
        let early = first.iter().filter(|click| click.at_us < 500_000).count();
        assert!((2_300..2_700).contains(&early), "{early}");
        let second = clicks.len() - first.len();
        assert!((900..1_100).contains(&second), "{second}");
    }

    #[test]
    fn items_are_picked_evenly() {
        let plan = plan(3);
        let mut counts = [0; 4];
        for number in 0..10_000 {
            counts[item_of(&plan, number, 4)] += 1;
        }
        assert!(counts.iter().all(|count| (2_300..2_700).contains(count)), "{counts:?}");
    }

    #[test]
    fn retries_come_back_between_the_clicks_and_the_end_needs_them_all() {
        let plan = Plan { users: 2, threads: 1, impatient: 0.0, window: Duration::ZERO, ..plan(1) };
        let mut schedule = Schedule::of_thread(&plan, 0);
        assert_eq!(schedule.due(0, 9), 2);
        let first = schedule.take_due(0).unwrap();
        let second = schedule.take_due(0).unwrap();
        assert_eq!((first.user, second.user), (0, 1));
        schedule.again(first, 50);
        schedule.done();
        assert!(!schedule.is_done());
        assert_eq!((schedule.take_due(49), schedule.next_due_us()), (None, Some(50)));
        assert_eq!(schedule.take_due(50).unwrap().retries, 1);
        schedule.done();
        assert!(schedule.is_done());
    }
}
