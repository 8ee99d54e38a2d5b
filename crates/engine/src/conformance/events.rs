//! The promises of [`Events`](crate::ledger::Events) as tests.

use std::time::Duration;

use super::ledger::{Bench, WINDOW, order_of};
use super::{sample, sound};
use crate::clock::{Clock, Timestamp};
use crate::ledger::{
    About, Attempted, CancelOutcome, Delivery, DeliveryFilter, DeliveryState, DueDelivery, Event, EventType,
    Then,
};
use crate::order::{ItemId, OrderStatus, SaleId};
use crate::sale::SaleState;

/// Hands every promise of the suite to the macro `$each`, as a list of names.
#[macro_export]
macro_rules! event_promises {
    ($each:ident) => {
        $each! {
            every_step_is_told_once, what_happens_to_a_sale_is_told, an_event_waits_for_the_one_before_it,
            a_claim_is_one_keepers_until_its_lease_ends, a_dead_delivery_is_replayed_under_its_id,
            an_endpoint_that_fails_stops_no_other, deliveries_come_in_bounded_pages,
        }
    };
}

const SHOP: &str = "shop";
const LEASE: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);
/// Half a minute on a server that answers in 0.3 ms.
const ROUNDS_MAX: usize = 100_000;

impl Bench {
    /// One round of planning, in the smallest pages.
    async fn plan_some(&self, endpoint: &str, types: &[EventType]) {
        sound(self.ledger.plan_deliveries(endpoint, types, 2).await);
    }

    /// Plans until `count` deliveries stand in the endpoint's log. PostgreSQL needs several rounds: the
    /// first only takes note, and others wait while any transaction of the server is open.
    async fn plan(&self, endpoint: &str, count: usize) {
        let filter = DeliveryFilter { endpoint: Some(endpoint.to_owned()), ..DeliveryFilter::default() };
        for _ in 0..ROUNDS_MAX {
            self.plan_some(endpoint, &EventType::ALL).await;
            if sound(self.ledger.deliveries(&filter, None, 1_000).await).len() >= count {
                return;
            }
        }
        panic!("what was decided is never planned");
    }

    /// Plans and takes until `count` events were taken, in the order in which they could be.
    async fn told_to(&self, endpoint: &str, types: &[EventType], count: usize) -> Vec<Event> {
        let mut taken = Vec::new();
        for _ in 0..ROUNDS_MAX {
            self.plan_some(endpoint, types).await;
            for due in self.claim(endpoint).await {
                self.note(&due, Then::Delivered).await;
                taken.push(due.event);
            }
            if taken.len() >= count {
                return taken;
            }
        }
        panic!("only these were told: {taken:?}")
    }

    async fn claim(&self, endpoint: &str) -> Vec<DueDelivery> {
        sound(self.ledger.claim_deliveries(endpoint, LEASE, 100).await)
    }

    async fn note(&self, due: &DueDelivery, then: Then) {
        let attempted = Attempted {
            id: due.id,
            attempt: due.attempt,
            then,
            status: Some(503),
            answer: "busy\u{1b}[0m".to_owned(),
        };
        sound(self.ledger.note_deliveries(&[attempted]).await);
    }

    /// Takes everything that can be taken, in the order in which it can be: each event's id.
    async fn take_all(&self, endpoint: &str) -> Vec<String> {
        let mut taken = Vec::new();
        loop {
            let due = self.claim(endpoint).await;
            if due.is_empty() {
                return taken;
            }
            for it in due {
                self.note(&it, Then::Delivered).await;
                taken.push(it.event.id);
            }
        }
    }

    async fn logged(&self, id: i64) -> Delivery {
        match sound(self.ledger.delivery(id).await) {
            Some((delivery, event)) => {
                assert_eq!((&delivery.event, delivery.kind), (&event.id, event.kind));
                delivery
            }
            None => panic!("delivery {id} is gone"),
        }
    }

    /// A preheated sale and an endpoint that is told everything.
    async fn told(&self, quantity: u64) {
        self.sale(quantity, 1).await;
        sound(self.ledger.register_endpoint(SHOP).await);
    }
}

