//! I14: "sold out" is only said of what may have been empty.
//!
//! An order surely held nothing before its first click began, and surely nothing any more some time
//! after its client heard that it is closed (if the circumstances say how soon). In between it may have
//! held its units. Where even the sum of all that may have been held leaves more free than the answer
//! says, all through the time in which the answer can have been true, the answer is a lie.

use std::collections::{HashMap, HashSet};

use super::{Evidence, Findings};
use crate::history::{Call, Wish};
use crate::{ItemId, OrderId};

/// I14: a 410 only when, at some moment of the flag's life before it, all units may have been held.
pub(super) fn sold_out_only_when_empty(evidence: &Evidence<'_>, found: &mut Findings) {
    let circumstances = evidence.circumstances;
    let margin = circumstances.flag_life + circumstances.slack;
    let margin_us = u64::try_from(margin.as_micros()).unwrap_or(u64::MAX);
    let mut changes = changes(evidence);
    for item in &evidence.books.items {
        let levels = Levels::new(changes.remove(&item.id).unwrap_or_default());
        let least_quantity = item.quantity - restocked(evidence, item.id);
        for call in &evidence.history.calls {
            let Wish::Purchase { item: wanted, .. } = &call.wish else { continue };
            let Some((at_us, answer)) = call.answer().filter(|_| *wanted == item.id) else { continue };
            if answer.status != 410 || answer.error.as_deref() != Some("SOLD_OUT") {
                continue;
            }
            let left = answer.left.map_or(0, |left| i64::try_from(left).unwrap_or(i64::MAX));
            let held = levels.highest(call.invoked_us.saturating_sub(margin_us), at_us);
            if held < least_quantity.saturating_sub(left) {
                found.add(format!(
                    "{} heard at {at_us} us that {left} of item {} are left; of {least_quantity} at most {held} were held",
                    call.user, item.id
                ));
            }
        }
    }
}

/// How many units fewer than now the item may have had: restocks that added, or that took units from
/// the stock and were not finished.
fn restocked(evidence: &Evidence<'_>, item: ItemId) -> i64 {
    let restocks = evidence.books.restocks.iter().filter(|restock| restock.item == item);
    restocks.filter(|it| it.units > 0 || it.state != "done").map(|it| it.units.abs()).sum()
}

/// Per item: from when on which units may have been held, and from when on surely not.
fn changes(evidence: &Evidence<'_>) -> HashMap<ItemId, Vec<(u64, i64)>> {
    let clicks = Clicks::of(evidence);
    let mut changes: HashMap<ItemId, Vec<(u64, i64)>> = HashMap::new();
    let mut seen = HashSet::new();
    let rows = evidence
        .books
        .orders
        .iter()
        .filter(|it| it.has_step())
        .map(|it| (it.id, it.user.as_str(), it.item, it.units));
    let holds = evidence.index.holds.values().map(|it| (it.order, it.user.as_str(), it.item, it.units));
    let accepted = clicks.accepted.iter().map(|(id, (user, item, units))| (*id, *user, *item, *units));
    for (order, user, item, units) in rows.chain(holds).chain(accepted) {
        if !seen.insert(order) {
            continue;
        }
        let units = i64::try_from(units).unwrap_or(i64::MAX);
        let changes = changes.entry(item).or_default();
        changes.push((clicks.earliest(order, user, item), units));
        if let Some(free_us) = clicks.free_at(evidence, order) {
            changes.push((free_us, -units));
        }
    }
    // Orders that left no trace: possible only where holds can be lost, or are still under way.
    if evidence.circumstances.stock_lost || !evidence.circumstances.at_rest {
        for call in evidence.history.calls.iter().filter(|call| call.is_unresolved()) {
            if let Wish::Purchase { item, units, .. } = &call.wish {
                changes.entry(*item).or_default().push((call.invoked_us, i64::from(*units)));
            }
        }
    }
    changes
}

