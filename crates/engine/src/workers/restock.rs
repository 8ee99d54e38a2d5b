//! Restock: an intent that was begun is finished, whoever began it.

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::ledger::{RestockIntent, RestockState};
use crate::stock::{AdjustOutcome, BucketId};

/// Finishes open restocks.
pub struct Restocker {
    backends: Backends,
}

impl Restocker {
    /// A restocker over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends }
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
        let bucket = BucketId { sale: intent.sale, epoch: intent.epoch };
        let outcome = self.backends.stock.adjust(bucket, intent.operation, intent.item, intent.units).await?;
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
        let mut ended = 0;
        for intent in self.backends.ledger.open_restocks().await? {
            if self.finish(intent).await?.state != RestockState::Open {
                ended += 1;
            }
        }
        Ok(Step::of(ended))
    }
}
