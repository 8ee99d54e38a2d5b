//! The proxy between real clients and real servers: what the server has done is looked up beside the proxy.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod kafka;
mod postgres;
mod redis;

use std::net::SocketAddr;
use std::time::Duration;

/// After this a test has waited in vain.
const DEADLINE: Duration = Duration::from_secs(60);
/// Longer than any test: what is held back for so long comes when the proxy is healed, or never.
const FOR_EVER: Duration = Duration::from_secs(3_600);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, what).await.expect("waited in vain")
}

/// The address of a server that the test command hands over: a missing one is a failure, never a skip.
fn address_of(service: &str) -> String {
    let variable = format!("DOORBUSTER_TEST_{service}_URL");
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: start the servers with `cargo xtask services up` and set what it prints"
        )
    })
}

/// Host and port of a URL.
fn server_of(url: &str) -> SocketAddr {
    let host = url.rsplit(['@', '/']).find(|part| part.contains(':')).unwrap();
    host.parse().unwrap()
}

/// A word of its own for each test.
fn own_name(what: &str) -> String {
    format!("{what}_{:016x}", rand::random::<u64>())
}
