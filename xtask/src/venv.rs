//! The tools of other makers that tests use, of pinned versions: a virtual environment of Python's under
//! `target/`, and beside them programs that its Go builds.

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

/// Makes the environment hold the program of a Go module, `path@version`, built by the Go that it has.
/// Answers whether it does now.
///
/// # Errors
/// Go cannot be started, or a file cannot be read or written.
pub(crate) fn build(root: &Path, module: &str) -> Result<bool> {
    let folder = root.join(FOLDER);
    let built = folder.join("built.txt");
    if fs::read_to_string(&built).is_ok_and(|text| text == module) {
        return Ok(true);
    }
    let mut go = Command::new(folder.join("bin/go"));
    go.args(["install", module]);
    // Nothing is left outside the folder, nothing in it is read-only, and no C compiler is asked for.
    go.env("GOBIN", folder.join("bin")).env("GOPATH", folder.join("go"));
    go.env("GOCACHE", folder.join("go/cache")).env("GOFLAGS", "-modcacherw").env("CGO_ENABLED", "0");
    if !shown(&mut go)? {
        return Ok(false);
    }
    fs::write(&built, module).with_context(|| format!("writing {}", built.display()))?;
    Ok(true)
}
