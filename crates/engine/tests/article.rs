//! The article's own test: 1,000 users, 100 units, exactly 100 succeed; and the article's own
//! mistake, GET and then DECR as two steps, must fail it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use doorbuster_engine::conformance;
use doorbuster_engine::stock::{EmbeddedStock, ReserveOutcome};
use support::TamperedStock;

#[tokio::test]
async fn a_thousand_users_get_exactly_a_hundred_units() {
    let clock = conformance::stock::Bench::clock();
    let stock = Arc::new(EmbeddedStock::new(Arc::clone(&clock) as _));
    conformance::stock::exactly_the_allocated_units_are_held(&conformance::stock::Bench { stock, clock })
        .await;
}

#[tokio::test]
#[should_panic(expected = "right: (100, 900)")]
async fn get_then_decrement_fails_the_test() {
    let clock = conformance::stock::Bench::clock();
    let stock = TamperedStock::new(Arc::new(EmbeddedStock::new(Arc::clone(&clock) as _)));
    let free = Arc::new(AtomicI64::new(100));
    stock.tamper(move |_, bucket, requests| {
        let free = Arc::clone(&free);
        async move {
            let mut outcomes = Vec::new();
            for request in requests {
                // GET, then others run, then DECR.
                let seen = free.load(Ordering::SeqCst);
                tokio::task::yield_now().await;
                if seen <= 0 {
                    outcomes.push(ReserveOutcome::SoldOut { seq: 0 });
                    continue;
                }
                let after = free.fetch_sub(1, Ordering::SeqCst) - 1;
                let mut reservation = conformance::sample::order_placed(1).reservation;
                (reservation.order, reservation.user) = (request.order, request.user);
                (reservation.sale, reservation.seq) = (bucket.sale, u64::try_from(1_000 - after).unwrap());
                outcomes.push(ReserveOutcome::Held { reservation, left: 0 });
            }
            Ok(outcomes)
        }
    });
    let stock = Arc::new(stock);
    conformance::stock::exactly_the_allocated_units_are_held(&conformance::stock::Bench { stock, clock })
        .await;
}
