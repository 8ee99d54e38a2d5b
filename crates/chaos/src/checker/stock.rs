//! I7, I9, I10: what every script of the stock keeps, after every step.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Findings};
use crate::books::{Bucket, Phase, Sale};
use crate::{ItemId, OrderId};

/// I7: in every bucket that was loaded, free and held units are the allocated ones, and the outbox is a
/// part of the holds.
pub(super) fn free_and_held_are_allocated(evidence: &Evidence<'_>, found: &mut Findings) {
    let circumstances = evidence.circumstances;
    for bucket in evidence.books.buckets.iter().filter(|bucket| bucket.loaded) {
        if !bucket.unmarked.is_empty() {
            // A lost key is what a rebuild is for; until it came, nothing more can be said.
            if bucket.phase == Some(Phase::Open) && (circumstances.at_rest || !circumstances.stock_lost) {
                found.add(format!("{}: sells without its keys {:?}", name(bucket), bucket.unmarked));
            }
            continue;
        }
        units_add_up(bucket, found);
        outbox_is_held(bucket, found);
    }
}

fn units_add_up(bucket: &Bucket, found: &mut Findings) {
    let mut held: HashMap<ItemId, i64> = HashMap::new();
    for hold in &bucket.holds {
        *held.entry(hold.item).or_default() += i64::try_from(hold.units).unwrap_or(i64::MAX);
    }
    for (item, allocated) in &bucket.allocated {
        let held = held.remove(item).unwrap_or(0);
        let free = bucket.free.get(item).copied();
        if free.is_none_or(|free| free < 0 || free + held != *allocated) {
            found.add(format!(
                "{}, item {item}: {free:?} free, {held} held, {allocated} allocated",
                name(bucket)
            ));
        }
    }
    for item in held.keys().chain(bucket.free.keys().filter(|item| !bucket.allocated.contains_key(item))) {
        found.add(format!("{}, item {item}: units of an item that it does not have", name(bucket)));
    }
    if bucket.counted_holds != bucket.holds.len() as u64 {
        found.add(format!(
            "{}: counts {} holds and has {}",
            name(bucket),
            bucket.counted_holds,
            bucket.holds.len()
        ));
    }
}

fn outbox_is_held(bucket: &Bucket, found: &mut Findings) {
    let holds: HashMap<OrderId, (&str, u64)> =
        bucket.holds.iter().map(|hold| (hold.order, (hold.user.as_str(), hold.seq))).collect();
    for entry in &bucket.outbox {
        let held = holds.get(&entry.order);
        if held != Some(&(entry.user.as_str(), entry.seq)) {
            found.add(format!(
                "{}: the outbox has order {} of {}, step {}; held is {held:?}",
                name(bucket),
                entry.order,
                entry.user,
                entry.seq
            ));
        }
    }
}

/// I9: per order and epoch, effective reserves less effective releases are none or one: an order holds
/// once, from the step that its row names, and never again once it is gone. At rest the count of the
/// bucket's steps leaves room for nothing else.
pub(super) fn reserved_once_and_released_once(evidence: &Evidence<'_>, found: &mut Findings) {
    for bucket in &evidence.books.buckets {
        let mut seen = HashSet::new();
        for hold in &bucket.holds {
            if !seen.insert(hold.order) {
                found.add(format!("{}: order {} holds twice", name(bucket), hold.order));
            }
            if bucket.gone.contains(&hold.order) {
                found.add(format!("{}: order {} is gone and holds", name(bucket), hold.order));
            }
            let row = evidence.index.orders.get(&hold.order).map(|row| (row.epoch, row.seq));
            if !evidence.circumstances.stock_lost
                && let Some((epoch, seq)) = row
                && (epoch, seq) != (hold.epoch, hold.seq)
            {
                found.add(format!(
                    "{}: order {} holds from step {} of epoch {}, its row says {seq} of {epoch}",
                    name(bucket),
                    hold.order,
                    hold.seq,
                    hold.epoch
                ));
            }
        }
    }
    let circumstances = evidence.circumstances;
    let lossless = !circumstances.stock_lost && !circumstances.ledger_lost && !circumstances.queue_lost;
    if circumstances.at_rest && lossless && evidence.books.dead_letters.is_empty() {
        for sale in &evidence.books.sales {
            steps_add_up(evidence, sale, found);
        }
    }
}

/// Every step of a bucket is a reserve, a release or a restock. Reserves are the epoch's rows; what was
/// loaded or reserved and is not held was released; so the steps say how many orders were loaded.
fn steps_add_up(evidence: &Evidence<'_>, sale: &Sale, found: &mut Findings) {
    let Some(bucket) = evidence.books.bucket(sale).filter(|it| it.phase == Some(Phase::Open)) else { return };
    let rows = || evidence.books.orders.iter().filter(|order| order.sale == sale.id && order.has_step());
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let reserves = count(rows().filter(|order| order.epoch == bucket.epoch).count());
    let held = count(bucket.holds.len());
    let restocks = count(bucket.operations.values().filter(|answer| !answer.starts_with("LEFT ")).count());
    let steps = i64::try_from(bucket.seq).unwrap_or(i64::MAX);

    let loaded = steps - 2 * reserves - restocks + held;
    let least = count(bucket.holds.iter().filter(|hold| hold.epoch < bucket.epoch).count());
    let most =
        count(rows().filter(|order| order.epoch < bucket.epoch && evidence.index.was_live(order.id)).count());
    if !(least..=most).contains(&loaded) {
        found.add(format!(
            "{}: {steps} steps for {reserves} reserves, {restocks} restocks and {held} holds mean that {loaded} \
             orders were loaded, where {least} to {most} can have been",
            name(bucket)
        ));
    }
}

/// I10: what is released has a terminal row.
pub(super) fn released_only_after_the_end(evidence: &Evidence<'_>, found: &mut Findings) {
    if evidence.circumstances.ledger_lost {
        return;
    }
    let gone = evidence.books.buckets.iter().flat_map(|bucket| &bucket.gone);
    for (order, how) in gone
        .map(|order| (order, "is gone"))
        .chain(evidence.books.releases.iter().map(|it| (it, "is to be released")))
    {
        let status = evidence.index.orders.get(order).map(|row| row.status);
        if status.is_none_or(|status| status.is_live()) {
            found.add(format!("order {order} {how} and is {status:?}"));
        }
    }
}

/// A bucket by its sale and epoch.
fn name(bucket: &Bucket) -> String {
    format!("sale {}, bucket {}, epoch {}", bucket.sale, bucket.bucket, bucket.epoch)
}
