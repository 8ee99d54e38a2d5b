//! F26 to F33: clocks, signals, staff, links, crowds, and several faults at once.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::buyers::{Plan, Shares};
use doorbuster_chaos::checker::Circumstances;
use doorbuster_chaos::proxy::{Effect, Stream};
use doorbuster_wire::Restock;
use rand::RngExt as _;

use crate::engines::Engines;
use crate::own::{all_sold, fired};
use crate::scene::{Scene, Set};
use crate::waiting::{lasting, until_async};

/// A gateway is told to end with requests in flight: it drains. Told twice, it ends at once.
pub(crate) async fn f27(engines: &mut Engines) -> Result<String> {
    // Whoever publishes while the broker stands still is in flight for as long.
    let settings = &[("kafka.message_timeout", "8s")];
    let set = Set { units: 1_500, users: 2_000, settings, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(Plan { lanes: 200, ..scene.plan()? });
    ensure!(crowd.reaches(|counts| counts.accepted >= 100).await, "the sale never began");
    drains(&mut scene).await?;
    scene.engines.kafka.thaw(0)?;
    scene.player("gateway-1").until_ended().await?;
    scene.again("gateway-1", "").await?;

    ensure!(crowd.reaches(|counts| counts.accepted >= 600).await, "the sale never went on");
    drains(&mut scene).await?;
    scene.player("gateway-1").terminate()?;
    // Long before what is in flight would have ended.
    let gone = tokio::time::timeout(Duration::from_secs(3), scene.player("gateway-1").until_gone());
    let code = gone.await.context("told twice, it did not end at once")??;
    ensure!(code == Some(1), "told twice, it ended with {code:?}");
    scene.engines.kafka.thaw(0)?;
    scene.again("gateway-1", "").await?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    Ok("a gateway drained; told twice, it ended at once".to_owned())
}

/// Freezes the broker, so that requests are in flight, and tells a gateway to end: it waits for them.
async fn drains(scene: &mut Scene<'_>) -> Result<()> {
    scene.engines.kafka.freeze(0)?;
    lasting(Duration::from_millis(300)).await;
    scene.player("gateway-1").terminate()?;
    lasting(Duration::from_secs(1)).await;
    ensure!(scene.player("gateway-1").runs()?, "a gateway with requests in flight did not drain");
    Ok(())
}

/// The staff pauses and opens the sale again and again.
pub(crate) async fn f28(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    let crowd = scene.crowd(scene.plan()?);
    let (staff, id) = (scene.staff("keeper")?, scene.offer.sale.to_string());
    for sold in [30, 80, 130] {
        ensure!(crowd.reaches(move |counts| counts.accepted >= sold).await, "the sale does not go on");
        staff.pause(&id).await?;
        lasting(Duration::from_millis(400)).await;
        let paused = crowd.counts();
        lasting(Duration::from_millis(300)).await;
        let later = crowd.counts();
        ensure!(later.accepted <= paused.accepted, "a paused sale sells");
        staff.open(&id).await?;
    }
    crowd.join().await;
    scene.finish(all_sold()).await?;
    Ok("paused and opened three times".to_owned())
}

/// Units are added and taken away while the sale runs, and the keeper dies between the two steps.
pub(crate) async fn f29(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { units: 100, users: 320, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    let (sale, item) = (scene.offer.sale.to_string(), scene.offer.items[0].to_string());
    let mut expected = 100;
    let mut random = scene.engines.random();
    for (point, by) in [
        ("restock.written", 50_i64),
        ("restock.adjusted", 40),
        ("restock.written", -10),
        ("restock.adjusted", -20),
    ] {
        scene.armed("keeper-1", &format!("{point}=kill@1")).await?;
        let restock = Restock { operation_id: uuid::Uuid::from_u128(random.random()).to_string(), units: by };
        let staff = scene.staff("keeper")?;
        // The answer dies with the keeper.
        let asked = staff.restock(&sale, &item, &restock).await;
        ensure!(asked.is_err(), "the keeper did not die at {point}");
        scene.player("keeper-1").until_killed().await?;
        scene.again("keeper-1", "").await?;
        // Asked again with the same id, it happens once or is refused for good.
        let staff = scene.staff("keeper")?;
        let asked = staff.restock(&sale, &item, &restock).await;
        match asked {
            Ok(_) => expected += by,
            Err(error) => ensure!(by < 0, "{error}"),
        }
    }
    crowd.join().await;
    // Those who came before the units were there have been told that it is sold out, and have gone.
    scene
        .crowd(Plan { name: "late".to_owned(), seed: scene.engines.seed.wrapping_add(1), ..scene.plan()? })
        .join()
        .await;
    let books = scene.finish(all_sold()).await?;
    let quantity = books.items[0].quantity;
    ensure!(quantity == expected, "the quantity is {quantity}, and {expected} was answered");
    Ok(format!("four restocks, the keeper died in each; the sale ended with {quantity} units"))
}

/// Bytes vanish in one direction, at one server after the other.
pub(crate) async fn f30(engines: &mut Engines) -> Result<String> {
    links(engines, Effect::OneWay).await.map(|told| format!("bytes vanished {told}"))
}

/// Bytes are not read in one direction, at one server after the other.
pub(crate) async fn f31(engines: &mut Engines) -> Result<String> {
    links(engines, Effect::Clog).await.map(|told| format!("bytes were held up {told}"))
}

async fn links(engines: &mut Engines, effect: fn(Stream) -> Effect) -> Result<String> {
    let mut scene = Scene::open(engines, Set { proxied: true, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    let proxies = scene.proxies.as_ref().context("it was asked for")?;
    let mut goal = 15;
    for proxy in [&proxies.redis, &proxies.kafka, &proxies.postgres] {
        for stream in [Stream::Upstream, Stream::Downstream] {
            ensure!(crowd.reaches(move |it| it.accepted >= goal).await, "the sale does not go on");
            let broken = proxy.add(effect(stream))?;
            fired("nothing was held up", broken.until_fired(1)).await?;
            lasting(Duration::from_millis(1_500)).await;
            proxy.remove(&broken);
            goal += 15;
        }
    }
    crowd.join().await;
    scene.finish(all_sold()).await?;
    Ok("for 1.5 s each, either way, at Redis, Kafka and PostgreSQL".to_owned())
}

/// Everybody clicks again and again, also after an answer.
pub(crate) async fn f32(engines: &mut Engines) -> Result<String> {
    let set = Set { units: 300, users: 3_000, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let storms = (0..3).map(|more| -> Result<_> {
        let seed = scene.engines.seed.wrapping_add(more);
        let shares = Shares { keyed: 50, ..Shares::default() };
        Ok(scene.crowd(Plan { lanes: 100, seed, shares, ..scene.plan()? }))
    });
    let crowds = storms.collect::<Result<Vec<_>>>()?;
    let mut clicks = 0;
    for crowd in crowds {
        let counts = crowd.reaches(|_| false);
        counts.await;
        clicks += crowd.counts().clicks;
        crowd.join().await;
    }
    scene.finish(all_sold()).await?;
    Ok(format!("3,000 users clicked {clicks} times for 300 units"))
}

/// A recorder dies, the stock is flushed, and the broker stands still, within ten seconds.
pub(crate) async fn f33(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { units: 300, users: 450, ..Set::default() }).await?;
    let crowd = scene.crowd(scene.plan()?);
    ensure!(crowd.reaches(|counts| counts.accepted >= 60).await, "the sale never began");
    scene.player("recorder-1").kill()?;
    scene.redis_says(&["FLUSHALL"]).await?;
    lasting(Duration::from_millis(500)).await;
    scene.engines.kafka.freeze(0)?;
    lasting(Duration::from_secs(4)).await;
    scene.engines.kafka.thaw(0)?;
    scene.again("recorder-1", "").await?;
    let whole = until_async(Duration::from_secs(60), async || {
        let (epoch, fenced) = scene.epoch().await?;
        Ok(epoch > 1 && !fenced)
    });
    ensure!(whole.await?, "the sale did not come back");
    crowd.join().await;
    scene.finish(Circumstances { stock_lost: true, ..all_sold() }).await?;
    scene.shows(&["rebuilds_finished_total"], &["the sale is fenced; its stock will be loaded anew"]).await?;
    Ok("a recorder died, the stock was flushed, the broker stood still for 4 s".to_owned())
}
