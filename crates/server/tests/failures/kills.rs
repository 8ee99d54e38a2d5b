//! Every part is killed by `kill -9`, again and again, while buyers never stop.

use std::time::Duration;

use anyhow::{Result, ensure};
use doorbuster_chaos::buyers::{Plan, Shares};
use doorbuster_chaos::checker::{Circumstances, check_progress};
use rand::RngExt as _;

use crate::engines::Engines;
use crate::scene::{Scene, Set};
use crate::waiting::lasting;

/// What is killed, one after the other. The broker takes seconds to start, so it comes once in five turns.
const VICTIMS: [&str; 6] = ["gateway-1", "recorder-1", "keeper-1", "redis", "postgres", "kafka"];
const BROKER_EVERY: u32 = 5;

/// Most books that are kept on the way.
const BOOKS_MAX: usize = 12;

/// How often each is killed; the broker a fifth of it, and at least once.
pub(crate) fn rounds() -> u32 {
    std::env::var("DOORBUSTER_FAILURES_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Crowds come one after the other; while one buys, each part is killed and started again in turn.
pub(crate) async fn run(engines: &mut Engines) -> Result<String> {
    let set = Set {
        // More than all crowds pay for: what they do not pay for comes back.
        units: 5_000,
        users: 60,
        window_s: 5,
        // Every answer is on the disk before it is given.
        redis: &["--appendonly", "yes", "--appendfsync", "always"],
        ..Set::default()
    };
    let mut scene = Scene::open(engines, set).await?;
    let mut random = scene.engines.random();
    // Books on the way: what they say must still hold in the end.
    let mut seen = Vec::new();
    for round in 0..rounds() {
        // Nobody waits for a recorder here: with one killed all the time, orders are recorded late.
        let shares = Shares { keyed: 30, ..Shares::default() };
        let (seed, name) = (random.random(), format!("{round}-"));
        let crowd = scene.crowd(Plan { lanes: 8, name, shares, seed, ..scene.plan()? });
        for victim in VICTIMS {
            if victim == "kafka" && round % BROKER_EVERY != 0 {
                continue;
            }
            lasting(Duration::from_millis(random.random_range(0..300))).await;
            kill(&mut scene, victim).await?;
            *scene.engines.counted.entry(victim).or_default() += 1;
        }
        crowd.join().await;
        if seen.len() < BOOKS_MAX {
            seen.push(scene.books().await?);
        }
    }
    // Everything was started again at once, so what was cancelled is soon on sale.
    let release_within = Some(Duration::from_secs(20));
    let circumstances = Circumstances { release_within, ..Circumstances::default() };
    let books = scene.finish(circumstances.clone()).await?;
    for earlier in &seen {
        let findings = check_progress(earlier, &books, &circumstances);
        ensure!(findings.is_empty(), "the books went back: {findings:#?}");
    }
    ensure!(books.sales[0].epoch == 1, "nothing was lost, so there was nothing to rebuild");
    Ok(format!("{:?}, {} orders", scene.engines.counted, books.orders.len()))
}

/// Kills and starts again at once.
async fn kill(scene: &mut Scene<'_>, victim: &str) -> Result<()> {
    match victim {
        "redis" => {
            scene.redis.kill(0)?;
            scene.redis.start_again(0)
        }
        "postgres" => {
            scene.engines.postgres.kill(0)?;
            scene.engines.postgres.start_again(0)
        }
        "kafka" => {
            scene.engines.kafka.kill(0)?;
            scene.engines.kafka.start_again(0)
        }
        ours => {
            // A recorder is ready only when the group has given the dead one up, which takes 10 s.
            let player = scene.player(ours);
            player.kill()?;
            player.start(&[])?;
            player.until_alive().await
        }
    }
}
