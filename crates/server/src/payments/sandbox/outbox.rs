//! The sandbox's webhooks on their way: one after the other, and again until they are taken.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::workers::{Step, Worker};
use reqwest::header::CONTENT_TYPE;

use crate::payments::signature::Secrets;

/// Most webhooks that wait; more choices are refused.
const WAITING_MAX: usize = 10_000;

/// How often a webhook is sent that nobody takes.
const TRIES_MAX: u32 = 10;

/// Pause before the first repetition; doubled each time.
const PAUSE: Duration = Duration::from_millis(500);

/// One webhook.
pub(super) struct Delivery {
    /// Names its event; copies of one event share it.
    pub(super) id: String,
    /// The attempt that it is about.
    pub(super) attempt: String,
    pub(super) body: Vec<u8>,
    /// Not before this, by the monotonic clock.
    pub(super) due: Duration,
    /// How often it was sent.
    pub(super) tries: u32,
}

/// The webhooks that wait, and where they go.
pub(super) struct Outbox {
    waiting: Mutex<VecDeque<Delivery>>,
    client: reqwest::Client,
    webhook: String,
    secrets: Arc<Secrets>,
    clock: Arc<dyn Clock>,
}

impl Outbox {
    /// An empty one; its webhooks go to the address `webhook`.
    pub(super) fn new(
        client: reqwest::Client,
        webhook: String,
        secrets: Arc<Secrets>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { waiting: Mutex::default(), client, webhook, secrets, clock }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Delivery>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes webhooks to be sent in this order; false when too many wait, and none is taken.
    pub(super) fn put(&self, deliveries: Vec<Delivery>) -> bool {
        let mut waiting = self.waiting();
        let room = waiting.len() + deliveries.len() <= WAITING_MAX;
        if room {
            waiting.extend(deliveries);
        }
        room
    }

    /// Whether something about an attempt waits.
    pub(super) fn has(&self, attempt: &str) -> bool {
        self.waiting().iter().any(|it| it.attempt == attempt)
    }

    fn next_due(&self) -> Option<Delivery> {
        let now = self.clock.monotonic();
        let mut waiting = self.waiting();
        let place = waiting.iter().position(|it| it.due <= now)?;
        waiting.remove(place)
    }

    /// Sends one webhook, signed as of now; whether it was taken.
    async fn send(&self, delivery: &Delivery) -> bool {
        let at = self.clock.now().as_ms().div_euclid(1_000).to_string();
        let parts: [&[u8]; 5] = [delivery.id.as_bytes(), b".", at.as_bytes(), b".", &delivery.body];
        let signature = format!("v1,{}", STANDARD.encode(self.secrets.sign(&parts)));
        let sent = self
            .client
            .post(&self.webhook)
            .header(CONTENT_TYPE, "application/json")
            .header("webhook-id", &delivery.id)
            .header("webhook-timestamp", at)
            .header("webhook-signature", signature)
            .body(delivery.body.clone())
            .send()
            .await;
        sent.is_ok_and(|answer| answer.status().is_success())
    }
}

/// Delivers what the sandbox has to say: one webhook a step. What waits is gone with the process, as
/// the sandbox is no place for anything that counts.
pub(crate) struct Sender {
    outbox: Arc<Outbox>,
}

impl Sender {
    pub(super) fn new(outbox: Arc<Outbox>) -> Self {
        Self { outbox }
    }
}

#[async_trait]
impl Worker for Sender {
    fn name(&self) -> &'static str {
        "sandbox"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let Some(mut delivery) = self.outbox.next_due() else { return Ok(Step::Idle) };
        if self.outbox.send(&delivery).await {
            return Ok(Step::Worked(1));
        }
        delivery.tries += 1;
        if delivery.tries == TRIES_MAX {
            tracing::warn!(event.id = delivery.id, "the sandbox gives up a webhook that nobody takes");
            return Ok(Step::Worked(1));
        }
        delivery.due = self.outbox.clock.monotonic() + PAUSE * (1 << delivery.tries);
        self.outbox.waiting().push_back(delivery);
        Ok(Step::Worked(1))
    }
}
