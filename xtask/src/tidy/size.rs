//! Files and functions that have grown past reading at one go.

use super::Finding;
use super::rust::{Rust, is_word, line_of, past_closing, words};
use super::tree::{File, Tree};

/// Lines a file may have, without its `#[cfg(test)]` items.
const FILE_LINES: usize = 500;
/// Lines a file of tests may have: a table of cases reads faster than code.
const TEST_FILE_LINES: usize = 800;
/// Lines a function may have, without blank lines and comments (as clippy counts).
const FUNCTION_LINES: usize = 80;
/// Kinds of files whose length is checked.
const SOURCES: [&str; 5] = ["rs", "lua", "sql", "ts", "svelte"];

/// No file is longer than its limit.
pub(super) fn files(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&SOURCES) {
        let tests = file.is_test() || file.is_conformance();
        let limit = if tests { TEST_FILE_LINES } else { FILE_LINES };
        let lines = file.text.lines().count() - file.rust.as_ref().map_or(0, lines_of_tests);
        if lines > limit {
            let what = format!("{lines} lines, {limit} are allowed: split it by noun");
            findings.push(Finding::at(file, limit, what));
        }
    }
    findings
}

/// No function is longer than its limit.
pub(super) fn functions(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust() {
        for start in words(&rust.code, "fn") {
            findings.extend(long_function(file, &rust.code, start));
        }
    }
    findings
}

/// Complains when the function whose `fn` stands at `start` is too long.
fn long_function(file: &File, code: &str, start: usize) -> Option<Finding> {
    let name_at = start + "fn".len() + code[start + "fn".len()..].find(|c: char| !c.is_whitespace())?;
    if !is_word(code.as_bytes()[name_at]) {
        // A function type, `fn(u8)`, has no body.
        return None;
    }
    let body = body_of(code, name_at)?;
    let inside = code[body..past_closing(code, body)].lines();
    let lines = inside.filter(|line| !line.trim().is_empty()).count().saturating_sub(2);
    let name: String = code[name_at..].chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    (lines > FUNCTION_LINES).then(|| {
        let what = format!("fn {name} has {lines} lines of code, {FUNCTION_LINES} are allowed");
        Finding::at(file, line_of(code, start), what)
    })
}

/// The offset of the brace that opens the function's body; `None` for a declaration.
fn body_of(code: &str, mut at: usize) -> Option<usize> {
    loop {
        match code.as_bytes().get(at)? {
            b'{' => return Some(at),
            b';' => return None,
            b'(' | b'[' => at = past_closing(code, at),
            _ => at += 1,
        }
    }
}

/// Lines of the items under `#[cfg(test)]`.
fn lines_of_tests(rust: &Rust) -> usize {
    rust.tests.iter().map(|range| rust.code[range.clone()].lines().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_long_file_is_found_and_its_tests_do_not_count() {
        let long = "// x\n".repeat(501);
        let fits = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(500), long);
        let findings = planted(
            &[
                ("crates/engine/src/long.rs", &long),
                ("crates/engine/src/fits.rs", &fits),
                ("crates/engine/tests/story.rs", &long),
                ("crates/engine/tests/saga.rs", &"\n".repeat(801)),
            ],
            files,
        );
        assert_eq!(findings, ["crates/engine/src/long.rs:500", "crates/engine/tests/saga.rs:800"]);
    }

    #[test]
    fn a_long_function_is_found() {
        let body = |lines: usize| "    f(\"}\");\n".repeat(lines);
        let text = format!(
            "type F = fn(u8) -> u8;\ntrait T {{ fn none(&self); }}\nfn fits(a: [u8; 4]) {{\n{}\n\n    // x\n}}\nfn long() -> u8 {{\n{}}}\n",
            body(80),
            body(81)
        );
        let findings = planted(&[("crates/engine/src/a.rs", &text)], functions);
        assert_eq!(findings, ["crates/engine/src/a.rs:88"]);
    }
}
