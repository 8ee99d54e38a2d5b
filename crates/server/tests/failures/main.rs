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
#![expect(clippy::print_stdout, reason = "the lines and their results are what it is run for")]

mod engines;
mod http;
mod kills;
mod own;
mod player;
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
    line!("F15", "Redis is killed, with and without its file", servers::f15),
    line!("F16", "a stale replica takes over; F17: the old master returns", servers::f16),
    line!("F18", "FLUSHALL, keys deleted, keys written over", servers::f18),
    line!("F19", "two preheats at once, a stalled loader", servers::f19),
    line!("F20", "SCRIPT FLUSH every 10 ms", servers::f20),
    line!("F22", "a slow Redis", servers::f22),
    line!("F23", "killed backends, held rows, crossed locks", servers::f23),
    line!("F24", "PostgreSQL dies, then a stale standby takes over", servers::f24),
    line!("F25", "Redis has no memory left", servers::f25),
    line!("F27", "SIGTERM in the storm, once and twice", surroundings::f27),
    line!("F28", "pause and open in the storm", surroundings::f28),
    line!("F29", "restocks in the storm, the keeper dies in each", surroundings::f29),
    line!("F30", "one-way links, in turn", surroundings::f30),
    line!("F31", "clogged links, in turn", surroundings::f31),
    line!("F32", "everybody retries", surroundings::f32),
    line!("F33", "three faults in ten seconds", surroundings::f33),
    line!("kills", "every part is killed, one after the other", kills::run),
];

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let rounds = std::env::var("DOORBUSTER_FAILURES_ROUNDS").ok().and_then(|text| text.parse().ok());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let told = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let work = tokio::task::LocalSet::new();
        runtime.block_on(work.run_until(run(&chosen, rounds.unwrap_or(1))))
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
#[expect(clippy::print_stdout, reason = "the list is what this program is for")]
async fn run(chosen: &[String], rounds: u32) -> Result<bool> {
    let wanted = |line: &&Line| chosen.is_empty() || chosen.iter().any(|id| id.eq_ignore_ascii_case(line.0));
    let lines: Vec<&Line> = LINES.iter().filter(wanted).collect();
    anyhow::ensure!(!lines.is_empty(), "there is no such line: {}", chosen.join(", "));
    let mut engines = Engines::start()?;
    let mut all = true;
    for _ in 0..rounds {
        for Line(id, what, story) in &lines {
            let begun = now();
            let told = AssertUnwindSafe(story(&mut engines)).catch_unwind();
            let result = match tokio::time::timeout(LINE_MAX * kills::rounds(), told).await {
                Ok(Ok(Ok(told))) => format!("ok: {told}"),
                Ok(Ok(Err(error))) => format!("FAILED: {error:#}"),
                Ok(Err(_)) => "FAILED: a panic, see above".to_owned(),
                Err(_) => format!("FAILED: it does not end within {} s", LINE_MAX.as_secs()),
            };
            println!("{id:<6}{what:<64}{:>4} s  {result}", begun.elapsed().as_secs());
            all &= result.starts_with("ok");
        }
    }
    Ok(all)
}

#[expect(clippy::disallowed_methods, reason = "how long a line takes is a matter of real time")]
fn now() -> Instant {
    Instant::now()
}
