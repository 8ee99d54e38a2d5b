//! The checks the Rust toolchain brings: rustfmt, clippy, rustdoc.

use std::path::Path;

use anyhow::Result;

use super::Report;
use crate::requirements::{Absence, Requirement, Source, is_there};
use crate::run::cargo;

/// The tools of the toolchain that tidy uses. A toolchain may lack them; then the check is not
/// run, and that is said aloud.
pub(crate) const TOOLS: [Requirement; 3] = [
    Requirement {
        program: "cargo-fmt",
        why: "checks the layout of the code",
        source: Source::Component("rustfmt"),
        absence: Absence::Announced,
    },
    Requirement {
        program: "cargo-clippy",
        why: "checks the code with clippy's lints",
        source: Source::Component("clippy"),
        absence: Absence::Announced,
    },
    Requirement {
        program: "rustdoc",
        why: "checks the documentation and its links",
        source: Source::Component("rustc"),
        absence: Absence::Announced,
    },
];

/// The command of each tool, in the order of [`TOOLS`].
const COMMANDS: [&[&str]; 3] = [
    &["fmt", "--all", "--check"],
    &[
        "clippy",
        "--workspace",
        "--features",
        "distributed,fault-points",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ],
    &["doc", "--workspace", "--features", "distributed,fault-points", "--no-deps", "--locked"],
];

/// Runs the tools that are there and adds to `report` what failed and what was not run.
pub(super) fn run(root: &Path, report: &mut Report) -> Result<()> {
    for (tool, arguments) in TOOLS.iter().zip(COMMANDS) {
        if !is_there(tool) {
            let line = format!(
                "NOT RUN: cargo {} — this toolchain lacks {} ({})",
                arguments[0], tool.program, tool.why
            );
            println!("{line}");
            report.not_run.push(line);
            continue;
        }
        let mut command = cargo(root, arguments);
        // Only rustdoc reads this; nothing else is built anew because of it.
        command.env("RUSTDOCFLAGS", "-D warnings");
        report.passed &= crate::run::shown(&mut command)?;
    }
    Ok(())
}
