//! What travels from the queue to the ledger: positions, and batches of records.

use std::fmt;

use crate::clock::Timestamp;
use crate::order::OrderPlaced;

/// The identity of a topic: another log under the same name has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub String);

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A place in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The topic.
    pub topic: TopicId,
    /// The partition, from 0.
    pub partition: u32,
    /// The offset of the next record to be read there.
    pub next: u64,
}

/// Whether somebody at these positions has come as far as each of these ends.
pub fn reached(positions: &[Position], ends: &[Position]) -> bool {
    ends.iter().all(|end| {
        positions
            .iter()
            .any(|it| it.topic == end.topic && it.partition == end.partition && it.next >= end.next)
    })
}

/// One record that was read.
#[derive(Clone, Debug)]
pub struct Delivered {
    /// Its offset.
    pub offset: u64,
    /// When the queue took it.
    pub appended_at: Timestamp,
    /// What it says.
    pub contents: Decoded,
}

/// Records of one partition, in offset order.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Where the first record was looked for.
    pub from: Position,
    /// The offset to go on from once these are applied.
    pub next: u64,
    /// The records; offsets may have gaps.
    pub records: Vec<Delivered>,
}

/// What a record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// An order.
    Order(Box<OrderPlaced>),
    /// A message of a version that this program does not know: stop and alarm, never skip.
    UnknownVersion(u32),
    /// An order that the ledger refused for good when it was applied alone.
    Refused {
        /// The order.
        order: Box<OrderPlaced>,
        /// What the ledger said.
        why: String,
    },
    /// Not a message.
    Unreadable {
        /// The record's bytes.
        bytes: Vec<u8>,
        /// What is wrong with them.
        why: String,
    },
}

impl Decoded {
    /// The order that the record is about, where it names one.
    pub fn order(&self) -> Option<&OrderPlaced> {
        match self {
            Self::Order(order) | Self::Refused { order, .. } => Some(order),
            Self::UnknownVersion(_) | Self::Unreadable { .. } => None,
        }
    }
}
