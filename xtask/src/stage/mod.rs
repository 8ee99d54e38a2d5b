//! `cargo xtask stage`: a whole sale on real servers, in roles, with everything started and ended.
//!
//! `roles.rs` starts the processes of ours; `chaos.rs` kills them and the servers of others; `witness.rs` reads PostgreSQL and Redis from outside, by
//! their own clients, and counts what our programs say they did.

mod chaos;
mod roles;
mod witness;

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use doorbuster_services::command::{line_of, output_of};
use serde_json::Value;

use crate::areas::TEST;
use crate::bench::process::{now, pause};
use crate::run::{cargo, reported};
use crate::services::{self, Lent};
use chaos::Servers;
pub(crate) use roles::{Cast, Stage};
use witness::Books;

/// Longest wait for what killed processes left.
const SETTLE: Duration = Duration::from_secs(60);

/// What a stage is asked for.
pub(crate) struct Plan {
    /// How many processes of each role.
    pub(crate) cast: Cast,
    /// Whether one process of every role, Redis and the broker are killed in the middle, and started again.
    pub(crate) chaos: bool,
    /// Whether missing programs are installed.
    pub(crate) install: bool,
    /// The cargo profile of our program: `release`, or `dev` to use the tests' build.
    pub(crate) profile: String,
    /// Arguments for `doorbuster rehearse`; `--units N` (10,000) is the sale's.
    pub(crate) rehearse: Vec<String>,
}

/// Starts services and roles, runs the rehearsal against every gateway, and ends everything. Says
/// whether the rehearsal's verdict and the outside witness are clean.
///
/// # Errors
/// Something does not start.
pub(crate) fn run(root: &Path, plan: &Plan) -> Result<bool> {
    let (units, rehearse) = take_units(&plan.rehearse)?;
    let program = build(root, &plan.profile)?;
    let mut lent = Lent::new(root, plan.install);
    // Servers that others may use too are not killed.
    let mut servers = if plan.chaos { Servers::start(root, plan.install)? } else { None };
    if (plan.chaos && servers.is_none()) || (!plan.chaos && !lent.ensure(services::ALL)?) {
        return Ok(false);
    }
    let addresses = servers.as_ref().map_or_else(|| lent.variables().collect(), Servers::addresses);
    let mut stage = Stage::start(&program, plan.cast, addresses)?;
    let sale = stage.sale(units)?;
    eprintln!("stage: sale {sale} with {units} units is open; rehearsing");
    let mut command = stage.rehearsal(&sale, &rehearse);
    eprintln!("$ {}", line_of(&command));
    let rehearsal = command.stdout(Stdio::piped()).spawn().context("starting the rehearsal")?;
    if let Some(servers) = &mut servers {
        servers.kill_everything_once(&mut stage)?;
    }
    let output = rehearsal.wait_with_output().context("waiting for the rehearsal")?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{}", report.trim_end());
    let mut clean = output.status.success();
    match settled_books(&stage, &sale) {
        Ok(books) => {
            eprintln!("stage: {books}");
            for fault in books.faults() {
                eprintln!("stage: {fault}");
                clean = false;
            }
        }
        Err(error) => {
            eprintln!("stage: the servers could not be read from outside: {error:#}");
            clean = false;
        }
    }
    stage.end()?;
    Ok(clean)
}

/// What the servers say, once nothing is under way any more: what a killed process left is settled by the
/// others within seconds.
fn settled_books(stage: &Stage, sale: &str) -> Result<Books> {
    let until = now() + SETTLE;
    loop {
        let books = witness::books(stage, sale)?;
        if books.faults().is_empty() || now() > until {
            return Ok(books);
        }
        pause(Duration::from_millis(200));
    }
}

/// A sale that is small enough for the tests, with their build: two processes of every role, one of which
/// is killed, as are Redis and the broker.
///
/// # Errors
/// As [`run`].
pub(crate) fn small(root: &Path, install: bool) -> Result<bool> {
    let cast = Cast { gateways: 2, recorders: 2, keepers: 2 };
    // Selling goes on while they die.
    let storm = ["--users", "20000", "--units", "12000", "--window", "4s", "--output", "json"];
    // Few of so many winners: the tests' build pays slowly.
    let winners =
        ["--pay", "2", "--fail-then-pay", "1", "--cancel", "1", "--cancel-then-buy", "1", "--abandon", "95"];
    let rehearse = storm.iter().chain(&winners).map(|word| (*word).to_owned()).collect();
    run(root, &Plan { cast, chaos: true, install, profile: "dev".to_owned(), rehearse })
}

/// Takes `--units N` out of the rehearsal's arguments: the sale has the units, not the rehearsal.
fn take_units(arguments: &[String]) -> Result<(u64, Vec<String>)> {
    let (mut units, mut rest) = (10_000, Vec::new());
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let value = match argument.strip_prefix("--units") {
            Some("") => arguments.next().map(String::as_str),
            Some(value) => value.strip_prefix('='),
            None => {
                rest.push(argument.clone());
                continue;
            }
        };
        let value = value.context("--units needs a number")?;
        units = value.parse().with_context(|| format!("--units {value} is not a number of units"))?;
        ensure!(units > 0, "--units must be at least 1");
    }
    Ok((units, rest))
}

/// Builds our program with the servers' clients; answers where it is.
fn build(root: &Path, profile: &str) -> Result<std::path::PathBuf> {
    let release =
        ["build", "--locked", "--workspace", "--bins", "--features", "distributed", "--profile", profile];
    // The tests' build, which is there already: the selection decides which features libraries have.
    let tests = [&TEST[..], &["--no-run", "--test", "roles"]].concat();
    let arguments = if profile == "dev" { &tests[..] } else { &release[..] };
    // Messages of the build are not the report.
    if !reported(&mut cargo(root, arguments))? {
        bail!("the program does not build");
    }
    let metadata = output_of(&mut cargo(root, &["metadata", "--format-version", "1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).context("cargo metadata")?;
    let folder = metadata["target_directory"].as_str().context("cargo has no target directory")?;
    let profile = if profile == "dev" { "debug" } else { profile };
    Ok(Path::new(folder).join(profile).join("doorbuster"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_sales_and_everything_else_the_rehearsals() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for line in ["--users 5 --units 7 --seed 1", "--units=7 --users 5 --seed 1"] {
            assert_eq!(take_units(&words(line)).expect("is right"), (7, words("--users 5 --seed 1")));
        }
        assert_eq!(take_units(&words("--users 5")).expect("is right").0, 10_000);
        for line in ["--units", "--units x", "--units=0"] {
            assert!(take_units(&words(line)).is_err(), "{line}");
        }
    }
}
