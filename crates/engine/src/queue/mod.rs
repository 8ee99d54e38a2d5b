//! The queue: the durable log of orders placed, from which the ledger is written. Transport only.
//!
//! What every backend promises, each with its test in
//! [`conformance::queue`](crate::conformance::queue):
//!
//! 1. An acknowledged record is read by every reader that starts before it and has its partition:
//!    `an_acknowledged_order_is_read`.
//! 2. Records of one partition keep their order and have growing offsets; a reader goes on where
//!    it was told to start: `a_reader_goes_on_from_its_position`.
//! 3. An error never says that the record is not there: unless it is
//!    [`Fault::Transient`](crate::fault::Fault), it may be read later.
//! 4. The end position is behind every record acknowledged before it was asked for:
//!    `the_end_is_behind_every_acknowledged_order`.
//! 5. A record that cannot be decoded is delivered as unreadable, with its offset, and does not
//!    stop the ones behind it: `an_unreadable_record_is_delivered_as_such`.
//! 6. All of a user's records are in one partition: `a_users_orders_share_a_partition`.

mod embedded;
#[cfg(feature = "distributed")]
mod kafka;
mod message;

pub use embedded::{Appender, EmbeddedQueue, Files, OnFatal, OpenError, QueueOptions, ReadAt, SystemFiles};
#[cfg(feature = "distributed")]
pub use kafka::{KafkaOptions, KafkaQueue, KafkaSasl, KafkaSecurity, KafkaTls, SaslMechanism};
pub use message::{decode, encode};

use std::time::Duration;

use async_trait::async_trait;

use crate::delivery::{Batch, Position};
use crate::fault::BackendError;
use crate::order::{OrderPlaced, UserId};

/// Most records in one [`Batch`].
pub const BATCH_MAX: usize = 500;

/// The partition of a user's orders among `partitions`, the same in every process and version.
pub fn partition_of(user: &UserId, partitions: u32) -> u32 {
    crc32c::crc32c(user.as_bytes()) % partitions.max(1)
}

/// The log of orders placed. See the module's promises.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Appends orders; `results[i]` answers `orders[i]`, once it is durable or failed.
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>>;

    /// Whether new orders can be taken now, from what is known without asking.
    ///
    /// # Errors
    /// A transient fault that says why not.
    fn accepting(&self) -> Result<(), BackendError>;

    /// The end of every partition: behind everything acknowledged so far.
    async fn end_positions(&self) -> Result<Vec<Position>, BackendError>;

    /// A reader that starts nowhere until it is told where.
    async fn reader(&self) -> Result<Box<dyn Reader>, BackendError>;
}

/// What a reader has next.
#[derive(Debug)]
pub enum NextOutcome {
    /// Records of one partition, at least one.
    Batch(Batch),
    /// Nothing came in time.
    Idle,
    /// Other partitions are this reader's now, since other readers came or went. Somebody else may
    /// have read them until now, so only the ledger knows where to go on: read its positions and
    /// [`seek`](Reader::seek) again; until then, this is the answer.
    Moved,
}

/// Reads a queue from positions that the ledger keeps. Where several processes read, each reader
/// has a share of the partitions, and the shares change as readers come and go.
#[async_trait]
pub trait Reader: Send + Sync {
    /// Goes on from these positions; partitions that are not named are not read. Names all that
    /// the ledger has: the reader takes those that are its own.
    ///
    /// # Errors
    /// A permanent fault when no position is in the log: records were deleted before they were read, or
    /// the log's end was lost. Where only some are not, these are left out and told in the log, and
    /// [`NextOutcome::Moved`] comes now and then until they are. Nothing is skipped.
    async fn seek(&mut self, positions: &[Position]) -> Result<(), BackendError>;

    /// The next records of one partition, at most `max`, waiting at most `wait` for the first.
    /// Reads on behind them next time, whether or not they were applied.
    async fn next(&mut self, max: usize, wait: Duration) -> Result<NextOutcome, BackendError>;
}
