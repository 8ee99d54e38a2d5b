//! Attempts to pay at a provider, and what a provider says of them: pure rules, the same for every
//! backend.

use std::fmt;
use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::{PayOutcome, PaymentEvent};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{InvalidValue, Order, OrderId, OrderStatus};

/// Names an attempt to pay. It follows from provider and order, so that gateways which begin the
/// same attempt at once, or begin it again after a lost answer, name it alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentAttemptId(pub Uuid);

impl PaymentAttemptId {
    /// The one attempt of `order` at `provider`: UUIDv8 of SHA-256.
    pub fn derived(provider: &str, order: OrderId) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"payment attempt");
        hash.update((provider.len() as u64).to_be_bytes());
        hash.update(provider);
        hash.update(order.0.as_bytes());
        let digest = hash.finalize();
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(Uuid::new_v8(bytes))
    }
}

impl fmt::Display for PaymentAttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for PaymentAttemptId {
    type Err = InvalidValue;

    /// Takes the hyphenated form of 36 characters only.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        text.parse().map(|OrderId(id)| Self(id)).map_err(|_| InvalidValue("an attempt's id is a UUID"))
    }
}

/// One order's way to pay at one provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentAttempt {
    /// Its name, also at the provider.
    pub id: PaymentAttemptId,
    /// The order that it pays, for ever.
    pub order: OrderId,
    /// The provider's name, such as `stripe`.
    pub provider: String,
    /// What the provider calls it; `None` until the provider has answered.
    pub reference: Option<String>,
    /// Where the buyer pays; `None` until the provider has answered.
    pub url: Option<String>,
    /// When it began.
    pub begun_at: Timestamp,
}

/// What [`Attempts::begin_attempt`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginOutcome {
    /// The attempt, new or as it stands, and its order.
    Begun(PaymentAttempt, Box<Order>),
    /// The order is paid.
    Paid,
    /// The order is closed, or its deadline is over.
    Closed,
    /// The ledger does not know the order.
    NoOrder,
}

/// What a provider says of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentEventKind {
    /// The money is there.
    Succeeded,
    /// It did not work; the buyer may try again.
    Failed,
    /// The money was given back.
    Refunded,
    /// It was on its way back and did not arrive, such as at an account that is closed.
    RefundFailed,
}

impl PaymentEventKind {
    /// The word for it, in SQL and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Refunded => "REFUNDED",
            Self::RefundFailed => "REFUND_FAILED",
        }
    }
}

/// An event whose sender is proved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderEvent {
    /// The attempt that it names.
    pub attempt: PaymentAttemptId,
    /// What happened.
    pub kind: PaymentEventKind,
    /// To which payment, of which order, over how much.
    pub payment: PaymentEvent,
    /// What the provider calls the refund that it is about, if it is about one.
    pub refund: Option<String>,
}

/// What became of a provider's event. All are stored by event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiveOutcome {
    /// It was decided as a payment.
    Decided(PayOutcome),
    /// The payment failed; the order stays as it is.
    Failed,
    /// The provider gave the money back: a paid order is REFUNDED by it, a refund that was due is done.
    Refunded,
    /// The provider gave a part of it back; nothing changed.
    PartlyRefunded,
    /// A refund did not arrive: it is refused now, for the staff to give back, unless they have.
    RefundFailed,
    /// It denies a payment that was decided; nothing changed.
    Contradiction,
    /// It names no attempt of ours; nothing changed.
    UnknownAttempt,
    /// Its attempt or its payment belongs to another order; nothing changed.
    OtherOrder,
}

impl ReceiveOutcome {
    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Decided(outcome) => outcome.as_str(),
            Self::Failed => "FAILED",
            Self::Refunded => "REFUNDED",
            Self::PartlyRefunded => "PARTLY_REFUNDED",
            Self::RefundFailed => "REFUND_FAILED",
            Self::Contradiction => "CONTRADICTION",
            Self::UnknownAttempt => "UNKNOWN_ATTEMPT",
            Self::OtherOrder => "OTHER_ORDER",
        }
    }
}

/// One event as it was stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvidence {
    /// Who said so.
    pub provider: String,
    /// Names the event there.
    pub event_id: String,
    /// Names the payment there.
    pub payment_id: String,
    /// A word of [`PaymentEventKind`].
    pub kind: String,
    /// What it said was paid, in minor units.
    pub amount_minor: i64,
    /// In which currency.
    pub currency: String,
    /// A word of [`ReceiveOutcome`]; `None` where the event was decided as a payment, whose row has
    /// the outcome.
    pub outcome: Option<String>,
    /// When it came.
    pub at: Timestamp,
}

