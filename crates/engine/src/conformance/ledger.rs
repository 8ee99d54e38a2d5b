//! The promises of [`Ledger`] as tests.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

pub use super::blocks::{a_block_stands_until_it_is_lifted, blocks_are_added_all_or_none};
pub use super::settlement::{
    a_late_payment_is_settled_by_its_retake, a_refund_stays_due_until_it_is_done,
    a_refunded_order_gives_its_units_back, a_refused_retake_gives_the_money_back,
    an_open_attempt_holds_its_order_once, each_payment_of_a_sale_is_listed_once,
    holding_without_paying_is_a_strike, money_that_came_back_by_itself_refunds_its_order,
    units_return_at_random_moments,
};
pub use super::staff::{
    a_key_begins_one_action_once, an_action_is_in_the_trail_before_it_has_ended,
    the_newest_turn_of_a_switch_stands,
};
use super::{sample, sound};
use crate::clock::{Clock, ManualClock, Timestamp};
use crate::delivery::{Batch, Decoded, Delivered, Position};
use crate::ledger::{
    BeginOutcome, BookSnapshot, CancelOutcome, ChangeOutcome, DeadLetter, DropOutcome, Ledger, LoadSnapshot,
    PayOutcome, PaymentAttempt, PaymentAttemptId, PaymentEvent, PaymentEventKind, ProviderEvent,
    RebuildOutcome, ReceiveOutcome, RecordOutcome, Recorded, ReplayOutcome, RestockOutcome, RestockState,
};
use crate::order::{Epoch, ItemId, OrderId, OrderPlaced, OrderStatus, RejectReason, SaleId, Units};
use crate::sale::{LoaderToken, NewSale, Sale, SaleState};

/// Hands every promise of the suite to the macro `$each`, as a list of names.
#[macro_export]
macro_rules! ledger_promises {
    ($each:ident) => {
        $each! {
            a_record_applied_twice_counts_once, a_zombie_recorder_is_refused,
            the_ledger_refuses_what_the_stock_should_have, an_expired_order_leaves_a_release_row,
            a_cancelled_order_leaves_a_release_row, terminal_states_are_final,
            a_payment_after_the_deadline_is_not_taken, a_payment_counts_once,
            a_rebuild_is_taken_over_not_begun_twice, a_barrier_is_stored_once,
            a_record_behind_the_barrier_is_stale, a_queued_order_can_be_cancelled, a_restock_counts_once,
            records_that_cannot_be_applied_are_parked, a_sale_moves_only_along_its_arrows,
            what_is_loaded_is_every_order_once, a_replayed_letter_is_applied_by_the_ordinary_rules,
            a_dropped_letter_keeps_who_and_why, a_refused_order_is_not_brought_back_by_its_letter,
            an_attempt_begins_only_while_its_order_is_payable, an_attempt_is_one_orders_for_ever,
            an_event_counts_only_with_its_attempt, an_event_that_contradicts_is_kept_and_changes_nothing,
            money_that_came_back_by_itself_refunds_its_order, a_late_payment_is_settled_by_its_retake,
            a_refused_retake_gives_the_money_back, a_refund_stays_due_until_it_is_done,
            a_refunded_order_gives_its_units_back, an_open_attempt_holds_its_order_once,
            each_payment_of_a_sale_is_listed_once, holding_without_paying_is_a_strike, the_newest_turn_of_a_switch_stands,
            an_action_is_in_the_trail_before_it_has_ended,
            a_key_begins_one_action_once,
            a_block_stands_until_it_is_lifted, blocks_are_added_all_or_none,
        }
    };
}

/// One ledger under test and the clock it was made with.
pub struct Bench {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Its clock.
    pub clock: Arc<ManualClock>,
}

/// The sample sale's payment window.
pub(super) const WINDOW: Duration = Duration::from_secs(600);
/// Where the sample payments are made.
pub(super) const PROVIDER: &str = "test";
const MINE: LoaderToken = LoaderToken(11);
const THEIRS: LoaderToken = LoaderToken(22);

impl Bench {
    /// A sale that was preheated, in epoch 1, with two items; its ids are 1, 1 and 2 in an empty
    /// ledger.
    pub(super) async fn sale(&self, quantity: u64, limit: u32) -> Sale {
        let now = self.clock.now();
        let items = ["A", "B"].map(|product| sample::new_item(product, quantity));
        let sale = NewSale {
            opens_at: now.minus(Duration::from_secs(60)),
            closes_at: now.plus(Duration::from_secs(7_200)),
            payment_window: WINDOW,
            limit: Units(limit),
            ..sample::new_sale(now, items.into())
        };
        let sale = sound(self.ledger.create_sale(&sale).await);
        assert_eq!((sale.id, sale.items[0].id), (SaleId(1), ItemId(1)));
        sound(self.ledger.register(&[sample::position(0)]).await);
        self.rebuild(sale.epoch).await;
        self.read_sale().await
    }

    async fn rebuild(&self, from: Epoch) {
        let begun = sound(self.ledger.begin_rebuild(SaleId(1), from, "test", MINE, Duration::ZERO).await);
        assert!(matches!(begun, RebuildOutcome::Owned(_)), "{begun:?}");
        assert!(sound(self.ledger.finish_rebuild(SaleId(1), MINE).await));
    }

    pub(super) async fn read_sale(&self) -> Sale {
        match sound(self.ledger.sale(SaleId(1)).await) {
            Some(sale) => sale,
            None => panic!("the sale is gone"),
        }
    }

