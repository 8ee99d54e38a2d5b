//! Watch: the gateway's picture of the sales, and whether new orders can be taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::clock::Timestamp;
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::order::Epoch;
use crate::sale::Catalog;
use crate::stock::BucketId;

/// When new orders are refused as BUSY, and when they are taken again.
#[derive(Clone, Copy, Debug)]
pub struct WatchLimits {
    /// Refuse when this many orders wait in the queue; taken again below half of it.
    pub queue_lag_max: u64,
    /// Refuse when the oldest outbox entry is older; taken again below half of it.
    pub outbox_age_max: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self { queue_lag_max: 200_000, outbox_age_max: Duration::from_secs(30) }
    }
}

/// What rounding to milliseconds may make of two equal clocks.
const CLOCK_GRAIN_MS: u64 = 2;

/// A difference that somebody should mend.
const CLOCK_WARNING_MS: u64 = 100;

/// Whether new orders are refused because something behind the gate is too far behind.
#[derive(Debug, Default)]
pub struct Backpressure {
    busy: AtomicBool,
}

impl Backpressure {
    /// Whether to refuse new orders now.
    pub fn is_on(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }
}

/// Keeps the catalog fresh and the backpressure true.
pub struct Watch {
    backends: Backends,
    catalog: Arc<ArcSwap<Catalog>>,
    backpressure: Arc<Backpressure>,
    limits: WatchLimits,
    /// The recorder's positions as they were last known.
    recorded: Vec<Position>,
    rounds: Rounds,
}

impl Watch {
    /// A watch that writes into `catalog` and `backpressure`.
    pub fn new(
        backends: Backends,
        catalog: Arc<ArcSwap<Catalog>>,
        backpressure: Arc<Backpressure>,
        limits: WatchLimits,
    ) -> Self {
        Self { backends, catalog, backpressure, limits, recorded: Vec::new(), rounds: Rounds::default() }
    }

    /// Reads the sales and replaces the catalog.
    ///
    /// # Errors
    /// What the ledger reports; the old catalog stays.
    pub async fn refresh(&self) -> Result<(), BackendError> {
        loop {
            let before = self.catalog.load_full();
            let sales = self.backends.ledger.sales().await?;
            // Several watches write into one catalog; what one has seen of the clock, the others keep.
            let read = Arc::new(Catalog::new(sales).with_stock_ahead(before.stock_ahead_ms()));
            // If another one stored meanwhile, what was read here may be the older of the two.
            let found = self.catalog.compare_and_swap(&before, read);
            if Arc::ptr_eq(&found, &before) {
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
        let refreshed = self.refresh().await;
        let positions = self.backends.ledger.positions().await;
        if let Ok(positions) = &positions {
            self.recorded.clone_from(positions);
        }
        let (ends, stock) = (self.backends.queue.end_positions().await, self.look_at_stock().await);
        let age = stock.as_ref().ok().map(|(age, _)| *age);
        self.judge(ends.as_ref().ok().map(|ends| behind(&self.recorded, ends)), age);
        if let Ok((_, ahead_ms)) = stock {
            self.note_stock_ahead(ahead_ms);
        }
        // It never waits longer for a fault: when what is down comes back, the sales are seen at once.
        let mut round = Round::default();
        round.note(Ok(0));
        for result in [refreshed, positions.map(drop), ends.map(drop), stock.map(drop)] {
            round.note(result.map(|()| 0));
        }
        self.rounds.end(round, "watch", self.backends.clock.as_ref())
    }
}

impl Watch {
    /// Gates go by the stock's clock from now on.
    fn note_stock_ahead(&self, ahead_ms: i64) {
        let catalog = self.catalog.load_full();
        if catalog.stock_ahead_ms() == ahead_ms {
            return;
        }
        if ahead_ms.unsigned_abs() >= CLOCK_WARNING_MS {
            tracing::warn!(
                ahead_ms,
                "the stock's clock, which decides when a sale opens, and this machine's differ: set both by NTP"
            );
        }
        let sales = catalog.sales().iter().map(|sale| sale.as_ref().clone()).collect();
        // Whoever stored meanwhile has newer sales; the next look notes the clock in them.
        self.catalog.compare_and_swap(&catalog, Arc::new(Catalog::new(sales).with_stock_ahead(ahead_ms)));
    }

    /// Half the limit to come back: a value that hovers around the limit does not flap.
    fn judge(&self, lag: Option<u64>, age: Option<Duration>) {
        let was = self.backpressure.is_on();
        let share = if was { 2 } else { 1 };
        let busy = lag.map_or(was, |lag| lag > self.limits.queue_lag_max / share)
            || age.map_or(was, |age| {
                age.as_millis() > self.limits.outbox_age_max.as_millis() / u128::from(share)
            });
        self.backpressure.busy.store(busy, Ordering::Relaxed);
        if busy != was {
            tracing::warn!(
                busy,
                queue.lag = lag,
                outbox.age_ms = age.map(|age| age.as_millis()),
                "new orders are refused as BUSY while this is on"
            );
        }
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