fn step(kind: &str, order: u64) -> String {
    format!("{kind}_{}", sample::order_id(order))
}

/// Promise 1, for orders: all six steps but the one that nothing takes yet.
pub async fn every_step_is_told_once(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(9, 9)]).await;
    sound(bench.ledger.register_endpoint(SHOP).await);
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3), order_of(3, 4)]).await;
    bench.pay(1, "e1", "p1").await;
    sound(bench.ledger.cancel(sample::order_id(2), &sample::user(2), None).await);
    bench.clock.advance(WINDOW + MS);
    sound(bench.ledger.expire(10, Duration::ZERO).await);
    // A second start of the keeper changes nothing.
    sound(bench.ledger.register_endpoint(SHOP).await);
    let taken = bench.told_to(SHOP, &EventType::ALL, 8).await;
    let taken: Vec<String> = taken.into_iter().map(|event| event.id).collect();

    let place =
        |id: &String| taken.iter().position(|it| it == id).unwrap_or_else(|| panic!("{id}: {taken:?}"));
    for (first, then) in [
        (step("order_payable", 1), step("order_paid", 1)),
        (step("order_payable", 2), step("order_cancelled", 2)),
        (step("order_payable", 3), step("order_expired", 3)),
    ] {
        assert!(place(&first) < place(&then), "{taken:?}");
    }
    place(&step("order_rejected", 4));
    // It was recorded before the endpoint was known; its end was not.
    place(&step("order_expired", 9));
    assert_eq!(taken.len(), 8, "{taken:?}");
    assert!(bench.claim(SHOP).await.is_empty());
    bench.books().await;
}

/// Promise 1, for sales, and what each event says.
pub async fn what_happens_to_a_sale_is_told(bench: &Bench) {
    bench.told(2).await;
    let change = async |to| sound(bench.ledger.change_state(SaleId(1), to, None).await);
    for state in [SaleState::Open, SaleState::Open, SaleState::Paused, SaleState::Open] {
        change(state).await;
    }
    bench.record(&[order_of(1, 1)]).await;
    bench.record(&[order_of(2, 2)]).await;
    sound(bench.ledger.cancel(sample::order_id(1), &sample::user(1), None).await);
    // What never had a step of the stock gave nothing back.
    let mut stepless = order_of(3, 3);
    stepless.reservation.seq = 0;
    let cancelled = bench.ledger.cancel(sample::order_id(3), &sample::user(3), Some(&stepless)).await;
    assert!(matches!(sound(cancelled), CancelOutcome::Cancelled(_)));
    for _ in 0..2 {
        let done = [1, 2, 3].map(sample::order_id);
        sound(bench.ledger.releases_done(&done).await);
    }
    change(SaleState::Closed).await;
    change(SaleState::Closed).await;

    let types = [
        EventType::SaleOpened,
        EventType::SaleSoldOut,
        EventType::StockReturned,
        EventType::SaleClosed,
        EventType::OrderCancelled,
    ];
    let told = bench.told_to(SHOP, &types, 6).await;
    assert!(told.iter().all(|event| event.at == bench.clock.now()));
    let sales: Vec<_> = told.iter().filter(|it| it.kind != EventType::OrderCancelled).collect();
    let about = |item: Option<i64>, units| About::Sale { sale: SaleId(1), item: item.map(ItemId), units };
    let expected = [
        (EventType::SaleOpened, about(None, None)),
        (EventType::SaleSoldOut, about(Some(1), Some(2))),
        (EventType::StockReturned, about(Some(1), Some(1))),
        (EventType::SaleClosed, about(None, None)),
    ];
    assert_eq!(sales.iter().map(|it| (it.kind, it.about.clone())).collect::<Vec<_>>(), expected);
    let cancelled = told.iter().filter_map(|it| match &it.about {
        About::Order(order) if it.kind == EventType::OrderCancelled => {
            Some((order.reservation.order, order.status))
        }
        _ => None,
    });
    // Events of different orders come in any order.
    let cancelled: std::collections::BTreeMap<_, _> = cancelled.collect();
    let expected = [1, 3].map(|n| (sample::order_id(n), OrderStatus::Cancelled));
    assert_eq!(cancelled.into_iter().collect::<Vec<_>>(), expected);
    assert!(bench.take_all(SHOP).await.is_empty());
}

