//! What a ledger promises of late payments, refunds, held orders and the list of payments; run with the others of
//! [`ledger_promises`](crate::ledger_promises).

use std::time::Duration;

use super::ledger::{Bench, PROVIDER, WINDOW, order_of, payment_event, provider_event};
use super::{sample, sound};
use crate::clock::Clock;
use crate::ledger::{
    Aftermath, BeginOutcome, CancelOutcome, LatePayment, LateVerdict, PayOutcome, PaymentAttemptId,
    PaymentEvent, PaymentEventKind, PaymentKey, ProviderEvent, ReceiveOutcome, Refund, RefundOutcome,
    RefundReport, RefundState, SettleOutcome,
};
use crate::order::{OrderId, OrderPlaced, OrderStatus, RejectReason, SaleId};

const LEASE: Duration = Duration::from_secs(30);
const HOLD: Duration = Duration::from_secs(20);

fn key(payment: &str) -> PaymentKey {
    PaymentKey { provider: PROVIDER.to_owned(), payment_id: payment.to_owned() }
}

/// The order by which the payment `payment` of order `n` buys again.
fn retake_of(n: u64, payment: &str) -> OrderPlaced {
    let mut order = order_of(n, n);
    order.reservation.retake_of = Some(order.reservation.order);
    order.reservation.order = key(payment).retake();
    order.reservation.seq += 1_000;
    order
}

impl Bench {
    /// A sale of ten whose orders 1 to `orders` have expired.
    async fn expired(&self, orders: u64) {
        self.sale(10, 2).await;
        let placed: Vec<OrderPlaced> = (1..=orders).map(|n| order_of(n, n)).collect();
        self.record(&placed).await;
        self.clock.advance(WINDOW + Duration::from_millis(1));
        assert_eq!(self.expire(Duration::ZERO).await, (orders, 0));
    }

    async fn late(&self) -> Vec<LatePayment> {
        sound(self.ledger.late_payments(10).await)
    }

    async fn settle(&self, payment: &str, verdict: LateVerdict) -> SettleOutcome {
        sound(self.ledger.settle_late(&key(payment), &verdict).await)
    }

    async fn status_of(&self, order: OrderId) -> Option<OrderStatus> {
        sound(self.ledger.order(order).await).map(|order| order.status)
    }

    async fn aftermath(&self, n: u64) -> Aftermath {
        sound(self.ledger.aftermath(sample::order_id(n)).await)
    }

    async fn take(&self) -> Vec<Refund> {
        sound(self.ledger.take_refunds(PROVIDER, 10, LEASE).await)
    }

    async fn refunds(&self) -> Vec<(String, RefundState)> {
        let all = sound(self.ledger.refunds(None, None, 10).await);
        all.into_iter().map(|it| (it.key.payment_id, it.state)).collect()
    }

    async fn report(&self, payment: &str, report: RefundReport) -> RefundState {
        sound(self.ledger.note_refund(&key(payment), &report).await).map(|it| it.state).expect("it has a row")
    }
}

