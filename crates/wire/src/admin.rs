//! What the staff's tools exchange with the admin listener, under `/admin/api`.
//!
//! | request | body | answer |
//! | --- | --- | --- |
//! | `POST /admin/api/sales` | [`SaleDraft`] | 201 [`SaleDetail`] |
//! | `GET /admin/api/sales` | | [`Page`] of [`SaleDetail`] |
//! | `GET /admin/api/sales/{saleId}` | | [`SaleDetail`] |
//! | `POST /admin/api/sales/{saleId}/preheat` | | [`PreheatReport`] |
//! | `POST /admin/api/sales/{saleId}/open`, `…/pause`, `…/close` | | [`SaleDetail`] |
//! | `POST /admin/api/sales/{saleId}/rebuild` | [`Rebuild`] | [`RebuildReport`] |
//! | `POST /admin/api/sales/{saleId}/items/{itemId}/restock` | [`Restock`] | [`SaleDetail`] |
//! | `GET /admin/api/sales/{saleId}/orders?cursor=&limit=` | | [`Page`] of [`OrderRow`] |
//! | `GET /admin/api/sales/{saleId}/payments?cursor=&limit=` | | [`Page`] of [`PaymentRow`] |
//! | `GET /admin/api/orders/{orderId}` | | [`OrderRow`] |
//! | `POST /admin/api/orders/{orderId}/mark-paid` | [`MarkPaid`] | [`Paid`] |
//! | `GET /admin/api/audit` | | [`AuditReport`] |
//! | `POST /admin/api/orders/{orderId}/refund` | [`RefundOrder`](crate::RefundOrder) | [`OrderRow`] |
//! | `GET /admin/api/refunds?cursor=&limit=&state=` | | [`Page`] of [`RefundRow`](crate::RefundRow) |
//! | `POST /admin/api/refunds/close` | [`CloseRefund`](crate::CloseRefund) | [`RefundRow`](crate::RefundRow) |
//! | `POST /admin/api/refunds/retry` | [`RetryRefund`](crate::RetryRefund) | [`RefundRow`](crate::RefundRow) |
//! | `GET /admin/api/dead-letters?cursor=&limit=&closed=` | | [`Page`] of [`DeadLetter`] |
//! | `GET /admin/api/dead-letters/{letterId}` | | [`DeadLetter`] |
//! | `POST /admin/api/dead-letters/{letterId}/replay` | [`ReplayDeadLetter`] | [`Replayed`] |
//! | `DELETE /admin/api/dead-letters/{letterId}` | [`DropDeadLetter`] | [`DeadLetter`] |
//! | `GET /admin/api/events?cursor=&limit=&endpoint=&state=&subject=` | | [`Page`] of [`EventDelivery`](crate::EventDelivery) |
//! | `GET /admin/api/events/{deliveryId}` | | [`EventDelivery`](crate::EventDelivery) |
//! | `POST /admin/api/events/{deliveryId}/replay` | | [`EventDelivery`](crate::EventDelivery) |
//! | `POST /admin/api/events/endpoints/{endpoint}/replay` | | [`EventsReplayed`](crate::EventsReplayed) |

use serde::{Deserialize, Serialize};

use crate::Money;

/// A new sale. Unknown members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SaleDraft {
    /// The sale's name, 1 to 200 bytes.
    pub name: String,
    /// When it opens: RFC 3339 with an offset.
    pub opens_at: String,
    /// When it closes: RFC 3339 with an offset.
    pub closes_at: String,
    /// How long an order may stay unpaid, in seconds; 600 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_window_seconds: Option<u64>,
    /// Most units one user may hold in the whole sale; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_units_per_user: Option<u32>,
    /// The items, 1 to 1,000.
    pub items: Vec<ItemDraft>,
}

/// One item of a new sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ItemDraft {
    /// The shop's product id, 1 to 128 bytes.
    pub product_id: String,
    /// What the page calls it; the product id when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Units for sale, 1 to 1,000,000,000.
    pub quantity: u64,
    /// Price of one unit in minor units, 0 or more.
    pub price_minor: i64,
    /// Usual price of one unit in minor units.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_price_minor: Option<i64>,
    /// ISO 4217 code.
    pub currency: String,
}

