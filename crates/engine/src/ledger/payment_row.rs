//! One payment as the books have it.

use std::fmt;
use std::str::FromStr;

use super::PaymentKey;
use crate::order::{InvalidValue, OrderId};

impl fmt::Display for PaymentKey {
    /// `provider/payment`, which [`FromStr`] reads again: no provider has a slash.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.payment_id)
    }
}

impl FromStr for PaymentKey {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let named = text.split_once('/').filter(|_| !text.chars().any(char::is_control));
        let (provider, payment_id) = named.ok_or(InvalidValue("a payment is named by provider/payment"))?;
        Ok(Self { provider: provider.to_owned(), payment_id: payment_id.to_owned() })
    }
}

/// One payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentRow {
    /// Names it.
    pub payment: PaymentKey,
    /// The order that its buyer meant to pay.
    pub meant: OrderId,
    /// The order it is for; the one that bought again, once that is paid by it.
    pub order: OrderId,
    /// `PAID`, `LATE`, `REFUND_DUE`, `REFUNDED`, `AMOUNT_MISMATCH` or `NO_ORDER`.
    pub outcome: String,
    /// In minor units.
    pub amount_minor: i64,
    /// Of which currency.
    pub currency: String,
}
