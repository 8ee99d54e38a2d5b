//! Data on standard output, messages on standard error.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the one place of the server that prints")]

use clap::ValueEnum;
use serde::Serialize;

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

impl Output {
    /// Prints `value` as JSON, or what `text` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let printed = match self {
            Self::Text => text(value),
            Self::Json => serde_json::to_string_pretty(value)?,
        };
        line(printed.trim_end());
        Ok(())
    }
}

/// One line of data.
pub(crate) fn line(text: &str) {
    println!("{text}");
}

/// One message to the person at the terminal.
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}

/// The cause chain of an error, once.
pub(crate) fn complain(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}

/// Columns padded to their widest cell.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    let all = || std::iter::once(&head).chain(rows);
    let width = |column: usize| {
        all().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let line = |row: &Vec<String>| {
        let cells =
            row.iter().enumerate().map(|(column, cell)| format!("{cell:<width$}", width = width(column)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all().map(line).collect::<Vec<_>>().join("\n")
}
