//! Release: units of closed orders go back to the stock.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;

use super::round::{Round, Rounds};
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
    rounds: Rounds,
}

impl Releaser {
    /// A releaser over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends, waiting: Vec::new(), rounds: Rounds::default() }
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
        let (mut done, mut round, mut failed) = (Vec::new(), Round::default(), Vec::new());
        for (bucket, orders) in by_bucket {
            let outcomes = match self.backends.stock.release(bucket, &orders).await {
                Ok(outcomes) => outcomes,
                // Its rows stay; a stock that does not answer holds up no other sale's units.
                Err(error) => {
                    round.note(Err(error));
                    failed.push(bucket.sale);
                    continue;
                }
            };
            round.note(Ok(0));
            for ((order, _), outcome) in orders.iter().zip(outcomes) {
                match outcome {
                    ReleaseOutcome::Released | ReleaseOutcome::NotHeld => done.push(*order),
                    ReleaseOutcome::NotNow if self.waiting.contains(&bucket.sale) => {}
                    ReleaseOutcome::NotNow => self.waiting.push(bucket.sale),
                }
            }
        }
        self.backends.ledger.releases_done(&done).await?;
        let clock = Arc::clone(&self.backends.clock);
        // When no stock answers, the step fails as a whole, and the waits between its repeats grow.
        self.rounds.end(round, self.name(), clock.as_ref())?;
        self.waiting.extend(failed);
        Ok(Step::Worked(done.len() as u64))
    }
}
