//! Restock: an intent that was begun is finished, whoever began it.

use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::ledger::{RestockIntent, RestockState};
use crate::stock::{AdjustOutcome, BucketId};

/// Finishes open restocks.
pub struct Restocker {
    backends: Backends,
    rounds: Rounds,
}

impl Restocker {
    /// A restocker over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends, rounds: Rounds::default() }
    }

    /// Moves the stock of one open intent and ends it; answers the intent as it stands then.
    /// A bucket that cannot be adjusted now leaves the intent open: the rebuild that fenced it
    /// ends it.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn finish(&self, intent: RestockIntent) -> Result<RestockIntent, BackendError> {
        if intent.state != RestockState::Open {
            return Ok(intent);
        }
        FaultPoint::RestockWritten.reached();
        let bucket = BucketId { sale: intent.sale, epoch: intent.epoch };
        let outcome = self.backends.stock.adjust(bucket, intent.operation, intent.item, intent.units).await?;
        if outcome == AdjustOutcome::Applied {
            FaultPoint::RestockAdjusted.reached();
        }
        let applied = match outcome {
            AdjustOutcome::Applied => true,
            AdjustOutcome::NotEnough { .. } => false,
            AdjustOutcome::NotNow => return Ok(intent),
        };
        Ok(self.backends.ledger.end_restock(intent.operation, applied).await?.unwrap_or(intent))
    }
}

#[async_trait]
impl Worker for Restocker {
    fn name(&self) -> &'static str {
        "restock"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let mut round = Round::default();
        for intent in self.backends.ledger.open_restocks().await? {
            let finished = self.finish(intent).await;
            round.note(finished.map(|intent| u64::from(intent.state != RestockState::Open)));
        }
        self.rounds.end(round, self.name())
    }
}