/// One item as the staff sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemDetail {
    /// The item's id, used in the purchase path.
    pub item_id: String,
    /// The shop's product id.
    pub product_id: String,
    /// What the page calls it.
    pub title: String,
    /// Price of one unit.
    pub price: Money,
    /// Usual price of one unit; absent when the sale names none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_price: Option<Money>,
    /// Units in the sale, from the ledger.
    pub quantity: u64,
    /// Units of live orders (pending and paid), from the ledger.
    pub sold: u64,
    /// Units nobody holds, from the stock; absent when the stock is not loaded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
}

/// One sale as the staff sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaleDetail {
    /// The sale's id.
    pub sale_id: String,
    /// The sale's name.
    pub name: String,
    /// `draft`, `preheated`, `open`, `paused` or `closed`.
    pub state: String,
    /// Why selling is stopped beside the state; absent when it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fence: Option<String>,
    /// The generation of the sale's stock; 0 before the first preheat.
    pub epoch: u64,
    /// When it opens.
    pub opens_at: String,
    /// When it closes.
    pub closes_at: String,
    /// How long an order may stay unpaid, in seconds.
    pub payment_window_seconds: u64,
    /// Most units one user may hold in the whole sale.
    pub max_units_per_user: u32,
    /// The items, in the order of their ids.
    pub items: Vec<ItemDetail>,
}

/// What a preheat loaded, read back from the stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreheatReport {
    /// The sale's id.
    pub sale_id: String,
    /// The epoch that was loaded.
    pub epoch: u64,
    /// Whether every item read back as the ledger has it.
    pub ok: bool,
    /// One line per item.
    pub items: Vec<PreheatItem>,
}

/// One item of a [`PreheatReport`] or a [`RebuildReport`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreheatItem {
    /// The item's id.
    pub item_id: String,
    /// Units in the sale, from the ledger.
    pub quantity: u64,
    /// Units of live orders, from the ledger.
    pub sold: u64,
    /// Units nobody holds, read back from the stock.
    pub free: u64,
    /// Units in holds, read back from the stock.
    pub held: u64,
    /// Whether `free + held = quantity` and `held = sold`.
    pub ok: bool,
}

/// Why a sale's stock shall be loaded anew.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rebuild {
    /// In words for the staff, 1 to 200 bytes; shown while the rebuild goes on.
    pub reason: String,
}

/// What a rebuild loaded, read back from the stock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RebuildReport {
    /// The sale's id.
    pub sale_id: String,
    /// The epoch that was loaded.
    pub epoch: u64,
    /// Whether every item read back as the ledger has it.
    pub ok: bool,
    /// One line per item.
    pub items: Vec<PreheatItem>,
}

/// Asks what differs between a sale's stock and the ledger, and whether to mend it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repair {
    /// Only look, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What a [`Repair`] found and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RepairReport {
    /// The sale's id.
    pub sale_id: String,
    /// Whether stock and ledger agree now.
    pub ok: bool,
    /// How many differences stood over two looks.
    pub differences: u64,
    /// The first of them in words, at most 100.
    pub first: Vec<String>,
    /// What was loaded to mend them; absent when nothing differed, or after a dry run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rebuilt: Option<RebuildReport>,
}

/// A change of an item's quantity by a difference, never to an absolute value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Restock {
    /// A UUID that the caller chose: the same operation sent again changes nothing more.
    pub operation_id: String,
    /// Units to add (positive) or to take away (negative), not 0.
    pub units: i64,
}

/// One order as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderRow {
    /// The order's UUID.
    pub order_id: String,
    /// The sale it belongs to.
    pub sale_id: String,
    /// The item it claims.
    pub item_id: String,
    /// The user who placed it.
    pub user_id: String,
    /// Units claimed.
    pub quantity: u32,
    /// `PENDING`, `PAID`, `EXPIRED`, `CANCELLED`, `REJECTED` or `REFUNDED`.
    pub status: String,
    /// Why the ledger refused it; only with `REJECTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What is to be paid for all units.
    pub total: Money,
    /// When the stock took the units.
    pub reserved_at: String,
    /// Until when a payment may begin.
    pub expires_at: String,
}

/// One payment as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentRow {
    /// Who took the money: `manual` for the staff, else the provider's word.
    pub provider: String,
    /// Names the payment there.
    pub payment_id: String,
    /// The order that its buyer meant to pay.
    pub order_id: String,
    /// The order that bought again, where that is paid by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retaken_by: Option<String>,
    /// What became of it: `PAID`, `LATE`, `REFUND_DUE`, `REFUNDED`, `AMOUNT_MISMATCH`.
    pub outcome: String,
    /// What was paid, in minor units.
    pub amount_minor: i64,
    /// In which currency.
    pub currency: String,
}

