//! Watch: the gateway's picture of the sales, and whether new orders can be taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::shedding::Shedding;
use super::{Backends, Step, Watchdog, Worker};
use crate::clock::Timestamp;
use crate::delivery::Position;
use crate::fault::{BackendError, Fault, Layer};
use crate::gate::Limits;
use crate::member::Level;
use crate::order::Epoch;
use crate::sale::Catalog;
use crate::stock::BucketId;
use crate::switches::{SwitchName, Switches};
use crate::told::Told;

/// When new orders are refused as BUSY, and when they are taken again.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Refuse when this many orders wait in the queue; taken again below half of it.
    pub queue_lag_max: u64,
    /// Refuse when the oldest outbox entry is older; taken again below half of it.
    pub outbox_age_max: Duration,
    /// Refuse when the ledger has answered nothing for longer; taken again at its next answer.
    pub ledger_silence_max: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            queue_lag_max: 200_000,
            outbox_age_max: Duration::from_secs(30),
            ledger_silence_max: Duration::from_secs(30),
        }
    }
}

/// What rounding to milliseconds may make of two equal clocks.
const CLOCK_GRAIN_MS: u64 = 2;

/// A difference that somebody should mend.
const CLOCK_WARNING_MS: u64 = 100;

/// Longest wait for one answer in a look: who is silent for longer is judged as silent, and holds up no
/// judgement of the others.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// Whether new orders are refused because something behind the gate is too far behind, or the staff says so.
#[derive(Debug, Default)]
pub struct Backpressure {
    busy: AtomicBool,
    cause: ArcSwapOption<String>,
    /// By the staff's word.
    paused: AtomicBool,
    /// When the ledger answered the watch last, in milliseconds of the monotonic clock.
    ledger_heard_ms: AtomicU64,
    shedding: Shedding,
}

impl Backpressure {
    /// The same, which refuses users of low levels first.
    pub fn shedding_by(shedding: Shedding) -> Self {
        Self { shedding, ..Self::default() }
    }

    /// Who is refused first.
    pub fn shedding(&self) -> &Shedding {
        &self.shedding
    }

    /// The lowest level of which orders are taken; nothing while none are.
    pub fn taken_from(&self) -> Option<Level> {
        (!self.is_on()).then(|| self.shedding.taken_from())
    }

    /// Whether to refuse new orders now.
    pub fn is_on(&self) -> bool {
        self.busy.load(Ordering::Relaxed) || self.paused.load(Ordering::Relaxed)
    }

    /// What is too far behind, in words for the staff. A pause of the staff's is none: all else goes on.
    pub fn cause(&self) -> Option<String> {
        self.cause.load_full().map(|cause| cause.as_ref().clone())
    }

    fn set(&self, cause: Option<String>) {
        self.busy.store(cause.is_some(), Ordering::Relaxed);
        self.cause.store(cause.map(Arc::new));
    }

    fn pause(&self, paused: bool) {
        if self.paused.swap(paused, Ordering::Relaxed) != paused {
            tracing::warn!(paused, "by the staff's word no new orders are taken while this is on");
        }
    }

    /// How long the ledger has answered nothing, at `now` of the monotonic clock.
    pub fn ledger_silence(&self, now: Duration) -> Duration {
        now.saturating_sub(Duration::from_millis(self.ledger_heard_ms.load(Ordering::Relaxed)))
    }

