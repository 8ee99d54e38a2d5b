//! Row 1: what a sold-out answer costs, beside nginx giving the same one; once with an access token alone, and once
//! where the whole gate is on and everybody shows a sale token.

use anyhow::{Result, ensure};

use super::Bench;
use super::answer::Answer;
use super::figure::{Books, Figure, Goal};
use super::nginx::Nginx;
use super::process::Running;
use super::shop::Shop;
use super::wrk::{Press, Requests};

const PRESS: Press = Press { connections: 50, seconds: 5, pin: true };
const GOAL: f64 = 0.85;
const NAMES: [&str; 2] = ["server CPU per sold-out answer", "sold-out answers per second, one core"];
const GATED_NAMES: [&str; 2] = [
    "the same with the whole gate on, by sale token: server CPU per answer",
    "the same with the whole gate on, by sale token: answers per second",
];
/// Users who click in turn: each of them less often than the limit allows.
const GATED_USERS: usize = 64;

/// One side of one round.
struct Side {
    cpu_us: f64,
    per_second: f64,
    busy: f64,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let shop = Shop::start(bench, true)?;
    let (sale, answer) = shop.sold_out_sale(100)?;
    let token = shop.token("refused")?;
    let requests = Requests::Same { path: &sale.paths[0], token: &token };
    let mut figures = measured(bench, &shop, &answer, &requests, &NAMES)?;
    drop(shop);

    let shop = Shop::start_gated(bench)?;
    let (sale, answer) = shop.sold_out_sale(100)?;
    let tokens = shop.gated(&sale, GATED_USERS)?;
    let requests = Requests::Each { paths: &sale.paths, tokens: &tokens, once: false };
    figures.extend(measured(bench, &shop, &answer, &requests, &GATED_NAMES)?);
    Ok(figures)
}

/// Lets nginx and the server in turn give the same answer to the same requests.
fn measured(
    bench: &Bench,
    shop: &Shop<'_>,
    answer: &Answer,
    requests: &Requests<'_>,
    names: &[&'static str; 2],
) -> Result<Vec<Figure>> {
    let nginx = Nginx::start(bench.folder(), answer, true)?;
    let mut rounds = Vec::new();
    for round in 0..bench.rounds() {
        bench.say(format!("row 1, {}, round {}: the same refusal from both", names[0], round + 1));
        let ours = side(bench, shop.address, &shop.process, requests)?;
        let theirs = side(bench, nginx.address, &nginx.process, requests)?;
        rounds.push((ours, theirs));
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    let figure = |what, unit, goal, of: fn(&Side) -> f64| Figure {
        row: "1",
        what,
        unit,
        against: "nginx `return 410`",
        goal,
        rounds: rounds.iter().map(|(ours, theirs)| (of(ours), Some(of(theirs)))).collect(),
        books: Books::Unasked,
        notes: vec![
            format!("its core was busy: ours {}, nginx {}", busy(&rounds, 0), busy(&rounds, 1)),
            format!("load average behind it: {load}"),
        ],
    };
    Ok(vec![
        figure(names[0], "µs", Goal::Thrift(GOAL), |side| side.cpu_us),
        figure(names[1], "/s", Goal::Times(GOAL), |side| side.per_second),
    ])
}

fn busy(rounds: &[(Side, Side)], which: usize) -> String {
    let shares = rounds.iter().map(|(ours, theirs)| if which == 0 { ours.busy } else { theirs.busy });
    shares.map(|share| format!("{:.0} %", share * 100.0)).collect::<Vec<_>>().join(", ")
}

fn side(
    bench: &Bench,
    address: std::net::SocketAddr,
    process: &Running,
    requests: &Requests<'_>,
) -> Result<Side> {
    let before = process.cpu_seconds()?;
    let counted = bench.wrk().run(address, requests, PRESS)?;
    let cpu = process.cpu_seconds()? - before;
    ensure!(counted.refused == counted.answers, "not every answer was a refusal: {counted:?}");
    Ok(Side {
        cpu_us: cpu * 1e6 / counted.answers as f64,
        per_second: counted.per_second(),
        busy: cpu / counted.seconds,
    })
}
