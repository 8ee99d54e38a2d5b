//! What the shop is sent: the bodies of outgoing webhooks. Members are added, never renamed or removed.

use serde::{Deserialize, Serialize};

use crate::Money;

/// The body of one webhook, in the form that Standard Webhooks recommends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventMessage {
    /// What happened, such as `order.paid`.
    #[serde(rename = "type")]
    pub kind: String,
    /// When it happened: RFC 3339 in UTC. A repetition has the same.
    pub timestamp: String,
    /// The form of `data`: 1. It grows only when a member changes its meaning.
    pub version: u32,
    /// To whom it happened.
    pub data: EventData,
}

/// To whom an event happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EventData {
    /// An order, for `order.…`.
    Order(Box<OrderEventData>),
    /// A sale or one of its items, for `sale.…` and `stock.…`.
    Sale(SaleEventData),
}

/// The order that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderEventData {
    /// The order's UUID.
    pub order_id: String,
    /// Its sale.
    pub sale_id: String,
    /// Its item.
    pub item_id: String,
    /// Its user.
    pub user_id: String,
    /// Its units.
    pub quantity: u32,
    /// The status that this event gave it.
    pub status: String,
    /// Why it was refused; only with `order.rejected`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is to be paid for all units.
    pub total: Money,
    /// When its units were reserved: RFC 3339 in UTC.
    pub reserved_at: String,
    /// Until when a payment may begin: RFC 3339 in UTC.
    pub expires_at: String,
    /// The order that this one buys again, after a payment that came too late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retake_of: Option<String>,
}

/// The sale that an event is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaleEventData {
    /// The sale.
    pub sale_id: String,
    /// The item that sold out, or whose units returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item_id: Option<String>,
    /// The item's units in the sale, or the units that returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<u64>,
}
