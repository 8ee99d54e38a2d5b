//! What the checker remembers of the past: no process of the system can read it.
//!
//! Most invariants can be seen in one state. Those that are about a step (a unit went back too early,
//! a row left a final status) are noted here when the step is done, and stay noted.

use crate::state::{EPOCHS, Orders};

/// An invariant of the protocol's section 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Invariant {
    /// Live units of an item never exceed its quantity.
    I1,
    /// The count of sold units is the sum over live orders.
    I2,
    /// The count of a user's units is the sum over live orders, within the limit.
    I3,
    /// Every 202 has a row in the end.
    I4,
    /// No live order for a request that was told a final no.
    I4b,
    /// Orders change along the arrows only, and end once.
    I5,
    /// A paid order stays paid, and each payment has exactly one outcome.
    I6,
    /// Free and held units of a bucket are what was allocated; the outbox is part of the holds.
    I7,
    /// At rest the holds are the live orders.
    I8,
    /// An order takes units of an epoch's stock at most once.
    I9,
    /// Units go back only after the row that closes their order.
    I10,
    /// At rest every unit that is not sold can be bought.
    I12,
    /// The position never goes back, and every record is applied at its place.
    I13,
    /// "Sold out" is only said when nothing was free.
    I14,
    /// Without a loss of stock an epoch opens once.
    I15,
    /// No old order becomes live beside the stock of a newer epoch.
    I16,
    /// Without a loss of stock no 202 ends REJECTED.
    I17,
    /// Outbox, release rows, fences and copies under way do not stay or pile up.
    I18,
}

impl Invariant {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::I1,
        Self::I2,
        Self::I3,
        Self::I4,
        Self::I4b,
        Self::I5,
        Self::I6,
        Self::I7,
        Self::I8,
        Self::I9,
        Self::I10,
        Self::I12,
        Self::I13,
        Self::I14,
        Self::I15,
        Self::I16,
        Self::I17,
        Self::I18,
    ];
}

/// The memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Witness {
    /// The invariants that a step broke, one bit each.
    broken: u32,
    /// How often each epoch's stock was opened, up to two.
    pub opened: [u8; EPOCHS],
    /// Epochs whose stock was opened and lost something later, one bit each.
    pub damaged: u8,
    /// Orders of which the queue lost a record.
    pub lost: Orders,
}

impl Witness {
    /// Notes that a step broke `invariant`.
    pub fn note(&mut self, invariant: Invariant) {
        self.broken |= 1 << invariant as u32;
    }

    /// Whether a step broke `invariant`.
    pub fn noted(&self, invariant: Invariant) -> bool {
        self.broken & (1 << invariant as u32) != 0
    }

    /// Whether the stock of `epoch` lost something after it was opened.
    pub fn is_damaged(&self, epoch: u8) -> bool {
        self.damaged & (1 << epoch) != 0
    }
}