/// Promise 14, for a provider that gave the money back by itself: before the success is told, while the
/// order is paid, and when it was to be given back anyway.
pub async fn money_that_came_back_by_itself_refunds_its_order(bench: &Bench) {
    use PaymentEventKind::{Refunded, Succeeded};
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    bench.attempt(1).await;
    bench.attempt(2).await;
    let say = async |n, event: &str, payment: &str, kind| {
        bench.receive(&provider_event(n, event, payment, kind)).await
    };
    assert_eq!(say(1, "e1", "p1", Refunded).await, ReceiveOutcome::Refunded);
    let late_success = say(1, "e2", "p1", Succeeded).await;
    assert_eq!(late_success, ReceiveOutcome::Decided(PayOutcome::Refunded), "told in the wrong order");
    assert_eq!(bench.status(1).await, Some(OrderStatus::Pending), "it may still be paid");
    assert_eq!(say(1, "e3", "p1", Succeeded).await, ReceiveOutcome::Decided(PayOutcome::Duplicate));

    assert_eq!(say(2, "e4", "p2", Succeeded).await, ReceiveOutcome::Decided(PayOutcome::Paid));
    assert_eq!(say(2, "e5", "p2b", Succeeded).await, ReceiveOutcome::Decided(PayOutcome::RefundDue));
    assert_eq!(say(2, "e6", "p2b", Refunded).await, ReceiveOutcome::Refunded);
    assert_eq!(bench.status(2).await, Some(OrderStatus::Paid), "that was the second payment");
    assert_eq!(bench.refunds().await, [("p2b".to_owned(), RefundState::Done)]);
    for event in ["e7", "e8"] {
        assert_eq!(say(2, event, "p2", Refunded).await, ReceiveOutcome::Refunded);
        assert_eq!(bench.status(2).await, Some(OrderStatus::Refunded));
    }
    assert_eq!(say(2, "e9", "p2", Succeeded).await, ReceiveOutcome::Decided(PayOutcome::Duplicate));
    assert_eq!(bench.status(2).await, Some(OrderStatus::Refunded), "for good");
    assert_eq!(bench.aftermath(2).await.refund, Some(RefundState::Done));
    assert_eq!(bench.sold().await, (1, 0));
    assert!(bench.take().await.is_empty(), "nothing is left to ask for");
    assert_eq!(bench.books().await.releases, [sample::order_id(2)]);
}

/// Promise 15: the new order is paid, once, and no other payment of the old one buys again.
pub async fn a_late_payment_is_settled_by_its_retake(bench: &Bench) {
    bench.expired(1).await;
    assert_eq!(bench.pay(1, "e1", "p1").await, PayOutcome::Late);
    assert_eq!(bench.pay(1, "e2", "p2").await, PayOutcome::RefundDue, "one buys again already");
    let waiting = bench.late().await;
    assert_eq!((waiting.len(), &waiting[0].key, waiting[0].retake), (1, &key("p1"), None));
    assert_eq!(waiting[0].order.reservation.order, sample::order_id(1));
    assert_eq!(bench.settle("p1", LateVerdict::ByRetake).await, SettleOutcome::Waits);

    bench.record(&[retake_of(1, "p1")]).await;
    assert_eq!(bench.late().await[0].retake, Some(OrderStatus::Pending));
    let begun = sound(bench.ledger.begin_attempt(key("p1").retake(), PROVIDER).await);
    assert_eq!(begun, BeginOutcome::Closed, "it has its payment already");
    // Also when the stock is said to have refused it: the row decides.
    let refused = LateVerdict::Refused(Box::new(retake_of(1, "p1")));
    assert_eq!(bench.settle("p1", refused).await, SettleOutcome::Paid);
    assert_eq!(bench.settle("p1", LateVerdict::ByRetake).await, SettleOutcome::Settled);
    assert!(bench.late().await.is_empty());

    assert_eq!(bench.status_of(key("p1").retake()).await, Some(OrderStatus::Paid));
    assert_eq!(bench.status(1).await, Some(OrderStatus::Expired));
    assert_eq!(bench.pay(1, "e3", "p1").await, PayOutcome::Duplicate);
    assert_eq!(bench.pay(1, "e4", "p3").await, PayOutcome::RefundDue);
    let after = bench.aftermath(1).await;
    assert_eq!(after.retaken_by, Some(key("p1").retake()));
    let sale = bench.read_sale().await;
    assert_eq!((sale.items[0].sold, sale.items[0].paid), (1, 1));
    let refunded = sound(bench.ledger.refund_order(key("p1").retake()).await);
    assert!(matches!(refunded, RefundOutcome::Refunded(_)), "{refunded:?}");
    let due = ["p1", "p2", "p3"].map(|payment| (payment.to_owned(), RefundState::Due));
    assert_eq!(bench.refunds().await, due);
    bench.books().await;
}

