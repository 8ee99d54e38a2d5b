//! One state of the whole system: stock, queue, ledger, what every process holds in its hands, and
//! what the checker remembers of the past.
//!
//! Everything is a small number or a set of at most eight, so that a state is about 200 bytes.

use crate::witness::Witness;

/// Orders a state has room for: three of buyers, and one that each payment may place anew.
pub const ORDERS: usize = 5;
/// The first of the two orders that a late payment places.
pub const FIRST_RETAKE: u8 = 3;
/// Most rebuilds there can be: two by the scope, one by healing.
pub const REBUILDS: u8 = 3;
/// Epochs a state has room for.
pub const EPOCHS: usize = REBUILDS as usize + 1;
/// Unread records a state has room for.
pub const RECORDS: usize = 6;
/// Users.
pub const USERS: usize = 2;
/// Of each kind of worker there may be two.
pub const TWICE: usize = 2;

/// A set of orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Orders(pub u8);

impl Orders {
    /// Whether `order` is in it.
    pub fn has(self, order: u8) -> bool {
        self.0 & (1 << order) != 0
    }

    /// Puts `order` in.
    pub fn add(&mut self, order: u8) {
        self.0 |= 1 << order;
    }

    /// Takes `order` out.
    pub fn drop(&mut self, order: u8) {
        self.0 &= !(1 << order);
    }

    /// Its orders, the lowest first.
    pub fn each(self) -> impl Iterator<Item = u8> {
        (0..8).filter(move |order| self.has(*order))
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// Where a bucket stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Its keys are not there.
    #[default]
    Missing,
    /// A loader fills it.
    Loading,
    /// It takes reservations.
    Open,
    /// It takes none any more.
    Fenced,
}

/// The stock of one epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bucket {
    /// Where it stands.
    pub phase: Phase,
    /// The loader that may fill it.
    pub token: u8,
    /// Pages loaded: the items, then the holds and closed ids.
    pub pages: u8,
    /// Units allocated to it.
    pub allocated: u8,
    /// Units that can be reserved.
    pub free: u8,
    /// Orders that hold units.
    pub holds: Orders,
    /// Of these, the ones not known to be recorded.
    pub outbox: Orders,
    /// Orders closed in this epoch.
    pub gone: Orders,
    /// Orders that held units in this bucket at some time (for I9).
    pub taken: Orders,
}

/// An order's message in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Record {
    /// The order.
    pub order: u8,
    /// The epoch whose stock reserved it, counted from 0.
    pub epoch: u8,
    /// Whether a sweeper published it.
    pub swept: bool,
}

/// The queue's one partition. The ledger's position is its origin: what was recorded is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Queue {
    /// Unread records, the next to be read first.
    pub records: [Record; RECORDS],
    /// How many of them there are.
    pub len: u8,
    /// How far the queue's end lies before the ledger's position, after it lost recorded records.
    pub behind: u8,
}

/// What the ledger says of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Status {
    /// No row.
    #[default]
    Unknown,
    /// May be paid.
    Pending,
    /// Paid.
    Paid,
    /// Not paid in time.
    Expired,
    /// Cancelled by its user.
    Cancelled,
    /// Refused: no stock, over the limit, of an old epoch, or the retake was refused by the stock.
    Rejected,
    /// Refused since the ledger cannot take the record.
    Unreadable,
}

impl Status {
    /// Whether the order has its units.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Paid)
    }

    /// Whether it is closed for good.
    pub fn is_terminal(self) -> bool {
        !self.is_live() && self != Self::Unknown
    }
}

/// Where a payment stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Payment {
    /// The provider has told nothing yet.
    #[default]
    Unseen,
    /// It came late and waits for the order that it places anew.
    Waiting {
        /// Whether the payer holds a refusal of the stock in its hands.
        refused: bool,
    },
    /// It paid the order it was for.
    PaidOrder,
    /// It paid the order that it placed anew.
    PaidRetake,
    /// It goes back.
    Refunded,
}

/// The ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Ledger {
    /// Every order's row.
    pub orders: [Status; ORDERS],
    /// Units sold, as counted with the rows.
    pub sold: i8,
    /// Units per user, as counted with the rows.
    pub buyers: [i8; USERS],
    /// Release rows.
    pub releases: Orders,
    /// The sale's epoch, counted from 0.
    pub epoch: u8,
    /// The loader that owns the rebuild under way.
    pub fence: Option<u8>,
    /// Per epoch the barrier, counted from the position: 0 and less is passed.
    pub barriers: [Option<i8>; EPOCHS],
    /// Every payment.
    pub payments: [Payment; TWICE],
}