/// Promise 2: also behind one that failed, until it is given up.
pub async fn an_event_waits_for_the_one_before_it(bench: &Bench) {
    bench.told(10).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    bench.pay(1, "e1", "p1").await;
    bench.plan(SHOP, 3).await;
    let due = bench.claim(SHOP).await;
    let ids: Vec<&str> = due.iter().map(|it| it.event.id.as_str()).collect();
    assert_eq!(ids, [step("order_payable", 1), step("order_payable", 2)]);
    let Some(About::Order(first)) = due.first().map(|it| &it.event.about) else { panic!("{due:?}") };
    assert_eq!(first.status, OrderStatus::Pending, "as it was then");
    assert!(bench.claim(SHOP).await.is_empty(), "the first of both are on their way");

    bench.note(&due[1], Then::Delivered).await;
    bench.note(&due[0], Then::Again(Duration::from_secs(5))).await;
    bench.clock.advance(Duration::from_secs(5) - MS);
    assert!(bench.claim(SHOP).await.is_empty());
    bench.clock.advance(MS);
    let again = bench.claim(SHOP).await;
    assert_eq!((again.len(), again[0].id, again[0].tries), (1, due[0].id, 2));
    assert_eq!(again[0].event, due[0].event, "again is the same event");
    bench.note(&again[0], Then::Dead).await;
    assert_eq!(bench.take_all(SHOP).await, [step("order_paid", 1)], "given up is out of the way");
}

/// Promise 3: nobody else gets it meanwhile, and who comes back late changes nothing.
pub async fn a_claim_is_one_keepers_until_its_lease_ends(bench: &Bench) {
    bench.told(10).await;
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3)]).await;
    bench.plan(SHOP, 3).await;
    let both = futures_util::future::join(bench.claim(SHOP), bench.claim(SHOP)).await;
    assert_eq!(both.0.len() + both.1.len(), 3);
    let first = if both.0.is_empty() { both.1 } else { both.0 };
    bench.clock.advance(LEASE - MS);
    assert!(bench.claim(SHOP).await.is_empty());
    bench.clock.advance(MS);
    let second = bench.claim(SHOP).await;
    assert_eq!(second.len(), 3);
    let late = &first[0];
    let Some(now) = second.iter().find(|it| it.id == late.id) else { panic!("{second:?}") };
    assert_eq!((now.attempt, &now.event), (late.attempt + 1, &late.event));

    bench.note(late, Then::Dead).await;
    assert_eq!(bench.logged(late.id).await.state, DeliveryState::Waiting, "that claim is over");
    bench.note(now, Then::Delivered).await;
    let logged = bench.logged(late.id).await;
    assert_eq!((logged.state, logged.attempts, logged.status), (DeliveryState::Delivered, 2, Some(503)));
    assert_eq!(logged.answer.as_deref(), Some("busy [0m"));
    assert_eq!(logged.attempted_at, Some(bench.clock.now()));
    bench.note(now, Then::Again(MS)).await;
    assert_eq!(bench.logged(late.id).await.state, DeliveryState::Delivered, "delivered stays so");
}

