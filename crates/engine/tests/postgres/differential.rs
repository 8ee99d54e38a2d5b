//! The same operations on SQLite and on PostgreSQL have the same answers and end in the same books.
//! SQLite's one writer is the plainer ledger, so it says what is right.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::clock::{Clock, ManualClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Decoded, Position};
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::ledger::{
    BookSnapshot, Books, LateVerdict, Ledger, PaymentAttemptId, PaymentEvent, PaymentEventKind, PaymentKey,
    ProviderEvent, RefundReport, RefundState, ReleaseRow, SqliteLedger,
};
use doorbuster_engine::order::{Epoch, ItemId, OrderId, OrderPlaced, SaleId, Units};
use doorbuster_engine::sale::{LoaderToken, SaleState};
use uuid::Uuid;

use crate::random::Random;
use crate::shop::{Shop, batch_of, payment_of, preheated_sale};

const SEEDS: u64 = 6;
const STEPS: u64 = 250;

/// Another seed may be tried by naming it.
const SEED_VARIABLE: &str = "DOORBUSTER_TEST_SEED";

#[tokio::test]
async fn sqlite_and_postgres_answer_the_same_and_keep_the_same_books() {
    let given = std::env::var(SEED_VARIABLE).ok().map(|text| text.parse().unwrap());
    let first = rand::random::<u64>() >> 16;
    for seed in given.map_or(first..first + SEEDS, |seed| seed..seed + 1) {
        eprintln!("{SEED_VARIABLE}={seed}");
        life(seed).await;
    }
}

async fn life(seed: u64) {
    let shop = Shop::open("differential").await;
    let folder = tempfile::tempdir().unwrap();
    let sqlite =
        SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&shop.clock) as Arc<dyn Clock>).unwrap();
    let mut pair = Pair { sqlite: &sqlite, postgres: shop.ledger.as_ref(), step: 0, seed };
    for ledger in [pair.sqlite, pair.postgres] {
        preheated_sale(ledger, &shop.clock, 40, 3).await;
        ledger.register(&[Position { partition: 1, ..sample::position(0) }]).await.unwrap();
    }
    let mut random = Random::new(seed);
    while pair.step < STEPS {
        pair.step += 1;
        operate(&pair, &shop.clock, &mut random).await;
    }
    let (left, right) = (sorted(sqlite.books().await), sorted(shop.ledger.books().await));
    pair.same("the books", &left, &right);
    crate::shop::assert_sound(&right);
    assert!(right.orders.len() > 50, "a life in which little happened");
    shop.close().await;
}

/// Both ledgers under the same operations.
struct Pair<'a> {
    sqlite: &'a dyn Ledger,
    postgres: &'a dyn Ledger,
    step: u64,
    seed: u64,
}

impl Pair<'_> {
    #[track_caller]
    fn same<T: Debug>(&self, what: &str, left: &T, right: &T) {
        let (left, right) = (format!("{left:#?}"), format!("{right:#?}"));
        assert_eq!(left, right, "{what}, step {} of {SEED_VARIABLE}={}", self.step, self.seed);
    }

    #[track_caller]
    fn both<T: Debug>(
        &self,
        what: &str,
        (left, right): (Result<T, BackendError>, Result<T, BackendError>),
    ) -> T {
        let (left, right) = (left.unwrap(), right.unwrap());
        self.same(what, &left, &right);
        left
    }
}

/// Asks both ledgers the same. The call's arguments are evaluated twice.
macro_rules! ask {
    ($pair:expr, $($call:tt)*) => {
        $pair.both(stringify!($($call)*), (
            $pair.sqlite.$($call)*.await,
            $pair.postgres.$($call)*.await,
        ))
    };
}

async fn operate(pair: &Pair<'_>, clock: &ManualClock, random: &mut Random) {
    let n = 1 + random.below(300);
    let id = sample::order_id(n);
    let user = sample::user(1 + n % 40);
    match random.below(20) {
        0..=5 => record(pair, random).await,
        6 | 7 => {
            let (event, payment) = (random.below(200).to_string(), random.below(120).to_string());
            let mut event = payment_of(n, &event, &payment);
            if random.one_in(6) {
                event = PaymentEvent { amount_minor: 1, ..event };
            }
            let order = ask!(pair, order(id));
            event.amount_minor *= order.map_or(1, |order| i64::from(order.reservation.units.0));
            ask!(pair, pay(&event));
        }
        8 => {
            let queued = random.one_in(2).then(|| order(n));
            ask!(pair, cancel(id, &user, queued.as_ref()));
        }
        9 => clock.advance(Duration::from_millis(random.below(400_000))),
        10 => {
            let limit = usize::try_from(1 + random.below(20)).unwrap();
            let hold = Duration::from_millis(random.below(200_000));
            ask!(pair, expire(limit, hold));
        }
        11 => releases(pair, random).await,
        12 => restock(pair, random).await,
        13 => rebuild(pair, random).await,
        14 | 15 => receive(pair, random).await,
        16 | 17 => settle(pair, random).await,
        18 => {
            let to = *random.pick(&SaleState::ALL[1..4]).unwrap();
            ask!(pair, change_state(SaleId(1), to, None));
        }
        _ => read(pair, random).await,
    }
}

