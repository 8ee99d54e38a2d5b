//! Values for tests.

use std::time::Duration;

use crate::clock::Timestamp;
use crate::delivery::{Position, TopicId};
use crate::order::{Epoch, ItemId, Money, OrderId, OrderPlaced, Reservation, SaleId, Units, UserId};
use crate::sale::{Item, NewItem, NewSale, Sale, Terms};
use crate::switches::{SwitchChange, Switches, TurnedSwitch};

/// 19.90 EUR.
pub fn price() -> Money {
    Money { minor: 1990, currency: "EUR".parse().expect("EUR is a currency") }
}

/// An item of this many units.
pub fn new_item(product: &str, quantity: u64) -> NewItem {
    let product = product.to_owned();
    NewItem { product_id: product.clone(), title: product, quantity, price: price(), list_price_minor: None }
}

/// A sale that opens now, for a long time: one unit each, and ten minutes to pay.
pub fn new_sale(now: Timestamp, items: Vec<NewItem>) -> NewSale {
    let payment_window = Duration::from_secs(600);
    NewSale {
        name: "Sample".to_owned(),
        opens_at: now,
        closes_at: now.plus(payment_window * 100),
        payment_window,
        limit: Units(1),
        items,
    }
}

/// Sale 1 in epoch 1 with one item of many units, as a gateway knows it.
pub fn known_sale(terms: Terms) -> Sale {
    let item = Item {
        id: ItemId(1),
        product_id: "it".to_owned(),
        title: "It".to_owned(),
        quantity: u64::from(u32::MAX),
        sold: 0,
        paid: 0,
        price: price(),
        list_price_minor: None,
    };
    Sale {
        id: SaleId(1),
        name: "Sample".to_owned(),
        terms,
        payment_window: Duration::from_secs(600),
        epoch: Epoch(1),
        recorded_seq: 0,
        fence: None,
        items: vec![item],
    }
}

/// What somebody has turned for sale 1: names and values.
pub fn switches<const N: usize>(turned: [(&str, &str); N]) -> Switches {
    let turn = |(id, (name, value)): (i64, (&str, &str))| TurnedSwitch {
        id,
        at: Timestamp::from_ms(0),
        change: SwitchChange {
            name: name.to_owned(),
            sale: Some(SaleId(1)),
            value: Some(value.to_owned()),
            reason: String::new(),
            by: String::new(),
        },
    };
    Switches::new(&(1..).zip(turned).map(turn).collect::<Vec<_>>())
}

/// User number `n`.
pub fn user(n: u64) -> UserId {
    UserId::new(&format!("user-{n}")).expect("a short plain id")
}

/// Order id number `n`.
pub fn order_id(n: u64) -> OrderId {
    OrderId(uuid::Uuid::from_u128(0x0198_c5a4_7b1e_7c3a_9d2f_0000_0000_0000 + u128::from(n)))
}

/// Order number `n` of user number `n`: one unit of item 1 in sale 1, epoch 1.
pub fn order_placed(n: u64) -> OrderPlaced {
    let reservation = Reservation {
        order: order_id(n),
        sale: SaleId(1),
        bucket: 0,
        item: ItemId(1),
        user: user(n),
        units: Units(1),
        epoch: Epoch(1),
        seq: n,
        reserved_at: Timestamp::from_ms(1_000),
        trace: None,
        retake_of: None,
    };
    OrderPlaced { reservation, price: price() }
}

/// A place in partition 0 of a topic.
pub fn position(next: u64) -> Position {
    Position { topic: TopicId("sample".to_owned()), partition: 0, next }
}