    async fn next(&self) -> u64 {
        sound(self.ledger.positions().await).first().map_or(0, |position| position.next)
    }

    /// Records these orders behind what is recorded.
    pub(super) async fn record(&self, orders: &[OrderPlaced]) -> Recorded {
        let contents = orders.iter().map(|order| Decoded::Order(Box::new(order.clone()))).collect();
        match sound(self.ledger.record(&batch(self.next().await, contents)).await) {
            RecordOutcome::Recorded(recorded) => recorded,
            RecordOutcome::Zombie => panic!("refused as a zombie"),
        }
    }

    /// Expires what is due: how many are closed, and how many are held.
    pub(super) async fn expire(&self, hold: Duration) -> (u64, u64) {
        let expired = sound(self.ledger.expire(10, hold).await);
        (expired.closed, expired.held)
    }

    pub(super) async fn status(&self, n: u64) -> Option<OrderStatus> {
        sound(self.ledger.statuses(&[sample::order_id(n)]).await)[0]
    }

    pub(super) async fn pay(&self, n: u64, event: &str, payment: &str) -> PayOutcome {
        sound(self.ledger.pay(&payment_event(n, event, payment)).await)
    }

    /// The attempt of order `n`, which the provider calls `session-n`.
    pub(super) async fn attempt(&self, n: u64) -> PaymentAttempt {
        let id = match sound(self.ledger.begin_attempt(sample::order_id(n), PROVIDER).await) {
            BeginOutcome::Begun(attempt, order) => {
                assert_eq!(
                    (attempt.order, order.reservation.order),
                    (sample::order_id(n), sample::order_id(n))
                );
                attempt.id
            }
            other => panic!("not begun: {other:?}"),
        };
        let noted = self.ledger.note_attempt(id, &format!("session-{n}"), "https://pay.example/").await;
        match sound(noted) {
            Some(attempt) => attempt,
            None => panic!("the attempt is gone"),
        }
    }

    pub(super) async fn receive(&self, event: &ProviderEvent) -> ReceiveOutcome {
        self.receive_within(event, Duration::ZERO).await
    }

    pub(super) async fn receive_within(&self, event: &ProviderEvent, hold: Duration) -> ReceiveOutcome {
        sound(self.ledger.receive(event, hold).await)
    }

    /// What was said about order `n`: event, kind, outcome.
    async fn evidence(&self, n: u64) -> Vec<(String, String, Option<String>)> {
        let said = sound(self.ledger.payment_evidence(sample::order_id(n), 100).await);
        said.into_iter().map(|it| (it.event_id, it.kind, it.outcome)).collect()
    }

    pub(super) async fn books(&self) -> BookSnapshot {
        let books = sound(self.ledger.books().await);
        let snapshot = crate::audit::Snapshot {
            books: books.clone(),
            buckets: Vec::new(),
            ends: Vec::new(),
            at_rest: false,
        };
        let report = crate::audit::check(&snapshot);
        assert!(report.is_ok(), "{:?}", report.findings);
        books
    }

    /// Sold units of item 1 and of item 2.
    pub(super) async fn sold(&self) -> (u64, u64) {
        let sale = self.read_sale().await;
        (sale.items[0].sold, sale.items[1].sold)
    }
}

fn batch(from: u64, contents: Vec<Decoded>) -> Batch {
    let next = from + contents.len() as u64;
    let records = contents
        .into_iter()
        .zip(from..)
        .map(|(contents, offset)| Delivered { offset, appended_at: Timestamp::from_ms(0), contents })
        .collect();
    Batch { from: sample::position(from), next, records }
}

pub(super) fn payment_event(n: u64, event: &str, payment: &str) -> PaymentEvent {
    let price = sample::price();
    PaymentEvent {
        provider: "test".to_owned(),
        event_id: event.to_owned(),
        payment_id: payment.to_owned(),
        order: sample::order_id(n),
        amount_minor: price.minor,
        currency: price.currency,
    }
}

/// Order `n` of user `user`.
pub(super) fn order_of(user: u64, n: u64) -> OrderPlaced {
    let mut order = sample::order_placed(n);
    order.reservation.user = sample::user(user);
    order
}

/// Promise 1: in one batch, in the next, and after a restart from an older position would be.
pub async fn a_record_applied_twice_counts_once(bench: &Bench) {
    bench.sale(10, 1).await;
    let order = sample::order_placed(1);
    let recorded = bench.record(&[order.clone(), order.clone()]).await;
    assert_eq!((recorded.pending, recorded.known), (1, 1));
    let again = bench.record(std::slice::from_ref(&order)).await;
    assert_eq!((again.pending, again.known, again.live.len()), (0, 1, 1));
    assert_eq!(bench.sold().await, (1, 0));
    let books = bench.books().await;
    assert_eq!((books.orders.len(), books.steps.len()), (1, 1));
    let expires_at = bench.clock.now().plus(WINDOW);
    assert_eq!(books.orders[0].expires_at, expires_at);
    assert_eq!(books.orders[0].reservation, order.reservation);
}

/// Promise 2.
pub async fn a_zombie_recorder_is_refused(bench: &Bench) {
    bench.sale(10, 1).await;
    let batch_of = |n| batch(0, vec![Decoded::Order(Box::new(sample::order_placed(n)))]);
    assert!(matches!(sound(bench.ledger.record(&batch_of(1)).await), RecordOutcome::Recorded(_)));
    assert_eq!(sound(bench.ledger.record(&batch_of(2)).await), RecordOutcome::Zombie);
    assert_eq!((bench.status(2).await, bench.next().await), (None, 1));
    let other_topic = Position { topic: crate::delivery::TopicId("other".to_owned()), ..sample::position(1) };
    let stranger = Batch { from: other_topic, next: 2, records: Vec::new() };
    assert_eq!(sound(bench.ledger.record(&stranger).await), RecordOutcome::Zombie);
}

