//! Workers, measured.

use std::sync::Arc;

use async_trait::async_trait;

use super::Counts;
use crate::fault::BackendError;
use crate::workers::{Step, Worker};

/// How steps end.
const STEPS: [&str; 3] = ["worked", "idle", "failed"];

/// One worker's figures.
#[derive(Debug)]
pub struct WorkerFigures {
    /// Its word.
    pub name: &'static str,
    /// Its steps, by how they ended.
    pub steps: Counts<3>,
}

impl WorkerFigures {
    pub(super) fn new(name: &'static str) -> Self {
        Self { name, steps: Counts::new(STEPS) }
    }
}

pub(super) struct ObservedWorker {
    inner: Box<dyn Worker>,
    figures: Arc<WorkerFigures>,
}

impl ObservedWorker {
    pub(super) fn new(inner: Box<dyn Worker>, figures: Arc<WorkerFigures>) -> Self {
        Self { inner, figures }
    }
}

#[async_trait]
impl Worker for ObservedWorker {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let step = self.inner.step().await;
        let ended = match &step {
            Ok(Step::Worked(_) | Step::Done(_)) => 0,
            Ok(Step::Idle) => 1,
            Err(_) => 2,
        };
        self.figures.steps.add(ended, 1);
        step
    }
}
