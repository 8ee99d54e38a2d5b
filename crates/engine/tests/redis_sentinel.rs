//! The stock behind Sentinel: the same promises, and a change of the master in the middle of a sale.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod private_redis;

use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::conformance::stock::{self, Bench};
use doorbuster_engine::fault::Fault;
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, ReserveOutcome, Stock};
use doorbuster_engine::stock_promises;
use private_redis::sale::{self, BUCKET};
use private_redis::{Server, Watched, eventually, until};

async fn connect(watched: &Watched) -> Arc<dyn Stock> {
    let options =
        RedisOptions { response_timeout: Duration::from_millis(200), ..RedisOptions::new(watched.url()) };
    Arc::new(RedisStock::connect(options).await.unwrap())
}

fn in_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

async fn held(stock: &dyn Stock, n: u64) {
    let outcome = sale::reserve(stock, n).await;
    assert!(matches!(outcome, ReserveOutcome::Held { .. }), "{outcome:?}");
}

/// Waits until the replica has everything that the master has.
fn until_copied(watched: &Watched) {
    until("the replica has everything", || {
        watched.master.info("master_repl_offset") == watched.replica.info("slave_repl_offset")
    });
}

#[test]
fn a_master_behind_sentinel_keeps_every_promise() {
    let watched = Watched::start();
    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            in_runtime(async {
                let clock = Bench::clock();
                let options = RedisOptions {
                    prefix: concat!(stringify!($promise), ":").to_owned(),
                    clock: RedisClock::Given(Arc::clone(&clock) as _),
                    ..RedisOptions::new(watched.url())
                };
                let redis = RedisStock::connect(options).await.unwrap();
                stock::$promise(&Bench { stock: Arc::new(redis), clock }).await;
            });
        )*};
    }
    stock_promises!(tests);
}

#[tokio::test]
async fn a_sale_goes_on_at_the_new_master_when_the_old_ones_machine_hangs() {
    let watched = Watched::start();
    let stock = connect(&watched).await;
    sale::open(stock.as_ref(), 10, 1).await;
    held(stock.as_ref(), 1).await;
    until_copied(&watched);
    // Master and sentinel on it neither answer nor close their connections.
    watched.master.freeze();
    watched.sentinels[0].freeze();
    let error = stock.reserve(BUCKET, &[sale::wish(2)]).await.unwrap_err();
    assert_eq!(error.fault, Fault::Ambiguous);
    watched.until_master_is(watched.replica.port);
    let outcomes =
        eventually("the new master is used", async || match stock.reserve(BUCKET, &[sale::wish(2)]).await {
            Ok(outcomes) => Some(outcomes),
            Err(error) => {
                assert_ne!(error.fault, Fault::Permanent, "{}", error.chain());
                None
            }
        })
        .await;
    assert!(matches!(outcomes[0], ReserveOutcome::Held { .. }), "{outcomes:?}");
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 2);
}

/// Lets the replica miss everything from now on: it cannot log in to its master any more.
fn leave_behind(watched: &Watched) {
    watched.replica.say(&["CONFIG", "SET", "masterauth", "wrong"]);
    watched.master.say(&["CLIENT", "KILL", "TYPE", "replica"]);
    until("the replica is left behind", || watched.replica.info("master_link_status") == "down");
}

#[tokio::test]
async fn a_replica_that_was_behind_is_noticed_and_the_old_master_sells_nothing() {
    let mut watched = Watched::start();
    let stock = connect(&watched).await;
    sale::open(stock.as_ref(), 10, 1).await;
    held(stock.as_ref(), 1).await;
    until_copied(&watched);
    leave_behind(&watched);
    for n in 2..=4 {
        held(stock.as_ref(), n).await;
    }
    watched.master.kill();
    watched.until_master_is(watched.replica.port);

    let error =
        eventually("somebody notices", async || match stock.reserve(BUCKET, &[sale::wish(5)]).await {
            Err(error) => {
                assert_ne!(error.fault, Fault::Permanent, "{}", error.chain());
                error.what.contains("earlier state").then_some(error)
            }
            Ok(outcomes) => panic!("believed: {outcomes:?}"),
        })
        .await;
    assert_eq!(error.fault, Fault::Ambiguous);
    assert!(stock.level(BUCKET).await.unwrap().unwrap().fenced);

    // The old master returns, and is made a replica, here by hand: the sentinels take ten seconds.
    watched.master.start_again();
    watched.master.say(&["REPLICAOF", "127.0.0.1", &watched.replica.port.to_string()]);
    until("the old master follows the new one", || watched.master.info("master_link_status") == "up");
    let outcomes =
        eventually("the new master is used", async || stock.reserve(BUCKET, &[sale::wish(6)]).await.ok());
    assert_eq!(outcomes.await, [ReserveOutcome::Fenced]);
}

#[tokio::test]
async fn a_master_that_became_a_replica_refuses_and_is_asked_for_anew() {
    let server = Server::start(&[]);
    let stock: Arc<dyn Stock> = Arc::new(RedisStock::connect(RedisOptions::new(server.url())).await.unwrap());
    sale::open(stock.as_ref(), 10, 1).await;
    held(stock.as_ref(), 1).await;
    // Of nobody: it keeps its data, and the connection stands.
    server.say(&["REPLICAOF", "127.0.0.1", &private_redis::free_port().to_string()]);
    let mut connections = 0;
    for round in 0..2 {
        let error = stock.reserve(BUCKET, &[sale::wish(2)]).await.unwrap_err();
        assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
        assert!(error.chain().to_uppercase().contains("READONLY"), "{}", error.chain());
        // A new connection for each call, beside the test's own one that asks.
        let received: u64 = server.info("total_connections_received").parse().unwrap();
        assert!(round == 0 || received == connections + 2, "{received} after {connections}");
        connections = received;
    }
    server.say(&["REPLICAOF", "NO", "ONE"]);
    held(stock.as_ref(), 2).await;
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 2);
}
