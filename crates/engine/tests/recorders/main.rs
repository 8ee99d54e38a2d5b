//! Several recorders, each as in a process of its own, write what a real Kafka delivers into one
//! ledger: nothing is lost, and each record counts once.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../services/mod.rs"]
mod services;
mod stalled;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::audit;
use doorbuster_engine::clock::{Clock, ManualClock};
use doorbuster_engine::conformance::{sample, stock};
use doorbuster_engine::ledger::{Ledger, SqliteLedger};
use doorbuster_engine::order::{OrderId, OrderPlaced, OrderStatus, SaleId};
use doorbuster_engine::queue::{KafkaOptions, KafkaQueue, Queue, partition_of};
use doorbuster_engine::sale::LoaderToken;
use doorbuster_engine::stock::EmbeddedStock;
use doorbuster_engine::workers::{Backends, Backpressure, Recorder, Step, Watch, WatchLimits, Worker};
use rdkafka::ClientConfig;
use rdkafka::producer::{FutureProducer, FutureRecord};
use tempfile::TempDir;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a recorder waits for records in one step.
const WAIT: Duration = Duration::from_millis(100);

const PARTITIONS: u32 = 4;

/// One ledger with an open sale of 10,000 units, one topic, and the machines that share them.
struct Shop {
    ledger: Arc<dyn Ledger>,
    clock: Arc<ManualClock>,
    options: KafkaOptions,
    queue: Arc<KafkaQueue>,
    _folder: Option<TempDir>,
}

impl Shop {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = stock::Bench::clock();
        let path = folder.path().join("ledger.sqlite");
        let ledger = SqliteLedger::open(&path, Arc::clone(&clock) as _).unwrap();
        let shop = Self::on(Arc::new(ledger), clock).await;
        Self { _folder: Some(folder), ..shop }
    }

    async fn on(ledger: Arc<dyn Ledger>, clock: Arc<ManualClock>) -> Self {
        let name = services::own_name("orders");
        let options = KafkaOptions {
            topic: name.clone(),
            group: name,
            partitions: PARTITIONS,
            replication: 1,
            ..KafkaOptions::new(services::address_of("KAFKA"))
        };
        let queue = Arc::new(KafkaQueue::connect(options.clone()).await.unwrap());
        let shop = Self { ledger, clock, options, queue, _folder: None };
        shop.open().await;
        shop
    }

    /// The sale that the sample orders are for.
    async fn open(&self) {
        let sale = sample::new_sale(self.clock.now(), vec![sample::new_item("A", 10_000)]);
        let sale = self.ledger.create_sale(&sale).await.unwrap();
        self.ledger.register(&self.queue.end_positions().await.unwrap()).await.unwrap();
        // Orders are of epoch 1: the ledger alone is loaded, since no stock takes part here.
        let token = LoaderToken(1);
        self.ledger.begin_rebuild(sale.id, sale.epoch, "test", token, Duration::ZERO).await.unwrap();
        assert!(self.ledger.finish_rebuild(sale.id, token).await.unwrap());
        assert_eq!(self.ledger.sale(SaleId(1)).await.unwrap().unwrap().epoch.0, 1);
    }

    /// What another process has: connections of its own to the same topic and ledger.
    async fn backends(&self) -> Backends {
        self.backends_on(Arc::clone(&self.ledger)).await
    }

    /// The same, with a way of its own to the ledger too.
    async fn backends_on(&self, ledger: Arc<dyn Ledger>) -> Backends {
        let stock = EmbeddedStock::new(Arc::clone(&self.clock) as _);
        Backends {
            stock: Arc::new(stock),
            queue: Arc::new(KafkaQueue::connect(self.options.clone()).await.unwrap()),
            ledger,
            clock: Arc::clone(&self.clock) as _,
        }
    }

    async fn recorder(&self) -> Recorder {
        Recorder::new(self.backends().await, WAIT)
    }

    async fn publish(&self, numbers: std::ops::Range<u64>) {
        let orders: Vec<OrderPlaced> = numbers.map(sample::order_placed).collect();
        for result in self.queue.publish(&orders).await {
            result.unwrap();
        }
    }

    async fn append(&self, partition: u32, payload: &[u8]) {
        let client: FutureProducer = ClientConfig::new()
            .set("bootstrap.servers", services::address_of("KAFKA"))
            .set("message.max.bytes", "2000000")
            .create()
            .unwrap();
        let partition = i32::try_from(partition).unwrap();
        let record =
            FutureRecord::<[u8], [u8]>::to(&self.options.topic).partition(partition).payload(payload);
        client.send(record, PATIENCE).await.map_err(|(error, _)| error).unwrap();
    }

    /// Orders in the ledger.
    async fn recorded(&self) -> HashSet<OrderId> {
        let books = self.ledger.books().await.unwrap();
        books.orders.iter().map(|order| order.reservation.order).collect()
    }

    /// Whether the ledger has come to the topic's end.
    async fn is_level(&self) -> bool {
        let ends = self.queue.end_positions().await.unwrap();
        doorbuster_engine::delivery::reached(&self.ledger.positions().await.unwrap(), &ends)
    }

    /// Steps the recorders in turn until the ledger has come to the topic's end; answers what each
    /// did.
    async fn record(&self, recorders: &mut [&mut Recorder]) -> Vec<u64> {
        let mut worked = vec![0; recorders.len()];
        let level = async {
            while !self.is_level().await {
                let steps = recorders.iter_mut().map(|recorder| recorder.step());
                for (done, step) in worked.iter_mut().zip(futures_util::future::join_all(steps).await) {
                    if let Step::Worked(count) | Step::Done(count) = step.unwrap() {
                        *done += count;
                    }
                }
            }
        };
        tokio::time::timeout(PATIENCE, level).await.expect("the recorders come to the end in time");
        worked
    }

    /// Every order of these numbers is in the books once, and no other.
    async fn finish(&self, numbers: std::ops::Range<u64>) {
        let books = self.ledger.books().await.unwrap();
        assert!(books.orders.iter().all(|order| order.status == OrderStatus::Pending));
        let count = usize::try_from(numbers.end - numbers.start).unwrap();
        assert_eq!((books.orders.len(), books.recorded_at.len()), (count, count));
        assert_eq!(self.recorded().await, numbers.map(sample::order_id).collect());
        assert_eq!(books.sales[0].items[0].sold, count as u64);
        let ends = self.queue.end_positions().await.unwrap();
        let snapshot = audit::Snapshot { books, buckets: Vec::new(), ends, at_rest: false };
        let report = audit::check(&snapshot);
        assert!(report.is_ok(), "{:?}", report.findings);
    }
}

