//! Watch: the gateway's picture of the sales, and whether new orders can be taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::{Backends, Step, Worker};
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
}

impl Watch {
    /// A watch that writes into `catalog` and `backpressure`.
    pub fn new(
        backends: Backends,
        catalog: Arc<ArcSwap<Catalog>>,
        backpressure: Arc<Backpressure>,
        limits: WatchLimits,
    ) -> Self {
        Self { backends, catalog, backpressure, limits, recorded: Vec::new() }
    }

    /// Reads the sales and replaces the catalog.
    ///
    /// # Errors
    /// What the ledger reports; the old catalog stays.
    pub async fn refresh(&self) -> Result<(), BackendError> {
        self.catalog.store(Arc::new(Catalog::new(self.backends.ledger.sales().await?)));
        Ok(())
    }

    /// Orders published and not yet recorded.
    ///
    /// # Errors
    /// What the ledger or the queue reports.
    pub async fn lag(&self) -> Result<u64, BackendError> {
        let positions = self.backends.ledger.positions().await?;
        Ok(behind(&positions, &self.backends.queue.end_positions().await?))
    }

    async fn outbox_age(&self) -> Result<Duration, BackendError> {
        let mut oldest = Duration::ZERO;
        for sale in self.catalog.load().sales() {
            if sale.epoch == Epoch(0) {
                continue;
            }
            let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
            if let Some(level) = self.backends.stock.level(bucket).await? {
                oldest =
                    oldest.max(level.oldest_unconfirmed.map_or(Duration::ZERO, |at| level.now.since(at)));
            }
        }
        Ok(oldest)
    }
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
        let (ends, age) = (self.backends.queue.end_positions().await, self.outbox_age().await);
        self.judge(ends.as_ref().ok().map(|ends| behind(&self.recorded, ends)), age.as_ref().ok().copied());
        refreshed.and(positions.map(drop)).and(ends.map(drop)).and(age.map(drop))?;
        Ok(Step::Idle)
    }
}

impl Watch {
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
