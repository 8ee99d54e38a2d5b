//! The rules by which a batch of records becomes rows: pure, the same for every backend.
//!
//! A backend loads [`Facts`] under its locks, calls [`judge`], and writes the verdicts in the same
//! transaction.

use std::collections::HashMap;

use crate::delivery::{Batch, Decoded};
use crate::order::{
    Epoch, ItemId, Money, OrderId, OrderPlaced, OrderStatus, RejectReason, Reservation, SaleId, Units, UserId,
};

/// What the ledger knows of an order that a record is about.
#[derive(Clone, Debug)]
pub struct KnownOrder {
    /// Its item.
    pub item: ItemId,
    /// Its user.
    pub user: UserId,
    /// Its units.
    pub units: Units,
    /// Where it stands.
    pub status: OrderStatus,
}

/// What the ledger knows of an item.
#[derive(Clone, Copy, Debug)]
pub struct ItemFacts {
    /// Units in the sale.
    pub quantity: u64,
    /// Units of live orders.
    pub sold: u64,
    /// Price of one unit.
    pub price: Money,
}

/// What the ledger knows of a sale.
#[derive(Clone, Debug)]
pub struct SaleFacts {
    /// Most units per user.
    pub limit: Units,
    /// Its present epoch.
    pub epoch: Epoch,
    /// Its items.
    pub items: HashMap<ItemId, ItemFacts>,
    /// Per later epoch, the batch's partition's barrier.
    pub barriers: Vec<(Epoch, u64)>,
}

/// Everything the rules need, read under the locks.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Orders of the batch that have a row.
    pub known: HashMap<OrderId, KnownOrder>,
    /// Sales of the batch.
    pub sales: HashMap<SaleId, SaleFacts>,
    /// Live units of the batch's users.
    pub buyers: HashMap<(SaleId, UserId), u64>,
}

/// What a record becomes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing: the order has a row, or an earlier record of this batch is the same.
    Known {
        /// Whether its outbox entry may go.
        live: bool,
    },
    /// A parked record and, if the order is named and has no row, a row REJECTED(UNREADABLE).
    Dead {
        /// What is wrong, for the operator.
        why: String,
    },
    /// A row that says no, and a release row.
    Rejected(RejectReason),
    /// A live row.
    Pending {
        /// What is to be paid.
        total: Money,
    },
}

/// One verdict per record, in order. `facts` is changed as the batch goes on, so that later
/// records see what earlier ones took.
pub fn judge(batch: &Batch, facts: &mut Facts) -> Vec<Verdict> {
    batch
        .records
        .iter()
        .map(|record| match &record.contents {
            Decoded::Order(order) => judge_order(order, record.offset, facts),
            Decoded::Refused { order, why } => match facts.known.get(&order.reservation.order) {
                Some(known) => Verdict::Known { live: known.status.is_live() },
                None => Verdict::Dead { why: why.clone() },
            },
            Decoded::Unreadable { why, .. } => Verdict::Dead { why: why.clone() },
            // The recorder stops before such a record; this is never reached through it.
            Decoded::UnknownVersion(version) => Verdict::Dead { why: format!("message version {version}") },
        })
        .collect()
}

fn judge_order(placed: &OrderPlaced, offset: u64, facts: &mut Facts) -> Verdict {
    let order = &placed.reservation;
    if let Some(known) = facts.known.get(&order.order) {
        return if (known.item, &known.user, known.units) == (order.item, &order.user, order.units) {
            Verdict::Known { live: known.status.is_live() }
        } else {
            Verdict::Dead { why: "another order has this id".to_owned() }
        };
    }
    let Some(sale) = facts.sales.get_mut(&order.sale) else {
        return Verdict::Dead { why: format!("there is no sale {}", order.sale) };
    };
    let stale = sale.barriers.iter().any(|(epoch, barrier)| *epoch > order.epoch && offset >= *barrier);
    let Some(item) = sale.items.get_mut(&order.item) else {
        return Verdict::Dead { why: format!("sale {} has no item {}", order.sale, order.item) };
    };
    let units = u64::from(order.units.0);
    let buyer = facts.buyers.entry((order.sale, order.user.clone())).or_default();
    let verdict = if !(1..=sale.limit.0).contains(&order.units.0) {
        Verdict::Dead { why: format!("{} units where 1 to {} are allowed", order.units.0, sale.limit.0) }
    } else if stale {
        Verdict::Rejected(RejectReason::StaleEpoch)
    } else if item.sold + units > item.quantity {
        Verdict::Rejected(RejectReason::NoStock)
    } else if *buyer + units > u64::from(sale.limit.0) {
        Verdict::Rejected(RejectReason::Limit)
    } else {
        item.sold += units;
        *buyer += units;
        Verdict::Pending { total: item.price.times(order.units) }
    };

    let status = match verdict {
        Verdict::Pending { .. } => OrderStatus::Pending,
        _ => OrderStatus::Rejected,
    };
    facts.known.insert(order.order, known(order, status));
    verdict
}