/// One order, the same for the same number.
fn order(n: u64) -> OrderPlaced {
    let mut order = sample::order_placed(n);
    let it = &mut order.reservation;
    it.user = sample::user(1 + n % 40);
    it.item = ItemId(1 + i64::try_from(n % 2).unwrap());
    it.units = Units(1 + u32::try_from(n % 3).unwrap());
    it.epoch = Epoch(1 + n % 3);
    it.trace = n.is_multiple_of(5).then(|| format!("trace-{n}"));
    it.retake_of = n.is_multiple_of(7).then(|| sample::order_id(n + 1_000));
    order
}

/// The same, but now and then with other content.
fn delivered(random: &mut Random) -> OrderPlaced {
    let mut order = order(1 + random.below(300));
    let it = &mut order.reservation;
    match random.below(40) {
        0 => it.units = Units(9),
        1 => it.item = ItemId(9),
        2 => it.sale = SaleId(9),
        3 => it.user = sample::user(99),
        _ => {}
    }
    order
}

async fn record(pair: &Pair<'_>, random: &mut Random) {
    let positions = ask!(pair, positions());
    let at = random.pick(&positions).unwrap().clone();
    let from = if random.one_in(10) { at.next + 1 } else { at.next };
    let orders: Vec<OrderPlaced> = (0..random.below(12)).map(|_| delivered(random)).collect();
    let mut batch = batch_of(at.partition, from, orders);
    for record in &mut batch.records {
        if random.one_in(30) {
            record.contents = Decoded::Unreadable { bytes: vec![0, 255], why: "not\0a message".to_owned() };
        }
    }
    batch.next += random.below(2);
    ask!(pair, record(&batch));
}

/// Attempts begin, and a provider says things about them, some of which are not so.
async fn receive(pair: &Pair<'_>, random: &mut Random) {
    let n = 1 + random.below(300);
    let id = sample::order_id(n);
    let attempt = PaymentAttemptId::derived("test", id);
    if random.one_in(2) {
        ask!(pair, begin_attempt(id, "test"));
        let reference = format!("session-{}", random.below(200));
        ask!(pair, note_attempt(attempt, &reference, "https://pay.example/"));
    }
    let kinds = [
        PaymentEventKind::Succeeded,
        PaymentEventKind::Failed,
        PaymentEventKind::Refunded,
        PaymentEventKind::RefundFailed,
    ];
    let kind = if random.one_in(3) { *random.pick(&kinds).unwrap() } else { PaymentEventKind::Succeeded };
    let what = if random.one_in(5) { "session" } else { "p" };
    let payment = format!("{what}-{}", random.below(200));
    let mut event = payment_of(n, &random.below(600).to_string(), &payment);
    let order = ask!(pair, order(id));
    event.amount_minor *= order.map_or(1, |order| i64::from(order.reservation.units.0));
    if random.one_in(8) {
        event.order = sample::order_id(1 + random.below(300));
    }
    let refund = Some(format!("re-{}", random.below(2)));
    let event = ProviderEvent { attempt, kind, payment: event, refund };
    let hold = Duration::from_millis(random.below(200_000));
    ask!(pair, receive(&event, hold));
    ask!(pair, payment_evidence(id, 5));
}

async fn releases(pair: &Pair<'_>, random: &mut Random) {
    let skip: &[SaleId] = if random.one_in(5) { &[SaleId(1)] } else { &[] };
    // Rows of one transaction are equally old: any order will do.
    let sorted = |due: Result<Vec<ReleaseRow>, BackendError>| {
        due.map(|mut rows| {
            rows.sort_by_key(|row| row.order);
            rows
        })
    };
    let due = (pair.sqlite.releases_due(skip, 1_000).await, pair.postgres.releases_due(skip, 1_000).await);
    let due = pair.both("releases_due", (sorted(due.0), sorted(due.1)));
    let done: Vec<OrderId> = due.iter().map(|row| row.order).take(8).collect();
    ask!(pair, releases_done(&done));
    let asked: Vec<OrderId> = (0..5).map(|_| sample::order_id(1 + random.below(300))).collect();
    ask!(pair, ensure_releases(&asked));
}

