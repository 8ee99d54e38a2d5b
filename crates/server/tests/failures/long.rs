//! Faults that last: everybody who records is gone for minutes, and every 202 becomes an order.
//!
//! `DOORBUSTER_FAILURES_LONG_S` says how long; without it, as in the test command, it is a few seconds.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::buyers::{Crowd, Plan};

use crate::engines::Engines;
use crate::own::all_sold;
use crate::scene::{Scene, Set};
use crate::waiting::lasting;

/// How long each fault lasts where nothing else is said.
const SHORT: Duration = Duration::from_secs(6);

/// What is sold before and while the fault lasts; the rest is sold afterwards.
const BEFORE: u64 = 60;

/// How long each fault lasts.
pub(crate) fn duration() -> Duration {
    let told = std::env::var("DOORBUSTER_FAILURES_LONG_S").ok().and_then(|text| text.parse().ok());
    told.map_or(SHORT, Duration::from_secs)
}

/// A sale that is under way, and buyers who are more patient than the fault is long.
async fn selling(engines: &mut Engines) -> Result<(Scene<'_>, Crowd)> {
    let set = Set { units: 600, users: 900, ..Set::default() };
    let scene = Scene::open(engines, set).await?;
    let patience = duration() + Duration::from_secs(120);
    // Few at a time, and slow: the sale lasts as long as the fault.
    let crowd = scene.crowd(Plan { lanes: 16, patience, ..scene.plan()? });
    ensure!(crowd.reaches(|counts| counts.accepted >= BEFORE).await, "the sale never began");
    Ok((scene, crowd))
}

/// Ends a line: every 202 is an order, and the line says how many of them came while the fault lasted.
async fn ended(mut scene: Scene<'_>, crowd: Crowd, meanwhile: u64, signs: &[&str]) -> Result<String> {
    crowd.join().await;
    let books = scene.finish(all_sold()).await?;
    scene.shows(signs, &[]).await?;
    let (orders, seconds) = (books.orders.len(), duration().as_secs());
    Ok(format!("for {seconds} s, in which {meanwhile} were accepted; all {orders} are orders"))
}

/// Both recorders stand still. Their partitions go to nobody.
pub(crate) async fn recorders(engines: &mut Engines) -> Result<String> {
    let (mut scene, crowd) = selling(engines).await?;
    for name in ["recorder-1", "recorder-2"] {
        scene.player(name).freeze()?;
    }
    let before = crowd.counts().accepted;
    lasting(duration()).await;
    let meanwhile = crowd.counts().accepted - before;
    for name in ["recorder-1", "recorder-2"] {
        scene.player(name).thaw()?;
    }
    ended(scene, crowd, meanwhile, &["orders_total recorded"]).await
}

/// PostgreSQL is killed, and started again only afterwards.
pub(crate) async fn postgres(engines: &mut Engines) -> Result<String> {
    let (scene, crowd) = selling(engines).await?;
    scene.engines.postgres.kill(0).context("killing PostgreSQL")?;
    let before = crowd.counts().accepted;
    lasting(duration()).await;
    let meanwhile = crowd.counts().accepted - before;
    scene.engines.postgres.start_again(0)?;
    ended(scene, crowd, meanwhile, &["backend_faults_total ledger"]).await
}

/// Kafka is killed, and started again only afterwards: nothing is accepted meanwhile.
pub(crate) async fn kafka(engines: &mut Engines) -> Result<String> {
    let (scene, crowd) = selling(engines).await?;
    scene.engines.kafka.kill(0).context("killing Kafka")?;
    let before = crowd.counts().accepted;
    lasting(duration()).await;
    let meanwhile = crowd.counts().accepted - before;
    scene.engines.kafka.start_again(0)?;
    ended(scene, crowd, meanwhile, &["backend_faults_total queue", "publish_total ambiguous|transient"]).await
}
