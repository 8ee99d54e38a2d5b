//! Who may import whom: the walls between modules and between packages.

use super::paths::{Mention, mentions, module_of};
use super::rust::{line_of, past_closing, words};
use super::tree::{File, Tree};
use super::{Finding, rust::Rust};

const ENGINE: &str = "crates/engine/src/";

/// The engine's modules that know nothing but each other.
const LEAVES: [&str; 8] = ["order", "member", "block", "sale", "switches", "delivery", "fault", "clock"];
/// What a leaf may use besides the standard library.
const LEAF_LIBRARIES: [&str; 9] =
    ["std", "core", "alloc", "humantime", "ipnet", "serde", "sha2", "thiserror", "uuid"];
/// The stages of the pipeline, in its order.
const STAGES: [&str; 5] = ["gate", "stock", "queue", "ledger", "room"];
/// What composes the stages, by trait and never by backend.
const ABOVE: [&str; 7] = ["engine", "my_orders", "operate", "workers", "observed", "audit", "conformance"];
/// How the type names of backends begin.
const BACKEND_TYPES: [&str; 7] = ["Embedded", "Sqlite", "Redis", "Kafka", "Postgres", "Mysql", "MySql"];
/// The modules of backends within their stage.
const BACKEND_MODULES: [&str; 6] = ["embedded", "redis", "kafka", "sqlite", "postgres", "mysql"];

/// Libraries that belong to one place: the paths, the folders that may use them, the rule.
/// `crates/chaos` is a witness outside the product: it reads the servers themselves, and its buyers
/// are tasks that speak HTTP.
const LIBRARIES: [(&[&str], &[&str], &str); 6] = [
    (
        &["redis"],
        &[
            "crates/engine/src/redis_links/",
            "crates/engine/src/stock/",
            "crates/engine/src/room/",
            "crates/chaos/",
        ],
        "Redis is known in redis_links/, stock/, room/ and by the outside witness only",
    ),
    (&["rdkafka"], &["crates/engine/src/queue/"], "Kafka is known in queue/ only"),
    (
        &["rusqlite", "tokio_postgres", "deadpool_postgres", "mysql_async"],
        &["crates/engine/src/ledger/", "crates/chaos/"],
        "SQL clients are known in ledger/ and by the outside witness only",
    ),
    (
        &["axum", "hyper", "hyper_util"],
        &["crates/server/", "crates/loadtest/", "crates/chaos/"],
        "HTTP is known in the server, the load tester and the outside witness only",
    ),
    (&["stateright"], &["crates/model/"], "the checker is known in the model only"),
    (
        &["tokio::spawn", "tokio::task::spawn", "tokio::task::spawn_local"],
        &[
            "crates/engine/src/workers/mod.rs",
            "crates/server/src/admin/listener.rs",
            "crates/server/src/app.rs",
            "crates/server/src/hot/core.rs",
            "crates/engine/examples/",
            "crates/loadtest/",
            "crates/chaos/",
        ],
        "tasks start in workers/mod.rs, app.rs, hot/core.rs and admin/listener.rs only, behind a permit",
    ),
];

/// Where `cfg(feature` may stand.
const FEATURE_FILES: [&str; 9] = [
    "crates/engine/src/gate/mod.rs",
    "crates/engine/src/stock/mod.rs",
    "crates/engine/src/queue/mod.rs",
    "crates/engine/src/ledger/mod.rs",
    "crates/engine/src/room/mod.rs",
    "crates/engine/src/lib.rs",
    "crates/engine/src/fault_points.rs",
    "crates/server/src/backend.rs",
    "crates/services/src/lib.rs",
];

/// Leaves import the standard library, serde and each other.
pub(super) fn leaves(tree: &Tree) -> Vec<Finding> {
    let libraries = libraries_of_ours(tree);
    let mut findings = Vec::new();
    for (file, rust, layer) in engine_files(tree, &LEAVES) {
        for mention in mentions_of(file, rust) {
            let own = mention.own_module().filter(|module| is_module(module));
            let foreign_module = own.is_some_and(|module| !LEAVES.contains(&module));
            let root = &mention.segments[0];
            let foreign_library = libraries.contains(root) && !LEAF_LIBRARIES.contains(&root.as_str());
            if foreign_module || foreign_library {
                let what = format!(
                    "leaf {layer} mentions {}: leaves know std, serde and each other",
                    mention.text()
                );
                findings.push(Finding::at(file, line_of(&rust.code, mention.at), what));
            }
        }
    }
    findings
}

