//! Row 9: from a fresh clone to the first sale, and the size of the program.

use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::process::now;
use super::whole_sale::balanced;
use crate::run::cargo;

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    bench.say("row 9: a fresh clone, an empty target folder, the demo (some minutes)".to_owned());
    let clone = bench.folder().join("clone");
    let begun = now();
    output_of(Command::new("git").args(["clone", "--quiet"]).arg(bench.root()).arg(&clone))?;
    let program = ["build", "--release", "--locked", "--target-dir", "target", "-p", "doorbuster-server"];
    // The cargo that started us has set variables that belong to our own build.
    output_of(cargo(&clone, &program).env_remove("CARGO_TARGET_DIR"))?;
    let built = begun.elapsed().as_secs_f64();
    let binary = clone.join("target/release/doorbuster");
    let report = output_of(Command::new(&binary).args(["demo", "--exit", "--output", "json"]))?;
    let seconds = begun.elapsed().as_secs_f64();
    let report = serde_json::from_str(&report).context("the demo printed no report")?;
    let bytes = std::fs::metadata(&binary)?.len();
    let books = if balanced(&report) { Books::Balanced } else { Books::Wrong };
    std::fs::remove_dir_all(clone)?;
    let figure = |what, unit, goal, ours: f64, notes| Figure {
        row: "9",
        what,
        unit,
        against: "",
        goal,
        rounds: vec![(ours, None)],
        books,
        notes,
    };
    Ok(vec![
        figure(
            "from `git clone` to the end of the demo's sale",
            "s",
            Goal::AtMost(300.0),
            seconds,
            vec![format!("one round; {built:.0} s of it compile; the libraries' sources were there already")],
        ),
        figure("size of the program", "MB", Goal::AtMost(30.0), bytes as f64 / 1e6, Vec::new()),
    ])
}