/// Promise 15: refused by the stock, the id is closed before the money goes back; closed by anybody,
/// or not wanted, the money goes back.
pub async fn a_refused_retake_gives_the_money_back(bench: &Bench) {
    bench.expired(3).await;
    for (n, payment) in [(1, "p1"), (2, "p2"), (3, "p3")] {
        assert_eq!(bench.pay(n, &format!("e{n}"), payment).await, PayOutcome::Late);
    }
    let refused = LateVerdict::Refused(Box::new(retake_of(1, "p1")));
    assert_eq!(bench.settle("p1", refused.clone()).await, SettleOutcome::RefundDue);
    assert_eq!(bench.settle("p1", refused).await, SettleOutcome::Settled);
    let row = sound(bench.ledger.order(key("p1").retake()).await).expect("its id is closed");
    assert_eq!((row.status, row.reason), (OrderStatus::Rejected, Some(RejectReason::RetakeRefused)));
    assert_eq!(bench.record(&[retake_of(1, "p1")]).await.known, 1, "a late copy changes nothing");
    assert_eq!(bench.aftermath(1).await, Aftermath { retaken_by: None, refund: Some(RefundState::Due) });

    bench.record(&[retake_of(2, "p2")]).await;
    let user = retake_of(2, "p2").reservation.user;
    sound(bench.ledger.cancel(key("p2").retake(), &user, None).await);
    assert_eq!(bench.settle("p2", LateVerdict::ByRetake).await, SettleOutcome::RefundDue);
    assert_eq!(bench.settle("p3", LateVerdict::Refund).await, SettleOutcome::RefundDue);
    assert_eq!(bench.status_of(key("p3").retake()).await, None);

    assert_eq!(bench.settle("nobody's", LateVerdict::Refund).await, SettleOutcome::Settled);
    let due = ["p1", "p2", "p3"].map(|payment| (payment.to_owned(), RefundState::Due));
    assert_eq!(bench.refunds().await, due);
    assert_eq!(bench.sold().await, (0, 0));
    let releases = bench.books().await.releases;
    assert!(releases.contains(&key("p1").retake()), "a late copy of its reserve gives its units back");
}

/// Promise 16: taken by one asker at a time, again behind its lease or a growing gap, and done for good.
pub async fn a_refund_stays_due_until_it_is_done(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1)]).await;
    bench.attempt(1).await;
    assert_eq!(bench.pay(1, "e1", "p1").await, PayOutcome::Paid);
    assert_eq!(bench.pay(1, "e2", "p2").await, PayOutcome::RefundDue);
    assert!(sound(bench.ledger.take_refunds("another", 10, LEASE).await).is_empty());
    let taken = bench.take().await;
    assert_eq!((taken.len(), &taken[0].key, taken[0].tries), (1, &key("p2"), 0));
    assert_eq!((taken[0].order, taken[0].amount), (sample::order_id(1), sample::price()));
    assert!(bench.take().await.is_empty(), "somebody asks for it");
    // Who took it died.
    bench.clock.advance(LEASE);
    assert_eq!(bench.take().await[0].tries, 1);
    let later = || RefundReport::Later { why: "it did not answer".to_owned() };
    assert_eq!(bench.report("p2", later()).await, RefundState::Due);
    assert!(bench.take().await.is_empty(), "not at once again");
    bench.clock.advance(Duration::from_secs(3_600));
    let again = bench.take().await;
    assert_eq!((again[0].tries, again[0].said.as_deref()), (2, Some("it did not answer")));

    let refused = RefundReport::Refused { why: "charge_disputed".to_owned() };
    assert_eq!(bench.report("p2", refused).await, RefundState::Refused);
    bench.clock.advance(Duration::from_secs(86_400));
    assert!(bench.take().await.is_empty(), "the staff has to do it");
    let refused = sound(bench.ledger.refunds(Some(RefundState::Refused), None, 10).await);
    assert_eq!(refused.len(), 1);
    assert!(sound(bench.ledger.refunds(Some(RefundState::Due), None, 10).await).is_empty());
    assert!(sound(bench.ledger.refunds(None, Some(&key("p2")), 10).await).is_empty(), "behind the last");
    let done = || RefundReport::Done { reference: "re_1".to_owned() };
    assert_eq!(bench.report("p2", done()).await, RefundState::Done);
    assert_eq!(bench.report("p2", later()).await, RefundState::Done, "a late word of another asker");
    let nobody = sound(bench.ledger.note_refund(&key("nobody's"), &done()).await);
    assert_eq!(nobody, None);

    // What the provider took did not arrive: it is the staff's again.
    let unknown = provider_event(1, "f1", "p9", PaymentEventKind::RefundFailed);
    assert_eq!(bench.receive(&unknown).await, ReceiveOutcome::UnknownAttempt);
    // It goes by the payment, which may have bought again as another order.
    let fails = |n, event: &str, refund: &str| ProviderEvent {
        refund: Some(refund.to_owned()),
        ..provider_event(n, event, "p2", PaymentEventKind::RefundFailed)
    };
    let standing = async || bench.refunds().await.remove(0).1;
    assert_eq!(bench.receive(&fails(2, "f2", "re_1")).await, ReceiveOutcome::RefundFailed);
    assert_eq!(bench.receive(&fails(2, "f2", "re_1")).await, ReceiveOutcome::Decided(PayOutcome::Duplicate));
    assert_eq!(standing().await, RefundState::Refused);
    // What was under way before, or asks for it again, does not hide that.
    assert_eq!(bench.report("p2", later()).await, RefundState::Refused);
    let back = provider_event(1, "b1", "p2", PaymentEventKind::Refunded);
    assert_eq!(bench.receive(&back).await, ReceiveOutcome::Refunded);
    assert_eq!(standing().await, RefundState::Refused);
    // The staff gives it back another way, and it is told once more that the first one failed.
    let otherwise = RefundReport::Done { reference: "bank-1".to_owned() };
    assert_eq!(bench.report("p2", otherwise).await, RefundState::Done);
    assert_eq!(bench.receive(&fails(1, "f3", "re_1")).await, ReceiveOutcome::RefundFailed);
    assert_eq!(standing().await, RefundState::Done);
    bench.books().await;
}

