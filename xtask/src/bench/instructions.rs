//! Instructions per refusal and per recorded order: they do not move with the machine's mood, so
//! a regression shows in them.

use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;

use super::Bench;
use super::figure::{Books, Figure, Goal};

/// The paths and how often each is walked; twice as often the second time, so that what happens
/// once cancels out.
const PATHS: [(&str, &str, u64); 3] = [
    ("refusals", "instructions per refusal of the gate", 20_000),
    ("unknown-kids", "instructions per token of an unknown key", 20_000),
    ("records", "instructions per recorded order, batches of 500", 5_000),
];

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (path, what, count) in PATHS {
        bench.say(format!("instructions of {path} under callgrind"));
        let once = instructions(bench, path, count)?;
        let twice = instructions(bench, path, 2 * count)?;
        let each = (twice - once) / count as f64;
        figures.push(Figure {
            row: "instructions",
            what,
            unit: "instructions",
            against: "",
            goal: Goal::Kept,
            rounds: vec![(each, None)],
            books: Books::Unasked,
            notes: Vec::new(),
        });
    }
    Ok(figures)
}

fn instructions(bench: &Bench, path: &str, count: u64) -> Result<f64> {
    let file = bench.folder().join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind").arg(format!("--callgrind-out-file={}", file.display()));
    output_of(command.arg(bench.walk()).args([path, &count.to_string()]))?;
    let text = std::fs::read_to_string(&file)?;
    let total =
        text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: ")));
    Ok(total.context("callgrind counted nothing")?.trim().parse()?)
}
