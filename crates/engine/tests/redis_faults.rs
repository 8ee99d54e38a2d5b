//! A Redis that forgets, stops, goes back, is slow, full or written over by somebody else: nothing is
//! sold twice, and the one repair brings the sale back.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod private_redis;
mod support;

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use doorbuster_engine::audit;
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::engine::PurchaseOutcome;
use doorbuster_engine::fault::Fault;
use doorbuster_engine::order::{Epoch, OrderId, OrderStatus};
use doorbuster_engine::stock::{
    AdjustOutcome, BucketId, LoadPage, RedisClock, RedisOptions, RedisStock, ReleaseOutcome, ReserveOutcome,
    ReserveReply, Stock,
};
use futures_util::future::join_all;
use private_redis::sale::{self, BUCKET, ITEM};
use private_redis::{Reply, Server};
use support::{Publishing, SALE, World, accepted};

const KEYS: [&str; 7] = ["cfg", "stk", "alc", "buy", "out", "gone", "ops"];

async fn connect(server: &Server) -> Arc<dyn Stock> {
    Arc::new(RedisStock::connect(patient(server)).await.unwrap())
}

/// Waits for a reply as long as a busy machine may need.
fn patient(server: &Server) -> RedisOptions {
    let wait = Duration::from_secs(10);
    RedisOptions { response_timeout: wait, connect_timeout: wait, ..RedisOptions::new(server.url()) }
}

fn key(name: &str) -> String {
    format!("doorbuster:{{s1.0}}:1:{name}")
}

/// A pipeline whose stock is in this Redis.
async fn world_on(server: &Server) -> World {
    let world = World::new().await;
    world.stock.replace(stock_of(&world, server).await);
    world
}

/// The stock as a process sees it that has just started.
async fn stock_of(world: &World, server: &Server) -> Arc<dyn Stock> {
    let clock = RedisClock::Given(Arc::clone(&world.clock) as _);
    Arc::new(RedisStock::connect(RedisOptions { clock, ..patient(server) }).await.unwrap())
}

/// Lets the workers work until the sale sells in `epoch`.
async fn until_rebuilt(world: &World, epoch: u64) {
    for _ in 0..10 {
        world.work().await;
        let sale = world.read_sale(SALE).await;
        if sale.epoch == Epoch(epoch) && sale.fence.is_none() {
            return;
        }
    }
    panic!("not rebuilt: {:?}", world.read_sale(SALE).await);
}

#[tokio::test]
async fn a_forgotten_script_is_sent_again_by_the_call_that_missed_it_only() {
    const UNITS: u64 = 500;
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    sale::open(stock.as_ref(), UNITS, 1).await;
    let evals = server.calls("eval");

    let (stop, stopped) = channel::<()>();
    let heard = std::thread::scope(|scope| {
        let server = &server;
        scope.spawn(move || {
            let mut connection = server.connection();
            // It stops when the buyers are done, or have panicked.
            while stopped.recv_timeout(Duration::from_millis(2)) == Err(RecvTimeoutError::Timeout) {
                connection.say(&["SCRIPT", "FLUSH"]);
            }
        });
        let buyers = |task: u64| {
            let stock = Arc::clone(&stock);
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                runtime.block_on(async {
                    let batcher = sale::batcher(stock, 0, Duration::from_secs(5));
                    sale::buy(batcher, task * 1_000_000, |heard| heard.sold_out > 20).await
                })
            })
        };
        let buyers: Vec<_> = (1..=8).map(buyers).collect();
        let heard = buyers.into_iter().map(|it| it.join().unwrap()).collect();
        drop(stop);
        sale::together(heard)
    });

    assert_eq!((heard.held.len() as u64, heard.unknown.len()), (UNITS, 0));
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await, heard.held);
    let info = server.info("errorstat_NOSCRIPT");
    let missed: u64 = info.strip_prefix("count=").unwrap().parse().unwrap();
    assert!(missed > 10, "the scripts were forgotten under way: {missed}");
    assert!(server.calls("eval") - evals <= missed, "only what failed is sent as text");
}

/// What a damage to the stock leaves.
struct Damage {
    what: String,
    commands: Vec<Vec<String>>,
    /// Whether the outbox can still be read, so that what the queue lost is published again.
    outbox_is_left: bool,
}