/// Promise 16, for an order that the staff refunds: its units return with it, once.
pub async fn a_refunded_order_gives_its_units_back(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    let refund = async |n| sound(bench.ledger.refund_order(sample::order_id(n)).await);
    assert_eq!(refund(9).await, RefundOutcome::Unknown);
    assert!(matches!(refund(1).await, RefundOutcome::NotPaid(_)));
    assert_eq!(bench.pay(1, "e1", "p1").await, PayOutcome::Paid);
    for _ in 0..3 {
        assert!(matches!(refund(1).await, RefundOutcome::Refunded(_)));
    }
    assert_eq!(bench.status(1).await, Some(OrderStatus::Refunded));
    assert_eq!(bench.refunds().await, [("p1".to_owned(), RefundState::Due)]);
    let sale = bench.read_sale().await;
    assert_eq!((sale.items[0].sold, sale.items[0].paid), (1, 0));
    assert_eq!(bench.pay(1, "e2", "p1").await, PayOutcome::Duplicate, "told again of the first payment");
    assert_eq!(bench.pay(1, "e3", "p2").await, PayOutcome::RefundDue);
    assert_eq!(bench.status(1).await, Some(OrderStatus::Refunded));
    assert_eq!(bench.record(&[order_of(1, 3)]).await.pending, 1, "the user may buy again");
    assert_eq!(bench.books().await.releases, [sample::order_id(1)]);
}

