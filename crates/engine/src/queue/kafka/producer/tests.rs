//! Publishing while things go wrong, on the client library's make-believe cluster.

use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::super::ask::Asker;
use super::*;
use crate::conformance::sample;

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(30);

type Cluster = MockCluster<'static, DefaultProducerContext>;

/// A cluster of one broker with a topic, and options for it that soon lose patience.
fn cluster(partitions: u32) -> (Cluster, KafkaOptions) {
    let cluster = MockCluster::new(1).unwrap();
    let options = KafkaOptions {
        brokers: cluster.bootstrap_servers(),
        partitions,
        replication: 1,
        // A busy machine takes more than a second for a first one.
        message_timeout: Duration::from_secs(2),
        answer_timeout: Duration::from_secs(4),
        ..KafkaOptions::new("")
    };
    cluster.create_topic(&options.topic, signed(partitions), 1).unwrap();
    (cluster, options)
}

fn publisher(options: &KafkaOptions) -> Publisher {
    Publisher::new(options, Arc::default()).unwrap()
}

fn orders(numbers: std::ops::Range<u64>) -> Vec<OrderPlaced> {
    numbers.map(sample::order_placed).collect()
}

async fn publish(queue: &Publisher, orders: &[OrderPlaced]) {
    for result in queue.publish(orders).await {
        result.unwrap();
    }
}

async fn faults(queue: &Publisher, orders: &[OrderPlaced]) -> Vec<Fault> {
    queue.publish(orders).await.into_iter().map(|result| result.unwrap_err().fault).collect()
}

/// Publishes one order after the other until one is acknowledged.
async fn until_acknowledged(queue: &Publisher) {
    let acknowledged = async {
        for number in 1_000.. {
            if queue.publish(&orders(number..number + 1)).await[0].is_ok() {
                return;
            }
            // A refusal on the spot lets nobody else run.
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, acknowledged).await.expect("it recovers");
}

#[tokio::test]
async fn an_order_that_was_never_sent_did_not_happen_and_one_that_was_may_have() {
    let (cluster, options) = cluster(2);
    let queue = publisher(&options);
    until_acknowledged(&queue).await;

    // Sent, and the answer is late.
    cluster.broker_round_trip_time(-1, Duration::from_secs(20)).unwrap();
    assert_eq!(faults(&queue, &orders(10..12)).await, [Fault::Ambiguous, Fault::Ambiguous]);
    cluster.broker_round_trip_time(-1, Duration::ZERO).unwrap();
    until_acknowledged(&queue).await;

    // Nobody to send it to.
    cluster.broker_down(-1).unwrap();
    let unsent = async { while faults(&queue, &orders(20..21)).await != [Fault::Transient] {} };
    tokio::time::timeout(PATIENCE, unsent).await.expect("soon the connection is known to be lost");
    cluster.broker_up(-1).unwrap();
    until_acknowledged(&queue).await;
}

#[tokio::test]
async fn no_orders_are_taken_while_no_broker_is_there_and_they_are_when_one_answers() {
    let (cluster, options) = cluster(1);
    let queue = publisher(&options);
    let accepting = || queue.health.check(options.waiting_max);
    until_acknowledged(&queue).await;
    accepting().unwrap();

    cluster.broker_down(-1).unwrap();
    let refused = async {
        while accepting().is_ok() {
            faults(&queue, &orders(1..2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, refused).await.expect("it is noticed");
    let error = accepting().unwrap_err();
    assert!(error.fault == Fault::Transient && error.to_string().contains("no Kafka broker"), "{error}");
    let asker = Asker::new(&options).unwrap();
    assert_eq!(asker.ends().unwrap_err().fault, Fault::Transient);

    cluster.broker_up(-1).unwrap();
    let answered = async { while asker.ends().is_err() {} };
    tokio::time::timeout(PATIENCE, answered).await.expect("it answers again");
    queue.health.heard();
    accepting().unwrap();
    until_acknowledged(&queue).await;
    accepting().unwrap();
}

#[tokio::test]
async fn more_orders_than_may_wait_are_refused_at_once() {
    let (cluster, options) = cluster(1);
    let queue = publisher(&KafkaOptions { waiting_max: 10, ..options });
    cluster.broker_round_trip_time(-1, Duration::from_secs(20)).unwrap();
    let results = queue.publish(&orders(0..25)).await;
    let full = results.iter().filter(|it| it.as_ref().unwrap_err().to_string().contains("too many")).count();
    assert_eq!(full, 15);
    assert!(results.iter().all(Result::is_err), "none is said to be there");
    let refused = results.iter().filter(|it| it.as_ref().unwrap_err().fault == Fault::Transient);
    assert!(refused.count() >= 15);
}

#[tokio::test]
async fn a_client_that_failed_for_good_is_replaced() {
    let (cluster, options) = cluster(1);
    let fatal = RDKafkaRespErr::RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED;
    cluster.request_errors(RDKafkaApiKey::InitProducerId, &[fatal]);
    let queue = publisher(&options);
    assert_ne!(faults(&queue, &orders(0..1)).await, [Fault::Permanent]);
    until_acknowledged(&queue).await;
    publish(&queue, &orders(1..10)).await;
}

#[tokio::test]
async fn what_the_brokers_mend_by_themselves_is_no_fault() {
    let (cluster, options) = cluster(1);
    let queue = publisher(&KafkaOptions { message_timeout: Duration::from_secs(5), ..options });
    let passing = [
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION,
        RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT,
    ];
    cluster.request_errors(RDKafkaApiKey::Produce, &passing);
    publish(&queue, &orders(0..10)).await;
}

#[test]
fn orders_are_taken_while_they_arrive_and_one_is_tried_after_a_failure() {
    let health = Health::default();
    let taken = || health.check(80).is_ok();
    assert!(taken());
    health.waiting.store(71, Ordering::Relaxed);
    assert!(!taken(), "nearly full");
    health.waiting.store(70, Ordering::Relaxed);
    assert!(taken());

    health.failing.store(true, Ordering::Relaxed);
    assert!(!taken(), "others are on their way");
    health.waiting.store(0, Ordering::Relaxed);
    assert!(taken(), "one is tried");

    health.unreachable.store(true, Ordering::Relaxed);
    assert!(!taken());
    health.heard();
    assert!(taken());

    health.replaced();
    health.heard();
    assert!(!taken(), "another topic stays another topic");
}
