//! Ten thousand unpaid orders go back on sale, while others buy: what the benchmark measures.
//!
//! `expire POSTGRES_URL REDIS_URL ORDERS [CORE]` records the orders in a real PostgreSQL with holds in a real
//! Redis, times reserves alone, lets the deadline pass, and times both: until the last unit is free again,
//! and the reserves meanwhile. Then it cancels orders, a few at a time, and times how long the last of their
//! units is away. The workers run as in the server, and reserves on a thread of their own, as a gateway's
//! do, which has the processor's core CORE if that is given. It prints one JSON object.
#![expect(clippy::print_stdout, reason = "a program for the benchmark: it prints its figure")]
#![expect(clippy::disallowed_methods, reason = "it measures real time and starts tasks of its own")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use doorbuster_engine::clock::{Clock, ManualClock, SystemClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Batch, Decoded, Delivered, Position, TopicId};
use doorbuster_engine::ledger::{
    CancelOutcome, Ledger, PostgresLedger, PostgresOptions, PostgresUrl, RebuildOutcome, RecordOutcome,
};
use doorbuster_engine::order::{Epoch, OrderId, OrderPlaced, Units, UserId};
use doorbuster_engine::queue::{BATCH_MAX, EmbeddedQueue, QueueOptions};
use doorbuster_engine::sale::{LoaderToken, NewSale, Sale, SaleState};
use doorbuster_engine::stock::{
    BucketId, LoadPage, ReadBack, RedisOptions, RedisStock, ReserveOutcome, ReserveRequest, Stock,
};
use doorbuster_engine::workers::{Backends, Expirer, Releaser, start};
use futures_util::future::join_all;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Reserves that are timed while nothing else happens.
const ALONE: Duration = Duration::from_secs(2);
/// Pause between two reserves: a steady trickle, whose latency is its own.
const PAUSE: Duration = Duration::from_micros(500);
/// The sale's payment window.
const WINDOW: Duration = Duration::from_secs(600);
/// Orders that are cancelled, and how many of them at once.
const CANCELLED: u64 = 200;
const AT_ONCE: usize = 20;
/// The server's own: how long units stay away at random, and how often the workers look for more.
const SPREAD: Duration = Duration::from_millis(800);
const EXPIRER_PAUSE: Duration = Duration::from_millis(200);
const RELEASER_PAUSE: Duration = Duration::from_millis(50);
/// Units that are free beside the held ones, for the buyers of the meantime.
const FREE: u64 = 1_000_000;

type Answer<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Answer<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (postgres, redis, orders, core) = match words.as_slice() {
        [postgres, redis, orders] => (postgres, redis, orders, None),
        [postgres, redis, orders, core] => (postgres, redis, orders, Some(core.parse()?)),
        _ => return Err("expire POSTGRES_URL REDIS_URL ORDERS [CORE]".into()),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(postgres, redis, orders.parse()?, core))
}