/// Promise 3, with the reason and the proof that the stock is ahead.
pub async fn the_ledger_refuses_what_the_stock_should_have(bench: &Bench) {
    bench.sale(2, 1).await;
    let recorded = bench.record(&[order_of(1, 1), order_of(1, 2), order_of(2, 3), order_of(3, 4)]).await;
    assert_eq!((recorded.pending, recorded.rejected), (2, 2));
    assert_eq!(recorded.ahead, [(SaleId(1), Epoch(1))]);
    let books = bench.books().await;
    let reason = |n| {
        books.orders.iter().find(|it| it.reservation.order == sample::order_id(n)).and_then(|it| it.reason)
    };
    assert_eq!(reason(2), Some(RejectReason::Limit));
    assert_eq!(reason(4), Some(RejectReason::NoStock));
    assert_eq!(books.releases.len(), 2);
    assert_eq!(bench.sold().await, (2, 0));
    // An order of an earlier epoch proves nothing about the present stock.
    bench.rebuild(Epoch(1)).await;
    assert!(bench.record(&[order_of(9, 9)]).await.ahead.is_empty());
}

/// Promise 4.
pub async fn an_expired_order_leaves_a_release_row(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    bench.clock.advance(WINDOW);
    assert_eq!(bench.expire(Duration::ZERO).await, (0, 0), "the deadline itself is still in time");
    assert_eq!(bench.pay(2, "e", "p").await, PayOutcome::Paid);
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(bench.expire(Duration::ZERO).await, (1, 0));
    assert_eq!(bench.status(1).await, Some(OrderStatus::Expired));
    let due = sound(bench.ledger.releases_due(&[], 10).await);
    assert_eq!(
        due.iter().map(|row| (row.order, row.epoch)).collect::<Vec<_>>(),
        [(sample::order_id(1), Epoch(1))]
    );
    assert!(sound(bench.ledger.releases_due(&[SaleId(1)], 10).await).is_empty());
    assert_eq!(sound(bench.ledger.backlog().await).release_rows, 1);
    assert_eq!(bench.sold().await, (1, 0));
    // The user may buy again.
    assert_eq!(bench.record(&[order_of(1, 3)]).await.pending, 1);
    sound(bench.ledger.releases_done(&[sample::order_id(1)]).await);
    sound(bench.ledger.ensure_releases(&[sample::order_id(1), sample::order_id(2)]).await);
    assert_eq!(sound(bench.ledger.releases_due(&[], 10).await).len(), 1, "only the terminal order");
    bench.books().await;
}

/// Promise 4.
pub async fn a_cancelled_order_leaves_a_release_row(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1)]).await;
    let cancel = |user| async move {
        sound(bench.ledger.cancel(sample::order_id(1), &sample::user(user), None).await)
    };
    assert_eq!(cancel(2).await, CancelOutcome::Unknown, "somebody else's");
    for _ in 0..3 {
        assert!(matches!(cancel(1).await, CancelOutcome::Cancelled(_)));
    }
    let books = bench.books().await;
    assert_eq!((books.releases.len(), books.steps.len()), (1, 2));
    assert_eq!(bench.sold().await, (0, 0));
}

/// Promise 5.
pub async fn terminal_states_are_final(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3)]).await;
    sound(bench.ledger.cancel(sample::order_id(1), &sample::user(1), None).await);
    assert_eq!(bench.pay(2, "e2", "p2").await, PayOutcome::Paid);
    bench.clock.advance(WINDOW + Duration::from_millis(1));
    bench.expire(Duration::ZERO).await;
    assert_eq!(bench.pay(1, "late-1", "p-1").await, PayOutcome::RefundDue);
    assert_eq!(bench.pay(3, "late-3", "p-3").await, PayOutcome::Late, "it may buy again");
    let cancel =
        |n| async move { sound(bench.ledger.cancel(sample::order_id(n), &sample::user(n), None).await) };
    assert!(matches!(cancel(2).await, CancelOutcome::Paid(_)));
    assert!(matches!(cancel(3).await, CancelOutcome::Closed(_)));
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3)]).await;
    let states = [bench.status(1).await, bench.status(2).await, bench.status(3).await];
    assert_eq!(states, [OrderStatus::Cancelled, OrderStatus::Paid, OrderStatus::Expired].map(Some));
    bench.books().await;
}

/// Promise 6: even when nobody has expired the order yet.
pub async fn a_payment_after_the_deadline_is_not_taken(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1)]).await;
    bench.clock.advance(WINDOW + Duration::from_millis(1));
    assert_eq!(bench.pay(1, "e", "p").await, PayOutcome::Late);
    assert_eq!(bench.status(1).await, Some(OrderStatus::Expired));
    assert_eq!(bench.sold().await, (0, 0));
    let books = bench.books().await;
    assert_eq!((books.releases.len(), books.payments.len()), (1, 1));
}

