//! I1, I2, I3: units that are sold, and to whom.

use std::collections::HashMap;

use super::book_index::{live_units, units_where};
use super::{Evidence, Findings};
use crate::SaleId;
use crate::books::Status;

/// I1: never more live units than the item has.
pub(super) fn never_oversold(evidence: &Evidence<'_>, found: &mut Findings) {
    let mut units = live_units(evidence.books);
    for item in &evidence.books.items {
        let live = units.remove(&item.id).unwrap_or(0);
        if live > item.quantity {
            found.add(format!("item {}: {live} live units of {}", item.id, item.quantity));
        }
    }
    for (item, live) in units {
        found.add(format!("item {item}: {live} live units, and there is no such item"));
    }
}

/// I2: the item's counters are the sums of its orders.
pub(super) fn sold_is_the_live_units(evidence: &Evidence<'_>, found: &mut Findings) {
    let live = live_units(evidence.books);
    let paid = units_where(evidence.books, |order| order.status == Status::Paid);
    for item in &evidence.books.items {
        let live = live.get(&item.id).copied().unwrap_or(0);
        let paid = paid.get(&item.id).copied().unwrap_or(0);
        let in_range = (0..=item.quantity).contains(&item.sold);
        if (item.sold, item.paid) != (live, paid) || !in_range {
            found.add(format!(
                "item {}: sold {} and paid {} of {}; its orders say {live} and {paid}",
                item.id, item.sold, item.paid, item.quantity
            ));
        }
    }
}

/// I3: per sale and user the live units are what was counted, and within the limit; in every bucket
/// of the stock too.
pub(super) fn users_are_within_the_limit(evidence: &Evidence<'_>, found: &mut Findings) {
    let books = evidence.books;
    let mut live: HashMap<(SaleId, &str), u64> = HashMap::new();
    for order in books.orders.iter().filter(|order| order.status.is_live()) {
        *live.entry((order.sale, &order.user)).or_default() += order.units;
    }
    for ((sale, user), units) in &live {
        let limit = evidence.index.sales.get(sale).map_or(0, |sale| sale.limit);
        if *units > limit {
            found.add(format!("sale {sale}, user {user}: {units} live units, the limit is {limit}"));
        }
    }
    for buyer in &books.buyers {
        let units = live.remove(&(buyer.sale, buyer.user.as_str())).unwrap_or(0);
        if u64::try_from(buyer.units) != Ok(units) {
            found.add(format!(
                "sale {}, user {}: {} units counted, {units} live",
                buyer.sale, buyer.user, buyer.units
            ));
        }
    }
    for ((sale, user), units) in live {
        found.add(format!("sale {sale}, user {user}: {units} live units and no count"));
    }

    for bucket in books.buckets.iter().filter(|bucket| bucket.loaded) {
        let mut held: HashMap<&str, u64> = HashMap::new();
        for hold in &bucket.holds {
            *held.entry(&hold.user).or_default() += hold.units;
        }
        for (user, units) in held.into_iter().filter(|(_, units)| *units > bucket.limit) {
            found.add(format!(
                "sale {}, epoch {}, user {user}: {units} units held, the limit is {}",
                bucket.sale, bucket.epoch, bucket.limit
            ));
        }
    }
}
