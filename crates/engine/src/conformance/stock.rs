//! The promises of [`Stock`] as tests.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::{sample, sound};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::order::{Epoch, ItemId, OrderId, Reservation, SaleId, Units, UserId};
use crate::sale::{LoaderToken, SaleState, Terms};
use crate::stock::{
    AdjustOutcome, BeginLoadOutcome, BucketId, FinishOutcome, Level, LoadOutcome, LoadPage, ReadBack,
    ReleaseOutcome, ReserveOutcome, ReserveRequest, Stock,
};

/// Hands every promise of the suite to the macro `$each`, as a list of names.
#[macro_export]
macro_rules! stock_promises {
    ($each:ident) => {
        $each! {
            an_unloaded_bucket_sells_nothing, exactly_the_allocated_units_are_held, the_limit_counts_over_all_items,
            the_same_order_id_holds_once, other_content_under_a_held_id_is_a_mismatch, a_released_order_id_is_gone,
            a_release_counts_once, a_hold_is_unconfirmed_until_confirmed, a_fence_stops_new_holds_only,
            the_window_is_checked_by_the_stocks_clock, loading_twice_changes_nothing, a_fenced_bucket_stays_fenced, a_stalled_loader_is_refused,
            the_flip_refuses_other_contents, an_adjustment_counts_once, free_and_held_are_what_was_allocated,
            units_outside_the_limit_take_nothing, another_epoch_is_another_bucket, every_holder_is_listed_once,
        }
    };
}

/// One stock under test and the clock it was made with.
pub struct Bench {
    /// The stock.
    pub stock: Arc<dyn Stock>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
}

/// When the sample sale opens.
const OPENS_AT: Timestamp = Timestamp::from_ms(1_800_000_000_000);
/// The bucket of most tests.
const BUCKET: BucketId = BucketId { sale: SaleId(1), epoch: Epoch(1) };
const TOKEN: LoaderToken = LoaderToken(7);

impl Bench {
    /// A clock in the middle of the sample sale's window, for making a stock.
    pub fn clock() -> Arc<ManualClock> {
        Arc::new(ManualClock::at(OPENS_AT.plus(Duration::from_secs(60))))
    }

    async fn open(&self, items: &[(i64, u64)], limit: u32) {
        self.load(BUCKET, items, &[], limit).await;
    }

    async fn load(&self, bucket: BucketId, items: &[(i64, u64)], holds: &[Reservation], limit: u32) {
        let begun = sound(self.stock.begin_load(bucket, &terms(limit), TOKEN).await);
        assert_eq!(begun, BeginLoadOutcome::Started);
        let items = items.iter().map(|(item, quantity)| (ItemId(*item), *quantity)).collect();
        for (page, contents) in (0..).zip([LoadPage::Items(items), LoadPage::Holds(holds.to_vec())]) {
            assert_eq!(sound(self.stock.load(bucket, TOKEN, page, &contents).await), LoadOutcome::Loaded);
        }
        let level = self.level(bucket).await;
        let read_back = ReadBack { seq: level.seq, pages: level.pages };
        assert_eq!(sound(self.stock.finish_load(bucket, TOKEN, read_back).await), FinishOutcome::Open);
    }

    async fn level(&self, bucket: BucketId) -> Level {
        match sound(self.stock.level(bucket).await) {
            Some(level) => level,
            None => panic!("the bucket is missing"),
        }
    }

    async fn free(&self, item: i64) -> u64 {
        let level = self.level(BUCKET).await;
        level.items.iter().find(|it| it.item == ItemId(item)).map_or(0, |it| it.free)
    }

    async fn reserve(&self, request: &ReserveRequest) -> ReserveOutcome {
        let mut outcomes = sound(self.stock.reserve(BUCKET, std::slice::from_ref(request)).await);
        assert_eq!(outcomes.len(), 1, "one answer per request");
        outcomes.remove(0)
    }

    async fn hold(&self, request: &ReserveRequest) -> Reservation {
        match self.reserve(request).await {
            ReserveOutcome::Held { reservation, .. } => reservation,
            other => panic!("not held: {other:?}"),
        }
    }

    async fn release(&self, n: u64) -> ReleaseOutcome {
        let orders = [(sample::order_id(n), sample::user(n))];
        sound(self.stock.release(BUCKET, &orders).await)[0]
    }