fn damages() -> Vec<Damage> {
    let words = |words: &[&str]| words.iter().map(|&it| it.to_owned()).collect::<Vec<String>>();
    let damage = |what: &str, name: &str, commands: Vec<Vec<String>>| Damage {
        what: format!("{what} {name}"),
        commands,
        outbox_is_left: !["all", "buy", "out"].contains(&name),
    };
    let mut damages = vec![damage("flushed", "all", vec![words(&["FLUSHALL"])])];
    for name in KEYS {
        let (delete, set) = (words(&["DEL", &key(name)]), words(&["SET", &key(name), "somebody else's"]));
        damages.push(damage("deleted", name, vec![delete.clone()]));
        damages.push(damage("written over", name, vec![set]));
        damages.push(damage("another list", name, vec![delete, words(&["RPUSH", &key(name), "1", "2"])]));
    }
    damages
}

#[tokio::test]
async fn a_damaged_stock_sells_nothing_and_is_rebuilt_from_the_ledger() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    for damage in damages() {
        server.say(&["FLUSHALL"]);
        damaged_and_rebuilt(&server, &damage).await;
    }
}

async fn damaged_and_rebuilt(server: &Server, damage: &Damage) {
    let what = &damage.what;
    let world = world_on(server).await;
    world.sale(20, 1).await;
    let recorded = accepted(world.buy("recorded").await);
    world.work().await;
    let queued = accepted(world.buy("queued").await);
    *world.queue.publishing.lock().unwrap() = Publishing::Lost;
    world.buy("in the outbox only").await;
    *world.queue.publishing.lock().unwrap() = Publishing::Honest;
    let held = sale::holds(world.backends.stock.as_ref(), BUCKET).await;
    let unqueued = held.into_keys().find(|it| *it != recorded && *it != queued).unwrap();

    for command in &damage.commands {
        server.say(&command.iter().map(String::as_str).collect::<Vec<_>>());
    }
    let before = server.say(&["DEBUG", "DIGEST"]);
    let stock = Arc::clone(&world.backends.stock);
    assert_eq!(sale::reserve(stock.as_ref(), 999).await, ReserveOutcome::NotLoaded, "{what}");
    assert_eq!(stock.level(BUCKET).await.unwrap(), None, "{what}");
    let released = stock.release(BUCKET, &[sale::pair(999)]).await.unwrap();
    assert_eq!(released, [ReleaseOutcome::NotNow], "{what}");
    let adjusted = stock.adjust(BUCKET, uuid::Uuid::from_u128(1), ITEM, 5).await.unwrap();
    assert_eq!(adjusted, AdjustOutcome::NotNow, "{what}");
    stock.confirm(BUCKET, &[sale::pair(999)]).await.unwrap();
    assert_eq!(server.say(&["DEBUG", "DIGEST"]), before, "{what}: a damaged bucket is not written to");

    until_rebuilt(&world, 2).await;
    let statuses = world.backends.ledger.statuses(&[recorded, queued, unqueued]).await.unwrap();
    let last = damage.outbox_is_left.then_some(OrderStatus::Pending);
    assert_eq!(statuses, [Some(OrderStatus::Pending), Some(OrderStatus::Pending), last], "{what}");
    let sold = statuses.iter().flatten().count() as u64;
    assert_eq!(world.free().await, 20 - sold, "{what}");
    accepted(world.buy("afterwards").await);
    world.finish().await;
}

#[tokio::test]
async fn a_key_written_over_during_a_load_is_taken_over_by_the_next_loader() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    for name in KEYS {
        server.say(&["FLUSHALL"]);
        stock.begin_load(BUCKET, &sale::terms(1), sale::TOKEN).await.unwrap();
        server.say(&["SET", &key(name), "somebody else's"]);
        let page = LoadPage::Items(vec![(ITEM, 3)]);
        stock.load(BUCKET, sale::TOKEN, 0, &page).await.unwrap();
        let read_back = doorbuster_engine::stock::ReadBack { seq: 0, pages: 1 };
        let finished = stock.finish_load(BUCKET, sale::TOKEN, read_back).await.unwrap();
        assert_eq!(finished, doorbuster_engine::stock::FinishOutcome::NotLoader, "{name}");
        sale::open(stock.as_ref(), 3, 1).await;
        assert!(sale::lawful(stock.as_ref(), BUCKET).await.is_empty());
    }
}

