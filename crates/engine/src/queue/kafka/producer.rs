//! Publishing: orders out, acknowledgements in.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::ask::{refused, signed};
use super::native::surely_not_persisted;
use super::options::KafkaOptions;
use super::words::{self, fault};
use crate::fault::{BackendError, Fault};
use crate::order::OrderPlaced;
use crate::queue::{message, partition_of};

/// How much longer than the client library's own limit an acknowledgement is waited for: it gives
/// every record back by then.
const GRACE: Duration = Duration::from_secs(5);

/// What is known of the way to the brokers without asking.
#[derive(Default)]
pub(super) struct Health {
    /// Orders that wait for their acknowledgement.
    waiting: AtomicU32,
    /// The last order that came back came back undelivered.
    failing: AtomicBool,
    /// The client library lost the last of its connections, and nothing was heard since.
    unreachable: AtomicBool,
    /// The topic was deleted and made anew.
    replaced: AtomicBool,
}

impl Health {
    /// An answer came.
    pub(super) fn heard(&self) {
        self.unreachable.store(false, Ordering::Relaxed);
    }

    /// The topic is another one now. This does not end.
    pub(super) fn replaced(&self) {
        self.replaced.store(true, Ordering::Relaxed);
    }

    /// Whether the topic is another one now.
    pub(super) fn is_replaced(&self) -> bool {
        self.replaced.load(Ordering::Relaxed)
    }

    /// Why new orders cannot be taken, if they cannot.
    pub(super) fn check(&self, waiting_max: u32) -> Result<(), BackendError> {
        let waiting = self.waiting.load(Ordering::Relaxed);
        let why = if self.is_replaced() {
            "the topic was deleted and made anew: no orders until the processes are started anew"
        } else if self.unreachable.load(Ordering::Relaxed) {
            "no Kafka broker can be reached"
        } else if self.failing.load(Ordering::Relaxed) && waiting > 0 {
            // With none on its way, the next one is let through, to see whether it arrives.
            "the last order was not delivered to Kafka, and the next is still on its way"
        } else if waiting > waiting_max - waiting_max / 8 {
            "too many orders wait for Kafka"
        } else {
            return Ok(());
        };
        Err(fault(Fault::Transient, why))
    }
}

type Client = ThreadedProducer<Deliveries>;
type Answer = Result<(), BackendError>;

/// Sends orders to their partitions.
pub(super) struct Publisher {
    config: ClientConfig,
    topic: String,
    partitions: u32,
    message_timeout: Duration,
    health: Arc<Health>,
    client: Mutex<Arc<Client>>,
}

impl Publisher {
    /// A publisher whose client connects by itself.
    ///
    /// # Errors
    /// The client library refuses the options.
    pub(super) fn new(options: &KafkaOptions, health: Arc<Health>) -> Result<Self, BackendError> {
        let config = options.producer();
        let client = Mutex::new(Arc::new(new_client(&config, &health)?));
        Ok(Self {
            config,
            topic: options.topic.clone(),
            partitions: options.partitions,
            message_timeout: options.message_timeout,
            health,
            client,
        })
    }

