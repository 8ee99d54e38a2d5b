//! Row 4: a whole sale, half a million distinct users in two seconds, server and generator as two
//! processes on this machine.

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::nginx::Nginx;
use super::shop::Shop;
use super::wrk::{Press, Requests};

const UNITS: u64 = 10_000;
const USERS: &str = "500000";
const STORM: [&str; 8] = ["--users", USERS, "--window", "2s", "--retries", "0", "--connections", "256"];
const PRESS: Press = Press { connections: 256, seconds: 5, pin: false };

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let (mut whole, mut sell_out) = (Vec::new(), Vec::new());
    let (mut books, mut notes) = (Books::Balanced, Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!("row 4, round {}: {USERS} users, {UNITS} units", round + 1));
        let shop = Shop::start(bench, false)?;
        let sale = shop.sale(1, UNITS)?;
        let report = shop.rehearse(&sale, &STORM, false)?;
        let seconds = report["seconds"].as_f64().context("the report has no seconds")?;
        let sold_in = report["sellOutSeconds"].as_f64().context("the sale did not sell out")?;
        if !balanced(&report) {
            books = Books::Wrong;
        }
        notes.push(format!(
            "round {}: oversold {}, lost {}, duplicates {}, audit {}; generator {} µs of CPU per request",
            round + 1,
            report["oversold"],
            report["lost"],
            report["duplicates"],
            report["audit"],
            report["conditions"]["generatorCpuUsPerAttempt"].as_f64().unwrap_or_default().round(),
        ));
        let nginx = yardstick(bench, &shop)?;
        whole.push((seconds, Some(nginx)));
        sell_out.push((sold_in, None));
    }
    let figure = |what, against, goal, rounds, notes| Figure {
        row: "4",
        what,
        unit: "s",
        against,
        goal,
        rounds,
        books,
        notes,
    };
    Ok(vec![
        figure(
            "whole sale, 500,000 users, 10,000 units",
            "wrk gets 500,000 answers from nginx",
            Goal::AtMostTimes(2.5),
            whole,
            notes,
        ),
        figure("from the first click to the last unit", "", Goal::AtMost(1.0), sell_out, Vec::new()),
    ])
}

/// Whether a rehearsal sold what there was, once.
pub(crate) fn balanced(report: &Value) -> bool {
    let zero = |member: &str| report[member] == 0;
    zero("oversold") && zero("lost") && zero("duplicates") && report["audit"] == "ok"
}

/// Seconds in which wrk gets as many answers from nginx, while our server is idle.
fn yardstick(bench: &Bench, shop: &Shop<'_>) -> Result<f64> {
    let (sale, answer) = shop.sold_out_sale(100)?;
    let nginx = Nginx::start(bench.folder(), &answer, false)?;
    let token = shop.token("refused")?;
    let requests = Requests::Same { path: &sale.paths[0], token: &token };
    let counted = bench.wrk().run(nginx.address, &requests, PRESS)?;
    Ok(USERS.parse::<f64>()? / counted.per_second())
}
