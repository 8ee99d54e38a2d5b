//! What is spoilt in the ledger.

use doorbuster_chaos::books::{DeadLetter, OrderStep, Payment, Refund, Status};

use super::{Spoiling, row, row_in, smuggle_in, step, unknown};
use crate::made::{keyed, plain, position};

pub(super) const SPOILINGS: &[Spoiling] = &[
    ("more is live than there is", "I1", plain, |made| made.books.items[0].quantity -= 1),
    ("a live row of nobody's doing", "I1", plain, |made| smuggle_in(made, unknown(1), "ann")),
    ("an item that is not there is sold", "I1", plain, |made| {
        made.books.items.pop();
    }),
    ("one sold less is counted", "I2", plain, |made| made.books.items[0].sold -= 1),
    ("one paid more is counted", "I2", plain, |made| made.books.items[0].paid += 1),
    ("a user's count is one too high", "I3", plain, |made| made.books.buyers[0].units += 1),
    ("a user's count is lost", "I3", plain, |made| {
        let user = row(made, Status::Paid).user.clone();
        made.books.buyers.retain(|buyer| buyer.user != user);
    }),
    ("two live orders are one user's", "I3", plain, |made| {
        let user = row(made, Status::Paid).user.clone();
        row(made, Status::Pending).user = user;
    }),
    ("an order goes from PAID to EXPIRED", "I5", plain, |made| step(made, Status::Paid, Status::Expired)),
    ("a row stands where no step led", "I5", plain, |made| row(made, Status::Pending).status = Status::Paid),
    ("an expired order lives again", "I5", plain, |made| step(made, Status::Expired, Status::Pending)),
    ("an order is born PAID", "I5", plain, |made| made.books.steps[0].to = Status::Paid),
    ("a step begins elsewhere", "I5", plain, |made| {
        let later = made.books.steps.iter_mut().find(|step| step.from == Some(Status::Pending)).unwrap();
        later.from = Some(Status::Paid);
    }),
    ("a live order has a reason", "I5", plain, |made| {
        row(made, Status::Pending).reason = Some("NO_STOCK".to_owned());
    }),
    ("a paid order is cancelled", "I6", plain, |made| step(made, Status::Paid, Status::Cancelled)),
    ("a payment is lost", "I6", plain, |made| drop(made.books.payments.remove(0))),
    ("an order is paid twice", "I6", plain, |made| {
        let again = Payment { payment: "again".to_owned(), ..made.books.payments[0].clone() };
        made.books.payments.push(again);
    }),
    ("a payment is too small", "I6", plain, |made| made.books.payments[0].amount_minor -= 1),
    ("a payment is in another currency", "I6", plain, |made| {
        made.books.payments[0].currency = "USD".to_owned()
    }),
    ("a payment is refused beside an open order", "I6", plain, |made| {
        let order = row(made, Status::Pending).id;
        let refused = Payment {
            payment: "early".to_owned(),
            order,
            outcome: "REFUND_DUE".to_owned(),
            ..made.books.payments[0].clone()
        };
        made.books.payments.push(refused);
    }),
    ("a payment has an outcome of its own", "I6", plain, |made| {
        made.books.payments[0].outcome = "LATER".to_owned()
    }),
    ("a payment waits beside an open order", "I6", plain, |made| {
        let order = row(made, Status::Pending).id;
        let late = Payment {
            payment: "early".to_owned(),
            order,
            outcome: "LATE".to_owned(),
            ..made.books.payments[0].clone()
        };
        made.books.payments.push(late);
    }),
    ("a refund is lost", "I6", plain, |made| drop(made.books.refunds.remove(0))),
    ("a refund is too small", "I6", plain, |made| made.books.refunds[0].amount_minor -= 1),
    ("a payment that was taken is given back too", "I6", plain, |made| {
        let paid = row(made, Status::Paid).id;
        let payment = made.books.payments.iter().find(|it| it.order == paid).unwrap().clone();
        let Payment { provider, payment, amount_minor, .. } = payment;
        made.books.refunds.push(Refund { provider, payment, amount_minor });
    }),
    ("money is given back for nothing", "I6", plain, |made| {
        let (provider, payment) = ("manual".to_owned(), "nobody's".to_owned());
        made.books.refunds.push(Refund { provider, payment, amount_minor: 1 });
    }),
    ("a notice that was heard is lost", "I6", plain, |made| drop(made.books.payment_events.remove(0))),
    ("a notice is of no payment", "I6", plain, |made| {
        made.books.payment_events[0].payment = "another".to_owned();
    }),
    ("an order has two rows", "I11", plain, |made| {
        let twin = row(made, Status::Cancelled).clone();
        made.books.orders.push(twin);
    }),
    ("an order is born twice", "I11", plain, |made| {
        let birth = made.books.steps[0].clone();
        made.books.steps.push(birth);
    }),
    ("an order ends twice", "I11", plain, |made| {
        let order = row(made, Status::Cancelled).id;
        let to = Status::Expired;
        made.books.steps.push(OrderStep { order, from: Some(Status::Pending), to, at_ms: 0 });
    }),
    ("an order lived and has no row", "I11", plain, |made| {
        let to = Status::Pending;
        made.books.steps.push(OrderStep { order: unknown(2), from: None, to, at_ms: 0 });
    }),
    ("a position goes back", "I13", plain, |made| made.books.positions[0].next -= 1),
    ("two orders come from one record", "I13", plain, |made| {
        let place = row(made, Status::Paid).place;
        row(made, Status::Pending).place = place;
    }),
    ("a record waits at rest", "I13", plain, |made| made.books.ends[1].next += 1),
    ("a partition is not read at all", "I13", plain, |made| {
        made.books.ends.push(position(7, 1));
    }),
    ("a parked record is a live order", "I13", plain, |made| {
        let (partition, offset) = row(made, Status::Pending).place.unwrap();
        made.books.dead_letters.push(parked(partition, offset));
    }),
    ("a record is parked twice", "I13", plain, |made| {
        made.books.dead_letters = vec![parked(0, 0), parked(0, 0)];
    }),
    ("two orders have one step", "I15", plain, |made| {
        let seq = row(made, Status::Paid).seq;
        row_in(&mut made.books, |it| it.status != Status::Paid && it.epoch == 1).seq = seq;
    }),
    ("a step is beyond what the sale knows", "I15", plain, |made| made.books.sales[0].recorded_seq = 1),
    ("an order is of an epoch to come", "I15", plain, |made| row(made, Status::Pending).epoch = 3),
    ("a stale record behind the barrier is live", "I16", plain, |made| {
        let barrier = made.books.barriers[0].at.clone();
        let old = row_in(&mut made.books, |it| it.epoch == 1 && it.status == Status::Paid);
        old.place = Some((barrier.partition, barrier.next));
    }),
    ("a live order turns out to be of an old epoch", "I16", plain, |made| {
        row_in(&mut made.books, |it| it.epoch == 2 && it.status == Status::Pending).epoch = 1;
    }),
    ("a sale is open before its barrier is passed", "I16", plain, |made| {
        made.books.barriers[0].at.next = made.books.positions[0].next + 1;
    }),
    ("a release waits at rest", "I18", plain, |made| {
        let order = row(made, Status::Cancelled).id;
        made.books.releases.push(order);
    }),
    ("a release waits too long", "I18", plain, |made| {
        let order = row(made, Status::Cancelled).id;
        made.books.releases.push(order);
        made.circumstances.at_rest = false;
        made.books.read_at_ms += 121_000;
    }),
    ("a restock is never finished", "I18", plain, |made| made.books.restocks[0].state = "open".to_owned()),
    ("a row has other units than were bought", "I4", keyed, |made| row(made, Status::Paid).units -= 1),
    ("a row is of another item than was bought", "I4", plain, |made| {
        let item = made.books.items[1].id;
        row(made, Status::Paid).item = item;
    }),
];

fn parked(partition: u64, offset: u64) -> DeadLetter {
    DeadLetter { at: position(partition, offset), why: "unreadable".to_owned() }
}
