//! The files the checks look at, read once.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::rust::Rust;

/// The files of the repository: tracked ones, and new ones that are not ignored.
pub(super) struct Tree {
    /// The repository's root.
    pub(super) root: PathBuf,
    /// Every text file, by path.
    pub(super) files: Vec<File>,
}

/// One text file.
pub(super) struct File {
    /// Path from the root, with `/` between its parts.
    pub(super) path: String,
    /// The whole text.
    pub(super) text: String,
    /// The text taken apart, for Rust files.
    pub(super) rust: Option<Rust>,
}

impl Tree {
    /// Reads the files under `root`; files that are not UTF-8 are left out.
    pub(super) fn load(root: &Path) -> Result<Tree> {
        let mut paths = if root.join(".git").exists() { listed(root)? } else { walked(root)? };
        paths.sort();
        paths.dedup();
        let mut files = Vec::new();
        for path in paths {
            // A tracked file may be deleted in the working tree; a link may lead to a folder.
            let full = root.join(&path);
            if !full.is_file() {
                continue;
            }
            let bytes = fs::read(&full).with_context(|| format!("reading {path}"))?;
            if let Ok(text) = String::from_utf8(bytes) {
                let rust = path.ends_with(".rs").then(|| Rust::read(&text));
                files.push(File { path, text, rust });
            }
        }
        Ok(Tree { root: root.to_owned(), files })
    }

    /// The Rust files with their parts.
    pub(super) fn rust(&self) -> impl Iterator<Item = (&File, &Rust)> {
        self.files.iter().filter_map(|file| file.rust.as_ref().map(|rust| (file, rust)))
    }

    /// The files whose name ends with `.` and one of `extensions`.
    pub(super) fn with_extension<'a>(&'a self, extensions: &'a [&str]) -> impl Iterator<Item = &'a File> {
        self.files.iter().filter(|file| {
            let extension = file.path.rsplit_once('.').map(|(_, extension)| extension);
            extension.is_some_and(|extension| extensions.contains(&extension))
        })
    }
}

impl File {
    /// Whether the whole file is test code: it lies in a `tests` folder or is a `tests.rs`.
    pub(super) fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Whether the file belongs to the suites that every backend runs.
    pub(super) fn is_conformance(&self) -> bool {
        self.path.starts_with("crates/engine/src/conformance")
    }
}

/// Asks git for the files.
fn listed(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        // A checkout that belongs to another user (a mounted one, say) is read all the same.
        .arg("-c")
        .arg(format!("safe.directory={}", root.display()))
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("running git ls-files")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listing = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    Ok(listing.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

/// Walks the folders, where the tree was unpacked from an archive and git knows nothing of it.
fn walked(root: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(root.join(&folder)).with_context(|| format!("listing {folder}"))?;
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
            if !entry.file_type()?.is_dir() {
                paths.push(path);
            } else if !name.starts_with("target") && name != "node_modules" {
                folders.push(path);
            }
        }
    }
    Ok(paths)
}