/// Promise 7.
pub async fn a_payment_counts_once(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1)]).await;
    let wrong_amount = PaymentEvent { amount_minor: 1, ..payment_event(1, "e0", "p1") };
    assert_eq!(sound(bench.ledger.pay(&wrong_amount).await), PayOutcome::AmountMismatch);
    let dollars = PaymentEvent { currency: usd(), ..payment_event(1, "e1", "p1") };
    assert_eq!(sound(bench.ledger.pay(&dollars).await), PayOutcome::AmountMismatch);
    assert_eq!(bench.pay(9, "e2", "p9").await, PayOutcome::NoOrder);
    assert_eq!(bench.pay(9, "e2", "p9").await, PayOutcome::NoOrder, "told again, still unknown");
    bench.record(&[order_of(9, 9)]).await;
    assert_eq!(bench.pay(9, "e2", "p9").await, PayOutcome::Paid, "told again, and known by now");
    assert_eq!(bench.pay(1, "e3", "p1").await, PayOutcome::Paid);
    assert_eq!(bench.pay(1, "e3", "p1").await, PayOutcome::Duplicate, "the same event");
    assert_eq!(bench.pay(1, "e4", "p1").await, PayOutcome::Duplicate, "another event of the same payment");
    assert_eq!(bench.pay(1, "e5", "p2").await, PayOutcome::RefundDue, "a second payment");
    assert_eq!(bench.pay(1, "e6", "p2").await, PayOutcome::Duplicate);
    assert_eq!(bench.status(1).await, Some(OrderStatus::Paid));
    let sale = bench.read_sale().await;
    assert_eq!((sale.items[0].sold, sale.items[0].paid), (2, 2));
    bench.books().await;
}

fn usd() -> crate::order::Currency {
    "USD".parse().expect("USD is a currency")
}

/// Promise 8.
pub async fn a_rebuild_is_taken_over_not_begun_twice(bench: &Bench) {
    let sale = bench.sale(10, 1).await;
    assert_eq!((sale.epoch, sale.terms.state), (Epoch(1), SaleState::Preheated));
    let lease = Duration::from_secs(10);
    let begin = |from, token| async move {
        sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(from), "test", token, lease).await)
    };
    let owned = |outcome: RebuildOutcome| match outcome {
        RebuildOutcome::Owned(sale) => sale.epoch,
        other => panic!("{other:?}"),
    };
    assert_eq!(owned(begin(1, MINE).await), Epoch(2));
    assert_eq!(owned(begin(1, MINE).await), Epoch(2), "its owner goes on");
    assert!(matches!(begin(2, THEIRS).await, RebuildOutcome::OwnedByOther(_)));
    // A long load is heard of with every page.
    for _ in 0..3 {
        bench.clock.advance(lease / 2);
        assert!(sound(bench.ledger.load_snapshot(SaleId(1), MINE, None, 10).await).is_some());
    }
    assert!(matches!(begin(2, THEIRS).await, RebuildOutcome::OwnedByOther(_)));
    bench.clock.advance(lease);
    assert_eq!(owned(begin(2, THEIRS).await), Epoch(2), "taken over, in the same epoch");
    assert!(!sound(bench.ledger.finish_rebuild(SaleId(1), MINE).await), "the old owner may not lift it");
    assert!(sound(bench.ledger.load_snapshot(SaleId(1), MINE, None, 10).await).is_none());
    assert!(sound(bench.ledger.put_barriers(SaleId(1), MINE, &[]).await).is_none());
    assert!(sound(bench.ledger.finish_rebuild(SaleId(1), THEIRS).await));
    assert_eq!(begin(1, MINE).await, RebuildOutcome::Overtaken);
    assert_eq!(owned(begin(2, LoaderToken::NOBODY).await), Epoch(3));
    assert_eq!(owned(begin(3, MINE).await), Epoch(3), "nobody's fence is free to take at once");
    let missing = bench.ledger.begin_rebuild(SaleId(9), Epoch(0), "test", MINE, lease).await;
    assert_eq!(sound(missing), RebuildOutcome::NoSale);
}

/// Promise 8.
pub async fn a_barrier_is_stored_once(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&(1..=5).map(sample::order_placed).collect::<Vec<_>>()).await;
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(1), "test", MINE, Duration::ZERO).await);
    let put = |next| async move {
        sound(bench.ledger.put_barriers(SaleId(1), MINE, &[sample::position(next)]).await)
    };
    assert_eq!(put(3).await, Some(vec![sample::position(5)]), "not before what is recorded");
    assert_eq!(put(99).await, Some(vec![sample::position(5)]), "everybody uses the stored one");

    // A queue that lost its end: a barrier beyond it would never be passed.
    assert!(sound(bench.ledger.finish_rebuild(SaleId(1), MINE).await));
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(2), "test", MINE, Duration::ZERO).await);
    assert_eq!(put(99).await, Some(vec![sample::position(99)]));
    assert_eq!(put(7).await, Some(vec![sample::position(7)]), "lowered to the end that is left");
    let cut = |from, end| async move { sound(bench.ledger.cut_back(&sample::position(from), end).await) };
    assert!(!cut(4, 3).await, "only from where the recorder stands");
    assert!(!cut(5, 6).await, "only back");
    assert!(cut(5, 3).await);
    assert_eq!(bench.next().await, 3);
}

