//! Row 6: orders on disk per second, beside refusals of the same server and beside SQLite.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::process::now;
use super::shop::Shop;
use super::wrk::{Press, Requests};

/// More than can be sold while one round lasts.
const UNITS: u64 = 10_000_000;
/// Users of one round: each buys once.
const USERS: u64 = 600_000;
const PRESS: Press = Press { connections: 256, seconds: 5, pin: true };
/// Rows that SQLite commits one by one.
const ROWS: u32 = 5_000;

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let (mut by_refusals, mut by_sqlite) = (Vec::new(), Vec::new());
    let (mut books, mut notes) = (Books::Balanced, Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!("row 6, round {}: orders, refusals, SQLite commits", round + 1));
        let shop = Shop::start(bench, true)?;
        let sold_out = shop.sold_out_sale(100)?.0;
        let sale = shop.sale(1, UNITS)?;
        let tokens = shop.tokens("buyer-", USERS)?;
        let each = Requests::Each { paths: &sale.paths, tokens: &tokens, once: true };
        let orders = bench.wrk().run(shop.address, &each, PRESS)?;
        let recorded = shop.recorded(&sale)?;
        ensure!(orders.refused == 0, "{} orders were refused", orders.refused);
        ensure!(orders.answers < USERS, "the users ran out");

        // The last requests may have been answered after wrk had stopped counting.
        let behind = orders.answers.saturating_sub(recorded);
        let caught_up = shop.settled(&sale, orders.answers)?;
        let token = shop.token("refused")?;
        let same = Requests::Same { path: &sold_out.paths[0], token: &token };
        let refusals = bench.wrk().run(shop.address, &same, PRESS)?;
        if !shop.audit_is_clean()? {
            books = Books::Wrong;
        }
        by_refusals.push((orders.per_second(), Some(refusals.per_second())));
        by_sqlite.push((orders.per_second(), Some(sqlite(shop.folder())?)));
        notes.push(format!(
            "round {}: the recorder was {behind} of {} orders behind at the end and caught up in {caught_up:.1} s",
            round + 1,
            orders.answers
        ));
    }
    let figure = |against, goal, rounds, notes| Figure {
        row: "6",
        what: "durable 202 answers per second over HTTP, one core",
        unit: "/s",
        against,
        goal,
        rounds,
        books,
        notes,
    };
    Ok(vec![
        figure("refusals of the same server", Goal::Times(0.25), by_refusals, notes),
        figure("SQLite, one row a commit, synchronous=FULL", Goal::Times(5.0), by_sqlite, Vec::new()),
    ])
}

/// Single-row commits per second into the same disk.
fn sqlite(folder: &Path) -> Result<f64> {
    let script = folder.join("commits.sql");
    let mut text = String::new();
    for number in 0..ROWS {
        text.push_str(&format!(
            "INSERT INTO orders VALUES ('order-{number:08}', 'user-{number}', 1, 1990);\n"
        ));
    }
    std::fs::write(&script, text)?;
    let base = folder.join("commits.sqlite");
    output_of(Command::new("sqlite3").arg(&base).arg(
        "PRAGMA journal_mode=WAL; CREATE TABLE orders (id TEXT PRIMARY KEY, user TEXT UNIQUE, units INT, price INT);",
    ))?;
    let mut commits = Command::new("sqlite3");
    commits.args(["-cmd", "PRAGMA synchronous=FULL"]).arg(&base);
    commits.stdin(Stdio::from(std::fs::File::open(&script)?));
    let begun = now();
    output_of(&mut commits)?;
    let seconds = begun.elapsed().as_secs_f64();
    let count = output_of(Command::new("sqlite3").arg(&base).arg("SELECT count(*) FROM orders;"))?;
    let count: u32 = count.trim().parse().context("sqlite3 counted nothing")?;
    ensure!(count == ROWS, "SQLite has {count} rows of {ROWS}");
    Ok(f64::from(ROWS) / seconds)
}
