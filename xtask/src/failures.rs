//! The failure matrix: every line with its result.
//!
//! Most lines are told by the program `crates/server/tests/failures` on a whole system of real processes;
//! those that need something special of one server are tests of that backend.

use std::path::Path;

use anyhow::Result;

use crate::areas::TEST;
use crate::named::{self, Line};
use crate::run::{cargo, shown, shown_and_kept};

/// Where the tests of [`LINES`] are, beside the libraries' own.
const TARGETS: [&str; 2] = ["pipeline", "redis_cluster"];

const LINES: &[Line] = &[
    (
        "F6",
        "the producer's queue is full",
        &["queue::kafka::producer::tests::more_orders_than_may_wait_are_refused_at_once"],
    ),
    (
        "F21",
        "a slot of a three-master cluster moves under load",
        &["a_slot_that_moves_under_load_sells_every_unit_once"],
    ),
    ("F26a", "a gateway's clock is wrong", &["a_gateway_whose_clock_is_wrong_opens_with_the_stock"]),
];

/// How the scenarios are run.
pub(crate) struct Plan {
    rounds: u64,
    /// How long the faults of the long lines last, in seconds.
    long_s: u64,
}

/// As the test command runs them: once, and the long lines for as long as shows that they can end.
pub(crate) fn short() -> Plan {
    Plan { rounds: 1, long_s: 6 }
}

/// So many rounds, with faults of five minutes.
pub(crate) fn long(rounds: u64) -> Plan {
    Plan { rounds, long_s: 300 }
}

/// Runs every line, the scenarios by `plan`, and says whether all held; `ends` is as in [`shown_and_kept`].
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path, plan: &Plan, ends: &mut Vec<String>) -> Result<bool> {
    let tests = named::run(root, LINES, &TARGETS, 64)?;
    let mut scenarios = cargo(root, &TEST);
    scenarios.args(["--test", "failures"]).env("DOORBUSTER_FAILURES_ROUNDS", plan.rounds.to_string());
    scenarios.env("DOORBUSTER_FAILURES_LONG_S", plan.long_s.to_string());
    Ok(shown_and_kept(&mut scenarios, ends)? && tests)
}

/// Kills each part so many times in one sale, the broker a fifth of it.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn kill_parts(root: &Path, times: u64) -> Result<bool> {
    let mut scenario = cargo(root, &TEST);
    scenario.args(["--test", "failures", "--", "kills"]).env("DOORBUSTER_FAILURES_KILLS", times.to_string());
    shown(&mut scenario)
}
