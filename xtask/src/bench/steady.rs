//! Row 5: how long a 202 takes at a steady load, beside one Redis round trip and one acknowledged Kafka
//! record, measured alone.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;
use serde_json::Value;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use crate::services::{self, Lent};
use crate::stage::{Cast, Stage};

/// Share of what the stage can do at most.
const LOAD: f64 = 0.6;
/// Units of the storm that shows what it can do.
const STORM: u64 = 20_000;
/// Seconds of steady load.
const SECONDS: u64 = 10;

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    bench.build(&["-p", "doorbuster-server", "--features", "distributed"])?;
    let mut lent = Lent::new(bench.root(), false);
    ensure!(lent.ensure(services::ALL)?, "a server is missing");
    let addresses: Vec<_> = lent.variables().collect();
    let cast = Cast { gateways: 1, recorders: 1, keepers: 1 };
    let stage = Stage::start(&bench.doorbuster(), cast, addresses)?;
    let (mut times, mut absolute, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!("row 5, round {}: what it can do, then {LOAD} of it", round + 1));
        let redis = redis_p99(&stage)?;
        let kafka = kafka_p99(bench, &stage)?;
        let storm = rehearse(&stage, STORM, STORM + STORM / 10, "500ms")?;
        let seconds = storm["sellOutSeconds"].as_f64().context("the storm did not sell out")?;
        let able = STORM as f64 / seconds;
        let users = per_second(able * LOAD) * SECONDS;
        let steady = rehearse(&stage, users, users, &format!("{SECONDS}s"))?;
        let accepted = steady["answers"]["202"].as_u64().unwrap_or(0);
        ensure!(accepted == users, "{accepted} of {users} orders were accepted: {}", steady["answers"]);
        let p99 = steady["latencyMs"]["202"]["p99"].as_f64().context("there is no p99")?;
        times.push((p99, Some(redis + kafka)));
        absolute.push((p99, None));
        notes.push(format!(
            "round {}: {able:.0} orders/s at most, steady at {:.0}/s; Redis alone {redis:.2} ms, Kafka alone {kafka:.2} ms",
            round + 1,
            able * LOAD
        ));
    }
    stage.end()?;
    let figure = |goal, against, rounds, notes| Figure {
        row: "5",
        what: "p99 of a 202 at 60 % load, open loop, from the intended click",
        unit: "ms",
        against,
        goal,
        rounds,
        books: Books::Balanced,
        notes,
    };
    Ok(vec![
        figure(
            Goal::AtMostTimes(3.0),
            "p99 of a Redis round trip + p99 of an acknowledged Kafka record",
            times,
            notes,
        ),
        figure(Goal::AtMost(100.0), "the article's figure", absolute, Vec::new()),
    ])
}

/// A rate as a whole number.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a rate is small and positive")]
fn per_second(rate: f64) -> u64 {
    rate as u64
}

/// A rehearsal of a new sale; its report, whose books must balance.
fn rehearse(stage: &Stage, units: u64, users: u64, window: &str) -> Result<Value> {
    let sale = stage.sale(units)?;
    let words = ["--users", &users.to_string(), "--window", window, "--retries", "0", "--output", "json"];
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    let printed = output_of(&mut stage.rehearsal(&sale, &words))?;
    serde_json::from_str(&printed).with_context(|| format!("the rehearsal printed {printed}"))
}

fn redis_p99(stage: &Stage) -> Result<f64> {
    let (host, port) =
        stage.redis.trim_start_matches("redis://").rsplit_once(':').context("a Redis has a port")?;
    let mut command = Command::new("redis-benchmark");
    command.args(["-h", host, "-p", port, "-c", "1", "-n", "20000", "--csv", "-t", "set"]);
    let printed = output_of(&mut command)?;
    // "test","rps","avg","min","p50","p95","p99","max", and the values in the next line.
    let line = printed.lines().last().unwrap_or_default();
    let p99 = line.split(',').nth(6).map(|value| value.trim_matches('"'));
    p99.and_then(|p99| p99.parse().ok()).with_context(|| format!("redis-benchmark printed {printed}"))
}

/// By Kafka's own load generator, one record at a time: few enough that none waits for another.
fn kafka_p99(bench: &Bench, stage: &Stage) -> Result<f64> {
    let topic = format!("{}_yardstick", stage.name);
    let kafka = |class: &str| {
        let mut command = Command::new("java");
        let libraries = bench.root().join("target/services/kafka/libraries/*");
        command.args(["-Xmx128m", "-cp"]).arg(libraries).arg(class);
        command
    };
    let mut create = kafka("org.apache.kafka.tools.TopicCommand");
    create.args(["--bootstrap-server", &stage.kafka, "--create", "--if-not-exists", "--topic", &topic]);
    create.args(["--partitions", "1", "--replication-factor", "1"]);
    output_of(&mut create)?;
    let mut produce = kafka("org.apache.kafka.tools.ProducerPerformance");
    produce.args(["--topic", &topic, "--num-records", "5000", "--record-size", "400", "--throughput", "500"]);
    produce.args([
        "--producer-props",
        &format!("bootstrap.servers={}", stage.kafka),
        "acks=all",
        "linger.ms=0",
    ]);
    let printed = output_of(&mut produce)?;
    // "…, 2 ms 50th, 5 ms 95th, 9 ms 99th, 20 ms 99.9th."
    let p99 = printed
        .lines()
        .last()
        .and_then(|line| line.split(", ").find_map(|part| part.strip_suffix(" ms 99th")));
    p99.and_then(|p99| p99.parse().ok()).with_context(|| format!("the load generator printed {printed}"))
}