/// Promise 9.
pub async fn a_record_behind_the_barrier_is_stale(bench: &Bench) {
    bench.sale(10, 1).await;
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(1), "test", MINE, Duration::ZERO).await);
    sound(bench.ledger.put_barriers(SaleId(1), MINE, &[sample::position(1)]).await);
    let mut new = sample::order_placed(3);
    new.reservation.epoch = Epoch(2);
    let recorded = bench.record(&[sample::order_placed(1), sample::order_placed(2), new]).await;
    assert_eq!((recorded.pending, recorded.rejected), (2, 1));
    assert!(recorded.ahead.is_empty());
    let stale = sound(bench.ledger.order(sample::order_id(2)).await);
    assert_eq!(stale.and_then(|order| order.reason), Some(RejectReason::StaleEpoch));
    let books = bench.books().await;
    assert_eq!(books.releases, [sample::order_id(2)]);
}

/// Promise 10.
pub async fn a_queued_order_can_be_cancelled(bench: &Bench) {
    bench.sale(10, 1).await;
    let queued = order_of(1, 1);
    let cancel = |user: u64| {
        let queued = queued.clone();
        async move { sound(bench.ledger.cancel(sample::order_id(1), &sample::user(user), Some(&queued)).await) }
    };
    assert_eq!(cancel(2).await, CancelOutcome::Unknown, "not this user's hold");
    for _ in 0..2 {
        assert!(matches!(cancel(1).await, CancelOutcome::Cancelled(_)));
    }
    let late = bench.record(std::slice::from_ref(&queued)).await;
    assert_eq!((late.pending, late.known, late.live.len()), (0, 1, 0));
    assert_eq!(bench.sold().await, (0, 0));
    assert_eq!(bench.books().await.releases, [sample::order_id(1)]);
}

/// Promise 11: additions move the ledger first, removals the stock first.
pub async fn a_restock_counts_once(bench: &Bench) {
    bench.sale(10, 1).await;
    let begin = |operation: u128, item: i64, units: i64| async move {
        sound(bench.ledger.begin_restock(Uuid::from_u128(operation), SaleId(1), ItemId(item), units).await)
    };
    let end = |operation: u128, applied| async move {
        sound(bench.ledger.end_restock(Uuid::from_u128(operation), applied).await).map(|intent| intent.state)
    };
    let quantity = || async { bench.read_sale().await.items[0].quantity };
    for _ in 0..2 {
        assert!(matches!(begin(1, 1, 5).await, RestockOutcome::Intent(_)));
    }
    assert_eq!(quantity().await, 15);
    assert_eq!(begin(1, 1, 6).await, RestockOutcome::OtherContent);
    assert_eq!(begin(2, 9, 6).await, RestockOutcome::NoItem);
    assert_eq!(begin(2, 1, -16).await, RestockOutcome::OutOfRange);
    assert_eq!(begin(2, 1, 1_000_000_000).await, RestockOutcome::OutOfRange);
    for _ in 0..2 {
        assert_eq!(end(1, true).await, Some(RestockState::Done));
    }
    begin(3, 1, -4).await;
    assert_eq!(quantity().await, 15, "a removal waits for the stock");
    assert_eq!(sound(bench.ledger.open_restocks().await).len(), 1);
    assert_eq!(end(3, true).await, Some(RestockState::Done));
    begin(4, 1, -4).await;
    assert_eq!(end(4, false).await, Some(RestockState::Cancelled));
    assert_eq!((quantity().await, end(9, true).await), (11, None));
    // A rebuild ends what is open: additions are in the load, removals are not.
    begin(5, 1, 2).await;
    begin(6, 1, -3).await;
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(1), "test", MINE, Duration::ZERO).await);
    assert_eq!(begin(7, 1, 1).await, RestockOutcome::NotNow);
    sound(bench.ledger.load_snapshot(SaleId(1), MINE, None, 10).await);
    assert_eq!(
        (end(5, true).await, end(6, true).await),
        (Some(RestockState::Done), Some(RestockState::Cancelled))
    );
    assert_eq!(quantity().await, 13);
}

/// A record that cannot be applied stops nothing behind it.
pub async fn records_that_cannot_be_applied_are_parked(bench: &Bench) {
    bench.sale(10, 2).await;
    let mut no_item = sample::order_placed(1);
    no_item.reservation.item = ItemId(99);
    let mut too_many = sample::order_placed(2);
    too_many.reservation.units = Units(3);
    let refused = Decoded::Refused { order: Box::new(sample::order_placed(3)), why: "a test".to_owned() };
    let contents = vec![
        Decoded::Unreadable { bytes: b"\xff".to_vec(), why: "garbage".to_owned() },
        Decoded::Order(Box::new(no_item)),
        Decoded::Order(Box::new(too_many)),
        refused,
        Decoded::Order(Box::new(sample::order_placed(4))),
    ];
    let RecordOutcome::Recorded(recorded) = sound(bench.ledger.record(&batch(0, contents)).await) else {
        panic!("refused as a zombie")
    };
    assert_eq!((recorded.dead, recorded.pending), (4, 1));
    let reason =
        |n| async move { sound(bench.ledger.order(sample::order_id(n)).await).and_then(|it| it.reason) };
    assert_eq!(reason(1).await, None);
    assert_eq!(reason(2).await, Some(RejectReason::Unreadable));
    assert_eq!(reason(3).await, Some(RejectReason::Unreadable));
    assert_eq!(bench.books().await.releases.len(), 2);
    // A dead letter never touches a row that is there.
    let known = Decoded::Refused { order: Box::new(sample::order_placed(4)), why: "a test".to_owned() };
    sound(bench.ledger.record(&batch(5, vec![known])).await);
    assert_eq!(bench.status(4).await, Some(OrderStatus::Pending));
}