    fn note_ledger_heard(&self, at: Duration) {
        self.ledger_heard_ms.store(u64::try_from(at.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

/// What is asked of a stage, or that it did not answer in time.
async fn in_time<T>(
    layer: Layer,
    asked: impl Future<Output = Result<T, BackendError>>,
) -> Result<T, BackendError> {
    let silent = || BackendError::new(layer, Fault::Transient, "it does not answer the watch in time");
    tokio::time::timeout(ANSWER_MAX, asked).await.unwrap_or_else(|_| Err(silent()))
}

/// Keeps the catalog fresh and the backpressure true.
pub struct Watch {
    backends: Backends,
    catalog: Arc<ArcSwap<Catalog>>,
    backpressure: Arc<Backpressure>,
    limits: WatchLimits,
    /// The recorder's positions as they were last known.
    recorded: Vec<Position>,
    watchdog: Option<Arc<Watchdog>>,
    gate_limits: Option<Arc<Limits>>,
    rounds: Rounds,
    clock_told: Told,
}

impl Watch {
    /// A watch that writes into `catalog` and `backpressure`.
    pub fn new(
        backends: Backends,
        catalog: Arc<ArcSwap<Catalog>>,
        backpressure: Arc<Backpressure>,
        limits: WatchLimits,
    ) -> Self {
        // Its first answer is awaited from here on.
        backpressure.note_ledger_heard(backends.clock.monotonic());
        Self {
            backends,
            catalog,
            backpressure,
            limits,
            recorded: Vec::new(),
            watchdog: None,
            gate_limits: None,
            rounds: Rounds::default(),
            clock_told: Told::default(),
        }
    }

    /// The same, which also tells `watchdog` how many orders wait.
    #[must_use]
    pub fn telling(self, watchdog: Option<Arc<Watchdog>>) -> Self {
        Self { watchdog, ..self }
    }

    /// The same, which also holds a gate's limits to what the staff has turned.
    #[must_use]
    pub fn turning(self, limits: Option<Arc<Limits>>) -> Self {
        Self { gate_limits: limits, ..self }
    }

    /// Reads the sales and the switches, and replaces the catalog.
    ///
    /// # Errors
    /// What the ledger reports; the old catalog stays.
    pub async fn refresh(&self) -> Result<(), BackendError> {
        loop {
            let before = self.catalog.load_full();
            let ledger = &self.backends.ledger;
            let (sales, turned) = tokio::try_join!(ledger.sales(), ledger.switches())?;
            let switches = Arc::new(Switches::new(&turned));
            // Several watches write into one catalog; what one has seen of the clock, the others keep.
            let read = Catalog::new(sales).with_switches(switches).with_stock_ahead(before.stock_ahead_ms());
            let read = Arc::new(read);
            // If another one stored meanwhile, what was read here may be the older of the two.
            let found = self.catalog.compare_and_swap(&before, read);
            if Arc::ptr_eq(&found, &before) {
                // At once: what else a look asks may hang. By what stands now, which another watch may have read.
                let catalog = self.catalog.load();
                self.backpressure.pause(catalog.switches().is_paused());
                if let Some(limits) = &self.gate_limits {
                    limits.hold_to(catalog.switches());
                }
                return Ok(());
            }
        }
    }

    /// Orders published and not yet recorded.
    ///
    /// # Errors
    /// What the ledger or the queue reports.
    pub async fn lag(&self) -> Result<u64, BackendError> {
        let positions = self.backends.ledger.positions().await?;
        Ok(behind(&positions, &self.backends.queue.end_positions().await?))
    }

    /// The age of the oldest outbox entry, and how far the stock's clock is ahead of ours.
    async fn look_at_stock(&self) -> Result<(Duration, i64), BackendError> {
        let Backends { stock, clock, .. } = &self.backends;
        let (mut oldest, mut ahead_ms) = (Duration::ZERO, 0);
        let mut fault = None;
        for sale in self.catalog.load_full().sales() {
            let begun = clock.now();
            if sale.epoch == Epoch(0) || sale.is_settled(begun) {
                continue;
            }
            let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
            match stock.level(bucket).await {
                Ok(Some(level)) => {
                    oldest =
                        oldest.max(level.oldest_unconfirmed.map_or(Duration::ZERO, |at| level.now.since(at)));
                    ahead_ms = difference_ms(begun, level.now, clock.now());
                }
                Ok(None) => {}
                Err(error) => fault = Some(error),
            }
        }
        match fault {
            // An old entry that was seen counts, whatever could not be seen.
            Some(error) if oldest.is_zero() => Err(error),
            _ => Ok((oldest, ahead_ms)),
        }
    }
}

/// How far another clock is ahead, which was read between two looks at ours. What the time between the
/// looks explains is no difference.
fn difference_ms(begun: Timestamp, theirs: Timestamp, ended: Timestamp) -> i64 {
    let half = ended.as_ms().saturating_sub(begun.as_ms()) / 2;
    let difference = theirs.as_ms().saturating_sub(begun.as_ms().saturating_add(half));
    if difference.unsigned_abs() <= half.unsigned_abs() + CLOCK_GRAIN_MS { 0 } else { difference }
}

#[async_trait]
impl Worker for Watch {
    fn name(&self) -> &'static str {
        "watch"
    }

    /// What cannot be asked leaves the others to decide: with the ledger down, the lag grows from where
    /// it was last known, and the outbox grows old.
    async fn step(&mut self) -> Result<Step, BackendError> {
        let Backends { ledger, queue, .. } = &self.backends;
        let (refreshed, positions, ends, stock) = tokio::join!(
            in_time(Layer::Ledger, self.refresh()),
            in_time(Layer::Ledger, ledger.positions()),
            in_time(Layer::Queue, queue.end_positions()),
            in_time(Layer::Stock, self.look_at_stock()),
        );
        let now = self.backends.clock.monotonic();
        if let Ok(positions) = &positions {
            self.recorded.clone_from(positions);
            self.backpressure.note_ledger_heard(now);
        }
        let age = stock.as_ref().ok().map(|(age, _)| *age);
        let lag = ends.as_ref().ok().map(|ends| behind(&self.recorded, ends));
        self.judge(&Pressure {
            queue_lag: lag,
            outbox_age: age,
            ledger_silence: self.backpressure.ledger_silence(now),
        });
        if let (Some(watchdog), Some(lag)) = (&self.watchdog, lag) {
            watchdog.note_waiting(lag, self.recorded.iter().map(|it| it.next).sum());
        }
        if let Ok((_, ahead_ms)) = stock {
            self.note_stock_ahead(ahead_ms);
        }
        // It never waits longer for a fault: when what is down comes back, the sales are seen at once.
        let mut round = Round::default();
        round.note(Ok(0));
        for result in [refreshed, positions.map(drop), ends.map(drop), stock.map(drop)] {
            round.note(result.map(|()| 0));
        }
        self.rounds.end(round, self.name())
    }
}

impl Watch {
    /// Gates go by the stock's clock from now on.
    fn note_stock_ahead(&self, ahead_ms: i64) {
        let catalog = self.catalog.load_full();
        if catalog.stock_ahead_ms() == ahead_ms {
            return;
        }
        if ahead_ms.unsigned_abs() >= CLOCK_WARNING_MS && self.clock_told.due(1).is_some() {
            tracing::warn!(
                ahead_ms,
                "the stock's clock, which decides when a sale opens, and this machine's differ: set both by NTP"
            );
        }
        let sales = catalog.sales().iter().map(|sale| sale.as_ref().clone()).collect();
        // Whoever stored meanwhile has newer sales; the next look notes the clock in them.
        let noted = Catalog::new(sales).with_switches(Arc::clone(catalog.switches()));
        self.catalog.compare_and_swap(&catalog, Arc::new(noted.with_stock_ahead(ahead_ms)));
    }

    fn judge(&self, seen: &Pressure) {
        let switches = Arc::clone(self.catalog.load().switches());
        let was = self.backpressure.cause();
        let was_busy = was.is_some();
        let limits = self.limits.under(&switches);
        // What cannot be asked makes it no better.
        let unknown = seen.queue_lag.is_none() || seen.outbox_age.is_none();
        let floor = if unknown { self.backpressure.shedding.pressure_percent() } else { 0 };
        self.backpressure.shedding.set(limits.share_of(seen).max(floor));
        let cause = limits.passed_by(seen, was_busy).or({
            // What cannot be asked leaves it as it was.
            if unknown { was } else { None }
        });
        let busy = cause.is_some();
        if busy != was_busy {
            tracing::warn!(
                busy,
                cause,
                queue.lag = seen.queue_lag,
                outbox.age_ms = seen.outbox_age.map(|age| age.as_millis()),
                ledger.silent_ms = seen.ledger_silence.as_millis(),
                "new orders are refused as BUSY while this is on"
            );
        }
        self.backpressure.set(cause);
    }
}

/// What one look found; `None` is what could not be asked.
#[derive(Clone, Copy, Debug)]
struct Pressure {
    queue_lag: Option<u64>,
    outbox_age: Option<Duration>,
    ledger_silence: Duration,
}

impl WatchLimits {
    /// The same with what the staff has turned.
    fn under(self, switches: &Switches) -> Self {
        let silence = switches.time(SwitchName::LedgerSilenceMax);
        Self {
            queue_lag_max: switches.number(SwitchName::QueueLagMax).map_or(self.queue_lag_max, u64::from),
            outbox_age_max: switches.time(SwitchName::OutboxAgeMax).unwrap_or(self.outbox_age_max),
            ledger_silence_max: silence.unwrap_or(self.ledger_silence_max),
        }
    }

    /// The worst of what was seen, in percent of its limit.
    fn share_of(&self, seen: &Pressure) -> u32 {
        let percent = |value: u128, limit: u128| {
            let percent = value.saturating_mul(100) / limit.max(1);
            u32::try_from(percent).unwrap_or(u32::MAX)
        };
        let lag = seen.queue_lag.map_or(0, |lag| percent(lag.into(), self.queue_lag_max.into()));
        let age = seen.outbox_age.map_or(0, |age| percent(age.as_millis(), self.outbox_age_max.as_millis()));
        let silence = percent(seen.ledger_silence.as_millis(), self.ledger_silence_max.as_millis());
        lag.max(age).max(silence)
    }

    /// Which limit is passed, in words. Half the limit to come back: a value that hovers around the limit
    /// does not flap. A ledger that answers is no longer silent.
    fn passed_by(&self, seen: &Pressure, was: bool) -> Option<String> {
        let share = if was { 2 } else { 1 };
        let lag = seen.queue_lag.filter(|&lag| lag > self.queue_lag_max / u64::from(share));
        let age = seen.outbox_age.filter(|&age| age > self.outbox_age_max / share);
        let silence = Some(seen.ledger_silence).filter(|&silence| silence > self.ledger_silence_max);
        silence
            .map(|silence| format!("the ledger has not answered for {} s", silence.as_secs()))
            .or_else(|| lag.map(|lag| format!("{lag} orders wait to be recorded")))
            .or_else(|| age.map(|age| format!("an order has waited to be recorded for {} s", age.as_secs())))
    }
}

fn behind(positions: &[Position], ends: &[Position]) -> u64 {
    let behind = ends.iter().map(|end| {
        let next = positions.iter().find(|it| it.topic == end.topic && it.partition == end.partition);
        end.next.saturating_sub(next.map_or(0, |it| it.next))
    });
    behind.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_refused_from_a_limit_on_and_taken_again_at_half_of_it() {
        let s = Duration::from_secs;
        let limits = WatchLimits { queue_lag_max: 100, outbox_age_max: s(30), ledger_silence_max: s(20) };
        let calm = Pressure { queue_lag: Some(0), outbox_age: Some(s(0)), ledger_silence: s(0) };
        for (seen, from_calm, from_busy) in [
            (calm, false, false),
            (Pressure { queue_lag: Some(101), ..calm }, true, true),
            (Pressure { queue_lag: Some(51), ..calm }, false, true),
            (Pressure { queue_lag: Some(50), ..calm }, false, false),
            (Pressure { outbox_age: Some(s(31)), ..calm }, true, true),
            (Pressure { outbox_age: Some(s(16)), ..calm }, false, true),
            (Pressure { outbox_age: Some(s(15)), ..calm }, false, false),
            (Pressure { ledger_silence: s(21), ..calm }, true, true),
            (Pressure { ledger_silence: s(20), ..calm }, false, false),
        ] {
            assert_eq!(limits.passed_by(&seen, false).is_some(), from_calm, "{seen:?}");
            assert_eq!(limits.passed_by(&seen, true).is_some(), from_busy, "{seen:?}");
        }
    }

    #[test]
    fn the_pressure_is_the_worst_value_in_percent_of_its_limit() {
        let s = Duration::from_secs;
        let limits = WatchLimits { queue_lag_max: 200, outbox_age_max: s(30), ledger_silence_max: s(20) };
        let calm = Pressure { queue_lag: Some(0), outbox_age: Some(s(0)), ledger_silence: s(0) };
        for (seen, percent) in [
            (calm, 0),
            (Pressure { queue_lag: Some(150), ..calm }, 75),
            (Pressure { queue_lag: Some(20), outbox_age: Some(s(15)), ..calm }, 50),
            (Pressure { queue_lag: None, ledger_silence: s(19), ..calm }, 95),
            (Pressure { queue_lag: Some(u64::MAX), ..calm }, u32::MAX),
        ] {
            assert_eq!(limits.share_of(&seen), percent, "{seen:?}");
        }
        let none = WatchLimits { queue_lag_max: 0, ..limits };
        assert_eq!(none.share_of(&Pressure { queue_lag: Some(1), ..calm }), 100);
    }

    #[test]
    fn only_what_the_journey_does_not_explain_is_a_difference() {
        let at = Timestamp::from_ms;
        assert_eq!(difference_ms(at(1_000), at(1_005), at(1_010)), 0);
        assert_eq!(
            difference_ms(at(1_000), at(1_012), at(1_010)),
            0,
            "the reply may have taken all of the time"
        );
        assert_eq!(difference_ms(at(1_000), at(31_005), at(1_010)), 30_000);
        assert_eq!(difference_ms(at(31_000), at(1_005), at(31_010)), -30_000);
    }
}
