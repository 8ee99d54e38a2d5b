//! `cargo xtask bench`: measures us and the yardsticks in turn and keeps the figures.
//!
//! [`ROWS`] lists what can be measured. A row answers [`Figure`]s; `document.rs` keeps them in
//! `docs/performance.json` and shows them in `docs/performance.md`. Every server is private, on a
//! free port of the loopback, and ends with the row that started it.

mod answer;
mod document;
mod durable;
mod expiry;
mod figure;
mod first_sale;
mod growth;
mod idle;
mod instructions;
mod nginx;
mod permits;
pub(crate) mod process;
mod record;
mod refusals;
mod shop;
mod steady;
mod unknown_keys;
mod whole_sale;
mod wrk;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use doorbuster_services::command::line_of;
use tempfile::TempDir;

use crate::requirements::{self, Absence, Requirement, Source};
use crate::run::cargo;
use figure::Figure;
use wrk::Wrk;

/// One row of the table of goals.
struct Row {
    name: &'static str,
    requirements: &'static [&'static Requirement],
    measure: fn(&Bench) -> Result<Vec<Figure>>,
}

/// Every row, in the order in which they run.
const ROWS: [Row; 12] = [
    Row { name: "1", requirements: &[&NGINX, &WRK, &TASKSET], measure: refusals::run },
    Row { name: "4", requirements: &[&NGINX, &WRK, &TASKSET], measure: whole_sale::run },
    Row { name: "6", requirements: &[&WRK, &SQLITE, &TASKSET], measure: durable::run },
    Row { name: "7", requirements: &[&NGINX, &WRK, &TASKSET], measure: idle::run },
    Row { name: "8", requirements: &[&WRK, &TASKSET], measure: growth::run },
    Row { name: "J9", requirements: &[&WRK, &TASKSET], measure: unknown_keys::run },
    Row { name: "9", requirements: &[&requirements::GIT], measure: first_sale::run },
    Row { name: "instructions", requirements: &[&VALGRIND], measure: instructions::run },
    Row { name: "2", requirements: &[&REDIS, &REDIS_TOOLS, &TASKSET], measure: permits::run },
    Row { name: "3", requirements: &[&PGBENCH], measure: record::run },
    Row { name: "10", requirements: &[&REDIS, &TASKSET], measure: expiry::run },
    // Last, since it builds the program anew, with the servers' clients in it.
    Row { name: "5", requirements: &[&REDIS_TOOLS], measure: steady::run },
];

const NGINX: Requirement = needed("nginx", "is the yardstick of refusals and of memory", "nginx");
const REDIS: Requirement = needed("redis-server", "is the stock that is measured", "redis-server");
const REDIS_TOOLS: Requirement = needed("redis-benchmark", "is the yardstick of permits", "redis-tools");
const PGBENCH: Requirement = needed("pgbench", "is the yardstick of recording", "postgresql-15");
const WRK: Requirement = needed("wrk", "generates load in a closed loop", "wrk");
const SQLITE: Requirement = needed("sqlite3", "is the yardstick of durable orders", "sqlite3");
const TASKSET: Requirement =
    needed("taskset", "keeps server and generator on cores of their own", "util-linux");
const VALGRIND: Requirement = needed("valgrind", "counts instructions", "valgrind");

const fn needed(program: &'static str, why: &'static str, package: &'static str) -> Requirement {
    Requirement { program, why, source: Source::Debian(package), absence: Absence::Fatal }
}

/// The names of the rows.
pub(crate) fn names() -> Vec<&'static str> {
    ROWS.iter().map(|row| row.name).collect()
}

/// What every row needs.
pub(crate) struct Bench {
    root: PathBuf,
    folder: TempDir,
    wrk: Wrk,
    rounds: usize,
}

/// Measures the rows named, or all; keeps the figures, prints them as JSON if `json`, and says
/// whether every goal was met.
///
/// # Errors
/// A program is missing, or a measurement cannot be made.
pub(crate) fn run(root: &Path, names: &[String], install: bool, json: bool, rounds: usize) -> Result<bool> {
    let wanted: Vec<&Row> =
        ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)).collect();
    let mut requirements: Vec<&Requirement> = Vec::new();
    for requirement in wanted.iter().flat_map(|row| row.requirements) {
        if !requirements.iter().any(|it| it.program == requirement.program) {
            requirements.push(requirement);
        }
    }
    if !requirements::ensure(&requirements, install)? {
        return Ok(false);
    }

    let bench = Bench::prepare(root, rounds)?;
    let mut figures = Vec::new();
    for row in wanted {
        let measured = (row.measure)(&bench).with_context(|| format!("row {}", row.name))?;
        figures.extend(document::keep(&bench, row.name, &measured)?);
    }
    document::write(root)?;
    let met = figures.iter().all(|figure| figure["met"] == true);
    document::print(&figures, json)?;
    Ok(met)
}

impl Bench {
    /// Builds what is measured, once.
    fn prepare(root: &Path, rounds: usize) -> Result<Self> {
        // Below the target folder: on the disk that the repository is on, not in memory.
        let target = root.join("target");
        std::fs::create_dir_all(&target)?;
        let folder = tempfile::Builder::new().prefix("bench-").tempdir_in(target)?;
        let bench =
            Self { root: root.to_owned(), wrk: Wrk::new(folder.path())?, folder, rounds: rounds.max(1) };
        bench.build(&["-p", "doorbuster-server"])?;
        let examples = ["--example", "mint", "--example", "walk"];
        bench.build(&[&["-p", "doorbuster-loadtest", "-p", "doorbuster-engine"], &examples[..]].concat())?;
        Ok(bench)
    }

    fn build(&self, what: &[&str]) -> Result<()> {
        let words = [&["build", "--release", "--locked", "--target-dir", "target"], what].concat();
        let mut command = cargo(&self.root, &words);
        self.say(line_of(&command));
        if !command.status()?.success() {
            bail!("{} failed", line_of(&command));
        }
        Ok(())
    }

    /// Tells the person at the terminal how far it is.
    pub(crate) fn say(&self, text: String) {
        eprintln!("bench: {text}");
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// A folder that goes when the benchmark ends.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn wrk(&self) -> &Wrk {
        &self.wrk
    }

    pub(crate) fn rounds(&self) -> usize {
        self.rounds
    }

    /// The release build of the program under test.
    pub(crate) fn doorbuster(&self) -> PathBuf {
        self.root.join("target/release/doorbuster")
    }

    /// The example that mints tokens in bulk.
    pub(crate) fn mint(&self) -> PathBuf {
        self.root.join("target/release/examples/mint")
    }

    /// The example that walks one path of the engine many times.
    pub(crate) fn walk(&self) -> PathBuf {
        self.root.join("target/release/examples/walk")
    }
}