    /// The script law: free + held = allocated, per item, and the outbox is among the holds.
    async fn check_law(&self) {
        let level = self.level(BUCKET).await;
        let holds = self.all_holds(7).await;
        let mut held: HashMap<ItemId, u64> = HashMap::new();
        for hold in &holds {
            *held.entry(hold.item).or_default() += u64::from(hold.units.0);
        }
        for item in &level.items {
            let held = held.get(&item.item).copied().unwrap_or(0);
            assert_eq!(item.free + held, item.allocated, "item {}", item.item);
        }
        assert_eq!(level.holds, holds.len() as u64);
        let ids: HashSet<OrderId> = holds.iter().map(|hold| hold.order).collect();
        let far = Timestamp::from_ms(i64::MAX);
        for entry in sound(self.stock.unconfirmed(BUCKET, far, 10_000).await) {
            assert!(ids.contains(&entry.order), "{} is in the outbox and not held", entry.order);
        }
    }

    async fn all_holds(&self, limit: usize) -> Vec<Reservation> {
        let (mut holds, mut cursor): (Vec<Reservation>, Option<String>) = (Vec::new(), None);
        loop {
            let page = sound(self.stock.holders(BUCKET, cursor.as_deref(), limit).await);
            holds.extend(page.holds);
            cursor = page.next;
            if cursor.is_none() {
                return holds;
            }
        }
    }
}

fn terms(limit: u32) -> Terms {
    Terms {
        state: SaleState::Open,
        opens_at: OPENS_AT,
        closes_at: OPENS_AT.plus(Duration::from_secs(3_600)),
        limit: Units(limit),
    }
}

/// User `n` wants `units` of `item` as order `n`.
fn wish(n: u64, item: i64, units: u32) -> ReserveRequest {
    ReserveRequest {
        order: sample::order_id(n),
        user: sample::user(n),
        item: ItemId(item),
        units: Units(units),
        trace: None,
        retake_of: None,
    }
}

fn by(user: u64, request: ReserveRequest) -> ReserveRequest {
    ReserveRequest { user: sample::user(user), ..request }
}

/// Promise 1.
pub async fn an_unloaded_bucket_sells_nothing(bench: &Bench) {
    assert_eq!(bench.reserve(&wish(1, 1, 1)).await, ReserveOutcome::NotLoaded);
    sound(bench.stock.begin_load(BUCKET, &terms(1), TOKEN).await);
    assert_eq!(bench.reserve(&wish(1, 1, 1)).await, ReserveOutcome::NotLoaded);
    assert_eq!(bench.release(1).await, ReleaseOutcome::NotNow);
}

/// Promise 2: a thousand users in batches from several tasks want a hundred units.
pub async fn exactly_the_allocated_units_are_held(bench: &Bench) {
    bench.open(&[(1, 100)], 1).await;
    let requests: Vec<ReserveRequest> = (1..=1_000).map(|n| wish(n, 1, 1)).collect();
    let calls = requests.chunks(37).map(|chunk| bench.stock.reserve(BUCKET, chunk));
    let outcomes: Vec<ReserveOutcome> =
        futures_util::future::join_all(calls).await.into_iter().flat_map(sound).collect();
    let held = outcomes.iter().filter(|it| matches!(it, ReserveOutcome::Held { .. })).count();
    let refused = outcomes.iter().filter(|it| matches!(it, ReserveOutcome::SoldOut { .. })).count();
    assert_eq!((held, refused), (100, 900));
    let seqs: HashSet<u64> = outcomes
        .iter()
        .filter_map(|it| match it {
            ReserveOutcome::Held { reservation, .. } => Some(reservation.seq),
            _ => None,
        })
        .collect();
    assert_eq!(seqs.len(), 100, "every hold has a step of its own");
    assert_eq!(bench.free(1).await, 0);
    bench.check_law().await;
}

/// Promise 3.
pub async fn the_limit_counts_over_all_items(bench: &Bench) {
    bench.open(&[(1, 10), (2, 10)], 3).await;
    bench.hold(&by(9, wish(1, 1, 2))).await;
    let refused = bench.reserve(&by(9, wish(2, 2, 2))).await;
    assert_eq!(refused, ReserveOutcome::Limit { orders: vec![sample::order_id(1)] });
    bench.hold(&by(9, wish(3, 2, 1))).await;
    let ReserveOutcome::Limit { orders } = bench.reserve(&by(9, wish(4, 1, 1))).await else {
        panic!("not limited")
    };
    let orders: HashSet<OrderId> = orders.into_iter().collect();
    assert_eq!(orders, HashSet::from([sample::order_id(1), sample::order_id(3)]));
    bench.check_law().await;
}

