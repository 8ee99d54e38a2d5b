//! The topic: made, checked, and known again.

use doorbuster_engine::fault::Fault;
use rdkafka::admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;

use super::*;

#[tokio::test]
async fn a_missing_topic_is_made_as_wanted_by_whoever_comes_first() {
    let options = options(4);
    let (one, other) = tokio::join!(connect(&options), connect(&options));
    assert_eq!(one.topic_id(), other.topic_id());
    assert_eq!(one.end_positions().await.unwrap().len(), 4);

    let topic = ResourceSpecifier::Topic(&options.topic);
    let described = admin().describe_configs([&topic], &AdminOptions::new()).await.unwrap();
    let settings = described.into_iter().next().unwrap().unwrap();
    let value = |name: &str| settings.get(name).unwrap().value.clone().unwrap();
    assert_eq!(value("message.timestamp.type"), "LogAppendTime");
    assert_eq!(value("cleanup.policy"), "delete");
    assert_eq!(value("unclean.leader.election.enable"), "false");
    assert_eq!(value("retention.ms"), "604800000", "seven days, whatever the brokers' own default");
    assert_eq!(value("retention.bytes"), "-1");
}

#[tokio::test]
async fn a_topic_of_another_number_of_partitions_is_refused_in_words_that_help() {
    let options = options(3);
    connect(&options).await;
    let other = KafkaOptions { partitions: 4, ..options.clone() };
    let error = KafkaQueue::connect(other).await.err().unwrap();
    assert_eq!(error.fault, Fault::Permanent);
    let text = error.to_string();
    for word in ["queue", &options.topic, "has 3 partitions", "4 are configured", "Configure 3"] {
        assert!(text.contains(word), "{word} is missing in: {text}");
    }
}

#[tokio::test]
async fn more_copies_than_brokers_are_no_reason_not_to_start() {
    let brokers = services::address_of("KAFKA").split(',').count();
    let options = KafkaOptions { replication: u16::try_from(brokers).unwrap() + 2, ..options(1) };
    publish(&connect(&options).await, &orders(0..1)).await;
}

#[tokio::test]
async fn brokers_that_do_not_answer_are_told_in_bounded_time() {
    let mut options = options(1);
    options.brokers = "127.0.0.1:1".to_owned();
    options.answer_timeout = Duration::from_secs(1);
    let connecting = tokio::time::timeout(Duration::from_secs(10), KafkaQueue::connect(options));
    let error = connecting.await.unwrap().err().unwrap();
    assert_eq!(error.fault, Fault::Transient);
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

/// Deletes the topic and makes it anew under the same name.
async fn recreate(topic: &str, partitions: i32) {
    let (admin, patience) = (admin(), AdminOptions::new());
    admin.delete_topics(&[topic], &patience).await.unwrap().remove(0).unwrap();
    let new = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let made = async {
        loop {
            match admin.create_topics([&new], &patience).await.unwrap().remove(0) {
                Ok(_) => return,
                // Kafka deletes in the background.
                Err((_, code)) => assert_eq!(code, RDKafkaErrorCode::TopicAlreadyExists),
            }
        }
    };
    tokio::time::timeout(PATIENCE, made).await.unwrap();
}

#[tokio::test]
async fn a_topic_made_anew_under_the_same_name_is_another_one_and_is_noticed() {
    let options = options(2);
    let queue = connect(&options).await;
    publish(&queue, &orders(0..20)).await;
    let ends = queue.end_positions().await.unwrap();
    let mut reader = queue.reader().await.unwrap();
    let start = beginning(&ends);
    reader.seek(&start).await.unwrap();
    next(reader.as_mut(), &start).await.unwrap();

    recreate(&options.topic, 2).await;
    let noticed = async {
        loop {
            match queue.end_positions().await {
                Err(error) if error.fault == Fault::Permanent => return error,
                // Not every broker knows it yet.
                Ok(_) | Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, noticed).await.unwrap().to_string();
    assert!(error.contains("deleted and made anew"), "{error}");
    assert!(queue.accepting().unwrap_err().to_string().contains("made anew"));
    let refused = queue.publish(&orders(20..21)).await.remove(0).unwrap_err();
    assert_eq!(refused.fault, Fault::Transient, "it is not put into another topic: {refused}");

    // The reader is told too, also when the new topic is longer than what it has read.
    let read_on = async {
        loop {
            if let Err(error) = reader.next(500, WAIT).await {
                return error;
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, read_on).await.unwrap();
    assert!(error.fault == Fault::Permanent && reader.seek(&ends).await.is_err(), "{error}");
    let again = connect(&options).await;
    assert_ne!(again.topic_id(), queue.topic_id());
    assert!(again.end_positions().await.unwrap().iter().all(|end| end.next == 0));
}
