//! Other people's tools read what the server says about itself: promtool its metrics, schemathesis
//! its OpenAPI documents; and others' accounts of Stripe hear what it asks of it. `cargo xtask test contract`
//! installs all but promtool.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../served/mod.rs"]
mod served;
mod stripe;

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use served::{ADMIN, Served, VIEWER, in_repository, request};

/// Longest time for schemathesis to try one document, in seconds; it takes about ten, on a busy machine eighty.
const SCHEMATHESIS_MAX: &str = "160";

/// A program that `cargo xtask test contract` puts there.
fn tool(name: &str) -> PathBuf {
    let path = in_repository("target/contract-tools/bin").join(name);
    assert!(path.exists(), "{} is missing: run `cargo xtask test contract`, which makes it", path.display());
    path
}

fn passed(output: &Output) {
    let text = [&output.stdout[..], &output.stderr].concat();
    assert!(output.status.success(), "{}\n{}", output.status, String::from_utf8_lossy(&text));
}

#[test]
fn promtool_finds_nothing_wrong_with_the_metrics() {
    let server = Served::start();
    let (_, item) = server.open_sale(1, 1);
    for user in ["alice", "bob"] {
        server.buy(&item, user);
    }
    let page = request(server.admin, "GET", "/metrics", Some(VIEWER), None, "");
    assert_eq!(page.status, 200);
    let promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool can be started: it is in the package prometheus");
    promtool.stdin.take().unwrap().write_all(page.body.as_bytes()).unwrap();
    passed(&promtool.wait_with_output().unwrap());
}

#[test]
fn every_example_validates_against_its_schema() {
    let mut check = Command::new(tool("python"));
    check.arg(in_repository("crates/server/tests/contract/examples.py"));
    check.args(["openapi.json", "openapi-admin.json"].map(|name| in_repository("web").join(name)));
    passed(&check.output().unwrap());
}

/// Tries a document's operations with examples, edge cases and random values, and holds every
/// answer against the document.
fn try_out(server: &Served, at: SocketAddr, document: &str, token: &str, examples: &str) {
    let schemathesis = tool("schemathesis");
    let mut run = Command::new("timeout");
    run.arg(SCHEMATHESIS_MAX).arg(schemathesis).arg("--config-file");
    run.arg(in_repository("crates/server/tests/contract/schemathesis.toml"));
    run.arg("run").arg(format!("http://{at}{document}"));
    run.args(["--header", &format!("Authorization: Bearer {token}"), "--max-examples", examples]);
    run.args(["--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color"]);
    // The same requests each time.
    run.arg("--generation-deterministic");
    passed(&run.current_dir(server.folder.path()).output().unwrap());
}

#[test]
fn schemathesis_finds_the_public_listener_as_documented() {
    // A thousand requests a second are many for one user; what a limit answers, tests of its own ask.
    let server = Served::start_with(&["gate.limits.user_rate=0", "gate.limits.other_rate=0"]);
    for limit in [1, 5] {
        server.open_sale(1_000, limit);
    }
    try_out(&server, server.public, "/openapi.json", &server.token("alice"), "25");
}

#[test]
fn schemathesis_finds_the_staffs_listener_as_documented() {
    let server = Served::start();
    server.open_sale(1_000, 1);
    try_out(&server, server.admin, "/admin/openapi.json", ADMIN, "10");
}
