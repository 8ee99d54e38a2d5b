//! F25: no space. Redis' memory, then the disks of Redis, Kafka and PostgreSQL, each a small file system of
//! its own that is filled up while the sale sells, and freed again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::buyers::{Crowd, Plan};
use doorbuster_services::{Server, SmallDisk, kafka, postgres};

use crate::engines::{Engines, root};
use crate::own::all_sold;
use crate::scene::{Scene, Set};
use crate::waiting::{lasting, until_async};

/// Megabytes for each: what the server needs to begin with, and some for the ballast.
const REDIS_MB: u32 = 8;
const KAFKA_MB: u32 = 48;
const POSTGRES_MB: u32 = 112;

/// Longest until a server that writes meets the end of its disk, and until it has ended if it does.
const PATIENCE: Duration = Duration::from_secs(40);

/// Begins one file of PostgreSQL's write-ahead log after the other, with a record in each: more of them than the old
/// ones that are used again, and more than there is space for.
const MORE_LOG: &str =
    "SELECT pg_logical_emit_message(false, 'more', 'log'), pg_switch_wal() FROM generate_series(1, 50)";

/// How long a disk stays full once the server has said so.
const FULL_FOR: Duration = Duration::from_secs(2);

/// What the kernel calls it.
const NO_SPACE: &str = "No space left on device";

pub(crate) async fn f25(engines: &mut Engines) -> Result<String> {
    no_memory(engines).await?;
    let redis = redis(engines).await?;
    let kafka = kafka(engines).await?;
    let postgres = postgres(engines).await?;
    Ok(format!("Redis refused writes without memory; on full disks, {redis}; {kafka}; {postgres}"))
}

async fn sold(crowd: &Crowd, units: u64) -> Result<()> {
    ensure!(crowd.reaches(move |counts| counts.accepted >= units).await, "{units} units were never sold");
    Ok(())
}

/// Redis has no memory left: it refuses every script before its first write.
async fn no_memory(engines: &mut Engines) -> Result<()> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    scene.redis_says(&["CONFIG", "SET", "maxmemory", "1mb"]).await?;
    let unresolved = crowd.counts().unresolved;
    ensure!(crowd.reaches(move |it| it.unresolved > unresolved + 20).await, "nobody was put off");
    scene.redis_says(&["CONFIG", "SET", "maxmemory", "0"]).await?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["backend_faults_total stock", "reserve_repeats_total"], &["reserve calls fail"]).await
}

