//! A measured stage is still that stage: it keeps every promise of its trait. And what happens to
//! it is counted.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::conformance::{self, sample};
use doorbuster_engine::fault::{BackendError, Fault, Layer};
use doorbuster_engine::ledger::SqliteLedger;
use doorbuster_engine::observed::Observed;
use doorbuster_engine::queue::{EmbeddedQueue, NextOutcome, Queue, QueueOptions};
use doorbuster_engine::stock::EmbeddedStock;
use doorbuster_engine::workers::{Backends, Step, Worker};
use doorbuster_engine::{ledger_promises, queue_promises, stock_promises};
use tempfile::TempDir;

struct Measured {
    observed: Arc<Observed>,
    backends: Backends,
    clock: Arc<ManualClock>,
    raw_queue: Arc<EmbeddedQueue>,
    _folder: TempDir,
}

impl Measured {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = conformance::stock::Bench::clock();
        let dynamic: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let queue = EmbeddedQueue::open(
            &folder.path().join("queue"),
            |_| 0,
            Arc::clone(&dynamic),
            QueueOptions::default(),
        )
        .unwrap();
        let raw_queue = Arc::new(queue);
        let ledger = SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&dynamic)).unwrap();
        let observed = Arc::new(Observed::default());
        let backends = observed.over(Backends {
            stock: Arc::new(EmbeddedStock::new(Arc::clone(&dynamic))),
            queue: Arc::clone(&raw_queue) as _,
            ledger: Arc::new(ledger),
            clock: dynamic,
        });
        Self { observed, backends, clock, raw_queue, _folder: folder }
    }
}

#[async_trait]
impl conformance::queue::Bench for Measured {
    fn queue(&self) -> Arc<dyn Queue> {
        Arc::clone(&self.backends.queue)
    }

    async fn append_garbage(&self) {
        self.raw_queue.append_bytes(b"\xff not a message".to_vec()).await.unwrap();
    }
}

mod stock {
    use super::*;

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let it = Measured::new();
                let (stock, clock) = (Arc::clone(&it.backends.stock), Arc::clone(&it.clock));
                conformance::stock::$promise(&conformance::stock::Bench { stock, clock }).await;
            }
        )*};
    }

    stock_promises!(tests);
}

mod queue {
    use super::*;

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                conformance::queue::$promise(&Measured::new()).await;
            }
        )*};
    }

    queue_promises!(tests);
}

mod ledger {
    use super::*;

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let it = Measured::new();
                let (ledger, clock) = (Arc::clone(&it.backends.ledger), Arc::clone(&it.clock));
                conformance::ledger::$promise(&conformance::ledger::Bench { ledger, clock }).await;
            }
        )*};
    }

    ledger_promises!(tests);
}

#[tokio::test]
async fn what_is_published_is_counted_and_timed() {
    let it = Measured::new();
    it.backends.queue.publish(&[sample::order_placed(1), sample::order_placed(2)]).await;
    let acknowledged = it.observed.published.read().find(|(word, _)| *word == "acknowledged");
    assert_eq!(acknowledged, Some(("acknowledged", 2)));
    assert_eq!(it.observed.publish.read().count(), 1);
}

#[tokio::test]
async fn a_record_that_is_not_yet_applied_ages() {
    let it = Measured::new();
    assert_eq!(it.observed.delivered_up_to(), None);
    let mut reader = it.backends.queue.reader().await.unwrap();
    let ends = it.backends.queue.end_positions().await.unwrap();
    it.backends.queue.publish(&[sample::order_placed(1)]).await;
    let appended: Timestamp = it.clock.now();
    it.clock.advance(Duration::from_secs(5));
    reader.seek(&ends).await.unwrap();
    assert!(matches!(reader.next(10, Duration::from_secs(10)).await.unwrap(), NextOutcome::Batch(_)));
    assert_eq!(it.observed.delivered_up_to(), Some(appended), "delivered, perhaps not applied");
    assert!(matches!(reader.next(10, Duration::ZERO).await.unwrap(), NextOutcome::Idle));
    assert_eq!(it.observed.delivered_up_to(), Some(it.clock.now()), "the next read shows that it was");
}

struct Failing;

#[async_trait]
impl Worker for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        Err(BackendError::new(Layer::Ledger, Fault::Transient, "planted"))
    }
}

#[tokio::test]
async fn a_failed_step_is_counted_under_its_worker() {
    let observed = Observed::default();
    let mut worker = observed.worker(Box::new(Failing));
    assert!(worker.step().await.is_err());
    let figures = observed.workers();
    assert_eq!((figures.len(), figures[0].name), (1, "failing"));
    assert!(figures[0].steps.read().any(|step| step == ("failed", 1)));
}