/// Promise 4, within one call and over several.
pub async fn the_same_order_id_holds_once(bench: &Bench) {
    bench.open(&[(1, 10)], 5).await;
    let twice = [wish(1, 1, 2), wish(1, 1, 2)];
    let outcomes = sound(bench.stock.reserve(BUCKET, &twice).await);
    let ReserveOutcome::Held { reservation, left: 8 } = &outcomes[0] else { panic!("{:?}", outcomes[0]) };
    let again = ReserveOutcome::HeldBefore { reservation: reservation.clone(), in_outbox: true };
    assert_eq!(outcomes[1], again);
    assert_eq!(bench.reserve(&twice[0]).await, again);
    sound(bench.stock.confirm(BUCKET, &[(sample::order_id(1), sample::user(1))]).await);
    let confirmed = ReserveOutcome::HeldBefore { reservation: reservation.clone(), in_outbox: false };
    assert_eq!(bench.reserve(&twice[0]).await, confirmed);
    assert_eq!(bench.free(1).await, 8);
}

/// Promise 4.
pub async fn other_content_under_a_held_id_is_a_mismatch(bench: &Bench) {
    bench.open(&[(1, 10), (2, 10)], 5).await;
    bench.hold(&wish(1, 1, 2)).await;
    for other in [wish(1, 2, 2), wish(1, 1, 1)] {
        assert_eq!(bench.reserve(&other).await, ReserveOutcome::Mismatch);
    }
    assert_eq!((bench.free(1).await, bench.free(2).await), (8, 10));
}

/// Promise 5: also for an id that was never held.
pub async fn a_released_order_id_is_gone(bench: &Bench) {
    bench.open(&[(1, 10)], 1).await;
    bench.hold(&wish(1, 1, 1)).await;
    assert_eq!(bench.release(1).await, ReleaseOutcome::Released);
    assert_eq!(bench.release(2).await, ReleaseOutcome::NotHeld);
    for n in [1, 2] {
        assert_eq!(bench.reserve(&wish(n, 1, 1)).await, ReserveOutcome::Gone);
    }
    assert_eq!(bench.free(1).await, 10);
}

/// Promise 6: a late second release does not touch the user's next order.
pub async fn a_release_counts_once(bench: &Bench) {
    bench.open(&[(1, 3)], 1).await;
    bench.hold(&wish(1, 1, 1)).await;
    assert_eq!(bench.release(1).await, ReleaseOutcome::Released);
    bench.hold(&by(1, wish(2, 1, 1))).await;
    assert_eq!(bench.release(1).await, ReleaseOutcome::NotHeld);
    assert_eq!(bench.free(1).await, 2);
    bench.check_law().await;
}

/// Promise 7.
pub async fn a_hold_is_unconfirmed_until_confirmed(bench: &Bench) {
    bench.open(&[(1, 10)], 1).await;
    for n in 1..=3 {
        bench.hold(&wish(n, 1, 1)).await;
        bench.clock.advance(Duration::from_secs(1));
    }
    let now = bench.clock.now();
    let entries = |before: Timestamp| async move {
        let entries = sound(bench.stock.unconfirmed(BUCKET, before, 10).await);
        entries.into_iter().map(|entry| entry.order).collect::<Vec<_>>()
    };
    let old = now.minus(Duration::from_millis(1_500));
    assert_eq!(entries(old).await, [sample::order_id(1), sample::order_id(2)], "oldest first");
    sound(
        bench
            .stock
            .confirm(
                BUCKET,
                &[(sample::order_id(1), sample::user(1)), (sample::order_id(99), sample::user(99))],
            )
            .await,
    );
    assert_eq!(entries(old).await, [sample::order_id(2)]);
    bench.release(2).await;
    assert_eq!(entries(now).await, [sample::order_id(3)]);
    assert_eq!(bench.level(BUCKET).await.unconfirmed, 1);
    let all = sound(bench.stock.unconfirmed(BUCKET, Timestamp::from_ms(i64::MAX), usize::MAX).await);
    assert_eq!(all.len(), 1, "whatever the limit");
}

