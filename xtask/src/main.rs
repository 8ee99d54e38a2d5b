//! Doorbuster's house commands: `cargo xtask test` and `cargo xtask tidy`.
//!
//! `test.rs` runs the areas that `areas.rs` lists; `tidy/` holds the house rules that a tool can
//! check; `requirements.rs` knows the outside programs and how to get them. Nothing here depends
//! on another package of the workspace, so a broken engine still gets its tests run.
#![expect(clippy::print_stdout, reason = "a command line tool: printing is what it does")]

mod areas;
mod demo;
mod requirements;
mod run;
mod test;
mod tidy;
mod venv;

use std::process::ExitCode;

use anyhow::Result;
use clap::builder::PossibleValuesParser;
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
}

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

fn area_names() -> Vec<&'static str> {
    areas::AREAS.iter().map(|area| area.name).collect()
}

fn main() -> Result<ExitCode> {
    let cli = Cli::parse();
    let root = run::repository_root()?;
    let passed = match cli.command {
        Task::Test { areas, install } => test::run(&root, &areas, install),
        Task::Tidy { quick } => tidy::run(&root, !quick)?.passed,
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
