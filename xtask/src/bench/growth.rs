//! Row 8: what grows when the sale grows. The yardstick is the same server with the smaller sale.

use anyhow::{Context as _, Result, ensure};

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::shop::{Sale, Shop};
use super::whole_sale::balanced;
use super::wrk::{Press, Requests};

/// Growth that counts as none.
const LEVEL: Goal = Goal::AtMostTimes(1.1);
const ALONE: &str = "alone";

/// A sale of some size under some number of connections.
#[derive(Clone, Copy)]
struct Size {
    items: usize,
    /// Units of each item.
    units: u64,
    connections: u32,
}

/// One dimension that grows.
struct Dimension {
    what: [&'static str; 2],
    small: Size,
    large: Size,
}

const DIMENSIONS: [Dimension; 3] = [
    Dimension {
        what: ["CPU per answer, 10,000 → 100,000 units", "CPU per order, 10,000 → 100,000 units"],
        small: Size { items: 1, units: 10_000, connections: 50 },
        large: Size { items: 1, units: 100_000, connections: 50 },
    },
    Dimension {
        what: ["CPU per answer, 1 → 100 items", "CPU per order, 1 → 100 items"],
        small: Size { items: 1, units: 50_000, connections: 50 },
        large: Size { items: 100, units: 500, connections: 50 },
    },
    Dimension {
        what: ["CPU per answer, 50 → 5,000 connections", "CPU per order, 50 → 5,000 connections"],
        small: Size { items: 1, units: 100_000, connections: 50 },
        large: Size { items: 1, units: 100_000, connections: 5_000 },
    },
];

/// What one size cost, in microseconds of server CPU.
#[derive(Clone, Copy)]
struct Cost {
    answer: f64,
    order: f64,
    clean: bool,
}

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for Dimension { what, small, large } in DIMENSIONS {
        let mut rounds = Vec::new();
        for round in 0..bench.rounds() {
            bench.say(format!("row 8, round {}: {}", round + 1, what[1]));
            rounds.push((cost(bench, large)?, cost(bench, small)?));
        }
        let clean = rounds.iter().all(|(large, small)| large.clean && small.clean);
        for (what, of) in what.into_iter().zip([|cost: &Cost| cost.answer, |cost: &Cost| cost.order]) {
            figures.push(Figure {
                row: "8",
                what,
                unit: "µs",
                against: "the smaller one",
                goal: LEVEL,
                rounds: rounds.iter().map(|(large, small)| (of(large), Some(of(small)))).collect(),
                books: if clean { Books::Balanced } else { Books::Wrong },
                notes: Vec::new(),
            });
        }
    }
    figures.push(calm_beside_storm(bench)?);
    Ok(figures)
}

/// Sells a sale out, then lets everybody hear that it has.
fn cost(bench: &Bench, size: Size) -> Result<Cost> {
    let shop = Shop::start(bench, true)?;
    // What a server does for the first time is not to count for the smaller sale alone.
    shop.sold_out_sale(2_000)?;
    let sale = shop.sale(size.items, size.units)?;
    let order = shop.sell_out(&sale, size.connections)?.cpu_us_per_order;
    let tokens = shop.tokens("refused", 1_000)?;
    let requests = Requests::Each { paths: &sale.paths, tokens: &tokens, once: false };
    let press = Press { connections: size.connections, seconds: 5, pin: true };
    let before = shop.process.cpu_seconds()?;
    let counted = bench.wrk().run(shop.address, &requests, press)?;
    let cpu = shop.process.cpu_seconds()? - before;
    ensure!(counted.refused == counted.answers, "not every answer was a refusal: {counted:?}");
    Ok(Cost { answer: cpu * 1e6 / counted.answers as f64, order, clean: shop.audit_is_clean()? })
}

/// A storm on one sale and what another sale's buyers notice of it.
fn calm_beside_storm(bench: &Bench) -> Result<Figure> {
    let (mut rounds, mut books) = (Vec::new(), Books::Balanced);
    for round in 0..bench.rounds() {
        bench.say(format!("row 8, round {}: a calm sale beside a storm", round + 1));
        let shop = Shop::start(bench, true)?;
        let stormed = shop.sold_out_sale(100)?.0;
        let alone = calm(&shop, &shop.sale(1, 10_000)?, "alone-", &mut books)?;
        let sale = shop.sale(1, 10_000)?;
        let token = shop.token("refused")?;
        let requests = Requests::Same { path: &stormed.paths[0], token: &token };
        let press = Press { connections: 50, seconds: 600, pin: true };
        let storm = bench.wrk().start(shop.address, &requests, press)?;
        let beside = calm(&shop, &sale, "beside-", &mut books)?;
        drop(storm);
        rounds.push((beside, Some(alone)));
    }
    Ok(Figure {
        row: "8",
        what: "99 % of a calm sale's 202 answers, beside a storm on another sale",
        unit: "ms",
        against: ALONE,
        goal: Goal::AtMostTimes(2.0),
        rounds,
        books,
        notes: vec![
            "1,000 orders/s in an open loop; the storm is 50 connections without pause on a sold-out sale; \
             both generators share the other core, so the calm one also waits for its own turn"
                .to_owned(),
        ],
    })
}

/// The 99th percentile of a calm sale's 202 answers in milliseconds, from the intended moment.
pub(crate) fn calm(shop: &Shop<'_>, sale: &Sale, prefix: &str, books: &mut Books) -> Result<f64> {
    let words = [
        "--users",
        "4000",
        "--window",
        "4s",
        "--retries",
        "0",
        "--connections",
        "64",
        "--user-prefix",
        prefix,
    ];
    let report = shop.rehearse(sale, &words, true)?;
    if !balanced(&report) {
        *books = Books::Wrong;
    }
    report["latencyMs"]["202"]["p99"].as_f64().context("nobody got a 202")
}
