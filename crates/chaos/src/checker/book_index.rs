//! The books by the names that the checks look them up by.

use std::collections::HashMap;

use crate::books::{Books, Hold, Item, Order, OrderStep, Sale};
use crate::{ItemId, OrderId, SaleId};

/// Books by order, sale and item. Where a name stands twice, the first row counts; that it stands
/// twice is for a check to say.
pub(super) struct Index<'a> {
    pub(super) orders: HashMap<OrderId, &'a Order>,
    pub(super) steps: HashMap<OrderId, Vec<&'a OrderStep>>,
    pub(super) sales: HashMap<SaleId, &'a Sale>,
    pub(super) items: HashMap<ItemId, &'a Item>,
    /// Holds of any bucket that is not emptied.
    pub(super) holds: HashMap<OrderId, &'a Hold>,
}

impl<'a> Index<'a> {
    pub(super) fn new(books: &'a Books) -> Self {
        let mut orders = HashMap::new();
        for order in &books.orders {
            orders.entry(order.id).or_insert(order);
        }
        let mut steps: HashMap<OrderId, Vec<&OrderStep>> = HashMap::new();
        for step in &books.steps {
            steps.entry(step.order).or_default().push(step);
        }
        let holds = books.buckets.iter().flat_map(|bucket| &bucket.holds);
        Self {
            orders,
            steps,
            sales: books.sales.iter().map(|sale| (sale.id, sale)).collect(),
            items: books.items.iter().map(|item| (item.id, item)).collect(),
            holds: holds.map(|hold| (hold.order, hold)).collect(),
        }
    }

    /// Whether the order ever was live: its first step made it so.
    pub(super) fn was_live(&self, order: OrderId) -> bool {
        let birth = self.steps.get(&order).and_then(|steps| steps.iter().find(|step| step.from.is_none()));
        birth.is_some_and(|step| step.to.is_live())
    }
}

/// Units of the live orders per item.
pub(super) fn live_units(books: &Books) -> HashMap<ItemId, i64> {
    units_where(books, |order| order.status.is_live())
}

/// Units per item of the orders that `wanted` chooses.
pub(super) fn units_where(books: &Books, wanted: impl Fn(&Order) -> bool) -> HashMap<ItemId, i64> {
    let mut units = HashMap::new();
    for order in books.orders.iter().filter(|order| wanted(order)) {
        *units.entry(order.item).or_default() += i64::try_from(order.units).unwrap_or(i64::MAX);
    }
    units
}
