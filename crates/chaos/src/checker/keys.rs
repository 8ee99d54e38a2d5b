//! I20: a user's Idempotency-Key is one order.

use std::collections::{BTreeSet, HashMap};

use super::{Evidence, Findings};
use crate::history::{Call, Wish};
use crate::{ItemId, OrderId, SaleId};

/// What one user asked for with one key, and heard.
#[derive(Default)]
struct Told {
    bodies: BTreeSet<(ItemId, u32)>,
    accepted_bodies: BTreeSet<(ItemId, u32)>,
    orders: BTreeSet<OrderId>,
    mismatched: bool,
}

/// I20: same user and key, same order; another body under the key is a 422 and nothing else is; and no
/// two keys, and no two clicks without one, share an order.
pub(super) fn one_key_one_order(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut told: HashMap<(&str, SaleId, &str), Told> = HashMap::new();
    let mut makers: HashMap<OrderId, (&str, Option<&str>)> = HashMap::new();
    for call in &evidence.history.calls {
        let Wish::Purchase { sale, item, units, key } = &call.wish else { continue };
        let accepted = accepted(call);
        if let Some(key) = key {
            let told = told.entry((&call.user, *sale, key)).or_default();
            told.bodies.insert((*item, *units));
            told.orders.extend(accepted);
            if accepted.is_some() {
                told.accepted_bodies.insert((*item, *units));
            }
            told.mismatched |= call.answer().is_some_and(|(_, answer)| answer.status == 422);
        }
        let Some(order) = accepted else { continue };
        let maker = (call.user.as_str(), key.as_deref());
        let other = makers.insert(order, maker);
        if other.is_some_and(|other| key.is_none() || other != maker) {
            found.add(format!("order {order} was the answer to {maker:?} and to {other:?}"));
        }
    }
    for ((user, _, key), told) in told {
        if told.orders.len() > 1 {
            found.add(format!("{user} has several orders under the key {key}: {:?}", told.orders));
        }
        // A stock that lost the hold cannot know what the key stood for; the ledger parks the second.
        if told.accepted_bodies.len() > 1 && !evidence.circumstances.stock_lost {
            found.add(format!("{user} bought {:?} under one key {key}", told.accepted_bodies));
        }
        if told.mismatched && told.bodies.len() == 1 {
            found.add(format!(
                "{user} heard of a mismatch under {key}, which always stood for {:?}",
                told.bodies
            ));
        }
    }
}

fn accepted(call: &Call) -> Option<OrderId> {
    let (_, answer) = call.answer()?;
    answer.order.filter(|_| answer.status == 202)
}
