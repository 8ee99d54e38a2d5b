//! Keeps the figures: `docs/performance.json` for programs, `docs/performance.md` for people.
//!
//! A run replaces the figures of its own rows. The others stay as they were measured, each with
//! its commit and date, unless they come from another machine.
#![expect(clippy::print_stdout, reason = "the figures are this command's output")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;
use serde_json::{Value, json};

use super::figure::Figure;
use super::{Bench, ROWS};

const KEPT: &str = "docs/performance.json";
const SHOWN: &str = "docs/performance.md";
const METHOD: &str = include_str!("method.md");

/// Puts a row's figures in the place of its old ones; answers them as they are kept.
///
/// # Errors
/// The kept file cannot be read or written.
pub(super) fn keep(bench: &Bench, row: &str, measured: &[Figure]) -> Result<Vec<Value>> {
    let (commit, date) = (commit(bench.root())?, output_of(Command::new("date").args(["-u", "+%Y-%m-%d"]))?);
    let new: Vec<Value> = measured.iter().map(|figure| figure.json(&commit, date.trim())).collect();
    let machine = machine()?;
    let kept = kept(bench.root())?;
    let mut figures: Vec<Value> = Vec::new();
    if kept["machine"] == machine {
        figures
            .extend(kept["figures"].as_array().into_iter().flatten().filter(|it| it["row"] != row).cloned());
    }
    figures.extend(new.iter().cloned());
    figures.sort_by_key(|figure| ROWS.iter().position(|row| figure["row"] == row.name));
    let text = serde_json::to_string_pretty(&json!({ "machine": machine, "figures": figures }))?;
    std::fs::create_dir_all(bench.root().join("docs"))?;
    std::fs::write(bench.root().join(KEPT), text + "\n")?;
    Ok(new)
}

fn kept(root: &Path) -> Result<Value> {
    match std::fs::read_to_string(root.join(KEPT)) {
        Ok(text) => serde_json::from_str(&text).with_context(|| format!("{KEPT} is damaged: delete it")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Value::Null),
        Err(error) => Err(error).context(KEPT),
    }
}

/// Writes the document from what is kept.
///
/// # Errors
/// A file cannot be read or written.
pub(super) fn write(root: &Path) -> Result<()> {
    std::fs::write(root.join(SHOWN), shown(&kept(root)?)).context(SHOWN)
}

fn shown(kept: &Value) -> String {
    let figures = kept["figures"].as_array().cloned().unwrap_or_default();
    let mut text = format!(
        "# Speed\n\nWritten by `cargo xtask bench`; do not edit it. Every figure is a ratio within one run on one \
         machine: absolute\nfigures move, so ours and the yardstick are measured in turn.\n\n\
         Machine: {}.\n\n\
         | row | what | ours | yardstick | ratio | spread | goal | met | books | commit, date |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
        text_of(&kept["machine"])
    );
    for figure in &figures {
        let met = if figure["goal"] == "kept" {
            ""
        } else if figure["met"] == true {
            "yes"
        } else {
            "**no**"
        };
        let ratio = figure["ratio"].as_f64().map_or(String::new(), |ratio| format!("{ratio:.2} ×"));
        let cells = [
            text_of(&figure["row"]),
            text_of(&figure["what"]),
            text_of(&figure["ours"]),
            text_of(&figure["yardstick"]),
            ratio,
            text_of(&figure["spread"]),
            text_of(&figure["goal"]),
            met.to_owned(),
            text_of(&figure["books"]),
            format!("{}, {}", text_of(&figure["commit"]), text_of(&figure["date"])),
        ];
        let _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text.push_str("\nSeen on the way:\n\n");
    for figure in &figures {
        for note in figure["notes"].as_array().into_iter().flatten() {
            let _ = writeln!(
                text,
                "- row {}, {}: {}",
                text_of(&figure["row"]),
                text_of(&figure["what"]),
                text_of(note)
            );
        }
    }
    let _ = write!(
        text,
        "\nRepeat it with `cargo xtask bench --install`, or one row with `cargo xtask bench 1`.\n\n{METHOD}"
    );
    text
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Prints figures for people or programs.
///
/// # Errors
/// They cannot be written as JSON, which does not happen.
pub(super) fn print(figures: &[Value], json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(figures)?);
        return Ok(());
    }
    for figure in figures {
        let met = if figure["met"] == true { "met   " } else { "MISSED" };
        let mut line = format!(
            "{met}  row {}  {}: {}",
            text_of(&figure["row"]),
            text_of(&figure["what"]),
            text_of(&figure["ours"])
        );
        if let Some(ratio) = figure["ratio"].as_f64() {
            let _ = write!(
                line,
                ", {} → {ratio:.2} × ({})",
                text_of(&figure["yardstick"]),
                text_of(&figure["spread"])
            );
        }
        println!("{line}, goal {}", text_of(&figure["goal"]));
    }
    println!("kept in {KEPT}, shown in {SHOWN}");
    Ok(())
}

/// The commit that was measured, and whether the files differ from it.
fn commit(root: &Path) -> Result<String> {
    let git = |words: &[&str]| output_of(Command::new("git").args(words).current_dir(root));
    let commit = git(&["rev-parse", "--short=8", "HEAD"])?;
    let changes = git(&["status", "--porcelain", "--", ":!docs/performance.*"])?;
    let and = if changes.trim().is_empty() { "" } else { " with changes" };
    Ok(format!("{}{and}", commit.trim()))
}

/// What the figures depend on.
fn machine() -> Result<String> {
    let cpu = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let model = model.trim_start_matches([' ', '\t', ':']);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kb = memory.lines().next().and_then(|line| line.split_ascii_whitespace().nth(1));
    let gb = kb.and_then(|kb| kb.parse::<u64>().ok()).unwrap_or_default().div_ceil(1 << 20);
    let kernel = output_of(Command::new("uname").arg("-r"))?;
    let rustc = output_of(Command::new("rustc").arg("--version"))?;
    let rustc = rustc.split(" (").next().unwrap_or_default();
    Ok(format!("{model}, {cores} cores, {gb} GB, Linux {}, {}", kernel.trim(), rustc.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_a_line_of_the_table_with_its_commit_and_notes() {
        let figure = json!({
            "row": "1", "what": "CPU", "ours": "2.00 µs", "yardstick": "1.80 µs (nginx)", "ratio": 0.9,
            "spread": "0.88–0.91 ×", "goal": "≥ 0.85 ×", "met": true, "books": null, "notes": ["busy"],
            "commit": "c0ffee", "date": "2026-11-29",
        });
        let text = shown(&json!({ "machine": "M", "figures": [figure] }));
        let line = "| 1 | CPU | 2.00 µs | 1.80 µs (nginx) | 0.90 × | 0.88–0.91 × | ≥ 0.85 × | yes |  | c0ffee, 2026-11-29 |";
        assert!(text.contains(line) && text.contains("- row 1, CPU: busy"), "{text}");
    }
}
