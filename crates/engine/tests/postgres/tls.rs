//! A server that must prove who it is (`verify-full`): the handshake, and who is not believed.

use std::path::PathBuf;

use doorbuster_engine::ledger::{PostgresError, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl};
use tokio_postgres::{Client, NoTls};

use crate::services;
use crate::shop::{Shop, options, server_address, server_user, url_as};

/// The server that speaks TLS: its URL, and the file of its authority, which only libpq takes in a URL.
fn secure() -> (String, PathBuf) {
    let address = services::address_of("POSTGRES_TLS");
    let (url, parameters) = address.split_once('?').unwrap();
    let authority = parameters.split('&').find_map(|it| it.strip_prefix("sslrootcert=")).unwrap();
    (url.to_owned(), authority.into())
}

/// Options for a schema of the test's own there.
fn verified(test: &str) -> PostgresOptions {
    let (url, authority) = secure();
    PostgresOptions {
        url: PostgresUrl::new(url),
        tls: PostgresTls::VerifyFull { ca_file: Some(authority) },
        ..options(test)
    }
}

/// A connection in the clear to the same server, to look at the others'.
#[expect(clippy::disallowed_methods, reason = "the client library's own connection task")]
async fn onlooker() -> Client {
    let (client, connection) = tokio_postgres::connect(&secure().0, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_server_with_the_right_name_and_authority_is_believed_and_the_ledger_works_encrypted() {
    let options = verified("verified");
    let ledger = PostgresLedger::connect(&options).await.unwrap();
    let shop = Shop::around(ledger, options, onlooker().await);
    shop.sale(10, 1).await;
    shop.sound_books().await;
    let encrypted = "SELECT count(*), count(*) FILTER (WHERE ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) \
                     WHERE application_name = 'doorbuster'";
    let row = shop.sql.query_one(encrypted, &[]).await.unwrap();
    let (all, ssl): (i64, i64) = (row.get(0), row.get(1));
    assert!(all > 0 && all == ssl, "{ssl} of {all} connections are encrypted");
    shop.close().await;
}

#[tokio::test]
async fn a_server_that_does_not_prove_who_it_is_is_refused_in_words_that_help() {
    let right = verified("unproved");
    let (url, authority) = secure();
    let by = |ca_file| PostgresOptions { tls: PostgresTls::VerifyFull { ca_file }, ..right.clone() };
    let other = by(Some(authority.with_file_name("other.pem")));
    let systems = by(None);
    // The certificate names `localhost` alone.
    let address =
        PostgresOptions { url: PostgresUrl::new(url.replace("localhost", "127.0.0.1")), ..right.clone() };
    for (options, cause) in
        [(other, "UnknownIssuer"), (systems, "UnknownIssuer"), (address, "not valid for name")]
    {
        let error = PostgresLedger::connect(&options).await.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, PostgresError::Untrusted { .. }), "{text}");
        for word in ["PostgreSQL at", "/doorbuster", cause, "authorities' file", "host name in the URL"] {
            assert!(text.contains(word), "{word:?} is missing in: {text}");
        }
        assert!(!text.contains("open-sesame"), "{text}");
    }
    let wrong = PostgresOptions { url: PostgresUrl::new(url.replace("open-sesame", "guessed")), ..right };
    let error = PostgresLedger::connect(&wrong).await.err().unwrap();
    assert!(
        matches!(error, PostgresError::Refused { .. }) && !error.to_string().contains("guessed"),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_without_encryption_is_refused_where_it_is_demanded() {
    // The other tests' server; one that is named from outside may speak TLS, and is a stranger then.
    let offered = crate::shop::connect("public").await.query_one("SHOW ssl", &[]).await.unwrap();
    let offered = offered.get::<_, String>(0) == "on";
    let url = url_as(&server_user(), &server_address());
    for tls in [verified("clear").tls, PostgresTls::Require] {
        let options =
            PostgresOptions { url: PostgresUrl::new(url.clone()), tls: tls.clone(), ..options("clear") };
        match PostgresLedger::connect(&options).await {
            Ok(_) => assert!(offered && tls == PostgresTls::Require, "connected without a proof"),
            Err(PostgresError::Untrusted { .. }) => assert!(offered),
            Err(error) => {
                let text = error.to_string();
                assert!(matches!(error, PostgresError::Unencrypted { .. }), "{text}");
                assert!(text.contains(&server_address()) && text.contains("ssl = on"), "{text}");
            }
        }
    }
}

#[tokio::test]
async fn encryption_that_is_asked_for_in_the_url_is_told_where_it_belongs() {
    let (url, authority) = secure();
    for parameters in
        ["sslmode=verify-full".to_owned(), format!("sslmode=require&sslrootcert={}", authority.display())]
    {
        let options =
            PostgresOptions { url: PostgresUrl::new(format!("{url}?{parameters}")), ..verified("url") };
        let error = PostgresLedger::connect(&options).await.err().unwrap();
        let text = error.to_string();
        assert!(matches!(error, PostgresError::Url(_)) && text.contains("not in the URL"), "{text}");
        assert!(!text.contains("open-sesame"), "{text}");
    }
}
