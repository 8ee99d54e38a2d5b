//! I6: what was captured is paid or given back, and what is paid stays paid.

use std::collections::{HashMap, HashSet};

use super::{Findings, Snapshot};
use crate::ledger::PaymentRow;
use crate::order::{Order, OrderId, OrderStatus};

/// What a payment can be. Those that are decided are captured money, and each is exactly one of
/// paid, on its way to another order, and given back: so captured = paid + refunded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Paid,
    /// Waits for the order that is bought anew with it.
    Waiting,
    Refund,
    /// Amount or order are wrong; a later event of the same payment may be right.
    Undecided,
}

impl Side {
    fn of(payment: &PaymentRow) -> Option<Self> {
        match payment.outcome.as_str() {
            "PAID" => Some(Self::Paid),
            "LATE" => Some(Self::Waiting),
            "REFUND_DUE" | "REFUNDED" => Some(Self::Refund),
            "AMOUNT_MISMATCH" | "NO_ORDER" => Some(Self::Undecided),
            _ => None,
        }
    }
}

/// The payments of one order that count.
#[derive(Default)]
struct Till<'a> {
    paid: Vec<&'a PaymentRow>,
    refunds: usize,
}

pub(super) fn i6_paid_is_paid_once(snapshot: &Snapshot, found: &mut Findings) {
    for (order, from, to) in &snapshot.books.steps {
        if *from == Some(OrderStatus::Paid) && *to != OrderStatus::Refunded {
            found.add(format!("order {order} was paid and became {to}"));
        }
    }
    let mut tills = tills(snapshot, found);
    for order in &snapshot.books.orders {
        let till = tills.remove(&order.reservation.order).unwrap_or_default();
        check_till(order, &till, found);
    }
    for (order, till) in tills.iter().filter(|(_, till)| !till.paid.is_empty()) {
        found.add(format!("{} payments paid order {order}, which has no row", till.paid.len()));
    }
}

fn tills<'a>(snapshot: &'a Snapshot, found: &mut Findings) -> HashMap<OrderId, Till<'a>> {
    let mut tills: HashMap<OrderId, Till<'_>> = HashMap::new();
    let mut keys = HashSet::new();
    for payment in &snapshot.books.payments {
        if !keys.insert(&payment.payment) {
            found.add(format!("payment {} has two rows", payment.payment));
        }
        let till = tills.entry(payment.order).or_default();
        match Side::of(payment) {
            Some(Side::Paid) => till.paid.push(payment),
            Some(Side::Refund) => till.refunds += 1,
            Some(Side::Waiting | Side::Undecided) => {}
            None => found.add(format!(
                "payment {} is {:?}: neither paid nor given back",
                payment.payment, payment.outcome
            )),
        }
    }
    tills
}

fn check_till(order: &Order, till: &Till<'_>, found: &mut Findings) {
    let id = order.reservation.order;
    let due = usize::from(order.status == OrderStatus::Paid);
    if till.paid.len() != due {
        let count = till.paid.len();
        found.add(format!("order {id} is {} and has {count} payments that paid it", order.status));
    }
    if order.status == OrderStatus::Refunded && till.refunds == 0 {
        found.add(format!("order {id} is {} and none of its payments is given back", order.status));
    }
    let total = order.total;
    for payment in &till.paid {
        let paid = (payment.amount_minor, payment.currency.as_str());
        if paid != (total.minor, total.currency.as_str()) {
            found.add(format!(
                "order {id} costs {} {} in minor units and is paid by {} {}",
                total.minor,
                total.currency.as_str(),
                paid.0,
                paid.1
            ));
        }
    }
}
