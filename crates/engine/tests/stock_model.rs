//! Every stock against a model so simple that it is right by reading, and so against each other: the same
//! random sequence gives the same answers.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod services;

use std::sync::Arc;

use doorbuster_engine::clock::{ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::order::{Epoch, ItemId, OrderId, SaleId, Units, UserId};
use doorbuster_engine::sale::{LoaderToken, SaleState, Terms};
use doorbuster_engine::stock::{
    BucketId, EmbeddedStock, LoadPage, ReadBack, RedisClock, RedisOptions, RedisStock, ReleaseOutcome,
    ReserveOutcome, ReserveRequest, Stock,
};
use proptest::prelude::*;

const BUCKET: BucketId = BucketId { sale: SaleId(1), epoch: Epoch(1) };
const LIMIT: u32 = 3;

#[derive(Clone, Debug)]
enum Op {
    Reserve(Vec<(u64, i64, u32)>),
    Release(u64),
    Confirm(u64),
    Adjust(u128, i64, i64),
}

fn op() -> impl Strategy<Value = Op> {
    let wish = (0..12_u64, 1..4_i64, 0..5_u32);
    prop_oneof![
        5 => prop::collection::vec(wish, 1..6).prop_map(Op::Reserve),
        3 => (0..12_u64).prop_map(Op::Release),
        1 => (0..12_u64).prop_map(Op::Confirm),
        1 => (0..6_u128, 1..4_i64, -4..5_i64).prop_map(|(id, item, units)| Op::Adjust(id, item, units)),
    ]
}

/// What every order did, as a list; everything else is counted from it.
#[derive(Default)]
struct Model {
    holds: Vec<(OrderId, UserId, ItemId, u32, bool)>,
    gone: Vec<OrderId>,
    adjusted: Vec<(u128, ItemId, i64)>,
    refused: Vec<u128>,
}

impl Model {
    fn allocated(&self, item: ItemId) -> Option<i64> {
        let start = match item.0 {
            1 => 4,
            2 => 2,
            _ => return None,
        };
        Some(start + self.adjusted.iter().filter(|it| it.1 == item).map(|it| it.2).sum::<i64>())
    }

    fn free(&self, item: ItemId) -> Option<i64> {
        let held: u32 = self.holds.iter().filter(|it| it.2 == item).map(|it| it.3).sum();
        Some(self.allocated(item)? - i64::from(held))
    }

    /// One word for what the stock must answer.
    fn reserve(&mut self, order: OrderId, user: UserId, item: ItemId, units: u32) -> &'static str {
        if let Some(hold) = self.holds.iter().find(|it| it.0 == order) {
            let same = (&hold.1, hold.2, hold.3) == (&user, item, units);
            return match (same, hold.4) {
                (false, _) => "mismatch",
                (true, true) => "held before, in the outbox",
                (true, false) => "held before",
            };
        }
        if self.gone.contains(&order) {
            return "gone";
        }
        let held: u32 = self.holds.iter().filter(|it| it.1 == user).map(|it| it.3).sum();
        if held > 0 && held + units > LIMIT {
            return "limit";
        }
        let Some(free) = self.free(item).filter(|_| (1..=LIMIT).contains(&units)) else { return "no item" };
        if free == 0 {
            return "sold out";
        }
        if free < i64::from(units) {
            return "not enough";
        }
        self.holds.push((order, user, item, units, true));
        "held"
    }
}

fn word(outcome: &ReserveOutcome) -> &'static str {
    match outcome {
        ReserveOutcome::Held { .. } => "held",
        ReserveOutcome::HeldBefore { in_outbox: true, .. } => "held before, in the outbox",
        ReserveOutcome::HeldBefore { in_outbox: false, .. } => "held before",
        ReserveOutcome::Gone => "gone",
        ReserveOutcome::Mismatch => "mismatch",
        ReserveOutcome::Limit { .. } => "limit",
        ReserveOutcome::NoItem => "no item",
        ReserveOutcome::SoldOut { .. } => "sold out",
        ReserveOutcome::NotEnough { .. } => "not enough",
        ReserveOutcome::NotLoaded
        | ReserveOutcome::Fenced
        | ReserveOutcome::NotOpen
        | ReserveOutcome::Early { .. }
        | ReserveOutcome::Ended => "not selling",
    }
}