/// States move along the arrows, once each; opening early moves the window.
pub async fn a_sale_moves_only_along_its_arrows(bench: &Bench) {
    let sale = bench.sale(10, 1).await;
    let change = |to, at| async move { sound(bench.ledger.change_state(SaleId(1), to, at).await) };
    assert_eq!(change(SaleState::Paused, None).await, ChangeOutcome::NotFrom(SaleState::Preheated));
    let early = sale.terms.opens_at.minus(Duration::from_secs(5));
    let ChangeOutcome::Done(open) = change(SaleState::Open, Some(early)).await else { panic!("not opened") };
    assert_eq!((open.terms.state, open.terms.opens_at), (SaleState::Open, early));
    let earlier = early.minus(Duration::from_secs(5));
    let ChangeOutcome::Done(open) = change(SaleState::Open, Some(earlier)).await else {
        panic!("not opened")
    };
    assert_eq!(open.terms.opens_at, earlier, "opening again moves the window too");
    assert!(matches!(change(SaleState::Open, None).await, ChangeOutcome::Done(_)));
    assert!(matches!(change(SaleState::Paused, None).await, ChangeOutcome::Done(_)));
    assert_eq!(change(SaleState::Preheated, None).await, ChangeOutcome::NotFrom(SaleState::Paused));
    bench.clock.jump(sale.terms.closes_at);
    assert_eq!(change(SaleState::Open, None).await, ChangeOutcome::NotFrom(SaleState::Paused));
    assert!(matches!(change(SaleState::Closed, None).await, ChangeOutcome::Done(_)));
    assert_eq!(change(SaleState::Open, None).await, ChangeOutcome::NotFrom(SaleState::Closed));
    let missing = bench.ledger.change_state(SaleId(9), SaleState::Closed, None).await;
    assert_eq!(sound(missing), ChangeOutcome::NoSale);
}

/// Paging through what a stock is loaded from.
pub async fn what_is_loaded_is_every_order_once(bench: &Bench) {
    bench.sale(100, 1).await;
    bench.record(&(1..=23).map(sample::order_placed).collect::<Vec<_>>()).await;
    for n in [4, 9, 23] {
        sound(bench.ledger.cancel(sample::order_id(n), &sample::user(n), None).await);
    }
    bench.pay(1, "e", "p").await;
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(1), "test", MINE, Duration::ZERO).await);
    for limit in [1, 5, 23, 1_000] {
        let (mut live, mut closed, mut after): (Vec<OrderId>, Vec<OrderId>, Option<OrderId>) =
            (vec![], vec![], None);
        loop {
            let page: Option<LoadSnapshot> =
                sound(bench.ledger.load_snapshot(SaleId(1), MINE, after, limit).await);
            let Some(page) = page else { panic!("not the owner") };
            live.extend(page.live.iter().map(|hold| hold.order));
            closed.extend(page.closed);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(live.len(), 20, "pages of {limit}");
        assert_eq!(closed, [4, 9, 23].map(sample::order_id));
    }
}

impl Bench {
    /// Parks a record and answers its letter.
    async fn park(&self, contents: Decoded) -> DeadLetter {
        sound(self.ledger.record(&batch(self.next().await, vec![contents])).await);
        let letters = sound(self.ledger.dead_letters(None, 100, false).await);
        letters.into_iter().next_back().expect("the record was parked")
    }

    async fn replay(&self, letter: &DeadLetter, order: &OrderPlaced) -> ReplayOutcome {
        sound(self.ledger.replay_dead_letter(letter.id, order, "ada").await)
    }
}

/// A record that could not be read.
fn garbage() -> Decoded {
    Decoded::Unreadable { bytes: b"\xff".to_vec(), why: "garbage".to_owned() }
}

