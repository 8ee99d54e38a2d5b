//! Which of our packages may depend on which, by their manifests.

use super::Finding;
use super::tree::Tree;

/// Our packages and those of ours each may depend on. A new package gets its line here.
const PACKAGES: [(&str, &[&str]); 9] = [
    ("doorbuster-wire", &[]),
    // For its tests only.
    ("doorbuster-engine", &["doorbuster-services"]),
    ("doorbuster-loadtest", &["doorbuster-wire"]),
    ("doorbuster-services", &[]),
    ("doorbuster-chaos", &["doorbuster-wire", "doorbuster-loadtest"]),
    // The last two are dependencies of the server's tests only.
    (
        "doorbuster-server",
        &[
            "doorbuster-engine",
            "doorbuster-wire",
            "doorbuster-loadtest",
            "doorbuster-chaos",
            "doorbuster-services",
        ],
    ),
    // The protocol's rules once more, by themselves: a fault of the engine's code cannot hide here.
    ("doorbuster-model", &[]),
    ("doorbuster-fuzz", &["doorbuster-engine", "doorbuster-server"]),
    ("xtask", &["doorbuster-services"]),
];

/// One dependency as a manifest names it.
pub(super) struct Dependency {
    /// The name on the left of the equals sign.
    pub(super) name: String,
    /// The manifest's line, counted from one.
    pub(super) line: usize,
}

/// Our packages depend on each other only as the table above says.
pub(super) fn packages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in tree.files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let Some(package) = package_name(&file.text) else {
            continue;
        };
        let Some((_, allowed)) = PACKAGES.iter().find(|(name, _)| *name == package) else {
            let what = format!("package {package} is not in the table of xtask/src/tidy/manifests.rs");
            findings.push(Finding::at(file, 1, what));
            continue;
        };
        for dependency in dependencies(&file.text) {
            let ours = PACKAGES.iter().any(|(name, _)| *name == dependency.name);
            if ours && !allowed.contains(&dependency.name.as_str()) {
                let what = format!("{package} depends on {}: a wall between packages", dependency.name);
                findings.push(Finding::at(file, dependency.line, what));
            }
        }
    }
    findings
}

/// The dependencies of a manifest, of every section and target.
pub(super) fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut dependencies = Vec::new();
    let mut inside = false;
    for (index, line) in manifest.lines().enumerate() {
        let line_number = index + 1;
        if let Some(section) = line.trim().strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if let Some((_, name)) = section.rsplit_once("dependencies.") {
                dependencies.push(Dependency { name: name.to_owned(), line: line_number });
            }
            continue;
        }
        let name = line.split(['=', '.']).next().unwrap_or_default().trim();
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if inside && line.contains('=') && !name.is_empty() && name.chars().all(plain) {
            dependencies.push(Dependency { name: name.to_owned(), line: line_number });
        }
    }
    dependencies
}

fn package_name(manifest: &str) -> Option<&str> {
    let package = manifest.split("[package]").nth(1)?;
    let name = package.lines().find_map(|line| line.strip_prefix("name"))?;
    name.split('"').nth(1)
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_dependency_through_a_wall_is_found() {
        let findings = planted(
            &[
                (
                    "crates/loadtest/Cargo.toml",
                    "[package]\nname = \"doorbuster-loadtest\"\n\n[dependencies]\n\
                     doorbuster-wire.workspace = true\n\n[dev-dependencies]\n\
                     doorbuster-engine = { path = \"../engine\" }\n",
                ),
                (
                    "crates/wire/Cargo.toml",
                    "[package]\nname = \"doorbuster-wire\"\n[dependencies.doorbuster-engine]\n",
                ),
                ("crates/new/Cargo.toml", "[package]\nname = \"doorbuster-new\"\n"),
            ],
            packages,
        );
        assert_eq!(
            findings,
            ["crates/loadtest/Cargo.toml:8", "crates/new/Cargo.toml:1", "crates/wire/Cargo.toml:3"]
        );
    }

    #[test]
    fn names_are_read_from_every_section() {
        let manifest = "[dependencies]\na = \"1\"\nb.workspace = true\n# c = 1\n[lints]\nd = true\n";
        let names: Vec<String> = dependencies(manifest).into_iter().map(|found| found.name).collect();
        assert_eq!(names, ["a", "b"]);
    }
}
