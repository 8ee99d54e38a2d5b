//! Row 3: orders recorded in PostgreSQL, beside the article's transaction per message and beside COPY of
//! the same rows.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;
use serde_json::Value;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::process::now;
use crate::services::{Lent, POSTGRES};

/// Orders of one run of ours.
const ORDERS: u64 = 200_000;
/// Seconds of one run of the article's transaction, and its clients.
const ARTICLE_SECONDS: &str = "5";
const ARTICLE_CLIENTS: &str = "8";

/// The tables of the article.
const ARTICLE_TABLES: &str = "\
DROP TABLE IF EXISTS flash_sale_order; DROP TABLE IF EXISTS flash_sale_item; \
CREATE TABLE flash_sale_item (id bigint PRIMARY KEY, quantity int NOT NULL, sold int NOT NULL DEFAULT 0, \
CHECK (sold <= quantity)); \
CREATE TABLE flash_sale_order (id uuid PRIMARY KEY, item_id bigint NOT NULL REFERENCES flash_sale_item (id), \
user_id bigint NOT NULL, status text NOT NULL, created_at timestamptz NOT NULL DEFAULT now(), \
UNIQUE (item_id, user_id)); \
INSERT INTO flash_sale_item VALUES (1, 2000000000)";
/// What the article's consumer does with one message.
const ARTICLE: &str = "\
\\set user random(1, 1000000000000)
BEGIN;
INSERT INTO flash_sale_order (id, item_id, user_id, status) VALUES (gen_random_uuid(), 1, :user, 'PENDING') ON CONFLICT DO NOTHING;
UPDATE flash_sale_item SET sold = sold + 1 WHERE id = 1 AND sold < quantity;
COMMIT;
";

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let record = build(bench)?;
    let mut lent = Lent::new(bench.root(), false);
    ensure!(lent.ensure(&[&POSTGRES])?, "there is no PostgreSQL");
    let url = lent.variables().next().context("PostgreSQL has no address")?.1;
    let (mut by_article, mut by_copy) = (Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!(
            "row 3, round {}: ours, COPY of the same rows, the article's transactions",
            round + 1
        ));
        let (schema, ours) = ours(&record, &url)?;
        let copied = copy(bench.folder(), &url, &schema)?;
        sql(&url, &format!("DROP SCHEMA {schema} CASCADE"))?;
        by_article.push((ours, Some(article(bench.folder(), &url)?)));
        by_copy.push((ours, Some(copied)));
    }
    let figure = |against, goal, rounds| Figure {
        row: "3",
        what: "orders recorded in PostgreSQL per second, one connection",
        unit: "/s",
        against,
        goal,
        rounds,
        books: Books::Unasked,
        notes: vec![format!(
            "{ORDERS} orders of one hot item in batches of 500, each with buyer guard, history row and position"
        )],
    };
    Ok(vec![
        figure("the article's transaction per message, pgbench, 8 clients", Goal::Times(20.0), by_article),
        figure("COPY of the same rows", Goal::Times(0.2), by_copy),
    ])
}

fn build(bench: &Bench) -> Result<PathBuf> {
    bench.build(&["-p", "doorbuster-engine", "--features", "distributed", "--example", "record"])?;
    Ok(bench.root().join("target/release/examples/record"))
}

/// The schema that holds the orders, and how many were recorded per second.
fn ours(record: &Path, url: &str) -> Result<(String, f64)> {
    let printed = output_of(Command::new(record).args([url, &ORDERS.to_string()]))?;
    let report: Value =
        serde_json::from_str(&printed).with_context(|| format!("record printed {printed}"))?;
    let schema = report["schema"].as_str().context("record names no schema")?.to_owned();
    Ok((schema, report["perSecond"].as_f64().context("record has no figure")?))
}

/// The same rows into a table of the same shape with the same indexes, by one COPY.
fn copy(folder: &Path, url: &str, schema: &str) -> Result<f64> {
    let file = folder.join("orders.copy");
    let out = Stdio::from(std::fs::File::create(&file)?);
    let mut dump = psql(url);
    dump.args(["-c", &format!("COPY {schema}.orders TO STDOUT")]).stdout(out);
    ensure!(dump.status()?.success(), "the orders cannot be read");
    sql(url, &format!("CREATE TABLE {schema}.copied (LIKE {schema}.orders INCLUDING ALL)"))?;
    let mut load = psql(url);
    load.args(["-c", &format!("COPY {schema}.copied FROM STDIN")]);
    load.stdin(Stdio::from(std::fs::File::open(&file)?));
    let begun = now();
    output_of(&mut load)?;
    let seconds = begun.elapsed().as_secs_f64();
    let count: u64 = sql(url, &format!("SELECT count(*) FROM {schema}.copied"))?.parse().context("count")?;
    ensure!(count == ORDERS, "{count} of {ORDERS} rows were copied");
    Ok(count as f64 / seconds)
}

/// Transactions per second of the article's consumer.
fn article(folder: &Path, url: &str) -> Result<f64> {
    sql(url, ARTICLE_TABLES)?;
    let script = folder.join("article.sql");
    std::fs::write(&script, ARTICLE)?;
    let mut command = Command::new("pgbench");
    command.args(["-n", "-c", ARTICLE_CLIENTS, "-j", "2", "-T", ARTICLE_SECONDS, "-M", "prepared", "-f"]);
    command.arg(&script).arg(url);
    let printed = output_of(&mut command)?;
    let line = printed.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = line.and_then(|line| line.split(' ').next()).and_then(|rate| rate.parse().ok());
    rate.with_context(|| format!("pgbench printed {printed}"))
}

fn psql(url: &str) -> Command {
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "-v", "ON_ERROR_STOP=1"]).arg(url);
    command
}

fn sql(url: &str, statement: &str) -> Result<String> {
    Ok(output_of(psql(url).args(["-c", statement]))?.trim().to_owned())
}
