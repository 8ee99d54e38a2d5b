//! Words that tie the tree to one machine or one network: registry hosts, a machine's own folders.

use super::Finding;
use super::rust::{is_word, line_of};
use super::tree::Tree;

/// Hosts of package registries. Which registry serves a build is the builder's business: a mirror
/// or a proxy is set in the tools' own configuration. (Written in two halves, so that this file
/// passes its own check.)
const HOSTS: [&str; 10] = [
    concat!("index.crates", ".io"),
    concat!("static.crates", ".io"),
    concat!("://crates", ".io"),
    concat!("registry.npmjs", ".org"),
    concat!("registry.yarnpkg", ".com"),
    concat!("pypi", ".org"),
    concat!("files.pythonhosted", ".org"),
    concat!("repo.maven.apache", ".org"),
    concat!("deb.debian", ".org"),
    concat!("proxy.golang", ".org"),
];

/// Folders of the machine somebody worked on.
const FOLDERS: [&str; 2] = [concat!("/wo", "rk"), concat!("/ro", "ot")];

/// No file names a package registry's host.
pub(super) fn hosts(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for host in HOSTS {
            for (at, _) in file.text.match_indices(host) {
                let what = format!("names the registry host {host}: leave that to the tools' configuration");
                findings.push(Finding::at(file, line_of(&file.text, at), what));
            }
        }
    }
    findings
}

/// No file names a folder of the machine it was written on.
pub(super) fn folders(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in &tree.files {
        for folder in FOLDERS {
            for (at, _) in file.text.match_indices(folder) {
                if is_absolute(file.text.as_bytes(), at, folder.len()) {
                    let what = format!("names the folder {folder} of one machine");
                    findings.push(Finding::at(file, line_of(&file.text, at), what));
                }
            }
        }
    }
    findings
}

/// Whether the path at `at` starts there, as in `"/x/y"` and not as in `a/x` or `$HOME/x`, and
/// its first part ends after `length` bytes.
fn is_absolute(text: &[u8], at: usize, length: usize) -> bool {
    let continues = |byte: u8| is_word(byte) || matches!(byte, b'-' | b'.');
    let before = at.checked_sub(1).map(|before| text[before]);
    let inner = before.is_some_and(|byte| continues(byte) || b"/~$})]>*".contains(&byte));
    let longer = text.get(at + length).is_some_and(|&byte| is_word(byte) || byte == b'-');
    !inner && !longer
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_registry_host_is_found() {
        let text = format!("first\nsee https://{}/x\n", HOSTS[3]);
        let findings = planted(&[("web/lock.json", &text), ("a.md", "crates from our registry")], hosts);
        assert_eq!(findings, ["web/lock.json:2"]);
    }

    #[test]
    fn a_folder_of_one_machine_is_found() {
        let [first, second] = FOLDERS;
        let text = format!(
            "cd {first}/main\nopen `{second}`\na{first}/b ~{second} {first}ers ${{HOME}}{first}\n\
             https://example.org{first}/x\n"
        );
        let findings = planted(&[("docs/a.md", &text)], folders);
        assert_eq!(findings, ["docs/a.md:1", "docs/a.md:2"]);
    }
}