/// Promise 19.
pub async fn holding_without_paying_is_a_strike(bench: &Bench) {
    let sale = bench.sale(50, 9).await.id;
    let struck = async |strikes| {
        let mut users = sound(bench.ledger.struck(sale, strikes).await);
        users.sort();
        users
    };
    let cancel = async |n: u64, user: u64| {
        let cancelled = bench.ledger.cancel(sample::order_id(n), &sample::user(user), None).await;
        assert!(matches!(sound(cancelled), CancelOutcome::Cancelled(_)));
    };
    // User 1 never pays, twice; 2 pays; 3 cancels at once; 4 cancels late; 5 pays too late; 6 never pays, once.
    let orders = [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4), (6, 5), (7, 6)];
    let now = bench.clock.now();
    let placed = orders.map(|(n, user)| {
        let mut order = order_of(user, n);
        order.reservation.reserved_at = now;
        order
    });
    bench.record(&placed).await;
    assert_eq!(bench.pay(3, "event-3", "payment-3").await, PayOutcome::Paid);
    cancel(4, 3).await;
    assert!(struck(1).await.is_empty(), "nobody yet");
    bench.clock.advance(Duration::from_secs(120));
    cancel(5, 4).await;
    assert_eq!(struck(1).await, [sample::user(4)], "two minutes are late");
    bench.clock.advance(WINDOW);
    assert_eq!(bench.expire(Duration::ZERO).await, (4, 0));
    assert_eq!(bench.pay(6, "event-6", "payment-6").await, PayOutcome::Late);
    assert_eq!(struck(1).await, [1, 4, 6].map(sample::user), "who paid too late has paid");
    assert_eq!(struck(2).await, [sample::user(1)]);
    assert!(struck(3).await.is_empty());
    assert!(sound(bench.ledger.struck(SaleId(99), 1).await).is_empty());
}

/// Promise 17: it is held until its provider has been asked, once and boundedly, and nobody else is.
pub async fn an_open_attempt_holds_its_order_once(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2), order_of(3, 3), order_of(4, 4), order_of(5, 5)]).await;
    let mut attempts = Vec::new();
    for n in [1, 2, 3, 4] {
        attempts.push(bench.attempt(n).await.id);
    }
    let asked = async || -> Vec<PaymentAttemptId> {
        let mut taken: Vec<_> = sound(bench.ledger.take_attempts(PROVIDER, 10).await);
        taken.sort_by_key(|it| it.order);
        taken.into_iter().map(|it| it.id).collect()
    };
    assert!(asked().await.is_empty(), "all may still pay");
    sound(bench.ledger.cancel(sample::order_id(4), &sample::user(4), None).await);
    bench.clock.advance(Duration::from_millis(1));
    assert_eq!(asked().await, [attempts[3]], "a cancelled order's payment is to be ended");
    sound(bench.ledger.close_attempt(attempts[3]).await);

    bench.clock.advance(WINDOW);
    assert!(asked().await.is_empty(), "what they have paid would be late: they are not held yet");
    assert_eq!(bench.expire(HOLD).await, (1, 3), "nobody was paying for order 5");
    assert_eq!(bench.expire(HOLD).await, (0, 0));
    let begun = sound(bench.ledger.begin_attempt(sample::order_id(1), PROVIDER).await);
    assert_eq!(begun, BeginOutcome::Closed, "no payment begins while it is held");
    assert_eq!(asked().await, attempts[..3]);
    assert!(asked().await.is_empty(), "not at once again");
    // One has paid in time, and of one nothing can come any more.
    let paid = provider_event(1, "e1", "p1", PaymentEventKind::Succeeded);
    assert_eq!(bench.receive(&paid).await, ReceiveOutcome::Decided(PayOutcome::Paid));
    sound(bench.ledger.close_attempt(attempts[1]).await);
    assert_eq!(bench.expire(HOLD).await, (1, 0));
    assert_eq!(bench.status(2).await, Some(OrderStatus::Expired));
    bench.clock.advance(Duration::from_millis(1_001));
    assert_eq!(asked().await, [attempts[2]]);
    // And of one nobody can say; it is not held a second time.
    bench.clock.advance(HOLD);
    assert_eq!(bench.expire(HOLD).await, (1, 0));
    assert_eq!(bench.status(3).await, Some(OrderStatus::Expired));
    assert_eq!(asked().await, [attempts[2]], "its payment is still to be ended");
    assert_eq!(bench.sold().await, (1, 0));

    // Whoever hears of a payment before the expirer came by holds the order as that would have.
    bench.record(&[order_of(6, 6), order_of(7, 7), order_of(8, 8), order_of(9, 9)]).await;
    for n in [6, 7, 8] {
        attempts.push(bench.attempt(n).await.id);
    }
    sound(bench.ledger.close_attempt(attempts[5]).await);
    bench.clock.advance(WINDOW + Duration::from_millis(1));
    let pays = async |n: u64, hold| {
        let paid = provider_event(n, &format!("late-{n}"), &format!("p-{n}"), PaymentEventKind::Succeeded);
        bench.receive_within(&paid, hold).await
    };
    assert_eq!(pays(6, HOLD).await, ReceiveOutcome::Decided(PayOutcome::Paid));
    assert_eq!(pays(7, HOLD).await, ReceiveOutcome::Decided(PayOutcome::Late), "its attempt was closed");
    bench.clock.advance(HOLD);
    assert_eq!(pays(8, HOLD).await, ReceiveOutcome::Decided(PayOutcome::Late), "nobody is held for longer");
    assert_eq!(bench.expire(HOLD).await, (1, 0));
    assert_eq!(bench.sold().await, (2, 0));
    bench.books().await;
}

