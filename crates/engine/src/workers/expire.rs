//! Expire: unpaid orders whose deadline is over are closed.

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;

/// Orders closed in one transaction.
const STEP_MAX: usize = 500;

/// Closes orders that were not paid in time. The deadline decides, not this worker: it only makes
/// room again.
pub struct Expirer {
    backends: Backends,
}

impl Expirer {
    /// An expirer over these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends }
    }
}

#[async_trait]
impl Worker for Expirer {
    fn name(&self) -> &'static str {
        "expire"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let expired = self.backends.ledger.expire(STEP_MAX).await?;
        if expired > 0 {
            FaultPoint::Expired.reached();
        }
        Ok(Step::of(expired))
    }
}
