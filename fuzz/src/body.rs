//! Bodies: what a purchase says, and the message in the queue.

use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::Decoded;
use doorbuster_engine::gate::Wish;
use doorbuster_engine::order::{OrderPlaced, UserId};
use doorbuster_engine::queue::{decode, encode};
use serde_json::Value;

pub(crate) fn run(bytes: &[u8]) {
    purchase(bytes);
    message(bytes);
}

/// A wish is only read where a plain reader of JSON finds the same.
fn purchase(bytes: &[u8]) {
    let Wish::Wanted { quantity, expected_price_minor } = doorbuster_server::wish(bytes) else { return };
    if bytes.trim_ascii().is_empty() {
        assert_eq!((quantity, expected_price_minor), (1, None));
        return;
    }
    let json: Value = serde_json::from_slice(bytes).expect("what is no JSON was read");
    let json = json.as_object().expect("what is no object was read");
    let member = |name: &str| json.get(name).filter(|value| !value.is_null());
    assert_eq!(member("quantity").map_or(Some(1), Value::as_i64), Some(quantity));
    assert_eq!(member("expectedPriceMinor").and_then(Value::as_i64), expected_price_minor);
}

/// Every message has an answer; one that is an order reads back as it was written.
fn message(bytes: &[u8]) {
    match decode(bytes) {
        Decoded::Order(order) => reads_back(*order),
        Decoded::Unreadable { bytes: kept, .. } => assert_eq!(kept, bytes, "the bytes must be kept"),
        Decoded::UnknownVersion(version) => assert_ne!(version, 1),
        Decoded::Refused { .. } => panic!("only a ledger refuses"),
    }
    let mut order = sample::order_placed(7);
    let text = String::from_utf8_lossy(bytes);
    if let Ok(user) = UserId::new(text.as_ref()) {
        order.reservation.user = user;
    }
    order.reservation.trace = Some(text.into_owned());
    if encode(&order).len() <= 16 * 1024 {
        reads_back(order);
    }
}

fn reads_back(order: OrderPlaced) {
    assert_eq!(decode(&encode(&order)), Decoded::Order(Box::new(order)));
}
