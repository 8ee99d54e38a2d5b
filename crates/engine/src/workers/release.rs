//! Release: units of closed orders go back to the stock.

use std::collections::HashMap;

use async_trait::async_trait;

use super::set_aside::SetAside;
use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::order::{OrderId, SaleId, UserId};
use crate::stock::{BucketId, ReleaseOutcome};

/// Rows handled in one step.
const STEP_MAX: usize = 500;

/// Orders given back in one call: a stock does one call at a time, and reserves wait behind it. Calls
/// of 500 held up Redis for 4 ms each, and calls of 50 still took the longest hundredth of reserves to 1.8 ×
/// what they take alone. One call waits for the other: 10,000 units are 625 round trips.
const CALL_MAX: usize = 16;

/// Gives units back, by order id, on the sale's present epoch. A row goes only after the stock
/// has answered; replays change nothing.
pub struct Releaser {
    backends: Backends,
    /// Sales whose bucket cannot take units now.
    aside: SetAside,
}

impl Releaser {
    /// A releaser over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends, aside: SetAside::default() }
    }

    /// Gives one bucket its units back; answers the orders whose rows are done with. A stock that does
    /// not answer, or is fenced or loading, keeps its rows and holds up no other sale's.
    async fn release(&mut self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Vec<OrderId> {
        let Backends { stock, clock, .. } = &self.backends;
        let answer = stock.release(bucket, orders).await;
        let outcomes = match answer {
            Ok(outcomes) => outcomes,
            Err(error) => {
                self.aside.add(bucket.sale, clock.monotonic());
                if self.aside.is_to_be_told(bucket.sale, clock.monotonic()) {
                    tracing::warn!(sale.id = %bucket.sale, error = error.chain(), "units could not be given back; they will be");
                }
                return Vec::new();
            }
        };
        let done = |outcome: &ReleaseOutcome| *outcome != ReleaseOutcome::NotNow;
        if outcomes.iter().all(done) {
            FaultPoint::Released.reached();
            self.aside.sound(bucket.sale);
        } else {
            // A rebuild is under way, which is told elsewhere.
            self.aside.add(bucket.sale, clock.monotonic());
        }
        let answered = orders.iter().zip(&outcomes).filter(|(_, outcome)| done(outcome));
        answered.map(|((order, _), _)| *order).collect()
    }
}

#[async_trait]
impl Worker for Releaser {
    fn name(&self) -> &'static str {
        "release"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        // Sound sales first: those that are set aside may be slow to say that they still cannot.
        let aside = self.aside.all();
        let mut rows = self.backends.ledger.releases_due(&aside, STEP_MAX).await?;
        if rows.len() < STEP_MAX && !aside.is_empty() {
            let waiting = self.aside.waiting(self.backends.clock.monotonic());
            let others = self.backends.ledger.releases_due(&waiting, STEP_MAX).await?;
            if others.len() < STEP_MAX {
                // Whoever has no row left was settled by another keeper.
                let settled =
                    |sale: &&SaleId| !waiting.contains(sale) && others.iter().all(|it| it.sale != **sale);
                aside.iter().filter(settled).for_each(|sale| self.aside.sound(*sale));
            }
            rows.extend(others.into_iter().filter(|row| aside.contains(&row.sale)));
        }
        let more = rows.len() >= STEP_MAX;
        let mut by_bucket: HashMap<BucketId, Vec<(OrderId, UserId)>> = HashMap::new();
        for row in rows {
            let orders = by_bucket.entry(BucketId { sale: row.sale, epoch: row.epoch }).or_default();
            orders.push((row.order, row.user));
        }
        let (buckets, mut done) = (by_bucket.len(), Vec::new());
        for (bucket, orders) in by_bucket {
            for orders in orders.chunks(CALL_MAX) {
                let ended = self.release(bucket, orders).await;
                let refused = ended.len() < orders.len();
                done.extend(ended);
                if refused {
                    break;
                }
            }
        }
        if done.is_empty() {
            // A sale that was set aside just now may have hidden the rows of others: look again at once.
            return Ok(if buckets == 0 { Step::Idle } else { Step::Worked(0) });
        }
        self.backends.ledger.releases_done(&done).await?;
        Ok(Step::took(done.len() as u64, more))
    }
}
