//! Long runs: the same test programs as in the merge check, with larger numbers.

use std::path::Path;

use anyhow::Result;

use crate::areas::TEST;
use crate::run::{cargo, shown};

/// Runs the simulation and the kill loop with these numbers, and says whether both passed.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path, first_seed: u64, seeds: u64, kill_rounds: u64) -> Result<bool> {
    let mut simulation = test(root, "simulation", &["no_seed_violates_an_invariant"]);
    simulation.env("DOORBUSTER_SIMULATION_FIRST", first_seed.to_string());
    simulation.env("DOORBUSTER_SIMULATION_SEEDS", seeds.to_string());
    let mut kill = test(root, "kill", &[]);
    kill.env("DOORBUSTER_KILL_ROUNDS", kill_rounds.to_string());

    println!("seeds {first_seed} to {}, {kill_rounds} kills", first_seed.saturating_add(seeds) - 1);
    let simulated = seeds == 0 || shown(&mut simulation)?;
    let killed = kill_rounds == 0 || shown(&mut kill)?;
    Ok(simulated && killed)
}

fn test(root: &Path, name: &str, chosen: &[&str]) -> std::process::Command {
    let mut command = cargo(root, &TEST);
    command.args(["--test", name, "--"]).args(chosen).arg("--nocapture");
    command
}
