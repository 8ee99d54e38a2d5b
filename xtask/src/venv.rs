//! The Python tools that tests use: a virtual environment under `target/`, of pinned versions.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run::shown;

/// Where the environment is, from the repository's root.
const FOLDER: &str = "target/contract-tools";

/// Makes the environment hold what `requirements` (a path from the root) pins, and nothing is done
/// when it does already. Answers whether it does now.
///
/// # Errors
/// Python cannot be started, or a file cannot be read or written.
pub(crate) fn make(root: &Path, requirements: &str) -> Result<bool> {
    let folder = root.join(FOLDER);
    let wanted =
        fs::read_to_string(root.join(requirements)).with_context(|| format!("reading {requirements}"))?;
    // Written last: an installation that broke off is begun again.
    let installed = folder.join("installed.txt");
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(true);
    }

    let mut python = Command::new("python3");
    python.args(["-m", "venv", "--clear"]).arg(&folder);
    let mut pip = Command::new(folder.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--requirement", requirements]).current_dir(root);
    for command in [&mut python, &mut pip] {
        if !shown(command)? {
            return Ok(false);
        }
    }
    fs::write(&installed, wanted).with_context(|| format!("writing {}", installed.display()))?;
    Ok(true)
}
