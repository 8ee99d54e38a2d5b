//! The books as they stand outside the product: the ledger's tables and the stock's keys.
//!
//! Both are read by clients and decoders of this crate's own. The ledger is one state, in one
//! transaction; each bucket of the stock is one state, in one step. Between the two, time passes:
//! only at rest do they say the same.

mod holds;
mod ledger;
mod stock;

use std::collections::{BTreeMap, BTreeSet};

use thiserror::Error;

use crate::{ItemId, OrderId, SaleId};

/// Where the books are.
#[derive(Clone, Debug)]
pub struct Sources {
    /// The ledger's server, as `postgres://user:password@host/database`.
    pub postgres: String,
    /// The schema of its tables.
    pub schema: String,
    /// The stock's server, as `redis://host:port`. One server: a cluster has no listing of all its keys.
    pub redis: String,
    /// What stands before every key, with its colon.
    pub prefix: String,
}

/// Why the books cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BooksError {
    /// PostgreSQL refused or could not be reached.
    #[error("the ledger cannot be read")]
    Ledger(#[from] tokio_postgres::Error),
    /// Redis refused or could not be reached.
    #[error("the stock cannot be read")]
    Stock(#[from] redis::RedisError),
    /// A value that is none of the ledger's.
    #[error("the ledger holds {what}: {value}")]
    Value {
        /// What was expected.
        what: &'static str,
        /// What was found.
        value: String,
    },
    /// A value that is none of the stock's.
    #[error("the stock's key {key} holds {value:?}")]
    Packed {
        /// The key.
        key: String,
        /// What cannot be understood in it.
        value: String,
    },
}

/// Everything that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    /// The ledger's sales.
    pub sales: Vec<Sale>,
    /// Their items.
    pub items: Vec<Item>,
    /// What the ledger counted per sale and user.
    pub buyers: Vec<Buyer>,
    /// Every order's row.
    pub orders: Vec<Order>,
    /// Every step of every order, in the order in which they were written.
    pub steps: Vec<OrderStep>,
    /// Orders whose units must still go back.
    pub releases: Vec<OrderId>,
    /// Every payment.
    pub payments: Vec<Payment>,
    /// Every notice of a payment.
    pub payment_events: Vec<PaymentEvent>,
    /// Money to be given back.
    pub refunds: Vec<Refund>,
    /// Where recording stands.
    pub positions: Vec<Position>,
    /// The queue's ends as stored for each epoch.
    pub barriers: Vec<Barrier>,
    /// Changes of quantities.
    pub restocks: Vec<Restock>,
    /// Records that could not be applied.
    pub dead_letters: Vec<DeadLetter>,
    /// The ledger's clock when it was read, in ms since 1970.
    pub read_at_ms: i64,
    /// Every bucket of every epoch of which a key exists.
    pub buckets: Vec<Bucket>,
    /// The queue's ends, if the caller knows them.
    pub ends: Vec<Position>,
}

impl Books {
    /// Reads the ledger and then the stock.
    ///
    /// # Errors
    /// [`BooksError`], also for values that no sound product writes.
    pub async fn read(sources: &Sources) -> Result<Self, BooksError> {
        let mut books = ledger::read(&sources.postgres, &sources.schema).await?;
        books.buckets = stock::read(&sources.redis, &sources.prefix).await?;
        Ok(books)
    }

    /// The bucket of a sale's present epoch.
    pub fn bucket(&self, sale: &Sale) -> Option<&Bucket> {
        self.buckets.iter().find(|it| (it.sale, it.epoch) == (sale.id, sale.epoch))
    }
}

/// A sale's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sale {
    /// Its id.
    pub id: SaleId,
    /// Where it stands, such as `open`.
    pub state: String,
    /// Most units per user.
    pub limit: u64,
    /// Its stock's present generation; 0 before the first.
    pub epoch: u64,
    /// The highest step of this generation that a live order was recorded from.
    pub recorded_seq: u64,
    /// Why it is fenced, if it is.
    pub fence: Option<String>,
}

/// An item's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its id.
    pub id: ItemId,
    /// Its sale.
    pub sale: SaleId,
    /// Units in the sale.
    pub quantity: i64,
    /// Units of live orders.
    pub sold: i64,
    /// Units of paid orders.
    pub paid: i64,
}

/// What the ledger counted for one user of one sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buyer {
    /// The sale.
    pub sale: SaleId,
    /// The user.
    pub user: String,
    /// Units of live orders.
    pub units: i64,
}

/// Where an order stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Recorded and payable.
    Pending,
    /// Paid in time.
    Paid,
    /// Not paid in time.
    Expired,
    /// Given back by its user.
    Cancelled,
    /// Refused by the ledger.
    Rejected,
    /// Paid and given back.
    Refunded,
}

impl Status {
    /// A status by its word.
    pub fn read(word: &str) -> Option<Self> {
        Some(match word {
            "PENDING" => Self::Pending,
            "PAID" => Self::Paid,
            "EXPIRED" => Self::Expired,
            "CANCELLED" => Self::Cancelled,
            "REJECTED" => Self::Rejected,
            "REFUNDED" => Self::Refunded,
            _ => return None,
        })
    }

