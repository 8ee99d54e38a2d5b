//! Commands of other programs: how they read, what they print.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The command as somebody would type it.
pub fn line_of(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let program = program.file_name().unwrap_or(command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs the command to its end and answers what it printed.
///
/// # Errors
/// It cannot be started or fails; the message has what it printed.
pub fn output_of(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {}", line_of(command)))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}\n{said}{printed}", line_of(command), output.status);
    }
    Ok(printed)
}