/// Stages import leaves: never each other, never what composes them.
pub(super) fn stages(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust, stage) in engine_files(tree, &STAGES) {
        for mention in mentions_of(file, rust) {
            let Some(module) = mention.own_module() else {
                continue;
            };
            let foreign = STAGES.contains(&module) || ABOVE.contains(&module);
            if foreign && module != stage {
                let what = format!("stage {stage} mentions {}: stages know the leaves only", mention.text());
                findings.push(Finding::at(file, line_of(&rust.code, mention.at), what));
            }
        }
    }
    findings
}

/// What composes the stages never names a backend outside its tests.
pub(super) fn backends_unnamed(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust, layer) in engine_files(tree, &ABOVE) {
        let production = rust.production();
        let mut found: Vec<(usize, String)> = Vec::new();
        for prefix in BACKEND_TYPES {
            for at in type_names(&production, prefix) {
                found.push((
                    at,
                    production[at..]
                        .split(|c: char| !c.is_alphanumeric())
                        .next()
                        .unwrap_or(prefix)
                        .to_owned(),
                ));
            }
        }
        for mention in mentions_of(file, rust) {
            if let [_, stage, backend, ..] = mention.segments.as_slice()
                && STAGES.contains(&stage.as_str())
                && BACKEND_MODULES.contains(&backend.as_str())
            {
                found.push((mention.at, mention.text()));
            }
        }
        for (at, name) in found {
            let what = format!("{layer} names the backend {name}: compose stages by trait");
            findings.push(Finding::at(file, line_of(&rust.code, at), what));
        }
    }
    findings
}

/// Clients of outside systems, HTTP and the starting of tasks each have their place.
pub(super) fn libraries(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (file, rust) in tree.rust().filter(|(file, _)| !file.is_test()) {
        for mention in mentions_of(file, rust) {
            for (paths, places, rule) in LIBRARIES {
                let meant = paths.iter().any(|path| mention.starts_with(path));
                if meant && !places.iter().any(|place| file.path.starts_with(place)) {
                    let what = format!("{}: {rule}", mention.text());
                    findings.push(Finding::at(file, line_of(&rust.code, mention.at), what));
                }
            }
        }
    }
    findings
}

/// `cfg(feature` stands where backends are chosen, and nowhere else.
pub(super) fn features(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    let elsewhere = |file: &File| !FEATURE_FILES.contains(&file.path.as_str());
    for (file, rust) in tree.rust().filter(|(file, _)| elsewhere(file)) {
        for opening in ["cfg(", "cfg!(", "cfg_attr("] {
            for at in words(&rust.code, opening) {
                let condition = &rust.code[at..past_closing(&rust.code, at + opening.len() - 1)];
                if words(condition, "feature").next().is_some() {
                    let what = "cfg(feature) stands in a stage's mod.rs, lib.rs and backend.rs only";
                    findings.push(Finding::at(file, line_of(&rust.code, at), what));
                }
            }
        }
    }
    findings
}

/// The files of the engine's top modules named in `modules`, each with the name of its module.
fn engine_files<'a>(
    tree: &'a Tree,
    modules: &'a [&'a str],
) -> impl Iterator<Item = (&'a File, &'a Rust, String)> {
    tree.rust().filter_map(|(file, rust)| {
        let module = module_of(&file.path).into_iter().next()?;
        let wanted = file.path.starts_with(ENGINE) && modules.contains(&module.as_str());
        let test = file.path.ends_with("/tests.rs");
        (wanted && !test).then_some((file, rust, module))
    })
}

fn mentions_of(file: &File, rust: &Rust) -> Vec<Mention> {
    mentions(&rust.production(), &module_of(&file.path))
}

/// Whether `name`, right under the crate's root, is a module and not a re-exported type.
fn is_module(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_lowercase())
}

/// Offsets of the type names that begin with `prefix`: `RedisStock`, but not `Redistribution`.
fn type_names<'a>(code: &'a str, prefix: &'a str) -> impl Iterator<Item = usize> + 'a {
    code.match_indices(prefix).map(|(at, _)| at).filter(move |&at| {
        let inside_word = at > 0 && super::rust::is_word(code.as_bytes()[at - 1]);
        let next = code.as_bytes().get(at + prefix.len());
        !inside_word && next.is_some_and(u8::is_ascii_uppercase)
    })
}