/// Promise 12: room, limit and epoch decide as for any record, and a copy changes nothing.
pub async fn a_replayed_letter_is_applied_by_the_ordinary_rules(bench: &Bench) {
    bench.sale(2, 1).await;
    let letter = bench.park(garbage()).await;
    assert_eq!((letter.place.clone(), letter.bytes.as_slice()), (sample::position(0), &b"\xff"[..]));
    let mut no_item = sample::order_placed(1);
    no_item.reservation.item = ItemId(99);
    assert!(matches!(bench.replay(&letter, &no_item).await, ReplayOutcome::StillDead(_)));
    let ReplayOutcome::Recorded(order) = bench.replay(&letter, &sample::order_placed(1)).await else {
        panic!("not recorded")
    };
    assert_eq!((order.status, order.expires_at), (OrderStatus::Pending, bench.clock.now().plus(WINDOW)));
    assert_eq!(bench.sold().await, (1, 0));
    let ReplayOutcome::ClosedBefore(closed) = bench.replay(&letter, &sample::order_placed(2)).await else {
        panic!("replayed twice")
    };
    let closing = closed.closing.expect("it is closed");
    assert_eq!(
        (closing.how.as_str(), closing.by.as_str(), closing.reason.as_str()),
        ("replayed", "ada", "PENDING")
    );

    let copy = bench.park(garbage()).await;
    assert!(matches!(bench.replay(&copy, &sample::order_placed(1)).await, ReplayOutcome::Known(_)));
    let second = bench.park(garbage()).await;
    let rejected = |outcome| match outcome {
        ReplayOutcome::Recorded(order) => order.reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(rejected(bench.replay(&second, &order_of(1, 2)).await), Some(RejectReason::Limit));
    let late = bench.park(garbage()).await;
    bench.record(&[order_of(3, 3)]).await;
    assert_eq!(rejected(bench.replay(&late, &order_of(4, 4)).await), Some(RejectReason::NoStock));
    // It arrives now, behind the barrier of a later epoch, wherever it once stood.
    let old = bench.park(garbage()).await;
    sound(bench.ledger.begin_rebuild(SaleId(1), Epoch(1), "test", MINE, Duration::ZERO).await);
    sound(bench.ledger.put_barriers(SaleId(1), MINE, &[sample::position(bench.next().await)]).await);
    assert_eq!(rejected(bench.replay(&old, &order_of(5, 5)).await), Some(RejectReason::StaleEpoch));
    assert!(sound(bench.ledger.dead_letters(None, 100, false).await).is_empty());
    assert_eq!(bench.books().await.releases.len(), 3);
    assert_eq!(
        sound(bench.ledger.replay_dead_letter(999, &order_of(6, 6), "ada").await),
        ReplayOutcome::NoLetter
    );
}

/// Promise 12.
pub async fn a_dropped_letter_keeps_who_and_why(bench: &Bench) {
    bench.sale(2, 1).await;
    for _ in 0..3 {
        bench.park(garbage()).await;
    }
    let ids = |letters: Vec<DeadLetter>| letters.into_iter().map(|it| it.id).collect::<Vec<_>>();
    let page = |after, closed| async move { ids(sound(bench.ledger.dead_letters(after, 2, closed).await)) };
    let first = page(None, false).await;
    assert_eq!(first.len(), 2);
    let rest = page(Some(first[1]), false).await;
    assert_eq!(rest.len(), 1);
    let last = rest[0];
    let drop = |by| async move { sound(bench.ledger.drop_dead_letter(last, by, "not ours").await) };
    let DropOutcome::Dropped(letter) = drop("ada").await else { panic!("not dropped") };
    let closing = letter.closing.clone().expect("it is closed");
    assert_eq!((closing.at, closing.how.as_str()), (bench.clock.now(), "dropped"));
    assert_eq!((closing.by.as_str(), closing.reason.as_str()), ("ada", "not ours"));
    assert_eq!(drop("eve").await, DropOutcome::ClosedBefore(letter.clone()));
    assert_eq!(sound(bench.ledger.dead_letter(letter.id).await), Some(letter.clone()));
    assert!(matches!(bench.replay(&letter, &order_of(1, 1)).await, ReplayOutcome::ClosedBefore(_)));
    assert!(page(Some(first[1]), false).await.is_empty());
    assert_eq!(sound(bench.ledger.backlog().await).open_dead_letters, 2);
    assert_eq!(page(Some(first[1]), true).await, [letter.id]);
    assert_eq!(sound(bench.ledger.dead_letter(999).await), None);
    assert_eq!(sound(bench.ledger.drop_dead_letter(999, "ada", "x").await), DropOutcome::NoLetter);
    assert!(bench.books().await.orders.is_empty());
}

/// Promise 12, with promise 5: its units went back when it was parked.
pub async fn a_refused_order_is_not_brought_back_by_its_letter(bench: &Bench) {
    bench.sale(2, 1).await;
    let order = sample::order_placed(1);
    let letter =
        bench.park(Decoded::Refused { order: Box::new(order.clone()), why: "a test".to_owned() }).await;
    assert_eq!(bench.status(1).await, Some(OrderStatus::Rejected));
    assert!(matches!(bench.replay(&letter, &order).await, ReplayOutcome::Final(_)));
    assert_eq!((bench.status(1).await, bench.sold().await), (Some(OrderStatus::Rejected), (0, 0)));
    let open = sound(bench.ledger.dead_letters(None, 9, false).await);
    assert_eq!(open, [letter], "it waits to be dropped");
    assert_eq!(bench.books().await.steps.len(), 1);
}

/// An event about order `n` and its attempt.
pub(super) fn provider_event(n: u64, event: &str, payment: &str, kind: PaymentEventKind) -> ProviderEvent {
    let attempt = PaymentAttemptId::derived(PROVIDER, sample::order_id(n));
    ProviderEvent { attempt, kind, payment: payment_event(n, event, payment), refund: None }
}

/// Promise 13, when: not before the order is recorded, not after its deadline, not once it is decided.
pub async fn an_attempt_begins_only_while_its_order_is_payable(bench: &Bench) {
    bench.sale(10, 1).await;
    let begin = async |n| sound(bench.ledger.begin_attempt(sample::order_id(n), PROVIDER).await);
    assert_eq!(begin(1).await, BeginOutcome::NoOrder);
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3), order_of(4, 4)]).await;
    assert_eq!(bench.pay(1, "e1", "p1").await, PayOutcome::Paid);
    assert_eq!(begin(1).await, BeginOutcome::Paid);
    sound(bench.ledger.cancel(sample::order_id(2), &sample::user(2), None).await);
    assert_eq!(begin(2).await, BeginOutcome::Closed);

    bench.clock.advance(WINDOW);
    let begun = begin(3).await;
    assert!(matches!(begun, BeginOutcome::Begun(..)), "at the deadline: {begun:?}");
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(begin(4).await, BeginOutcome::Closed, "behind the deadline, though nobody has expired it");
    assert_eq!(begin(3).await, BeginOutcome::Closed, "nor does a begun one go on");
    bench.books().await;
}

