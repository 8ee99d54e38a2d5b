//! The auditor is tested: in a good history it finds nothing, and whatever is spoilt, the
//! invariant it breaks complains.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::audit::{self, Snapshot};
use doorbuster_engine::clock::{Clock, ManualClock};
use doorbuster_engine::conformance::{sample, stock::Bench};
use doorbuster_engine::ledger::{Ledger, PaymentEvent, PaymentKey, PaymentRow, SqliteLedger};
use doorbuster_engine::order::OrderPlaced;
use doorbuster_engine::order::{Epoch, OrderStatus, Units};
use doorbuster_engine::queue::{EmbeddedQueue, QueueOptions};
use doorbuster_engine::sale::{NewSale, SaleState};
use doorbuster_engine::stock::{BucketId, EmbeddedStock, ReserveOutcome, ReserveRequest};
use doorbuster_engine::workers::{Backends, Expirer, Rebuilder, Recorder, Releaser, Step, Worker};

const WINDOW: Duration = Duration::from_secs(60);

struct World {
    backends: Backends,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let (folder, clock) = (tempfile::tempdir().unwrap(), Bench::clock());
        let dynamic: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let backends = Backends {
            stock: Arc::new(EmbeddedStock::new(Arc::clone(&dynamic))),
            queue: Arc::new(
                EmbeddedQueue::open(
                    &folder.path().join("queue"),
                    |_| 0,
                    Arc::clone(&dynamic),
                    QueueOptions::default(),
                )
                .unwrap(),
            ),
            ledger: Arc::new(
                SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&dynamic)).unwrap(),
            ),
            clock: dynamic,
        };
        Self { backends, clock, _folder: folder }
    }

    async fn work(&self) {
        let mut recorder = Recorder::new(self.backends.clone(), Duration::from_millis(1));
        let mut rebuilder = Rebuilder::new(self.backends.clone(), Duration::ZERO);
        let mut expirer = Expirer::new(self.backends.clone());
        let mut releaser = Releaser::new(self.backends.clone());
        loop {
            let mut idle = true;
            for worker in [&mut recorder as &mut dyn Worker, &mut rebuilder, &mut expirer, &mut releaser] {
                idle &= worker.step().await.unwrap() == Step::Idle;
            }
            if idle {
                return;
            }
        }
    }

    async fn buy(&self, epoch: Epoch, n: u64) {
        let bucket = BucketId { sale: doorbuster_engine::order::SaleId(1), epoch };
        let request = ReserveRequest {
            order: sample::order_id(n),
            user: sample::user(n),
            item: doorbuster_engine::order::ItemId(1),
            units: Units(1),
            trace: None,
            retake_of: None,
        };
        let outcome = self.backends.stock.reserve(bucket, &[request]).await.unwrap().remove(0);
        let ReserveOutcome::Held { reservation, .. } = outcome else { panic!("{outcome:?}") };
        let placed = OrderPlaced { reservation, price: sample::price() };
        self.backends.queue.publish(&[placed]).await.remove(0).unwrap();
    }
}

/// Two epochs; orders that are pending, paid, expired and cancelled.
async fn good_history() -> Snapshot {
    let world = World::new();
    let ledger = &world.backends.ledger;
    let now = world.clock.now();
    let sale = NewSale {
        opens_at: now.minus(WINDOW),
        payment_window: WINDOW,
        ..sample::new_sale(now, vec![sample::new_item("A", 10)])
    };
    let sale = ledger.create_sale(&sale).await.unwrap();
    let nobody = doorbuster_engine::sale::LoaderToken::NOBODY;
    ledger.begin_rebuild(sale.id, Epoch(0), "preheat", nobody, Duration::MAX).await.unwrap();
    world.work().await;
    ledger.change_state(sale.id, SaleState::Open, None).await.unwrap();
    let terms = ledger.sale(sale.id).await.unwrap().unwrap().terms;
    world.backends.stock.set_terms(BucketId { sale: sale.id, epoch: Epoch(1) }, &terms).await.unwrap();
    for n in 1..=3 {
        world.buy(Epoch(1), n).await;
    }
    world.work().await;
    pay(ledger, 1).await;
    world.clock.advance(WINDOW + Duration::from_millis(1));
    world.work().await;
    ledger.begin_rebuild(sale.id, Epoch(1), "test", nobody, Duration::MAX).await.unwrap();
    world.work().await;
    for n in 4..=6 {
        world.buy(Epoch(2), n).await;
    }
    world.work().await;
    pay(ledger, 4).await;
    ledger.cancel(sample::order_id(5), &sample::user(5), None).await.unwrap();
    world.work().await;
    audit::collect(&world.backends).await.unwrap()
}

