//! The checker against histories of which it is known whether they are good: made ones, all their
//! variations by chance, and over forty that were spoilt in one place.

#![expect(clippy::unwrap_used, reason = "a made history that cannot be made fails its test")]

mod made;
mod spoilt;
mod varied;

use std::io::BufReader;

use doorbuster_chaos::history::{Ending, read_lines, write_lines};
use made::{Fate, Model};

#[test]
fn good_histories_are_found_good() {
    for (name, made) in [("plain", made::plain()), ("keyed", made::keyed())] {
        assert_eq!(made.check(), [], "{name}");
        assert!(made.books.orders.len() > 8 && made.books.sales[0].epoch == 2, "{name} shows too little");
    }
}

#[test]
fn a_history_that_was_kept_as_lines_is_judged_alike() {
    let mut made = made::plain();
    let mut lines = Vec::new();
    write_lines(&made.history, &mut lines).unwrap();
    made.history = read_lines(BufReader::new(lines.as_slice())).unwrap();
    assert_eq!(made.check(), []);
    // The lines carry what the checks live on: without its row, the order of a kept 202 is missed.
    let order = made.books.orders[0].id;
    made.books.orders.remove(0);
    assert!(made.check().iter().any(|it| it.invariant == "I4" && it.words.contains(&order.to_string())));
}

#[test]
fn an_order_counts_from_the_first_click_with_its_key() {
    let mut sale = Model::open(3, 1, &[3]);
    sale.click("ann", 1, 1, Some("a"), Fate::AnswerLost);
    sale.advance(10_000);
    sale.click("bob", 1, 1, None, Fate::Answered);
    sale.advance(10_000);
    sale.click("ann", 1, 1, Some("a"), Fate::Answered);
    let mut made = sale.settle();
    // A gateway whose own call to the stock was repeated cannot tell a replay from its own first try.
    let Some((_, Ending::Answered(answer))) = &mut made.history.calls[2].end else {
        panic!("it was answered")
    };
    answer.replayed = false;
    assert_eq!(made.check(), []);
}
