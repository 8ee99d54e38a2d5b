//! The commented default configuration.

use super::Finding;
use super::tree::{File, Tree};

const NAME: &str = "config.default.toml";

/// Every key of the default configuration has a comment right above it.
pub(super) fn keys_explained(tree: &Tree) -> Vec<Finding> {
    let named = |file: &&File| file.path.rsplit('/').next() == Some(NAME);
    let mut files = tree.files.iter().filter(named).peekable();
    if files.peek().is_none() {
        return vec![Finding { path: NAME.to_owned(), line: 1, what: "does not exist".to_owned() }];
    }
    files.flat_map(unexplained).collect()
}

fn unexplained(file: &File) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut above = "";
    let mut open_brackets = 0_usize;
    for (index, line) in file.text.lines().map(str::trim).enumerate() {
        let key = key_of(line);
        if let Some(key) = key
            && open_brackets == 0
            && !above.starts_with('#')
        {
            let what = format!("key {key} has no comment above it: its meaning, unit and limits");
            findings.push(Finding::at(file, index + 1, what));
        }
        if !line.starts_with('#') && (key.is_some() || open_brackets > 0) {
            // Lines inside a list that goes over several lines are values, not keys.
            open_brackets += line.matches(['[', '{']).count();
            open_brackets = open_brackets.saturating_sub(line.matches([']', '}']).count());
        }
        above = line;
    }
    findings
}

/// The key that a line sets.
fn key_of(line: &str) -> Option<&str> {
    if line.starts_with(['#', '[']) {
        return None;
    }
    line.split_once('=').map(|(key, _)| key.trim())
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_key_without_a_comment_is_found() {
        let text = "[server]\n# Where it listens.\nlisten = \"127.0.0.1:8080\"\nbare = 1\n\
                    # A list.\nlist = [\n    { a = 1 },\n]\n\nafter = \"[\"\n";
        let findings = planted(&[("config.default.toml", text)], keys_explained);
        assert_eq!(findings, ["config.default.toml:10", "config.default.toml:4"]);
    }

    #[test]
    fn a_missing_default_configuration_is_found() {
        assert_eq!(planted(&[], keys_explained), ["config.default.toml:1"]);
    }
}
