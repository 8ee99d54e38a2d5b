//! The sandbox's webhooks on their way: those of one payment one after the other, and again until they are
//! taken.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::workers::{Step, Worker};
use futures_util::future::join_all;
use reqwest::header::CONTENT_TYPE;

use crate::signature::Secrets;

/// Most webhooks that wait; more choices are refused.
const WAITING_MAX: usize = 10_000;

/// Most webhooks on their way at once: each waits for a commit, and a commit can take many.
const SENT_AT_ONCE: usize = 32;

/// How often a webhook is sent that nobody takes.
const TRIES_MAX: u32 = 10;

/// Pause before the first repetition; doubled each time.
const PAUSE: Duration = Duration::from_millis(500);

/// One webhook.
pub(super) struct Delivery {
    /// Names its event; copies of one event share it.
    pub(super) id: String,
    /// The attempt that it is about: what is said of one attempt arrives in the order it was said in.
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
    /// Attempts of which a webhook is being sent.
    under_way: Mutex<HashSet<String>>,
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
        Self { waiting: Mutex::default(), under_way: Mutex::default(), client, webhook, secrets, clock }
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

    fn under_way(&self) -> MutexGuard<'_, HashSet<String>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something about an attempt waits, or is being sent.
    pub(super) fn has(&self, attempt: &str) -> bool {
        let waiting = self.waiting();
        waiting.iter().any(|it| it.attempt == attempt) || self.under_way().contains(attempt)
    }

    /// What is due, at most one of each attempt.
    fn take_due(&self) -> Vec<Delivery> {
        let now = self.clock.monotonic();
        let mut waiting = self.waiting();
        let (mut taken, mut attempts): (Vec<Delivery>, HashSet<String>) = (Vec::new(), HashSet::new());
        let mut place = 0;
        while taken.len() < SENT_AT_ONCE && place < waiting.len() {
            let it = &waiting[place];
            if it.due <= now && attempts.insert(it.attempt.clone()) {
                taken.extend(waiting.remove(place));
            } else {
                place += 1;
            }
        }
        // While what waits is locked: at every moment a webhook is in one of the two.
        self.under_way().extend(attempts);
        taken
    }

    /// A webhook was sent: it is gone, or waits again.
    fn settle(&self, delivery: Delivery, was_taken: bool) {
        let attempt = delivery.attempt.clone();
        if !was_taken {
            self.put_back(delivery);
        }
        self.under_way().remove(&attempt);
    }

    /// Lets a webhook that was not taken wait, unless it was sent too often.
    fn put_back(&self, mut delivery: Delivery) {
        delivery.tries += 1;
        if delivery.tries == TRIES_MAX {
            tracing::warn!(event.id = delivery.id, "the sandbox gives up a webhook that nobody takes");
            return;
        }
        delivery.due = self.clock.monotonic() + PAUSE * (1 << delivery.tries);
        self.waiting().push_back(delivery);
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

/// Delivers what the sandbox has to say: some webhooks a step, of different attempts. What waits is gone
/// with the process, as the sandbox is no place for anything that counts.
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
        let due = self.outbox.take_due();
        if due.is_empty() {
            return Ok(Step::Idle);
        }
        let taken = join_all(due.iter().map(|delivery| self.outbox.send(delivery))).await;
        let sent = due.len() as u64;
        for (delivery, was_taken) in due.into_iter().zip(taken) {
            self.outbox.settle(delivery, was_taken);
        }
        Ok(Step::Worked(sent))
    }
}

#[cfg(test)]
mod tests {
    use doorbuster_engine::clock::{ManualClock, Timestamp};

    use super::*;

    fn outbox() -> (Outbox, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(0)));
        let secrets = Arc::new(Secrets::derived(b"secret", Duration::from_secs(1)));
        (Outbox::new(reqwest::Client::new(), String::new(), secrets, Arc::clone(&clock) as _), clock)
    }

    #[test]
    fn what_is_being_sent_is_not_told_yet() {
        let (outbox, clock) = outbox();
        let delivery = |id: &str| Delivery {
            id: id.to_owned(),
            attempt: "a".to_owned(),
            body: Vec::new(),
            due: clock.monotonic(),
            tries: 0,
        };
        assert!(outbox.put(vec![delivery("one")]) && outbox.has("a") && !outbox.has("b"));
        let sent = outbox.take_due().remove(0);
        assert!(outbox.has("a"), "on its way");
        outbox.settle(sent, false);
        assert!(outbox.has("a"), "it waits again");
        clock.advance(PAUSE * 2);
        let sent = outbox.take_due().remove(0);
        outbox.settle(sent, true);
        assert!(!outbox.has("a"));
    }

    #[test]
    fn one_webhook_of_each_attempt_is_on_its_way_in_the_order_it_was_put() {
        let (outbox, clock) = outbox();
        let delivery = |id: &str, attempt: &str, due| Delivery {
            id: id.to_owned(),
            attempt: attempt.to_owned(),
            body: Vec::new(),
            due: clock.monotonic() + Duration::from_millis(due),
            tries: 0,
        };
        assert!(outbox.put(vec![
            delivery("late", "a", 1),
            delivery("a1", "a", 0),
            delivery("a2", "a", 0),
            delivery("b1", "b", 0)
        ]));
        let taken = || outbox.take_due().into_iter().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(taken(), ["a1", "b1"]);
        assert_eq!(taken(), ["a2"]);
        assert_eq!(taken(), Vec::<String>::new());
        clock.advance(Duration::from_millis(1));
        assert_eq!(taken(), ["late"]);
        let many = (0..SENT_AT_ONCE + 1).map(|n| delivery("x", &n.to_string(), 0)).collect();
        assert!(outbox.put(many));
        assert_eq!((taken().len(), taken().len()), (SENT_AT_ONCE, 1));
    }
}
