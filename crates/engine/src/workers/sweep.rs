//! Sweep: what is reserved and not known to be recorded is settled against the ledger.
//!
//! The sweeper publishes again, for ever; it never gives an order up. Only an order whose message
//! is surely not in the queue any more is published again: republishing on age alone buries a
//! recorder that paused for seconds under copies.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::clock::Timestamp;
use crate::delivery::{Position, reached};
use crate::fault::BackendError;
use crate::order::{Epoch, Money, OrderId, OrderPlaced, Reservation};
use crate::sale::Sale;
use crate::stock::BucketId;

/// Outbox entries younger than this are left to their gateway and recorder.
const AGE: Duration = Duration::from_secs(2);

/// First gap between two publishes of one order; doubled each time, to at most five minutes.
const FIRST_GAP: Duration = Duration::from_secs(2);

/// Entries looked at in one step.
const STEP_MAX: usize = 256;

/// What is remembered of an order that the ledger does not know.
struct Unknown {
    /// The queue's ends as read after its last publish.
    ends: Vec<Position>,
    /// How often it was published from here.
    publishes: u32,
    /// Not to be published again before this, by the monotonic clock.
    not_before: Duration,
}

/// Settles outbox entries.
pub struct Sweeper {
    backends: Backends,
    unknown: HashMap<OrderId, Unknown>,
}

impl Sweeper {
    /// A sweeper that has seen nothing yet.
    pub fn new(backends: Backends) -> Self {
        Self { backends, unknown: HashMap::new() }
    }

    /// Settles the bucket's entries reserved before `before`; answers how many were looked at and
    /// how many of them the ledger still does not know.
    ///
    /// # Errors
    /// What a backend reports; everything is done again next time.
    pub async fn sweep(
        &mut self,
        bucket: BucketId,
        sale: &Sale,
        before: Timestamp,
    ) -> Result<(u64, u64), BackendError> {
        let Backends { stock, ledger, .. } = self.backends.clone();
        let entries = stock.unconfirmed(bucket, before, STEP_MAX).await?;
        if entries.is_empty() {
            return Ok((0, 0));
        }
        // Positions first: an order unknown to a ledger that had come this far is not in the
        // queue before this place.
        let positions = ledger.positions().await?;
        let ids: Vec<OrderId> = entries.iter().map(|entry| entry.order).collect();
        let statuses = ledger.statuses(&ids).await?;
        let (mut live, mut closed, mut unknown) = (Vec::new(), Vec::new(), 0);
        for (entry, status) in entries.iter().zip(statuses) {
            match status {
                Some(status) if status.is_live() => live.push((entry.order, entry.user.clone())),
                Some(_) => closed.push((entry.order, entry.user.clone())),
                None => {
                    unknown += 1;
                    self.chase(entry, sale, &positions).await?;
                }
            }
        }
        let terminal: Vec<OrderId> = closed.iter().map(|(order, _)| *order).collect();
        ledger.ensure_releases(&terminal).await?;
        // A fenced bucket releases nothing; its closed entries are settled by being confirmed.
        stock.confirm(bucket, &live).await?;
        stock.confirm(bucket, &closed).await?;
        for (order, _) in live.iter().chain(&closed) {
            self.unknown.remove(order);
        }
        Ok((entries.len() as u64, unknown))
    }

    /// Publishes one order again if its message is surely not waiting in the queue.
    async fn chase(
        &mut self,
        entry: &Reservation,
        sale: &Sale,
        positions: &[Position],
    ) -> Result<(), BackendError> {
        let now = self.backends.clock.monotonic();
        let Some(unknown) = self.unknown.get(&entry.order) else {
            let ends = self.backends.queue.end_positions().await?;
            self.unknown.insert(entry.order, Unknown { ends, publishes: 0, not_before: now });
            return Ok(());
        };
        if now < unknown.not_before || !reached(positions, &unknown.ends) {
            return Ok(());
        }
        let Some(price) = price_of(entry, sale) else {
            tracing::error!(order.id = %entry.order, item.id = %entry.item, "a hold names an item that its sale does not have");
            return Ok(());
        };
        let publishes = unknown.publishes.saturating_add(1);
        let placed = OrderPlaced { reservation: entry.clone(), price };
        for result in self.backends.queue.publish(std::slice::from_ref(&placed)).await {
            if let Err(error) = result {
                tracing::warn!(order.id = %entry.order, error = error.chain(), "an order could not be published again; it stays in the outbox");
            }
        }
        tracing::info!(order.id = %entry.order, publishes, "published an order again that the ledger did not know");
        let ends = self.backends.queue.end_positions().await?;
        let gap = FIRST_GAP.saturating_mul(1 << publishes.min(7)).min(Duration::from_secs(300));
        self.unknown.insert(entry.order, Unknown { ends, publishes, not_before: now + gap });
        Ok(())
    }
}

fn price_of(entry: &Reservation, sale: &Sale) -> Option<Money> {
    sale.item(entry.item).map(|item| item.price)
}

#[async_trait]
impl Worker for Sweeper {
    fn name(&self) -> &'static str {
        "sweep"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let stock = Arc::clone(&self.backends.stock);
        let mut settled = 0;
        for sale in self.backends.ledger.sales().await? {
            if sale.epoch == Epoch(0) {
                continue;
            }
            let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
            // "Old" is judged by the stock's own clock, which stamped the entries.
            let Some(level) = stock.level(bucket).await? else { continue };
            if level.unconfirmed > 0 && !level.fenced {
                let (seen, unknown) = self.sweep(bucket, &sale, level.now.minus(AGE)).await?;
                settled += seen - unknown;
            }
        }
        Ok(Step::of(settled))
    }
}
