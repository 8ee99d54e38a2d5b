//! F15 to F24: the servers of others die, forget, go back, are slow.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::buyers::{Crowd, Plan};
use doorbuster_chaos::checker::Circumstances;
use doorbuster_chaos::proxy::{Effect, Ending, Moment, Stream};
use doorbuster_services::{postgres, redis_server};

use crate::engines::Engines;
use crate::own::{all_sold, fired};
use crate::scene::{Scene, Set};
use crate::waiting::{lasting, until_async};

/// Longest that a sale may be shut after its stock was lost, once Redis answers again.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// Longest until a rebuild is taken over whose owner stands still: its lease is 10 s.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(30);

/// A Redis that keeps nothing on disk.
const FORGETFUL: &[&str] = &["--appendonly", "no"];

/// Holds may be gone, and with them 202s that were earned on units which the ledger had sold already.
fn stock_lost() -> Circumstances {
    Circumstances { stock_lost: true, ..all_sold() }
}

async fn sold(crowd: &Crowd, units: u64) -> Result<()> {
    ensure!(crowd.reaches(move |counts| counts.accepted >= units).await, "{units} units were never sold");
    Ok(())
}

/// Waits until the sale sells in a later epoch than `epoch`, behind no fence.
async fn sells_again(scene: &Scene<'_>, epoch: u64, patience: Duration) -> Result<u64> {
    let mut now = epoch;
    let again = until_async(patience, async || {
        let (epoch_now, fenced) = scene.epoch().await?;
        now = epoch_now;
        Ok(now > epoch && !fenced)
    });
    ensure!(again.await?, "the stock was not rebuilt within {} s", patience.as_secs());
    Ok(now)
}

