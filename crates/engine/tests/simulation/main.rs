//! The simulation: seeded lists of operations and faults over the real engine, the real recorder,
//! ledger and log, on a disk that forgets what was not made durable.
//!
//! `DOORBUSTER_SIMULATION_SEEDS` says how many seeds are run (1,200 unless said otherwise),
//! `DOORBUSTER_SIMULATION_FIRST` which is the first. A seed that fails prints its operations;
//! keep it in `reproductions.rs`.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod backends;
mod disk;
mod endpoint;
mod fate;
mod pages;
mod planted;
mod random;
mod reproductions;
mod run;
mod world;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::Sync;
use planted::Planted;
use run::{Outcome, run};

/// With `DOORBUSTER_SIMULATION_TALK` set, the system's own log lines are printed.
fn talk() {
    if std::env::var_os("DOORBUSTER_SIMULATION_TALK").is_some() {
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
            .try_init();
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

/// The seeds of this run.
fn seeds() -> std::ops::Range<u64> {
    let first = number("DOORBUSTER_SIMULATION_FIRST", 1);
    first..first + number("DOORBUSTER_SIMULATION_SEEDS", 1_200)
}

/// Seeds that run at once. Each waits for its own ledger's threads half of its time: two of them left 40 %
/// of two processors idle, and more than four gain nothing there.
const THREADS: usize = 4;

/// Runs `work` for each seed on [`THREADS`] threads, until it answers false.
fn for_each_seed(seeds: std::ops::Range<u64>, work: impl Fn(u64) -> bool + std::marker::Sync) {
    let next = AtomicU64::new(seeds.start);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::SeqCst);
                    if seed >= seeds.end || !work(seed) {
                        next.store(u64::MAX / 2, Ordering::SeqCst);
                        return;
                    }
                }
            });
        }
    });
}

fn told(seed: u64, outcome: &Outcome) -> String {
    let violation = outcome.violation.as_deref().unwrap_or("nothing");
    format!("seed {seed}: {violation}\n  {}", outcome.trace.join("\n  "))
}

/// No seed violates an invariant, and each does the same when it is run again.
#[test]
fn no_seed_violates_an_invariant() {
    talk();
    let (fired, checks) = (Mutex::new(BTreeMap::<String, u64>::new()), AtomicU64::new(0));
    let failed = Mutex::new(None);
    for_each_seed(seeds(), |seed| {
        let outcome = run(seed, None, None);
        checks.fetch_add(outcome.checks, Ordering::SeqCst);
        for (what, count) in &outcome.fired {
            *fired.lock().unwrap().entry(what.clone()).or_default() += count;
        }
        if outcome.violation.is_some() {
            *failed.lock().unwrap() = Some(told(seed, &outcome));
            return false;
        }
        let again = run(seed, None, None);
        if again.trace != outcome.trace {
            let same = outcome.trace.iter().zip(&again.trace).take_while(|(one, other)| one == other).count();
            let text = format!(
                "seed {seed} is not the same twice from operation {same} on\n{}\n{}",
                told(seed, &outcome),
                told(seed, &again)
            );
            *failed.lock().unwrap() = Some(text);
            return false;
        }
        true
    });
    let counts: Vec<String> =
        fired.into_inner().unwrap().into_iter().map(|(what, count)| format!("{what} {count}")).collect();
    eprintln!(
        "seeds {:?}, every invariant checked {} times; {}",
        seeds(),
        checks.into_inner(),
        counts.join(", ")
    );
    if let Some(text) = failed.into_inner().unwrap() {
        panic!("{text}");
    }
}

/// How many seeds it takes to find a fault; `None` when no seed finds it.
fn found_after(planted: Option<Planted>, left_out: Option<Sync>) -> Option<(u64, String)> {
    let found = Mutex::new(None);
    for_each_seed(seeds(), |seed| match run(seed, planted, left_out).violation {
        Some(violation) => {
            found.lock().unwrap().get_or_insert((seed, violation));
            false
        }
        None => true,
    });
    found.into_inner().unwrap()
}

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for planted in Planted::ALL {
        match found_after(Some(planted), None) {
            Some((seed, violation)) => eprintln!("{planted:?}: found by seed {seed}: {violation}"),
            None => missed.push(planted),
        }
    }
    assert_eq!(missed, [], "planted faults that no seed finds");
}

#[test]
fn every_left_out_sync_is_found() {
    let mut missed = Vec::new();
    for sync in Sync::ALL {
        match found_after(None, Some(sync)) {
            Some((seed, violation)) => eprintln!("{sync:?}: found by seed {seed}: {violation}"),
            None => missed.push(sync),
        }
    }
    assert_eq!(missed, [], "syncs that no seed misses");
}
