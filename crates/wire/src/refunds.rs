//! Refunds, as the staff sees and settles them.

use serde::{Deserialize, Serialize};

use crate::Money;

/// A paid order that the staff refunds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RefundOrder {
    /// Who does it. 1 to 255 bytes.
    pub by: String,
    /// Why. 1 to 255 bytes.
    pub reason: String,
}

/// Money to be given back, or that was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundRow {
    /// Who took the money.
    pub provider: String,
    /// Names the payment there.
    pub payment_id: String,
    /// The order that it was for.
    pub order_id: String,
    /// How much.
    pub amount: Money,
    /// `DUE`: the provider is being asked; `DONE`; `REFUSED`: the staff has to give it back.
    pub state: String,
    /// What the provider, or the staff, calls the refund.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What was said about it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub said: Option<String>,
    /// How often the provider was asked.
    pub tries: u32,
    /// When it was decided that the money goes back.
    pub decided_at: String,
}

/// A refund that the staff has given by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloseRefund {
    /// Who took the money.
    pub provider: String,
    /// Names the payment there.
    pub payment_id: String,
    /// Names the refund, such as a transfer's number. 1 to 255 bytes.
    pub reference: String,
    /// Who gave it back. 1 to 255 bytes.
    pub by: String,
}

/// A refund for which the provider is to be asked again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetryRefund {
    /// Who took the money.
    pub provider: String,
    /// Names the payment there.
    pub payment_id: String,
    /// Who asks. 1 to 255 bytes.
    pub by: String,
}
