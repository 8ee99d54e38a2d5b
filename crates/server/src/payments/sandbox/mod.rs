//! The sandbox: a provider whose page lets everybody choose what becomes of a payment, for
//! demonstrations and tests.
//!
//! It keeps nothing: what its page shows stands, sealed, in the page's address, so that a page lives
//! as long as its secret and on every gateway. It tells us what was chosen as any provider does, by
//! signed webhooks over HTTP (Standard Webhooks), which [`Sender`] delivers and repeats. Asked how an
//! attempt ended, it looks whether something about it still waits to be told.

mod choice;
mod outbox;
pub(crate) mod page;

pub(crate) use choice::Choice;
use choice::Told;
pub(crate) use outbox::Sender;

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use doorbuster_engine::clock::{Clock, Timestamp};
use doorbuster_engine::ledger::{PaymentAttempt, PaymentEvent, PaymentEventKind, ProviderEvent, Refund};
use doorbuster_engine::order::Money;
use serde::{Deserialize, Serialize};

use super::{Ended, HostedPage, PaymentProvider, PaymentWish, ProviderError, Refusal, Verified, is_id};
use crate::signature::{self, Secrets};
use crate::views;
use outbox::{Delivery, Outbox};

/// Its word in addresses, the ledger and logs.
pub(crate) const NAME: &str = "sandbox";

/// Stands before what is sealed. No webhook's signed text can begin like this: its id has no line break.
const PAGE: &[u8] = b"page\n";

/// The provider.
pub(crate) struct Sandbox {
    secrets: Arc<Secrets>,
    /// Under which buyers reach its page.
    public: String,
    client: reqwest::Client,
    outbox: Arc<Outbox>,
    clock: Arc<dyn Clock>,
}

/// What a page is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Bill {
    /// The attempt's id.
    pub(crate) attempt: String,
    /// The order's id.
    pub(crate) order: String,
    /// What is to be paid.
    pub(crate) total: Money,
    /// What for.
    pub(crate) title: String,
    /// Where the shop is.
    pub(crate) return_url: String,
}

/// How the attempt of a page stands.
#[derive(Serialize, Deserialize)]
pub(crate) struct PageState {
    /// Whether something about it still waits to be told.
    open: bool,
}

/// The body of a webhook.
#[derive(Serialize, Deserialize)]
struct Message {
    #[serde(rename = "type")]
    kind: String,
    timestamp: String,
    data: MessageData,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageData {
    payment_id: String,
    attempt_id: String,
    order_id: String,
    amount_minor: i64,
    currency: String,
}

impl Sandbox {
    /// A sandbox whose pages are under `public` and whose webhooks go by `client` to the server at `local`.
    pub(super) fn new(
        secrets: Secrets,
        public: String,
        local: &str,
        clock: Arc<dyn Clock>,
        client: reqwest::Client,
    ) -> Self {
        let webhook = format!("{local}/api/flash-sales/payments/{NAME}/webhook");
        let secrets = Arc::new(secrets);
        let outbox = Arc::new(Outbox::new(client.clone(), webhook, Arc::clone(&secrets), Arc::clone(&clock)));
        Self { secrets, public, client, outbox, clock }
    }

    /// What delivers its webhooks.
    pub(crate) fn sender(&self) -> Sender {
        Sender::new(Arc::clone(&self.outbox))
    }

    /// The part of a page's address that says what it is about.
    fn seal(&self, bill: &Bill) -> String {
        let text = serde_json::to_vec(bill).unwrap_or_default();
        let seal = self.secrets.sign(&[PAGE, &text]);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(text), URL_SAFE_NO_PAD.encode(seal))
    }

    /// What a page is about; `None` when we did not write its address.
    pub(crate) fn unseal(&self, sealed: &str) -> Option<Bill> {
        let (text, seal) = sealed.split_once('.')?;
        let (text, seal) = (URL_SAFE_NO_PAD.decode(text).ok()?, URL_SAFE_NO_PAD.decode(seal).ok()?);
        if !self.secrets.fit(&[PAGE, &text], &[seal]) {
            return None;
        }
        serde_json::from_slice(&text).ok()
    }

    /// Does what was chosen on a page; false when too much waits to be sent.
    pub(crate) fn choose(&self, bill: &Bill, choice: Choice) -> bool {
        // An event's id is new for each choice and the same for its copies.
        let number: u128 = rand::random();
        let deliveries = choice.messages(bill.total.minor).into_iter().map(|told| Delivery {
            id: format!("evt_{number:032x}_{}", told.event),
            attempt: bill.attempt.clone(),
            body: self.message(bill, &told),
            due: self.clock.monotonic() + told.delay,
            tries: 0,
        });
        self.outbox.put(deliveries.collect())
    }

