//! Expire: unpaid orders whose deadline is over are closed.

use std::time::Duration;

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
    hold: Duration,
}

impl Expirer {
    /// An expirer over these backends, which holds no order behind its deadline.
    pub fn new(backends: Backends) -> Self {
        Self { backends, hold: Duration::ZERO }
    }

    /// Holds an order whose buyer is paying for `hold` behind its deadline, once, so that its provider can
    /// be asked.
    #[must_use]
    pub fn holding(mut self, hold: Duration) -> Self {
        self.hold = hold;
        self
    }
}

#[async_trait]
impl Worker for Expirer {
    fn name(&self) -> &'static str {
        "expire"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let expired = self.backends.ledger.expire(STEP_MAX, self.hold).await?;
        if expired.closed > 0 {
            FaultPoint::Expired.reached();
        }
        Ok(Step::took(expired.closed + expired.held, expired.more))
    }
}
