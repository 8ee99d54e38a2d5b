//! The workers between the stages, and the one loop that drives them.
//!
//! Each is a bounded, repeatable [`Worker::step`]: it may die at any point and be done again, and
//! any number of each may run. Tests call `step`; a server calls [`start`].

mod doorman;
mod expire;
mod rebuild;
mod reconcile;
mod record;
mod relay;
mod release;
mod restock;
mod round;
mod sale_clock;
mod set_aside;
mod settle;
mod shedding;
mod sweep;
mod usher;
mod watch;
mod watchdog;

pub use doorman::Doorman;
pub use expire::Expirer;
pub use rebuild::{Progress, Rebuilder};
pub use reconcile::{Difference, Reconciler};
pub use record::Recorder;
pub use relay::{Carried, Courier, Relay, RelayOptions};
pub use release::Releaser;
pub use restock::Restocker;
pub use sale_clock::SaleClock;
pub use settle::{LatePolicy, Settler};
pub use shedding::Shedding;
pub use sweep::Sweeper;
pub use usher::Usher;
pub use watch::{Backpressure, Watch, WatchLimits};
pub use watchdog::Watchdog;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use tokio::sync::watch as signal;
use tokio::task::JoinHandle;

use crate::clock::Clock;
use crate::fault::{BackendError, Fault, Layer};
use crate::ledger::Ledger;
use crate::queue::Queue;
use crate::stock::Stock;
use crate::told::Told;

/// The three stages and the clock, as a worker needs them.
#[derive(Clone)]
pub struct Backends {
    /// The store of permits.
    pub stock: Arc<dyn Stock>,
    /// The log of orders placed.
    pub queue: Arc<dyn Queue>,
    /// The books.
    pub ledger: Arc<dyn Ledger>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// What one step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It did so many things; there may be more.
    Worked(u64),
    /// It did so many things; what may be left is not to be done now.
    Done(u64),
    /// There was nothing to do.
    Idle,
}

impl Step {
    /// `Idle` for nothing done.
    pub fn of(count: u64) -> Self {
        if count == 0 { Self::Idle } else { Self::Worked(count) }
    }

    /// The same, where it is known whether there may be `more`. If not, what comes due one by one is taken
    /// together, after the worker's pause.
    pub(crate) fn took(count: u64, more: bool) -> Self {
        if count > 0 && !more { Self::Done(count) } else { Self::of(count) }
    }
}

/// One kind of work, in bounded pieces.
#[async_trait]
pub trait Worker: Send {
    /// Its word in logs and metrics.
    fn name(&self) -> &'static str;

    /// Does one bounded piece. After an error, the same piece is done again later.
    async fn step(&mut self) -> Result<Step, BackendError>;
}

/// Longest wait between two attempts at a failing step.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Runs `worker` until `stop` turns true, waiting `idle` when there is nothing more to do.
async fn run(mut worker: Box<dyn Worker>, idle: Duration, mut stop: signal::Receiver<bool>) {
    let (mut failures, told) = (0_u32, Told::default());
    loop {
        // A panic is a fault like others: every step may be done again.
        let stepped = AssertUnwindSafe(worker.step()).catch_unwind().await;
        let wait = match stepped.unwrap_or_else(|_| Err(panicked())) {
            Ok(Step::Worked(_)) => {
                failures = 0;
                Duration::ZERO
            }
            Ok(Step::Done(_) | Step::Idle) => {
                failures = 0;
                idle
            }
            Err(error) => {
                failures = failures.saturating_add(1);
                // Also by a worker that fails every other time.
                if let Some(steps) = told.due(1) {
                    tracing::warn!(
                        worker = worker.name(),
                        steps,
                        failures,
                        error = error.chain(),
                        "a step failed and will be done again"
                    );
                }
                backoff(failures)
            }
        };
        // The timeout is the wait; an early end of it is the stop.
        if tokio::time::timeout(wait, stop.wait_for(|stopped| *stopped)).await.is_ok() {
            return;
        }
    }
}

fn panicked() -> BackendError {
    BackendError::new(Layer::Ledger, Fault::Ambiguous, "the step ended in a panic; see the lines above")
}

/// 50 ms, doubled per failure up to the longest wait, with half of it random.
fn backoff(failures: u32) -> Duration {
    let full = Duration::from_millis(50).saturating_mul(1 << failures.min(10)).min(BACKOFF_MAX);
    full.mul_f64(0.5 + rand::random::<f64>() / 2.0)
}

/// Running workers.
pub struct Running {
    stop: signal::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// Starts each worker with how long it waits when idle, on the present runtime.
#[expect(clippy::disallowed_methods, reason = "the one place that starts workers; their number is fixed")]
pub fn start(workers: Vec<(Box<dyn Worker>, Duration)>) -> Running {
    let stop = signal::Sender::new(false);
    let tasks =
        workers.into_iter().map(|(worker, idle)| tokio::spawn(run(worker, idle, stop.subscribe()))).collect();
    Running { stop, tasks }
}

impl Running {
    /// Lets every worker finish its present step and waits for them.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        for task in self.tasks {
            if let Err(error) = task.await {
                tracing::error!(%error, "a worker ended in a panic");
            }
        }
    }
}
