//! Events while transactions commit in another order than their numbers were given out.

use std::collections::BTreeSet;

use doorbuster_engine::conformance::sample;
use doorbuster_engine::ledger::{
    CancelOutcome, DeliveryFilter, EventType, Events, Orders, PayOutcome, Payments, PostgresLedger,
};
use futures_util::future::join_all;

use crate::shop::{Shop, batch_of, connect, payment_of};

/// Rounds of planning after which it is not waited any more: about half a minute.
const ROUNDS_MAX: usize = 50_000;

/// Orders that many writers are about, each with two steps.
const ORDERS: u64 = 120;

/// The events that are planned, oldest first.
async fn planned(shop: &Shop) -> Vec<String> {
    shop.ledger.plan_deliveries("shop", &EventType::ALL, 100).await.unwrap();
    let all = shop.ledger.deliveries(&DeliveryFilter::default(), None, 1_000).await.unwrap();
    all.into_iter().rev().map(|it| it.event).collect()
}

async fn until_planned(shop: &Shop, count: usize) -> Vec<String> {
    for _ in 0..ROUNDS_MAX {
        let events = planned(shop).await;
        if events.len() >= count {
            return events;
        }
    }
    panic!("{count} events are never planned: {:?}", planned(shop).await);
}

/// An early number in a transaction that is still open, a later one that is committed: nothing is told
/// before it is whole, and then both are, in the order of their numbers.
#[tokio::test]
async fn an_event_that_commits_late_is_not_skipped() {
    let shop = Shop::open("commits_late").await;
    shop.sale(10, 1).await;
    shop.ledger.register_endpoint("shop").await.unwrap();
    let late = connect(&shop.options.schema).await;
    let slow = sample::order_id(77);
    let step = format!(
        "BEGIN; SELECT pg_current_xact_id(); \
         INSERT INTO order_event (ord, from_status, to_status, at) VALUES ('{slow}', NULL, 'PENDING', 0)"
    );
    late.batch_execute(&step).await.unwrap();
    shop.ledger.record(&batch_of(0, 0, [sample::order_placed(1)])).await.unwrap();
    for _ in 0..20 {
        assert!(planned(&shop).await.is_empty(), "a lower number may still appear");
    }
    late.batch_execute("COMMIT").await.unwrap();
    let events = until_planned(&shop, 2).await;
    assert_eq!(events, [format!("order_payable_{slow}"), format!("order_payable_{}", sample::order_id(1))]);

    // One that is rolled back leaves a gap, and nobody waits for it.
    late.batch_execute(&step).await.unwrap();
    shop.ledger.pay(&payment_of(1, "e", "p")).await.unwrap();
    late.batch_execute("ROLLBACK").await.unwrap();
    let events = until_planned(&shop, 3).await;
    assert_eq!(events[2], format!("order_paid_{}", sample::order_id(1)));
    shop.close().await;
}

/// A transaction that runs and has the newest id of all is in no snapshot's list, and lies at its end: a
/// note that takes the end of the snapshot for "everybody who was there" forgets it. (Seen by itself
/// alone: other transactions that end on the same server move the end on.)
#[tokio::test]
async fn an_event_of_the_newest_transaction_is_not_skipped() {
    let shop = Shop::open("newest").await;
    shop.sale(10, 1).await;
    shop.ledger.register_endpoint("shop").await.unwrap();
    let (early, newest) = (connect(&shop.options.schema).await, connect(&shop.options.schema).await);
    let step = |n| {
        let order = sample::order_id(n);
        format!(
            "INSERT INTO order_event (ord, from_status, to_status, at) VALUES ('{order}', NULL, 'PENDING', 0)"
        )
    };
    for sql in [&early, &newest] {
        sql.batch_execute("BEGIN; SELECT pg_current_xact_id()").await.unwrap();
    }
    newest.batch_execute(&step(1)).await.unwrap();
    early.batch_execute(&format!("{}; COMMIT", step(2))).await.unwrap();
    for _ in 0..20 {
        assert!(planned(&shop).await.is_empty(), "a lower number may still appear");
    }
    newest.batch_execute("COMMIT").await.unwrap();
    let events = until_planned(&shop, 2).await;
    assert_eq!(events, [1, 2].map(|n| format!("order_payable_{}", sample::order_id(n))));
    shop.close().await;
}

/// Many record, pay and cancel at once while two keepers plan: every step is planned once, and each
/// order's in its order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_many_writers_every_step_is_planned_once_and_in_order() {
    let shop = Shop::open("many_writers").await;
    shop.sale(ORDERS, 1).await;
    shop.ledger.register_endpoint("shop").await.unwrap();
    let other = Shop::with(shop.options.clone()).await;
    let recording = async {
        for n in 0..ORDERS / 4 {
            let orders = (n * 4 + 1..=n * 4 + 4).map(sample::order_placed);
            shop.ledger.record(&batch_of(0, n * 4, orders)).await.unwrap();
        }
    };
    let end = async |n: u64| {
        // Tried from before the order is there, so that its transaction may be the older one.
        for again in 0.. {
            let (event, payment) = (format!("e{n}-{again}"), format!("p{n}"));
            let ended = if n.is_multiple_of(2) {
                shop.ledger.pay(&payment_of(n, &event, &payment)).await.unwrap() == PayOutcome::Paid
            } else {
                let cancelled = shop.ledger.cancel(sample::order_id(n), &sample::user(n), None).await;
                matches!(cancelled.unwrap(), CancelOutcome::Cancelled(_))
            };
            if ended {
                return;
            }
        }
    };
    let ending = join_all((1..=ORDERS).map(end));
    let planning = async |ledger: &PostgresLedger| {
        for _ in 0..200 {
            ledger.plan_deliveries("shop", &EventType::ALL, 7).await.unwrap();
        }
    };
    tokio::join!(recording, ending, planning(&shop.ledger), planning(&other.ledger));

    let events = until_planned(&shop, 240).await;
    let each: BTreeSet<&String> = events.iter().collect();
    assert_eq!((events.len(), each.len()), (240, 240));
    for n in 1..=ORDERS {
        let id = sample::order_id(n).to_string();
        let of_order: Vec<&String> = events.iter().filter(|it| it.ends_with(&id)).collect();
        assert!(of_order[0].starts_with("order_payable"), "{of_order:?}");
    }
    drop(other);
    shop.close().await;
}