    /// Sends orders and waits for what becomes of each.
    pub(super) async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Answer> {
        let client = match self.client() {
            Ok(client) => client,
            Err(error) => return orders.iter().map(|_| Err(again(&error))).collect(),
        };
        let sent: Vec<_> = orders.iter().map(|order| self.send(&client, order)).collect();
        let until = Instant::now() + self.message_timeout + GRACE;
        let mut answers = Vec::with_capacity(sent.len());
        for answer in sent {
            answers.push(match answer {
                Ok(answer) => match tokio::time::timeout_at(until, answer).await {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(_)) | Err(_) => {
                        Err(fault(Fault::Ambiguous, "the Kafka client gave no answer about an order"))
                    }
                },
                Err(error) => Err(error),
            });
        }
        answers
    }

    fn send(&self, client: &Client, order: &OrderPlaced) -> Result<oneshot::Receiver<Answer>, BackendError> {
        let reservation = &order.reservation;
        let (acknowledged, answer) = oneshot::channel();
        let payload = message::encode(order);
        let version = message::VERSION.to_string();
        let mut headers = OwnedHeaders::new().insert(Header { key: "version", value: Some(&version) });
        if let Some(trace) = &reservation.trace {
            headers = headers.insert(Header { key: "traceparent", value: Some(trace) });
        }
        let record = BaseRecord::with_opaque_to(&self.topic, Box::new(acknowledged))
            .partition(signed(partition_of(&reservation.user, self.partitions)))
            .key(reservation.user.as_bytes())
            .payload(&payload)
            .headers(headers);
        self.health.waiting.fetch_add(1, Ordering::Relaxed);
        client.send(record).map(|()| answer).map_err(|(error, _)| {
            self.health.waiting.fetch_sub(1, Ordering::Relaxed);
            let code = error.rdkafka_error_code();
            if code == Some(RDKafkaErrorCode::Fatal) {
                client.context().fatal.store(true, Ordering::Relaxed);
            }
            // It never left this process.
            let what = match code {
                Some(RDKafkaErrorCode::QueueFull) => "too many orders wait for Kafka",
                _ => "an order could not be handed to the Kafka client",
            };
            fault(Fault::Transient, what).caused_by(error)
        })
    }

    /// The client, a new one after a fatal error: the library uses one never again after it.
    fn client(&self) -> Result<Arc<Client>, BackendError> {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if client.context().fatal.load(Ordering::Relaxed) {
            tracing::warn!("the Kafka client cannot publish any more; going on with a new one");
            let old = std::mem::replace(&mut *client, Arc::new(new_client(&self.config, &self.health)?));
            // It waits for its thread.
            let _ = std::thread::Builder::new().name("queue-close".to_owned()).spawn(move || drop(old));
        }
        Ok(Arc::clone(&client))
    }
}

impl Drop for Publisher {
    /// Whoever published waits for the answer, so this waits only for orders that nobody waits for.
    fn drop(&mut self) {
        let client = self.client.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = client.flush(self.message_timeout) {
            tracing::warn!(%error, "orders were still on their way to Kafka at the end; the sweeper finds them");
        }
    }
}

fn new_client(config: &ClientConfig, health: &Arc<Health>) -> Result<Client, BackendError> {
    let context = Deliveries { health: Arc::clone(health), fatal: AtomicBool::new(false) };
    config.create_with_context(context).map_err(refused)
}

/// The same fault for the next order.
fn again(error: &BackendError) -> BackendError {
    fault(error.fault, error.what.clone())
}

/// Hears what became of each order.
struct Deliveries {
    health: Arc<Health>,
    fatal: AtomicBool,
}

impl ClientContext for Deliveries {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        words::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AllBrokersDown) => {
                if !self.health.unreachable.swap(true, Ordering::Relaxed) {
                    tracing::error!(reason, "no Kafka broker can be reached: no new orders until one can");
                }
            }
            Some(RDKafkaErrorCode::Fatal) => {
                tracing::error!(reason, "the Kafka client failed for good");
                self.fatal.store(true, Ordering::Relaxed);
            }
            _ => tracing::debug!(%error, reason, "Kafka client"),
        }
    }
}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<oneshot::Sender<Answer>>;

    fn delivery(&self, result: &DeliveryResult<'_>, acknowledged: Self::DeliveryOpaque) {
        let answer = match result {
            Ok(_) => {
                self.health.heard();
                self.health.failing.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err((error, message)) => {
                self.health.failing.store(true, Ordering::Relaxed);
                if error.rdkafka_error_code() == Some(RDKafkaErrorCode::Fatal) {
                    self.fatal.store(true, Ordering::Relaxed);
                }
                let (kind, what) = if surely_not_persisted(message) {
                    (Fault::Transient, "Kafka did not take an order")
                } else {
                    (Fault::Ambiguous, "nobody knows whether Kafka took an order")
                };
                Err(fault(kind, what).caused_by(error.clone()))
            }
        };
        self.health.waiting.fetch_sub(1, Ordering::Relaxed);
        // A publisher that is gone belongs to a stopping server; its record stays.
        let _ = acknowledged.send(answer);
    }
}

#[cfg(test)]
mod tests;
