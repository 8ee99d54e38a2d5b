//! A whole pipeline on three brokers of its own, which are killed under load: what was acknowledged is
//! there, what was not is settled, and nothing is acknowledged that one broker alone has.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use doorbuster_engine::audit;
use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::engine::{Engine, PurchaseOutcome, Shared};
use doorbuster_engine::gate::{Limits, Refusal, SaleTokens};
use doorbuster_engine::ledger::SqliteLedger;
use doorbuster_engine::order::{OrderId, OrderStatus, UserId};
use doorbuster_engine::queue::{KafkaOptions, KafkaQueue, partition_of};
use doorbuster_engine::sale::{Catalog, NewSale};
use doorbuster_engine::stock::EmbeddedStock;
use doorbuster_engine::workers::{
    Backends, Backpressure, Rebuilder, Recorder, Running, SaleClock, Sweeper, Watch, WatchLimits, Worker,
    start,
};
use doorbuster_services::{Server, kafka};
use futures_util::future::join_all;
use support::{attempt, engine, token_of, verifier};
use tempfile::TempDir;

/// How long a test waits for what must come. Kafka notices a dead broker after nine seconds.
const PATIENCE: Duration = Duration::from_secs(120);

/// Two partitions for each broker to lead.
const PARTITIONS: u32 = 6;

/// Buyers who click at the same time.
const CROWD: u64 = 30;

/// Three brokers, and one process with every role on them.
struct Shop {
    brokers: Server,
    backends: Backends,
    engine: Arc<Engine>,
    workers: Running,
    buyers: u64,
    _folder: TempDir,
}

/// What buyers were told.
#[derive(Default)]
struct Told {
    /// 202, with the partition.
    accepted: Vec<(OrderId, u32)>,
    unknown: Vec<OrderId>,
    busy: usize,
}

impl Told {
    /// Whether orders were accepted in every partition, several each.
    fn everywhere(&self) -> bool {
        let in_partition = |wanted| self.accepted.iter().filter(|(_, it)| *it == wanted).count();
        (0..PARTITIONS).all(|partition| in_partition(partition) >= 5)
    }
}

impl Shop {
    async fn open() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let brokers = kafka::start(&root, &kafka::Plan::of(3)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let options = KafkaOptions {
            partitions: PARTITIONS,
            message_timeout: Duration::from_secs(3),
            ..KafkaOptions::new(brokers.url.clone())
        };
        let backends = Backends {
            stock: Arc::new(EmbeddedStock::new(Arc::clone(&clock))),
            queue: Arc::new(KafkaQueue::connect(options).await.unwrap()),
            ledger: Arc::new(SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&clock)).unwrap()),
            clock,
        };
        let shared = Shared {
            backends: backends.clone(),
            catalog: Arc::new(ArcSwap::from_pointee(Catalog::default())),
            backpressure: Arc::new(Backpressure::default()),
            tokens: Arc::new(verifier()),
            sale_tokens: Arc::new(SaleTokens::none()),
            limits: Arc::new(Limits::none()),
            barred: Arc::default(),
            rooms: Arc::default(),
        };
        let workers = start(workers_of(&shared));
        let shop = Self { brokers, backends, engine: engine(shared), workers, buyers: 0, _folder: folder };
        shop.open_sale().await;
        shop
    }

    /// A sale that is open, loaded and seen by the gate.
    async fn open_sale(&self) {
        let item = sample::new_item("A", 100_000);
        let sale = NewSale {
            payment_window: PATIENCE * 100,
            ..sample::new_sale(self.backends.clock.now(), vec![item])
        };
        self.backends.ledger.create_sale(&sale).await.unwrap();
        until("somebody can buy", async || {
            matches!(self.buy("the first").await, PurchaseOutcome::Accepted(_))
        })
        .await;
    }

    async fn buy(&self, user: &str) -> PurchaseOutcome {
        let token = token_of(user, self.backends.clock.now());
        self.engine.purchase(attempt(&token, None, 1)).await
    }

    /// A crowd of new buyers clicks; what each is told is noted.
    async fn rush(&mut self, told: &mut Told) {
        let users: Vec<String> = (self.buyers..self.buyers + CROWD).map(|n| format!("buyer-{n}")).collect();
        self.buyers += CROWD;
        for (user, outcome) in users.iter().zip(join_all(users.iter().map(|user| self.buy(user))).await) {
            match outcome {
                PurchaseOutcome::Accepted(order) => {
                    told.accepted.push((order, partition_of(&UserId::new(user).unwrap(), PARTITIONS)));
                }
                PurchaseOutcome::OutcomeUnknown(order) => told.unknown.push(order),
                PurchaseOutcome::Refused(Refusal::Busy) => told.busy += 1,
                other => panic!("{user} was told {other:?}"),
            }
        }
    }

    /// Crowds until `enough`.
    async fn rush_until(&mut self, what: &str, told: &mut Told, enough: impl Fn(&Told) -> bool) {
        let mut pace = tokio::time::interval(Duration::from_millis(20));
        let rushing = async {
            while !enough(told) {
                pace.tick().await;
                self.rush(told).await;
            }
        };
        tokio::time::timeout(PATIENCE, rushing)
            .await
            .unwrap_or_else(|_| panic!("waited in vain until {what}"));
    }

    /// Everything that anybody was promised or left unsure about is in the ledger, live, and in no
    /// outbox any more; and every invariant holds.
    async fn finish(self, told: &[Told]) {
        until("everything is recorded and at rest", async || {
            let snapshot = audit::collect(&self.backends).await;
            snapshot.is_ok_and(|it| {
                it.at_rest && it.buckets.iter().all(|it| it.level.oldest_unconfirmed.is_none())
            })
        })
        .await;
        self.workers.stop().await;
        let snapshot = audit::collect(&self.backends).await.unwrap();
        let live = snapshot.books.orders.iter().filter(|it| it.status == OrderStatus::Pending);
        let live: HashSet<OrderId> = live.map(|it| it.reservation.order).collect();
        let accepted = told.iter().flat_map(|it| it.accepted.iter().map(|(order, _)| order));
        let unknown = told.iter().flat_map(|it| &it.unknown);
        let expected: HashSet<OrderId> = accepted.chain(unknown).copied().collect();
        let lost: Vec<_> = expected.difference(&live).collect();
        assert!(lost.is_empty(), "{} of {} orders are lost: {lost:?}", lost.len(), expected.len());
        assert_eq!(live.len(), expected.len() + 1, "and the first buyer's");
        assert_eq!(snapshot.books.orders.len(), live.len(), "none was recorded twice or refused");
        assert_eq!(audit::check(&snapshot).findings, []);
    }
}