async fn restock(pair: &Pair<'_>, random: &mut Random) {
    let operation = Uuid::from_u128(u128::from(random.below(30)));
    if random.one_in(2) {
        let applied = random.one_in(2);
        ask!(pair, end_restock(operation, applied));
    } else {
        let units = i64::try_from(random.below(16)).unwrap() - 6;
        ask!(pair, begin_restock(operation, SaleId(1), ItemId(1), units));
    }
    ask!(pair, open_restocks());
}

async fn rebuild(pair: &Pair<'_>, random: &mut Random) {
    let token = LoaderToken(1 + random.below(3));
    let lease = Duration::from_millis(random.below(300_000));
    let from = ask!(pair, sale(SaleId(1))).unwrap().epoch;
    ask!(pair, begin_rebuild(SaleId(1), from, "test", token, lease));
    if random.one_in(3) {
        return;
    }
    let ends = [Position { partition: 0, ..sample::position(random.below(60)) }];
    ask!(pair, put_barriers(SaleId(1), token, &ends));
    let page = ask!(pair, load_snapshot(SaleId(1), token, None, 7));
    let after = page.and_then(|page| page.next);
    ask!(pair, load_snapshot(SaleId(1), token, after, 1_000));
    ask!(pair, finish_rebuild(SaleId(1), token));
}

/// Late payments, refunds and open attempts, each as a keeper would and now and then otherwise.
async fn settle(pair: &Pair<'_>, random: &mut Random) {
    let limit = usize::try_from(1 + random.below(4)).unwrap();
    let late = ask!(pair, late_payments(limit));
    if let Some(late) = random.pick(&late) {
        let mut placed = order(1 + random.below(300));
        let old = &late.order.reservation;
        placed.reservation.user = old.user.clone();
        (placed.reservation.item, placed.reservation.units) = (old.item, old.units);
        (placed.reservation.order, placed.reservation.retake_of) = (late.key.retake(), Some(old.order));
        let verdict = match random.below(4) {
            0 => LateVerdict::ByRetake,
            1 => LateVerdict::Refund,
            2 => LateVerdict::Refused(Box::new(placed)),
            _ => {
                let from = ask!(pair, positions()).iter().find(|it| it.partition == 0).unwrap().next;
                ask!(pair, record(&batch_of(0, from, [placed.clone()])));
                LateVerdict::ByRetake
            }
        };
        ask!(pair, settle_late(&late.key, &verdict));
    }
    let id = sample::order_id(1 + random.below(300));
    ask!(pair, refund_order(id));
    let taken = ask!(pair, take_refunds("test", limit, Duration::from_secs(30)));
    if let Some(refund) = random.pick(&taken) {
        let why = "why".to_owned();
        let report = match random.below(3) {
            0 => RefundReport::Done { reference: format!("re_{}", refund.key.payment_id) },
            1 => RefundReport::Refused { why },
            _ => RefundReport::Later { why },
        };
        ask!(pair, note_refund(&refund.key, &report));
    }
    for attempt in ask!(pair, take_attempts("test", limit)) {
        if random.one_in(2) {
            ask!(pair, close_attempt(attempt.id));
        }
    }
}

async fn read(pair: &Pair<'_>, random: &mut Random) {
    let after = random.one_in(2).then(|| sample::order_id(random.below(300)));
    ask!(pair, orders(SaleId(1), after, 20));
    let user = sample::user(random.below(41));
    ask!(pair, orders_of(SaleId(1), &user, 3));
    let ids: Vec<OrderId> = (0..9).map(|_| sample::order_id(random.below(300))).collect();
    ask!(pair, statuses(&ids));
    ask!(pair, sales());
    let id = sample::order_id(random.below(300));
    ask!(pair, aftermath(id));
    let after =
        random.one_in(2).then(|| PaymentKey { provider: "test".to_owned(), payment_id: "5".to_owned() });
    let state = *random.pick(&[None, Some(RefundState::Due)]).unwrap();
    ask!(pair, refunds(state, after.as_ref(), 20));
}

/// Books whose order does not depend on the database.
fn sorted(books: Result<BookSnapshot, BackendError>) -> BookSnapshot {
    let mut books = books.unwrap();
    books.orders.sort_by_key(|order| order.reservation.order);
    books.buyers.retain(|(_, _, units)| *units != 0);
    books.buyers.sort();
    books.steps.sort_by_key(|(order, ..)| *order);
    books.payments.sort_by(|a, b| a.payment.cmp(&b.payment));
    books.releases.sort();
    books.positions.sort_by_key(|it| it.partition);
    books.barriers.sort_by_key(|(_, epoch, at)| (*epoch, at.partition));
    books.recorded_at.sort();
    books
}
