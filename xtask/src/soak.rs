//! Long runs: the same test programs as in the merge check, with larger numbers, and the fuzzer.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::areas::TEST;
use crate::failures;
use crate::requirements::{self, Absence, Requirement, Source};
use crate::run::{cargo, shown};

/// How long to run what.
pub(crate) struct Lengths {
    pub(crate) first_seed: u64,
    pub(crate) seeds: u64,
    /// States of the protocol's model to look at, at the least.
    pub(crate) model_states: u64,
    pub(crate) kill_rounds: u64,
    /// How often each line of the failure matrix is run; the long ones take five minutes each.
    pub(crate) failure_rounds: u64,
    /// How often each part is killed in the matrix' last line; the broker a fifth of it.
    pub(crate) part_kills: u64,
    /// For each target.
    pub(crate) fuzz_seconds: u64,
}

/// Builds libFuzzer.
const COMPILER: Requirement = Requirement {
    program: "c++",
    why: "builds the fuzzer",
    source: Source::Debian("g++"),
    absence: Absence::Fatal,
};

/// What makes the compiler count branches and comparisons for libFuzzer. These are the flags of
/// cargo-fuzz without a sanitizer: with one, it would need a nightly compiler, and the engine has no
/// unsafe code that one could watch.
const COUNTED: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Runs the simulation, the model, the kill loop, the failure matrix and the fuzzer for so long, and says whether all passed.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path, lengths: &Lengths) -> Result<bool> {
    let Lengths { first_seed, seeds, model_states, kill_rounds, failure_rounds, part_kills, fuzz_seconds } =
        *lengths;
    let mut simulation = test(root, "simulation", &["no_seed_violates_an_invariant"]);
    simulation.env("DOORBUSTER_SIMULATION_FIRST", first_seed.to_string());
    simulation.env("DOORBUSTER_SIMULATION_SEEDS", seeds.to_string());
    let mut model = test(root, "scopes", &["every_scope_holds_and_together_they_have_a_million_states"]);
    model.env("DOORBUSTER_MODEL_STATES", model_states.to_string());
    let mut kill = test(root, "kill", &[]);
    kill.env("DOORBUSTER_KILL_ROUNDS", kill_rounds.to_string());

    println!(
        "seeds {first_seed} to {}, {model_states} states of the model, {kill_rounds} kills, {failure_rounds} rounds of failures, {part_kills} kills of each part, {fuzz_seconds} s of fuzzing each target",
        first_seed.saturating_add(seeds).saturating_sub(1)
    );
    let simulated = seeds == 0 || shown(&mut simulation)?;
    let modelled = model_states == 0 || shown(&mut model)?;
    let killed = kill_rounds == 0 || shown(&mut kill)?;
    let failed =
        failure_rounds == 0 || failures::run(root, &failures::long(failure_rounds), &mut Vec::new())?;
    let parts = part_kills == 0 || failures::kill_parts(root, part_kills)?;
    let fuzzed = fuzz_seconds == 0 || fuzz(root, fuzz_seconds)?;
    Ok(simulated && modelled && killed && failed && parts && fuzzed)
}

fn test(root: &Path, name: &str, chosen: &[&str]) -> Command {
    let mut command = cargo(root, &TEST);
    command.args(["--test", name, "--"]).args(chosen).arg("--nocapture");
    command
}

/// Hands every target to libFuzzer. What it finds is kept where the tests look: an input that fails
/// is a regression test from then on.
fn fuzz(root: &Path, seconds: u64) -> Result<bool> {
    if !requirements::ensure(&[&COMPILER], false)? {
        return Ok(false);
    }
    let host = host()?;
    let words = "build --release --locked --package doorbuster-fuzz --features libfuzzer --bin fuzz --target-dir target/fuzz --target";
    let words: Vec<&str> = words.split(' ').chain([host.as_str()]).collect();
    let mut build = cargo(root, &words);
    build.env("RUSTFLAGS", COUNTED).env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
    if !shown(&mut build)? {
        return Ok(false);
    }
    let mut passed = true;
    for target in targets(root)? {
        passed &= shown(&mut fuzzer(root, &host, &target, seconds)?)?;
    }
    if !passed {
        println!("an input failed: it is kept in fuzz/regressions; commit it with what mends it");
    }
    Ok(passed)
}

fn fuzzer(root: &Path, host: &str, target: &str, seconds: u64) -> Result<Command> {
    let found = root.join("target/fuzz/corpus").join(target);
    let kept = root.join("fuzz/regressions").join(target);
    for folder in [&found, &kept] {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut command = Command::new(root.join("target/fuzz").join(host).join("release/fuzz"));
    command.env("DOORBUSTER_FUZZ_TARGET", target).current_dir(root);
    command.arg(format!("-max_total_time={seconds}"));
    // One input takes far less than a millisecond to a few; more is a hang.
    command.args(["-timeout=10", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=1"]);
    command.arg(format!("-artifact_prefix={}/", kept.display()));
    command.arg(found).arg(root.join("fuzz/corpus").join(target)).arg(kept);
    Ok(command)
}

/// The targets: each has a folder of seeds.
fn targets(root: &Path) -> Result<Vec<String>> {
    let folder = root.join("fuzz/corpus");
    let mut names = Vec::new();
    for entry in folder.read_dir().with_context(|| folder.display().to_string())? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// The compiler's own platform. It is named to cargo, so that build scripts go without [`COUNTED`].
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("starting rustc")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    match text.lines().find_map(|line| line.strip_prefix("host: ")) {
        Some(host) => Ok(host.to_owned()),
        None => bail!("rustc does not name its host"),
    }
}