/// The workers that orders need, in real time.
fn workers_of(shared: &Shared) -> Vec<(Box<dyn Worker>, Duration)> {
    let backends = || shared.backends.clone();
    let ms = Duration::from_millis;
    let (catalog, backpressure) = (Arc::clone(&shared.catalog), Arc::clone(&shared.backpressure));
    let watch = Watch::new(backends(), catalog, backpressure, WatchLimits::default());
    vec![
        (Box::new(watch), ms(50)),
        (Box::new(Recorder::new(backends(), ms(100))), ms(0)),
        (Box::new(Sweeper::new(backends())), ms(200)),
        (Box::new(Rebuilder::new(backends(), Duration::ZERO)), ms(50)),
        (Box::new(SaleClock::new(backends(), PATIENCE)), ms(50)),
    ]
}

/// Waits until `condition` holds; the workers go on meanwhile.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    let came = async {
        while !condition().await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, came).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_outlive_the_loss_of_one_broker_and_none_is_accepted_by_one_alone() {
    let mut shop = Shop::open().await;
    let (mut before, mut one_less, mut alone, mut after) = Default::default();
    shop.rush_until("all brokers take orders", &mut before, Told::everywhere).await;
    assert!(before.unknown.is_empty() && before.busy == 0, "all three are there");

    // Killed while a crowd waits for its answers; each broker leads two partitions.
    let mut crowd = Told::default();
    let process = shop.brokers.process(0).clone();
    let ((), killed) = tokio::join!(shop.rush(&mut crowd), async { process.kill() });
    killed.unwrap();
    shop.rush_until("two brokers take orders in every partition", &mut one_less, Told::everywhere).await;

    // Two are in sync from now on, and both must have a record: with one of them nothing is accepted.
    shop.brokers.kill(1).unwrap();
    let enough = |told: &Told| told.unknown.len() >= 10 && told.busy >= 50;
    shop.rush_until("buyers hear that nobody knows, and then that it is busy", &mut alone, enough).await;
    assert_eq!(alone.accepted.len(), 0, "one broker alone acknowledged an order");

    for node in [0, 1] {
        shop.brokers.start_again_unanswered(node).unwrap();
    }
    shop.rush_until("all partitions take orders again", &mut after, Told::everywhere).await;
    let unsure = [&crowd, &one_less, &alone, &after].map(|told| told.unknown.len());
    eprintln!("orders that waited in the outbox, by stage: {unsure:?}");
    shop.finish(&[before, crowd, one_less, alone, after]).await;
}
