//! The house rules that a tool can check, so that nobody has to remember them.
//!
//! A check is a function from the [`Tree`] to its findings; [`CHECKS`] lists them all. A new rule
//! is one more function with a test that plants the fault and sees it found, and one more line.

mod config;
mod links;
mod manifests;
mod outside;
mod paths;
mod promises;
mod rust;
mod size;
mod toolchain;
mod tree;
mod walls;
mod words;

use std::fmt;
use std::path::Path;

use anyhow::Result;

pub(crate) use toolchain::TOOLS;
use tree::{File, Tree};

/// A place that breaks a rule.
struct Finding {
    /// Path from the repository's root.
    path: String,
    /// Line, counted from one.
    line: usize,
    /// What is wrong there.
    what: String,
}

impl Finding {
    fn at(file: &File, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: file.path.clone(), line, what: what.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// What a check looks for, and the check.
type Check = (&'static str, fn(&Tree) -> Vec<Finding>);

/// Every check, in the order in which it is reported.
const CHECKS: [Check; 16] = [
    ("walls: leaves", walls::leaves),
    ("walls: stages", walls::stages),
    ("walls: backends unnamed", walls::backends_unnamed),
    ("walls: libraries", walls::libraries),
    ("walls: features", walls::features),
    ("walls: packages", manifests::packages),
    ("length of files", size::files),
    ("length of functions", size::functions),
    ("unfinished work", words::unfinished),
    ("switched-off tests", words::ignored_tests),
    ("sleeping tests", words::sleeping_tests),
    ("promises tested", promises::tested),
    ("links", links::links),
    ("registry hosts", outside::hosts),
    ("folders of one machine", outside::folders),
    ("configuration explained", config::keys_explained),
];

/// What came out of a run.
pub(crate) struct Report {
    /// Whether nothing is wrong.
    pub(crate) passed: bool,
    /// What was not checked, and why; said again at the end of a test run.
    pub(crate) not_run: Vec<String>,
}

/// Runs every check and prints what it finds, then the toolchain's own checks if `tools`.
///
/// # Errors
/// The files cannot be read, or a tool that is there cannot be started.
pub(crate) fn run(root: &Path, tools: bool) -> Result<Report> {
    let tree = Tree::load(root)?;
    let mut count = 0;
    for (name, check) in CHECKS {
        let findings = check(&tree);
        count += findings.len();
        for finding in findings {
            println!("{finding}  [{name}]");
        }
    }
    println!("tidy: {} files, {} checks, {count} findings", tree.files.len(), CHECKS.len());

    let mut report = Report { passed: count == 0, not_run: Vec::new() };
    if tools {
        toolchain::run(root, &mut report)?;
    }
    Ok(report)
}

/// Writes `files` to a temporary folder, runs `check` over it, and answers `path:line` of each
/// finding, sorted.
#[cfg(test)]
fn planted(files: &[(&str, &str)], check: fn(&Tree) -> Vec<Finding>) -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    for (path, text) in files {
        let full = folder.path().join(path);
        std::fs::create_dir_all(full.parent().expect("a file has a folder")).expect("can be made");
        std::fs::write(full, text).expect("can be written");
    }
    let tree = Tree::load(folder.path()).expect("the planted files can be read");
    let mut found: Vec<String> =
        check(&tree).iter().map(|finding| format!("{}:{}", finding.path, finding.line)).collect();
    found.sort();
    found
}
