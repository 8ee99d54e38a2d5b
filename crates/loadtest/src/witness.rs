//! What the clients of a storm saw, put together from its threads and from several waves.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use doorbuster_wire::SaleView;
use hdrhistogram::Histogram;
use tokio::time::Instant;

use crate::campaign::Campaign;
use crate::course::{Course, Taken};
use crate::machine::Machine;
use crate::tally::{ACCEPTED, HELD, NONE, SeenOrder, Tally, Words, new_histogram};
use crate::timeline::Timeline;

/// Clicks sent later than this (99th percentile) are called late: ten times what the timers' grain
/// explains.
const LATE_US: u64 = 20_000;
/// The word of a user whose click was cut short by a fault of the generator itself.
const UNFINISHED: &str = "UNFINISHED";
/// A generator that was busy for this share of the rush was the bottleneck, not the server.
const BUSY: f64 = 0.8;

/// What the buyers of one or more storms saw. Nothing in it comes from the server's own counters.
#[derive(Clone, Debug)]
pub struct Storm {
    /// Every 202 with a readable body, in the order of arrival.
    pub accepted: Vec<SeenOrder>,
    /// Orders that a 409 named to their user and no 202 of this storm did, each once: the 202 was
    /// lost on the way, or the answer was `OUTCOME_UNKNOWN`.
    pub held: Vec<SeenOrder>,
    /// Orders of winners who cancelled and bought again after the storm.
    pub again: Vec<SeenOrder>,
    /// Users of all waves; a user who took part in two waves counts twice.
    pub users: u64,
    /// Final answers of users without an order, by their `error` word. `INVALID` is an answer that
    /// cannot be read, `IMPATIENT` a user still put off by 429 or 503 when the patience ended,
    /// `UNREACHABLE` one whose last attempt brought no answer.
    pub rejected: BTreeMap<String, u64>,
    /// Latency of every answer by status code, in microseconds from the *intended* moment of its
    /// click: waiting for a free connection and earlier attempts are included. The counts are the
    /// numbers of answers.
    pub latency_us: BTreeMap<u16, Histogram<u64>>,
    /// Attempts that ended with a broken connection, or could not connect.
    pub broken: u64,
    /// Attempts without an answer within the time limit.
    pub timed_out: u64,
    /// Attempts after the first of their click.
    pub retries: u64,
    /// From the first possible click to the last answer of all waves.
    pub wall: Duration,
    /// How the generator itself did.
    pub pace: Pace,
    /// The plan's seed, of the first wave.
    pub seed: u64,
    /// How every wave went over time, in the order of the waves.
    pub courses: Vec<Course>,
    /// The wall clock at the first possible click, in seconds since 1970.
    pub started_epoch_secs: u64,
    /// Whether every gateway was on the generator's own machine, so that both shared its cores.
    pub over_loopback: bool,
    /// Where the generator ran.
    pub machine: Machine,
    started: Instant,
    sold_out_at: Option<Instant>,
    finals: Vec<Wave>,
}

/// Whether the clicks were sent when they were meant to be. Of several waves it describes the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Pace {
    /// Over how long the first clicks were to be spread.
    pub window: Duration,
    /// Connections, kept alive and open before the first click.
    pub connections: usize,
    /// Generator threads.
    pub threads: usize,
    /// Whether every user got a sale token before the first click.
    pub sale_tokens: bool,
    /// First clicks per second that the plan asked for; 0 for an empty window.
    pub intended_per_second: f64,
    /// First clicks per second from the first to the last that was sent.
    pub achieved_per_second: f64,
    /// How late a click was taken by a connection, 99th percentile, in microseconds. Timers have a
    /// grain of 1 ms, so 1,000 to 2,000 is on time.
    pub send_lag_us_p99: u64,
    /// The share of the rush, from the start to the last first attempt, in which the generator's
    /// threads ran or waited for a core, 0 to 1.
    pub generator_busy: f64,
    /// CPU time of all generator threads per attempt, in microseconds.
    pub cpu_us_per_attempt: f64,
}

