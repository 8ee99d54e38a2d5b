//! What the stock's packed values say. Written from the description of the keys, not from the code
//! that writes them.

use super::{Hold, OutboxEntry};
use crate::{ItemId, OrderId};

/// Digits of an order's id, which has no hyphens in the stock.
const ID_DIGITS: usize = 32;

/// The holds of one user, a line each; `None` when a line is no hold.
///
/// A line is `order item units seq epoch reservedAt retakeOf trace`, where `-` stands for nothing.
pub(super) fn holds_of(user: &str, lines: &str) -> Option<Vec<Hold>> {
    lines.split('\n').map(|line| hold(user, line)).collect()
}

fn hold(user: &str, line: &str) -> Option<Hold> {
    let fields: Vec<&str> = line.split(' ').collect();
    let [order, item, units, seq, epoch, reserved_at, retake, _trace] = fields.as_slice() else {
        return None;
    };
    Some(Hold {
        order: order_of(order)?,
        user: user.to_owned(),
        item: ItemId(item.parse().ok()?),
        units: units.parse().ok()?,
        seq: seq.parse().ok()?,
        epoch: epoch.parse().ok()?,
        reserved_at_ms: reserved_at.parse().ok()?,
        retake_of: if *retake == "-" { None } else { Some(order_of(retake)?) },
    })
}

/// An entry of the outbox: the order's digits and, right behind them, the user.
pub(super) fn entry(member: &str, score: f64) -> Option<OutboxEntry> {
    let (order, user) = member.split_at_checked(ID_DIGITS)?;
    // A step is a whole number far below 2^53, so its text as a float is exact.
    let seq = format!("{score:.0}").parse().ok()?;
    Some(OutboxEntry { order: order_of(order)?, user: user.to_owned(), seq })
}

/// An order by the digits of its id.
pub(super) fn order_of(text: &str) -> Option<OrderId> {
    (text.len() == ID_DIGITS).then(|| OrderId::read(text)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "0198c5a47b1e7c3a9d2f3b8f6a1c2d4e";

    #[test]
    fn a_line_per_hold_is_read() {
        let other = "0198c5a47b1e7c3a9d2f3b8f6a1c2d4f";
        let lines = format!(
            "{ORDER} 7 2 41 3 1795766400123 - 00-4bf92f35-01\n{other} 8 1 42 3 1795766400124 {ORDER} -"
        );
        let holds = holds_of("Zoë 1", &lines).unwrap();
        assert_eq!(
            holds[0],
            Hold {
                order: OrderId::read(ORDER).unwrap(),
                user: "Zoë 1".to_owned(),
                item: ItemId(7),
                units: 2,
                seq: 41,
                epoch: 3,
                reserved_at_ms: 1_795_766_400_123,
                retake_of: None,
            }
        );
        assert_eq!(holds[1].retake_of, OrderId::read(ORDER));
    }

    #[test]
    fn what_is_no_hold_is_refused() {
        let good = format!("{ORDER} 7 2 41 3 1795766400123 - -");
        assert!(holds_of("u", &good).is_some());
        let longer = format!("{good} x");
        let (item, units, hyphens) =
            (good.replace(" 7 ", " x "), good.replace(" 2 ", " -2 "), good.replace(ORDER, &ORDER[1..]));
        for bad in ["", &good[..good.len() - 2], &longer, &item, &units, &hyphens] {
            assert_eq!(holds_of("u", bad), None, "{bad}");
        }
    }

    #[test]
    fn an_outbox_entry_has_its_user_behind_the_order() {
        let read = entry(&format!("{ORDER}alice"), 12.0).unwrap();
        assert_eq!((read.order, read.user.as_str(), read.seq), (OrderId::read(ORDER).unwrap(), "alice", 12));
        assert_eq!(entry("alice", 12.0), None);
    }
}