/// What was sent to the stock for an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Calls {
    /// At most one call, not answered yet.
    #[default]
    One,
    /// One call, which took the units.
    Answered,
    /// Several; each may arrive at any time, and again.
    Many,
}

/// A record that a recorder has read and not committed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reading {
    /// The record.
    pub record: Record,
    /// Its place, counted from the ledger's position.
    pub at: i8,
}

/// What a releaser holds in its hands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Releasing {
    /// Nothing.
    #[default]
    Idle,
    /// A release row, and the epoch that was read with it.
    Read {
        /// The order.
        order: u8,
        /// The epoch.
        epoch: u8,
    },
    /// A row whose units the stock has taken back.
    Applied {
        /// The order.
        order: u8,
    },
}

/// How far a loader came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Stage {
    /// It does nothing.
    #[default]
    Idle,
    /// It owns the rebuild.
    Begun,
    /// The older buckets are fenced.
    OldFenced,
    /// It has read the queue's end.
    EndRead,
    /// The epoch's barrier is stored.
    BarrierStored,
    /// The bucket is its own to fill.
    LoadBegun,
    /// It has read the ledger.
    SnapshotRead,
    /// The page of items is written.
    ItemsLoaded,
    /// The page of holds is written.
    HoldsLoaded,
    /// All was read back as it should be.
    ReadBack,
    /// The bucket is open.
    Opened,
}

/// One loader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Loader {
    /// How far it came.
    pub stage: Stage,
    /// The epoch it loads.
    pub epoch: u8,
    /// The queue's end as it read it, counted from the position.
    pub end: i8,
    /// Live orders as it read them.
    pub live: Orders,
    /// Closed orders as it read them.
    pub closed: Orders,
    /// Pages as it read them back.
    pub pages: u8,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    /// Losses of the whole stock.
    pub flushes: u8,
    /// Returns of the stock to what was saved.
    pub rewinds: u8,
    /// Losses of the queue's last record.
    pub losses: u8,
    /// Records that come twice.
    pub duplicates: u8,
    /// Records that the ledger cannot take, or cannot read.
    pub dead_letters: u8,
}

/// The whole system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    /// The stock, per epoch.
    pub buckets: [Bucket; EPOCHS],
    /// The stock as it was saved, to which it may go back.
    pub saved: Option<[Bucket; EPOCHS]>,
    /// What was sent to the stock for each order.
    pub calls: [Calls; ORDERS],
    /// Per epoch the orders that a gateway is about to publish.
    pub publishing: [Orders; EPOCHS],
    /// Orders whose buyers got a 202.
    pub accepted: Orders,
    /// Orders whose buyers were told a final no.
    pub refused: Orders,
    /// The queue.
    pub queue: Queue,
    /// The ledger.
    pub ledger: Ledger,
    /// What each recorder holds in its hands.
    pub recorders: [Option<Reading>; TWICE],
    /// Per sweeper and order the queue's end as it was read after the last publish.
    pub noted: [[Option<u8>; ORDERS]; TWICE],
    /// What each releaser holds in its hands.
    pub releasers: [Releasing; TWICE],
    /// The loaders.
    pub loaders: [Loader; TWICE],
    /// Faults that may still happen.
    pub budget: Budget,
    /// What the checker remembers of the past.
    pub witness: Witness,
}

impl State {
    /// The bucket of the sale's epoch.
    pub fn bucket(&self) -> &Bucket {
        &self.buckets[usize::from(self.ledger.epoch)]
    }

    /// The bucket of `epoch`.
    pub fn bucket_mut(&mut self, epoch: u8) -> &mut Bucket {
        &mut self.buckets[usize::from(epoch)]
    }

    /// What the ledger says of `order`.
    pub fn status(&self, order: u8) -> Status {
        self.ledger.orders[usize::from(order)]
    }

    /// The orders with a row that `is` holds for.
    pub fn orders_where(&self, is: fn(Status) -> bool) -> Orders {
        let mut found = Orders::default();
        for order in (0..8).take(ORDERS) {
            if is(self.status(order)) {
                found.add(order);
            }
        }
        found
    }
}