impl Pace {
    /// Why the clicks came later than intended; `None` when they did not.
    pub fn bottleneck(&self) -> Option<String> {
        if self.send_lag_us_p99 < LATE_US {
            return None;
        }
        let lag_ms = self.send_lag_us_p99 / 1_000;
        Some(if self.generator_busy >= BUSY {
            format!(
                "the generator was short of CPU (its threads ran or waited for a core {:.0} % of \
                 the rush): 1 % of the clicks were sent {lag_ms} ms late or more",
                100.0 * self.generator_busy
            )
        } else {
            format!(
                "all {} connections were waiting for answers: 1 % of the clicks waited {lag_ms} ms \
                 or more for a free one",
                self.connections
            )
        })
    }
}

/// The final answers of one wave's users.
#[derive(Clone, Debug)]
struct Wave {
    first_user: u64,
    words: Vec<Words>,
    /// By thread; a user's thread is its place modulo the number of threads.
    finals: Vec<Vec<u8>>,
}

impl Storm {
    pub(crate) fn of_tallies(
        campaign: &Campaign,
        sale: &SaleView,
        started: Instant,
        tallies: Vec<Tally>,
    ) -> Self {
        let plan = &campaign.plan;
        let mut storm = Self {
            accepted: Vec::new(),
            held: Vec::new(),
            again: Vec::new(),
            users: plan.users,
            rejected: BTreeMap::new(),
            latency_us: BTreeMap::new(),
            broken: 0,
            timed_out: 0,
            retries: 0,
            wall: Duration::ZERO,
            pace: Pace::of_tallies(campaign, &tallies),
            seed: plan.seed,
            courses: Vec::new(),
            started_epoch_secs: campaign.epoch_secs,
            over_loopback: campaign.targets.iter().all(|target| target.address.ip().is_loopback()),
            machine: Machine::here(),
            started,
            sold_out_at: None,
            finals: Vec::new(),
        };
        let mut wave = Wave { first_user: plan.first_user, words: Vec::new(), finals: Vec::new() };
        let mut timeline = Timeline::default();
        for tally in tallies {
            timeline.add(&tally.timeline);
            storm.broken += tally.broken;
            storm.timed_out += tally.timed_out;
            storm.retries += tally.retries;
            storm.wall = storm.wall.max(Duration::from_micros(tally.last_answer_us));
            storm.accepted.extend(tally.accepted);
            storm.held.extend(tally.held);
            for (status, histogram) in tally.answers {
                storm.add_latency(status, &histogram);
            }
            for word in &tally.finals {
                let text = match *word {
                    ACCEPTED | HELD => continue,
                    NONE => UNFINISHED,
                    word => tally.words.text(word),
                };
                *storm.rejected.entry(text.to_owned()).or_default() += 1;
            }
            wave.words.push(tally.words);
            wave.finals.push(tally.finals);
        }
        storm.finals.push(wave);
        storm.accepted.sort_by_key(|seen| seen.at_us);
        storm.tidy_held();
        let taken = Taken::of_orders(sale, storm.accepted.iter().chain(&storm.held));
        let sold_out_us = taken.as_ref().and_then(Taken::sold_out_at_us);
        storm.sold_out_at = sold_out_us.map(|us| started + Duration::from_micros(us));
        storm.courses.push(Course::new(plan.users, storm.wall, timeline, taken.as_ref()));
        storm
    }

    /// Adds a later storm on the same sale. Its users are counted beside this one's.
    pub fn merge(&mut self, later: Storm) {
        let offset = later.started.saturating_duration_since(self.started);
        let offset_us = u64::try_from(offset.as_micros()).unwrap_or(u64::MAX);
        let shifted = |mut seen: SeenOrder| {
            seen.at_us = seen.at_us.saturating_add(offset_us);
            seen
        };
        self.accepted.extend(later.accepted.into_iter().map(shifted));
        self.held.extend(later.held.into_iter().map(shifted));
        self.again.extend(later.again.into_iter().map(shifted));
        self.tidy_held();
        self.users += later.users;
        for (word, count) in later.rejected {
            *self.rejected.entry(word).or_default() += count;
        }
        for (status, histogram) in &later.latency_us {
            self.add_latency(*status, histogram);
        }
        self.broken += later.broken;
        self.timed_out += later.timed_out;
        self.retries += later.retries;
        self.wall = self.wall.max(offset + later.wall);
        self.sold_out_at = self.sold_out_at.or(later.sold_out_at);
        self.finals.extend(later.finals);
        self.over_loopback &= later.over_loopback;
        self.courses.extend(later.courses.into_iter().map(|mut course| {
            course.begins_after += offset;
            course
        }));
    }

