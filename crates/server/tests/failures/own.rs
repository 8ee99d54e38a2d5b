//! F1 to F14: our own processes die, stand still or are told wrong things between two steps.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::books::{Order, Status};
use doorbuster_chaos::buyers::Plan;
use doorbuster_chaos::checker::Circumstances;
use doorbuster_chaos::proxy::{Effect, Ending, Matching, Then, Toxic};
use doorbuster_wire::MarkPaid;
use futures_util::future::join_all;

use crate::engines::Engines;
use crate::scene::{Scene, Set};
use crate::waiting::{lasting, until_async};

/// Longest wait for one step of a line.
const PATIENCE: Duration = Duration::from_secs(60);

/// More want a unit than there are: in the end every unit is sold.
pub(crate) fn all_sold() -> Circumstances {
    Circumstances { demand_above_stock: true, ..Circumstances::default() }
}

/// A process dies at a point while buyers buy, and is started again.
async fn dies_at(engines: &mut Engines, name: &str, point: &str) -> Result<String> {
    // A recorder has all partitions, so that it surely comes to its point.
    let mut scene = Scene::open(engines, Set { recorders: 1, ..Set::default() }).await?;
    scene.armed(name, &format!("{point}=kill@{}", at(point))).await?;
    let crowd = scene.crowd(scene.plan()?);
    scene.player(name).until_killed().await?;
    scene.again(name, "").await?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    Ok(format!("{name} died at {point}"))
}

/// Gateways die in the middle of the storm, recorders in one of their first batches.
fn at(point: &str) -> u32 {
    if point.starts_with("gateway") { 40 } else { 2 }
}

pub(crate) async fn f1(engines: &mut Engines) -> Result<String> {
    dies_at(engines, "gateway-1", "gateway.admitted").await
}

pub(crate) async fn f3(engines: &mut Engines) -> Result<String> {
    dies_at(engines, "gateway-1", "gateway.reserved").await
}

pub(crate) async fn f5(engines: &mut Engines) -> Result<String> {
    dies_at(engines, "gateway-1", "gateway.acknowledged").await
}

pub(crate) async fn f7(engines: &mut Engines) -> Result<String> {
    let mut told = Vec::new();
    for point in ["recorder.read", "recorder.committed", "recorder.confirmed"] {
        told.push(dies_at(engines, "recorder-1", point).await?);
    }
    Ok(told.join("; "))
}

/// Replies of scripts are lost in two ways, and scripts run twice, while the sale sells.
pub(crate) async fn f2(engines: &mut Engines) -> Result<String> {
    let set = Set { proxied: true, units: 900, users: 1_200, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(scene.plan()?);
    let proxy = &scene.proxies.as_ref().context("it was asked for")?.redis;
    // What takes units, among all the scripts that are called all the time.
    let reserve = redis::Script::new(include_str!("../../../engine/src/stock/redis/reserve.lua"));
    let reserve = Matching::command_with("EVALSHA", reserve.get_hash());
    let effects = [
        (Effect::SwallowReply(Then::Hang), "no reply was swallowed"),
        (Effect::SwallowReply(Then::End(Ending::Reset)), "no connection was reset"),
        (Effect::Duplicate, "no script ran twice"),
    ];
    for (number, (effect, otherwise)) in effects.into_iter().enumerate() {
        let goal = 30 + 150 * number as u64;
        ensure!(crowd.reaches(move |counts| counts.accepted >= goal).await, "the sale does not go on");
        let toxic = proxy.add(Toxic::new(effect).on(reserve.clone()).first(5))?;
        // Of several that are under way on one connection, the first silence is the last.
        let times = if effect == Effect::SwallowReply(Then::Hang) { 1 } else { 3 };
        fired(otherwise, toxic.until_fired(times)).await?;
        proxy.remove(&toxic);
    }
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["reserve_repeats_total", "backend_faults_total stock"], &["reserve calls fail"]).await?;
    Ok("replies of the reserve step were lost on a silent and on a reset connection, it ran twice".to_owned())
}

