//! The way in by TLS, with a user and a password.

use doorbuster_engine::fault::Fault;
use doorbuster_engine::queue::{KafkaSasl, KafkaSecurity, KafkaTls, SaslMechanism};

use super::*;

/// Options for the way in by TLS, as `sasl-ssl://user:password@host:port/file` names it.
fn secure() -> KafkaOptions {
    let address = services::address_of("KAFKA_SECURE");
    let (user, place) = address.strip_prefix("sasl-ssl://").unwrap().split_once('@').unwrap();
    let (user, password) = user.split_once(':').unwrap();
    let (broker, _) = place.split_once('/').unwrap();
    let ca_file = &place[broker.len()..];
    let security = KafkaSecurity {
        tls: Some(KafkaTls { ca_file: Some(ca_file.into()), ..KafkaTls::default() }),
        sasl: Some(KafkaSasl {
            mechanism: SaslMechanism::ScramSha512,
            user: user.to_owned(),
            password: password.to_owned(),
        }),
    };
    let answer_timeout = Duration::from_secs(5);
    KafkaOptions { brokers: broker.to_owned(), security, answer_timeout, ..options(2) }
}

#[tokio::test]
async fn orders_travel_by_tls_for_a_user_with_a_password() {
    let queue = connect(&secure()).await;
    publish(&queue, &orders(0..20)).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let mut seen = 0;
    while seen < 20 {
        seen += next(reader.as_mut(), &start).await.unwrap().records.len();
    }
}

#[tokio::test]
async fn a_wrong_password_and_an_unknown_certificate_are_told_in_bounded_time() {
    let mut password = secure();
    password.security.sasl.as_mut().unwrap().password = "guessed".to_owned();
    let mut authority = secure();
    authority.security.tls = Some(KafkaTls::default());
    for (options, reason) in [(password, "Authentication failed"), (authority, "certificate verify failed")] {
        let connecting = tokio::time::timeout(PATIENCE, KafkaQueue::connect(options));
        let error = connecting.await.expect("it ends").err().expect("nobody comes in");
        assert_eq!(error.fault, Fault::Transient);
        assert!(error.to_string().contains(reason), "{error}");
    }
}
