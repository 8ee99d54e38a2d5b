//! Relative links in the documents that lead nowhere.

use std::path::Path;

use super::Finding;
use super::tree::Tree;

/// Every relative link of a Markdown file leads to a file or folder.
pub(super) fn links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.with_extension(&["md"]) {
        let folder = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for (line, target) in relative_links(&file.text) {
            let path = target.split(['#', '?']).next().unwrap_or_default();
            let from = if path.starts_with('/') { Path::new("") } else { folder };
            let full = tree.root.join(from).join(path.trim_start_matches('/'));
            if !path.is_empty() && !full.exists() {
                findings.push(Finding::at(file, line, format!("dead link: {target}")));
            }
        }
    }
    findings
}

/// The relative targets of a Markdown text with their lines; code is left out.
fn relative_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") || line.trim_start().starts_with("~~~") {
            fenced = !fenced;
            continue;
        }
        if fenced {
            continue;
        }
        let prose = without_code(line);
        let inline = prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let defined = prose.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
        for target in inline.chain(defined.map(|(_, target)| target)) {
            // A title may follow the target; angle brackets may stand around it.
            let target = target.split_whitespace().next().unwrap_or_default();
            let target = target.trim_start_matches('<').trim_end_matches('>');
            if !is_outside(target) {
                links.push((index + 1, target.to_owned()));
            }
        }
    }
    links
}

/// Whether the target has a scheme, as `https:` and `mailto:` have.
fn is_outside(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| scheme.chars().all(|c| c.is_ascii_alphanumeric()))
}

/// The line without its `code spans`.
fn without_code(line: &str) -> String {
    let parts: Vec<&str> = line.split('`').collect();
    // With an odd number of ticks the last one opens nothing.
    let closed = parts.len() - usize::from(parts.len().is_multiple_of(2));
    let prose = parts.iter().enumerate().filter(|(index, _)| index % 2 == 0 || *index >= closed);
    prose.map(|(_, part)| *part).collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_dead_link_is_found() {
        let text = "[here](run.md#part) [gone](lost.md) [web](https://example.org/x)\n\
                    [up](../README.md \"title\") [root](/docs) [anchor](#x) `[code](no.md)`\n\
                    ```\n[fence](no.md)\n```\n\n[defined]: nowhere.md\n![picture](gone.svg)\n";
        let findings =
            planted(&[("README.md", "[docs](docs/run.md)"), ("docs/run.md", ""), ("docs/a.md", text)], links);
        assert_eq!(findings, ["docs/a.md:1", "docs/a.md:7", "docs/a.md:8"]);
    }
}
