//! Stripe: a Checkout Session is the hosted page, webhooks say what became of it.
//!
//! A session's payment is Stripe's PaymentIntent, which is made when the buyer pays; all events of it
//! carry its id, and our order and attempt in their metadata. What has no such metadata is another
//! business of the same account.

use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use axum::http::HeaderMap;
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::ledger::{
    PaymentAttempt, PaymentAttemptId, PaymentEvent, PaymentEventKind, ProviderEvent, Refund,
};
use doorbuster_engine::order::{Currency, Money, OrderId};
use serde::Deserialize;
use serde_json::Value;

use super::{
    Ended, HostedPage, PaymentProvider, PaymentWish, ProviderError, Refusal, Verified, is_id, is_web,
};
use crate::config::Secret;
use crate::signature::{self, Secrets};

/// Its word in addresses, the ledger and logs.
const NAME: &str = "stripe";

/// The version of Stripe's API whose shapes are read here.
const API_VERSION: &str = "2024-06-20";

/// Stripe ends a session 30 minutes after it was made at the earliest, and 24 hours at the latest.
const SESSION_LEAST: Duration = Duration::from_secs(30 * 60);
const SESSION_MOST: Duration = Duration::from_secs(24 * 3_600);

/// What is allowed for between our clock and Stripe's, and for a start that is repeated.
const MARGIN: Duration = Duration::from_secs(60);

/// Longest answer that is read.
const ANSWER_MAX: usize = 1024 * 1024;

/// Most pages of events that are read at once: 100 each.
const EVENT_PAGES_MAX: usize = 100;

/// The events that say something of a payment.
const KINDS: [&str; 11] = [
    "checkout.session.completed",
    "checkout.session.async_payment_succeeded",
    "checkout.session.async_payment_failed",
    "checkout.session.expired",
    "payment_intent.succeeded",
    "payment_intent.payment_failed",
    "payment_intent.canceled",
    "charge.refunded",
    "refund.failed",
    "refund.updated",
    "charge.refund.updated",
];

const ORDER: &str = "doorbuster_order";
const ATTEMPT: &str = "doorbuster_attempt";

/// The provider.
pub(super) struct Stripe {
    client: reqwest::Client,
    key: Secret,
    api: String,
    secrets: Secrets,
}

#[derive(Deserialize)]
struct Refunding {
    id: String,
    status: Option<String>,
}

/// One page of events.
#[derive(Deserialize)]
struct Events {
    data: Vec<Event>,
    has_more: bool,
}

#[derive(Deserialize)]
struct Session {
    id: String,
    url: Option<String>,
}

#[derive(Deserialize)]
struct Refused {
    error: RefusedError,
}

#[derive(Deserialize)]
struct RefusedError {
    #[serde(rename = "type")]
    kind: String,
    code: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    data: EventData,
}

#[derive(Deserialize)]
struct EventData {
    object: Value,
}

impl Stripe {
    /// An account of Stripe's by its key, at the API's address.
    pub(super) fn new(key: Secret, api: &str, secrets: Secrets, timeout: Duration) -> anyhow::Result<Self> {
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().redirect(none).connect_timeout(timeout).timeout(timeout);
        let client = client.build().context("the HTTP client for Stripe cannot be made")?;
        Ok(Self { client, key, api: format!("{api}/v1"), secrets })
    }
}

impl Stripe {
    /// The body of a good answer.
    async fn answer(&self, asked: reqwest::RequestBuilder) -> Result<Vec<u8>, ProviderError> {
        let silent = |error: reqwest::Error| ProviderError::Unreachable(Some(error.without_url()));
        let asked = asked.bearer_auth(self.key.reveal()).header("Stripe-Version", API_VERSION);
        let mut answer = asked.send().await.map_err(silent)?;
        let status = answer.status();
        let mut body = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(silent)? {
            body.extend_from_slice(&part);
            if body.len() > ANSWER_MAX {
                return Err(ProviderError::Nonsense("it is longer than an answer can be"));
            }
        }
        if status.is_success() { Ok(body) } else { Err(refused(status.as_u16(), &body)) }
    }
}

#[async_trait]
impl PaymentProvider for Stripe {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(&self, wish: &PaymentWish) -> Result<HostedPage, ProviderError> {
        // The same attempt is the same session, however often it is asked for.
        let asked = self.client.post(format!("{}/checkout/sessions", self.api)).form(&form(wish));
        page(&self.answer(asked.header("Idempotency-Key", wish.attempt.id.to_string())).await?)
    }

