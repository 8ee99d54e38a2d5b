//! I15: the steps of a stock are one order of events, and it agrees with real time.

use std::collections::HashMap;

use super::answers::first_accepted;
use super::{Evidence, Findings};
use crate::books::Phase;
use crate::history::Wish;
use crate::{OrderId, SaleId};

/// I15: per epoch every order has a step of its own, no step is beyond the stock's last, and an order
/// that was answered before another was asked for has the earlier step, in the same or an earlier
/// epoch. Only a stock, or a ledger, that lost something may repeat itself.
pub(super) fn steps_follow_real_time(evidence: &Evidence<'_>, found: &mut Findings) {
    if evidence.circumstances.stock_lost || evidence.circumstances.ledger_lost {
        return;
    }
    steps_are_distinct(evidence, found);
    steps_are_within_their_stock(evidence, found);
    epochs_open_once(evidence, found);
    for sale in evidence.index.sales.keys() {
        replies_come_in_order(evidence, *sale, found);
    }
}

fn steps_are_distinct(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut steps: HashMap<(SaleId, u64, u64, u64), OrderId> = HashMap::new();
    for order in evidence.books.orders.iter().filter(|order| order.has_step()) {
        let step = (order.sale, order.bucket, order.epoch, order.seq);
        if let Some(other) = steps.insert(step, order.id).filter(|other| *other != order.id) {
            found.add(format!(
                "orders {other} and {} both have step {} of sale {}, epoch {}",
                order.id, order.seq, order.sale, order.epoch
            ));
        }
    }
}

fn steps_are_within_their_stock(evidence: &Evidence<'_>, found: &mut Findings) {
    let last: HashMap<(SaleId, u64, u64), u64> = evidence
        .books
        .buckets
        .iter()
        .filter(|bucket| bucket.loaded)
        .map(|bucket| ((bucket.sale, bucket.bucket, bucket.epoch), bucket.seq))
        .collect();
    for order in &evidence.books.orders {
        let last = last.get(&(order.sale, order.bucket, order.epoch));
        if last.is_some_and(|last| order.seq > *last) {
            found.add(format!("order {} has step {}, the stock's last is {last:?}", order.id, order.seq));
        }
        let Some(sale) = evidence.index.sales.get(&order.sale) else { continue };
        let beyond = order.epoch == sale.epoch && order.seq > sale.recorded_seq;
        if order.epoch > sale.epoch || beyond && evidence.index.was_live(order.id) {
            found.add(format!(
                "order {} is of step {} in epoch {}; its sale knows of {} in {}",
                order.id, order.seq, order.epoch, sale.recorded_seq, sale.epoch
            ));
        }
    }
}

fn epochs_open_once(evidence: &Evidence<'_>, found: &mut Findings) {
    for bucket in evidence.books.buckets.iter().filter(|bucket| bucket.phase == Some(Phase::Open)) {
        let epoch = evidence.index.sales.get(&bucket.sale).map(|sale| sale.epoch);
        if epoch != Some(bucket.epoch) {
            found.add(format!(
                "sale {}: the bucket of epoch {} is open, the sale's epoch is {epoch:?}",
                bucket.sale, bucket.epoch
            ));
        }
    }
}

/// Looks at the first 202s in the order in which they were asked for; those that had been answered by
/// then must all have earlier steps.
fn replies_come_in_order(evidence: &Evidence<'_>, sale: SaleId, found: &mut Findings) {
    // With a key the units may have been taken by an earlier click whose answer was lost.
    let mut first_click: HashMap<(&str, &str), u64> = HashMap::new();
    for call in &evidence.history.calls {
        if let Wish::Purchase { key: Some(key), .. } = &call.wish {
            let first = first_click.entry((&call.user, key)).or_insert(u64::MAX);
            *first = call.invoked_us.min(*first);
        }
    }
    let accepted = first_accepted(evidence.history);
    let mut asked: Vec<(u64, u64, (u64, u64), OrderId)> = accepted
        .filter_map(|(call, at_us, id)| {
            let row = evidence.index.orders.get(&id).filter(|row| row.sale == sale)?;
            let earlier = match &call.wish {
                Wish::Purchase { key: Some(key), .. } => first_click.get(&(call.user.as_str(), key.as_str())),
                _ => None,
            };
            Some((earlier.copied().unwrap_or(call.invoked_us), at_us, (row.epoch, row.seq), id))
        })
        .collect();
    asked.sort_by_key(|(invoked_us, ..)| *invoked_us);
    let mut answered = asked.clone();
    answered.sort_by_key(|(_, at_us, ..)| *at_us);

    let mut before = answered.into_iter().peekable();
    let mut latest: Option<((u64, u64), OrderId)> = None;
    for (invoked_us, _, step, order) in asked {
        while let Some((_, _, step, order)) = before.next_if(|(_, at_us, ..)| *at_us < invoked_us) {
            latest = latest.max(Some((step, order)));
        }
        if let Some((earlier, other)) = latest.filter(|(earlier, _)| *earlier >= step) {
            found.add(format!(
                "order {other} was answered before order {order} was asked for, and has step {} of epoch {} where \
                 that has {} of {}",
                earlier.1, earlier.0, step.1, step.0
            ));
        }
    }
}
