//! What stories of payments share: a shop with a provider, and webhooks signed by hand.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_engine::ledger::PaymentAttemptId;
use doorbuster_engine::order::OrderId;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::shop::http::Reply;
use crate::shop::{Buyer, PRICE, Sale, Shop, order_path};

/// The secret that webhooks are signed with.
pub(crate) const SECRET: &str = "a secret between shop and provider";

/// As it is configured: several are told apart by blanks.
pub(crate) const CONFIGURED: &str = "whsec_YSBzZWNyZXQgYmV0d2VlbiBzaG9wIGFuZCBwcm92aWRlcg==";

pub(crate) fn settings(provider: &str) -> [(&'static str, &'static str); 2] {
    let provider = ["none", "sandbox", "stripe"].into_iter().find(|it| *it == provider).unwrap();
    [("payments.provider", provider), ("payments.webhook_secret", CONFIGURED)]
}

/// A shop whose provider is the sandbox.
pub(crate) async fn sandbox_shop(more: &[(&str, &str)]) -> Shop {
    Shop::open_with(&[&settings("sandbox")[..], more].concat()).await
}

/// An order that can be paid.
pub(crate) async fn payable_order(shop: &Shop, buyer: &Buyer<'_>, sale: &Sale) -> String {
    let order = buyer.buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    buyer.until_payable(&order).await;
    order
}

pub(crate) fn payment_path(order: &str) -> String {
    format!("{}/payment", order_path(order))
}

/// Begins to pay, or goes on.
pub(crate) async fn start(buyer: &Buyer<'_>, order: &str) -> Reply {
    buyer.ask("POST", &payment_path(order), &[], "").await
}

/// The path of the page on this server that a start leads to.
pub(crate) fn page_of(shop: &Shop, started: &Reply) -> String {
    let url = started.text("paymentUrl");
    let server = format!("http://{}", shop.address());
    url.strip_prefix(&server).unwrap_or_else(|| panic!("{url} is not at {server}")).to_owned()
}

/// What was said about an order: kind and outcome, empty where it was decided as a payment.
pub(crate) async fn evidence(shop: &Shop, order: &str) -> Vec<(String, String)> {
    let order: OrderId = order.parse().unwrap();
    let told = shop.app().backends().ledger.payment_evidence(order, 1_000).await.unwrap();
    told.into_iter().map(|it| (it.kind, it.outcome.unwrap_or_default())).collect()
}

/// HMAC-SHA256.
pub(crate) fn mac(secret: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

/// A webhook of the sandbox's, which a story bends.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) event: String,
    pub(crate) kind: &'static str,
    pub(crate) payment: String,
    pub(crate) attempt: String,
    pub(crate) order: String,
    pub(crate) amount: i64,
    pub(crate) currency: &'static str,
    pub(crate) secret: &'static str,
    /// In seconds since 1970.
    pub(crate) at: u64,
}

impl Told {
    /// That this order is paid in full by its own attempt's payment.
    pub(crate) fn of(shop: &Shop, order: &str) -> Self {
        let attempt = attempt_of(order, "sandbox");
        Self {
            event: format!("evt-{order}"),
            kind: "payment.succeeded",
            payment: format!("sandbox_{attempt}"),
            attempt,
            order: order.to_owned(),
            amount: PRICE,
            currency: "EUR",
            secret: SECRET,
            at: shop.now_secs(),
        }
    }

    /// The same under another event's name.
    pub(crate) fn event(&self, event: &str) -> Self {
        Self { event: event.to_owned(), ..self.clone() }
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        let data = json!({
            "paymentId": self.payment, "attemptId": self.attempt, "orderId": self.order,
            "amountMinor": self.amount, "currency": self.currency,
        });
        serde_json::to_vec(&json!({"type": self.kind, "timestamp": "2026-11-27T08:00:00.000Z", "data": data}))
            .unwrap()
    }

    pub(crate) fn signature(&self, body: &[u8]) -> String {
        let text = [format!("{}.{}.", self.event, self.at).as_bytes(), body].concat();
        format!("v1,{}", STANDARD.encode(mac(self.secret.as_bytes(), &text)))
    }

    pub(crate) async fn send(&self, shop: &Shop) -> Reply {
        let body = self.body();
        self.send_as(shop, &self.signature(&body), &body).await
    }

    /// With any signature and any body.
    pub(crate) async fn send_as(&self, shop: &Shop, signature: &str, body: &[u8]) -> Reply {
        let at = self.at.to_string();
        let headers = [
            ("content-type", "application/json"),
            ("webhook-id", self.event.as_str()),
            ("webhook-timestamp", at.as_str()),
            ("webhook-signature", signature),
        ];
        shop.ask("POST", WEBHOOK, &headers, body).await
    }

    /// What became of it.
    pub(crate) async fn outcome(&self, shop: &Shop) -> String {
        let reply = self.send(shop).await;
        assert_eq!(reply.status, 200, "{}", reply.said());
        reply.text("outcome")
    }
}

/// Where the sandbox's webhooks go.
pub(crate) const WEBHOOK: &str = "/api/flash-sales/payments/sandbox/webhook";

pub(crate) fn attempt_of(order: &str, provider: &str) -> String {
    PaymentAttemptId::derived(provider, order.parse().unwrap()).to_string()
}

/// A member of a JSON text, as a form's or an event's.
pub(crate) fn text_of(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_else(|| panic!("no {member}: {value}")).to_owned()
}