/// The names, as code writes them, of every library the workspace depends on.
fn libraries_of_ours(tree: &Tree) -> Vec<String> {
    let manifests = tree.files.iter().filter(|file| file.path.ends_with("Cargo.toml"));
    let dependencies = manifests.flat_map(|file| super::manifests::dependencies(&file.text));
    dependencies.map(|dependency| dependency.name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::planted;
    use super::*;

    #[test]
    fn a_leaf_that_imports_a_stage_or_a_library_is_found() {
        let findings = planted(
            &[
                ("Cargo.toml", "[workspace.dependencies]\ntokio = \"1\"\nserde = \"1\"\n"),
                (
                    "crates/engine/src/order.rs",
                    "use serde::Serialize;\nuse crate::stock::Level;\nuse crate::sale::SaleId;\n\
                     fn f() { tokio::task::yield_now(); }\n\
                     #[cfg(test)]\nmod tests { use crate::stock::Level; }\n",
                ),
            ],
            leaves,
        );
        assert_eq!(findings, ["crates/engine/src/order.rs:2", "crates/engine/src/order.rs:4"]);
    }

    #[test]
    fn a_stage_that_imports_a_stage_or_the_engine_is_found() {
        let findings = planted(
            &[
                ("crates/engine/src/stock/mod.rs", "use super::queue::Queue;\nuse self::batch::B;\n"),
                (
                    "crates/engine/src/stock/batch.rs",
                    "// crate::ledger\nuse crate::{\n    order::Id,\n    ledger::Orders,\n};\n",
                ),
                ("crates/engine/src/ledger/sqlite/rows.rs", "fn f() { crate::engine::g() }\n"),
                ("crates/engine/src/queue/mod.rs", "use crate::queue::embedded::Log;\n"),
            ],
            stages,
        );
        assert_eq!(
            findings,
            [
                "crates/engine/src/ledger/sqlite/rows.rs:1",
                "crates/engine/src/stock/batch.rs:4",
                "crates/engine/src/stock/mod.rs:1",
            ]
        );
    }

    #[test]
    fn a_backend_named_above_the_stages_is_found() {
        let findings = planted(
            &[
                ("crates/engine/src/engine.rs", "fn f(stock: RedisStock) {}\n// KafkaQueue\n"),
                (
                    "crates/engine/src/workers/record.rs",
                    "use crate::queue::embedded::log;\nstruct Redistribution;\n\
                     #[cfg(test)]\nmod tests { use crate::stock::EmbeddedStock; }\n",
                ),
            ],
            backends_unnamed,
        );
        assert_eq!(findings, ["crates/engine/src/engine.rs:1", "crates/engine/src/workers/record.rs:1"]);
    }

    #[test]
    fn a_library_outside_its_place_is_found() {
        let findings = planted(
            &[
                ("crates/engine/src/stock/redis.rs", "use redis::Script;\n"),
                ("crates/engine/src/queue/kafka.rs", "use redis::Script;\nuse rdkafka::Message;\n"),
                ("crates/engine/src/engine.rs", "use hyper::Request;\nfn f() { rusqlite::f() }\n"),
                ("crates/server/src/api/mod.rs", "use tokio::{net, spawn};\nuse axum::Router;\n"),
                ("crates/server/src/app.rs", "fn f() { tokio::spawn(g()); }\n"),
                ("crates/server/tests/story.rs", "fn f() { tokio::spawn(g()); }\n"),
            ],
            libraries,
        );
        assert_eq!(
            findings,
            [
                "crates/engine/src/engine.rs:1",
                "crates/engine/src/engine.rs:2",
                "crates/engine/src/queue/kafka.rs:1",
                "crates/server/src/api/mod.rs:1",
            ]
        );
    }

    #[test]
    fn a_feature_outside_the_choosing_files_is_found() {
        let findings = planted(
            &[
                ("crates/engine/src/stock/mod.rs", "#[cfg(feature = \"redis\")]\nmod redis;\n"),
                ("crates/engine/src/engine.rs", "#[cfg(any(test, feature = \"x\"))]\nfn f() {}\n"),
                ("crates/server/src/app.rs", "#[cfg(test)]\nfn feature() {}\n"),
            ],
            features,
        );
        assert_eq!(findings, ["crates/engine/src/engine.rs:1"]);
    }
}
