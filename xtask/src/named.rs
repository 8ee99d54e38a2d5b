//! Tests that are run by their names, for lists of what must hold.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use doorbuster_services::command::line_of;

use crate::areas::TEST;
use crate::run::cargo;

/// One line of a list: its id, what happens, the tests that show it.
pub(crate) type Line = (&'static str, &'static str, &'static [&'static str]);

/// Runs the tests of every line, prints each line with its result, and says whether all passed. A test
/// that did not run counts as failed. The tests are the libraries' own, and those in `targets`.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path, lines: &[Line], targets: &[&str], width: usize) -> Result<bool> {
    let mut command = cargo(root, &TEST);
    command.arg("--lib");
    for target in targets {
        command.args(["--test", target]);
    }
    let names = lines.iter().flat_map(|(_, _, tests)| *tests);
    command.args(["--", "--exact"]).args(names);
    let output = command.output().with_context(|| format!("starting {}", line_of(&command)))?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let results = results(&printed);
    let passed = |test: &&str| results.get(*test) == Some(&true);

    let mut all = true;
    for (id, what, tests) in lines {
        let missed: Vec<&str> = tests.iter().filter(|test| !passed(test)).copied().collect();
        let result =
            if missed.is_empty() { "ok".to_owned() } else { format!("FAILED: {}", missed.join(", ")) };
        println!("{id:<6}{what:<width$}{result}");
        all &= missed.is_empty();
    }
    if !all {
        println!("{printed}\n{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(all)
}

/// Each test that a test runner names, and whether it passed.
fn results(printed: &str) -> BTreeMap<&str, bool> {
    let lines = printed.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    lines.map(|(name, result)| (name, result == "ok")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_read_from_what_the_runner_prints() {
        let printed = "running 2 tests\ntest a::b ... ok\ntest c ... FAILED\n\ntest result: FAILED. 1 passed";
        assert_eq!(results(printed), BTreeMap::from([("a::b", true), ("c", false)]));
    }
}
