//! The ways in by TLS: with a user and a password, and with a certificate of the client's own.

use std::path::Path;

use doorbuster_engine::fault::Fault;
use doorbuster_engine::queue::{KafkaSasl, KafkaSecurity, KafkaTls, SaslMechanism};

use super::*;

/// Options for a user with a password, as `sasl-ssl://user:password@host:port/file` names the way.
fn with_password() -> KafkaOptions {
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
    KafkaOptions { brokers: broker.to_owned(), security, ..options(2) }
}

/// Options for a client with one of the certificates of the folder that `ssl://host:port/folder` names,
/// or with none.
fn with_certificate(certificate: Option<(&str, &str)>) -> KafkaOptions {
    let address = services::address_of("KAFKA_MUTUAL");
    let (broker, folder) = address.strip_prefix("ssl://").unwrap().split_once('/').unwrap();
    let file = |name: &str| Some(Path::new("/").join(folder).join(name));
    let tls = KafkaTls {
        ca_file: file("ca.pem"),
        certificate_file: certificate.and_then(|(certificate, _)| file(certificate)),
        key_file: certificate.and_then(|(_, key)| file(key)),
        key_password: None,
    };
    let security = KafkaSecurity { tls: Some(tls), sasl: None };
    KafkaOptions { brokers: broker.to_owned(), security, ..options(2) }
}

fn tls(options: &mut KafkaOptions) -> &mut KafkaTls {
    options.security.tls.as_mut().unwrap()
}

/// Publishes twenty orders, and reads them.
async fn carries(options: KafkaOptions) {
    let queue = connect(&options).await;
    publish(&queue, &orders(0..20)).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let mut seen = 0;
    while seen < 20 {
        seen += next(reader.as_mut(), &start).await.unwrap().records.len();
    }
}

/// Nobody comes in, in bounded time, and the message has all of `says`: the component, the cause, and
/// what to do.
async fn refused(mut options: KafkaOptions, fault: Fault, says: &[&str]) {
    options.answer_timeout = Duration::from_secs(3);
    let connecting = tokio::time::timeout(PATIENCE, KafkaQueue::connect(options));
    let error = connecting.await.expect("it ends").err().expect("nobody comes in");
    let text = error.chain();
    for word in says {
        assert!(text.contains(word), "{word:?} is missing in: {text}");
    }
    assert_eq!(error.fault, fault, "{text}");
    assert!(!text.contains("open-sesame") && !text.contains("guessed"), "{text}");
}

#[tokio::test]
async fn orders_travel_by_tls_for_a_user_with_a_password() {
    for mechanism in [SaslMechanism::ScramSha256, SaslMechanism::ScramSha512] {
        let mut options = with_password();
        options.security.sasl.as_mut().unwrap().mechanism = mechanism;
        carries(options).await;
    }
}

#[tokio::test]
async fn orders_travel_by_tls_for_a_client_with_a_certificate() {
    carries(with_certificate(Some(("client.pem", "client.key")))).await;
    let mut locked = with_certificate(Some(("client.pem", "client-locked.key")));
    tls(&mut locked).key_password = Some("open-sesame".to_owned());
    carries(locked).await;
}

#[tokio::test]
async fn a_wrong_password_user_or_mechanism_is_told_in_bounded_time() {
    for (mechanism, word) in
        [(SaslMechanism::ScramSha256, "SCRAM-SHA-256"), (SaslMechanism::ScramSha512, "SCRAM-SHA-512")]
    {
        let mut password = with_password();
        let sasl = password.security.sasl.as_mut().unwrap();
        (sasl.mechanism, sasl.password) = (mechanism, "guessed".to_owned());
        let says = ["queue", "refused this user", "Authentication failed", "check user and password", word];
        refused(password, Fault::Transient, &says).await;
    }
    let mut user = with_password();
    user.security.sasl.as_mut().unwrap().user = "nobody".to_owned();
    refused(user, Fault::Transient, &["queue", "refused this user", "check user and password"]).await;
    let mut mechanism = with_password();
    mechanism.security.sasl.as_mut().unwrap().mechanism = SaslMechanism::Plain;
    refused(mechanism, Fault::Transient, &["queue", "refused this user", "PLAIN"]).await;
}

#[tokio::test]
async fn brokers_that_no_authority_of_ours_vouches_for_are_not_believed() {
    let mut unknown = with_password();
    tls(&mut unknown).ca_file = None;
    let mut other = with_certificate(Some(("client.pem", "client.key")));
    let ca_file = tls(&mut other).ca_file.as_mut().unwrap();
    *ca_file = ca_file.with_file_name("other.pem");
    for options in [unknown, other] {
        let broker = options.brokers.clone();
        let says = ["queue", &broker, "certificate verify failed", "check the authorities' file"];
        refused(options, Fault::Transient, &says).await;
    }
}

#[tokio::test]
async fn a_client_without_the_certificate_that_brokers_ask_for_is_refused_in_words_that_help() {
    for certificate in [None, Some(("stranger.pem", "stranger.key"))] {
        let options = with_certificate(certificate);
        let broker = options.brokers.clone();
        let says = ["queue", &broker, "refused this client", "certificate", "check the files"];
        refused(options, Fault::Transient, &says).await;
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_stops_the_start_at_once() {
    let of_another = with_certificate(Some(("client.pem", "stranger.key")));
    let missing = with_certificate(Some(("nowhere.pem", "client.key")));
    let without_password = with_certificate(Some(("client.pem", "client-locked.key")));
    let mut wrong_password = without_password.clone();
    tls(&mut wrong_password).key_password = Some("guessed".to_owned());
    for options in [of_another, missing, without_password, wrong_password] {
        refused(options, Fault::Permanent, &["queue", "options for Kafka cannot be used", "check the files"])
            .await;
    }
}