#[tokio::test]
async fn recorders_that_come_and_go_lose_nothing_and_record_each_order_once() {
    let shop = Shop::new().await;
    let mut one = shop.recorder().await;
    shop.publish(0..300).await;
    shop.record(&mut [&mut one]).await;

    // A second one comes while there is work, and takes its share.
    let mut other = shop.recorder().await;
    let mut published = 300;
    let shared = async {
        loop {
            shop.publish(published..published + 100).await;
            published += 100;
            let worked = shop.record(&mut [&mut one, &mut other]).await;
            if worked.iter().all(|&count| count > 20) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, shared).await.expect("both have work");

    // The first one goes, in the middle of it.
    shop.publish(published..published + 500).await;
    one.step().await.unwrap();
    drop(one);
    published += 500;
    shop.record(&mut [&mut other]).await;
    shop.finish(0..published).await;
}

#[tokio::test]
async fn recorders_that_read_the_same_records_count_them_once() {
    let mut shop = Shop::new().await;
    let mut one = shop.recorder().await;
    // In another group: each has every partition, as a recorder has that was given up and lives on.
    shop.options.group = services::own_name("zombies");
    let mut zombie = shop.recorder().await;
    for round in 0..5 {
        shop.publish(round * 200..(round + 1) * 200).await;
        shop.record(&mut [&mut one, &mut zombie]).await;
    }
    shop.finish(0..1_000).await;
}

#[tokio::test]
async fn a_new_recorder_goes_on_from_the_ledger_whatever_the_group_believes() {
    let mut shop = Shop::new().await;
    shop.publish(0..200).await;
    let mut before = shop.recorder().await;
    assert!(shop.record(&mut [&mut before]).await[0] >= 200);
    drop(before);

    shop.options.group = services::own_name("fresh");
    shop.publish(200..230).await;
    let mut after = shop.recorder().await;
    let worked = shop.record(&mut [&mut after]).await[0];
    assert!((30..60).contains(&worked), "only what is new was read, and a step or two to move: {worked}");
    shop.finish(0..230).await;
}

#[tokio::test]
async fn strange_records_are_parked_and_one_of_a_newer_version_holds_up_its_partition_alone() {
    let shop = Shop::new().await;
    let held = partition_of(&sample::user(0), PARTITIONS);
    let free = (held + 1) % PARTITIONS;
    let huge = vec![b'x'; 1_000_000];
    shop.publish(0..20).await;
    for strange in [&b"\xff\xfe"[..], b"", b"{\"hello\":\"world\"}", &huge] {
        shop.append(free, strange).await;
    }
    shop.append(held, br#"{"v":2,"order":{"new":"shape"}}"#).await;
    shop.publish(20..400).await;

    let expected: HashSet<OrderId> = (0..400)
        .filter(|&number| number < 20 || partition_of(&sample::user(number), PARTITIONS) != held)
        .map(sample::order_id)
        .collect();
    let mut recorder = shop.recorder().await;
    let mut complaints = Vec::new();
    let all = async {
        while shop.recorded().await != expected || complaints.is_empty() {
            if let Err(error) = recorder.step().await {
                complaints.push(error.to_string());
            }
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("the other partitions go on");
    assert!(complaints.iter().all(|text| text.contains("a version that this program does not know")));
    assert!(complaints[0].contains(&format!("partition {held}")), "{complaints:?}");

    // Again and again, without end and without a step further.
    let again = async {
        let before = complaints.len();
        while complaints.len() < before + 3 {
            if let Err(error) = recorder.step().await {
                complaints.push(error.to_string());
            }
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("it is said again");
    assert_eq!(shop.recorded().await, expected);
}

#[tokio::test]
async fn the_lag_is_what_is_published_and_not_recorded_over_all_partitions() {
    let shop = Shop::new().await;
    let watch = Watch::new(
        shop.backends().await,
        Arc::default(),
        Arc::new(Backpressure::default()),
        WatchLimits::default(),
    );
    assert_eq!(watch.lag().await.unwrap(), 0);
    shop.publish(0..300).await;
    assert_eq!(watch.lag().await.unwrap(), 300);
    shop.record(&mut [&mut shop.recorder().await]).await;
    assert_eq!(watch.lag().await.unwrap(), 0);
}
