//! The failure matrix on real servers: each line hurts a sale that real buyers buy from, lets it heal, and
//! holds what the buyers heard against PostgreSQL and Redis, read from outside.
//!
//! A program rather than a list of test functions: the lines share servers that are killed and started
//! again, so they run one after the other, and their servers end with the program. `scene.rs` is a sale;
//! `own.rs`, `servers.rs` and `surroundings.rs` tell the lines; `LINES` below lists them.
//!
//! `DOORBUSTER_FAILURES_ROUNDS` repeats each line, `DOORBUSTER_FAILURES_KILLS` says how often each part is
//! killed in the last one. What is named on the command line chooses lines. A line
//! that fails leaves logs and history in the folder that it names.
//!
//! Every choice of a line comes from its seed, which is printed with it; `DOORBUSTER_FAILURES_SEED` gives it, and
//! a round is one seed further. What comes when is up to the machine all the same. Each run of a line
//! is noted in `target/failures/runs.jsonl`.
#![expect(clippy::print_stdout, reason = "the lines and their results are what it is run for")]

mod clocks;
mod disks;
mod engines;
mod http;
mod kills;
mod long;
mod operator;
mod own;
mod player;
mod runs;
mod scene;
mod servers;
mod signs;
mod surroundings;
mod waiting;

use std::panic::AssertUnwindSafe;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use engines::Engines;

/// Longest that one line may take; the last one, as many times as it kills.
const LINE_MAX: Duration = Duration::from_secs(240);

type Story = for<'e> fn(&'e mut Engines) -> LocalBoxFuture<'e, Result<String>>;

/// One line of the matrix: its id, what happens, the story.
struct Line(&'static str, &'static str, Story);

macro_rules! line {
    ($id:literal, $what:literal, $story:path) => {
        Line($id, $what, |engines| Box::pin($story(engines)))
    };
}

const LINES: &[Line] = &[
    line!("F1", "a gateway dies before it reserves", own::f1),
    line!("F2", "replies of scripts are lost, scripts run twice", own::f2),
    line!("F3", "a gateway dies after it reserved", own::f3),
    line!("F4", "the broker is away for longer than a message may take", own::f4),
    line!("F5", "a gateway dies after the acknowledgement", own::f5),
    line!("F7", "a recorder dies before commit, after commit, after confirm", own::f7),
    line!("F8", "the reply of COMMIT is lost", own::f8),
    line!("F9", "a recorder wakes up with a batch that another recorded", own::f9),
    line!("F10", "the topic is replayed from its begin", own::f10),
    line!("F11", "unreadable records among the orders", own::f11),
    line!("F12", "a keeper dies between expiry and release", own::f12),
    line!("F13", "a keeper dies between release and row, the users buy again", own::f13),
    line!("F14", "payments race with the deadline", own::f14),
    line!("retakes", "the keeper dies while late payments buy again", own::retakes),
    line!("F15", "Redis is killed, with and without its file", servers::f15),
    line!("F16", "a stale replica takes over; F17: the old master returns", servers::f16),
    line!("F18", "FLUSHALL, keys deleted, keys written over", servers::f18),
    line!("F19", "two preheats at once, a stalled loader", servers::f19),
    line!("F20", "SCRIPT FLUSH every 10 ms", servers::f20),
    line!("F22", "a slow Redis", servers::f22),
    line!("F23", "killed backends, held rows, crossed locks", servers::f23),
    line!("F24", "PostgreSQL dies, then a stale standby takes over", servers::f24),
    line!("F25", "no memory, and full disks of all three servers", disks::f25),
    line!("F26", "wrong clocks of gateways, keeper and recorders, two of which jump", clocks::f26),
    line!("F27", "SIGTERM in the storm, once and twice", surroundings::f27),
    line!("F28", "pause and open in the storm", surroundings::f28),
    line!("F29", "restocks in the storm, the keeper dies in each", surroundings::f29),
    line!("F30", "one-way links, in turn", surroundings::f30),
    line!("F31", "clogged links, in turn", surroundings::f31),
    line!("F32", "everybody retries", surroundings::f32),
    line!("F33", "three faults in ten seconds", surroundings::f33),
    line!("recorders", "both recorders stand still for long", long::recorders),
    line!("postgres", "PostgreSQL is away for long", long::postgres),
    line!("kafka", "Kafka is away for long", long::kafka),
    line!("kills", "every part is killed, one after the other", kills::run),
];

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let rounds = number("DOORBUSTER_FAILURES_ROUNDS").unwrap_or(1);
    let seed = number("DOORBUSTER_FAILURES_SEED").unwrap_or_else(rand::random);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let told = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let work = tokio::task::LocalSet::new();
        runtime.block_on(work.run_until(async {
            // Its servers end with it, also when somebody has enough of it.
            tokio::select! {
                told = run(&chosen, rounds, seed) => told,
                _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
            }
        }))
    });
    match told {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("failures: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the chosen lines, prints each with its result, and says whether all held.
async fn run(chosen: &[String], rounds: u32, first_seed: u32) -> Result<bool> {
    let wanted = |line: &&Line| chosen.is_empty() || chosen.iter().any(|id| id.eq_ignore_ascii_case(line.0));
    let lines: Vec<&Line> = LINES.iter().filter(wanted).collect();
    anyhow::ensure!(!lines.is_empty(), "there is no such line: {}", chosen.join(", "));
    let mut engines = Engines::start()?;
    let mut failed = Vec::new();
    for round in 0..rounds {
        for Line(id, what, story) in &lines {
            let (begun, seed) = (now(), u64::from(first_seed) + u64::from(round));
            engines.begin(seed);
            let told = AssertUnwindSafe(story(&mut engines)).catch_unwind();
            // The line of kills alone lasts as long as it has kills.
            let longest = if *id == "kills" { LINE_MAX * kills::rounds().max(1) } else { LINE_MAX };
            let longest = longest + 3 * long::duration();
            let result = match tokio::time::timeout(longest, told).await {
                Ok(Ok(Ok(told))) => format!("ok: {told}"),
                Ok(Ok(Err(error))) => format!("FAILED: {error:#}"),
                Ok(Err(_)) => "FAILED: a panic, see above".to_owned(),
                Err(_) => format!("FAILED: it does not end within {} s", longest.as_secs()),
            };
            let took = begun.elapsed();
            let told = format!("{id:<10}{what:<64}{:>4} s  seed {seed:<11}{result}", took.as_secs());
            println!("{told}");
            runs::note(id, &engines, took, &result)?;
            if !result.starts_with("ok") {
                failed.push(told);
            }
        }
    }
    // Once more at the end, where one looks first.
    for told in &failed {
        println!("failures: {told}");
    }
    Ok(failed.is_empty())
}

#[expect(clippy::disallowed_methods, reason = "how long a line takes is a matter of real time")]
fn now() -> Instant {
    Instant::now()
}
