//! The promises of the traits, each of which names its conformance test.

use super::Finding;
use super::rust::words;
use super::tree::Tree;

const STAGES: [&str; 4] = [
    "crates/engine/src/gate/mod.rs",
    "crates/engine/src/stock/mod.rs",
    "crates/engine/src/queue/mod.rs",
    "crates/engine/src/ledger/mod.rs",
];
/// A name in backticks with this many underscores is a sentence, so the name of a test.
const SENTENCE_UNDERSCORES: usize = 3;

/// Every test that a stage's module documentation names is there.
pub(super) fn tested(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| STAGES.contains(&file.path.as_str())) {
        let documentation = file.text.lines().take_while(|line| line.starts_with("//!"));
        for (index, line) in documentation.enumerate() {
            for name in test_names(line).filter(|name| !has_function(tree, name)) {
                let what = format!("promises {name}, and crates/engine/src/conformance has no such test");
                findings.push(Finding::at(file, index + 1, what));
            }
        }
    }
    findings
}

/// The names of tests in a line of documentation.
fn test_names(line: &str) -> impl Iterator<Item = &str> {
    let spans = line.split('`').skip(1).step_by(2);
    spans.filter(|span| {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        span.chars().all(plain) && span.matches('_').count() >= SENTENCE_UNDERSCORES
    })
}

/// Whether the conformance suites have a function `name`.
fn has_function(tree: &Tree, name: &str) -> bool {
    let suites = tree.rust().filter(|(file, _)| file.is_conformance());
    let declaration = format!("fn {name}");
    suites.into_iter().any(|(_, rust)| words(&rust.code, &declaration).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_promise_without_its_test_is_found() {
        let documentation = "//! 1. One: `a_release_counts_once`.\n//! 2. Two: `a_hold_is_kept`,\n\
                             //!    `a_hold_is_kept_twice`; see `one_name`.\n\n/// `not_of_this_module_doc`\n";
        let findings = planted(
            &[
                ("crates/engine/src/stock/mod.rs", documentation),
                (
                    "crates/engine/src/conformance/stock.rs",
                    "pub async fn a_release_counts_once() {}\npub fn a_hold_is_kept() {}\n",
                ),
            ],
            tested,
        );
        assert_eq!(findings, ["crates/engine/src/stock/mod.rs:3"]);
    }
}
