//! Buyers in a real browser: the whole program serves, Node tells the stories in Chromium, and the
//! audit ends them. `cargo xtask test browser` installs what they stand on.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

#[path = "../served/mod.rs"]
mod served;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_services::judge::Judge;
use served::{ADMIN, SECRET, Served, in_repository, request};

/// Longest time for all stories, in seconds; they take about forty.
const STORIES_MAX: &str = "300";

/// How long the books may take to come to rest.
const REST: Duration = Duration::from_secs(30);

#[test]
fn buyers_find_their_way_in_a_browser() {
    for there in ["node_modules/playwright-core", "node_modules/axe-core"] {
        let hint = "is missing: run `cargo xtask test browser --install`, which brings it";
        assert!(folder().join(there).is_dir(), "{there} {hint}");
    }
    let server = Served::start_with(&["payments.provider=sandbox"]);
    tell(&server, "", 10);
    server.stop();

    let judge = Judge::start("a-secret-of-the-shop").unwrap();
    let (siteverify, script) = (judge.siteverify_url(), judge.script_url());
    let server = Served::start_with(&[
        "payments.provider=sandbox",
        "gate.captcha.provider=turnstile",
        "gate.captcha.site_key=a-site",
        "gate.captcha.secret=a-secret-of-the-shop",
        "gate.captcha.hostname=127.0.0.1",
        &format!("gate.captcha.siteverify_url={siteverify}"),
        &format!("gate.captcha.script_url={script}"),
    ]);
    tell(&server, script.trim_end_matches("/api.js"), 2);
    server.stop();
}

fn folder() -> PathBuf {
    in_repository("crates/server/tests/browser")
}

/// Tells the stories of a shop whose captchas are at `judge`, or here if that is empty; more than so many orders
/// come of them.
fn tell(server: &Served, judge: &str, orders: u64) {
    // The time limit ends Node alone, and Chromium goes with whoever started it.
    let stories = Command::new("timeout")
        .args([STORIES_MAX, "node", "--test-reporter=spec"])
        .arg(folder().join("main.mjs"))
        .env("DOORBUSTER_TEST_PUBLIC", format!("http://{}", server.public))
        .env("DOORBUSTER_TEST_ADMIN", format!("http://{}", server.admin))
        .env("DOORBUSTER_TEST_STAFF", ADMIN)
        .env("DOORBUSTER_TEST_SECRET", SECRET)
        .env("DOORBUSTER_TEST_JUDGE", judge)
        .status();
    let stories = stories.expect("node can be started: it is in the package nodejs");
    assert!(stories.success(), "a story did not end well: see above");

    balanced(server, orders);
}

/// Waits until nothing is in flight, and holds the books.
fn balanced(server: &Served, orders: u64) {
    let clock = SystemClock::new();
    let until = clock.now().plus(REST);
    loop {
        let reply = request(server.admin, "GET", "/admin/api/audit", Some(ADMIN), None, "");
        assert_eq!(reply.status, 200, "{reply:?}");
        let report = reply.json();
        if report["atRest"] == true {
            assert_eq!(report["ok"], true, "the books are wrong: {report:#}");
            assert!(report["orders"].as_u64() > Some(orders), "the stories bought: {report:#}");
            return;
        }
        assert!(clock.now() < until, "the shop does not come to rest: {report:#}");
    }
}