/// Promise 18.
pub async fn each_payment_of_a_sale_is_listed_once(bench: &Bench) {
    bench.sale(10, 1).await;
    bench.record(&[order_of(1, 1), order_of(2, 2)]).await;
    let other = PaymentEvent { provider: "other".to_owned(), ..payment_event(2, "e", "p/1 %") };
    assert_eq!(sound(bench.ledger.pay(&other).await), PayOutcome::Paid);
    for payment in ["c", "a", "b"] {
        bench.pay(1, payment, payment).await;
    }
    assert_eq!(bench.pay(9, "e9", "d").await, PayOutcome::NoOrder, "it belongs to no sale");

    let mut listed = Vec::new();
    let mut after = None;
    loop {
        let page = sound(bench.ledger.payments(SaleId(1), after.as_ref(), 3).await);
        let more = page.len() == 3;
        listed.extend(page);
        after = listed.last().map(|row| row.payment.clone());
        // What is sent between two pages is text.
        let again = after.as_ref().map(|key| key.to_string().parse());
        assert_eq!(again, after.clone().map(Ok));
        if !more {
            break;
        }
    }

    let price = sample::price();
    let rows: Vec<_> = listed.iter().map(|row| (row.payment.to_string(), row.outcome.as_str())).collect();
    let expected =
        [("other/p/1 %", "PAID"), ("test/a", "REFUND_DUE"), ("test/b", "REFUND_DUE"), ("test/c", "PAID")];
    assert_eq!(rows, expected.map(|(key, outcome)| (key.to_owned(), outcome)));
    assert!(
        listed
            .iter()
            .all(|row| (row.amount_minor, row.currency.as_str()) == (price.minor, price.currency.as_str()))
    );
    assert_eq!(sound(bench.ledger.payments(SaleId(2), None, 3).await), []);
}

/// Of a ledger whose releases are spread over `spread`: units of orders that end together return at moments
/// of their own, so that who waits for the one gains nothing for the others.
pub async fn units_return_at_random_moments(bench: &Bench, spread: Duration) {
    const ORDERS: u64 = 60;
    bench.sale(100, 1).await;
    bench.record(&(1..=ORDERS).map(|n| order_of(n, n)).collect::<Vec<_>>()).await;
    bench.clock.advance(WINDOW + Duration::from_millis(1));
    while bench.expire(Duration::ZERO).await != (0, 0) {}
    let due = async || sound(bench.ledger.releases_due(&[], 100).await).len();
    let at_once = due().await;
    let waiting = sound(bench.ledger.releases_waiting(100).await).len();
    assert_eq!(waiting as u64, ORDERS, "all of them are on their way");
    let before = bench.clock.now();
    bench.clock.jump(before.minus(Duration::from_secs(3_600)));
    assert_eq!(due().await as u64, ORDERS, "a clock that goes back keeps nothing");
    bench.clock.jump(before);
    bench.clock.advance(spread / 2);
    let half = due().await;
    bench.clock.advance(spread / 2);
    // Of sixty throws of a coin, fewer than ten on one side come once in a hundred million times.
    assert!(at_once < 10 && (10..=50).contains(&half), "{at_once} at once, {half} in the first half");
    assert_eq!(due().await as u64, ORDERS, "and all of them in time");
}
