//! Data on standard output, messages on standard error.
#![expect(clippy::print_stderr, reason = "the one place of the server that prints")]

use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

use super::csv;

/// How data is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    #[default]
    #[value(alias = "text")]
    Table,
    /// For programs
    Json,
    /// For spreadsheets
    Csv,
}

impl Output {
    /// Prints `value` as JSON, as CSV made of that JSON, or what `text` makes of it.
    pub(crate) fn print<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        self.print_or(value, text, csv::of)
    }

    /// The same, where the JSON is more than one table: `rows` makes the CSV.
    pub(crate) fn print_or<T: Serialize>(
        self,
        value: &T,
        text: impl FnOnce(&T) -> String,
        rows: impl FnOnce(&T) -> anyhow::Result<String>,
    ) -> anyhow::Result<()> {
        let printed = match self {
            Self::Table => text(value),
            Self::Json => serde_json::to_string_pretty(value)?,
            Self::Csv => rows(value)?,
        };
        line(printed.trim_end());
        Ok(())
    }
}

/// One line of data. A reader that went away, such as `head`, has all it wanted.
pub(crate) fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    if let Err(error) = writeln!(out, "{text}")
        && error.kind() != std::io::ErrorKind::BrokenPipe
    {
        say(&format!("standard output cannot be written: {error}"));
    }
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