/// Promise 4: one by one, all of an endpoint, and those that were delivered.
pub async fn a_dead_delivery_is_replayed_under_its_id(bench: &Bench) {
    bench.told(10).await;
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3)]).await;
    bench.plan(SHOP, 3).await;
    let first = bench.claim(SHOP).await;
    for it in &first {
        bench.note(it, Then::Dead).await;
    }
    bench.clock.advance(Duration::from_secs(3_600));
    assert!(bench.claim(SHOP).await.is_empty());
    assert_eq!(sound(bench.ledger.backlog().await).dead_deliveries, 3);

    let replayed = sound(bench.ledger.replay_delivery(first[1].id).await);
    assert_eq!(replayed.map(|it| (it.state, it.attempts)), Some((DeliveryState::Waiting, 1)));
    let again = bench.claim(SHOP).await;
    assert_eq!((again.len(), &again[0].event), (1, &first[1].event));
    assert_eq!((again[0].attempt, again[0].tries), (2, 1), "its waits begin anew");
    bench.note(&again[0], Then::Delivered).await;
    sound(bench.ledger.replay_delivery(first[1].id).await);
    assert_eq!(bench.take_all(SHOP).await, [first[1].event.id.clone()]);

    assert_eq!(sound(bench.ledger.replay_dead("other", 10).await), 0);
    assert_eq!(sound(bench.ledger.replay_dead(SHOP, 1).await), 1);
    assert_eq!(sound(bench.ledger.replay_dead(SHOP, 10).await), 1);
    assert_eq!(bench.take_all(SHOP).await, [first[0].event.id.clone(), first[2].event.id.clone()]);
    assert_eq!(sound(bench.ledger.replay_delivery(999_999).await), None);
    assert_eq!(sound(bench.ledger.delivery(999_999).await), None);
}

/// Promise 5: each has its own places, deliveries and types.
pub async fn an_endpoint_that_fails_stops_no_other(bench: &Bench) {
    bench.told(10).await;
    sound(bench.ledger.register_endpoint("warehouse").await);
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    bench.pay(1, "e1", "p1").await;
    bench.plan(SHOP, 3).await;
    for due in bench.claim(SHOP).await {
        bench.note(&due, Then::Again(Duration::from_secs(3_600))).await;
    }
    assert!(bench.claim("warehouse").await.is_empty(), "nothing is planned for it yet");
    let taken = bench.told_to("warehouse", &[EventType::OrderPaid], 1).await;
    assert_eq!(taken.iter().map(|it| it.id.clone()).collect::<Vec<_>>(), [step("order_paid", 1)]);
    assert_eq!(sound(bench.ledger.plan_deliveries("nobody", &EventType::ALL, 10).await), 0);
    assert!(bench.claim("nobody").await.is_empty());
}

/// Promise 6, and what is forgotten.
pub async fn deliveries_come_in_bounded_pages(bench: &Bench) {
    bench.told(10).await;
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3)]).await;
    bench.pay(2, "e1", "p1").await;
    bench.plan(SHOP, 4).await;
    assert_eq!(sound(bench.ledger.claim_deliveries(SHOP, LEASE, 1).await).len(), 1);
    let list = async |filter: &DeliveryFilter, before, limit| {
        sound(bench.ledger.deliveries(filter, before, limit).await)
    };
    let all = list(&DeliveryFilter::default(), None, 10).await;
    let ids: Vec<i64> = all.iter().map(|it| it.id).collect();
    assert!(ids.len() == 4 && ids.is_sorted_by(|a, b| a > b), "{ids:?}");
    let page = list(&DeliveryFilter::default(), Some(ids[1]), 2).await;
    assert_eq!(page.iter().map(|it| it.id).collect::<Vec<_>>(), ids[2..]);
    let of_order = DeliveryFilter { subject: Some(sample::order_id(2).to_string()), ..Default::default() };
    assert_eq!(list(&of_order, None, 10).await.len(), 2);
    let elsewhere = DeliveryFilter { endpoint: Some("other".to_owned()), ..Default::default() };
    assert!(list(&elsewhere, None, 10).await.is_empty());

    bench.clock.advance(LEASE);
    bench.take_all(SHOP).await;
    sound(bench.ledger.replay_delivery(ids[0]).await);
    let ended = DeliveryFilter { state: Some(DeliveryState::Delivered), ..Default::default() };
    assert_eq!(list(&ended, None, 10).await.len(), 3);
    let forget = async |before: Timestamp| sound(bench.ledger.forget_deliveries(SHOP, before, 2).await);
    assert_eq!(forget(bench.clock.now()).await, 0, "they have just ended");
    let later = bench.clock.now().plus(MS);
    assert_eq!((forget(later).await, forget(later).await, forget(later).await), (2, 1, 0));
    let left: Vec<i64> = list(&DeliveryFilter::default(), None, 10).await.iter().map(|it| it.id).collect();
    assert_eq!(left, [ids[0]], "what waits is kept");
}