#[tokio::test]
async fn a_killed_redis_with_its_log_on_disk_goes_on_where_it_was() {
    let mut server = Server::start(&["--appendonly", "yes", "--appendfsync", "always"]);
    let world = world_on(&server).await;
    world.sale(5, 1).await;
    let order = accepted(world.buy("alice").await);
    let held = sale::holds(world.backends.stock.as_ref(), BUCKET).await;
    server.kill();
    assert!(world.backends.stock.level(BUCKET).await.is_err());
    server.start_again();
    let again = private_redis::eventually("the server is used again", async || {
        world.backends.stock.level(BUCKET).await.ok()
    });
    let level = again.await.expect("nothing was lost");
    assert_eq!((level.fenced, level.seq, level.holds), (false, 1, 1));
    assert_eq!(sale::holds(world.backends.stock.as_ref(), BUCKET).await, held);
    assert_eq!(world.buy("alice").await, PurchaseOutcome::AlreadyPurchased(order));
    accepted(world.buy("bob").await);
    world.finish().await;
    assert_eq!(world.read_sale(SALE).await.epoch, Epoch(1), "no reason to rebuild");
}

#[tokio::test]
async fn a_killed_redis_that_kept_nothing_is_loaded_anew() {
    let mut server = Server::start(&[]);
    let world = world_on(&server).await;
    world.sale(5, 1).await;
    let orders = [accepted(world.buy("alice").await), accepted(world.buy("bob").await)];
    server.kill();
    server.start_again();
    private_redis::eventually("the server is used again", async || {
        world.backends.stock.level(BUCKET).await.ok()
    })
    .await;
    assert_eq!(sale::reserve(world.backends.stock.as_ref(), 9).await, ReserveOutcome::NotLoaded);
    until_rebuilt(&world, 2).await;
    assert_eq!(world.backends.ledger.statuses(&orders).await.unwrap(), [Some(OrderStatus::Pending); 2]);
    assert_eq!(world.buy("alice").await, PurchaseOutcome::AlreadyPurchased(orders[0]));
    assert_eq!(world.free().await, 3);
    world.finish().await;
}

/// A sale of ten units that went back to the state after its second hold, when it had four.
async fn gone_back(server: &mut Server) -> (World, Vec<OrderId>) {
    let world = world_on(server).await;
    world.sale(10, 1).await;
    let mut orders = Vec::new();
    for n in 1..=4 {
        orders.push(accepted(world.buy(&format!("buyer-{n}")).await));
        if n == 2 {
            server.say(&["SAVE"]);
        }
    }
    server.kill();
    server.start_again();
    (world, orders)
}

#[tokio::test]
async fn an_old_snapshot_is_noticed_by_a_process_that_knew_more() {
    let mut server = Server::start(&[]);
    let (world, orders) = gone_back(&mut server).await;
    let stock = Arc::clone(&world.backends.stock);
    // The first answer that shows it, whichever call it is: here one that took a unit.
    let error = private_redis::eventually("the server is used again", async || {
        match stock.reserve(BUCKET, &[sale::wish(7)]).await {
            Err(error) if error.what.contains("earlier state") => Some(error),
            Err(_) => None,
            Ok(outcomes) => panic!("believed: {outcomes:?}"),
        }
    });
    assert_eq!(error.await.fault, Fault::Ambiguous);
    assert!(stock.level(BUCKET).await.unwrap().unwrap().fenced);
    assert_eq!(sale::reserve(stock.as_ref(), 8).await, ReserveOutcome::Fenced);
    until_rebuilt(&world, 2).await;
    let statuses = world.backends.ledger.statuses(&orders).await.unwrap();
    assert_eq!(statuses, [Some(OrderStatus::Pending); 4]);
    // The order that the old state gave a step of another order is evidence, and all that is left.
    world.work().await;
    let snapshot = audit::collect(&world.backends).await.unwrap();
    let findings = audit::check(&snapshot).findings;
    assert!(snapshot.at_rest && findings.iter().all(|it| it.invariant == "I15"), "{findings:?}");
}

#[tokio::test]
async fn an_old_snapshot_is_noticed_by_a_process_that_has_just_started() {
    let mut server = Server::start(&[]);
    let (world, orders) = gone_back(&mut server).await;
    world.stock.replace(stock_of(&world, &server).await);
    world.record().await;
    until_rebuilt(&world, 2).await;
    let statuses = world.backends.ledger.statuses(&orders).await.unwrap();
    assert_eq!(statuses, [Some(OrderStatus::Pending); 4]);
    assert_eq!(world.free().await, 6);
    world.finish().await;
}