async fn run(postgres: &str, redis: &str, orders: u64, core: Option<usize>) -> Answer<()> {
    let name = format!("expire_{:x}", rand::random::<u64>());
    let clock = Arc::new(ManualClock::at(SystemClock::new().now()));
    let options = PostgresOptions {
        schema: name.clone(),
        release_spread: SPREAD,
        clock: Some(Arc::clone(&clock) as Arc<dyn Clock>),
        ..PostgresOptions::new(PostgresUrl::new(postgres))
    };
    let ledger: Arc<dyn Ledger> = Arc::new(PostgresLedger::connect(&options).await?);
    let prefix = format!("{name}:");
    let stock: Arc<dyn Stock> =
        Arc::new(RedisStock::connect(RedisOptions { prefix, ..RedisOptions::new(redis) }).await?);
    let sale = open(ledger.as_ref(), stock.as_ref(), clock.as_ref(), orders).await?;
    ledger.register(&[position(0)]).await?;
    fill(ledger.as_ref(), stock.as_ref(), &sale, 0..orders).await?;

    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    let holds = async || Answer::<u64>::Ok(stock.level(bucket).await?.ok_or("the stock is gone")?.holds);
    let alone = Reserves::begin(&stock, &sale, "alone", core);
    tokio::time::sleep(ALONE).await;
    let alone = alone.end()?;

    let folder = tempfile::tempdir()?;
    let queue = EmbeddedQueue::open(
        folder.path(),
        |_: &TopicId| 0,
        Arc::new(SystemClock::new()),
        QueueOptions::default(),
    )?;
    let backends = Backends {
        stock: Arc::clone(&stock),
        queue: Arc::new(queue),
        ledger: Arc::clone(&ledger),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
    };
    let held_before = holds().await?;
    let meanwhile = Reserves::begin(&stock, &sale, "meanwhile", core);
    clock.advance(WINDOW + Duration::from_millis(1));
    let ticking = tokio::spawn(tick(Arc::clone(&clock)));
    let began = Instant::now();
    let running = start(vec![
        (Box::new(Expirer::new(backends.clone())), EXPIRER_PAUSE),
        (Box::new(Releaser::new(backends.clone())), RELEASER_PAUSE),
    ]);
    // What was bought is asked for before what is held, so that nothing counts as free that is not.
    loop {
        let bought = meanwhile.bought();
        if holds().await? + orders <= held_before + bought {
            break;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    running.stop().await;
    let meanwhile = meanwhile.end()?;
    let bought = meanwhile.len();
    let held = holds().await?;
    if held + orders != held_before + bought as u64 {
        return Err(format!("{held} holds are left of {held_before} and {bought}").into());
    }

    fill(ledger.as_ref(), stock.as_ref(), &sale, orders..orders + CANCELLED).await?;
    let returned = returned(&backends, &sale, orders).await?;
    ticking.abort();
    println!(
        "{{\"orders\":{orders},\"seconds\":{seconds:.3},\"aloneP99Us\":{},\"meanwhileP99Us\":{},\"reserves\":{bought},\"returnSeconds\":{returned:.3}}}",
        p99(alone),
        p99(meanwhile)
    );
    Ok(())
}

/// Lets the ledger's clock go on by itself.
async fn tick(clock: Arc<ManualClock>) {
    let mut last = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let now = Instant::now();
        clock.advance(now - last);
        last = now;
    }
}

/// Cancels the orders from `first` on, some at once; the longest time, in seconds, from before a
/// cancellation is sent until the stock has all of their units.
async fn returned(backends: &Backends, sale: &Sale, first: u64) -> Answer<f64> {
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    let holds =
        async || Answer::<u64>::Ok(backends.stock.level(bucket).await?.ok_or("the stock is gone")?.holds);
    let releaser = Releaser::new(backends.clone());
    let running = start(vec![(Box::new(releaser), RELEASER_PAUSE)]);
    let mut longest = Duration::ZERO;
    for first in (first..first + CANCELLED).step_by(AT_ONCE) {
        let left = holds().await? - AT_ONCE as u64;
        let began = Instant::now();
        let cancelled = (first..first + AT_ONCE as u64).map(|n| {
            let user = UserId::new(&format!("first-{n}")).expect("a name of letters and digits");
            async move { backends.ledger.cancel(order_id(n), &user, None).await }
        });
        for outcome in join_all(cancelled).await {
            if !matches!(outcome?, CancelOutcome::Cancelled(_)) {
                return Err("an order cannot be cancelled".into());
            }
        }
        while holds().await? > left {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        longest = longest.max(began.elapsed());
    }
    running.stop().await;
    Ok(longest.as_secs_f64())
}

/// A sale with the orders' units and as many more as others need, loaded and open.
async fn open(ledger: &dyn Ledger, stock: &dyn Stock, clock: &dyn Clock, orders: u64) -> Answer<Sale> {
    let now = clock.now();
    let sale = NewSale {
        payment_window: WINDOW,
        limit: Units(1),
        opens_at: now.minus(Duration::from_secs(60)),
        closes_at: now.plus(WINDOW * 10),
        ..sample::new_sale(now, vec![sample::new_item("P-1", orders + FREE)])
    };
    let sale = ledger.create_sale(&sale).await?;
    let token = LoaderToken(1);
    let RebuildOutcome::Owned(sale) =
        ledger.begin_rebuild(sale.id, Epoch(0), "benchmark", token, Duration::ZERO).await?
    else {
        return Err("the rebuild is somebody else's".into());
    };
    ledger.finish_rebuild(sale.id, token).await?;
    ledger.change_state(sale.id, SaleState::Open, None).await?;
    let sale = ledger.sale(sale.id).await?.ok_or("the sale is gone")?;
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    stock.begin_load(bucket, &sale.terms, token).await?;
    stock.load(bucket, token, 0, &LoadPage::Items(vec![(sale.items[0].id, orders + FREE)])).await?;
    let back = stock.level(bucket).await?.ok_or("the stock is gone")?;
    stock.finish_load(bucket, token, ReadBack { seq: back.seq, pages: 1 }).await?;
    Ok(sale)
}

/// Reserves and records the orders, as gateways and a recorder would.
async fn fill(ledger: &dyn Ledger, stock: &dyn Stock, sale: &Sale, orders: Range<u64>) -> Answer<()> {
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    for first in orders.clone().step_by(256) {
        let next = orders.end.min(first + 256);
        let requests: Vec<ReserveRequest> =
            (first..next).map(|n| request(sale, order_id(n), &format!("first-{n}"))).collect();
        let held = stock.reserve(bucket, &requests).await?.into_iter().map(|outcome| match outcome {
            ReserveOutcome::Held { reservation, .. } => {
                Ok(OrderPlaced { reservation, price: sale.items[0].price })
            }
            other => Err(format!("not held: {other:?}")),
        });
        let held: Vec<OrderPlaced> = held.collect::<Result<_, _>>()?;
        let confirmed: Vec<_> =
            held.iter().map(|it| (it.reservation.order, it.reservation.user.clone())).collect();
        let records = (first..).zip(held).map(|(offset, placed)| Delivered {
            offset,
            appended_at: SystemClock::new().now(),
            contents: Decoded::Order(Box::new(placed)),
        });
        let batch = Batch { from: position(first), next, records: records.collect() };
        assert!(batch.records.len() <= BATCH_MAX);
        let RecordOutcome::Recorded(recorded) = ledger.record(&batch).await? else {
            return Err("somebody else records".into());
        };
        if recorded.pending != next - first {
            return Err(format!("{recorded:?}").into());
        }
        stock.confirm(bucket, &confirmed).await?;
    }
    Ok(())
}

fn position(next: u64) -> Position {
    Position { topic: TopicId("expire".to_owned()), partition: 0, next }
}

/// The id of one of the orders that are recorded.
fn order_id(n: u64) -> OrderId {
    sample::order_id(n)
}

fn request(sale: &Sale, order: OrderId, user: &str) -> ReserveRequest {
    ReserveRequest {
        order,
        user: UserId::new(user).expect("a name of letters and digits"),
        item: sale.items[0].id,
        units: Units(1),
        trace: None,
        retake_of: None,
    }
}

/// One unit bought after the other, on a thread of its own.
struct Reserves {
    stop: Arc<AtomicBool>,
    bought: Arc<AtomicU64>,
    thread: JoinHandle<Answer<Vec<u64>>>,
}

impl Reserves {
    fn begin(stock: &Arc<dyn Stock>, sale: &Sale, who: &'static str, core: Option<usize>) -> Self {
        let (stop, bought) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let buying = buy(Arc::clone(stock), sale.clone(), Arc::clone(&stop), Arc::clone(&bought), who);
        let thread = std::thread::spawn(move || {
            if let Some(core) = core {
                let mut cores = CpuSet::new();
                cores.set(core);
                sched_setaffinity(None, &cores)?;
            }
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(buying)
        });
        Self { stop, bought, thread }
    }

    /// Units bought by now.
    fn bought(&self) -> u64 {
        self.bought.load(Ordering::Relaxed)
    }

    /// How long each took, in microseconds.
    fn end(self) -> Answer<Vec<u64>> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "the buyers panicked")?
    }
}

/// Buys until told to stop; how long each unit took, in microseconds.
async fn buy(
    stock: Arc<dyn Stock>,
    sale: Sale,
    stop: Arc<AtomicBool>,
    bought: Arc<AtomicU64>,
    who: &str,
) -> Answer<Vec<u64>> {
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let user = format!("{who}-{}", took.len());
        let request = request(&sale, OrderId(uuid::Uuid::now_v7()), &user);
        let began = Instant::now();
        let outcomes = stock.reserve(bucket, std::slice::from_ref(&request)).await?;
        if !matches!(outcomes.first(), Some(ReserveOutcome::Held { .. })) {
            return Err(format!("not held: {outcomes:?}").into());
        }
        took.push(u64::try_from(began.elapsed().as_micros())?);
        bought.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(PAUSE).await;
    }
    Ok(took)
}

fn p99(mut took: Vec<u64>) -> u64 {
    took.sort_unstable();
    took.get(took.len() * 99 / 100).copied().unwrap_or_default()
}
