//! The Node libraries that tests use: beside the lock file that pins them, and unknown to git.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::run::shown;

/// Makes `node_modules` in `folder` (a path from the root) hold what the lock file there pins, and
/// nothing is done when it does already. Answers whether it does now.
///
/// # Errors
/// npm cannot be started, or a file cannot be read or written.
pub(crate) fn make(root: &Path, folder: &str) -> Result<bool> {
    let folder = root.join(folder);
    let lock = folder.join("package-lock.json");
    let wanted = fs::read_to_string(&lock).with_context(|| format!("reading {}", lock.display()))?;
    // Written last: an installation that broke off is begun again.
    let installed = folder.join("node_modules/.installed");
    if fs::read_to_string(&installed).is_ok_and(|text| text == wanted) {
        return Ok(true);
    }

    let mut npm = Command::new("npm");
    // The system's browser is used: none is fetched, and no package runs a script of its own.
    npm.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
        .env("PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD", "1");
    if !shown(npm.current_dir(&folder))? {
        return Ok(false);
    }
    fs::write(&installed, wanted).with_context(|| format!("writing {}", installed.display()))?;
    Ok(true)
}
