//! The message in the queue: JSON that names its version first, so that any version can be told
//! from garbage and neighbouring versions read each other.

use serde::{Deserialize, Serialize};

use crate::delivery::Decoded;
use crate::order::OrderPlaced;

/// The version that this program writes.
pub(crate) const VERSION: u32 = 1;

/// Longest message that is read, in bytes; one order needs about 350.
pub(crate) const MESSAGE_MAX: usize = 16 * 1024;

#[derive(Serialize)]
struct Written<'a> {
    v: u32,
    order: &'a OrderPlaced,
}

#[derive(Deserialize)]
struct VersionOnly {
    v: u32,
}

#[derive(Deserialize)]
struct Read {
    order: OrderPlaced,
}

/// One order as bytes.
pub fn encode(order: &OrderPlaced) -> Vec<u8> {
    serde_json::to_vec(&Written { v: VERSION, order }).expect("an order is plain data with text keys")
}

/// What the bytes say; every input has an answer.
pub fn decode(bytes: &[u8]) -> Decoded {
    let unreadable = |why: String| Decoded::Unreadable { bytes: bytes.to_vec(), why };
    if bytes.len() > MESSAGE_MAX {
        return unreadable(format!("longer than {MESSAGE_MAX} bytes"));
    }
    match serde_json::from_slice::<VersionOnly>(bytes) {
        Err(error) => unreadable(error.to_string()),
        Ok(VersionOnly { v: VERSION }) => match serde_json::from_slice::<Read>(bytes) {
            Ok(read) => Decoded::Order(Box::new(read.order)),
            Err(error) => unreadable(error.to_string()),
        },
        Ok(VersionOnly { v }) => Decoded::UnknownVersion(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    #[test]
    fn an_order_reads_back_as_it_was_written() {
        let order = sample::order_placed(7);
        assert_eq!(decode(&encode(&order)), Decoded::Order(Box::new(order)));
    }

    #[test]
    fn a_written_order_keeps_its_names() {
        // Other versions and other programs read these names: add, never rename.
        let text = String::from_utf8(encode(&sample::order_placed(7))).unwrap();
        for name in [
            "\"v\":1",
            "\"order\":",
            "\"sale\":",
            "\"item\":",
            "\"user\":",
            "\"units\":",
            "\"epoch\":",
            "\"seq\":",
            "\"reserved_at\":",
            "\"price\":",
            "\"minor\":",
            "\"currency\":",
        ] {
            assert!(text.contains(name), "{name} is missing in {text}");
        }
    }

    #[test]
    fn unknown_versions_and_garbage_are_told_apart() {
        assert_eq!(decode(br#"{"v":2,"whatever":[]}"#), Decoded::UnknownVersion(2));
        for garbage in [
            &b""[..],
            b"\xff\xfe",
            b"{}",
            b"[1]",
            br#"{"v":1}"#,
            br#"{"v":1,"order":{}}"#,
            &[b'x'; MESSAGE_MAX + 1],
        ] {
            assert!(matches!(decode(garbage), Decoded::Unreadable { .. }));
        }
    }
}
