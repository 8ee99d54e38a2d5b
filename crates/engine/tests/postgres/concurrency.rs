//! Many at once: nobody is let in twice, no deadlock comes out, and the books hold at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::Position;
use doorbuster_engine::ledger::{
    CancelOutcome, Orders, PayOutcome, Payments, Positions, PostgresLedger, RecordOutcome, Releases, Sales,
};
use doorbuster_engine::order::{ItemId, OrderPlaced, OrderStatus, SaleId};
use doorbuster_engine::sale::SaleState;
use futures_util::future::join_all;

use crate::random::Random;
use crate::shop::{Shop, WINDOW, batch_of, payment_of};

#[tokio::test(flavor = "multi_thread")]
async fn of_two_recorders_with_one_batch_one_is_a_zombie() {
    let shop = Shop::open("zombie").await;
    shop.sale(1_000, 1).await;
    for round in 0..20 {
        let batch = batch_of(0, round * 10, (round * 10..round * 10 + 10).map(sample::order_placed));
        let other = PostgresLedger::connect(&shop.options).await.unwrap();
        let (one, two) = tokio::join!(shop.ledger.record(&batch), other.record(&batch));
        let zombies = [one.unwrap(), two.unwrap()].iter().filter(|it| **it == RecordOutcome::Zombie).count();
        assert_eq!(zombies, 1, "round {round}");
    }
    let books = shop.sound_books().await;
    assert_eq!((books.orders.len(), books.steps.len()), (200, 200));
    shop.close().await;
}

/// Two partitions that name one user at the same moment: only their sum may not exceed the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_in_two_partitions_stays_within_the_limit() {
    let shop = Shop::open("two_partitions").await;
    shop.sale(1_000, 1).await;
    shop.ledger.register(&[Position { partition: 1, ..sample::position(0) }]).await.unwrap();
    for round in 0..30 {
        let place = |partition: u32| {
            let mut order = sample::order_placed(round * 2 + u64::from(partition));
            order.reservation.user = sample::user(round);
            // Two items, so that no item's lock keeps them apart.
            order.reservation.item = ItemId(i64::from(partition) + 1);
            batch_of(partition, round, [order])
        };
        let (zero, one) = (place(0), place(1));
        let (left, right) = tokio::join!(shop.ledger.record(&zero), shop.ledger.record(&one));
        let taken: u64 = [left.unwrap(), right.unwrap()]
            .iter()
            .map(|outcome| match outcome {
                RecordOutcome::Recorded(recorded) => recorded.pending,
                RecordOutcome::Zombie => panic!("nobody else reads this partition"),
            })
            .sum();
        assert_eq!(taken, 1, "round {round}");
    }
    shop.sound_books().await;
    shop.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_at_once_end_in_sound_books_and_no_deadlock() {
    const ORDERS: u64 = 1_200;
    let shop = Shop::open("eight").await;
    shop.sale(500, 3).await;
    shop.ledger.register(&[Position { partition: 1, ..sample::position(0) }]).await.unwrap();
    let seed = rand::random::<u64>() >> 1;
    eprintln!("seed {seed}");
    let recorded = AtomicU64::new(0);
    let recorders = [0, 1].map(|partition| record_all(&shop, partition, ORDERS, &recorded));
    let others = (0..6).map(|task| disturb(&shop, Random::new(seed + task), task, ORDERS, &recorded));
    tokio::join!(join_all(recorders), join_all(others));
    let books = shop.sound_books().await;
    assert_eq!(u64::try_from(books.orders.len()).unwrap(), ORDERS);
    shop.close().await;
}

/// Every second order, in batches over both items.
async fn record_all(shop: &Shop, partition: u32, orders: u64, recorded: &AtomicU64) {
    let mine: Vec<OrderPlaced> =
        (0..orders).filter(|n| n % 2 == u64::from(partition)).map(busy_order).collect();
    let mut from = 0;
    for chunk in mine.chunks(25) {
        let batch = batch_of(partition, from, chunk.iter().cloned());
        assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
        from = batch.next;
        recorded.fetch_add(chunk.len() as u64, Ordering::SeqCst);
    }
}

fn busy_order(n: u64) -> OrderPlaced {
    let mut order = sample::order_placed(n);
    order.reservation.user = sample::user(n % 200);
    order.reservation.item = ItemId(1 + i64::from(n.is_multiple_of(3)));
    order
}

/// Until all orders are recorded: expires, cancels, pays, moves the sale's state, releases.
async fn disturb(shop: &Shop, mut random: Random, task: u64, orders: u64, recorded: &AtomicU64) {
    let mut turn = 0;
    while recorded.load(Ordering::SeqCst) < orders {
        turn += 1;
        let n = random.below(orders);
        match (task + turn) % 5 {
            0 => {
                shop.clock.advance(WINDOW / 20);
                shop.ledger.expire(40, Duration::ZERO).await.unwrap();
            }
            1 => {
                let event = payment_of(n, &format!("{task}-{turn}"), &format!("{n}"));
                shop.ledger.pay(&event).await.unwrap();
            }
            2 => {
                let placed = busy_order(n);
                let queued = random.one_in(2).then_some(&placed);
                shop.ledger.cancel(sample::order_id(n), &sample::user(n % 200), queued).await.unwrap();
            }
            3 => {
                let to = if random.one_in(2) { SaleState::Open } else { SaleState::Paused };
                shop.ledger.change_state(SaleId(1), to, None).await.unwrap();
            }
            _ => {
                let due = shop.ledger.releases_due(&[], 20).await.unwrap();
                let orders: Vec<_> = due.iter().map(|row| row.order).collect();
                shop.ledger.releases_done(&orders).await.unwrap();
                shop.ledger.ensure_releases(&orders).await.unwrap();
                shop.sound_books().await;
            }
        }
    }
}

