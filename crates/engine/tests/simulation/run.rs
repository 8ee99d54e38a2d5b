//! One seed: a list of operations and faults, checked after every one, healed at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use doorbuster_engine::clock::Clock;
use doorbuster_engine::stock::{BucketId, Stock};
use doorbuster_engine::workers::Step;

use crate::backends::Publishing;
use crate::disk::Sync;
use crate::endpoint;
use crate::fate::Odds;
use crate::pages;
use crate::planted::Planted;
use crate::random::Random;
use crate::world::{LIMIT, Outside, SALE, Seen, World, bad_odds};

/// Operations of one seed.
const OPERATIONS: u64 = 70;
/// Users who come back.
const USERS: u64 = 9;

/// What one seed showed.
pub(crate) struct Outcome {
    pub(crate) trace: Vec<String>,
    pub(crate) violation: Option<String>,
    pub(crate) fired: BTreeMap<String, u64>,
    pub(crate) checks: u64,
}

/// Runs one seed, with a fault planted or a sync left out.
pub(crate) fn run(seed: u64, planted: Option<Planted>, left_out: Option<Sync>) -> Outcome {
    let mut random = Random::new(seed);
    let stock_survives = random.one_in(2);
    let mut outside = Outside::new(&mut random, planted, stock_survives);
    outside.disk.leave_out(left_out);
    let mut outcome = Outcome { trace: Vec::new(), violation: None, fired: BTreeMap::new(), checks: 0 };
    let mut left = OPERATIONS;
    while left > 0 && outcome.violation.is_none() {
        life(&mut outside, &mut random, &mut outcome, &mut left);
    }
    if outcome.violation.is_none() {
        heal(&mut outside, &mut random, &mut outcome);
    }
    for (what, count) in outside.fate.fired() {
        *outcome.fired.entry(what.to_owned()).or_default() += count;
    }
    for (sync, count) in outside.disk.syncs() {
        *outcome.fired.entry(format!("sync {sync:?}")).or_default() += count;
    }
    outcome
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// One process, until it dies or the operations are used up.
fn life(outside: &mut Outside, random: &mut Random, outcome: &mut Outcome, left: &mut u64) {
    let runtime = runtime();
    let end = runtime.block_on(async {
        let fate = outside.fate.clone();
        fate.set_odds(Odds::default());
        let mut world = World::start(outside).await.map_err(|error| format!("it does not start: {error}"))?;
        world.refresh().await;
        if world.raw.ledger.sales().await.unwrap().is_empty() {
            world.create_sale().await;
            settle(&mut world, outside).await?;
        }
        fate.set_odds(bad_odds(random));
        // Sometimes the next death comes right after the start.
        if random.one_in(3) {
            let died = tokio::select! {
                biased;
                () = fate.death() => true,
                _ = world.workers[0].step() => random.one_in(2),
            };
            if died {
                outcome.trace.push("died young".to_owned());
                *left -= 1;
                return Ok(());
            }
        }
        while *left > 0 {
            *left -= 1;
            let died = tokio::select! {
                biased;
                () = fate.death() => None,
                said = operation(&mut world, outside, random) => Some(said),
            };
            match died {
                Some(said) => outcome.trace.push(said?),
                None => {
                    outcome.trace.push("died".to_owned());
                    return Ok(());
                }
            }
            if outside.disk.is_off() {
                outcome.trace.push("the power is off".to_owned());
                return Ok(());
            }
            world.check(outside).await?;
            world.refresh().await;
            outcome.checks += 1;
            if outcome.trace.last().is_some_and(|it| it.starts_with("kill")) {
                return Ok(());
            }
        }
        Ok(())
    });
    // Whatever still runs dies with its process.
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome.violation = end.err();
    outside.fate.revive();
    outside.disk.fill_up(false);
    // Where the disk failed in the middle of a call, it may have been the process alone that died.
    if random.one_in(2) {
        outside.disk.lose_power(random);
    } else {
        outside.disk.survive();
    }
}

async fn operation(world: &mut World, outside: &mut Outside, random: &mut Random) -> Result<String, String> {
    let choice = random.below(114);
    Ok(match choice {
        0..=27 => {
            let wish = wish(outside, random);
            let text = format!("{} buys {} of {} with {}", wish.user, wish.units, wish.item, wish.key);
            format!("{text}: {}", world.buy(outside, wish).await?)
        }
        28..=31 => match random.pick(&outside.clients.accepted).cloned() {
            Some(seen) => {
                format!("{} repeats {}: {}", seen.user, seen.key, world.buy(outside, seen.clone()).await?)
            }
            None => "nobody repeats".to_owned(),
        },
        32..=35 => match random.pick(&outside.clients.accepted).cloned() {
            Some(seen) => {
                format!("{} cancels {}: {}", seen.user, seen.key, world.cancel(outside, &seen).await)
            }
            None => "nobody cancels".to_owned(),
        },
        36..=41 => pay(world, outside, random).await,
        42..=43 => restock(world, outside, random).await,
        44..=45 => rush(world, outside, random).await?,
        46..=47 => {
            outside.disk.power_off_after(random.below(3));
            let wish = wish(outside, random);
            let user = wish.user.clone();
            format!("the power goes while {user} buys: {}", world.buy(outside, wish).await?)
        }
        48..=77 => {
            // The recorders more often than the rest: they are what queue and ledger meet in.
            let of = if random.one_in(4) { 0 } else { random.below(world.workers.len() as u64) };
            let half = world.workers.len() as u64 / 2;
            let index = usize::try_from(if of == 0 { half * random.below(2) } else { of }).unwrap();
            let worker = &mut world.workers[index];
            let said = match worker.step().await {
                Ok(Step::Worked(count) | Step::Done(count)) => format!("did {count}"),
                Ok(Step::Idle) => "idle".to_owned(),
                Err(error) => format!("failed: {:?}", error.fault),
            };
            format!("{} {said}", worker.name())
        }
        78..=85 => {
            let ms = *random.pick(&[50, 160, 210, 1_000, 3_000, 11_000, 61_000]).unwrap();
            outside.clock.advance(Duration::from_millis(ms));
            format!("{ms} ms pass")
        }
        86 => {
            let back = Duration::from_secs(random.below(30));
            let now = outside.clock.now();
            outside.clock.jump(if random.one_in(2) { now.plus(back) } else { now.minus(back) });
            "the clock jumps".to_owned()
        }
        104.. => pages::happen(world, outside, random).await?,
        _ => surroundings(choice, world, outside, random).await,
    })
}

async fn surroundings(choice: u64, world: &World, outside: &mut Outside, random: &mut Random) -> String {
    match choice {
        87..=89 => {
            let modes = [
                Publishing::Lost,
                Publishing::AckLost,
                Publishing::Twice,
                Publishing::Delayed,
                Publishing::Honest,
            ];
            let mode = *random.pick(&modes).unwrap();
            outside.wire.lock().unwrap().publishing = mode;
            format!("publishing is {mode:?}")
        }
        90 => format!("{} delayed messages come", world.deliver_delayed(outside, random).await),
        91 => {
            let full = random.one_in(2);
            outside.disk.fill_up(full);
            format!("the disk is full: {full}")
        }
        92..=95 => {
            outside.disk.power_off_after(random.below(8));
            "the power will go".to_owned()
        }
        96..=98 => "kill".to_owned(),
        99 if outside.stock_survives => {
            outside.snapshot = Some(std::sync::Arc::new(world.stock.inner().copy()));
            "a replica is taken".to_owned()
        }
        100 if outside.stock_survives => {
            let old = outside.snapshot.take();
            let text = if old.is_some() { "the stock goes back to its replica" } else { "the stock is lost" };
            let fresh = doorbuster_engine::stock::EmbeddedStock::new(world.backends.clock.clone());
            *world.stock.inner.lock().unwrap() = old.unwrap_or_else(|| std::sync::Arc::new(fresh));
            outside.clients.stock_was_lost = true;
            text.to_owned()
        }
        101 if random.one_in(2) => {
            let epoch = world.sale().await.epoch;
            let nobody = doorbuster_engine::sale::LoaderToken::NOBODY;
            let begun =
                world.backends.ledger.begin_rebuild(SALE, epoch, "an operator", nobody, Duration::MAX).await;
            format!("an operator rebuilds: {}", begun.is_ok())
        }
        101 => {
            let operations = doorbuster_engine::operate::Operations::new(world.backends.clone());
            let paused = operations.pause(SALE).await.is_ok();
            let opened = operations.open(SALE).await.is_ok();
            format!("paused {paused}, opened {opened}")
        }
        102..=103 if outside.planted == Some(Planted::PreheatIsSet) => {
            world.preheat_by_set().await;
            "preheated again".to_owned()
        }
        102..=103 if outside.planted == Some(Planted::GiveUpByAge) => {
            world.give_up_by_age().await;
            "gave up".to_owned()
        }
        _ => "nothing happens".to_owned(),
    }
}

/// A user's wish; sometimes the same as before.
fn wish(outside: &mut Outside, random: &mut Random) -> Seen {
    let user = format!("user-{}", random.below(USERS));
    let item = i64::try_from(random.below(2) + 1).unwrap();
    let units = i64::try_from(random.below(u64::from(LIMIT)) + 1).unwrap();
    outside.clients.next_user += 1;
    let key = format!("key-{}", outside.clients.next_user - random.below(2));
    Seen {
        order: doorbuster_engine::conformance::sample::order_id(0),
        user,
        item,
        units,
        key,
        at: Duration::ZERO,
    }
}

/// Many at once: more than one segment of the log.
async fn rush(world: &World, outside: &mut Outside, random: &mut Random) -> Result<String, String> {
    let mut said = Vec::new();
    for _ in 0..5 {
        let mut wish = wish(outside, random);
        wish.units = 1;
        said.push(world.buy(outside, wish).await?);
    }
    Ok(format!("a rush: {}", said.join(", ")))
}

async fn pay(world: &World, outside: &mut Outside, random: &mut Random) -> String {
    let Some(seen) = random.pick(&outside.clients.accepted).cloned() else { return "nobody pays".to_owned() };
    // One payment may be told of by several events, and one order paid twice.
    let payment = format!("payment-{}-{}", seen.order, random.below(5) / 4);
    let event = format!("{payment}-event-{}", random.below(3));
    format!("{} pays {}: {}", seen.user, seen.key, world.pay(outside, &seen, &payment, &event).await)
}

async fn restock(world: &World, outside: &mut Outside, random: &mut Random) -> String {
    let again = random.one_in(2);
    let before: Vec<u128> = outside.clients.restocked.keys().copied().collect();
    let (operation, (item, units)) = match random.pick(&before).filter(|_| again) {
        Some(operation) => (*operation, outside.clients.restocked[operation]),
        None => {
            let item = i64::try_from(random.below(2) + 1).unwrap();
            let units = [-2, -1, 1, 2];
            (before.len() as u128 + 1, (item, *random.pick(&units).unwrap()))
        }
    };
    format!(
        "restock {operation}: {units} of {item}: {}",
        world.restock(outside, operation, item, units).await
    )
}

/// Steps every worker until none has anything to do.
async fn settle(world: &mut World, outside: &Outside) -> Result<(), String> {
    for _ in 0..40 {
        let mut idle = true;
        for index in 0..world.workers.len() {
            idle &= matches!(world.workers[index].step().await, Ok(Step::Idle));
            if world.workers[index].name() == "reconcile" {
                world.check_needs_no_repair(outside).await?;
            }
        }
        world.refresh().await;
        if idle {
            return Ok(());
        }
    }
    if std::env::var_os("DOORBUSTER_SIMULATION_TALK").is_some() {
        eprintln!("it does not settle");
    }
    Ok(())
}

/// All faults end; time passes; everything must come to rest, and then sell out.
fn heal(outside: &mut Outside, random: &mut Random, outcome: &mut Outcome) {
    let runtime = runtime();
    let end = runtime.block_on(async {
        outside.fate.set_odds(Odds::default());
        outside.wire.lock().unwrap().publishing = Publishing::Honest;
        let mut world = World::start(outside).await.map_err(|error| format!("it does not start: {error}"))?;
        world.deliver_delayed(outside, random).await;
        // The staff may have died between pausing and opening.
        settle(&mut world, outside).await?;
        doorbuster_engine::operate::Operations::new(world.backends.clone()).open(SALE).await.unwrap();
        pages::tell_all(&world, outside).await?;
        for _ in 0..10 {
            pages::ask(&world, outside).await?;
            settle(&mut world, outside).await?;
            outside.clock.advance(Duration::from_secs(120));
        }
        tell_shop(&mut world, outside).await?;
        world.check(outside).await?;
        world.check_at_rest(outside).await?;
        sell_out(&mut world, outside).await?;
        world.check(outside).await?;
        world.check_at_rest(outside).await
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome.checks += 2;
    outcome.violation = end.err();
}

/// What failed on its way to the shop comes again, some of it after hours.
async fn tell_shop(world: &mut World, outside: &Outside) -> Result<(), String> {
    for _ in 0..100 {
        if endpoint::has_heard_all(world).await {
            return Ok(());
        }
        outside.clock.advance(Duration::from_secs(1_800));
        settle(world, outside).await?;
    }
    Err("after two days something is still on its way to the shop".to_owned())
}

/// I12: with demand above stock, in the end everything is sold.
async fn sell_out(world: &mut World, outside: &mut Outside) -> Result<(), String> {
    let mut said = BTreeMap::<&str, u64>::new();
    for n in 0..16 {
        for item in [1, 2] {
            let order = doorbuster_engine::conformance::sample::order_id(0);
            let user = format!("late-{n}-{item}");
            let wish = Seen { order, user, item, units: 1, key: "k".to_owned(), at: Duration::ZERO };
            *said.entry(world.buy(outside, wish).await?).or_default() += 1;
            outside.clock.advance(Duration::from_millis(201));
        }
    }
    settle(world, outside).await?;
    outside.clock.advance(Duration::from_secs(3));
    settle(world, outside).await?;
    let sale = world.sale().await;
    let bucket = BucketId { sale: SALE, epoch: sale.epoch };
    for item in sale.items {
        if item.sold != item.quantity {
            return Err(format!(
                "I12: {} of {} units of item {} could be sold; late buyers heard {said:?}; {:?}",
                item.sold,
                item.quantity,
                item.id,
                world.stock.inner().level(bucket).await
            ));
        }
    }
    Ok(())
}
