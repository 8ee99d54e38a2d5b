//! I6: what was paid stays paid, and each payment has one outcome.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Findings};
use crate::OrderId;
use crate::books::{Books, Payment, Status};
use crate::history::Wish;

/// I6: PAID leads to REFUNDED or nowhere; each paid order has exactly one payment that paid it, in
/// full; each other payment is to be given back or had no order; what a client heard was taken is there.
pub(super) fn paid_exactly_once(evidence: &Evidence<'_>, found: &mut Findings) {
    for step in evidence.books.steps.iter().filter(|step| step.from == Some(Status::Paid)) {
        if step.to != Status::Refunded {
            found.add(format!("order {} was PAID and became {:?}", step.order, step.to));
        }
    }
    each_order_is_paid_by_one(evidence, found);
    each_payment_has_an_outcome(evidence, found);
    what_is_owed_is_given_back(evidence, found);
    what_was_heard_is_there(evidence, found);
}

fn each_order_is_paid_by_one(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut paid: HashMap<OrderId, Vec<&Payment>> = HashMap::new();
    for payment in evidence.books.payments.iter().filter(|payment| payment.outcome == "PAID") {
        paid.entry(payment.order).or_default().push(payment);
    }
    for order in &evidence.books.orders {
        let payments = paid.remove(&order.id).unwrap_or_default();
        let due = usize::from(order.status == Status::Paid);
        if payments.len() != due {
            found.add(format!(
                "order {} is {:?} and {} payments paid it",
                order.id,
                order.status,
                payments.len()
            ));
        }
        for payment in payments {
            if (payment.amount_minor, &payment.currency) != (order.total_minor, &order.currency) {
                found.add(format!(
                    "order {} costs {} {} and was paid by {} {}",
                    order.id, order.total_minor, order.currency, payment.amount_minor, payment.currency
                ));
            }
        }
    }
    for order in paid.into_keys() {
        found.add(format!("order {order} was paid and has no row"));
    }
}

fn each_payment_has_an_outcome(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut names = HashSet::new();
    for payment in &evidence.books.payments {
        if !names.insert((payment.provider.as_str(), payment.payment.as_str())) {
            found.add(format!("payment {} has two rows", payment.payment));
        }
        let status = evidence.index.orders.get(&payment.order).map(|order| order.status);
        match payment.outcome.as_str() {
            "PAID" | "AMOUNT_MISMATCH" | "NO_ORDER" | "REFUNDED" => {}
            // It waits to buy again.
            "LATE" if status == Some(Status::Expired) => {}
            // It came too late or for nothing; the same transaction closes what was still open.
            "REFUND_DUE" if status != Some(Status::Pending) => {}
            outcome => {
                found.add(format!(
                    "payment {} is {outcome} while order {} is {status:?}",
                    payment.payment, payment.order
                ));
            }
        }
    }
    for event in &evidence.books.payment_events {
        if !names.contains(&(event.provider.as_str(), event.payment.as_str())) {
            found.add(format!("event {} is of payment {}, which has no row", event.event, event.payment));
        }
    }
}

/// Captured is paid or given back: each payment that no order keeps has one refund over all of it, and
/// no other has any.
fn what_is_owed_is_given_back(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut refunds: HashMap<(&str, &str), i64> = HashMap::new();
    for it in &evidence.books.refunds {
        if refunds.insert((&it.provider, &it.payment), it.amount_minor).is_some() {
            found.add(format!("payment {} is given back twice", it.payment));
        }
    }
    for payment in &evidence.books.payments {
        let status = evidence.index.orders.get(&payment.order).map(|order| order.status);
        let owed = payment.outcome == "REFUND_DUE";
        let given = refunds.remove(&(payment.provider.as_str(), payment.payment.as_str()));
        if given != owed.then_some(payment.amount_minor) {
            found.add(format!(
                "payment {} over {} is {} for an order that is {status:?}, and {given:?} is given back",
                payment.payment, payment.amount_minor, payment.outcome
            ));
        }
    }
    for order in evidence.books.orders.iter().filter(|order| order.status == Status::Refunded) {
        let given = |it: &Payment| it.order == order.id && it.outcome == "REFUND_DUE";
        if !evidence.books.payments.iter().any(given) {
            found.add(format!("order {} is REFUNDED and no payment of it is given back", order.id));
        }
    }
    for (_, payment) in refunds.into_keys() {
        found.add(format!("money is given back for {payment}, which is no payment"));
    }
}

fn what_was_heard_is_there(evidence: &Evidence<'_>, found: &mut Findings) {
    if evidence.circumstances.ledger_lost {
        return;
    }
    let payments: HashMap<&str, &Payment> =
        evidence.books.payments.iter().map(|payment| (payment.payment.as_str(), payment)).collect();
    let events: HashSet<&str> = evidence.books.payment_events.iter().map(|it| it.event.as_str()).collect();
    for call in &evidence.history.calls {
        let Wish::Pay { order, event, payment, .. } = &call.wish else { continue };
        let heard = call.answer().and_then(|(_, answer)| answer.outcome.as_deref());
        let Some(outcome @ ("PAID" | "REFUND_DUE" | "LATE")) = heard else { continue };
        let row = payments.get(payment.as_str()).map(|it| (it.order, it.outcome.as_str()));
        // A late payment buys again, as another order, or goes back.
        let settled = |it| match outcome {
            "LATE" => matches!(it, Some((_, "PAID" | "REFUND_DUE" | "LATE"))),
            // The staff may have given it back since.
            "PAID" => it == Some((*order, "REFUND_DUE")),
            _ => false,
        };
        if row != Some((*order, outcome)) && !settled(row) || !events.contains(event.as_str()) {
            found.add(format!("{} heard {outcome} of payment {payment}, the ledger has {row:?}", call.user));
        }
    }
}

/// Between two looks at the ledger no payment disappears, and none that has an outcome gets another.
pub(super) fn no_payment_changes(earlier: &Books, later: &Books, found: &mut Findings) {
    let now: HashMap<(&str, &str), &Payment> =
        later.payments.iter().map(|it| ((it.provider.as_str(), it.payment.as_str()), it)).collect();
    for payment in &earlier.payments {
        let outcome = now.get(&(payment.provider.as_str(), payment.payment.as_str())).map(|it| &it.outcome);
        let decided = matches!(payment.outcome.as_str(), "PAID" | "REFUND_DUE" | "REFUNDED");
        // The staff gives back what was paid.
        let refunded = payment.outcome == "PAID" && outcome.is_some_and(|it| it == "REFUND_DUE");
        if outcome.is_none() || decided && !refunded && outcome != Some(&payment.outcome) {
            found.add(format!("payment {} was {} and is {outcome:?} now", payment.payment, payment.outcome));
        }
    }
}
