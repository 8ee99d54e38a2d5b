//! Doorbuster's house commands: `cargo xtask test`, `tidy`, `services`, `stage`, `soak` and `bench`.
//!
//! `test.rs` runs the areas that `areas.rs` lists; `tidy/` holds the house rules that a tool can
//! check; `services/` starts the servers that tests need; `stage/` plays a sale on them; `bench/`
//! measures us beside yardsticks; `soak.rs` runs tests for long; `requirements.rs` knows the outside programs and how to
//! get them. Of our packages, `crates/services` alone is known here, so a broken engine still gets its tests run.
#![expect(clippy::print_stdout, reason = "a command line tool: printing is what it does")]

mod areas;
mod bench;
mod demo;
mod failures;
mod named;
mod npm;
mod requirements;
mod run;
mod security;
mod services;
mod soak;
mod stage;
mod test;
mod tidy;
mod venv;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", about = "Doorbuster's house commands")]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the tests, area by area
    #[command(after_help = TEST_HELP)]
    Test {
        /// The areas to run; all of them when none is named
        #[arg(value_name = "AREA", value_parser = PossibleValuesParser::new(area_names()))]
        areas: Vec<String>,
        /// Install the outside programs that are missing
        #[arg(long)]
        install: bool,
    },
    /// Check the house rules: walls, sizes, links, layout, lints, documentation
    #[command(after_help = TIDY_HELP)]
    Tidy {
        /// Leave out rustfmt, clippy and rustdoc: nothing is compiled
        #[arg(long)]
        quick: bool,
    },
    /// Start, end or list private servers to test against: Redis, PostgreSQL and Kafka
    #[command(after_help = SERVICES_HELP)]
    Services {
        #[command(subcommand)]
        what: ServicesTask,
    },
    /// Play a whole sale on real servers: services, roles, rehearsal, books, end
    #[command(after_help = STAGE_HELP)]
    Stage {
        /// Processes that serve buyers
        #[arg(long, default_value_t = 2)]
        gateways: usize,
        /// Processes that write orders into the ledger
        #[arg(long, default_value_t = 2)]
        recorders: usize,
        /// Processes that open, expire, return and rebuild
        #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..).map(usize::from))]
        keepers: usize,
        /// Kill one process of each role in the middle, and start it again
        #[arg(long)]
        chaos: bool,
        /// Install the outside programs that are missing
        #[arg(long)]
        install: bool,
        /// Cargo profile of our program; `dev` is the tests' build
        #[arg(long, default_value = "release")]
        profile: String,
        /// Arguments for `doorbuster rehearse`, and `--units N` for the sale
        #[arg(last = true)]
        rehearse: Vec<String>,
    },
    /// Run the simulation, the model, the kill loop, the failure matrix and the fuzzer for long
    #[command(after_help = SOAK_HELP)]
    Soak {
        /// The first seed; the tests of a merge run 1 to 2,000
        #[arg(long, default_value_t = 2_001)]
        first_seed: u64,
        /// How many seeds
        #[arg(long, default_value_t = 20_000)]
        seeds: u64,
        /// States of the protocol's model to look at, at the least
        #[arg(long, default_value_t = 20_000_000)]
        model_states: u64,
        /// How often the server is killed
        #[arg(long, default_value_t = 100)]
        kill_rounds: u64,
        /// How often each line of the failure matrix is run, with faults of five minutes in the long ones
        #[arg(long, default_value_t = 1)]
        failure_rounds: u64,
        /// How often each part is killed in one sale; the broker a fifth of it
        #[arg(long, default_value_t = 100)]
        part_kills: u64,
        /// How long each target of the fuzzer runs
        #[arg(long, default_value_t = 60)]
        fuzz_seconds: u64,
    },
    /// Measure us beside nginx, SQLite and ourselves, and write docs/performance.md
    #[command(after_help = BENCH_HELP)]
    Bench {
        /// The rows to measure; all of them when none is named
        #[arg(value_name = "ROW", value_parser = PossibleValuesParser::new(bench::names()))]
        rows: Vec<String>,
        /// Install the outside programs that are missing
        #[arg(long)]
        install: bool,
        /// How to print the figures on standard output
        #[arg(long, default_value = "text", value_parser = ["text", "json"])]
        output: String,
        /// How often ours and the yardstick take turns
        #[arg(long, default_value_t = 3)]
        rounds: usize,
    },
}

#[derive(Subcommand)]
enum ServicesTask {
    /// Start those that do not run yet, and print the environment variables that tests want
    Up {
        /// Install the outside programs that are missing
        #[arg(long)]
        install: bool,
        /// How many Kafka brokers; three keep every record three times
        #[arg(long, default_value = "1", value_parser = ["1", "3"])]
        brokers: String,
        /// Start them in containers, by docker or podman
        #[arg(long, conflicts_with = "install")]
        containers: bool,
    },
    /// End what `up` started, and remove its folders
    Down,
    /// Tell what runs, where, and for how long
    Status,
}

