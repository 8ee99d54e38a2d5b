//! Every step that some process, some buyer or some fault may take, said in words: a counterexample is
//! a list of these.

use std::fmt;

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// A reserve call arrives at the stock of an epoch, and its answer at whoever sent it.
    Reserve { order: u8, epoch: u8 },
    /// A buyer or a gateway sends the call again; from now on copies may arrive at any time.
    Repeat { order: u8 },
    /// A gateway publishes what it reserved.
    Publish { order: u8, epoch: u8, acknowledged: bool },
    /// A recorder reads the next record.
    Read { recorder: u8 },
    /// A recorder commits what it has read.
    Commit { recorder: u8 },
    /// A recorder finds that the ledger refuses what it has read, and commits a dead letter.
    DeadLetter { recorder: u8 },
    /// A recorder cannot read the record, and commits that it was put aside.
    Park { recorder: u8 },
    /// The outbox entry of a live order is dropped.
    Confirm { order: u8, epoch: u8 },
    /// An order in the outbox is closed already: its release row is made sure of.
    EnsureRelease { order: u8 },
    /// A sweeper reads the queue's end, for an order that the ledger does not know.
    NoteEnd { sweeper: u8, order: u8 },
    /// A sweeper publishes an order again.
    PublishAgain { sweeper: u8, order: u8 },
    /// An order is not paid in time.
    Expire { order: u8 },
    /// A buyer cancels.
    Cancel { order: u8 },
    /// The provider tells of a payment.
    Pay { payment: u8, late: bool },
    /// A waiting payment is settled by the row of the order that it placed anew.
    Settle { payment: u8 },
    /// The stock has refused the order that a payment placed anew: the payment is decided.
    DecideRefused { payment: u8 },
    /// A releaser reads a release row and an epoch.
    ReadRelease { releaser: u8, order: u8, epoch: u8 },
    /// A releaser gives the units back to the stock.
    Release { releaser: u8 },
    /// A releaser deletes the row.
    DeleteRelease { releaser: u8 },
    /// A loader starts a rebuild, or takes it over.
    Begin { loader: u8 },
    /// A loader goes one step further.
    Load { loader: u8, step: Step },
    /// A loader publishes what is left in an old outbox.
    PublishOutbox { loader: u8, order: u8, epoch: u8 },
    /// The stock is lost.
    Flush,
    /// The stock is saved.
    Save,
    /// The stock goes back to what was saved.
    GoBack,
    /// The queue loses its last record.
    LoseRecord,
    /// The next record comes a second time, behind all others.
    Duplicate,
    /// Planted: a sweeper closes an order that is not recorded.
    GiveUp { sweeper: u8, order: u8 },
    /// Planted: units go back before the order is closed.
    ReleaseEarly { order: u8 },
}

/// One step of a rebuild.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// Stops the older buckets.
    FenceOld,
    /// Reads the queue's end, once the ledger knows all that the old outboxes have.
    ReadEnd,
    /// Stores the barrier, or takes the stored one.
    StoreBarrier,
    /// Lowers what lies beyond the queue's end: the position and the barrier.
    LowerToEnd,
    /// Makes the bucket its own.
    BeginLoad,
    /// Reads the ledger.
    ReadSnapshot,
    /// Writes the page of items.
    LoadItems,
    /// Writes the page of holds and closed ids.
    LoadHolds,
    /// Reads everything back.
    ReadBack,
    /// Opens the bucket.
    Flip,
    /// Lifts the fence in the ledger.
    LiftFence,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Reserve { order, epoch } => {
                write!(f, "stock {epoch}: a reserve call of order {order} arrives")
            }
            Self::Repeat { order } => write!(f, "gateway: sends the reserve call of order {order} again"),
            Self::Publish { order, epoch, acknowledged: true } => {
                write!(f, "gateway: publishes order {order} of epoch {epoch}, acknowledged")
            }
            Self::Publish { order, epoch, acknowledged: false } => {
                write!(f, "gateway: publishes order {order} of epoch {epoch}, the acknowledgement is lost")
            }
            Self::Read { recorder } => write!(f, "recorder {recorder}: reads the next record"),
            Self::Commit { recorder } => write!(f, "recorder {recorder}: commits what it has read"),
            Self::DeadLetter { recorder } => {
                write!(f, "recorder {recorder}: commits what it has read as a dead letter")
            }
            Self::Park { recorder } => {
                write!(f, "recorder {recorder}: cannot read the record, puts it aside")
            }
            Self::Confirm { order, epoch } => write!(f, "stock {epoch}: order {order} is confirmed"),
            Self::EnsureRelease { order } => {
                write!(f, "sweeper: order {order} is closed, makes sure of its release row")
            }
            Self::NoteEnd { sweeper, order } => {
                write!(f, "sweeper {sweeper}: reads the queue's end for order {order}")
            }
            Self::PublishAgain { sweeper, order } => {
                write!(f, "sweeper {sweeper}: publishes order {order} again")
            }
            Self::Expire { order } => write!(f, "expirer: order {order} is not paid in time"),
            Self::Cancel { order } => write!(f, "buyer: cancels order {order}"),
            Self::Pay { payment, late: false } => write!(f, "provider: payment {payment} arrives in time"),
            Self::Pay { payment, late: true } => write!(f, "provider: payment {payment} arrives late"),
            Self::Settle { payment } => write!(f, "payer: settles payment {payment} by its new order"),
            Self::DecideRefused { payment } => {
                write!(f, "payer: the stock refused the new order of payment {payment}, decides")
            }
            Self::ReadRelease { releaser, order, epoch } => {
                write!(f, "releaser {releaser}: reads the release row of order {order}, for epoch {epoch}")
            }
            Self::Release { releaser } => write!(f, "releaser {releaser}: calls the stock"),
            Self::DeleteRelease { releaser } => write!(f, "releaser {releaser}: deletes the row"),
            Self::Begin { loader } => write!(f, "loader {loader}: starts a rebuild or takes it over"),
            Self::Load { loader, step } => write!(f, "loader {loader}: {step}"),
            Self::PublishOutbox { loader, order, epoch } => {
                write!(f, "loader {loader}: publishes order {order} from the outbox of epoch {epoch}")
            }
            Self::Flush => write!(f, "FAULT: the stock is emptied"),
            Self::Save => write!(f, "the stock is saved"),
            Self::GoBack => write!(f, "FAULT: the stock goes back to what was saved"),
            Self::LoseRecord => write!(f, "FAULT: the queue loses its last record"),
            Self::Duplicate => write!(f, "FAULT: the next record comes once more, behind all others"),
            Self::GiveUp { sweeper, order } => write!(f, "PLANTED: sweeper {sweeper} gives order {order} up"),
            Self::ReleaseEarly { order } => {
                write!(f, "PLANTED: the units of order {order} go back, its row is not committed")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FenceOld => "fences the older buckets",
            Self::ReadEnd => "reads the queue's end",
            Self::StoreBarrier => "stores the barrier",
            Self::LowerToEnd => "lowers position and barrier to the queue's end",
            Self::BeginLoad => "takes the bucket",
            Self::ReadSnapshot => "reads the ledger",
            Self::LoadItems => "writes the items",
            Self::LoadHolds => "writes the holds",
            Self::ReadBack => "reads everything back",
            Self::Flip => "opens the bucket",
            Self::LiftFence => "lifts the fence",
        })
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