async fn pay(ledger: &Arc<dyn Ledger>, n: u64) {
    let price = sample::price();
    let event = PaymentEvent {
        provider: "test".into(),
        event_id: format!("e{n}"),
        payment_id: format!("p{n}"),
        order: sample::order_id(n),
        amount_minor: price.minor,
        currency: price.currency,
    };
    ledger.pay(&event).await.unwrap();
}

/// A payment of a cancelled order with such an outcome.
fn refund(n: u64, outcome: &str) -> PaymentRow {
    let price = sample::price();
    PaymentRow {
        payment: PaymentKey { provider: "test".to_owned(), payment_id: format!("p{n}") },
        meant: sample::order_id(5),
        order: sample::order_id(5),
        outcome: outcome.to_owned(),
        amount_minor: price.minor,
        currency: price.currency.as_str().to_owned(),
    }
}

fn index_of(snapshot: &Snapshot, n: u64) -> usize {
    snapshot.books.orders.iter().position(|it| it.reservation.order == sample::order_id(n)).unwrap()
}

#[tokio::test]
async fn a_good_history_has_no_findings() {
    let snapshot = good_history().await;
    assert!(snapshot.at_rest);
    let report = audit::check(&snapshot);
    assert_eq!(report.findings, []);
    assert_eq!(report.orders, 6);
    let of = |status| snapshot.books.orders.iter().filter(|it| it.status == status).count();
    let counts =
        [OrderStatus::Pending, OrderStatus::Paid, OrderStatus::Expired, OrderStatus::Cancelled].map(of);
    assert_eq!(counts, [1, 2, 2, 1]);
}

#[tokio::test]
async fn money_that_is_given_back_or_waits_is_no_finding() {
    let mut snapshot = good_history().await;
    for (n, outcome) in ["REFUND_DUE", "REFUNDED", "LATE", "AMOUNT_MISMATCH", "NO_ORDER"].iter().enumerate() {
        snapshot.books.payments.push(refund(100 + n as u64, outcome));
    }
    assert_eq!(audit::check(&snapshot).findings, []);
}

type Mutation = (&'static str, &'static str, fn(&mut Snapshot));

