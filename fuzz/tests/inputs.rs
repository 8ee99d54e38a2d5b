//! Every kept input, and kept inputs changed at random for a bounded while. `DOORBUSTER_FUZZ_CASES`
//! says how many of the latter each target gets.

use std::path::PathBuf;

use doorbuster_fuzz::{TARGETS, target};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

/// Changed inputs of each target on a merge.
const CASES: u32 = 400;
/// Most changes to one input.
const CHANGES: usize = 6;

/// The kept inputs of a target: seeds, and what once failed.
fn kept(name: &str) -> Vec<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = ["corpus", "regressions"]
        .iter()
        .filter_map(|kind| root.join(kind).join(name).read_dir().ok())
        .flatten()
        .map(|entry| entry.expect("the folder can be listed").path())
        .collect();
    paths.sort();
    paths.into_iter().map(|path| std::fs::read(path).expect("an input can be read")).collect()
}

/// One change of an input: what, where, how far, with which bytes.
type Change = (u8, prop::sample::Index, usize, Vec<u8>);

fn changed(mut input: Vec<u8>, changes: &[Change], other: &[u8]) -> Vec<u8> {
    for (what, at, length, bytes) in changes {
        let at = at.index(input.len() + 1);
        let end = (at + length).min(input.len());
        match what % 6 {
            0 => input.truncate(at),
            1 => drop(input.splice(at..at, bytes.iter().copied())),
            2 => drop(input.splice(at..end, bytes.iter().copied())),
            3 => drop(input.drain(at..end)),
            4 => drop(input.splice(at..at, input[at..end].to_vec())),
            _ => drop(input.splice(at..at, other.iter().copied().skip(*length).take(64))),
        }
    }
    input
}

fn cases() -> u32 {
    std::env::var("DOORBUSTER_FUZZ_CASES").ok().and_then(|it| it.parse().ok()).unwrap_or(CASES)
}

fn keeps_its_promises(name: &str) {
    let target = target(name).expect("the target exists");
    let kept = kept(name);
    assert!(!kept.is_empty(), "{name} has no seeds in corpus/{name}");
    for input in &kept {
        target(input);
    }

    let change =
        (any::<u8>(), any::<prop::sample::Index>(), 0..48_usize, prop::collection::vec(any::<u8>(), 0..8));
    let input = prop::sample::select(kept.clone());
    let changes = prop::collection::vec(change, 1..CHANGES);
    let strategy = (input, changes, prop::sample::select(kept))
        .prop_map(|(input, changes, other)| changed(input, &changes, &other));
    let config = Config { cases: cases(), failure_persistence: None, ..Config::default() };
    let ran = TestRunner::new(config).run(&strategy, |input| {
        target(&input);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{name}: keep this input in regressions/{name}: {error}"));
}

#[test]
fn heads_are_answered_as_documented() {
    keeps_its_promises("head");
}

#[test]
fn only_good_tokens_verify() {
    keeps_its_promises("token");
}

#[test]
fn nothing_in_a_key_set_lets_anybody_in() {
    keeps_its_promises("keys");
}

#[test]
fn what_was_sealed_counts_and_nothing_else() {
    keeps_its_promises("sealed");
}

#[test]
fn no_client_says_where_it_comes_from() {
    keeps_its_promises("address");
}

#[test]
fn bodies_read_as_they_were_written() {
    keeps_its_promises("body");
}

#[test]
fn recovery_invents_nothing_and_loses_nothing_silently() {
    keeps_its_promises("frames");
}

#[test]
fn errors_of_the_configuration_name_their_key() {
    keeps_its_promises("config");
}

#[test]
fn every_target_has_a_test_above() {
    let tested = ["head", "token", "keys", "sealed", "address", "body", "frames", "config"];
    assert_eq!(TARGETS.map(|(name, _)| name), tested);
}