/// Promise 13, whose: again is the same attempt, and what the provider answered first stays.
pub async fn an_attempt_is_one_orders_for_ever(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    let first = bench.attempt(1).await;
    assert_eq!((first.order, first.reference.as_deref()), (sample::order_id(1), Some("session-1")));
    bench.clock.advance(Duration::from_secs(5));
    assert_eq!(bench.attempt(1).await, first);
    let again = bench.ledger.note_attempt(first.id, "session-other", "https://elsewhere.example/").await;
    assert_eq!(sound(again), Some(first.clone()));

    let other = PaymentAttemptId::derived(PROVIDER, sample::order_id(2));
    let begun = bench.ledger.begin_attempt(sample::order_id(2), PROVIDER).await;
    assert!(matches!(sound(begun), BeginOutcome::Begun(PaymentAttempt { reference: None, .. }, _)));
    let stolen = sound(bench.ledger.note_attempt(other, "session-1", "https://pay.example/").await);
    assert_eq!(stolen.and_then(|it| it.reference), None, "another attempt has this reference");
    assert_eq!(bench.attempt(2).await.reference.as_deref(), Some("session-2"));
    let nobody = PaymentAttemptId::derived("nobody", sample::order_id(2));
    assert_eq!(sound(bench.ledger.note_attempt(nobody, "session-9", "https://pay.example/").await), None);
}

/// Promise 14: without its attempt an event is kept, and changes nothing.
pub async fn an_event_counts_only_with_its_attempt(bench: &Bench) {
    use PaymentEventKind::Succeeded;
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    let unbegun = provider_event(1, "e1", "p1", Succeeded);
    assert_eq!(bench.receive(&unbegun).await, ReceiveOutcome::UnknownAttempt);
    bench.attempt(1).await;
    bench.attempt(2).await;
    let crossed = |event: &str, payment: &str| {
        let attempt = PaymentAttemptId::derived(PROVIDER, sample::order_id(1));
        ProviderEvent { attempt, ..provider_event(2, event, payment, Succeeded) }
    };
    assert_eq!(bench.receive(&crossed("e2", "p2")).await, ReceiveOutcome::OtherOrder, "order 1's attempt");
    let session = provider_event(2, "e3", "session-1", Succeeded);
    assert_eq!(bench.receive(&session).await, ReceiveOutcome::OtherOrder, "order 1's session");
    assert_eq!(bench.status(2).await, Some(OrderStatus::Pending));

    let paid = provider_event(1, "e4", "p1", Succeeded);
    assert_eq!(bench.receive(&paid).await, ReceiveOutcome::Decided(PayOutcome::Paid));
    assert_eq!(bench.receive(&paid).await, ReceiveOutcome::Decided(PayOutcome::Duplicate), "the same event");
    let other_event = provider_event(1, "e5", "p1", Succeeded);
    assert_eq!(bench.receive(&other_event).await, ReceiveOutcome::Decided(PayOutcome::Duplicate));
    let theirs = provider_event(2, "e6", "p1", Succeeded);
    assert_eq!(bench.receive(&theirs).await, ReceiveOutcome::OtherOrder, "order 1's payment");
    let second = provider_event(1, "e7", "p7", Succeeded);
    assert_eq!(bench.receive(&second).await, ReceiveOutcome::Decided(PayOutcome::RefundDue));

    assert_eq!(bench.status(2).await, Some(OrderStatus::Pending));
    let outcomes = bench.evidence(2).await.into_iter().map(|(event, _, outcome)| (event, outcome));
    let kept: Vec<_> = outcomes.collect();
    let other_order = Some("OTHER_ORDER".to_owned());
    assert_eq!(kept, ["e2", "e3", "e6"].map(|event| (event.to_owned(), other_order.clone())));
    bench.books().await;
}

/// Promise 14, for what is said about a payment beside that it succeeded.
pub async fn an_event_that_contradicts_is_kept_and_changes_nothing(bench: &Bench) {
    use PaymentEventKind::{Failed, Refunded, Succeeded};
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1)]).await;
    bench.attempt(1).await;
    let say = async |event: &str, kind| bench.receive(&provider_event(1, event, "p1", kind)).await;
    assert_eq!(say("e1", Failed).await, ReceiveOutcome::Failed);
    assert_eq!(bench.status(1).await, Some(OrderStatus::Pending), "the buyer may try again");
    let mut cheap = provider_event(1, "e2", "p1", Succeeded);
    cheap.payment.amount_minor -= 1;
    assert_eq!(bench.receive(&cheap).await, ReceiveOutcome::Decided(PayOutcome::AmountMismatch));
    assert_eq!(say("e3", Succeeded).await, ReceiveOutcome::Decided(PayOutcome::Paid));
    assert_eq!(say("e4", Failed).await, ReceiveOutcome::Contradiction);
    assert_eq!(say("e4", Failed).await, ReceiveOutcome::Decided(PayOutcome::Duplicate));
    let mut part = provider_event(1, "e5", "p1", Refunded);
    part.payment.amount_minor -= 1;
    assert_eq!(bench.receive(&part).await, ReceiveOutcome::PartlyRefunded);
    assert_eq!(bench.status(1).await, Some(OrderStatus::Paid));
    let evidence = bench.evidence(1).await;
    let kept: Vec<_> = evidence.iter().map(|it| (it.0.as_str(), it.1.as_str(), it.2.as_deref())).collect();
    assert_eq!(
        kept,
        [
            ("e1", "FAILED", Some("FAILED")),
            ("e2", "SUCCEEDED", None),
            ("e3", "SUCCEEDED", None),
            ("e4", "FAILED", Some("CONTRADICTION")),
            ("e5", "REFUNDED", Some("PARTLY_REFUNDED")),
        ]
    );
    bench.books().await;
}