/// Promise 8.
pub async fn a_fence_stops_new_holds_only(bench: &Bench) {
    bench.open(&[(1, 10)], 1).await;
    let held = bench.hold(&wish(1, 1, 1)).await;
    sound(bench.stock.fence(BUCKET).await);
    let known = ReserveOutcome::HeldBefore { reservation: held, in_outbox: true };
    assert_eq!(bench.reserve(&wish(1, 1, 1)).await, known);
    assert_eq!(bench.reserve(&wish(2, 1, 1)).await, ReserveOutcome::Fenced);
    // A fenced bucket does not answer with orders that may be dead.
    assert_eq!(bench.reserve(&by(1, wish(3, 1, 1))).await, ReserveOutcome::Fenced);
    assert_eq!(bench.release(1).await, ReleaseOutcome::NotNow);
    let far = Timestamp::from_ms(i64::MAX);
    assert_eq!(sound(bench.stock.unconfirmed(BUCKET, far, 10).await).len(), 1);
    // The mark stands where nothing was.
    let other = BucketId { epoch: Epoch(9), ..BUCKET };
    sound(bench.stock.fence(other).await);
    assert!(bench.level(other).await.fenced);
}

/// Promise 9.
pub async fn the_window_is_checked_by_the_stocks_clock(bench: &Bench) {
    bench.open(&[(1, 10)], 1).await;
    bench.clock.jump(OPENS_AT.minus(Duration::from_millis(1_500)));
    assert_eq!(bench.reserve(&wish(1, 1, 1)).await, ReserveOutcome::Early { starts_in_ms: 1_500 });
    bench.clock.jump(OPENS_AT);
    bench.hold(&wish(1, 1, 1)).await;
    let paused = Terms { state: SaleState::Paused, ..terms(1) };
    assert!(sound(bench.stock.set_terms(BUCKET, &paused).await));
    assert_eq!(bench.reserve(&wish(2, 1, 1)).await, ReserveOutcome::NotOpen);
    assert!(sound(bench.stock.set_terms(BUCKET, &terms(1)).await));
    bench.clock.jump(terms(1).closes_at);
    assert_eq!(bench.reserve(&wish(2, 1, 1)).await, ReserveOutcome::Ended);
    // A holder still hears of the order.
    let refused = bench.reserve(&by(1, wish(3, 1, 1))).await;
    assert_eq!(refused, ReserveOutcome::Limit { orders: vec![sample::order_id(1)] });
}

/// Promise 10.
pub async fn loading_twice_changes_nothing(bench: &Bench) {
    bench.open(&[(1, 10)], 1).await;
    bench.hold(&wish(1, 1, 1)).await;
    let again = sound(bench.stock.begin_load(BUCKET, &terms(1), LoaderToken(8)).await);
    assert_eq!(again, BeginLoadOutcome::AlreadyOpen);
    let page = LoadPage::Items(vec![(ItemId(1), 10)]);
    assert_eq!(sound(bench.stock.load(BUCKET, LoaderToken(8), 0, &page).await), LoadOutcome::NotLoader);
    assert_eq!(sound(bench.stock.load(BUCKET, TOKEN, 2, &page).await), LoadOutcome::NotLoader);
    assert_eq!(bench.free(1).await, 9);
}

/// Promise 10: a loader of an epoch that is over wakes up.
pub async fn a_fenced_bucket_stays_fenced(bench: &Bench) {
    let untouched = BucketId { epoch: Epoch(7), ..BUCKET };
    bench.open(&[(1, 10)], 1).await;
    bench.hold(&wish(1, 1, 1)).await;
    for bucket in [BUCKET, untouched] {
        sound(bench.stock.fence(bucket).await);
        let begun = sound(bench.stock.begin_load(bucket, &terms(1), TOKEN).await);
        assert_eq!(begun, BeginLoadOutcome::Fenced);
        let page = LoadPage::Items(vec![(ItemId(1), 10)]);
        assert_eq!(sound(bench.stock.load(bucket, TOKEN, 0, &page).await), LoadOutcome::NotLoader);
        let nothing = ReadBack { seq: 0, pages: 0 };
        assert_eq!(sound(bench.stock.finish_load(bucket, TOKEN, nothing).await), FinishOutcome::NotLoader);
        assert!(!sound(bench.stock.set_terms(bucket, &terms(1)).await));
        assert!(bench.level(bucket).await.fenced);
    }
    assert_eq!(bench.level(BUCKET).await.holds, 1, "what it had is still to be read");
}

