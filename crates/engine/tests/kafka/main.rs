//! The queue in a real Kafka keeps the promises of its trait, and those that only it makes. (Faults
//! that a healthy Kafka does not have are tested beside the code.)
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod reading;
mod security;
#[path = "../services/mod.rs"]
mod services;
mod topic;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Batch, Position};
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::order::OrderPlaced;
use doorbuster_engine::queue::{KafkaOptions, KafkaQueue, NextOutcome, Queue, Reader};
use doorbuster_engine::{conformance, queue_promises};
use rdkafka::ClientConfig;
use rdkafka::admin::AdminClient;
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{FutureProducer, FutureRecord};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one call of a reader waits.
const WAIT: Duration = Duration::from_millis(250);

/// Options over a topic and a group of the test's own.
fn options(partitions: u32) -> KafkaOptions {
    let name = services::own_name("orders");
    KafkaOptions {
        topic: name.clone(),
        group: name,
        partitions,
        replication: 1,
        ..KafkaOptions::new(services::address_of("KAFKA"))
    }
}

async fn connect(options: &KafkaOptions) -> KafkaQueue {
    KafkaQueue::connect(options.clone()).await.unwrap()
}

fn client() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", services::address_of("KAFKA"));
    config
}

fn admin() -> AdminClient<DefaultClientContext> {
    client().create().unwrap()
}

/// Puts a record into the topic past our own publisher.
async fn append(topic: &str, partition: i32, payload: &[u8]) {
    let client: FutureProducer = client().set("message.max.bytes", "2000000").create().unwrap();
    let record = FutureRecord::<[u8], [u8]>::to(topic).partition(partition).payload(payload);
    let sent = client.send(record, PATIENCE).await;
    sent.map_err(|(error, _)| error).unwrap();
}

fn orders(numbers: std::ops::Range<u64>) -> Vec<OrderPlaced> {
    numbers.map(sample::order_placed).collect()
}

async fn publish(queue: &dyn Queue, orders: &[OrderPlaced]) {
    for result in queue.publish(orders).await {
        result.unwrap();
    }
}

/// The same places, at the beginning.
fn beginning(ends: &[Position]) -> Vec<Position> {
    ends.iter().map(|end| Position { next: 0, ..end.clone() }).collect()
}

/// The next batch of a reader, placed anew at `positions` where its share changed.
async fn next(reader: &mut dyn Reader, positions: &[Position]) -> Result<Batch, BackendError> {
    let found = async {
        loop {
            match reader.next(500, WAIT).await? {
                NextOutcome::Batch(batch) => return Ok(batch),
                NextOutcome::Idle => {}
                NextOutcome::Moved => reader.seek(positions).await?,
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("a batch comes in time")
}

mod promises {
    use super::*;

    struct Kafka {
        queue: Arc<KafkaQueue>,
        topic: String,
    }

    #[async_trait]
    impl conformance::queue::Bench for Kafka {
        fn queue(&self) -> Arc<dyn Queue> {
            Arc::clone(&self.queue) as _
        }

        async fn append_garbage(&self) {
            append(&self.topic, 0, b"\xff not a message").await;
        }
    }

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let options = options(3);
                let queue = Arc::new(connect(&options).await);
                conformance::queue::$promise(&Kafka { queue, topic: options.topic }).await;
            }
        )*};
    }

    queue_promises!(tests);
}
