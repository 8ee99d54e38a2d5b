//! I8, I18: what is so once everything has landed, and how long that may take.

use std::collections::BTreeMap;

use super::{Evidence, Findings};
use crate::OrderId;
use crate::books::{Bucket, Phase, Sale};

/// I8: at rest the holds are the live orders, and what is free is what is not sold.
pub(super) fn stock_is_ledger(evidence: &Evidence<'_>, found: &mut Findings) {
    if !evidence.circumstances.at_rest {
        return;
    }
    for sale in evidence.books.sales.iter().filter(|sale| sale.epoch > 0) {
        if let Some(reason) = &sale.fence {
            found.add(format!("sale {} stands still behind a fence ({reason})", sale.id));
            continue;
        }
        match evidence.books.bucket(sale) {
            Some(bucket) if bucket.phase == Some(Phase::Open) => same(evidence, sale, bucket, found),
            // A sale that is over loses its keys after a while.
            None if sale.state == "closed" => {}
            other => {
                let phase = other.and_then(|bucket| bucket.phase);
                found.add(format!("sale {}: the bucket of epoch {} is {phase:?}", sale.id, sale.epoch));
            }
        }
    }
}

fn same(evidence: &Evidence<'_>, sale: &Sale, bucket: &Bucket, found: &mut Findings) {
    let live = evidence.books.orders.iter().filter(|order| order.sale == sale.id && order.status.is_live());
    let live: BTreeMap<OrderId, _> =
        live.map(|order| (order.id, (order.user.as_str(), order.item, order.units))).collect();
    let held: BTreeMap<OrderId, _> =
        bucket.holds.iter().map(|hold| (hold.order, (hold.user.as_str(), hold.item, hold.units))).collect();
    for (order, what) in &live {
        if held.get(order) != Some(what) {
            found.add(format!("order {order} is live as {what:?} and held as {:?}", held.get(order)));
        }
    }
    for (order, what) in held.iter().filter(|(order, _)| !live.contains_key(order)) {
        found.add(format!("order {order} is held as {what:?} and not live"));
    }
    for item in evidence.books.items.iter().filter(|item| item.sale == sale.id) {
        let (free, allocated) = (bucket.free.get(&item.id), bucket.allocated.get(&item.id));
        if free != Some(&(item.quantity - item.sold)) || allocated != Some(&item.quantity) {
            found.add(format!(
                "item {}: {free:?} free of {allocated:?}, the ledger has sold {} of {}",
                item.id, item.sold, item.quantity
            ));
        }
    }
}

/// I18: nothing waits for ever: at rest nothing waits at all, and while work goes on nothing waits
/// longer than the circumstances allow.
pub(super) fn nothing_waits_for_ever(evidence: &Evidence<'_>, found: &mut Findings) {
    let circumstances = evidence.circumstances;
    let oldest_ms = i64::try_from(circumstances.oldest_waiting.as_millis()).unwrap_or(i64::MAX);
    let is_late = |since_ms: i64| circumstances.at_rest || evidence.books.read_at_ms - since_ms > oldest_ms;
    for bucket in evidence.books.sales.iter().filter_map(|sale| evidence.books.bucket(sale)) {
        for entry in &bucket.outbox {
            let hold = bucket.holds.iter().find(|hold| hold.order == entry.order);
            if hold.is_none_or(|hold| is_late(hold.reserved_at_ms)) {
                found.add(format!("order {} still waits in the outbox of sale {}", entry.order, bucket.sale));
            }
        }
    }
    for order in &evidence.books.releases {
        let end = evidence.index.steps.get(order).and_then(|steps| steps.last());
        if end.is_none_or(|step| is_late(step.at_ms)) {
            found.add(format!("the units of order {order} still wait to go back"));
        }
    }
    let open = evidence.books.restocks.iter().filter(|restock| restock.state == "open");
    for restock in open.filter(|_| circumstances.at_rest) {
        found.add(format!("restock {} is not finished", restock.operation));
    }
}