    async fn end(&self, attempt: &PaymentAttempt) -> Result<Ended, ProviderError> {
        let Some(session) = &attempt.reference else { return Ok(Ended::Over) };
        let session = format!("{}/checkout/sessions/{session}", self.api);
        // An empty form all the same: Stripe's own check takes no request without a type.
        let nothing: [(&str, &str); 0] = [];
        match self.answer(self.client.post(format!("{session}/expire")).form(&nothing)).await {
            Ok(_) => Ok(Ended::Over),
            // Only an open session can be ended: look how this one stands.
            Err(ProviderError::Refused { status: 400, .. }) => {
                ended(attempt, &self.answer(self.client.get(session)).await?)
            }
            Err(error) => Err(error),
        }
    }

    async fn refund(&self, refund: &Refund) -> Result<String, ProviderError> {
        let (amount, _) = to_stripe(refund.amount);
        let form = [
            ("payment_intent", refund.key.payment_id.clone()),
            ("amount", amount.to_string()),
            ("metadata[doorbuster_order]", refund.order.to_string()),
        ];
        let asked = self.client.post(format!("{}/refunds", self.api)).form(&form);
        let asked = asked.header("Idempotency-Key", format!("refund-{}", refund.key.payment_id));
        match self.answer(asked).await {
            Ok(body) => {
                let made: Refunding = serde_json::from_slice(&body)
                    .map_err(|_| ProviderError::Nonsense("it is not a refund"))?;
                match made.status.as_deref() {
                    Some("failed" | "canceled") => Err(ProviderError::Refused {
                        status: 402,
                        word: "the refund did not arrive".to_owned(),
                    }),
                    _ => Ok(made.id),
                }
            }
            // Behind the day for which a repetition is known as one.
            Err(ProviderError::Refused { word, .. }) if word == "charge_already_refunded" => Ok(word),
            Err(error) => Err(error),
        }
    }