/// Promise 10: a loader that was overtaken wakes up.
pub async fn a_stalled_loader_is_refused(bench: &Bench) {
    let page = |quantity| LoadPage::Items(vec![(ItemId(1), quantity)]);
    sound(bench.stock.begin_load(BUCKET, &terms(1), LoaderToken(1)).await);
    assert_eq!(sound(bench.stock.load(BUCKET, LoaderToken(1), 0, &page(5)).await), LoadOutcome::Loaded);
    sound(bench.stock.begin_load(BUCKET, &terms(1), LoaderToken(2)).await);
    assert!(bench.level(BUCKET).await.items.is_empty(), "a takeover starts from nothing");
    assert_eq!(sound(bench.stock.load(BUCKET, LoaderToken(1), 1, &page(5)).await), LoadOutcome::NotLoader);
    let read_back = ReadBack { seq: 0, pages: 1 };
    assert_eq!(
        sound(bench.stock.finish_load(BUCKET, LoaderToken(1), read_back).await),
        FinishOutcome::NotLoader
    );
    assert_eq!(sound(bench.stock.load(BUCKET, LoaderToken(2), 0, &page(3)).await), LoadOutcome::Loaded);
    assert_eq!(sound(bench.stock.finish_load(BUCKET, LoaderToken(2), read_back).await), FinishOutcome::Open);
    assert_eq!(
        sound(bench.stock.finish_load(BUCKET, LoaderToken(1), read_back).await),
        FinishOutcome::NotLoader
    );
    assert_eq!(bench.free(1).await, 3);
}

/// Promise 10: pages come once and in order; more holds than units are refused.
pub async fn the_flip_refuses_other_contents(bench: &Bench) {
    sound(bench.stock.begin_load(BUCKET, &terms(1), TOKEN).await);
    let items = LoadPage::Items(vec![(ItemId(1), 2)]);
    assert_eq!(sound(bench.stock.load(BUCKET, TOKEN, 1, &items).await), LoadOutcome::Refused);
    for _ in 0..2 {
        assert_eq!(sound(bench.stock.load(BUCKET, TOKEN, 0, &items).await), LoadOutcome::Loaded);
    }
    let holds: Vec<Reservation> = (1..=3).map(|n| sample::order_placed(n).reservation).collect();
    let too_many = LoadPage::Holds(holds.clone());
    assert_eq!(sound(bench.stock.load(BUCKET, TOKEN, 1, &too_many).await), LoadOutcome::Refused);
    let fitting = LoadPage::Holds(holds[..2].to_vec());
    assert_eq!(sound(bench.stock.load(BUCKET, TOKEN, 1, &fitting).await), LoadOutcome::Loaded);
    let level = bench.level(BUCKET).await;
    let right = ReadBack { seq: level.seq, pages: level.pages };
    for wrong in [ReadBack { pages: right.pages - 1, ..right }, ReadBack { seq: right.seq + 1, ..right }] {
        assert_eq!(sound(bench.stock.finish_load(BUCKET, TOKEN, wrong).await), FinishOutcome::Changed);
    }
    assert_eq!(bench.reserve(&wish(9, 1, 1)).await, ReserveOutcome::NotLoaded);
    assert_eq!(sound(bench.stock.finish_load(BUCKET, TOKEN, right).await), FinishOutcome::Open);
    // Repeated by a loader whose first reply was lost.
    assert_eq!(sound(bench.stock.finish_load(BUCKET, TOKEN, right).await), FinishOutcome::Open);
    assert!(matches!(bench.reserve(&wish(9, 1, 1)).await, ReserveOutcome::SoldOut { .. }));
    bench.check_law().await;
}

/// Promise 11.
pub async fn an_adjustment_counts_once(bench: &Bench) {
    bench.open(&[(1, 5)], 1).await;
    bench.hold(&wish(1, 1, 1)).await;
    let adjust = |operation: u128, item: i64, units: i64| async move {
        sound(bench.stock.adjust(BUCKET, Uuid::from_u128(operation), ItemId(item), units).await)
    };
    for _ in 0..2 {
        assert_eq!(adjust(1, 1, 10).await, AdjustOutcome::Applied);
    }
    assert_eq!(bench.free(1).await, 14);
    assert_eq!(adjust(2, 1, -15).await, AdjustOutcome::NotEnough { left: 14 });
    bench.release(1).await;
    assert_eq!(adjust(2, 1, -15).await, AdjustOutcome::NotEnough { left: 14 }, "said once, it stands");
    bench.hold(&wish(7, 1, 1)).await;
    assert_eq!(adjust(3, 1, -14).await, AdjustOutcome::Applied);
    assert_eq!(adjust(4, 9, 1).await, AdjustOutcome::NotNow);
    assert!(matches!(bench.reserve(&wish(2, 1, 1)).await, ReserveOutcome::SoldOut { .. }));
    bench.check_law().await;
    sound(bench.stock.fence(BUCKET).await);
    assert_eq!(adjust(5, 1, 1).await, AdjustOutcome::NotNow);
}

