//! Words that must not be left in the source: unfinished work, switched-off tests, sleeps.

use super::Finding;
use super::paths::{mentions, module_of};
use super::rust::{line_of, words};
use super::tree::Tree;

/// Kinds of files besides Rust that are searched for unfinished work.
const SOURCES: [&str; 11] = ["toml", "lua", "sql", "ts", "js", "svelte", "html", "css", "sh", "yaml", "yml"];
/// The note that says "not done".
const UNFINISHED: &str = "FIXME";

/// Nothing is left unfinished.
pub(super) fn unfinished(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let notes = words(&rust.comments, UNFINISHED).map(|at| (at, UNFINISHED));
        let macros = ["todo!", "unimplemented!"].into_iter();
        let macros = macros.flat_map(|name| words(&rust.code, name).map(move |at| (at, name)));
        for (at, word) in notes.chain(macros) {
            let what = format!("{word}: finish it, or open an issue and say so here");
            findings.push(Finding::at(file, line_of(&file.text, at), what));
        }
    }
    for file in tree.with_extension(&SOURCES) {
        for at in words(&file.text, UNFINISHED) {
            let what = format!("{UNFINISHED}: finish it, or open an issue and say so here");
            findings.push(Finding::at(file, line_of(&file.text, at), what));
        }
    }
    findings
}

/// No test is switched off.
pub(super) fn ignored_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for at in words(&rust.code, "#[ignore") {
            let what = "a test is switched off: mend it or delete it";
            findings.push(Finding::at(file, line_of(&rust.code, at), what));
        }
    }
    findings
}

/// No test sleeps.
pub(super) fn sleeping_tests(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        let whole = file.is_test() || file.is_conformance();
        let code = if whole { rust.code.clone() } else { rust.test_code() };
        for mention in mentions(&code, &module_of(&file.path)) {
            let sleeps = ["thread::sleep", "time::sleep", "time::sleep_until"];
            if sleeps.iter().any(|sleep| mention.ends_with(sleep)) {
                let what = "a test sleeps: move the clock, call step(), or await a condition with a deadline";
                findings.push(Finding::at(file, line_of(&code, mention.at), what));
            }
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn unfinished_work_is_found_in_code_and_comments_but_not_in_strings() {
        let findings = planted(
            &[
                (
                    "crates/engine/src/a.rs",
                    "// FIXME later\nfn f() { todo!() }\nfn g() { unimplemented!(\"x\") }\n\
                     const S: &str = \"FIXME todo!()\";\n",
                ),
                ("web/page.ts", "ok\n// FIXME\n"),
                ("README.md", "We leave no FIXME.\n"),
            ],
            unfinished,
        );
        assert_eq!(
            findings,
            [
                "crates/engine/src/a.rs:1",
                "crates/engine/src/a.rs:2",
                "crates/engine/src/a.rs:3",
                "web/page.ts:2",
            ]
        );
    }

    #[test]
    fn a_switched_off_test_is_found() {
        let text = "#[test]\n#[ignore = \"slow\"]\nfn f() {}\n// #[ignore]\n";
        assert_eq!(planted(&[("crates/a/tests/b.rs", text)], ignored_tests), ["crates/a/tests/b.rs:2"]);
    }

    #[test]
    fn a_sleep_is_found_in_tests_only() {
        let text = "fn f() { std::thread::sleep(d) }\n\
                    #[cfg(test)]\nmod tests {\n  use tokio::time::{self, sleep};\n}\n";
        let findings = planted(
            &[
                ("crates/a/src/b.rs", text),
                ("crates/a/tests/c.rs", "fn f() {\n    time::sleep(d).await\n}\n"),
            ],
            sleeping_tests,
        );
        assert_eq!(findings, ["crates/a/src/b.rs:4", "crates/a/tests/c.rs:2"]);
    }
}