/// What the clients' calls say about when orders may have begun and surely had ended.
#[derive(Default)]
struct Clicks<'a> {
    /// The first click of a user for an item.
    of_user: HashMap<(&'a str, ItemId), u64>,
    /// The first click with a user's key.
    of_key: HashMap<(&'a str, &'a str), u64>,
    /// The click whose 202 named the order first, and its key.
    of_order: HashMap<OrderId, (u64, &'a str, Option<&'a str>)>,
    /// What was bought with a 202.
    accepted: HashMap<OrderId, (&'a str, ItemId, u64)>,
    /// When a client first heard that the order is closed.
    closed: HashMap<OrderId, u64>,
}

impl<'a> Clicks<'a> {
    fn of(evidence: &Evidence<'a>) -> Self {
        let mut clicks = Self::default();
        for call in &evidence.history.calls {
            clicks.note(call);
        }
        clicks
    }

    fn note(&mut self, call: &'a Call) {
        let first = |place: &mut u64| *place = call.invoked_us.min(*place);
        let answer = call.answer();
        if let Wish::Purchase { item, units, key, .. } = &call.wish {
            first(self.of_user.entry((&call.user, *item)).or_insert(u64::MAX));
            if let Some(key) = key {
                first(self.of_key.entry((&call.user, key)).or_insert(u64::MAX));
            }
            if let Some((_, answer)) = answer
                && answer.status == 202
                && let Some(order) = answer.order
            {
                let click = (call.invoked_us, call.user.as_str(), key.as_deref());
                let kept = self.of_order.entry(order).or_insert(click);
                *kept = click.min(*kept);
                self.accepted.insert(order, (&call.user, *item, u64::from(*units)));
            }
        }
        if let Some((at_us, answer)) = answer
            && let (Some(order), Some(status)) = (answer.order, answer.order_status.as_deref())
            && !matches!(status, "PENDING" | "PAID")
        {
            let closed = self.closed.entry(order).or_insert(at_us);
            *closed = at_us.min(*closed);
        }
    }

    /// Before this the order surely held nothing.
    fn earliest(&self, order: OrderId, user: &str, item: ItemId) -> u64 {
        match self.of_order.get(&order) {
            // With a key, an earlier click whose answer was lost may have taken the units.
            Some((_, user, Some(key))) => self.of_key.get(&(*user, *key)).copied().unwrap_or(0),
            Some((invoked_us, _, None)) => *invoked_us,
            None => self.of_user.get(&(user, item)).copied().unwrap_or(0),
        }
    }

    /// From this moment on the order surely held nothing any more, if that is known at all.
    fn free_at(&self, evidence: &Evidence<'_>, order: OrderId) -> Option<u64> {
        let circumstances = evidence.circumstances;
        // A stock that went back holds again what it had released.
        let within = circumstances.release_within.filter(|_| !circumstances.stock_lost)?;
        let closed_us = self.closed.get(&order)?;
        Some(closed_us.saturating_add(u64::try_from(within.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// How many units may have been held, over time; answers the most of any stretch quickly.
struct Levels {
    /// When the level changed, in order.
    times_us: Vec<u64>,
    /// `highest[k][i]` is the highest level of the `2^k` stretches from the i-th on. The 0-th stretch
    /// lies before every change.
    highest: Vec<Vec<i64>>,
}

impl Levels {
    fn new(mut changes: Vec<(u64, i64)>) -> Self {
        // At one moment what begins counts before what ends: the level is never too low.
        changes.sort_by_key(|(at_us, units)| (*at_us, -units));
        let mut level = 0;
        let mut row = vec![0];
        for (_, units) in &changes {
            level += units;
            row.push(level);
        }
        let mut highest = vec![row];
        let mut width = 1;
        while let Some(last) = highest.last()
            && last.len() > width
        {
            let next = (0..last.len() - width).map(|at| last[at].max(last[at + width])).collect();
            highest.push(next);
            width *= 2;
        }
        Self { times_us: changes.into_iter().map(|(at_us, _)| at_us).collect(), highest }
    }

    /// The highest level from one moment to another, both included.
    fn highest(&self, from_us: u64, to_us: u64) -> i64 {
        let first = self.times_us.partition_point(|at_us| *at_us < from_us);
        let last = self.times_us.partition_point(|at_us| *at_us <= to_us);
        let count = last - first + 1;
        let row = count.ilog2() as usize;
        self.highest[row][first].max(self.highest[row][last + 1 - (1 << row)])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_highest_level_is_what_looking_at_every_stretch_finds(
            changes in prop::collection::vec((0_u64..30, -5_i64..6), 0..40),
            from in 0_u64..35,
            length in 0_u64..35,
        ) {
            let mut sorted = changes.clone();
            sorted.sort_by_key(|(at_us, units)| (*at_us, -units));
            let (mut level, mut highest): (i64, Option<i64>) = (0, None);
            for (at_us, units) in &sorted {
                if *at_us >= from && highest.is_none() {
                    highest = Some(level);
                }
                level += units;
                if (from..=from + length).contains(at_us) {
                    highest = highest.max(Some(level));
                }
            }
            let highest = highest.unwrap_or(level);
            prop_assert_eq!(Levels::new(changes).highest(from, from + length), highest);
        }
    }
}