/// Promise 12, after every one of many mixed calls.
pub async fn free_and_held_are_what_was_allocated(bench: &Bench) {
    bench.open(&[(1, 7), (2, 4)], 2).await;
    for n in 1..=60_u64 {
        let item = i64::from(n % 3 == 0) + 1;
        let units = u32::from(n % 5 == 0) + 1;
        let _ = bench.reserve(&by(n % 9, wish(n, item, units))).await;
        bench.check_law().await;
        if n % 4 == 0 {
            let orders = [(sample::order_id(n / 2), sample::user((n / 2) % 9))];
            sound(bench.stock.release(BUCKET, &orders).await);
            bench.check_law().await;
        }
    }
}

/// Quantities that were not checked anywhere before change nothing.
pub async fn units_outside_the_limit_take_nothing(bench: &Bench) {
    bench.open(&[(1, 10)], 2).await;
    for (n, units) in [(1, 0), (2, 3), (3, u32::MAX)] {
        assert_eq!(bench.reserve(&wish(n, 1, units)).await, ReserveOutcome::NoItem);
    }
    assert_eq!(bench.reserve(&wish(4, 9, 1)).await, ReserveOutcome::NoItem);
    let one_too_few = bench.hold(&by(1, wish(5, 1, 2))).await;
    assert_eq!(one_too_few.units, Units(2));
    for n in 2..=4 {
        bench.hold(&wish(10 + n, 1, 2)).await;
    }
    bench.hold(&wish(20, 1, 1)).await;
    assert_eq!(bench.reserve(&wish(21, 1, 2)).await, ReserveOutcome::NotEnough { left: 1 });
    assert_eq!(bench.free(1).await, 1);
}

/// Keys carry the epoch: what happens in one generation does not touch another.
pub async fn another_epoch_is_another_bucket(bench: &Bench) {
    bench.open(&[(1, 1)], 1).await;
    let held = bench.hold(&wish(1, 1, 1)).await;
    sound(bench.stock.fence(BUCKET).await);
    let next = BucketId { epoch: Epoch(2), ..BUCKET };
    bench.load(next, &[(1, 2)], std::slice::from_ref(&held), 1).await;
    assert_eq!(bench.reserve(&wish(2, 1, 1)).await, ReserveOutcome::Fenced);
    let outcomes = sound(bench.stock.reserve(next, &[wish(2, 1, 1), wish(3, 1, 1)]).await);
    assert!(matches!(outcomes[0], ReserveOutcome::Held { left: 0, .. }));
    assert!(matches!(outcomes[1], ReserveOutcome::SoldOut { .. }));
}

/// The listing is complete whatever the page size, and answers for one user.
pub async fn every_holder_is_listed_once(bench: &Bench) {
    bench.open(&[(1, 100)], 3).await;
    for n in 1..=40 {
        bench.hold(&by(n / 2, wish(n, 1, 1))).await;
    }
    for limit in [1, 7, 40, 1_000] {
        let holds = bench.all_holds(limit).await;
        let ids: HashSet<OrderId> = holds.iter().map(|hold| hold.order).collect();
        assert_eq!((holds.len(), ids.len()), (40, 40), "pages of {limit}");
    }
    let mine: Option<Vec<(Reservation, bool)>> = sound(bench.stock.holds_of(BUCKET, &sample::user(3)).await);
    let mine: HashSet<OrderId> = mine.into_iter().flatten().map(|(hold, _)| hold.order).collect();
    assert_eq!(mine, HashSet::from([sample::order_id(6), sample::order_id(7)]));
    let nobody: UserId = sample::user(999);
    assert_eq!(sound(bench.stock.holds_of(BUCKET, &nobody).await), Some(Vec::new()));
    let missing = BucketId { epoch: Epoch(9), ..BUCKET };
    assert_eq!(sound(bench.stock.holds_of(missing, &nobody).await), None);
}
