//! The failure matrix: every line with its result.
//!
//! Most lines are told by the program `crates/server/tests/failures` on a whole system of real processes;
//! those that need something special of one server are tests of that backend.

use std::path::Path;

use anyhow::Result;

use crate::areas::TEST;
use crate::named::{self, Line};
use crate::run::{cargo, shown};

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
    ("F26", "a gateway's clock is wrong", &["a_gateway_whose_clock_is_wrong_opens_with_the_stock"]),
];

/// Runs every line, each `rounds` times where it is a scenario, and says whether all held.
///
/// # Errors
/// cargo cannot be started.
pub(crate) fn run(root: &Path, rounds: u64) -> Result<bool> {
    let tests = named::run(root, LINES, &TARGETS, 64)?;
    let mut scenarios = cargo(root, &TEST);
    scenarios.args(["--test", "failures"]).env("DOORBUSTER_FAILURES_ROUNDS", rounds.to_string());
    Ok(shown(&mut scenarios)? && tests)
}
