//! I5, I11: each order lives once, along the legal arrows.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Findings};
use crate::OrderId;
use crate::books::{Books, OrderStep, Status};

/// Whether an order may go this way; `None` is its birth.
fn is_legal(from: Option<Status>, to: Status) -> bool {
    use Status::{Cancelled, Expired, Paid, Pending, Refunded, Rejected};
    match from {
        None => matches!(to, Pending | Rejected | Cancelled),
        Some(Pending) => matches!(to, Paid | Expired | Cancelled),
        Some(Paid) => to == Refunded,
        Some(Expired | Cancelled | Rejected | Refunded) => false,
    }
}

/// I5: the steps of each order are a legal way, each begins where the last one ended, and the row is
/// where the last one leads.
pub(super) fn only_legal_arrows(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut at: HashMap<OrderId, Status> = HashMap::new();
    for OrderStep { order, from, to, .. } in &evidence.books.steps {
        let before = at.insert(*order, *to);
        if before != *from || !is_legal(*from, *to) {
            found.add(format!("order {order} was {before:?} and stepped from {from:?} to {to:?}"));
        }
    }
    for order in &evidence.books.orders {
        let last = at.get(&order.id);
        if last != Some(&order.status) {
            found.add(format!("order {} is {:?}, its last step led to {last:?}", order.id, order.status));
        }
        if (order.status == Status::Rejected) != order.reason.is_some() {
            found.add(format!("order {} is {:?} for the reason {:?}", order.id, order.status, order.reason));
        }
    }
}

/// I11: one row, one birth and at most one end per order, and no life without a row.
pub(super) fn one_row_one_life(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut rows = HashSet::new();
    for order in &evidence.books.orders {
        if !rows.insert(order.id) {
            found.add(format!("order {} has two rows", order.id));
        }
    }
    for (order, steps) in &evidence.index.steps {
        let births = steps.iter().filter(|step| step.from.is_none()).count();
        let ends = steps.iter().filter(|step| !step.to.is_live()).count();
        if births != 1 || ends > 1 {
            found.add(format!("order {order} was born {births} times and ended {ends} times"));
        }
        if !rows.contains(order) {
            found.add(format!("order {order} has a life and no row"));
        }
    }
}

/// Between two looks at the ledger what is final stays.
pub(super) fn the_end_is_the_end(earlier: &Books, later: &Books, found: &mut Findings) {
    let now: HashMap<OrderId, Status> = later.orders.iter().map(|order| (order.id, order.status)).collect();
    for order in &earlier.orders {
        let Some(status) = now.get(&order.id) else { continue };
        // A pending order may have been paid and refunded between the two looks.
        let legal = order.status == *status
            || is_legal(Some(order.status), *status)
            || (order.status, *status) == (Status::Pending, Status::Refunded);
        if !legal {
            found.add(format!("order {} was {:?} and is {status:?} now", order.id, order.status));
        }
    }
}