fn known(order: &Reservation, status: OrderStatus) -> KnownOrder {
    KnownOrder { item: order.item, user: order.user.clone(), units: order.units, status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::conformance::sample;
    use crate::delivery::Delivered;

    fn batch(orders: Vec<OrderPlaced>) -> Batch {
        let records = orders
            .into_iter()
            .zip(100..)
            .map(|(order, offset)| Delivered {
                offset,
                appended_at: Timestamp::from_ms(0),
                contents: Decoded::Order(Box::new(order)),
            })
            .collect();
        Batch { from: sample::position(100), next: 200, records }
    }

    fn facts(quantity: u64, limit: u32, barriers: Vec<(Epoch, u64)>) -> Facts {
        let item = ItemFacts { quantity, sold: 0, price: sample::price() };
        let sale = SaleFacts {
            limit: Units(limit),
            epoch: Epoch(1),
            items: HashMap::from([(ItemId(1), item)]),
            barriers,
        };
        Facts { sales: HashMap::from([(SaleId(1), sale)]), ..Facts::default() }
    }

    #[test]
    fn a_duplicate_is_recognised_before_any_other_rule() {
        let order = sample::order_placed(1);
        let mut facts = facts(1, 1, vec![(Epoch(2), 101)]);
        let verdicts = judge(&batch(vec![order.clone(), order]), &mut facts);
        // The second copy stands behind the barrier and the stock is used up: still just known.
        assert!(matches!(verdicts[0], Verdict::Pending { .. }));
        assert_eq!(verdicts[1], Verdict::Known { live: true });
    }

    #[test]
    fn other_content_under_a_known_id_is_parked() {
        let (one, mut other) = (sample::order_placed(1), sample::order_placed(2));
        other.reservation.order = one.reservation.order;
        let verdicts = judge(&batch(vec![one, other]), &mut facts(9, 1, vec![]));
        assert!(matches!(verdicts[1], Verdict::Dead { .. }));
    }

    #[test]
    fn room_is_given_in_offset_order() {
        let orders = (1..=3).map(sample::order_placed).collect();
        let verdicts = judge(&batch(orders), &mut facts(2, 1, vec![]));
        assert!(matches!(verdicts[1], Verdict::Pending { .. }));
        assert_eq!(verdicts[2], Verdict::Rejected(RejectReason::NoStock));
    }

    #[test]
    fn a_users_second_order_is_over_the_limit() {
        let (one, mut other) = (sample::order_placed(1), sample::order_placed(2));
        other.reservation.user = one.reservation.user.clone();
        let verdicts = judge(&batch(vec![one, other]), &mut facts(9, 1, vec![]));
        assert_eq!(verdicts[1], Verdict::Rejected(RejectReason::Limit));
    }

    #[test]
    fn a_record_is_stale_from_the_first_barrier_of_a_later_epoch_on() {
        let orders = (1..=2).map(sample::order_placed).collect();
        let verdicts = judge(&batch(orders), &mut facts(9, 1, vec![(Epoch(2), 101), (Epoch(3), 900)]));
        assert!(matches!(verdicts[0], Verdict::Pending { .. }));
        assert_eq!(verdicts[1], Verdict::Rejected(RejectReason::StaleEpoch));
    }

    #[test]
    fn unknown_sales_items_and_units_are_parked() {
        let mut orders: Vec<OrderPlaced> = (1..=4).map(sample::order_placed).collect();
        orders[0].reservation.sale = SaleId(9);
        orders[1].reservation.item = ItemId(9);
        orders[2].reservation.units = Units(0);
        orders[3].reservation.units = Units(2);
        for verdict in judge(&batch(orders), &mut facts(9, 1, vec![])) {
            assert!(matches!(verdict, Verdict::Dead { .. }), "{verdict:?}");
        }
    }
}
