//! I4, I4b, I17, I19: what the clients heard, against the orders' rows.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Findings};
use crate::books::{Books, Order, Status};
use crate::history::{Answer, Call, History, Wish};
use crate::{ItemId, OrderId};

/// Why a promised order may be refused all the same, whatever was lost: the ledger cannot read its
/// record, an operator gave it up, or the sale says how long it may wait.
const REFUSED_ASIDE: [&str; 3] = ["UNREADABLE", "PUBLISH_TIMEOUT", "QUEUE_TIMEOUT"];

/// The calls whose answer says that this order exists: a 202, a 409 that names it, a cancellation, an
/// order shown, a payment taken.
fn promises(history: &History) -> impl Iterator<Item = (&Call, &Answer, OrderId)> {
    history.calls.iter().filter_map(|call| {
        let (_, answer) = call.answer()?;
        let says_so = match &call.wish {
            Wish::Purchase { .. } => matches!(answer.status, 202 | 409),
            Wish::Cancel { .. } | Wish::Look { .. } | Wish::Pay { .. } => answer.status == 200,
        };
        Some((call, answer, answer.order.filter(|_| says_so)?))
    })
}

/// The 202s to purchases that were no replay: the first that anybody heard of their order.
pub(super) fn first_accepted(history: &History) -> impl Iterator<Item = (&Call, u64, OrderId)> {
    history.calls.iter().filter_map(|call| {
        let (at_us, answer) = call.answer()?;
        let first = matches!(call.wish, Wish::Purchase { .. }) && answer.status == 202 && !answer.replayed;
        Some((call, at_us, answer.order.filter(|_| first)?))
    })
}

/// I4: an order that was promised has its row, with what was bought. Before everything has come to
/// rest a hold is enough.
pub(super) fn every_promise_has_its_row(evidence: &Evidence<'_>, found: &mut Findings) {
    let circumstances = evidence.circumstances;
    // Stock and queue together may lose an order that neither ledger nor anybody else knows.
    if circumstances.stock_lost && circumstances.queue_lost {
        return;
    }
    for (call, answer, order) in promises(evidence.history) {
        let Some(row) = evidence.index.orders.get(&order) else {
            let held = !circumstances.at_rest && evidence.index.holds.contains_key(&order);
            // A hold that was only named may be lost before its record is in the queue.
            let lost = circumstances.stock_lost && answer.status != 202;
            if !held && !lost {
                found.add(format!(
                    "{} was told of order {order} ({}), which has no row",
                    call.user, answer.status
                ));
            }
            continue;
        };
        if let Wish::Purchase { sale, item, units, .. } = &call.wish
            && answer.status == 202
            && (row.sale, row.item, row.units) != (*sale, *item, u64::from(*units))
        {
            found.add(format!(
                "{} bought {units} of item {item}, order {order} has {} of item {}",
                call.user, row.units, row.item
            ));
        }
    }
}

/// I4b: an order comes from a click whose end is a 202 or not known; no order comes from a click that
/// was refused.
///
/// Orders are anonymous until an answer names them, so those that no 202 named are counted: per user,
/// item and units there are never more of them than clicks without a known end.
pub(super) fn no_order_without_a_reason(evidence: &Evidence<'_>, found: &mut Findings) {
    type Want<'a> = (&'a str, ItemId, u64);
    let (mut unresolved, mut accepted): (HashMap<Want<'_>, usize>, HashSet<OrderId>) = Default::default();
    let mut users: HashSet<&str> = HashSet::new();
    for call in &evidence.history.calls {
        let Wish::Purchase { item, units, .. } = &call.wish else { continue };
        users.insert(&call.user);
        if call.is_unresolved() {
            *unresolved.entry((&call.user, *item, u64::from(*units))).or_default() += 1;
        }
        if let Some((_, Answer { status: 202, order: Some(order), .. })) = call.answer() {
            accepted.insert(*order);
        }
    }
    let from_nothing = |order: &&Order| {
        // A retake is placed by the product itself, once a payment came late.
        users.contains(order.user.as_str())
            && order.retake_of.is_none()
            && !accepted.contains(&order.id)
            && evidence.index.was_live(order.id)
    };
    for order in evidence.books.orders.iter().filter(from_nothing) {
        let left = unresolved.entry((&order.user, order.item, order.units)).or_default();
        if *left == 0 {
            found.add(format!(
                "{} has order {} ({} of item {}), and no click that could have made it",
                order.user, order.id, order.units, order.item
            ));
        }
        *left = left.saturating_sub(1);
    }
}

/// I17: what was promised by a 202 is not refused, unless the stock or the ledger lost something.
pub(super) fn no_promise_is_broken(evidence: &Evidence<'_>, found: &mut Findings) {
    if evidence.circumstances.stock_lost || evidence.circumstances.ledger_lost {
        return;
    }
    for (call, _, order) in first_accepted(evidence.history) {
        let Some(row) = evidence.index.orders.get(&order) else { continue };
        let reason = row.reason.as_deref().unwrap_or("no reason");
        if row.status == Status::Rejected && !REFUSED_ASIDE.contains(&reason) {
            found.add(format!("{} heard 202 for order {order}, which is REJECTED ({reason})", call.user));
        }
    }
}

/// I19: an order, and its hold, is the user's whose token bought it; no order is anybody's who never
/// bought.
pub(super) fn orders_belong_to_their_buyers(evidence: &Evidence<'_>, found: &mut Findings) {
    for (call, _, order) in promises(evidence.history) {
        let row = evidence.index.orders.get(&order).map(|row| row.user.as_str());
        let held = evidence.index.holds.get(&order).map(|hold| hold.user.as_str());
        for owner in [row, held].into_iter().flatten().filter(|owner| *owner != call.user) {
            found.add(format!("{} was told of order {order}, which is {owner}'s", call.user));
        }
    }
    if evidence.circumstances.others_bought {
        return;
    }
    let purchases = evidence.history.calls.iter().filter(|call| matches!(call.wish, Wish::Purchase { .. }));
    let users: HashSet<&str> = purchases.map(|call| call.user.as_str()).collect();
    for order in evidence.books.orders.iter().filter(|order| !users.contains(order.user.as_str())) {
        found.add(format!("order {} is {}'s, who never bought", order.id, order.user));
    }
}

/// Between two looks at the ledger no row disappears.
pub(super) fn no_row_disappears(earlier: &Books, later: &Books, found: &mut Findings) {
    let rows: HashSet<OrderId> = later.orders.iter().map(|order| order.id).collect();
    for order in earlier.orders.iter().filter(|order| !rows.contains(&order.id)) {
        found.add(format!("order {} had a row and has none any more", order.id));
    }
}