const MUTATIONS: &[Mutation] = &[
    ("I1", "the quantity shrinks below the live units", |it| it.books.sales[0].items[0].quantity = 2),
    ("I2", "sold + 1", |it| it.books.sales[0].items[0].sold += 1),
    ("I2", "paid + 1", |it| it.books.sales[0].items[0].paid += 1),
    ("I2", "a live row is dropped", |it| drop(it.books.orders.remove(index_of(it, 1)))),
    ("I3", "a buyer's count is off", |it| it.books.buyers[0].2 += 1),
    ("I3", "a buyer's count is missing", |it| it.books.buyers.retain(|buyer| buyer.2 == 0)),
    ("I3", "the limit is below what a user holds", |it| it.books.sales[0].terms.limit = Units(0)),
    ("I5", "a paid order expires", |it| {
        it.books.steps.push((sample::order_id(1), Some(OrderStatus::Paid), OrderStatus::Expired));
        let index = index_of(it, 1);
        it.books.orders[index].status = OrderStatus::Expired;
    }),
    ("I5", "a row changes without a step", |it| {
        let index = index_of(it, 6);
        it.books.orders[index].status = OrderStatus::Paid;
    }),
    ("I5", "an expired order comes back", |it| {
        it.books.steps.push((sample::order_id(2), Some(OrderStatus::Expired), OrderStatus::Pending));
    }),
    ("I6", "a payment is dropped", |it| drop(it.books.payments.pop())),
    ("I6", "a second payment pays the same order", |it| it.books.payments.push(it.books.payments[0].clone())),
    ("I6", "a payment has two rows", |it| {
        let again = PaymentRow { outcome: "REFUND_DUE".to_owned(), ..it.books.payments[0].clone() };
        it.books.payments.push(again);
    }),
    ("I6", "a payment is neither paid nor given back", |it| it.books.payments.push(refund(99, "SOMEWHERE"))),
    ("I6", "a payment pays less than the order costs", |it| it.books.payments[0].amount_minor -= 1),
    ("I6", "a payment pays in another currency", |it| it.books.payments[0].currency = "USD".to_owned()),
    ("I6", "a paid order's money is given back too", |it| {
        it.books.payments[0].outcome = "REFUNDED".to_owned()
    }),
    ("I6", "a paid order is cancelled", |it| {
        it.books.steps.push((sample::order_id(1), Some(OrderStatus::Paid), OrderStatus::Cancelled));
    }),
    ("I6", "a refunded order's money is not given back", |it| {
        let index = index_of(it, 1);
        it.books.orders[index].status = OrderStatus::Refunded;
        it.books.payments.retain(|payment| payment.order != sample::order_id(1));
    }),
    ("I6", "a payment pays an order that is not paid", |it| it.books.payments[0].order = sample::order_id(6)),
    ("I7", "stock + 1", |it| it.buckets[0].level.items[0].free += 1),
    ("I7", "a hold is dropped from the stock", |it| drop(it.buckets[0].holds.pop())),
    ("I7", "more outbox entries than holds", |it| it.buckets[0].level.unconfirmed = 99),
    ("I8", "a hold is another order's", |it| it.buckets[0].holds[0].order = sample::order_id(99)),
    ("I8", "a unit is stranded", |it| {
        it.buckets[0].level.items[0].free -= 1;
        it.buckets[0].level.items[0].allocated -= 1;
    }),
    ("I10", "a live order has a release row", |it| it.books.releases.push(sample::order_id(1))),
    ("I10", "an unknown order has a release row", |it| it.books.releases.push(sample::order_id(99))),
    ("I11", "a row twice", |it| it.books.orders.push(it.books.orders[0].clone())),
    ("I11", "a release is doubled", |it| {
        it.books.steps.push((sample::order_id(2), Some(OrderStatus::Pending), OrderStatus::Expired));
    }),
    ("I11", "a history without a row", |it| {
        it.books.steps.push((sample::order_id(99), None, OrderStatus::Pending))
    }),
    ("I13", "one record makes two orders", |it| {
        let (_, partition, offset) = it.books.recorded_at[0];
        it.books.recorded_at.push((sample::order_id(98), partition, offset));
    }),
    ("I13", "the position goes back", |it| it.books.positions[0].next = 1),
    ("I13", "the position is behind the end", |it| it.ends[0].next = 2),
    ("I15", "two orders have the same step", |it| {
        let (one, other) = (index_of(it, 2), index_of(it, 1));
        it.books.orders[one].reservation.seq = it.books.orders[other].reservation.seq;
    }),
    ("I16", "an old epoch's order is taken from behind the barrier", |it| {
        let barrier = it.books.barriers.iter().find(|it| it.1 == Epoch(2)).map_or(0, |it| it.2.next);
        it.books
            .recorded_at
            .iter_mut()
            .filter(|it| it.0 == sample::order_id(3))
            .for_each(|it| it.2 = barrier);
    }),
    ("I18", "an outbox entry stays for ever", |it| {
        it.buckets[0].level.oldest_unconfirmed =
            Some(it.buckets[0].level.now.minus(Duration::from_secs(3_600)));
    }),
];

#[tokio::test]
async fn every_spoilt_history_is_complained_about() {
    let good = good_history().await;
    for (invariant, what, spoil) in MUTATIONS {
        let mut snapshot = good.clone();
        spoil(&mut snapshot);
        let report = audit::check(&snapshot);
        assert!(
            report.findings.iter().any(|finding| finding.invariant == *invariant),
            "{what}: {invariant} did not complain, only {:?}",
            report.findings
        );
    }
    let report = audit::check(&good);
    for checked in report.checked {
        assert!(MUTATIONS.iter().any(|mutation| mutation.0 == checked), "no mutation for {checked}");
    }
}
