//! Who may not buy in a sale any more. Read beside the purchase path, looked up on it.

use std::collections::{BTreeMap, HashSet};

use arc_swap::ArcSwap;

use crate::order::{SaleId, UserId};

/// The users of each sale who may not buy in it; all cores of a process share it.
#[derive(Debug, Default)]
pub struct Barred(ArcSwap<BTreeMap<SaleId, HashSet<UserId>>>);

impl Barred {
    /// Whether this user may not buy in this sale.
    pub(super) fn has(&self, sale: SaleId, user: &UserId) -> bool {
        self.0.load().get(&sale).is_some_and(|users| users.contains(user))
    }

    /// Replaces the users of all sales.
    pub fn replace(&self, sales: BTreeMap<SaleId, HashSet<UserId>>) {
        self.0.store(sales.into());
    }

    /// The users of one sale as they were read last, if they were.
    pub fn of(&self, sale: SaleId) -> Option<HashSet<UserId>> {
        self.0.load().get(&sale).cloned()
    }

    /// How many users are barred, over all sales.
    pub fn count(&self) -> usize {
        self.0.load().values().map(HashSet::len).sum()
    }
}