    /// How the attempt of a page stands.
    pub(crate) fn state(&self, bill: &Bill) -> PageState {
        PageState { open: self.outbox.has(&bill.attempt) }
    }

    fn message(&self, bill: &Bill, told: &Told) -> Vec<u8> {
        let data = MessageData {
            payment_id: reference(&bill.attempt),
            attempt_id: bill.attempt.clone(),
            order_id: bill.order.clone(),
            amount_minor: told.amount_minor,
            currency: bill.total.currency.as_str().to_owned(),
        };
        let timestamp = views::time(self.clock.now());
        let message = Message { kind: kind_word(told.kind).to_owned(), timestamp, data };
        serde_json::to_vec(&message).unwrap_or_default()
    }
}

/// What the sandbox calls an attempt and its one payment.
fn reference(attempt: &str) -> String {
    format!("{NAME}_{attempt}")
}

const fn kind_word(kind: PaymentEventKind) -> &'static str {
    match kind {
        PaymentEventKind::Succeeded => "payment.succeeded",
        PaymentEventKind::Failed => "payment.failed",
        PaymentEventKind::Refunded => "payment.refunded",
        // Never told: what the sandbox gives back arrives.
        PaymentEventKind::RefundFailed => "payment.refund_failed",
    }
}

#[async_trait]
impl PaymentProvider for Sandbox {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn start(&self, wish: &PaymentWish) -> Result<HostedPage, ProviderError> {
        let bill = Bill {
            attempt: wish.attempt.id.to_string(),
            order: wish.attempt.order.to_string(),
            total: wish.total,
            title: wish.title.clone(),
            return_url: wish.return_url.clone(),
        };
        let url = format!("{}/sandbox/pay/{}", self.public, self.seal(&bill));
        Ok(HostedPage { reference: reference(&bill.attempt), url })
    }

    async fn end(&self, attempt: &PaymentAttempt) -> Result<Ended, ProviderError> {
        let Some(page) = &attempt.url else { return Ok(Ended::Over) };
        let silent = |error: reqwest::Error| ProviderError::Unreachable(Some(error.without_url()));
        let answer = self.client.get(format!("{page}?state=1")).send().await.map_err(silent)?;
        let status = answer.status().as_u16();
        if status != 200 {
            return Err(ProviderError::Refused { status, word: "no such page".to_owned() });
        }
        let body = answer.bytes().await.map_err(silent)?;
        let state: PageState = serde_json::from_slice(&body)
            .map_err(|_| ProviderError::Nonsense("it does not say how its page stands"))?;
        Ok(if state.open { Ended::Open } else { Ended::Over })
    }

    async fn refund(&self, refund: &Refund) -> Result<String, ProviderError> {
        // No money ever moved.
        Ok(format!("refund_{}", refund.key.payment_id))
    }

    async fn events_since(&self, _: Timestamp) -> Result<Vec<ProviderEvent>, ProviderError> {
        // It keeps nothing that its webhooks have not told.
        Ok(Vec::new())
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Verified, Refusal> {
        let header = |name| headers.get(name).and_then(|it| it.to_str().ok()).ok_or(Refusal::NotSigned);
        let (id, at) = (header("webhook-id")?, header("webhook-timestamp")?);
        let listed = header("webhook-signature")?.split(' ').filter_map(|it| it.strip_prefix("v1,"));
        let signatures = signature::listed(listed, |it| STANDARD.decode(it).ok());
        if signatures.is_empty() || !is_id(id) {
            return Err(Refusal::NotSigned);
        }
        self.secrets.check_time(at, now)?;
        if !self.secrets.fit(&[id.as_bytes(), b".", at.as_bytes(), b".", body], &signatures) {
            return Err(Refusal::BadSignature);
        }

        let message: Message = serde_json::from_slice(body).map_err(|_| Refusal::Unreadable)?;
        event(id, message)
    }
}

fn event(id: &str, Message { kind, data, .. }: Message) -> Result<Verified, Refusal> {
    let kinds = [PaymentEventKind::Succeeded, PaymentEventKind::Failed, PaymentEventKind::Refunded];
    let Some(kind) = kinds.into_iter().find(|it| kind_word(*it) == kind) else {
        return Ok(Verified::Other);
    };
    let unreadable = |_| Refusal::Unreadable;
    if !is_id(&data.payment_id) {
        return Err(Refusal::Unreadable);
    }
    Ok(Verified::Event(Box::new(ProviderEvent {
        attempt: data.attempt_id.parse().map_err(unreadable)?,
        kind,
        payment: PaymentEvent {
            provider: NAME.to_owned(),
            event_id: id.to_owned(),
            payment_id: data.payment_id,
            order: data.order_id.parse().map_err(unreadable)?,
            amount_minor: data.amount_minor,
            currency: data.currency.parse().map_err(unreadable)?,
        },
        refund: None,
    })))
}
