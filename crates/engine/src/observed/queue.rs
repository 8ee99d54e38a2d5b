//! The queue, measured.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use async_trait::async_trait;

use super::{Observed, Seen, fault_index};
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::order::OrderPlaced;
use crate::queue::{NextOutcome, Queue, Reader};

pub(super) struct ObservedQueue {
    pub(super) inner: Arc<dyn Queue>,
    pub(super) seen: Seen,
}

#[async_trait]
impl Queue for ObservedQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>> {
        let results = self.seen.timed(&self.seen.figures.publish, self.inner.publish(orders)).await;
        for result in &results {
            let word = match result {
                Ok(()) => 0,
                Err(error) => {
                    self.seen.fault(error);
                    1 + fault_index(error.fault)
                }
            };
            self.seen.figures.published.add(word, 1);
        }
        results
    }

    // Asked by every admitted request: a closed queue is a state, not a fault per request.
    fn accepting(&self) -> Result<(), BackendError> {
        self.inner.accepting()
    }

    async fn end_positions(&self) -> Result<Vec<Position>, BackendError> {
        self.seen.call(self.inner.end_positions()).await
    }

    async fn reader(&self) -> Result<Box<dyn Reader>, BackendError> {
        let inner = self.seen.call(self.inner.reader()).await?;
        Ok(Box::new(ObservedReader { inner, seen: self.seen.clone() }))
    }
}

/// A measured queue by which workers publish: only what a gateway has tried before.
pub(super) struct Republished {
    pub(super) inner: Arc<dyn Queue>,
    pub(super) figures: Arc<Observed>,
}

#[async_trait]
impl Queue for Republished {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>> {
        let results = self.inner.publish(orders).await;
        let again = results.iter().filter(|result| result.is_ok()).count() as u64;
        self.figures.published_again.fetch_add(again, Ordering::Relaxed);
        results
    }

    fn accepting(&self) -> Result<(), BackendError> {
        self.inner.accepting()
    }

    async fn end_positions(&self) -> Result<Vec<Position>, BackendError> {
        self.inner.end_positions().await
    }

    async fn reader(&self) -> Result<Box<dyn Reader>, BackendError> {
        self.inner.reader().await
    }
}

struct ObservedReader {
    inner: Box<dyn Reader>,
    seen: Seen,
}

#[async_trait]
impl Reader for ObservedReader {
    async fn seek(&mut self, positions: &[Position]) -> Result<(), BackendError> {
        self.seen.call(self.inner.seek(positions)).await
    }

    async fn next(&mut self, max: usize, wait: Duration) -> Result<NextOutcome, BackendError> {
        // Read before the call: what is appended while it waits is not known to be delivered.
        let began = self.seen.clock.now();
        let outcome = self.seen.call(self.inner.next(max, wait)).await?;
        let up_to = match &outcome {
            NextOutcome::Batch(batch) => batch.records.first().map_or(began, |record| record.appended_at),
            NextOutcome::Idle => began,
            NextOutcome::Moved => return Ok(outcome),
        };
        self.seen.figures.delivered_up_to_ms.store(up_to.as_ms(), Ordering::Relaxed);
        Ok(outcome)
    }
}