/// Killed with its append-only file, which has every answer: nothing is lost. Killed without: a rebuild.
pub(crate) async fn f15(engines: &mut Engines) -> Result<String> {
    let set = Set { redis: &["--appendonly", "yes", "--appendfsync", "always"], ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    scene.redis.kill(0)?;
    scene.redis.start_again(0)?;
    crowd.join().await;
    let books = scene.finish(all_sold()).await?;
    ensure!(books.sales[0].epoch == 1, "there was no reason to rebuild");
    drop(scene);

    let mut scene = Scene::open(engines, Set { redis: FORGETFUL, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    scene.redis.kill(0)?;
    scene.redis.start_again(0)?;
    sells_again(&scene, 1, BACK_WITHIN).await?;
    crowd.join().await;
    scene.finish(stock_lost()).await?;
    scene
        .shows(
            &["rebuilds_total missing|not_open", "rebuilds_finished_total", "backend_faults_total stock"],
            &["the sale is fenced; its stock will be loaded anew"],
        )
        .await?;
    Ok("with its file nothing was lost; without it the stock was rebuilt".to_owned())
}

/// A replica that was cut off takes over, then the old master comes back: F16 and F17.
pub(crate) async fn f16(engines: &mut Engines) -> Result<String> {
    let set = Set { proxied: true, units: 400, users: 600, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let replica = redis_server::start_with(FORGETFUL)?;
    let port = scene.redis.url.rsplit(':').next().context("a URL has a port")?.to_owned();
    scene.redis_says(&["CONFIG", "SET", "repl-diskless-sync-delay", "0"]).await?;
    redis_at(&replica.url, &["REPLICAOF", "127.0.0.1", &port]).await?;
    let follows = until_async(BACK_WITHIN, async || {
        let held = redis_at(&replica.url, &["DBSIZE"]).await?;
        Ok(held != redis::Value::Int(0))
    });
    ensure!(follows.await?, "the replica never followed");
    let crowd = scene.crowd(Plan { lanes: 8, ..scene.plan()? });
    sold(&crowd, 40).await?;
    redis_at(&replica.url, &["REPLICAOF", "NO", "ONE"]).await?;
    sold(&crowd, 80).await?;

    let lead_to = |url: &str| -> Result<()> {
        let proxy = &scene.proxies.as_ref().context("it was asked for")?.redis;
        proxy.set_upstream(url.trim_start_matches("redis://").parse()?);
        proxy.add(Effect::Cut(Moment::Now, Ending::Reset))?;
        Ok(())
    };
    lead_to(&replica.url)?;
    let epoch = sells_again(&scene, 1, BACK_WITHIN).await?;
    sold(&crowd, 120).await?;
    lead_to(&scene.redis.url)?;
    let last = sells_again(&scene, epoch, BACK_WITHIN).await?;
    crowd.join().await;
    scene.finish(stock_lost()).await?;
    scene
        .shows(
            &["rebuilds_total went_back|not_open|missing", "rebuilds_finished_total"],
            &["the stock went back to an earlier state"],
        )
        .await?;
    Ok(format!("a stale replica took over and the old master came back; the sale ended in epoch {last}"))
}

async fn redis_at(url: &str, words: &[&str]) -> Result<redis::Value> {
    let mut connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    Ok(command.query_async(&mut connection).await?)
}

/// Everything is flushed; then one key after the other is deleted or becomes another type.
pub(crate) async fn f18(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { units: 300, users: 450, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 40).await?;
    scene.redis_says(&["FLUSHALL"]).await?;
    let mut epoch = sells_again(&scene, 1, BACK_WITHIN).await?;
    for (number, key) in ["cfg", "buy", "stk", "out"].iter().enumerate() {
        sold(&crowd, 60 + 20 * number as u64).await?;
        let name = scene.stock_key(key).await?;
        if number % 2 == 0 {
            scene.redis_says(&["DEL", &name]).await?;
        } else {
            scene.redis_says(&["SET", &name, "somebody else's"]).await?;
        }
        epoch = sells_again(&scene, epoch, BACK_WITHIN).await?;
    }
    crowd.join().await;
    scene.finish(stock_lost()).await?;
    scene
        .shows(
            &["rebuilds_total missing", "rebuilds_finished_total"],
            &["the stock is missing", "somebody wrote over a key of the stock"],
        )
        .await?;
    Ok(format!("flushed, two keys deleted, two written over: each time rebuilt, up to epoch {epoch}"))
}

/// A loader stands still when everything is loaded; another takes the rebuild over; the first wakes up.
/// Before it, two keepers preheat the same sale at once.
pub(crate) async fn f19(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { keepers: 2, ..Set::default() }).await?;
    // Another sale, which has no stock yet: both keepers load it at the same time.
    let draft = scene.draft();
    let (one, other) = (scene.staff_at("keeper-1")?, scene.staff_at("keeper-2")?);
    let fresh = one.create_sale(&draft).await?.sale_id;
    let (first, second) = futures_util::future::join(one.preheat(&fresh), other.preheat(&fresh)).await;
    let (first, second) = (first?, second?);
    ensure!(first.ok && first == second, "two preheats at once: {first:?}, {second:?}");
    let fresh = one.sale(&fresh).await?;
    ensure!(
        (fresh.epoch, fresh.items[0].free) == (1, Some(scene.set.units)),
        "two preheats at once left {fresh:?}"
    );
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 40).await?;
    // Both may be the loader: whichever it is stands still, the other one is let go on.
    for name in ["keeper-1", "keeper-2"] {
        scene.armed(name, "rebuild.loaded=stop@1").await?;
    }
    scene.redis_says(&["FLUSHALL"]).await?;
    let first = until_async(BACK_WITHIN, async || {
        Ok(scene.players.iter().any(|it| it.role == "keeper" && it.stands_still()))
    });
    ensure!(first.await?, "nobody loaded");
    let stalled = scene.players.iter().position(|it| it.role == "keeper" && it.stands_still());
    let stalled = scene.players[stalled.context("one stands still")?].name.clone();
    let other = if stalled == "keeper-1" { "keeper-2" } else { "keeper-1" };
    // The other one would stand still too, at its own first load.
    scene.player(other).kill()?;
    scene.again(other, "").await?;
    let epoch = sells_again(&scene, 1, TAKEN_OVER_WITHIN).await?;
    sold(&crowd, 80).await?;
    scene.player(&stalled).thaw()?;
    crowd.join().await;
    let books = scene.finish(stock_lost()).await?;
    ensure!(books.sales[0].epoch == epoch, "the loader that woke up began an epoch");
    scene.shows(&["rebuilds_finished_total"], &["the sale is fenced; its stock will be loaded anew"]).await?;
    Ok(format!("{stalled} stood still with a loaded stock, {other} rebuilt it, the first woke up"))
}

/// The scripts are forgotten every 10 ms.
pub(crate) async fn f20(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    let crowd = scene.crowd(scene.plan()?);
    let mut flushes = 0;
    let all = crowd.reaches(|counts| counts.accepted >= 200);
    tokio::pin!(all);
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    loop {
        tokio::select! {
            reached = &mut all => break ensure!(reached, "the sale did not sell out"),
            _ = pace.tick() => {
                scene.redis_says(&["SCRIPT", "FLUSH"]).await?;
                flushes += 1;
            }
        }
    }
    crowd.join().await;
    scene.finish(all_sold()).await?;
    Ok(format!("the scripts were forgotten {flushes} times"))
}

/// Redis answers late, sometimes later than anybody waits.
pub(crate) async fn f22(engines: &mut Engines) -> Result<String> {
    let set = Set { proxied: true, units: 600, users: 900, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 30).await?;
    let proxy = &scene.proxies.as_ref().context("it was asked for")?.redis;
    for ms in [100, 300, 700] {
        let slow = proxy.add(Effect::Delay(Stream::Downstream, Duration::from_millis(ms)))?;
        fired("nothing was slow", slow.until_fired(5)).await?;
        // Buyers come in all the time, so that some of them wait behind a slow call.
        lasting(Duration::from_millis(1_500)).await;
        proxy.remove(&slow);
    }
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["reserve_repeats_total"], &["reserve calls fail"]).await?;
    Ok("replies came 100, 300 and 700 ms late".to_owned())
}

/// Backends are killed in the middle of their work, and somebody's transaction holds the item's row.
pub(crate) async fn f23(engines: &mut Engines) -> Result<String> {
    let set = Set { units: 2_000, users: 3_000, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(Plan { lanes: 8, ..scene.plan()? });
    sold(&crowd, 20).await?;
    let kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    for _ in 0..20 {
        scene.sql(kill).await?;
        lasting(Duration::from_millis(50)).await;
    }
    let hold = "BEGIN; SELECT * FROM item FOR UPDATE; SELECT pg_sleep(2); COMMIT";
    scene.sql(hold).await?;
    // A recorder has its partition's position and waits for the item, which we have and ask for the
    // positions: the server ends one of the two.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    let before = scene.number(deadlocks).await?;
    let crossing = "BEGIN; SELECT * FROM item FOR UPDATE; SELECT pg_sleep(0.5); \
                    SELECT * FROM queue_offset FOR UPDATE; COMMIT";
    let crossed = until_async(BACK_WITHIN, async || {
        // It is ours that may lose.
        let _ = scene.sql(crossing).await;
        Ok(scene.number(deadlocks).await? > before)
    });
    ensure!(crossed.await?, "no locks were ever crossed");
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["backend_faults_total ledger"], &["will be done again"]).await?;
    Ok("all backends were killed 20 times, the item's row was held for 2 s, locks were crossed".to_owned())
}

/// PostgreSQL dies as by a power cut; then it comes back as it was some time ago.
pub(crate) async fn f24(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { units: 300, users: 450, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    scene.engines.postgres.kill(0)?;
    lasting(Duration::from_secs(2)).await;
    scene.engines.postgres.start_again(0)?;
    sold(&crowd, 100).await?;
    let before = postgres::copy(&scene.engines.postgres)?;
    sold(&crowd, 200).await?;
    postgres::go_back(&mut scene.engines.postgres, &before)?;
    crowd.join().await;
    let circumstances = Circumstances { ledger_lost: true, stock_lost: true, ..all_sold() };
    scene.finish(circumstances).await?;
    scene.shows(&["backend_faults_total ledger"], &["a step failed"]).await?;
    Ok("killed and restarted; then replaced by a standby that was behind".to_owned())
}