    /// From the first possible click to the arrival of the answer that named the last free unit's
    /// order, over all items; `None` when the buyers did not see all units go, when there were none
    /// to begin with, or when the sale hides its stock.
    pub fn sell_out_seconds(&self) -> Option<f64> {
        let at = self.sold_out_at?;
        Some(at.saturating_duration_since(self.started).as_secs_f64())
    }

    /// How many answers had this status code.
    pub fn answers(&self, status: u16) -> u64 {
        self.latency_us.get(&status).map_or(0, Histogram::len)
    }

    /// The final answer of the user with this number: `ACCEPTED`, `ALREADY_PURCHASED`, or the word
    /// under which [`rejected`](Self::rejected) counts it. `None` for a user of no wave; the first
    /// wave that has the user answers.
    pub fn final_answer(&self, user: u64) -> Option<&str> {
        self.finals.iter().find_map(|wave| {
            let place = usize::try_from(user.checked_sub(wave.first_user)?).ok()?;
            let threads = wave.finals.len();
            let thread = place.checked_rem(threads)?;
            let word = *wave.finals[thread].get(place / threads)?;
            (word != NONE).then(|| wave.words[thread].text(word))
        })
    }

    /// Every order id of [`accepted`](Self::accepted), each once.
    pub fn accepted_ids(&self) -> HashSet<&str> {
        self.accepted.iter().map(|seen| seen.order_id.as_str()).collect()
    }

    fn add_latency(&mut self, status: u16, histogram: &Histogram<u64>) {
        let all = self.latency_us.entry(status).or_insert_with(new_histogram);
        // Both have the same bounds, so nothing can lie outside.
        let _ = all.add(histogram);
    }

    /// Drops what was held and has the same user's 202 as well, and keeps the rest once per user.
    fn tidy_held(&mut self) {
        let key = |seen: &SeenOrder| (seen.order_id.clone(), seen.user_id.clone());
        if self.held.is_empty() {
            return;
        }
        let mut named: HashSet<_> = self.accepted.iter().map(key).collect();
        self.held.retain(|seen| named.insert(key(seen)));
    }
}

impl Pace {
    fn of_tallies(campaign: &Campaign, tallies: &[Tally]) -> Self {
        let plan = &campaign.plan;
        let mut send_lag = new_histogram();
        let mut busy = 0.0;
        let (mut first_us, mut last_us, mut cpu_us, mut attempts) = (u64::MAX, 0, 0, 0);
        for tally in tallies {
            let _ = send_lag.add(&tally.send_lag);
            busy += tally.busy;
            first_us = first_us.min(tally.first_send_us);
            last_us = last_us.max(tally.last_send_us);
            cpu_us += tally.cpu_us;
            attempts += tally.retries + tally.send_lag.len();
        }
        let per_second = |count: u64, seconds: f64| {
            if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
        };
        let took = Duration::from_micros(last_us.saturating_sub(first_us));
        Self {
            window: plan.window,
            connections: plan.connections,
            threads: plan.threads,
            sale_tokens: !campaign.token_paths.is_empty(),
            intended_per_second: per_second(plan.users, plan.window.as_secs_f64()),
            achieved_per_second: per_second(plan.users, took.as_secs_f64()),
            send_lag_us_p99: send_lag.value_at_quantile(0.99),
            generator_busy: busy / (tallies.len().max(1)) as f64,
            cpu_us_per_attempt: cpu_us as f64 / (attempts.max(1)) as f64,
        }
    }
}
