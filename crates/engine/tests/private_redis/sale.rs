//! A sale in a stock, and what must be true of it whatever happens.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::clock::{Clock, SystemClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::order::{Epoch, ItemId, OrderId, Reservation, SaleId, Units, UserId};
use doorbuster_engine::sale::{LoaderToken, SaleState, Terms};
use doorbuster_engine::stock::{
    Batcher, BatcherLimits, BatcherWork, BeginLoadOutcome, BucketId, FinishOutcome, LoadOutcome, LoadPage,
    ReadBack, ReserveOutcome, ReserveReply, ReserveRequest, Stock,
};

pub(crate) const BUCKET: BucketId = BucketId { sale: SaleId(1), epoch: Epoch(1) };
pub(crate) const ITEM: ItemId = ItemId(1);
pub(crate) const TOKEN: LoaderToken = LoaderToken(7);

/// Terms of a sale that opened an hour ago by the real clock.
pub(crate) fn terms(limit: u32) -> Terms {
    let now = SystemClock::new().now();
    let hour = Duration::from_secs(3_600);
    Terms {
        state: SaleState::Open,
        opens_at: now.minus(hour),
        closes_at: now.plus(hour),
        limit: Units(limit),
    }
}

/// Loads a bucket and opens it.
pub(crate) async fn load(stock: &dyn Stock, bucket: BucketId, terms: &Terms, pages: Vec<LoadPage>) {
    assert_eq!(stock.begin_load(bucket, terms, TOKEN).await.unwrap(), BeginLoadOutcome::Started);
    for (number, page) in (0..).zip(&pages) {
        assert_eq!(stock.load(bucket, TOKEN, number, page).await.unwrap(), LoadOutcome::Loaded);
    }
    let read_back = ReadBack { seq: 0, pages: u32::try_from(pages.len()).unwrap() };
    assert_eq!(stock.finish_load(bucket, TOKEN, read_back).await.unwrap(), FinishOutcome::Open);
}

/// Opens the bucket of most tests with `units` of one item.
pub(crate) async fn open(stock: &dyn Stock, units: u64, limit: u32) {
    load(stock, BUCKET, &terms(limit), vec![LoadPage::Items(vec![(ITEM, units)])]).await;
}

/// User `n` wants a unit as order `n`.
pub(crate) fn wish(n: u64) -> ReserveRequest {
    ReserveRequest {
        order: sample::order_id(n),
        user: sample::user(n),
        item: ITEM,
        units: Units(1),
        trace: None,
        retake_of: None,
    }
}

pub(crate) async fn reserve(stock: &dyn Stock, n: u64) -> ReserveOutcome {
    stock.reserve(BUCKET, &[wish(n)]).await.unwrap().remove(0)
}

/// Order and user of `n`.
pub(crate) fn pair(n: u64) -> (OrderId, UserId) {
    (sample::order_id(n), sample::user(n))
}

/// Every hold of a bucket, by its order.
pub(crate) async fn holds(stock: &dyn Stock, bucket: BucketId) -> BTreeMap<OrderId, Reservation> {
    let (mut holds, mut cursor) = (BTreeMap::new(), None::<String>);
    loop {
        let page = stock.holders(bucket, cursor.as_deref(), 100).await.unwrap();
        holds.extend(page.holds.into_iter().map(|hold| (hold.order, hold)));
        cursor = page.next;
        if cursor.is_none() {
            return holds;
        }
    }
}

/// The law of the scripts: free + held = allocated, per item, and what is unconfirmed is held. Answers
/// the orders that hold.
pub(crate) async fn lawful(stock: &dyn Stock, bucket: BucketId) -> HashSet<OrderId> {
    let level = stock.level(bucket).await.unwrap().expect("the bucket is loaded");
    let holds = holds(stock, bucket).await;
    let mut held: HashMap<ItemId, u64> = HashMap::new();
    for hold in holds.values() {
        *held.entry(hold.item).or_default() += u64::from(hold.units.0);
    }
    for item in &level.items {
        assert_eq!(item.free + held.get(&item.item).copied().unwrap_or(0), item.allocated, "{level:?}");
    }
    assert_eq!(level.holds, holds.len() as u64);
    let unconfirmed = stock.unconfirmed(bucket, Timestamp::from_ms(i64::MAX), 100_000).await.unwrap();
    assert_eq!(level.unconfirmed, unconfirmed.len() as u64);
    assert!(unconfirmed.iter().all(|entry| holds.get(&entry.order) == Some(entry)), "{unconfirmed:?}");
    let seqs: HashSet<u64> = holds.values().map(|hold| hold.seq).collect();
    assert_eq!(seqs.len(), holds.len(), "every hold has a step of its own");
    holds.into_keys().collect()
}

/// A batcher that works as long as it is there.
#[expect(clippy::disallowed_methods, reason = "a test starts what the server would start")]
pub(crate) fn batcher(stock: Arc<dyn Stock>, repeats: u32, call_timeout: Duration) -> Batcher {
    let limits = BatcherLimits { repeats, call_timeout, ..BatcherLimits::default() };
    let (batcher, work): (Batcher, BatcherWork) = Batcher::new(stock, limits);
    drop(tokio::spawn(work.run()));
    batcher
}

/// What the clients of a storm heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    pub(crate) held: HashSet<OrderId>,
    pub(crate) unknown: HashSet<OrderId>,
    pub(crate) sold_out: u64,
}

/// User after user wants a unit until `enough` says so; one who hears BUSY asks again with the same id.
pub(crate) async fn buy(batcher: Batcher, first: u64, enough: impl Fn(&Heard) -> bool) -> Heard {
    let mut heard = Heard::default();
    for n in first.. {
        if enough(&heard) {
            break;
        }
        let wish = wish(n);
        loop {
            match batcher.reserve(BUCKET, wish.clone()).await {
                ReserveReply::Answered { outcome: ReserveOutcome::Held { reservation, .. }, .. }
                | ReserveReply::Answered {
                    outcome: ReserveOutcome::HeldBefore { reservation, .. }, ..
                } => {
                    assert_eq!(reservation.order, wish.order);
                    assert!(heard.held.insert(reservation.order), "said twice");
                }
                ReserveReply::Answered { outcome: ReserveOutcome::SoldOut { .. }, .. } => heard.sold_out += 1,
                ReserveReply::Busy => {
                    tokio::task::yield_now().await;
                    continue;
                }
                ReserveReply::Unknown => {
                    heard.unknown.insert(wish.order);
                }
                other @ ReserveReply::Answered { .. } => panic!("{other:?}"),
            }
            break;
        }
    }
    heard
}

/// Everybody's answers together.
pub(crate) fn together(all: Vec<Heard>) -> Heard {
    all.into_iter().fold(Heard::default(), |mut sum, heard| {
        sum.held.extend(heard.held);
        sum.unknown.extend(heard.unknown);
        sum.sold_out += heard.sold_out;
        sum
    })
}
