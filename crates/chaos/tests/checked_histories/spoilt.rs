//! Good histories and books, spoilt in one place each: the checker names the invariant.

mod clients;
mod ledger;
mod stock;

use std::collections::BTreeSet;

use doorbuster_chaos::books::{Books, Order, OrderStep, Status};
use doorbuster_chaos::checker::check_progress;
use doorbuster_chaos::history::{Answer, Call, Ending, Wish};
use doorbuster_chaos::{ItemId, OrderId};
use uuid::Uuid;

use crate::made::{self, Fate, Made, Model, SALE};

/// One way to spoil a history: what is done, the invariant that it breaks, on what, how.
type Spoiling = (&'static str, &'static str, fn() -> Made, fn(&mut Made));

/// One way in which later books contradict earlier ones.
type GoingBack = (&'static str, fn(&mut Books));

/// Every invariant that the checker is for.
const INVARIANTS: [&str; 21] = [
    "I1", "I2", "I3", "I4", "I4b", "I5", "I6", "I7", "I8", "I9", "I10", "I11", "I12", "I13", "I14", "I15",
    "I16", "I17", "I18", "I19", "I20",
];

#[test]
fn whatever_is_spoilt_is_found_under_its_name() {
    let spoilings = || [ledger::SPOILINGS, stock::SPOILINGS, clients::SPOILINGS].into_iter().flatten();
    let mut missed = Vec::new();
    for (what, invariant, good, spoil) in spoilings() {
        let mut made = good();
        assert_eq!(made.check(), [], "before {what:?}");
        spoil(&mut made);
        let found = made.check();
        if !found.iter().any(|finding| finding.invariant == *invariant) {
            missed.push(format!("{invariant}, {what}: found {found:?}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
    let covered: BTreeSet<&str> = spoilings().map(|(_, invariant, ..)| *invariant).collect();
    assert_eq!(covered, BTreeSet::from(INVARIANTS));
    assert!(spoilings().count() >= 60, "{} are left", spoilings().count());
}

#[test]
fn what_goes_back_between_two_looks_is_found() {
    let earlier = made::plain();
    let progress = |later: &Books| check_progress(&earlier.books, later, &earlier.circumstances);
    assert_eq!(progress(&earlier.books), []);
    let spoilings: [GoingBack; 4] = [
        ("I13", |books| books.positions[0].next -= 1),
        ("I4", |books| drop(books.orders.remove(0))),
        ("I5", |books| row_in(books, |it| it.status == Status::Expired).status = Status::Pending),
        ("I6", |books| drop(books.payments.remove(0))),
    ];
    for (invariant, spoil) in spoilings {
        let mut later = earlier.books.clone();
        spoil(&mut later);
        let found: BTreeSet<&str> = progress(&later).iter().map(|finding| finding.invariant).collect();
        assert_eq!(found, BTreeSet::from([invariant]));
    }
}

/// An order that the history does not know.
fn unknown(number: u128) -> OrderId {
    OrderId(Uuid::from_u128(number))
}

fn row_in(books: &mut Books, wanted: impl Fn(&Order) -> bool) -> &mut Order {
    books.orders.iter_mut().find(|order| wanted(order)).unwrap()
}

/// The first order that stands there.
fn row(made: &mut Made, status: Status) -> &mut Order {
    row_in(&mut made.books, |order| order.status == status)
}

/// An order's step to where it stands now, written and applied.
fn step(made: &mut Made, from: Status, to: Status) {
    let order = row(made, from);
    order.status = to;
    let order = order.id;
    made.books.steps.push(OrderStep { order, from: Some(from), to, at_ms: 0 });
}

/// A copy of a live order as somebody else's, counted everywhere in the ledger.
fn smuggle_in(made: &mut Made, id: OrderId, user: &str) {
    let order = Order { id, user: user.to_owned(), place: None, ..row(made, Status::Pending).clone() };
    made.books.steps.push(OrderStep { order: id, from: None, to: Status::Pending, at_ms: 0 });
    made.books.orders.push(order);
}

/// The calls that a 202 answered first.
fn accepted(made: &mut Made) -> impl Iterator<Item = &mut Call> {
    made.history
        .calls
        .iter_mut()
        .filter(|call| call.answer().is_some_and(|(_, it)| it.status == 202 && !it.replayed))
}

fn answer(call: &mut Call) -> &mut Answer {
    match &mut call.end {
        Some((_, Ending::Answered(answer))) => answer,
        other => panic!("not answered: {other:?}"),
    }
}

/// One more click of somebody, answered at once.
fn clicked(made: &mut Made, at_us: u64, item: i64, units: u32, answer: Answer) {
    let wish = Wish::Purchase { sale: SALE, item: ItemId(item), units, key: None };
    let end = Some((at_us + 1_000, Ending::Answered(answer)));
    made.history.calls.push(Call { user: "zed".to_owned(), wish, gateway: 0, invoked_us: at_us, end });
}

fn sold_out(left: Option<u64>) -> Answer {
    Answer { status: 410, error: Some("SOLD_OUT".to_owned()), left, ..Answer::default() }
}

/// Buys and pays of a single epoch, so that every step can be accounted for.
fn one_epoch() -> Made {
    let mut sale = Model::open(9, 1, &[5]);
    let a = sale.click("ann", 1, 1, None, Fate::Answered).unwrap();
    let b = sale.click("bob", 1, 1, None, Fate::Answered).unwrap();
    sale.record();
    sale.pay("ann", a, "pay-a", true, false);
    sale.cancel("bob", b);
    sale.restock(1, 1);
    sale.settle()
}

/// Sold out, given back, and then nobody wants it for a while.
fn given_back() -> Made {
    let mut sale = Model::open(10, 1, &[1]);
    let a = sale.click("ann", 1, 1, None, Fate::Answered).unwrap();
    sale.click("bob", 1, 1, None, Fate::Answered);
    sale.record();
    sale.cancel("ann", a);
    let mut made = sale.settle();
    made.circumstances.release_within = Some(std::time::Duration::from_secs(1));
    made
}
