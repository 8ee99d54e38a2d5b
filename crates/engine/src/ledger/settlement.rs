//! What becomes of a payment that came too late, and of money that is to be given back: pure rules,
//! the same for every backend.
//!
//! A payment that finds its order expired waits as [`PayOutcome::Late`](super::PayOutcome::Late).
//! A worker buys again for it, by a new order whose id follows from the payment, through the ordinary
//! steps; the ledger then settles the payment by that order's row. Money that is to be given back
//! stands in an outbox, one row per payment, until the provider has confirmed it or refused for good.

use std::ops::ControlFlow;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{InvalidValue, Money, Order, OrderId, OrderPlaced, OrderStatus};

/// Names a payment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentKey {
    /// Who took the money.
    pub provider: String,
    /// Names the payment there.
    pub payment_id: String,
}

impl PaymentKey {
    /// The order by which this payment buys again, if it comes too late: UUIDv8 of SHA-256, so that
    /// keepers which place it at once, or again after a lost answer, place the same.
    pub fn retake(&self) -> OrderId {
        let mut hash = Sha256::new();
        hash.update(b"retake");
        for part in [&self.provider, &self.payment_id] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        OrderId(Uuid::new_v8(bytes))
    }
}

/// A payment that waits because its order had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatePayment {
    /// The payment.
    pub key: PaymentKey,
    /// The expired order that it was for.
    pub order: Order,
    /// Where the order that buys again stands; `None` while the ledger does not know it.
    pub retake: Option<OrderStatus>,
}

/// What is to be decided of a late payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LateVerdict {
    /// By the row of its retake; without one it goes on waiting.
    ByRetake,
    /// The stock refused this retake: without a row its id is closed, and the money goes back.
    Refused(Box<OrderPlaced>),
    /// Nothing is bought again: without a row the money goes back.
    Refund,
}

/// What became of a late payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Its retake is paid by it.
    Paid,
    /// The money is to be given back.
    RefundDue,
    /// Its retake has no row yet.
    Waits,
    /// It was settled before, or never was late.
    Settled,
}

/// Where the money of a payment that is given back stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefundState {
    /// The provider is to be asked, now or again.
    Due,
    /// It is given back.
    Done,
    /// The provider refuses for good, or what it sent did not arrive: the staff has to give it back.
    Refused,
}

impl RefundState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Due, Self::Done, Self::Refused];

    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Due => "DUE",
            Self::Done => "DONE",
            Self::Refused => "REFUSED",
        }
    }
}

impl FromStr for RefundState {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(InvalidValue("not a refund's state"))
    }
}

/// Money to be given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refund {
    /// The payment.
    pub key: PaymentKey,
    /// The order that it was for.
    pub order: OrderId,
    /// How much.
    pub amount: Money,
    /// Where it stands.
    pub state: RefundState,
    /// What the provider calls the refund, once it is done.
    pub reference: Option<String>,
    /// What the provider, or the staff, said last.
    pub said: Option<String>,
    /// How often the provider was asked.
    pub tries: u32,
    /// When it was decided.
    pub at: Timestamp,
}

/// What came of asking a provider to give money back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundReport {
    /// It is given back, under this name.
    Done {
        /// The provider's name for the refund.
        reference: String,
    },
    /// The provider refuses for good.
    Refused {
        /// Its word.
        why: String,
    },
    /// It did not answer, or not now.
    Later {
        /// What was heard.
        why: String,
    },
}

/// What [`Settlement::refund_order`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefundOutcome {
    /// The order is refunded, now or before.
    Refunded(Order),
    /// It is not paid.
    NotPaid(Order),
    /// The ledger does not know it.
    Unknown,
}

/// What followed on an order's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aftermath {
    /// The order that bought again for its late payment.
    pub retaken_by: Option<OrderId>,
    /// Where the refund of its money stands.
    pub refund: Option<RefundState>,
}

/// Late payments and refunds.
#[async_trait]
pub trait Settlement: Send + Sync + 'static {
    /// Payments that wait, oldest first, at most `limit`.
    async fn late_payments(&self, limit: usize) -> Result<Vec<LatePayment>, BackendError>;

    /// Settles a late payment, once.
    async fn settle_late(
        &self,
        key: &PaymentKey,
        verdict: &LateVerdict,
    ) -> Result<SettleOutcome, BackendError>;

    /// Closes a paid order as REFUNDED, and puts its money into the outbox.
    async fn refund_order(&self, id: OrderId) -> Result<RefundOutcome, BackendError>;

    /// Takes at most `limit` refunds of `provider` that are due, oldest first. For `lease` nobody else
    /// is given them.
    async fn take_refunds(
        &self,
        provider: &str,
        limit: usize,
        lease: Duration,
    ) -> Result<Vec<Refund>, BackendError>;

    /// Notes what came of asking; the refund as it stands. One that is done stays so.
    async fn note_refund(
        &self,
        key: &PaymentKey,
        report: &RefundReport,
    ) -> Result<Option<Refund>, BackendError>;

    /// Refunds by payment, from behind `after`, at most `limit`; only those in `state`, if it is named.
    async fn refunds(
        &self,
        state: Option<RefundState>,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<Refund>, BackendError>;

    /// What followed on an order's end.
    async fn aftermath(&self, order: OrderId) -> Result<Aftermath, BackendError>;
}

/// How long a refund waits behind its `tries`-th try: 2 s, doubled each time up to an hour.
pub(super) fn refund_gap(tries: u32) -> Duration {
    Duration::from_secs(2).saturating_mul(1 << tries.min(12)).min(Duration::from_secs(3_600))
}

/// What a late payment's settlement does.
pub(super) enum Settling {
    /// The retake becomes PAID.
    Pay,
    /// The money goes back; with an order, its id is closed first.
    Refund(Option<Box<OrderPlaced>>),
}

/// By the retake's row, else by the verdict.
pub(super) fn settle(
    retake: Option<OrderStatus>,
    verdict: &LateVerdict,
) -> ControlFlow<SettleOutcome, Settling> {
    match (retake, verdict) {
        (Some(OrderStatus::Pending), _) => ControlFlow::Continue(Settling::Pay),
        // Paid by another payment, or closed.
        (Some(_), _) | (None, LateVerdict::Refund) => ControlFlow::Continue(Settling::Refund(None)),
        (None, LateVerdict::Refused(placed)) => ControlFlow::Continue(Settling::Refund(Some(placed.clone()))),
        (None, LateVerdict::ByRetake) => ControlFlow::Break(SettleOutcome::Waits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retake_is_named_by_its_payment() {
        let key = |provider: &str, payment: &str| PaymentKey {
            provider: provider.to_owned(),
            payment_id: payment.to_owned(),
        };
        assert_eq!(key("stripe", "pi_1").retake(), key("stripe", "pi_1").retake());
        for other in [key("stripe", "pi_2"), key("sandbox", "pi_1"), key("strip", "epi_1")] {
            assert_ne!(key("stripe", "pi_1").retake(), other.retake(), "{other:?}");
        }
    }

    #[test]
    fn gaps_double_up_to_an_hour() {
        for (tries, seconds) in [(0, 2), (1, 4), (5, 64), (11, 3_600), (u32::MAX, 3_600)] {
            assert_eq!(refund_gap(tries), Duration::from_secs(seconds), "{tries}");
        }
    }
}
