//! How one storm went over time, as its clients saw it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use doorbuster_wire::SaleView;

use crate::tally::SeenOrder;
use crate::timeline::Timeline;

/// One storm over time. Several waves have one each, so that the quiet between them takes no room.
#[derive(Clone, Debug, PartialEq)]
pub struct Course {
    /// From the first possible click of the first wave to this one's.
    pub begins_after: Duration,
    /// From the first possible click to the last answer.
    pub wall: Duration,
    /// Users of this wave.
    pub users: u64,
    /// The answers by status code.
    pub timeline: Timeline,
    /// Units that nobody held when the storm began; `None` when the sale hides its stock.
    pub units_at_start: Option<u64>,
    /// Units left at the end of every bucket of the timeline, by the clients' own orders: none of
    /// the server's counters after the start. Empty when the sale hides its stock.
    pub units_left: Vec<u64>,
}

impl Course {
    /// The course of the first wave, or of the only one.
    pub(crate) fn new(users: u64, wall: Duration, timeline: Timeline, taken: Option<&Taken>) -> Self {
        let bucket_us = u64::try_from(timeline.bucket().as_micros()).unwrap_or(u64::MAX);
        let units_left = taken.map_or_else(Vec::new, |taken| {
            let buckets = 1..=timeline.len() as u64;
            buckets.map(|end| taken.left_before(end.saturating_mul(bucket_us))).collect()
        });
        let units_at_start = taken.map(|taken| taken.free);
        Self { begins_after: Duration::ZERO, wall, users, timeline, units_at_start, units_left }
    }
}

/// When the units that were free at the start went, by the clients' own orders.
pub(crate) struct Taken {
    free: u64,
    /// Moments in microseconds after the first possible click, in ascending order.
    at_us: Vec<u64>,
}

impl Taken {
    /// `None` when the sale hides its stock. An order beyond an item's free units takes none.
    pub(crate) fn of_orders<'a>(
        sale: &'a SaleView,
        orders: impl Iterator<Item = &'a SeenOrder>,
    ) -> Option<Self> {
        let mut left: HashMap<&str, u64> = HashMap::new();
        for item in &sale.items {
            let gone = item.held.unwrap_or(0) + item.sold.unwrap_or(0);
            let free = item.free.or_else(|| Some(item.quantity?.saturating_sub(gone)))?;
            left.insert(&item.item_id, free);
        }
        let mut taken = Self { free: left.values().sum(), at_us: Vec::new() };
        let mut orders: Vec<_> = orders.collect();
        orders.sort_by_key(|seen| seen.at_us);
        let mut counted = HashSet::new();
        for order in orders {
            if !counted.insert(order.order_id.as_str()) {
                continue;
            }
            if let Some(free) = left.get_mut(&*order.item_id).filter(|free| **free > 0) {
                *free -= 1;
                taken.at_us.push(order.at_us);
            }
        }
        Some(taken)
    }

    /// When the last free unit went, in microseconds; `None` when one is left or none was there.
    pub(crate) fn sold_out_at_us(&self) -> Option<u64> {
        self.at_us.last().copied().filter(|_| self.at_us.len() as u64 == self.free)
    }

    fn left_before(&self, end_us: u64) -> u64 {
        let gone = self.at_us.partition_point(|at_us| *at_us < end_us);
        self.free.saturating_sub(gone as u64)
    }
}