/// The broker stands still for longer than a message may take, then again dies outright.
pub(crate) async fn f4(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    let crowd = scene.crowd(scene.plan()?);
    ensure!(crowd.reaches(|counts| counts.accepted >= 40).await, "the sale never began");
    scene.engines.kafka.freeze(0)?;
    lasting(Duration::from_secs(4)).await;
    scene.engines.kafka.thaw(0)?;
    let unresolved = crowd.counts().unresolved;
    ensure!(unresolved > 0, "nobody was told that an outcome is unknown");
    ensure!(crowd.reaches(|counts| counts.accepted >= 100).await, "nothing was sold afterwards");
    scene.engines.kafka.kill(0)?;
    lasting(Duration::from_secs(3)).await;
    scene.engines.kafka.start_again(0)?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene
        .shows(
            &["publish_total ambiguous", "published_again_total", "backend_faults_total queue"],
            &["orders are not acknowledged by the queue", "published orders again"],
        )
        .await?;
    Ok(format!("the broker stood still for 4 s ({unresolved} answers were unknown), then died"))
}

/// COMMIT is delivered and its reply is not: the recorder reads its position and knows.
pub(crate) async fn f8(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set { proxied: true, ..Set::default() }).await?;
    let proxy = &scene.proxies.as_ref().context("it was asked for")?.postgres;
    let lost = Toxic::new(Effect::SwallowReply(Then::End(Ending::Reset)));
    let lost = proxy.add(lost.on(Matching::sql("COMMIT")).first(8))?;
    let crowd = scene.crowd(scene.plan()?);
    fired("no COMMIT was swallowed", lost.until_fired(8)).await?;
    crowd.join().await;
    scene.finish(all_sold()).await?;
    scene.shows(&["backend_faults_total ambiguous"], &["a step failed and will be done again"]).await?;
    Ok("the replies of 8 COMMITs were lost".to_owned())
}

/// A recorder stands still with a batch in its hands until another has recorded everything, and wakes up.
pub(crate) async fn f9(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    // Alone, it has every partition and surely comes to its point.
    scene.player("recorder-2").terminate()?;
    scene.player("recorder-2").until_ended().await?;
    scene.armed("recorder-1", "recorder.read=stop@2").await?;
    let crowd = scene.crowd(scene.plan()?);
    scene.player("recorder-1").until_stopped().await?;
    scene.again("recorder-2", "").await?;
    crowd.join().await;
    // The other one gets the partitions when the group has given this one up.
    let taken = until_async(PATIENCE, async || {
        let books = scene.books().await?;
        Ok(books.orders.len() as u64 >= scene.set.units)
    });
    ensure!(taken.await?, "nobody took the partitions over");
    scene.player("recorder-1").thaw()?;
    // Where the group took its time, the call that stood still is over by its own limit before it is sent.
    let (faster, over) = ("another recorder was faster", "PostgreSQL did not answer in time");
    let refused = until_async(PATIENCE, async || {
        let said = scene.player("recorder-1").said();
        Ok(said.contains(faster) || said.contains(over))
    });
    ensure!(refused.await?, "the recorder that woke up was never told that it was too late");
    scene.finish(all_sold()).await?;
    let told = scene.player("recorder-1").said().contains(faster);
    if told {
        scene.shows(&["zombie_batches_total"], &[faster]).await?;
    }
    let how = if told { "the ledger refused it" } else { "its call was over" };
    Ok(format!("a recorder woke up with a batch that another one had recorded: {how}"))
}

/// The ledger's positions are set to the topic's begin: everything is delivered once more.
pub(crate) async fn f10(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    scene.crowd(scene.plan()?).join().await;
    let books = scene.finish(all_sold()).await?;
    for name in ["recorder-1", "recorder-2"] {
        scene.player(name).kill()?;
    }
    scene.sql("UPDATE queue_offset SET next = 0").await?;
    for name in ["recorder-1", "recorder-2"] {
        scene.again(name, "").await?;
    }
    let again = until_async(PATIENCE, async || {
        let now = scene.books().await?;
        Ok(now.positions == books.positions)
    });
    ensure!(again.await?, "the topic was not read to its end again");
    let after = scene.finish(all_sold()).await?;
    ensure!(after.orders == books.orders && after.steps == books.steps, "a replay changed the books");
    Ok(format!("{} records were delivered again and changed nothing", books.orders.len()))
}

