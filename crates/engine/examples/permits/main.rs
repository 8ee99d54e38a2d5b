//! Permits through the batcher from a real Redis, as fast as they come: what the benchmark measures.
//!
//! `permits URL refusals|holds SECONDS WAITING BATCHERS` prints one JSON object.
#![expect(clippy::print_stdout, reason = "a program for the benchmark: it prints its figure")]
#![expect(clippy::disallowed_methods, reason = "it measures real time and starts tasks of its own")]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::order::{Epoch, ItemId, OrderIds, SaleId, Units, UserId};
use doorbuster_engine::sale::{LoaderToken, SaleState, Terms};
use doorbuster_engine::stock::{
    Batcher, BatcherLimits, BucketId, LoadPage, ReadBack, RedisOptions, RedisStock, ReserveOutcome,
    ReserveReply, ReserveRequest, Stock,
};

const BUCKET: BucketId = BucketId { sale: SaleId(1), epoch: Epoch(1) };
/// More units than a run can take.
const PLENTY: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, mode, seconds, waiting, batchers] = words.as_slice() else {
        return Err("permits URL refusals|holds SECONDS WAITING BATCHERS".into());
    };
    let units = if mode == "holds" { PLENTY } else { 0 };
    let (time, waiting) = (Duration::from_secs(seconds.parse()?), waiting.parse()?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run(url, units, time, waiting, batchers.parse()?))
}

async fn run(
    url: &str,
    units: u64,
    time: Duration,
    waiting: usize,
    batchers: usize,
) -> Result<(), Box<dyn std::error::Error>> {
    let prefix = format!("permits:{:x}:", rand::random::<u64>());
    let stock = Arc::new(RedisStock::connect(RedisOptions { prefix, ..RedisOptions::new(url) }).await?);
    let clock = SystemClock::new();
    open(stock.as_ref(), &clock, units).await?;
    let (answered, held) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let ids = Rc::new(OrderIds::new());
    let until = Instant::now() + time;
    for number in 0..batchers {
        let (batcher, work) = Batcher::new(Arc::clone(&stock) as _, BatcherLimits::default());
        tokio::task::spawn_local(work.run());
        for buyer in 0..waiting {
            let (batcher, ids, clock) = (batcher.clone(), Rc::clone(&ids), SystemClock::new());
            let (answered, held) = (Rc::clone(&answered), Rc::clone(&held));
            tokio::task::spawn_local(async move {
                for click in 0_u64.. {
                    // Every click is another user's, as in a sale.
                    let user = format!("user-{number}-{buyer}-{click}");
                    let request = ReserveRequest {
                        order: ids.next(clock.now()),
                        user: UserId::new(&user).expect("a short plain id"),
                        item: ItemId(1),
                        units: Units(1),
                        trace: None,
                        retake_of: None,
                    };
                    match batcher.reserve(BUCKET, request).await {
                        ReserveReply::Answered { outcome, .. } => {
                            answered.set(answered.get() + 1);
                            if matches!(outcome, ReserveOutcome::Held { .. }) {
                                held.set(held.get() + 1);
                            }
                        }
                        other => panic!("the stock does not answer: {other:?}"),
                    }
                }
            });
        }
    }
    let began = Instant::now();
    tokio::time::sleep_until(until.into()).await;
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{{\"answered\":{},\"held\":{},\"perSecond\":{:.0}}}",
        answered.get(),
        held.get(),
        answered.get() as f64 / seconds
    );
    Ok(())
}

async fn open(stock: &dyn Stock, clock: &dyn Clock, units: u64) -> Result<(), Box<dyn std::error::Error>> {
    let now = clock.now();
    let terms = Terms {
        state: SaleState::Open,
        opens_at: now.minus(Duration::from_secs(3_600)),
        closes_at: now.plus(Duration::from_secs(3_600)),
        limit: Units(1),
    };
    let token = LoaderToken(1);
    stock.begin_load(BUCKET, &terms, token).await?;
    stock.load(BUCKET, token, 0, &LoadPage::Items(vec![(ItemId(1), units)])).await?;
    stock.finish_load(BUCKET, token, ReadBack { seq: 0, pages: 1 }).await?;
    Ok(())
}