/// The append-only file cannot grow: Redis refuses writes until it can, and goes on by itself.
async fn redis(engines: &mut Engines) -> Result<String> {
    let disk = SmallDisk::mount(REDIS_MB)?;
    let set = Set { redis_data: Some(disk.folder().to_owned()), ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    disk.fill()?;
    let unresolved = crowd.counts().unresolved;
    ensure!(crowd.reaches(move |it| it.unresolved > unresolved + 20).await, "nobody was put off");
    lasting(FULL_FOR).await;
    disk.free()?;
    crowd.join().await;
    let books = scene.finish(all_sold()).await?;
    ensure!(books.sales[0].epoch == 1, "nothing was lost, so there was nothing to rebuild");
    // The gateways tell what Redis was told by the kernel.
    let lines = ["reserve calls fail", NO_SPACE];
    scene.shows(&["backend_faults_total stock", "reserve_repeats_total"], &lines).await?;
    Ok("Redis went on by itself".to_owned())
}

/// The log's folder is full: the broker gives it up and ends; started again, it goes on.
async fn kafka(engines: &mut Engines) -> Result<String> {
    let disk = SmallDisk::mount(KAFKA_MB)?;
    let plan = kafka::Plan { data: Some(disk.folder().join("data")), ..kafka::Plan::of(1) };
    let usual = std::mem::replace(&mut engines.kafka, kafka::start(&root(), &plan)?);
    let told = full_broker(engines, &disk).await;
    engines.kafka = usual;
    told
}

async fn full_broker(engines: &mut Engines, disk: &SmallDisk) -> Result<String> {
    let mut scene = Scene::open(engines, Set { units: 600, users: 900, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    sold(&crowd, 50).await?;
    disk.fill()?;
    let unresolved = crowd.counts().unresolved;
    ensure!(crowd.reaches(move |it| it.unresolved > unresolved + 20).await, "nobody was put off");
    says(&scene.engines.kafka, "node-1/log", NO_SPACE).await?;
    lasting(FULL_FOR).await;
    let ended = !scene.engines.kafka.process(0).runs();
    disk.free()?;
    scene.engines.mend()?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    let signs = ["backend_faults_total queue", "published_again_total"];
    scene.shows(&signs, &["orders are not acknowledged by the queue"]).await?;
    Ok(if ended { "Kafka ended and was started again" } else { "Kafka went on by itself" }.to_owned())
}

/// First the tables cannot grow: PostgreSQL refuses what needs space and goes on by itself. Then its
/// write-ahead log cannot: it panics, and goes on when it has space, started again if it ended.
async fn postgres(engines: &mut Engines) -> Result<String> {
    let disk = SmallDisk::mount(POSTGRES_MB)?;
    let small = postgres::start_at(&disk.folder().join("data"))?;
    let usual = std::mem::replace(&mut engines.postgres, small);
    let told = full_ledger(engines, &disk).await;
    engines.postgres = usual;
    told
}

async fn full_ledger(engines: &mut Engines, disk: &SmallDisk) -> Result<String> {
    let set = Set { units: 1_500, users: 900, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let first = scene.crowd(scene.plan()?);
    sold(&first, 50).await?;
    disk.fill()?;
    says(&scene.engines.postgres, LEDGER_LOG, NO_SPACE).await?;
    lasting(FULL_FOR).await;
    disk.free()?;
    first.join().await;
    // Orders are taken while the ledger is full; it catches up by itself.
    let caught_up =
        until_async(PATIENCE, async || Ok(scene.number("SELECT count(*) FROM orders").await? >= 900));
    ensure!(caught_up.await?, "PostgreSQL did not go on by itself");

    let second = scene.crowd(Plan { name: "later".to_owned(), ..scene.plan()? });
    sold(&second, 50).await?;
    disk.fill()?;
    let panicked = until_async(PATIENCE, async || {
        // It may be refused, or lose its connection in the panic.
        let _ = scene.sql(MORE_LOG).await;
        said(&scene.engines.postgres, LEDGER_LOG, "PANIC")
    });
    ensure!(panicked.await?, "PostgreSQL's log never met the end of the disk");
    lasting(FULL_FOR).await;
    disk.free()?;
    let mut ended = false;
    let settled = until_async(PATIENCE, async || {
        ended = !scene.engines.postgres.process(0).runs();
        Ok(ended || scene.sql("SELECT 1").await.is_ok())
    });
    ensure!(settled.await?, "PostgreSQL neither ends nor answers");
    scene.engines.mend()?;
    second.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["backend_faults_total ledger"], &["a step failed and will be done again"]).await?;
    let after = if ended { "was started again" } else { "went on by itself" };
    Ok(format!("PostgreSQL refused what needed space and went on, then panicked and {after}"))
}

/// What PostgreSQL says, in its folder.
const LEDGER_LOG: &str = "data.log";

/// Waits until a server has said this in a file of its folder.
async fn says(server: &Server, log: &str, what: &str) -> Result<()> {
    let told = until_async(PATIENCE, async || said(server, log, what));
    ensure!(told.await?, "{} never said: {what}", server.folder().join(log).display());
    Ok(())
}

fn said(server: &Server, log: &str, what: &str) -> Result<bool> {
    let path = server.folder().join(log);
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    Ok(String::from_utf8_lossy(&text).contains(what))
}
