//! Row 10: ten thousand unpaid orders go back on sale from PostgreSQL, while others reserve.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;
use doorbuster_services::{postgres, redis_server};
use serde_json::Value;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::process::{GENERATOR_CORE, SERVER_CORE, on_core, pinned};
use crate::services::{Lent, POSTGRES, REDIS};

/// Orders that expire at the same moment.
const ORDERS: &str = "10000";

/// What the same reserves took in microseconds, meanwhile and alone, in each round.
type Reserves = Vec<(f64, Option<f64>)>;

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let expire = build(bench)?;
    let mut lent = Lent::new(bench.root(), false);
    ensure!(lent.ensure(&[&POSTGRES, &REDIS])?, "there is no PostgreSQL or no Redis");
    let address = |name: &str| {
        let found = lent.variables().find(|(variable, _)| variable.contains(name));
        found.map(|(_, url)| url).with_context(|| format!("{name} has no address"))
    };
    let (postgres, redis) = (address("POSTGRES")?, address("REDIS")?);
    let (mut seconds, mut together, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!("row 10, round {}: {ORDERS} orders expire and return", round + 1));
        let report = measured(Command::new(&expire).args([&postgres, &redis, ORDERS]))?;
        seconds.push((figure(&report, "seconds")?, None));
        returned.push((figure(&report, "returnSeconds")?, None));
        together.push(reserves(&report)?);
    }
    let apart = apart(bench, &expire)?;
    Ok(vec![
        Figure {
            row: "10",
            what: "from the deadline of 10,000 unpaid orders until the last unit is free again",
            unit: "s",
            against: "",
            goal: Goal::AtMost(2.0),
            rounds: seconds,
            books: Books::Unasked,
            notes: vec!["one expirer and one releaser, PostgreSQL and Redis on the same cores".to_owned()],
        },
        Figure {
            row: "10",
            what: "from a cancellation until its unit can be bought, longest of 200",
            unit: "s",
            against: "",
            goal: Goal::AtMost(1.5),
            rounds: returned,
            books: Books::Unasked,
            notes: vec!["20 at a time; 0.8 s of it are `sale.release_spread`".to_owned()],
        },
        latency("p99 of a reserve meanwhile, Redis and buyers on a core of their own", apart),
        latency("p99 of a reserve meanwhile, nothing pinned", together),
    ])
}

/// Reserves beside workers and a ledger that have another core, as they have other machines in a shop.
fn apart(bench: &Bench, expire: &Path) -> Result<Reserves> {
    let postgres = on_core(SERVER_CORE, postgres::start)?;
    let redis = on_core(GENERATOR_CORE, redis_server::start)?;
    let mut rounds = Vec::new();
    for round in 0..bench.rounds() {
        bench.say(format!("row 10, round {}: the same on cores of their own", round + 1));
        let mut command = pinned(SERVER_CORE, expire);
        rounds.push(reserves(&measured(command.args([&postgres.url, &redis.url, ORDERS, GENERATOR_CORE]))?)?);
    }
    Ok(rounds)
}

fn latency(what: &'static str, rounds: Reserves) -> Figure {
    Figure {
        row: "10",
        what,
        unit: "µs",
        against: "the same reserves alone",
        goal: Goal::AtMostTimes(1.5),
        rounds,
        books: Books::Unasked,
        notes: vec!["one reserve at a time, every half millisecond".to_owned()],
    }
}

fn build(bench: &Bench) -> Result<PathBuf> {
    bench.build(&["-p", "doorbuster-engine", "--features", "distributed", "--example", "expire"])?;
    Ok(bench.root().join("target/release/examples/expire"))
}

fn measured(command: &mut Command) -> Result<Value> {
    let printed = output_of(command)?;
    serde_json::from_str(&printed).with_context(|| format!("expire printed {printed}"))
}

fn reserves(report: &Value) -> Result<(f64, Option<f64>)> {
    Ok((figure(report, "meanwhileP99Us")?, Some(figure(report, "aloneP99Us")?)))
}

fn figure(report: &Value, name: &str) -> Result<f64> {
    report[name].as_f64().with_context(|| format!("expire has no {name}"))
}
