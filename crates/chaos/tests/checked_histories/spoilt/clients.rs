//! What is spoilt between the clients and the books.

use doorbuster_chaos::books::Status;
use doorbuster_chaos::history::{Answer, Ending, Wish};

use super::{Spoiling, accepted, answer, clicked, given_back, row, row_in, smuggle_in, sold_out, unknown};
use crate::made::{Made, keyed, plain};

pub(super) const SPOILINGS: &[Spoiling] = &[
    ("the row of a 202 is lost", "I4", plain, |made| {
        let order = first_accepted(made).order;
        made.books.orders.retain(|row| Some(row.id) != order);
    }),
    ("a 202 names an order that never was", "I4", plain, |made| {
        answer(accepted(made).next().unwrap()).order = Some(unknown(5));
    }),
    ("a 409 names an order that never was", "I4", plain, |made| {
        let order = Some(unknown(6));
        clicked(made, 10_000, 1, 1, Answer { status: 409, order, ..Answer::default() });
    }),
    ("a refused click made an order", "I4b", plain, |made| {
        let heard = answer(accepted(made).next().unwrap());
        *heard = sold_out(None);
    }),
    ("a click that was not sent made an order", "I4b", plain, |made| {
        let call = accepted(made).next().unwrap();
        let at_us = call.end.as_ref().unwrap().0;
        call.end = Some((at_us, Ending::NotSent));
    }),
    ("a user has one order more than clicks", "I4b", plain, |made| smuggle_in(made, unknown(7), "cid")),
    ("sold out is said before anything was sold", "I14", plain, |made| {
        clicked(made, 0, 1, 1, sold_out(None));
    }),
    ("less is said to be left than there is", "I14", plain, |made| clicked(made, 0, 1, 5, sold_out(Some(3)))),
    ("sold out is said long after units came back", "I14", given_back, |made| {
        clicked(made, 20_000_000, 1, 1, sold_out(None));
    }),
    ("a later order has the earlier step", "I15", plain, |made| {
        let orders = [accepted_order(made, 0), accepted_order(made, 3)];
        let seqs = orders.map(|id| row_in(&mut made.books, |row| row.id == id).seq);
        row_in(&mut made.books, |row| row.id == orders[0]).seq = seqs[1];
        row_in(&mut made.books, |row| row.id == orders[1]).seq = seqs[0];
    }),
    ("a 202 ends REJECTED", "I17", plain, |made| {
        let order = accepted_order(made, 0);
        let row = row_in(&mut made.books, |row| row.id == order);
        row.status = Status::Rejected;
        row.reason = Some("NO_STOCK".to_owned());
    }),
    ("a 202 names somebody else's order", "I19", plain, |made| {
        let order = accepted_order(made, 0);
        row_in(&mut made.books, |row| row.id == order).user = "eve".to_owned();
    }),
    ("two users' answers are swapped", "I19", plain, |made| {
        let orders = [accepted_order(made, 0), accepted_order(made, 1)];
        answer(accepted(made).next().unwrap()).order = Some(orders[1]);
        answer(accepted(made).nth(1).unwrap()).order = Some(orders[0]);
    }),
    ("somebody bought who never clicked", "I19", plain, |made| {
        row(made, Status::Cancelled).user = "nobody".to_owned();
    }),
    ("an order is shown to another user", "I19", plain, |made| {
        let look = made.history.calls.iter_mut().find(|call| matches!(call.wish, Wish::Look { .. }));
        look.unwrap().user = "ann".to_owned();
    }),
    ("one key yields two orders", "I20", keyed, |made| replayed(made).order = Some(unknown(8))),
    ("another body under one key is taken", "I20", keyed, |made| {
        let order = first_accepted(made).order;
        let call =
            made.history.calls.iter_mut().find(|call| call.answer().is_some_and(|it| it.1.status == 422));
        *answer(call.unwrap()) = Answer { status: 202, order, replayed: true, ..Answer::default() };
    }),
    ("the same body under one key is a mismatch", "I20", keyed, |made| {
        let made_by = |wish: &Wish| matches!(wish, Wish::Purchase { key: Some(key), .. } if key == "b1");
        let call = made.history.calls.iter_mut().filter(|call| made_by(&call.wish)).nth(1).unwrap();
        *answer(call) = Answer { status: 422, ..Answer::default() };
    }),
    ("two clicks without a key share an order", "I20", plain, |made| {
        let order = first_accepted(made).order;
        answer(accepted(made).nth(1).unwrap()).order = order;
    }),
];

fn first_accepted(made: &mut Made) -> &mut Answer {
    answer(accepted(made).next().unwrap())
}

fn accepted_order(made: &mut Made, number: usize) -> doorbuster_chaos::OrderId {
    answer(accepted(made).nth(number).unwrap()).order.unwrap()
}

fn replayed(made: &mut Made) -> &mut Answer {
    let call = made.history.calls.iter_mut().find(|call| call.answer().is_some_and(|it| it.1.replayed));
    answer(call.unwrap())
}