    /// Whether its units are sold.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Paid)
    }
}

/// An order's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Its id.
    pub id: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// Its item.
    pub item: ItemId,
    /// Its user.
    pub user: String,
    /// Its units.
    pub units: u64,
    /// What is to be paid, in minor units.
    pub total_minor: i64,
    /// The total's currency.
    pub currency: String,
    /// Where it stands.
    pub status: Status,
    /// Why it was refused.
    pub reason: Option<String>,
    /// When its units were taken, by the stock's clock, in ms since 1970.
    pub reserved_at_ms: i64,
    /// The bucket that its units were taken from.
    pub bucket: u64,
    /// That bucket's generation.
    pub epoch: u64,
    /// The step that took them.
    pub seq: u64,
    /// The order that it replaces.
    pub retake_of: Option<OrderId>,
    /// The partition and the offset of the record that made the row.
    pub place: Option<(u64, u64)>,
}

impl Order {
    /// Whether a step of the stock took its units. A retake that the stock refused has a row, so that its id is
    /// closed, and never held any.
    pub fn has_step(&self) -> bool {
        self.seq != 0
    }
}

/// One step of an order's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderStep {
    /// The order.
    pub order: OrderId,
    /// Where it stood; nothing at its birth.
    pub from: Option<Status>,
    /// Where it went.
    pub to: Status,
    /// When, by the ledger's clock, in ms since 1970.
    pub at_ms: i64,
}

/// A payment's row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Who took the money.
    pub provider: String,
    /// The payment.
    pub payment: String,
    /// The order that it is for; the one that bought again, where it paid that.
    pub order: OrderId,
    /// What was paid, in minor units.
    pub amount_minor: i64,
    /// Its currency.
    pub currency: String,
    /// `PAID`, `LATE`, `REFUND_DUE`, `REFUNDED`, `AMOUNT_MISMATCH` or `NO_ORDER`.
    pub outcome: String,
}

/// Money to be given back, or that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// Who took the money.
    pub provider: String,
    /// The payment.
    pub payment: String,
    /// How much, in minor units.
    pub amount_minor: i64,
}

/// One notice of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvent {
    /// Who sent it.
    pub provider: String,
    /// The notice.
    pub event: String,
    /// The payment that it is about.
    pub payment: String,
}

/// The next record of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The queue's topic.
    pub topic: String,
    /// The partition.
    pub partition: u64,
    /// The next record.
    pub next: u64,
}

/// From where on records of older epochs are stale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Barrier {
    /// The sale.
    pub sale: SaleId,
    /// The epoch that it was stored for.
    pub epoch: u64,
    /// The place in the queue.
    pub at: Position,
}

/// A change of an item's quantity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restock {
    /// Names it.
    pub operation: String,
    /// The sale.
    pub sale: SaleId,
    /// The item.
    pub item: ItemId,
    /// The difference.
    pub units: i64,
    /// The epoch in which it began.
    pub epoch: u64,
    /// `open`, `done` or `cancelled`.
    pub state: String,
}

/// A record that could not be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it stood; `next` is its own offset.
    pub at: Position,
    /// What is wrong with it.
    pub why: String,
}

/// What a bucket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It is being loaded.
    Loading,
    /// It sells.
    Open,
    /// It is stopped for good.
    Fenced,
}

/// One bucket of a sale's stock in one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The sale.
    pub sale: SaleId,
    /// Which bucket of the sale.
    pub bucket: u64,
    /// Which generation of it.
    pub epoch: u64,
    /// What it does; nothing when its `cfg` says nothing that is known.
    pub phase: Option<Phase>,
    /// Whether it has more than the mark that stops it.
    pub loaded: bool,
    /// Most units per user.
    pub limit: u64,
    /// The last step that moved units.
    pub seq: u64,
    /// How many holds it counts.
    pub counted_holds: u64,
    /// Free units per item.
    pub free: BTreeMap<ItemId, i64>,
    /// Allocated units per item.
    pub allocated: BTreeMap<ItemId, i64>,
    /// What users hold.
    pub holds: Vec<Hold>,
    /// What is not yet known to be recorded.
    pub outbox: Vec<OutboxEntry>,
    /// Orders that can never hold again.
    pub gone: BTreeSet<OrderId>,
    /// Restocks and what they were answered.
    pub operations: BTreeMap<String, String>,
    /// Keys without the mark that stands in every key that was loaded.
    pub unmarked: Vec<&'static str>,
}

/// Units that one order holds in the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The order.
    pub order: OrderId,
    /// Its user.
    pub user: String,
    /// Its item.
    pub item: ItemId,
    /// Its units.
    pub units: u64,
    /// The step that took them.
    pub seq: u64,
    /// The epoch of that step.
    pub epoch: u64,
    /// When they were taken, in ms since 1970.
    pub reserved_at_ms: i64,
    /// The order that it replaces.
    pub retake_of: Option<OrderId>,
}

/// A hold that is not yet known to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutboxEntry {
    /// The order.
    pub order: OrderId,
    /// Its user.
    pub user: String,
    /// The step that took its units.
    pub seq: u64,
}
