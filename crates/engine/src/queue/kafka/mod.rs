//! The queue in Kafka: a topic whose partitions several recorders share.
//!
//! An order is acknowledged when every broker that keeps its partition up to date has it. Positions
//! are the ledger's: nothing is read from where the consumer group believes to be, and a position
//! that is not in the log is an error. A topic's identity is the id that Kafka gave it, so that one
//! deleted and made anew under the same name is noticed.
//!
//! The client library blocks, so every call into it that waits runs on a blocking thread.

mod ask;
mod group;
mod native;
mod options;
mod producer;
mod reader;
mod topic;
mod words;

pub use options::{KafkaOptions, KafkaSasl, KafkaSecurity, KafkaTls, SaslMechanism};

use std::sync::Arc;

use async_trait::async_trait;

use super::{Queue, Reader};
use crate::delivery::{Position, TopicId};
use crate::fault::{BackendError, Fault};
use crate::order::OrderPlaced;
use ask::Asker;
use producer::{Health, Publisher};
use reader::KafkaReader;
use words::fault;

/// The queue in Kafka. Dropped, it waits at most the message timeout for orders on their way.
pub struct KafkaQueue {
    options: Arc<KafkaOptions>,
    topic: Arc<Topic>,
    publisher: Publisher,
}

/// The topic as it was when we connected, and whether it still is.
struct Topic {
    name: String,
    id: TopicId,
    partitions: u32,
    asker: Arc<Asker>,
    health: Arc<Health>,
}

impl KafkaQueue {
    /// Connects, and makes the topic where it is missing. What is legal and dangerous about an
    /// existing one is warned of: fewer copies than wanted, or that one alone is enough for an
    /// acknowledgement.
    ///
    /// # Errors
    /// Transient when no broker answers within `answer_timeout`; permanent when the client library
    /// refuses the options, the topic cannot be made, or it has another number of partitions.
    pub async fn connect(options: KafkaOptions) -> Result<Self, BackendError> {
        if options.partitions == 0 || options.waiting_max == 0 || options.message_timeout.as_millis() == 0 {
            let what = "Kafka needs at least one partition, room for one order, and time for it";
            return Err(fault(Fault::Permanent, what));
        }
        let asker = Arc::new(Asker::new(&options)?);
        let id = topic::prepare(&options, &asker).await?;
        let health = Arc::new(Health::default());
        let publisher = Publisher::new(&options, Arc::clone(&health))?;
        let topic = Topic { name: options.topic.clone(), id, partitions: options.partitions, asker, health };
        Ok(Self { options: Arc::new(options), topic: Arc::new(topic), publisher })
    }

    /// The topic's identity. Positions of another one belong to a topic that is gone.
    pub fn topic_id(&self) -> &TopicId {
        &self.topic.id
    }
}

impl Topic {
    /// Makes sure that the topic is the one that we connected to. Blocks.
    ///
    /// # Errors
    /// Permanent when another one has its name, transient when there is none or nobody answers.
    fn check_identity(&self) -> Result<(), BackendError> {
        let present = self.asker.identity()?;
        self.health.heard();
        match present {
            Some(id) if id == self.id => Ok(()),
            Some(id) => {
                self.health.replaced();
                let what = format!(
                    "the topic {} was deleted and made anew: it was {} and is {id}. Records that were not yet in \
                     the ledger are gone with it, unless the stock still has them. This process takes no more \
                     orders; stop all processes, and restore the topic or rebuild every sale on the new one",
                    self.name, self.id
                );
                Err(fault(Fault::Permanent, what))
            }
            None => Err(fault(Fault::Transient, format!("the topic {} is not there", self.name))),
        }
    }

    /// The end of every partition. Blocks.
    fn ends(&self) -> Result<Vec<Position>, BackendError> {
        self.check_identity()?;
        let ends = self.asker.ends()?;
        let position = |(partition, next)| Position { topic: self.id.clone(), partition, next };
        Ok((0..self.partitions).zip(ends).map(position).collect())
    }
}

#[async_trait]
impl Queue for KafkaQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>> {
        if self.topic.health.is_replaced() {
            let refused = || Err(fault(Fault::Transient, "the topic was deleted and made anew"));
            return orders.iter().map(|_| refused()).collect();
        }
        self.publisher.publish(orders).await
    }

    fn accepting(&self) -> Result<(), BackendError> {
        self.topic.health.check(self.options.waiting_max)
    }

    async fn end_positions(&self) -> Result<Vec<Position>, BackendError> {
        let topic = Arc::clone(&self.topic);
        blocking(move || topic.ends()).await
    }

    async fn reader(&self) -> Result<Box<dyn Reader>, BackendError> {
        Ok(Box::new(KafkaReader::new(&self.options, Arc::clone(&self.topic))?))
    }
}

/// Runs what blocks where it may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, BackendError> + Send + 'static,
) -> Result<T, BackendError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| {
        Err(fault(Fault::Ambiguous, "a call into the Kafka client broke off").caused_by(error))
    })
}
