//! The faults that can be planted into the model. Each must be found; a checker that finds nothing
//! has shown nothing before it has found these.
//!
//! The first group is the table of faults of the protocol's section 8, the second the sentences of
//! which the protocol says that a model broke without them, the third three rules of the ledger without
//! which the first invariants would never have failed anywhere. [`Planted::NotedEndNeverLowered`] is
//! neither (nor is [`Planted::PageWrittenAgain`], which the engine's script refuses): the protocol lowers a barrier that lies beyond the queue's end, and says nothing of the
//! end that a sweeper has noted; this model found that it needs the same.
//!
//! What this model cannot say, and where it is tested instead: a restock that counts twice, the
//! sold-out flag set by "not enough" (the simulation in `crates/engine/tests/simulation` plants both);
//! a limit per item, unchecked quantities, the partition of a user (conformance suites and unit
//! tests of the engine); slots, keys and clusters (`crates/engine/tests/redis_cluster.rs`); locks of
//! PostgreSQL (`crates/engine/tests/postgres`); JSON, owners and times (`crates/server/tests`). A
//! false alarm of the reconciler is no fault here: any process may start a rebuild at any time.

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// Only one row per user, whatever its status: a second purchase after an expiry is swallowed.
    UniqueUser,
    /// A release frees whatever its user holds.
    ReleaseByUser,
    /// A publish that timed out gives the units back.
    ReleaseOnFailedPublish,
    /// 202 is said before the queue acknowledges.
    AcceptedBeforeAcknowledged,
    /// The reserve step leaves no outbox entry.
    NoOutbox,
    /// Units go back before the transaction that closes their order commits.
    ReleaseInsideTransaction,
    /// A duplicate is judged by stock rules before it is recognised.
    StockRulesBeforeDuplicates,
    /// A late payment revives the order it was for.
    RetakeWithSameId,
    /// Two events of one payment are decided as two payments.
    PaymentsByEventOnly,
    /// The sweeper publishes what is old again, wherever the recorder is.
    RepublishByAge,
    /// The sweeper closes what is old and not recorded.
    GiveUpByAge,
    /// Releases go to an epoch that was read earlier.
    ReleaseOnCachedEpoch,
    /// The stock does not remember closed orders.
    NoGone,
    /// A stock that is not there looks sold out.
    MissingKeyIsZero,
    /// Loading an open stock starts it anew.
    PreheatIsSet,
    /// A loader that lost the rebuild goes on writing.
    StalledLoaderWrites,
    /// The stock looks at what is free before it knows its winners.
    StockBeforeDuplicate,
    /// A recorder that was overtaken commits what it had read.
    PositionWithoutCompareAndSet,

    /// A refusal that answers a repeated call is told as final.
    RepeatedCallRefused,
    /// A dead letter writes a release row for an order that has a row.
    DeadLetterTouchesRow,
    /// A late payment leaves its pending order as it is.
    LatePaymentLeavesPending,
    /// A refused retake is refunded without looking at its row.
    RefundWithoutRow,
    /// A release row goes although the bucket took no units back.
    ReleaseWhileNotOpen,
    /// A trigger starts another epoch while a rebuild is under way.
    SecondRebuildBeside,
    /// The queue's end is read before the old outboxes are recorded.
    EndBeforeOutbox,
    /// Every loader stores a barrier of its own.
    BarrierStoredTwice,
    /// A barrier beyond the queue's end stays there.
    BarrierNeverLowered,
    /// A sweeper waits for an end that the queue has lost.
    NotedEndNeverLowered,
    /// A bucket opens whatever is in it by then.
    FlipWithoutReadBack,
    /// A page of a load is written again over what is there.
    PageWrittenAgain,

    /// The ledger takes what the stock gave, although nothing is left.
    RoomOnlyInStock,
    /// The ledger takes what the stock gave, although the user has enough.
    LimitOnlyInStock,
    /// Sold units are counted from records, not from the rows that they became.
    CountsEveryRecord,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 33] = [
        Self::UniqueUser,
        Self::ReleaseByUser,
        Self::ReleaseOnFailedPublish,
        Self::AcceptedBeforeAcknowledged,
        Self::NoOutbox,
        Self::ReleaseInsideTransaction,
        Self::StockRulesBeforeDuplicates,
        Self::RetakeWithSameId,
        Self::PaymentsByEventOnly,
        Self::RepublishByAge,
        Self::GiveUpByAge,
        Self::ReleaseOnCachedEpoch,
        Self::NoGone,
        Self::MissingKeyIsZero,
        Self::PreheatIsSet,
        Self::StalledLoaderWrites,
        Self::StockBeforeDuplicate,
        Self::PositionWithoutCompareAndSet,
        Self::RepeatedCallRefused,
        Self::DeadLetterTouchesRow,
        Self::LatePaymentLeavesPending,
        Self::RefundWithoutRow,
        Self::ReleaseWhileNotOpen,
        Self::SecondRebuildBeside,
        Self::EndBeforeOutbox,
        Self::BarrierStoredTwice,
        Self::BarrierNeverLowered,
        Self::NotedEndNeverLowered,
        Self::FlipWithoutReadBack,
        Self::PageWrittenAgain,
        Self::RoomOnlyInStock,
        Self::LimitOnlyInStock,
        Self::CountsEveryRecord,
    ];
}