/// One page of a listing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T> {
    /// The rows of this page, in the listing's order.
    pub items: Vec<T>,
    /// What to send as `cursor` for the next page; absent on the last one.
    #[serde(default = "Option::default", skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A payment that the staff enters by hand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MarkPaid {
    /// Names the event: the same id sent again changes nothing more. 1 to 128 bytes.
    pub event_id: String,
    /// Names the payment; the event id when absent. 1 to 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payment_id: Option<String>,
    /// What was paid, in minor units; must be the order's total.
    pub amount_minor: i64,
    /// ISO 4217 code; must be the order's.
    pub currency: String,
}

/// What became of a [`MarkPaid`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Paid {
    /// The order's UUID.
    pub order_id: String,
    /// `PAID`, `DUPLICATE`, `REFUND_DUE` or `AMOUNT_MISMATCH`.
    pub outcome: String,
    /// The order's status afterwards; absent when the ledger does not know the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

/// What an audit found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditReport {
    /// Whether no invariant was violated.
    pub ok: bool,
    /// Whether nothing was in flight, so that the at-rest invariants were checked too.
    pub at_rest: bool,
    /// The invariants that were checked, by the numbers of the protocol, such as `I1`.
    pub checked: Vec<String>,
    /// How many orders were looked at.
    pub orders: u64,
    /// One line per violation.
    pub findings: Vec<AuditFinding>,
}

/// One violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFinding {
    /// The invariant's number, such as `I1`.
    pub invariant: String,
    /// What is wrong, with ids and figures.
    pub detail: String,
}

/// A record that could not be applied to the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetter {
    /// Its number.
    pub id: String,
    /// The topic it was read from.
    pub topic: String,
    /// The partition, from 0.
    pub partition: u32,
    /// Its offset there.
    pub offset: String,
    /// What was wrong with it.
    pub why: String,
    /// When it was parked: RFC 3339 in UTC.
    pub parked_at: String,
    /// Its length in bytes; 0 when the record itself could not be kept.
    pub size: usize,
    /// The record, base64; only where one letter is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<String>,
    /// How it was closed; absent while it waits for somebody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closing: Option<DeadLetterClosing>,
}

/// How a dead letter was closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeadLetterClosing {
    /// When: RFC 3339 in UTC.
    pub at: String,
    /// `replayed` or `dropped`.
    pub how: String,
    /// Who did it.
    pub by: String,
    /// Why; for a replay, the order's status afterwards.
    pub reason: String,
}

/// Applies a dead letter again. Unknown members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplayDeadLetter {
    /// Who asks for it, 1 to 128 bytes; kept with the letter.
    pub by: String,
}

/// What a replay did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    /// The letter's number; it is closed now.
    pub id: String,
    /// `RECORDED`: the order has its row now. `KNOWN`: it had it before, nothing changed.
    pub outcome: String,
    /// The order.
    pub order: OrderRow,
}

/// Gives a dead letter up. Unknown members are refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropDeadLetter {
    /// Who gives it up, 1 to 128 bytes; kept with the letter.
    pub by: String,
    /// Why, 1 to 500 bytes; kept with the letter.
    pub reason: String,
}

/// One event on its way to one endpoint of the shop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventDelivery {
    /// Its number.
    pub id: String,
    /// The endpoint's name.
    pub endpoint: String,
    /// The event's id, which is sent as `webhook-id`.
    pub event_id: String,
    /// What happened, such as `order.paid`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The order's UUID, or the sale's id: its events are told one after the other.
    pub subject: String,
    /// `waiting`, `delivered` or `dead`.
    pub state: String,
    /// How often it was sent.
    pub attempts: u64,
    /// When it is sent next: RFC 3339 in UTC; only while it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<String>,
    /// When the last attempt ended: RFC 3339 in UTC; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempted_at: Option<String>,
    /// The status of its answer, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// What became of it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// What is sent; only where one delivery is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<crate::EventMessage>,
}

/// What a replay of an endpoint's dead deliveries did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventsReplayed {
    /// The endpoint's name.
    pub endpoint: String,
    /// How many deliveries are due again; at most 10,000 at a time.
    pub replayed: u64,
}
