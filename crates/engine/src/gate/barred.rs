//! Who may not buy in a sale: by strikes, or by a block of the staff's. Read beside the purchase path, looked up on it.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use arc_swap::ArcSwap;

use super::BlockList;
use crate::order::{SaleId, UserId};

/// Everybody who may not buy; all cores of a process share it.
#[derive(Debug, Default)]
pub struct Barred {
    /// The users of each sale who have too many strikes in it.
    struck: ArcSwap<BTreeMap<SaleId, HashSet<UserId>>>,
    blocks: ArcSwap<BlockList>,
}

impl Barred {
    /// Whether this user has too many strikes in this sale.
    pub(super) fn has(&self, sale: SaleId, user: &UserId) -> bool {
        self.struck.load().get(&sale).is_some_and(|users| users.contains(user))
    }

    /// Whether the staff has blocked this user, or the network of this address, in this sale.
    pub(super) fn blocks(&self, sale: SaleId, user: &UserId, address: IpAddr) -> bool {
        self.blocks.load().includes(sale, user, address)
    }

    /// How many blocks of this kind stand.
    pub fn blocked(&self, kind: &str) -> u64 {
        self.blocks.load().count(kind)
    }

    /// Replaces the blocks that stand.
    pub fn replace_blocks(&self, blocks: BlockList) {
        self.blocks.store(blocks.into());
    }

    /// Replaces the users of all sales.
    pub fn replace(&self, sales: BTreeMap<SaleId, HashSet<UserId>>) {
        self.struck.store(sales.into());
    }

    /// The users of one sale as they were read last, if they were.
    pub fn of(&self, sale: SaleId) -> Option<HashSet<UserId>> {
        self.struck.load().get(&sale).cloned()
    }

    /// How many users have too many strikes, over all sales.
    pub fn count(&self) -> usize {
        self.struck.load().values().map(HashSet::len).sum()
    }
}