/// Records that nobody can read stand among the orders.
pub(crate) async fn f11(engines: &mut Engines) -> Result<String> {
    let mut scene = Scene::open(engines, Set::default()).await?;
    let poison: [&[u8]; 4] = [b"\xff\xfe\x00", b"", b"{\"v\":1}", b"[1,2,3]"];
    let crowd = scene.crowd(scene.plan()?);
    ensure!(crowd.reaches(|counts| counts.accepted >= 30).await, "the sale never began");
    for (number, bytes) in poison.iter().cycle().take(40).enumerate() {
        scene.append(i32::try_from(number % 4)?, bytes).await?;
    }
    crowd.join().await;
    let books = scene.finish(all_sold()).await?;
    ensure!(books.dead_letters.len() == 40, "{} dead letters", books.dead_letters.len());
    scene.shows(&["dead_letters_open", "orders_total dead_letter"], &["parked as dead letters"]).await?;
    Ok("40 unreadable records were parked".to_owned())
}

/// Everybody's order expires unpaid, and the keeper dies at `point`; the units are sold again.
async fn dies_at_expiry(engines: &mut Engines, point: &str, same_users: bool) -> Result<String> {
    let set = Set { units: 150, users: 150, window_s: 4, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    scene.crowd(scene.plan()?).join().await;
    scene.armed("keeper-1", &format!("{point}=kill@1")).await?;
    scene.player("keeper-1").until_killed().await?;
    if point.starts_with("expirer") {
        scene.again("keeper-1", "").await?;
        // "Sold out" is a final word to a buyer: the others come once a unit is back.
        let back = until_async(PATIENCE, async || {
            let books = scene.books().await?;
            let mut expired = books.orders.iter().filter(|order| order.status == Status::Expired);
            Ok(expired.any(|order| !books.releases.contains(&order.id)))
        });
        ensure!(back.await?, "no unit of an expired order came back");
    }
    // While no keeper runs, what was released is bought again by those who had it.
    let name = if same_users { "user" } else { "other" };
    let crowd = scene.crowd(Plan {
        name: name.to_owned(),
        seed: scene.engines.seed.wrapping_add(1),
        ..scene.plan()?
    });
    if !point.starts_with("expirer") {
        // As many as had expired at the first step; the others are told of the orders that they still have.
        ensure!(crowd.reaches(|counts| counts.accepted > 0).await, "nothing came back on sale");
        scene.again("keeper-1", "").await?;
    }
    crowd.join().await;
    let books = scene.finish(Circumstances::default()).await?;
    let expired = books.orders.iter().filter(|order| order.status == Status::Expired).count();
    ensure!(expired > 0 && books.orders.len() > 150, "{expired} expired, {} orders", books.orders.len());
    Ok(format!("the keeper died at {point}; {expired} orders expired, {} in all", books.orders.len()))
}

pub(crate) async fn f12(engines: &mut Engines) -> Result<String> {
    dies_at_expiry(engines, "expirer.expired", false).await
}

pub(crate) async fn f13(engines: &mut Engines) -> Result<String> {
    dies_at_expiry(engines, "releaser.released", true).await
}

/// Payments arrive around the deadline, while the expirer works and others buy what comes back. Those that
/// come late buy again, or are given back.
pub(crate) async fn f14(engines: &mut Engines) -> Result<String> {
    let set = Set { units: 400, users: 400, window_s: 4, keepers: 2, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    scene.crowd(scene.plan()?).join().await;
    let mut held = Vec::new();
    let recorded = until_async(PATIENCE, async || {
        held = scene.books().await?.orders;
        Ok(held.len() == 400)
    });
    ensure!(recorded.await?, "{} of 400 orders were recorded", held.len());
    let told = pay_around_the_deadline(&scene, &held).await?;
    let others = scene.crowd(Plan {
        name: "other".to_owned(),
        users: 150,
        seed: scene.engines.seed.wrapping_add(1),
        ..scene.plan()?
    });
    let late = told.get("LATE").copied().unwrap_or_default();
    let settled = until_async(PATIENCE, async || {
        Ok(scene.books().await?.payments.iter().all(|payment| payment.outcome != "LATE"))
    });
    ensure!(settled.await?, "a late payment was never settled");
    others.join().await;

    let books = scene.finish(Circumstances::default()).await?;
    let stands = |it: &Order, status| books.orders.iter().any(|row| row.id == it.id && row.status == status);
    let first = |status| held.iter().filter(|it| stands(it, status)).count();
    let (paid, expired) = (first(Status::Paid), first(Status::Expired));
    ensure!(paid + expired == held.len(), "an order is neither paid nor expired");
    ensure!(told.get("PAID").copied().unwrap_or_default() == paid, "{told:?}, and {paid} are PAID");
    ensure!(paid > 0 && late > 0, "no race: {paid} paid, {late} late");
    let retaken =
        books.orders.iter().filter(|it| it.retake_of.is_some() && it.status == Status::Paid).count();
    ensure!(
        retaken + books.refunds.len() == late,
        "{late} late, {retaken} bought again: {:?}",
        books.refunds
    );
    ensure!(retaken > 0, "nobody bought again");
    scene.shows(&["payments_total late", "orders_total expired"], &[]).await?;
    Ok(format!(
        "{} payments at the deadline: {paid} in time, {late} late, of which {retaken} bought again and {} are given back",
        held.len(),
        books.refunds.len()
    ))
}

/// Everybody pays too late. The keeper dies in the steps of buying again for them, and some of them buy
/// otherwise meanwhile.
pub(crate) async fn retakes(engines: &mut Engines) -> Result<String> {
    const ORDERS: usize = 120;
    let set = Set { units: 120, users: 120, window_s: 3, ..Set::default() };
    let mut scene = Scene::open(engines, set).await?;
    scene.crowd(scene.plan()?).join().await;
    scene.armed("keeper-1", "settler.reserved=kill@10").await?;
    let mut held = Vec::new();
    let expired = until_async(PATIENCE, async || {
        let books = scene.books().await?;
        held = books.orders;
        let over = held.iter().all(|order| order.status == Status::Expired);
        Ok(held.len() == ORDERS && over && books.releases.is_empty())
    });
    ensure!(expired.await?, "{} of {ORDERS} orders expired", held.len());
    let staff = scene.staff("gateway")?;
    for order in &held {
        let id = order.id.to_string();
        let told = staff.mark_paid(&id, &paid(&id)).await?;
        ensure!(told.outcome == "LATE", "order {id}: {}", told.outcome);
    }
    scene.player("keeper-1").until_killed().await?;
    let again = scene.crowd(Plan { users: 40, ..scene.plan()? });
    scene.again("keeper-1", "settler.settled=kill@10").await?;
    scene.player("keeper-1").until_killed().await?;
    scene.again("keeper-1", "").await?;
    let settled = until_async(PATIENCE, async || {
        Ok(scene.books().await?.payments.iter().all(|payment| payment.outcome != "LATE"))
    });
    ensure!(settled.await?, "a late payment was never settled");
    again.join().await;

    let books = scene.finish(Circumstances::default()).await?;
    let retaken =
        books.orders.iter().filter(|it| it.retake_of.is_some() && it.status == Status::Paid).count();
    let back = books.refunds.len();
    ensure!(retaken > 0 && retaken + back == ORDERS, "{retaken} bought again, {back} given back");
    Ok(format!("{ORDERS} payments came late: {retaken} bought again, {back} are given back"))
}

/// A payment of an order that the staff enters.
fn paid(order: &str) -> MarkPaid {
    MarkPaid {
        event_id: format!("event-{order}"),
        payment_id: None,
        amount_minor: 1_990,
        currency: "EUR".to_owned(),
    }
}

/// Pays each order once, until a second behind the last deadline; answers how often each outcome was
/// heard.
async fn pay_around_the_deadline(scene: &Scene<'_>, held: &[Order]) -> Result<BTreeMap<String, usize>> {
    let staff = scene.staff("keeper")?;
    let payments = held.iter().enumerate().map(|(number, order)| {
        let (staff, id) = (staff.another(), order.id.to_string());
        let paid = paid(&id);
        // Until 5 s after the last was recorded: before, around and after every deadline.
        let at = Duration::from_millis(5_000 * number as u64 / held.len() as u64);
        async move {
            lasting(at).await;
            staff.mark_paid(&id, &paid).await
        }
    });
    let mut told = BTreeMap::<String, usize>::new();
    for paid in join_all(payments).await {
        *told.entry(paid?.outcome).or_default() += 1;
    }
    Ok(told)
}

/// Waits for a fault to have happened.
pub(crate) async fn fired(what: &str, fired: impl Future<Output = ()>) -> Result<()> {
    tokio::time::timeout(PATIENCE, fired).await.with_context(|| what.to_owned())
}
