//! Starting other programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use doorbuster_services::command::line_of;

/// A cargo command in the repository's root, by the cargo that started us.
pub(crate) fn cargo<S: AsRef<std::ffi::OsStr>>(root: &Path, arguments: &[S]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// Prints the command, runs it with our own input and outputs, and says whether it succeeded.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn shown(command: &mut Command) -> Result<bool> {
    println!("$ {}", line_of(command));
    let status = command.status().with_context(|| format!("starting {}", line_of(command)))?;
    Ok(status.success())
}

/// As [`shown`], with everything on standard error: for commands whose output is not ours.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn reported(command: &mut Command) -> Result<bool> {
    eprintln!("$ {}", line_of(command));
    let status = command.stdout(std::io::stderr()).status();
    Ok(status.with_context(|| format!("starting {}", line_of(command)))?.success())
}

/// The repository's root: the nearest folder upwards whose manifest is a workspace's.
///
/// # Errors
/// We were started outside the repository.
pub(crate) fn repository_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("finding the current folder")?;
    for folder in here.ancestors() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.contains("[workspace]") {
            return Ok(folder.to_owned());
        }
    }
    bail!("start this inside the repository: no folder above {} holds the workspace", here.display())
}