/// An order id belongs to one user.
fn user_of(order: u64) -> UserId {
    sample::user(order % 5)
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(Timestamp::from_ms(5_000)))
}

async fn open(stock: &dyn Stock) {
    let terms = Terms {
        state: SaleState::Open,
        opens_at: Timestamp::from_ms(0),
        closes_at: Timestamp::from_ms(10_000),
        limit: Units(LIMIT),
    };
    let token = LoaderToken(1);
    stock.begin_load(BUCKET, &terms, token).await.unwrap();
    let items = LoadPage::Items(vec![(ItemId(1), 4), (ItemId(2), 2)]);
    stock.load(BUCKET, token, 0, &items).await.unwrap();
    stock.finish_load(BUCKET, token, ReadBack { seq: 0, pages: 1 }).await.unwrap();
}

async fn apply(stock: &dyn Stock, model: &mut Model, op: Op) {
    match op {
        Op::Reserve(wishes) => {
            let requests: Vec<ReserveRequest> = wishes
                .iter()
                .map(|(order, item, units)| ReserveRequest {
                    order: sample::order_id(*order),
                    user: user_of(*order),
                    item: ItemId(*item),
                    units: Units(*units),
                    trace: None,
                    retake_of: None,
                })
                .collect();
            let outcomes = stock.reserve(BUCKET, &requests).await.unwrap();
            for (request, outcome) in requests.into_iter().zip(outcomes) {
                let expected =
                    model.reserve(request.order, request.user.clone(), request.item, request.units.0);
                assert_eq!(word(&outcome), expected, "{request:?}");
            }
        }
        Op::Release(order) => {
            let (order, user) = (sample::order_id(order), user_of(order));
            let held = model.holds.iter().position(|it| it.0 == order);
            let outcome = stock.release(BUCKET, &[(order, user)]).await.unwrap()[0];
            let expected = if held.is_some() { ReleaseOutcome::Released } else { ReleaseOutcome::NotHeld };
            assert_eq!(outcome, expected);
            held.map(|index| model.holds.remove(index));
            model.gone.push(order);
        }
        Op::Confirm(order) => {
            let (order, user) = (sample::order_id(order), user_of(order));
            stock.confirm(BUCKET, &[(order, user)]).await.unwrap();
            model.holds.iter_mut().filter(|it| it.0 == order).for_each(|it| it.4 = false);
        }
        Op::Adjust(operation, item, units) => {
            let item = ItemId(item);
            stock.adjust(BUCKET, uuid::Uuid::from_u128(operation), item, units).await.unwrap();
            let known =
                model.adjusted.iter().any(|it| it.0 == operation) || model.refused.contains(&operation);
            match model.free(item) {
                Some(free) if !known && free + units >= 0 => model.adjusted.push((operation, item, units)),
                // The first answer stands.
                Some(_) if !known => model.refused.push(operation),
                _ => {}
            }
        }
    }
}

async fn compare(stock: &dyn Stock, model: &Model) {
    let level = stock.level(BUCKET).await.unwrap().unwrap();
    assert_eq!(level.holds, model.holds.len() as u64);
    assert_eq!(level.unconfirmed, model.holds.iter().filter(|it| it.4).count() as u64);
    for item in level.items {
        assert_eq!(Some(i64::try_from(item.free).unwrap()), model.free(item.item));
        assert_eq!(Some(i64::try_from(item.allocated).unwrap()), model.allocated(item.item));
    }
}

async fn follow(stock: &dyn Stock, ops: Vec<Op>) {
    open(stock).await;
    let mut model = Model::default();
    for op in ops {
        apply(stock, &mut model, op).await;
        compare(stock, &model).await;
    }
}

fn in_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_stock_does_what_the_model_does(ops in prop::collection::vec(op(), 1..60)) {
        in_runtime(async { follow(&EmbeddedStock::new(clock()), ops).await });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_stock_in_redis_does_what_the_model_does(ops in prop::collection::vec(op(), 1..60)) {
        in_runtime(async {
            let options = RedisOptions {
                prefix: services::own_name("model"),
                clock: RedisClock::Given(clock()),
                ..RedisOptions::new(services::address_of("REDIS"))
            };
            follow(&RedisStock::connect(options).await.unwrap(), ops).await;
        });
    }
}