/// Attempts to pay at a provider.
#[async_trait]
pub trait Attempts: Send + Sync + 'static {
    /// Begins the attempt of a payable order at `provider`, or answers the one that was begun.
    async fn begin_attempt(&self, order: OrderId, provider: &str) -> Result<BeginOutcome, BackendError>;

    /// Notes what the provider answered, unless it is noted or belongs to another attempt; answers the
    /// attempt as it stands.
    async fn note_attempt(
        &self,
        id: PaymentAttemptId,
        reference: &str,
        url: &str,
    ) -> Result<Option<PaymentAttempt>, BackendError>;

    /// Takes at most `limit` open attempts at `provider` whose order is held behind its deadline, or is
    /// closed, so that the provider is asked to end them; each again after a growing while. Nobody is asked
    /// before the order is held: what is found to be paid would come too late.
    async fn take_attempts(&self, provider: &str, limit: usize) -> Result<Vec<PaymentAttempt>, BackendError>;

    /// Notes that nothing can be paid by this attempt any more. An order that was held for it alone is due
    /// at once.
    async fn close_attempt(&self, id: PaymentAttemptId) -> Result<(), BackendError>;

    /// Stores a provider's event and decides it in one transaction. An order with an open attempt is held for `hold`
    /// behind its deadline, as by [`Orders::expire`](super::Orders::expire), whichever of the two comes first.
    async fn receive(&self, event: &ProviderEvent, hold: Duration) -> Result<ReceiveOutcome, BackendError>;

    /// What was said about an order, oldest first, at most `limit`.
    async fn payment_evidence(
        &self,
        order: OrderId,
        limit: usize,
    ) -> Result<Vec<PaymentEvidence>, BackendError>;
}

/// Why no attempt may begin or go on; else the order.
pub(super) fn begin(order: Option<Order>, now: Timestamp) -> ControlFlow<BeginOutcome, Order> {
    let Some(order) = order else { return ControlFlow::Break(BeginOutcome::NoOrder) };
    match order.status {
        OrderStatus::Paid => ControlFlow::Break(BeginOutcome::Paid),
        OrderStatus::Pending if order.payable(now) => ControlFlow::Continue(order),
        OrderStatus::Pending
        | OrderStatus::Expired
        | OrderStatus::Cancelled
        | OrderStatus::Rejected
        | OrderStatus::Refunded => ControlFlow::Break(BeginOutcome::Closed),
    }
}

/// How long an attempt waits behind its `asks`-th asking: 1 s, doubled each time up to five minutes.
pub(super) fn ask_gap(asks: u32) -> Duration {
    Duration::from_secs(1).saturating_mul(1 << asks.min(9)).min(Duration::from_secs(300))
}

/// A payment that an earlier event was about.
pub(super) struct Earlier {
    /// Its order.
    pub(super) order: OrderId,
    /// Its outcome's word.
    pub(super) outcome: String,
    /// What was paid, in minor units.
    pub(super) amount_minor: i64,
}

impl Earlier {
    /// Whether its outcome ends it. A mismatch or a missing order does not: a later event of the same
    /// payment may be right.
    fn is_decided(&self) -> bool {
        is_decided(&self.outcome)
    }
}

/// Whether a payment's outcome ends it, by its word.
pub(super) fn is_decided(outcome: &str) -> bool {
    let ends = [PayOutcome::Paid, PayOutcome::Late, PayOutcome::RefundDue, PayOutcome::Refunded];
    ends.into_iter().any(|it| it.as_str() == outcome)
}

/// Whether an event says that all of a decided payment's money has come back.
pub(super) fn came_back(event: &ProviderEvent, earlier: Option<&Earlier>) -> bool {
    let whole = |it: &Earlier| it.is_decided() && event.payment.amount_minor >= it.amount_minor;
    event.kind == PaymentEventKind::Refunded && earlier.is_some_and(whole)
}

/// What an event is that must not be decided as a payment. `attempts` are those that its attempt's
/// id or its payment's id name.
pub(super) fn weigh(
    event: &ProviderEvent,
    attempts: &[PaymentAttempt],
    earlier: Option<&Earlier>,
) -> ControlFlow<ReceiveOutcome> {
    let payment = &event.payment;
    // A refund is its payment's, which may have bought again as another order: it goes by the payment alone.
    if event.kind == PaymentEventKind::RefundFailed && earlier.is_some_and(Earlier::is_decided) {
        return ControlFlow::Break(ReceiveOutcome::RefundFailed);
    }
    let foreign = |it: &PaymentAttempt| (it.order, &it.provider) != (payment.order, &payment.provider);
    if attempts.iter().any(foreign) || earlier.is_some_and(|it| it.order != payment.order) {
        return ControlFlow::Break(ReceiveOutcome::OtherOrder);
    }
    if attempts.iter().all(|it| it.id != event.attempt) {
        return ControlFlow::Break(ReceiveOutcome::UnknownAttempt);
    }
    match event.kind {
        PaymentEventKind::Succeeded => ControlFlow::Continue(()),
        PaymentEventKind::Failed if earlier.is_some_and(Earlier::is_decided) => {
            ControlFlow::Break(ReceiveOutcome::Contradiction)
        }
        PaymentEventKind::Failed => ControlFlow::Break(ReceiveOutcome::Failed),
        PaymentEventKind::Refunded if earlier.is_none() || came_back(event, earlier) => {
            ControlFlow::Break(ReceiveOutcome::Refunded)
        }
        PaymentEventKind::Refunded => ControlFlow::Break(ReceiveOutcome::PartlyRefunded),
        // Of a payment that nobody has told us of.
        PaymentEventKind::RefundFailed => ControlFlow::Break(ReceiveOutcome::UnknownAttempt),
    }
}

/// What a refund says that the provider accepted and that did not arrive. It is not asked for again by itself or by a
/// late word: the staff gives the money back another way.
pub(super) const REFUND_FAILED: &str = "the provider says that the refund did not arrive";

/// What is stored of an event beside its ids: kind and outcome. One that is decided as a payment has
/// its outcome in the payment's row.
pub(super) type Said = (PaymentEventKind, Option<ReceiveOutcome>);