/// A payment and the expirer reach for the same orders, at the very end of their windows.
#[tokio::test(flavor = "multi_thread")]
async fn a_payment_that_races_its_expiry_is_paid_or_refunded() {
    const RACES: u64 = 10_000;
    let shop = Shop::open("races").await;
    shop.sale(RACES, 1).await;
    for first in (0..RACES).step_by(500) {
        shop.ledger
            .record(&batch_of(0, first, (first..first + 500).map(sample::order_placed)))
            .await
            .unwrap();
    }
    shop.clock.advance(WINDOW);
    let ledger = &shop.ledger;
    let pay = |n: u64| async move {
        let event = payment_of(n, &format!("e{n}"), &format!("p{n}"));
        (n, ledger.pay(&event).await.unwrap())
    };
    let paying = async {
        let mut outcomes = Vec::new();
        for first in (0..RACES).step_by(4) {
            if first == RACES / 2 {
                // The deadline passes in the middle of it.
                shop.clock.advance(Duration::from_millis(1));
            }
            outcomes.extend(join_all((first..first + 4).map(pay)).await);
        }
        outcomes
    };
    let expiring = async {
        let mut expired = 0;
        while expired == 0 {
            expired = ledger.expire(50, Duration::ZERO).await.unwrap().closed;
        }
        while expired > 0 {
            expired = ledger.expire(50, Duration::ZERO).await.unwrap().closed;
        }
    };
    let (outcomes, ()) = tokio::join!(paying, expiring);
    while ledger.expire(500, Duration::ZERO).await.unwrap().closed > 0 {}

    let ids: Vec<_> = (0..RACES).map(sample::order_id).collect();
    let statuses = ledger.statuses(&ids).await.unwrap();
    for (n, outcome) in outcomes {
        let status = statuses[usize::try_from(n).unwrap()].unwrap();
        match outcome {
            PayOutcome::Paid => assert_eq!(status, OrderStatus::Paid, "order {n}"),
            PayOutcome::Late => assert_eq!(status, OrderStatus::Expired, "order {n}"),
            other => panic!("order {n}: {other:?}"),
        }
    }
    let paid = statuses.iter().filter(|status| **status == Some(OrderStatus::Paid)).count();
    assert!(paid > 0 && paid < usize::try_from(RACES).unwrap(), "both must win sometimes: {paid} paid");
    assert_eq!(shop.sound_books().await.payments.len(), usize::try_from(RACES).unwrap());
    shop.close().await;
}

/// Two events of one payment, and two payments of one order, at the same moment.
#[tokio::test(flavor = "multi_thread")]
async fn payments_at_the_same_moment_count_once() {
    let shop = Shop::open("payments").await;
    shop.sale(100, 1).await;
    shop.ledger.record(&batch_of(0, 0, (0..50).map(sample::order_placed))).await.unwrap();
    for n in 0..50 {
        let events = ["a", "b", "c", "d"].map(|name| {
            let payment = if name < "c" { "one" } else { "two" };
            payment_of(n, &format!("{name}{n}"), &format!("{payment}{n}"))
        });
        let outcomes = join_all(events.iter().map(|event| shop.ledger.pay(event))).await;
        let count = |wanted| outcomes.iter().filter(|it| *it.as_ref().unwrap() == wanted).count();
        assert_eq!(
            (count(PayOutcome::Paid), count(PayOutcome::RefundDue), count(PayOutcome::Duplicate)),
            (1, 1, 2),
            "order {n}"
        );
    }
    shop.sound_books().await;
    shop.close().await;
}

/// A queued order is cancelled while its message is recorded.
#[tokio::test(flavor = "multi_thread")]
async fn a_queued_order_that_is_recorded_meanwhile_is_cancelled_once() {
    let shop = Shop::open("queued").await;
    shop.sale(1_000, 1).await;
    let ledger = Arc::clone(&shop.ledger);
    for n in 0..60 {
        let (placed, user) = (sample::order_placed(n), sample::user(n));
        let batch = batch_of(0, n, [placed.clone()]);
        let (recorded, cancelled) =
            tokio::join!(ledger.record(&batch), ledger.cancel(sample::order_id(n), &user, Some(&placed)));
        assert!(matches!(recorded.unwrap(), RecordOutcome::Recorded(_)));
        assert!(matches!(cancelled.unwrap(), CancelOutcome::Cancelled(_)), "order {n}");
    }
    let books = shop.sound_books().await;
    assert!(books.orders.iter().all(|order| order.status == OrderStatus::Cancelled));
    assert_eq!(books.releases.len(), 60);
    shop.close().await;
}