/// A stock that waits for a reply no longer than a tenth of a second.
async fn impatient(server: &Server) -> Arc<dyn Stock> {
    let options = RedisOptions {
        response_timeout: Duration::from_millis(100),
        connect_timeout: Duration::from_millis(100),
        ..RedisOptions::new(server.url())
    };
    Arc::new(RedisStock::connect(options).await.unwrap())
}

#[tokio::test]
async fn a_slow_redis_holds_each_order_once() {
    let server = Server::start(&[]);
    let stock = impatient(&server).await;
    sale::open(stock.as_ref(), 40, 1).await;
    sale::reserve(stock.as_ref(), 99).await;
    let batcher = sale::batcher(Arc::clone(&stock), 100, Duration::from_secs(1));
    for round in 0..2 {
        if round == 0 {
            server.say(&["CLIENT", "PAUSE", "600", "ALL"]);
        } else {
            server.freeze();
        }
        let calls = (1..=9).map(|n| batcher.reserve(BUCKET, sale::wish(round * 10 + n)));
        let thaw = async {
            private_redis::pause(Duration::from_millis(600)).await;
            server.thaw();
        };
        let (replies, ()) = futures_util::future::join(join_all(calls), thaw).await;
        // The first went out alone, the others waited for it.
        assert!(matches!(replies[0], ReserveReply::Answered { repeated: true, .. }), "{:?}", replies[0]);
        for reply in replies {
            let ReserveReply::Answered { outcome, .. } = reply else { panic!("{reply:?}") };
            let (ReserveOutcome::Held { .. } | ReserveOutcome::HeldBefore { .. }) = outcome else {
                panic!("{outcome:?}")
            };
        }
    }
    let holders = sale::lawful(stock.as_ref(), BUCKET).await;
    assert_eq!(holders.len(), 19);
}

#[tokio::test]
async fn a_call_that_timed_out_may_have_happened() {
    let server = Server::start(&[]);
    let stock = impatient(&server).await;
    sale::open(stock.as_ref(), 5, 1).await;
    sale::reserve(stock.as_ref(), 1).await;
    server.freeze();
    let error = stock.reserve(BUCKET, &[sale::wish(2)]).await.unwrap_err();
    assert_eq!(error.fault, Fault::Ambiguous, "{}", error.chain());
    // Nothing could be sent any more: no connection.
    let error = stock.reserve(BUCKET, &[sale::wish(3)]).await.unwrap_err();
    assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
    server.thaw();
    let other = connect(&server).await;
    let held = private_redis::eventually("the call that timed out runs all the same", async || {
        let holders = sale::lawful(other.as_ref(), BUCKET).await;
        (holders.len() == 2).then_some(holders)
    });
    assert!(held.await.contains(&sale::wish(2).order));
}

#[tokio::test]
async fn a_refusal_that_answers_a_repeated_call_is_not_said_as_one() {
    let server = Server::start(&[]);
    let stock = impatient(&server).await;
    sale::open(stock.as_ref(), 1, 1).await;
    sale::reserve(stock.as_ref(), 1).await;
    let batcher = sale::batcher(Arc::clone(&stock), 100, Duration::from_secs(1));
    let said = batcher.reserve(BUCKET, sale::wish(2)).await;
    let ReserveReply::Answered { outcome: ReserveOutcome::SoldOut { .. }, .. } = said else {
        panic!("{said:?}")
    };
    server.freeze();
    let thaw = async {
        private_redis::pause(Duration::from_millis(300)).await;
        server.thaw();
    };
    let (reply, ()) = futures_util::future::join(batcher.reserve(BUCKET, sale::wish(2)), thaw).await;
    assert!(matches!(reply, ReserveReply::Unknown), "{reply:?}");
}