    async fn events_since(&self, since: Timestamp) -> Result<Vec<ProviderEvent>, ProviderError> {
        let (mut events, mut behind): (Vec<ProviderEvent>, Option<String>) = (Vec::new(), None);
        for _ in 0..EVENT_PAGES_MAX {
            let mut query = vec![
                ("limit", "100".to_owned()),
                ("created[gte]", since.as_ms().div_euclid(1_000).to_string()),
            ];
            query.extend(KINDS.map(|kind| ("types[]", kind.to_owned())));
            query.extend(behind.map(|id| ("starting_after", id)));
            let place = reqwest::Url::parse_with_params(&format!("{}/events", self.api), &query)
                .map_err(|_| ProviderError::Nonsense("its address is none"))?;
            let page: Events = serde_json::from_slice(&self.answer(self.client.get(place)).await?)
                .map_err(|_| ProviderError::Nonsense("it is not a list of events"))?;
            behind = page.data.last().map(|event| event.id.clone()).filter(|_| page.has_more);
            for event in page.data {
                if let Ok(Verified::Event(event)) = read(event) {
                    events.push(*event);
                }
            }
            if behind.is_none() {
                break;
            }
        }
        // Stripe lists the newest first.
        events.reverse();
        Ok(events)
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Verified, Refusal> {
        let header = headers.get("stripe-signature").and_then(|it| it.to_str().ok());
        let header = header.ok_or(Refusal::NotSigned)?;
        let parts = || header.split(',').filter_map(|part| part.trim().split_once('='));
        let at = parts().find(|(name, _)| *name == "t").map(|(_, value)| value).ok_or(Refusal::NotSigned)?;
        let listed = parts().filter(|(name, _)| *name == "v1").map(|(_, value)| value);
        let signatures = signature::listed(listed, signature::from_hex);
        if signatures.is_empty() {
            return Err(Refusal::NotSigned);
        }
        self.secrets.check_time(at, now)?;
        if !self.secrets.fit(&[at.as_bytes(), b".", body], &signatures) {
            return Err(Refusal::BadSignature);
        }

        let event: Event = serde_json::from_slice(body).map_err(|_| Refusal::Unreadable)?;
        read(event)
    }
}

/// A session's request. The same attempt says the same at any time: Stripe refuses a repetition that
/// differs.
fn form(wish: &PaymentWish) -> Vec<(&'static str, String)> {
    let (order, attempt) = (wish.attempt.order.to_string(), wish.attempt.id.to_string());
    let (amount, currency) = to_stripe(wish.total);
    vec![
        ("mode", "payment".to_owned()),
        ("client_reference_id", order.clone()),
        ("line_items[0][quantity]", "1".to_owned()),
        ("line_items[0][price_data][currency]", currency),
        ("line_items[0][price_data][unit_amount]", amount.to_string()),
        ("line_items[0][price_data][product_data][name]", wish.title.clone()),
        ("metadata[doorbuster_order]", order.clone()),
        ("metadata[doorbuster_attempt]", attempt.clone()),
        ("payment_intent_data[metadata][doorbuster_order]", order),
        ("payment_intent_data[metadata][doorbuster_attempt]", attempt),
        ("success_url", wish.return_url.clone()),
        ("cancel_url", wish.return_url.clone()),
        ("expires_at", session_end(wish).as_ms().div_euclid(1_000).to_string()),
    ]
}

/// The order's deadline, where Stripe takes it: otherwise as near behind it as Stripe takes at any
/// moment at which the attempt may still be started. What is paid in between is to be given back.
fn session_end(wish: &PaymentWish) -> Timestamp {
    let begun = wish.attempt.begun_at;
    let end = if wish.expires_at >= begun.plus(SESSION_LEAST + MARGIN) {
        wish.expires_at
    } else {
        wish.expires_at.plus(SESSION_LEAST + MARGIN)
    };
    end.min(begun.plus(SESSION_MOST - MARGIN))
}

/// Króna and shilling have no minor unit, and Stripe counts them in hundredths all the same.
fn hundredfold(currency: Currency) -> bool {
    ["ISK", "UGX"].contains(&currency.as_str())
}

fn to_stripe(money: Money) -> (i64, String) {
    let factor = if hundredfold(money.currency) { 100 } else { 1 };
    (money.minor.saturating_mul(factor), money.currency.as_str().to_lowercase())
}

/// `None` for what is no amount of a currency.
fn from_stripe(amount: i64, currency: &str) -> Option<Money> {
    let currency: Currency = currency.to_uppercase().parse().ok()?;
    let whole = !hundredfold(currency) || amount % 100 == 0;
    let minor = if hundredfold(currency) { amount / 100 } else { amount };
    whole.then_some(Money { minor, currency })
}

fn page(body: &[u8]) -> Result<HostedPage, ProviderError> {
    let session: Session =
        serde_json::from_slice(body).map_err(|_| ProviderError::Nonsense("it is not a session"))?;
    let url = session.url.filter(|url| reqwest::Url::parse(url).is_ok_and(|url| is_web(&url)));
    match url {
        Some(url) if is_id(&session.id) => Ok(HostedPage { reference: session.id, url }),
        _ => Err(ProviderError::Nonsense("the session has no page")),
    }
}

/// Its message is left out: it may repeat what was sent.
fn refused(status: u16, body: &[u8]) -> ProviderError {
    let error = serde_json::from_slice::<Refused>(body).map(|it| it.error);
    let word = error.map_or_else(|_| "no reason".to_owned(), |it| it.code.unwrap_or(it.kind));
    ProviderError::Refused { status, word: word.chars().filter(|it| !it.is_control()).take(64).collect() }
}

/// What an event says of a payment: its kind, and where its object has the amount.
fn meaning(kind: &str, object: &Value) -> Option<(PaymentEventKind, &'static str)> {
    use PaymentEventKind::{Failed, RefundFailed, Refunded, Succeeded};
    match kind {
        "checkout.session.completed" => {
            // A delayed way of paying is not paid yet; `async_payment_succeeded` says when.
            (object["payment_status"] != "unpaid").then_some((Succeeded, "amount_total"))
        }
        "checkout.session.async_payment_succeeded" => Some((Succeeded, "amount_total")),
        "checkout.session.async_payment_failed" | "checkout.session.expired" => {
            Some((Failed, "amount_total"))
        }
        "payment_intent.succeeded" => Some((Succeeded, "amount_received")),
        "payment_intent.payment_failed" | "payment_intent.canceled" => Some((Failed, "amount")),
        "charge.refunded" => Some((Refunded, "amount_refunded")),
        // Of one that we asked for. Which of them is told depends on the version and on how it was paid.
        "refund.failed" | "refund.updated" | "charge.refund.updated" => {
            let failed = matches!(object["status"].as_str(), Some("failed" | "canceled"));
            failed.then_some((RefundFailed, "amount"))
        }
        _ => None,
    }
}

/// How a session that could not be ended stands.
fn ended(attempt: &PaymentAttempt, body: &[u8]) -> Result<Ended, ProviderError> {
    let nonsense = ProviderError::Nonsense;
    let object: Value = serde_json::from_slice(body).map_err(|_| nonsense("it is not a session"))?;
    match object["status"].as_str() {
        Some("expired") => return Ok(Ended::Over),
        Some("open" | "complete") => {}
        _ => return Err(nonsense("a session's status is open, complete or expired")),
    }
    let event = Event {
        id: format!("asked-{}", attempt.id),
        kind: "checkout.session.completed".to_owned(),
        data: EventData { object },
    };
    match read(event) {
        // Completed, and its money is still on the way; or open again.
        Ok(Verified::Other) => Ok(Ended::Open),
        Ok(Verified::Event(event)) if event.attempt == attempt.id => Ok(Ended::Paid(event)),
        Ok(Verified::Event(_)) | Err(_) => Err(nonsense("the session is not this attempt's")),
    }
}

fn read(event: Event) -> Result<Verified, Refusal> {
    let object = &event.data.object;
    let Some((kind, amount)) = meaning(&event.kind, object) else { return Ok(Verified::Other) };
    let named = |key: &str| object["metadata"][key].as_str();
    let (Some(order), attempt) = (named(ORDER), named(ATTEMPT)) else { return Ok(Verified::Other) };
    let refund = (kind == PaymentEventKind::RefundFailed).then(|| object["id"].as_str()).flatten();
    if attempt.is_none() && refund.is_none() {
        return Ok(Verified::Other);
    }
    let order: OrderId = order.parse().map_err(|_| Refusal::Unreadable)?;
    let attempt = match attempt {
        Some(attempt) => attempt.parse().map_err(|_| Refusal::Unreadable)?,
        // A refund carries its order alone.
        None => PaymentAttemptId::derived(NAME, order),
    };
    let money = object[amount].as_i64().zip(object["currency"].as_str());
    let money = money.and_then(|(amount, currency)| from_stripe(amount, currency));
    // A PaymentIntent is itself; a session that nobody paid has none.
    let payment = object["payment_intent"].as_str().or(object["id"].as_str());
    let (Some(money), Some(payment)) = (money, payment.filter(|it| is_id(it) && is_id(&event.id))) else {
        return Err(Refusal::Unreadable);
    };
    Ok(Verified::Event(Box::new(ProviderEvent {
        attempt,
        kind,
        payment: PaymentEvent {
            provider: NAME.to_owned(),
            payment_id: payment.to_owned(),
            order,
            amount_minor: money.minor,
            currency: money.currency,
            event_id: event.id,
        },
        refund: refund.map(str::to_owned),
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(window: Duration) -> PaymentWish {
        let order = OrderId(uuid::Uuid::from_u128(7));
        let begun_at = Timestamp::from_ms(1_795_766_400_000);
        PaymentWish {
            attempt: PaymentAttempt {
                id: PaymentAttemptId::derived(NAME, order),
                order,
                provider: NAME.to_owned(),
                reference: None,
                url: None,
                begun_at,
            },
            total: Money { minor: 1_990, currency: "EUR".parse().unwrap() },
            title: "Shoe".to_owned(),
            expires_at: begun_at.plus(window),
            return_url: "https://shop.example/".to_owned(),
        }
    }

    #[test]
    fn a_session_ends_at_the_deadline_where_stripe_takes_it() {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        for (window, expected) in [(10, 41), (30, 61), (31, 31), (90, 90), (1_439, 1_439), (2_000, 1_439)] {
            let wish = wish(minutes(window));
            let end = session_end(&wish).since(wish.attempt.begun_at);
            assert_eq!(end, minutes(expected), "a window of {window} minutes");
        }
    }

    #[test]
    fn amounts_are_stripes_and_back() {
        for (minor, code, stripe) in [
            (1_990, "EUR", (1_990, "eur")),
            (500, "JPY", (500, "jpy")),
            (1_990, "KWD", (1_990, "kwd")),
            (700, "ISK", (70_000, "isk")),
            (9_000, "UGX", (900_000, "ugx")),
        ] {
            let money = Money { minor, currency: code.parse().unwrap() };
            assert_eq!(to_stripe(money), (stripe.0, stripe.1.to_owned()));
            assert_eq!(from_stripe(stripe.0, stripe.1), Some(money));
        }
        assert_eq!(from_stripe(70_001, "isk"), None);
        assert_eq!(from_stripe(1, "euro"), None);
    }

    #[test]
    fn an_answer_without_a_page_is_nonsense() {
        for bad in [
            "",
            "[]",
            r#"{"id":"cs_1"}"#,
            r#"{"id":"cs_1","url":null}"#,
            r#"{"id":"cs_1","url":"javascript:alert(1)"}"#,
            r#"{"id":"cs_1","url":"/pay"}"#,
            r#"{"id":"","url":"https://checkout.example/"}"#,
        ] {
            assert!(matches!(page(bad.as_bytes()), Err(ProviderError::Nonsense(_))), "{bad}");
        }
        let good = page(br#"{"id":"cs_1","url":"https://checkout.example/c/pay/cs_1","more":1}"#).unwrap();
        assert_eq!(good.reference, "cs_1");
    }

    #[test]
    fn a_refusal_tells_its_word_and_not_what_was_sent() {
        let body =
            br#"{"error":{"type":"invalid_request_error","code":"amount_too_small","message":"sk_live_1"}}"#;
        let said = format!("{:?} {}", refused(400, body), refused(502, b"<html>"));
        assert!(said.contains("amount_too_small") && said.contains("502"), "{said}");
        assert!(!said.contains("sk_live_1"));
    }
}
