//! The faults of the protocol's section 8 that can be built into the embedded system, planted to
//! test the simulation. Each must be found.

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Planted {
    /// A user's second purchase after an expiry is swallowed.
    UniqueItemAndUser,
    /// A late release frees the user's next order.
    ReleaseByUser,
    /// A publish that timed out gives the unit back.
    ReleaseOnFailedPublish,
    /// 202 is said whatever the queue answered.
    AcceptedBeforeAcknowledged,
    /// Nothing remembers a hold whose message was lost.
    NoOutbox,
    /// Units go back before the transaction commits.
    ReleaseInsideTransaction,
    /// A duplicate is judged by stock rules before it is recognised.
    StockRulesBeforeDuplicates,
    /// Two events of one payment are two payments.
    PaymentsByEventOnly,
    /// An order that is not recorded for a while is given up.
    GiveUpByAge,
    /// Releases go to the epoch that was read once.
    ReleaseOnCachedEpoch,
    /// A stock that is not loaded looks sold out.
    MissingKeyIsSoldOut,
    /// A second preheat sells everything again.
    PreheatIsSet,
    /// "Not enough for three" looks sold out.
    NotEnoughIsSoldOut,
    /// A winner who retries hears "sold out".
    StockBeforeDuplicate,
    /// A zombie recorder moves the position back.
    PositionWithoutCompareAndSet,
    /// A restock that is repeated counts again.
    AdjustWithoutOperation,
    /// An order expires while its buyer pays.
    NoHold,
    /// An event counts as told before it is sent.
    ToldBeforeSent,
}

impl Planted {
    pub(crate) const ALL: [Self; 18] = [
        Self::UniqueItemAndUser,
        Self::ReleaseByUser,
        Self::ReleaseOnFailedPublish,
        Self::AcceptedBeforeAcknowledged,
        Self::NoOutbox,
        Self::ReleaseInsideTransaction,
        Self::StockRulesBeforeDuplicates,
        Self::PaymentsByEventOnly,
        Self::GiveUpByAge,
        Self::ReleaseOnCachedEpoch,
        Self::MissingKeyIsSoldOut,
        Self::PreheatIsSet,
        Self::NotEnoughIsSoldOut,
        Self::StockBeforeDuplicate,
        Self::PositionWithoutCompareAndSet,
        Self::AdjustWithoutOperation,
        Self::NoHold,
        Self::ToldBeforeSent,
    ];
}
