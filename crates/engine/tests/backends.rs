//! Every backend keeps every promise of its trait.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;

use async_trait::async_trait;
use doorbuster_engine::clock::ManualClock;
use doorbuster_engine::conformance;
use doorbuster_engine::ledger::SqliteLedger;
use doorbuster_engine::queue::{EmbeddedQueue, Queue, QueueOptions};
use doorbuster_engine::room::EmbeddedRoom;
use doorbuster_engine::stock::EmbeddedStock;
use doorbuster_engine::{event_promises, ledger_promises, queue_promises, room_promises, stock_promises};
use tempfile::TempDir;

mod embedded_stock {
    use super::*;

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let clock = conformance::stock::Bench::clock();
                let stock = Arc::new(EmbeddedStock::new(Arc::clone(&clock) as _));
                conformance::stock::$promise(&conformance::stock::Bench { stock, clock }).await;
            }
        )*};
    }

    stock_promises!(tests);
}

mod embedded_room {
    use super::*;
    use conformance::room::{Bench, RULES};

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let forget = Box::new(|| Arc::new(EmbeddedRoom::new(RULES)) as _);
                conformance::room::$promise(&Bench { room: forget(), forget }).await;
            }
        )*};
    }

    room_promises!(tests);
}

mod embedded_queue {
    use super::*;

    struct Embedded {
        queue: Arc<EmbeddedQueue>,
        _folder: TempDir,
    }

    #[async_trait]
    impl conformance::queue::Bench for Embedded {
        fn queue(&self) -> Arc<dyn Queue> {
            Arc::clone(&self.queue) as _
        }

        async fn append_garbage(&self) {
            self.queue.append_bytes(b"\xff not a message".to_vec()).await.unwrap();
        }
    }

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let folder = tempfile::tempdir().unwrap();
                let clock: Arc<ManualClock> = conformance::stock::Bench::clock();
                let queue = Arc::new(EmbeddedQueue::open(folder.path(), |_| 0, clock, QueueOptions::default()).unwrap());
                conformance::queue::$promise(&Embedded { queue, _folder: folder }).await;
            }
        )*};
    }

    queue_promises!(tests);
}

mod sqlite_ledger {
    use super::*;

    fn bench(folder: &TempDir) -> conformance::ledger::Bench {
        let clock = conformance::stock::Bench::clock();
        let path = folder.path().join("ledger.sqlite");
        let ledger = Arc::new(SqliteLedger::open(&path, Arc::clone(&clock) as _).unwrap());
        conformance::ledger::Bench { ledger, clock }
    }

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let folder = tempfile::tempdir().unwrap();
                conformance::ledger::$promise(&bench(&folder)).await;
            }
        )*};
    }

    macro_rules! event_tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let folder = tempfile::tempdir().unwrap();
                conformance::events::$promise(&bench(&folder)).await;
            }
        )*};
    }

    ledger_promises!(tests);
    event_promises!(event_tests);
}
