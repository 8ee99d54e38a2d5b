//! The stock in a Redis Cluster: the same promises, also while the sale's slot moves.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod private_redis;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use doorbuster_engine::conformance::stock::{self, Bench};
use doorbuster_engine::fault::Fault;
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, ReserveOutcome, Stock};
use doorbuster_engine::stock_promises;
use futures_util::future::join_all;
use private_redis::sale::{self, BUCKET, Heard};
use private_redis::{Cluster, Reply, Server, until};

async fn stock_of(cluster: &Cluster) -> Arc<dyn Stock> {
    Arc::new(RedisStock::connect(RedisOptions::new(cluster.url())).await.unwrap())
}

#[test]
fn a_cluster_keeps_every_promise() {
    let cluster = Cluster::start();
    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            in_runtime(async {
                let clock = Bench::clock();
                let options = RedisOptions {
                    prefix: concat!(stringify!($promise), ":").to_owned(),
                    clock: RedisClock::Given(Arc::clone(&clock) as _),
                    ..RedisOptions::new(cluster.url())
                };
                let redis = RedisStock::connect(options).await.unwrap();
                stock::$promise(&Bench { stock: Arc::new(redis), clock }).await;
            });
        )*};
    }
    stock_promises!(tests);
}

fn in_runtime(work: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work);
}

/// Answers of all nodes of one kind, such as MOVED.
fn errors(cluster: &Cluster, code: &str) -> u64 {
    let start = format!("errorstat_{code}:count=");
    let of_node = |node: &Server| {
        let info = node.say(&["INFO", "errorstats"]).text();
        let count = info.lines().find_map(|line| line.strip_prefix(&start));
        count.map_or(0, |count| count.parse::<u64>().unwrap())
    };
    cluster.nodes.iter().map(of_node).sum()
}

/// Moves a slot key by key, and lets buyers meet each of its states.
fn move_slot(cluster: &Cluster, slot: &str, from: &Server, to: &Server) {
    let id = |node: &Server| node.say(&["CLUSTER", "MYID"]).text();
    let met = |code: &str, before: u64| {
        until(&format!("a buyer meets {code}"), || errors(cluster, code) > before);
    };
    to.say(&["CLUSTER", "SETSLOT", slot, "IMPORTING", &id(from)]);
    from.say(&["CLUSTER", "SETSLOT", slot, "MIGRATING", &id(to)]);
    let keys = from.say(&["CLUSTER", "GETKEYSINSLOT", slot, "100"]).list();
    assert_eq!(keys.len(), 7);
    for key in keys.into_iter().map(Reply::text) {
        let tried = errors(cluster, "TRYAGAIN");
        from.say(&["MIGRATE", "127.0.0.1", &to.port.to_string(), &key, "0", "5000"]);
        if !from.say(&["CLUSTER", "GETKEYSINSLOT", slot, "1"]).list().is_empty() {
            met("TRYAGAIN", tried);
        }
    }
    met("ASK", errors(cluster, "ASK"));
    let moved = errors(cluster, "MOVED");
    for node in [to, from].into_iter().chain(&cluster.nodes) {
        node.say(&["CLUSTER", "SETSLOT", slot, "NODE", &id(to)]);
    }
    met("MOVED", moved);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_under_load_sells_every_unit_once() {
    const UNITS: u64 = 3_000;
    let cluster = Cluster::start();
    let stock = stock_of(&cluster).await;
    sale::open(stock.as_ref(), UNITS, 1).await;
    let slot = cluster.nodes[0].say(&["CLUSTER", "KEYSLOT", "doorbuster:{s1.0}:1:cfg"]).text();

    let moved = AtomicBool::new(false);
    let enough = |heard: &Heard| heard.sold_out > 0 && moved.load(Ordering::SeqCst);
    let heard = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (owner, other) = cluster.owner_and_other(slot.parse().unwrap());
            move_slot(&cluster, &slot, owner, other);
            move_slot(&cluster, &slot, other, owner);
            moved.store(true, Ordering::SeqCst);
        });
        tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let buyers = (1..=8).map(|task| {
                    let batcher = sale::batcher(Arc::clone(&stock), 2, Duration::from_secs(2));
                    sale::buy(batcher, task * 1_000_000, enough)
                });
                sale::together(join_all(buyers).await)
            })
        })
    });

    let holders = sale::lawful(stock.as_ref(), BUCKET).await;
    assert_eq!(holders.len() as u64, UNITS);
    assert_eq!(heard.unknown.len(), 0, "a redirection is not an unknown outcome");
    assert_eq!(holders, heard.held, "whoever was told so holds a unit, and nobody else");
}

#[tokio::test]
async fn a_killed_node_is_found_again_when_it_is_back() {
    let mut cluster = Cluster::start();
    let stock = stock_of(&cluster).await;
    sale::open(stock.as_ref(), 10, 1).await;
    let held = sale::reserve(stock.as_ref(), 1).await;
    assert!(matches!(held, ReserveOutcome::Held { .. }), "{held:?}");
    let slot = cluster.nodes[0].say(&["CLUSTER", "KEYSLOT", "doorbuster:{s1.0}:1:cfg"]).int();
    let owner = usize::try_from(slot / 5_461).unwrap().min(2);
    cluster.nodes[owner].kill();
    let error = stock.reserve(BUCKET, &[sale::wish(2)]).await.unwrap_err();
    assert_ne!(error.fault, Fault::Permanent, "{}", error.chain());
    cluster.nodes[owner].start_again();
    private_redis::eventually("the node is used again", async || {
        stock.reserve(BUCKET, &[sale::wish(2)]).await.ok()
    })
    .await;
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 2);
}

#[tokio::test]
async fn a_sale_goes_on_at_the_replica_of_a_node_that_hangs() {
    let cluster = Cluster::start();
    let options =
        RedisOptions { response_timeout: Duration::from_millis(200), ..RedisOptions::new(cluster.url()) };
    let stock: Arc<dyn Stock> = Arc::new(RedisStock::connect(options).await.unwrap());
    sale::open(stock.as_ref(), 10, 1).await;
    let slot = cluster.nodes[0].say(&["CLUSTER", "KEYSLOT", "doorbuster:{s1.0}:1:cfg"]).int();
    let (owner, _) = cluster.owner_and_other(u16::try_from(slot).unwrap());
    let replica = cluster.replica_of(owner);
    let held = sale::reserve(stock.as_ref(), 1).await;
    assert!(matches!(held, ReserveOutcome::Held { .. }), "{held:?}");
    until("the replica has everything", || {
        owner.info("master_repl_offset") == replica.info("slave_repl_offset")
    });
    owner.freeze();
    let again = private_redis::eventually("the replica is used", async || {
        match stock.reserve(BUCKET, &[sale::wish(1)]).await {
            Ok(mut outcomes) => Some(outcomes.remove(0)),
            Err(error) => {
                assert_ne!(error.fault, Fault::Permanent, "{}", error.chain());
                None
            }
        }
    });
    let again = again.await;
    assert!(matches!(again, ReserveOutcome::HeldBefore { .. }), "{again:?}");
    assert_eq!(replica.info("role"), "master");
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 1);
}