const SERVICES_HELP: &str = "\
Examples:
  eval \"$(cargo xtask services up)\"       start them and tell this shell where they are
  cargo xtask services up --brokers 3      three brokers, for tests of one that fails
  cargo xtask services up --containers     the same in containers, without the ways in by TLS
  cargo xtask services down                end them

A server named by DOORBUSTER_TEST_REDIS_URL, DOORBUSTER_TEST_POSTGRES_URL or DOORBUSTER_TEST_KAFKA_URL is
used as it is, and none is started in its place. `cargo xtask test` starts and ends what it needs by itself.";

const STAGE_HELP: &str = "\
Examples:
  cargo xtask stage -- --users 500000 --units 10000 --output json
  cargo xtask stage --chaos -- --users 500000 --units 10000
  cargo xtask stage --gateways 3 --recorders 3 --keepers 2 -- --users 100000 --report storm.html

The rehearsal's report goes to standard output. The exit code is 1 when it found something, or when PostgreSQL
and Redis, read by their own clients afterwards, do not agree.";

const SOAK_HELP: &str = "\
Examples:
  cargo xtask soak                                     20,000 new seeds, 20,000,000 states of the
                                                       model, 100 kills of one process and of each
                                                       part of many, each failure once, 5 minutes of
                                                       fuzzing
  cargo xtask soak --seeds 0 --model-states 0 --kill-rounds 0 --failure-rounds 0 --part-kills 0 --fuzz-seconds 600
  cargo xtask soak --seeds 0 --model-states 0 --kill-rounds 0 --fuzz-seconds 0 --failure-rounds 10 --part-kills 100
  cargo xtask soak --first-seed 90000 --seeds 100000 --model-states 0 --kill-rounds 0 --failure-rounds 0 --part-kills 0
  cargo xtask soak --seeds 0 --model-states 30000000 --kill-rounds 0 --failure-rounds 0 --part-kills 0 --fuzz-seconds 0

A seed that fails prints its operations; keep it in crates/engine/tests/simulation/reproductions.rs.
An input that fails is kept in fuzz/regressions, where the tests find it.

Every run of a line of the failure matrix is printed with its seed and noted in
target/failures/runs.jsonl. A line is run again with DOORBUSTER_FAILURES_SEED=SEED. To add the runs and the kills up:
  jq -s 'group_by(.line)[] | {line: .[0].line, runs: length, passed: map(select(.passed)) | length}' -c \\
      target/failures/runs.jsonl
  jq -s 'map(select(.passed).counted | to_entries[]) | group_by(.key)[] | {(.[0].key): map(.value) | add}' -c \\
      target/failures/runs.jsonl";

const TEST_HELP: &str = "\
Examples:
  cargo xtask test                    every area, as the merge check runs it
  cargo xtask test unit conformance   two areas
  cargo xtask test tidy --install     install what the area needs, then run it

The last line is `N passed, N failed`, counting areas; the exit code is 1 if one failed.";

const TIDY_HELP: &str = "\
Examples:
  cargo xtask tidy            all checks
  cargo xtask tidy --quick    the checks that compile nothing: about a second";

const BENCH_HELP: &str = "\
Examples:
  cargo xtask bench --install     install the yardsticks, measure every row: about ten minutes
  cargo xtask bench 1 7           two rows; the figures of the others stay as they are
  cargo xtask bench instructions  what regressions show in: it does not depend on the machine's mood

It is a benchmark, not a test: close everything else first. The exit code is 1 if a goal was missed.";

fn area_names() -> Vec<&'static str> {
    areas::AREAS.iter().map(|area| area.name).collect()
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let root = run::repository_root()?;
    let passed = match cli.command {
        Task::Test { areas, install } => test::run(&root, &areas, install),
        Task::Bench { rows, install, output, rounds } => {
            bench::run(&root, &rows, install, output == "json", rounds)?
        }
        Task::Stage { gateways, recorders, keepers, chaos, install, profile, rehearse } => {
            let cast = stage::Cast { gateways, recorders, keepers };
            stage::run(&root, &stage::Plan { cast, chaos, install, profile, rehearse })?
        }
        Task::Soak {
            first_seed,
            seeds,
            model_states,
            kill_rounds,
            failure_rounds,
            part_kills,
            fuzz_seconds,
        } => {
            let lengths = soak::Lengths {
                first_seed,
                seeds,
                model_states,
                kill_rounds,
                failure_rounds,
                part_kills,
                fuzz_seconds,
            };
            soak::run(&root, &lengths)?
        }
        Task::Services { what: ServicesTask::Up { install, brokers, containers } } => {
            let brokers = if brokers == "3" { 3 } else { 1 };
            services::up(&root, services::Wish { install, brokers, containers })?
        }
        Task::Services { what: ServicesTask::Down } => services::down(&root).map(|()| true)?,
        Task::Services { what: ServicesTask::Status } => services::status(&root).map(|()| true)?,
        Task::Tidy { quick } => tidy::run(&root, !quick)?.passed,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
