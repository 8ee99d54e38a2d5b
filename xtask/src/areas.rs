//! The areas of the test command: what each runs, and what it needs.

use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};

use crate::requirements::{CHROMIUM, GIT, NODE, NPM, PROMTOOL, PYTHON, Requirement};
use crate::services::{self, Service};
use crate::tidy::TOOLS;

/// One area of the tests.
pub(crate) struct Area {
    /// Its name on the command line.
    pub(crate) name: &'static str,
    /// What passing it shows.
    pub(crate) shows: &'static str,
    /// The outside programs it needs.
    pub(crate) requirements: &'static [&'static Requirement],
    /// The servers its tests run against.
    pub(crate) services: &'static [&'static Service],
    /// Its steps, all of which run; an error says which of its files are not there.
    pub(crate) steps: fn(&Path) -> Result<Vec<Step>>,
}

/// One step of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The house rules.
    Tidy,
    /// A cargo command that succeeds.
    Cargo(Vec<String>),
    /// The same, with the stories told on these backends.
    On(&'static str, Vec<String>),
    /// A small sale by processes in roles, with the tests' build.
    Stage,
    /// A virtual environment of Python tools, by the file that pins them.
    Venv(&'static str),
    /// A Go program beside the Python tools, by its module and version.
    Go(&'static str),
    /// The Node libraries that a folder's lock file pins.
    Npm(&'static str),
    /// The hostile requests, by their ids.
    Security,
    /// The failure matrix, line by line.
    Failures,
    /// A demo, the release build of which sells out and whose books balance.
    Demo,
}

/// Every area, in the order in which they run: the cheapest that can fail comes first.
pub(crate) const AREAS: &[Area] = &[
    Area {
        name: "tidy",
        shows: "the house rules hold: walls, sizes, links, layout, lints, documentation",
        requirements: &[&GIT, &TOOLS[0], &TOOLS[1], &TOOLS[2]],
        services: &[],
        steps: |_| Ok(vec![Step::Tidy]),
    },
    Area {
        name: "unit",
        shows: "each part alone does what its documentation says",
        requirements: &[],
        services: &[],
        steps: unit,
    },
    Area {
        name: "conformance",
        shows: "every backend keeps every promise of its trait",
        requirements: &[],
        services: services::ALL,
        steps: |root| Ok(vec![chosen(root, "crates/engine", in_conformance, &[])?]),
    },
    Area {
        name: "simulation",
        shows: "1,200 seeds of operations and faults break no invariant, and notice planted faults",
        requirements: &[],
        services: &[],
        steps: |root| Ok(vec![chosen(root, "crates/engine", |test| test == "simulation", &["--nocapture"])?]),
    },
    Area {
        name: "model",
        shows: "every order of the protocol's steps within a scope keeps its invariants; planted faults do not",
        requirements: &[],
        services: &[],
        steps: |root| Ok(vec![chosen(root, "crates/model", |_| true, &["--nocapture"])?]),
    },
    Area {
        name: "distributed",
        shows: "several processes that share Redis, Kafka and PostgreSQL lose nothing and repeat nothing",
        requirements: &[],
        services: services::ALL,
        steps: distributed,
    },
    Area {
        name: "http",
        shows: "stories told over real HTTP end with balanced books",
        requirements: &[],
        services: &[],
        steps: |root| Ok(vec![chosen(root, "crates/server", in_http, &[])?]),
    },
    Area {
        name: "contract",
        shows: "other people's tools find the metrics and the HTTP API to be as documented, and what Stripe is asked",
        requirements: &[&PROMTOOL, &PYTHON],
        services: &[],
        steps: |root| {
            let stories = chosen(root, "crates/server", |test| test == "contract", &[])?;
            Ok(vec![Step::Venv(TOOLS_PINNED), Step::Go(STRIPE_MOCK), stories])
        },
    },
    Area {
        name: "browser",
        shows: "buyers find their way in a real browser, by keyboard too, and no page has a barrier",
        requirements: &[&CHROMIUM, &NODE, &NPM],
        services: &[],
        steps: |root| {
            let stories = chosen(root, "crates/server", |test| test == "browser", &["--nocapture"])?;
            Ok(vec![Step::Npm(BROWSER_PINNED), stories])
        },
    },
    Area {
        name: "security",
        shows: "hostile requests are answered as documented, listed by their ids",
        requirements: &[],
        services: &[],
        steps: |_| Ok(vec![Step::Security]),
    },
    Area {
        name: "fuzz",
        shows: "bytes from outside are answered as documented: kept inputs, and random changes of them",
        requirements: &[],
        services: &[],
        steps: |root| Ok(vec![chosen(root, "fuzz", |_| true, &[])?]),
    },
    Area {
        name: "kill",
        shows: "a server killed in the middle of a sale loses and oversells nothing",
        requirements: &[],
        services: &[],
        steps: |root| Ok(vec![chosen(root, "crates/server", |test| test == "kill", &["--nocapture"])?]),
    },
    Area {
        name: "failures",
        shows: "killed, frozen, cut off and forgetful servers and processes cost time, never a unit or an order",
        requirements: services::PROGRAMS,
        services: &[],
        steps: |_| Ok(vec![Step::Failures]),
    },
    Area {
        name: "demo",
        shows: "the release binary sells out a whole sale, and the audit agrees",
        requirements: &[],
        services: &[],
        steps: demo,
    },
];

/// The Python tools of the area `contract`.
const TOOLS_PINNED: &str = "crates/server/tests/contract/requirements.txt";

/// Stripe's own check of requests, by the description of its API.
const STRIPE_MOCK: &str = "github.com/stripe/stripe-mock@v0.203.0";

/// The Node libraries of the area `browser`.
const BROWSER_PINNED: &str = "crates/server/tests/browser";

/// Whether a test of the engine is about several processes at once.
fn in_distributed(test: &str) -> bool {
    ["brokers", "recorders"].contains(&test)
}

/// Whether a test of the engine is about one backend, or what stands on one of each.
fn in_conformance(test: &str) -> bool {
    test != "simulation" && !in_distributed(test)
}

/// Whether a test of the server tells a story of its own, without an area of its own.
fn in_http(test: &str) -> bool {
    !["browser", "contract", "failures", "kill"].contains(&test) && !in_roles(test)
}

/// Whether a test of the server is about processes that share servers.
fn in_roles(test: &str) -> bool {
    ["outside_books", "roles", "servers"].contains(&test)
}

/// Whether a test of the proxy is between real clients and real servers.
fn in_proxy_servers(test: &str) -> bool {
    test == "proxy_servers"
}

/// Whether a test of the server tells what buyers and staff see, whatever the backends are.
fn on_every_backend(test: &str) -> bool {
    [
        "orders",
        "outgoing",
        "payments",
        "providers",
        "purchase",
        "refusals",
        "sales",
        "staff_keys",
        "strikes",
        "switches",
    ]
    .contains(&test)
}

/// The proxy, engine and server on the three servers, the small set-up with a Redis alone, and a whole sale.
fn distributed(root: &Path) -> Result<Vec<Step>> {
    let on = |backends, wanted| -> Result<Step> {
        match chosen(root, "crates/server", wanted, &[])? {
            Step::Cargo(arguments) => Ok(Step::On(backends, arguments)),
            other => Ok(other),
        }
    };
    Ok(vec![
        // First, since tests of the server stand on it.
        chosen(root, "crates/chaos", in_proxy_servers, &[])?,
        chosen(root, "crates/engine", in_distributed, &[])?,
        chosen(root, "crates/server", in_roles, &[])?,
        on("redis,kafka,postgres", on_every_backend)?,
        on("redis", |test| test == "restart")?,
        Step::Stage,
    ])
}

/// What every test build has in common. All areas build the whole workspace's selection with all
/// backends, even where they run one package or the embedded engine: cargo unites features over the
/// selected packages, and another selection would build the libraries once more.
pub(crate) const TEST: [&str; 5] =
    ["test", "--workspace", "--features=distributed,fault-points", "--locked", "--no-fail-fast"];

fn unit(root: &Path) -> Result<Vec<Step>> {
    ensure!(root.join("crates").is_dir(), "there is no folder crates");
    let mut steps = vec![test(&["--lib", "--bins"]), test(&["--doc"])];
    for package in ["crates/wire", "crates/loadtest"] {
        // These may go without integration tests: their promises are tested beside the code.
        if !integration_tests(root, package)?.is_empty() {
            steps.push(chosen(root, package, |_| true, &[])?);
        }
    }
    steps.push(chosen(root, "crates/chaos", |test| !in_proxy_servers(test), &[])?);
    Ok(steps)
}

fn demo(root: &Path) -> Result<Vec<Step>> {
    ensure!(root.join("crates/server/Cargo.toml").is_file(), "there is no package crates/server");
    Ok(vec![Step::Demo])
}

fn test(arguments: &[&str]) -> Step {
    Step::Cargo(TEST.iter().chain(arguments).map(|&word| word.to_owned()).collect())
}

/// The step that runs the integration tests of `package` that `wanted` chooses by name.
fn chosen(root: &Path, package: &str, wanted: fn(&str) -> bool, for_tests: &[&str]) -> Result<Step> {
    let mut names = integration_tests(root, package)?;
    names.retain(|name| wanted(name));
    if names.is_empty() {
        bail!("there is no file for this area in {package}/tests: an area without tests fails");
    }
    only_here(root, package, &names)?;

    let mut arguments: Vec<&str> = names.iter().flat_map(|name| ["--test", name]).collect();
    if !for_tests.is_empty() {
        arguments.push("--");
        arguments.extend(for_tests);
    }
    Ok(test(&arguments))
}

/// Fails when another package has an integration test of the same name: tests are chosen by name.
fn only_here(root: &Path, package: &str, names: &[String]) -> Result<()> {
    for folder in subfolders(root, "crates")? {
        let other = format!("crates/{folder}");
        let twins = integration_tests(root, &other)?.into_iter().filter(|name| names.contains(name));
        if let Some(twin) = twins.into_iter().next().filter(|_| other != package) {
            bail!("{package} and {other} both have tests/{twin}.rs: tests are chosen by name, rename one");
        }
    }
    Ok(())
}

/// The names of a package's integration tests: `tests/<name>.rs` and `tests/<name>/main.rs`.
fn integration_tests(root: &Path, package: &str) -> Result<Vec<String>> {
    let folder = format!("{package}/tests");
    let mut names = Vec::new();
    if !root.join(&folder).is_dir() {
        return Ok(names);
    }
    for entry in root.join(&folder).read_dir().with_context(|| format!("listing {folder}"))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".rs") {
            names.push(name.to_owned());
        } else if entry.path().join("main.rs").is_file() {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn subfolders(root: &Path, folder: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in root.join(folder).read_dir().with_context(|| format!("listing {folder}"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tree(files: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        for file in files {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().expect("a file has a folder")).expect("can be made");
            fs::write(path, "").expect("can be written");
        }
        folder
    }

    fn steps(name: &str, root: &Path) -> Result<Vec<Step>> {
        let area = AREAS.iter().find(|area| area.name == name).expect("the area exists");
        (area.steps)(root)
    }

    #[test]
    fn an_area_without_files_is_an_error() {
        let root = tree(&["crates/server/tests/shop/mod.rs"]);
        for area in
            ["unit", "conformance", "model", "distributed", "http", "contract", "browser", "kill", "demo"]
        {
            assert!(steps(area, root.path()).is_err(), "{area}");
        }
    }

    #[test]
    fn tests_are_chosen_by_area() {
        let root = tree(&[
            "crates/engine/tests/backends.rs",
            "crates/engine/tests/recorders.rs",
            "crates/engine/tests/simulation/main.rs",
            "crates/model/tests/scopes.rs",
            "crates/server/tests/browser/main.rs",
            "crates/server/tests/kill.rs",
            "crates/server/tests/buying.rs",
            "crates/server/tests/contract/main.rs",
            "crates/server/tests/paying/main.rs",
            "crates/server/tests/roles.rs",
            "crates/server/tests/shop/mod.rs",
        ]);
        let conformance = steps("conformance", root.path()).expect("files are there");
        assert_eq!(conformance, [test(&["--test", "backends"])]);
        let http = steps("http", root.path()).expect("files are there");
        assert_eq!(http, [test(&["--test", "buying", "--test", "paying"])]);
        let contract = steps("contract", root.path()).expect("files are there");
        assert_eq!(
            contract,
            [Step::Venv(TOOLS_PINNED), Step::Go(STRIPE_MOCK), test(&["--test", "contract"])]
        );
        let browser = steps("browser", root.path()).expect("files are there");
        assert_eq!(browser, [Step::Npm(BROWSER_PINNED), test(&["--test", "browser", "--", "--nocapture"])]);
        let model = steps("model", root.path()).expect("files are there");
        assert_eq!(model, [test(&["--test", "scopes", "--", "--nocapture"])]);
        let kill = steps("kill", root.path()).expect("files are there");
        assert_eq!(kill, [test(&["--test", "kill", "--", "--nocapture"])]);
    }

    #[test]
    fn stories_are_told_again_on_servers() {
        let stories = ["purchase", "refusals", "restart", "roles"];
        let mut files: Vec<String> =
            stories.iter().map(|name| format!("crates/server/tests/{name}.rs")).collect();
        files.push("crates/engine/tests/recorders.rs".to_owned());
        files.push("crates/chaos/tests/proxy_servers/main.rs".to_owned());
        let root = tree(&files.iter().map(String::as_str).collect::<Vec<_>>());
        let on = |backends, names: &[&str]| match test(names) {
            Step::Cargo(arguments) => Step::On(backends, arguments),
            other => other,
        };
        assert_eq!(
            steps("distributed", root.path()).expect("files are there"),
            [
                test(&["--test", "proxy_servers"]),
                test(&["--test", "recorders"]),
                test(&["--test", "roles"]),
                on("redis,kafka,postgres", &["--test", "purchase", "--test", "refusals"]),
                on("redis", &["--test", "restart"]),
                Step::Stage,
            ]
        );
    }

    #[test]
    fn twin_names_are_an_error() {
        let root = tree(&["crates/engine/tests/story.rs", "crates/server/tests/story.rs"]);
        let error = steps("conformance", root.path()).expect_err("the names collide");
        assert!(error.to_string().contains("rename one"), "{error}");
    }

    #[test]
    fn unit_runs_the_integration_tests_of_wire_and_loadtest_where_there_are_some() {
        let root =
            tree(&["crates/loadtest/tests/plan.rs", "crates/wire/src/lib.rs", "crates/chaos/tests/proxy.rs"]);
        let unit = steps("unit", root.path()).expect("files are there");
        let own = [test(&["--test", "plan"]), test(&["--test", "proxy"])];
        assert_eq!(unit, [&[test(&["--lib", "--bins"]), test(&["--doc"])], &own[..]].concat());
    }
}
