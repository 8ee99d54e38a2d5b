//! What buyers and the sale page exchange with the public listener.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An amount of money; all three members say the same amount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// Decimal text in the currency's major unit, such as `"19.90"`.
    pub amount: String,
    /// ISO 4217 code, such as `"EUR"`.
    pub currency: String,
    /// The same amount in the currency's minor unit, such as `1990`.
    pub minor: i64,
}

/// The 202 of a purchase: reserved and durably queued, not yet sold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PurchaseAccepted {
    /// The order's UUID, valid from now on in `GET /api/flash-sales/orders/{orderId}`.
    pub order_id: String,
    /// `PENDING` for a new order; a replay carries the order's present status.
    pub status: String,
    /// Whether a payment may begin; false until the order is in the ledger.
    pub payable: bool,
}

/// One order as its owner sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OrderView {
    /// The order's UUID.
    pub order_id: String,
    /// The sale it belongs to.
    pub sale_id: String,
    /// The item it claims.
    pub item_id: String,
    /// Units claimed.
    pub quantity: u32,
    /// `PENDING`, `PAID`, `EXPIRED`, `CANCELLED`, `REJECTED` or `REFUNDED`.
    pub status: String,
    /// Whether a payment may begin now.
    pub payable: bool,
    /// What is to be paid for all units.
    pub total: Money,
    /// When the stock took the units.
    pub reserved_at: String,
    /// Until when a payment may begin; absent while the order is still queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Why the ledger refused it; only with `REJECTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The expired order whose late payment this one buys again for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retake_of: Option<String>,
    /// The order that bought again for this one's late payment; only with one order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retaken_by: Option<String>,
    /// Where the money that is given back stands; only with one order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund: Option<RefundState>,
}

/// Where the money that is given back for an order stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RefundState {
    /// `DUE`: the provider is being asked; `DONE`; `REFUSED`: the staff has to give it back.
    pub status: String,
}

/// Where a buyer pays for an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PaymentStarted {
    /// The provider's page, to which the buyer's browser is sent.
    pub payment_url: String,
    /// Until when a payment may begin.
    pub expires_at: String,
}

/// What became of a provider's webhook, which is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookReceived {
    /// `PAID`, `DUPLICATE`, `LATE`, `REFUND_DUE`, `AMOUNT_MISMATCH`, `NO_ORDER`, `FAILED`, `REFUNDED`, `PARTLY_REFUNDED`,
    /// `REFUND_FAILED`, `CONTRADICTION`, `UNKNOWN_ATTEMPT`, `OTHER_ORDER`, or `IGNORED` for what is not ours.
    pub outcome: String,
}

/// One item of a sale as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemView {
    /// The item's id, used in the purchase path.
    pub item_id: String,
    /// The shop's product id.
    pub product_id: String,
    /// What the page calls it.
    pub title: String,
    /// Price of one unit in this sale.
    pub price: Money,
    /// Usual price of one unit, when the shop names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_price: Option<Money>,
    /// Units in the sale; absent when the sale hides its stock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantity: Option<u64>,
    /// Units nobody holds; absent when the sale hides its stock or the stock cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Units held by unpaid orders.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<u64>,
    /// Units paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sold: Option<u64>,
}

/// One sale as the page shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaleView {
    /// The sale's id.
    pub sale_id: String,
    /// The sale's name.
    pub name: String,
    /// `draft`, `preheated`, `open`, `paused` or `closed`.
    pub state: String,
    /// When it opens.
    pub opens_at: String,
    /// When it closes.
    pub closes_at: String,
    /// The server's clock when this was written, for the countdown.
    pub server_time: String,
    /// Most units one user may hold in the whole sale.
    pub max_units_per_user: u32,
    /// How long an order may stay unpaid, in seconds.
    pub payment_window_seconds: u64,
    /// Whether a purchase needs a sale token.
    pub token_required: bool,
    /// Whether a sale token needs a captcha.
    pub captcha_required: bool,
    /// Whether buyers wait until they are let in: ask at the sale's `/waiting-room`.
    pub waiting_room: bool,
    /// The items, in the order of their ids.
    pub items: Vec<ItemView>,
}

/// What a sale token is asked for with; the body may also be empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GetSaleToken {
    /// The answer to the sale's challenge: what ALTCHA's, Turnstile's or hCaptcha's widget hands over, at most
    /// 2,048 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captcha: Option<String>,
}

/// How a page shows a captcha that another asks and judges.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CaptchaWidget {
    /// Whose captcha it is: `turnstile` or `hcaptcha`.
    pub provider: String,
    /// The shop's key there.
    pub site_key: String,
    /// The script that shows it.
    pub script_url: String,
    /// What the widget is to be given as its action; absent where it takes none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// What the widget is to be given along, so that the answer is this user's; absent where it takes nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cdata: Option<String>,
}

/// A sale token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SaleTokenView {
    /// The sale it opens.
    pub sale_id: String,
    /// The token: for the header `Doorbuster-Sale-Token` of a purchase, or for `Authorization: Bearer` of one.
    pub token: String,
    /// When it counts no more.
    pub expires_at: String,
}

/// A user at a waiting room's door.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskWaitingRoom {
    /// The place that the last answer gave: it is kept by it whatever the server forgets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// The answer to the sale's challenge, where the sale requires a captcha and no place is shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captcha: Option<String>,
}

/// Where a user stands in a sale's waiting room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingRoomView {
    /// The sale.
    pub sale_id: String,
    /// `PREQUEUE` before the sale opens: places are drawn, and who came first has no better one. `WAITING`.
    /// `ADMITTED`: buy with the token. `NOT_NEEDED`: the sale has no waiting room at this moment.
    pub status: String,
    /// To be shown with the next request; with `PREQUEUE` and `WAITING`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// How many stand before this user; with `WAITING`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ahead: Option<u64>,
    /// How many wait, as last counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<u64>,
    /// Whether `waitSeconds` is known: somebody has been let in lately.
    pub wait_time_known: bool,
    /// About how long until this user is let in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_seconds: Option<u64>,
    /// Nothing is free now; who waits is let in when units return.
    pub sold_out: bool,
    /// When to ask again, in milliseconds. Who does not for `graceSeconds` loses the place.
    pub refresh_in_ms: u64,
    /// How long the place is kept for somebody who does not ask.
    pub grace_seconds: u64,
    /// When the sale opens; with `PREQUEUE`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opens_at: Option<String>,
    /// The sale token; with `ADMITTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// When it counts no more; with `ADMITTED`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

/// My orders in one sale.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MyOrders {
    /// The orders, newest first.
    pub orders: Vec<OrderView>,
}

/// The server's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TimeView {
    /// RFC 3339 UTC with milliseconds.
    pub now: String,
    /// The same moment in milliseconds since 1970-01-01T00:00:00Z.
    pub epoch_ms: i64,
}

/// An error: RFC 9457 problem details with the article's `error` member.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A URI reference that names the kind of problem.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind in a few words.
    pub title: String,
    /// The HTTP status again.
    pub status: u16,
    /// What happened, why, and what to do.
    pub detail: String,
    /// The stable error word, such as `SOLD_OUT`.
    pub error: String,
    /// The request this answers; absent in the static refusals, where only the header has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The order concerned, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub order_id: Option<String>,
    /// Further members of particular errors (`opensAt`, `startsInMs`, `left`, `mayReturn`).
    #[serde(flatten)]
    pub more: BTreeMap<String, JsonScalar>,
}

/// The values that further members of a [`Problem`] take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum JsonScalar {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Text.
    Text(String),
    /// Several texts.
    Texts(Vec<String>),
}