#[tokio::test]
async fn a_full_redis_writes_nothing_by_halves() {
    let server = Server::start(&["--enable-debug-command", "yes"]);
    let stock = connect(&server).await;
    sale::open(stock.as_ref(), 5, 1).await;
    sale::reserve(stock.as_ref(), 1).await;
    server.say(&["CONFIG", "SET", "maxmemory", "1"]);
    let before = server.say(&["DEBUG", "DIGEST"]);

    let wishes: Vec<_> = (2..9).map(sale::wish).collect();
    let reserved = stock.reserve(BUCKET, &wishes).await.map(|_| ());
    let released = stock.release(BUCKET, &[sale::pair(1)]).await.map(|_| ());
    let adjusted = stock.adjust(BUCKET, uuid::Uuid::from_u128(1), ITEM, 5).await.map(|_| ());
    for result in [reserved, released, adjusted] {
        assert_eq!(result.unwrap_err().fault, Fault::Transient);
    }
    assert_eq!(server.say(&["DEBUG", "DIGEST"]), before);
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 1);
    stock.confirm(BUCKET, &[sale::pair(1)]).await.unwrap();

    server.say(&["CONFIG", "SET", "maxmemory", "0"]);
    let outcomes = stock.reserve(BUCKET, &wishes).await.unwrap();
    let held = outcomes.iter().filter(|it| matches!(it, ReserveOutcome::Held { .. })).count();
    assert_eq!(held, 4);
    assert_eq!(sale::lawful(stock.as_ref(), BUCKET).await.len(), 5);
}

/// Fields or members of a key, the empty name aside.
fn size(server: &Server, name: &str) -> i64 {
    let count = match server.say(&["TYPE", &key(name)]).text().as_str() {
        "zset" => server.say(&["ZCARD", &key(name)]),
        "set" => server.say(&["SCARD", &key(name)]),
        "none" => Reply::Int(0),
        _ => server.say(&["HLEN", &key(name)]),
    };
    count.int()
}

#[tokio::test]
async fn the_keys_of_a_sale_go_a_month_after_it_closed() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    let terms = sale::terms(1);
    sale::load(stock.as_ref(), BUCKET, &terms, vec![LoadPage::Items(vec![(ITEM, 5)])]).await;
    let month = Duration::from_secs(30 * 24 * 3_600);
    let expires = |name: &str| server.say(&["PEXPIRETIME", &key(name)]).int();
    for name in KEYS {
        assert_eq!(expires(name), terms.closes_at.plus(month).as_ms(), "{name}");
    }
    sale::reserve(stock.as_ref(), 1).await;
    let mut later = terms;
    later.closes_at = later.closes_at.plus(month);
    assert!(stock.set_terms(BUCKET, &later).await.unwrap());
    for name in KEYS {
        assert_eq!(expires(name), later.closes_at.plus(month).as_ms(), "{name}");
    }
}

#[tokio::test]
async fn a_sale_that_closed_long_ago_is_still_there_when_it_is_loaded() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    let mut terms = sale::terms(1);
    let long_ago = Duration::from_secs(90 * 24 * 3_600);
    (terms.opens_at, terms.closes_at) = (terms.opens_at.minus(long_ago), terms.closes_at.minus(long_ago));
    sale::load(stock.as_ref(), BUCKET, &terms, vec![LoadPage::Items(vec![(ITEM, 5)])]).await;
    assert_eq!(sale::reserve(stock.as_ref(), 1).await, ReserveOutcome::Ended);
    assert!(stock.set_terms(BUCKET, &terms).await.unwrap());
    assert!(stock.level(BUCKET).await.unwrap().is_some());
    // Nor does a sale without an end do harm.
    terms.closes_at = Timestamp::from_ms(i64::MAX);
    assert!(stock.set_terms(BUCKET, &terms).await.unwrap());
    assert!(matches!(sale::reserve(stock.as_ref(), 1).await, ReserveOutcome::Held { .. }));
}

#[tokio::test]
async fn a_generation_that_is_over_leaves_only_its_mark() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    sale::open(stock.as_ref(), 500, 1).await;
    let wishes: Vec<_> = (1..=250).map(sale::wish).collect();
    stock.reserve(BUCKET, &wishes).await.unwrap();
    stock.fence(BUCKET).await.unwrap();
    assert_eq!(size(&server, "buy"), 251, "a fenced bucket keeps what it had");
    let next = BucketId { epoch: Epoch(2), ..BUCKET };
    sale::load(stock.as_ref(), next, &sale::terms(1), vec![LoadPage::Items(vec![(ITEM, 500)])]).await;
    assert_eq!(KEYS.map(|name| size(&server, name)), [2, 0, 0, 0, 0, 0, 0]);
    assert!(stock.level(BUCKET).await.unwrap().unwrap().fenced);
    assert_eq!(sale::reserve(stock.as_ref(), 1).await, ReserveOutcome::Fenced);
}
