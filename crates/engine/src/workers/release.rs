//! Release: units of closed orders go back to the stock.

use std::collections::HashMap;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::order::{OrderId, SaleId, UserId};
use crate::stock::{BucketId, ReleaseOutcome};

/// Rows handled in one step.
const STEP_MAX: usize = 500;

/// Gives units back, by order id, on the sale's present epoch. A row goes only after the stock
/// has answered; replays change nothing.
pub struct Releaser {
    backends: Backends,
    /// Sales whose bucket cannot take units now; asked again after every other sale.
    waiting: Vec<SaleId>,
}

impl Releaser {
    /// A releaser over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends, waiting: Vec::new() }
    }
}

#[async_trait]
impl Worker for Releaser {
    fn name(&self) -> &'static str {
        "release"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let rows = self.backends.ledger.releases_due(&self.waiting, STEP_MAX).await?;
        if rows.is_empty() {
            self.waiting.clear();
            return Ok(Step::Idle);
        }
        let mut by_bucket: HashMap<BucketId, Vec<(OrderId, UserId)>> = HashMap::new();
        for row in rows {
            by_bucket
                .entry(BucketId { sale: row.sale, epoch: row.epoch })
                .or_default()
                .push((row.order, row.user));
        }
        let mut done = Vec::new();
        for (bucket, orders) in by_bucket {
            let outcomes = match self.backends.stock.release(bucket, &orders).await {
                Ok(outcomes) => outcomes,
                // Its rows stay; a stock that does not answer holds up no other sale's units.
                Err(error) => {
                    tracing::warn!(sale.id = %bucket.sale, error = error.chain(), "units could not be given back; they will be");
                    self.waiting.push(bucket.sale);
                    continue;
                }
            };
            for ((order, _), outcome) in orders.iter().zip(outcomes) {
                match outcome {
                    ReleaseOutcome::Released | ReleaseOutcome::NotHeld => done.push(*order),
                    ReleaseOutcome::NotNow if self.waiting.contains(&bucket.sale) => {}
                    ReleaseOutcome::NotNow => self.waiting.push(bucket.sale),
                }
            }
        }
        self.backends.ledger.releases_done(&done).await?;
        Ok(Step::Worked(done.len() as u64))
    }
}
