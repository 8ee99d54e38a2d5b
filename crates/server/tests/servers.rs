//! Servers that cannot be used: the start says which, why, and what to do, and never a password.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::net::{SocketAddr, TcpListener};

use shop::{Shop, servers};

/// A loopback address where nobody listens.
fn nobody() -> SocketAddr {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap()
}

/// What a start with these settings says.
async fn complaint(backends: &str, settings: &[(&str, &str)]) -> String {
    let servers = servers(backends);
    let mut all: Vec<(&str, &str)> = servers.iter().map(|(key, value)| (*key, value.as_str())).collect();
    all.extend(settings);
    match Shop::try_open(&all).await {
        Ok(_) => panic!("it started with {settings:?}"),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_named_with_its_key() {
    let nobody = nobody();
    let redis = format!("redis://shop:hidden-word@{nobody}");
    let postgres = format!("postgres://shop:hidden-word@{nobody}/doorbuster");
    for (backend, key, value) in [
        ("redis", "redis.url", redis),
        ("postgres", "postgres.url", postgres),
        ("kafka", "kafka.brokers", nobody.to_string()),
    ] {
        let text = complaint(backend, &[(key, &value)]).await;
        assert!(text.contains(key) && text.contains(&nobody.to_string()), "{key}: {text}");
        assert!(!text.contains("hidden-word"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_url_that_means_nothing_is_refused_without_being_repeated() {
    for (backend, key, value) in [
        ("redis", "redis.url", "http://shop:hidden-word@localhost"),
        ("postgres", "postgres.url", "hidden-word"),
    ] {
        let text = complaint(backend, &[(key, value)]).await;
        assert!(text.contains(key) && !text.contains("hidden-word"), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_its_key_is_refused_by_the_keys_names() {
    for (backend, has, lacks) in [
        ("redis", "redis.certificate_file", "redis.key_file"),
        ("redis", "redis.key_file", "redis.certificate_file"),
        ("kafka", "kafka.certificate_file", "kafka.key_file"),
        ("kafka", "kafka.key_file", "kafka.certificate_file"),
    ] {
        let text = complaint(backend, &[(has, "client.pem")]).await;
        assert!(text.contains(&format!("{has} is set and {lacks} is not")), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_with_another_number_of_partitions_is_refused() {
    let (topic, mut shop) = ("kafka.topic", Shop::open_with(&borrowed(&servers("kafka"))).await);
    let name = shop.config.kafka.topic.clone();
    shop.stop().await;
    let text = complaint("kafka", &[(topic, &name), ("kafka.partitions", "5")]).await;
    assert!(text.contains(&name) && text.contains('3') && text.contains('5'), "{text}");
    assert!(text.contains("kafka.partitions"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ledger_and_a_topic_that_do_not_belong_together_are_refused() {
    let settings = servers("kafka,postgres");
    let mut shop = Shop::open_with(&borrowed(&settings)).await;
    let sale = shop.sale(5).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    shop.stop().await;
    // Another ledger beside the queue that has orders; another queue beside the ledger that has them.
    let others = servers("kafka,postgres");
    for (key, says) in [("postgres.schema", "knows nothing"), ("kafka.topic", "is not the one")] {
        let other = others.iter().find(|(name, _)| *name == key).unwrap();
        let mut mixed = borrowed(&settings);
        mixed.push((key, &other.1));
        let error = Shop::try_open(&mixed).await.err().map(|error| format!("{error:#}")).unwrap();
        assert!(error.contains(says) && error.contains("topic"), "{key}: {error}");
    }
}

fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
    settings.iter().map(|(key, value)| (*key, value.as_str())).collect()
}
