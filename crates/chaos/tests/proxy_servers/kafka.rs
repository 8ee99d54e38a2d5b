//! Kafka through the proxy, by the client library that the engine has too.

use std::time::Duration;

use doorbuster_chaos::proxy::{Effect, Ending, Matching, Moment, Protocol, Proxy, Then, Toxic};
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::producer::{FutureProducer, FutureRecord};

use crate::{address_of, own_name, soon};

const METADATA: i16 = 3;
const PRODUCE: i16 = 0;
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy before Kafka, and a topic of its own.
struct Way {
    proxy: Proxy,
    topic: String,
}

impl Way {
    async fn new() -> Self {
        let broker = address_of("KAFKA");
        let topic = own_name("proxy");
        let admin: AdminClient<_> = config(&broker).create().unwrap();
        let new = NewTopic::new(&topic, 1, TopicReplication::Fixed(1));
        let made = soon(admin.create_topics([&new], &AdminOptions::new())).await.unwrap();
        made.into_iter().for_each(|it| drop(it.unwrap()));
        let proxy = Proxy::start(Protocol::Kafka, broker.parse().unwrap()).await.unwrap();
        Self { proxy, topic }
    }

    fn producer(&self, settings: &[(&str, &str)]) -> FutureProducer {
        let mut config = config(&self.proxy.address().to_string());
        for (key, value) in settings {
            config.set(*key, *value);
        }
        config.create().unwrap()
    }

    async fn send(&self, producer: &FutureProducer) -> Result<(), String> {
        let record = FutureRecord::<str, str>::to(&self.topic).payload("x").partition(0);
        let sent = soon(producer.send(record, PATIENCE)).await;
        sent.map(drop).map_err(|(error, _)| error.to_string())
    }

    /// How many records the broker has, asked beside the proxy.
    async fn records(&self) -> i64 {
        let (topic, broker) = (self.topic.clone(), address_of("KAFKA"));
        let asked = tokio::task::spawn_blocking(move || {
            let consumer: BaseConsumer = config(&broker).create().unwrap();
            consumer.fetch_watermarks(&topic, 0, PATIENCE).unwrap().1
        });
        soon(asked).await.unwrap()
    }

    fn understood_all(&self) {
        assert_eq!((self.proxy.counts().unparsed, self.proxy.counts().too_large), (0, 0));
    }
}

fn config(broker: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", broker).set("reconnect.backoff.max.ms", "200");
    config
}

/// Asks for metadata through the proxy; the library waits in a thread of its own.
async fn ask(address: String, topic: String) -> Vec<(String, i32)> {
    let asked = tokio::task::spawn_blocking(move || {
        let consumer: BaseConsumer = config(&address).create().unwrap();
        let metadata = consumer.fetch_metadata(Some(&topic), PATIENCE).unwrap();
        metadata.brokers().iter().map(|it| (it.host().to_owned(), it.port())).collect()
    });
    soon(asked).await.unwrap()
}

#[tokio::test]
async fn clients_stay_on_the_proxy_since_replies_name_it() {
    let way = Way::new().await;
    let address = way.proxy.address();
    let brokers = ask(address.to_string(), way.topic.clone()).await;
    assert_eq!(brokers, [(address.ip().to_string(), i32::from(address.port()))]);
    assert!(way.proxy.counts().requests >= 2, "{:?}", way.proxy.counts());

    way.send(&way.producer(&[])).await.unwrap();
    assert_eq!(way.records().await, 1);
    way.understood_all();
}

#[tokio::test]
async fn a_client_whose_metadata_are_swallowed_asks_again() {
    let way = Way::new().await;
    let swallow = Toxic::new(Effect::SwallowReply(Then::End(Ending::Reset)));
    let swallow = way.proxy.add(swallow.on(Matching::Api(METADATA)).first(1)).unwrap();
    let brokers = ask(way.proxy.address().to_string(), way.topic.clone()).await;
    assert_eq!((brokers.len(), swallow.fired()), (1, 1));
    assert!(way.proxy.counts().connections >= 2);
    way.understood_all();
}

#[tokio::test]
async fn a_record_whose_acknowledgement_is_swallowed_is_there_and_repeating_it_shows_who_is_idempotent() {
    for (idempotent, records) in [("true", 1), ("false", 2)] {
        let way = Way::new().await;
        let swallow = Toxic::new(Effect::SwallowReply(Then::End(Ending::Reset)));
        let swallow = way.proxy.add(swallow.on(Matching::Api(PRODUCE)).first(1)).unwrap();
        let producer = way.producer(&[("enable.idempotence", idempotent), ("acks", "all")]);
        way.send(&producer).await.unwrap();
        assert_eq!(swallow.fired(), 1);
        assert_eq!(way.records().await, records, "idempotence {idempotent}");
        way.understood_all();
    }
}

#[tokio::test]
async fn a_record_that_is_cut_before_its_delivery_is_not_there_until_it_is_sent_again() {
    let way = Way::new().await;
    let cut = Toxic::new(Effect::Cut(Moment::BeforeDelivery, Ending::Reset)).on(Matching::Api(PRODUCE));
    let cut = way.proxy.add(cut).unwrap();
    let producer = way.producer(&[("retries", "0"), ("acks", "all")]);
    way.send(&producer).await.unwrap_err();
    assert_eq!((cut.fired(), way.records().await), (1, 0));
    way.proxy.heal();
    way.send(&producer).await.unwrap();
    assert_eq!(way.records().await, 1);
}

#[tokio::test]
async fn a_doubled_record_is_there_twice_and_acknowledged_once() {
    let way = Way::new().await;
    let duplicate = Toxic::new(Effect::Duplicate).on(Matching::Api(PRODUCE)).first(1);
    let duplicate = way.proxy.add(duplicate).unwrap();
    let producer = way.producer(&[]);
    way.send(&producer).await.unwrap();
    soon(duplicate.until_fired(1)).await;
    assert_eq!(way.records().await, 2);
    way.send(&producer).await.unwrap();
    assert_eq!(way.records().await, 3);
    way.understood_all();
}

#[tokio::test]
async fn a_producer_that_waits_for_no_copy_is_not_waited_for() {
    let way = Way::new().await;
    let producer = way.producer(&[("acks", "0")]);
    let delay = Toxic::new(Effect::SwallowReply(Then::Hang)).on(Matching::Api(PRODUCE));
    let swallow = way.proxy.add(delay).unwrap();
    for _ in 0..3 {
        way.send(&producer).await.unwrap();
    }
    soon(async { while way.records().await < 3 {} }).await;
    assert_eq!(swallow.fired(), 0, "there is no reply to swallow");
    way.understood_all();
}
