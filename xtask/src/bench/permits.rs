//! Row 2: permits from one Redis through the engine's batcher, beside the article's script called once
//! per request; and holds with the whole gate before them, beside the same without.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use doorbuster_services::command::output_of;
use serde_json::Value;

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::process::{GENERATOR_CORE, Running, SERVER_CORE, free_address, pinned};

/// The script of the article that this row is held against, as it stands there.
const ARTICLE: &str = "\
if redis.call('SISMEMBER', KEYS[2], ARGV[1]) == 1 then return -1 end
local stock = tonumber(redis.call('GET', KEYS[1]) or '0')
if stock <= 0 then return 0 end
redis.call('DECR', KEYS[1])
redis.call('SADD', KEYS[2], ARGV[1])
return 1";
const ARTICLES: &str = "the article's script, redis-benchmark -c 50";
/// Calls of one yardstick run.
const CALLS: &str = "400000";
/// More users than calls: hardly one buys twice.
const USERS: &str = "1000000000";
/// Seconds of one run of ours.
const SECONDS: &str = "4";
/// Buyers that wait for an answer at any time; a gateway's core has as many in a rush.
const WAITING: &str = "512";
/// Batchers, as two gateways' cores have.
const BATCHERS: &str = "2";

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let permits = build(bench)?;
    let (mut refusals, mut holds, mut gated) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..bench.rounds() {
        bench.say(format!("row 2, round {}: refusals and holds, the article's and ours", round + 1));
        // A fresh server every time: what one run left would slow down the other.
        for (stock, mode, rounds) in [("0", "refusals", &mut refusals), ("1000000000", "holds", &mut holds)] {
            let theirs = yardstick(&Redis::start(bench)?, stock)?;
            let ours = ours(&Redis::start(bench)?, &permits, mode)?;
            rounds.push((ours, Some(theirs)));
            if mode == "holds" {
                gated.push((self::ours(&Redis::start(bench)?, &permits, "gated-holds")?, Some(ours)));
            }
        }
    }
    let figure = |what, against, goal, rounds| Figure {
        row: "2",
        what,
        unit: "/s",
        against,
        goal,
        rounds,
        books: Books::Unasked,
        notes: vec![format!(
            "Redis and client have a core each; {BATCHERS} batchers with {WAITING} buyers waiting each"
        )],
    };
    Ok(vec![
        figure("refusals per second from one Redis", ARTICLES, Goal::Times(5.0), refusals),
        figure(
            "holds per second from one Redis, with limit and outbox entry",
            ARTICLES,
            Goal::Times(1.7),
            holds,
        ),
        figure(
            "the same holds behind a gate where everything is on, by sale token",
            "ours without the gate",
            Goal::Times(0.9),
            gated,
        ),
    ])
}

fn build(bench: &Bench) -> Result<PathBuf> {
    bench.build(&["-p", "doorbuster-engine", "--features", "distributed", "--example", "permits"])?;
    Ok(bench.root().join("target/release/examples/permits"))
}

/// A Redis of its own on the server's core, without anything on the disk: only the scripts count.
struct Redis {
    address: SocketAddr,
    _process: Running,
}

impl Redis {
    fn start(bench: &Bench) -> Result<Self> {
        let address = free_address()?;
        let log = bench.folder().join(format!("redis-{}.log", address.port()));
        let mut command = pinned(SERVER_CORE, "redis-server");
        command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
        command.args(["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]);
        command.arg("--dir").arg(bench.folder());
        let mut process = Running::start(&mut command, &log)?;
        process.listens(address, &log)?;
        Ok(Self { address, _process: process })
    }

    fn client(&self, words: &[&str]) -> Result<String> {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.address.port().to_string()]).args(words);
        Ok(output_of(&mut command)?.trim().to_owned())
    }
}

/// The article's script, one call per request, by Redis' own load generator.
fn yardstick(redis: &Redis, stock: &str) -> Result<f64> {
    redis.client(&["SET", "{item:1001}:stock", stock])?;
    let hash = redis.client(&["SCRIPT", "LOAD", ARTICLE])?;
    let mut command = pinned(GENERATOR_CORE, "redis-benchmark");
    command.args(["-p", &redis.address.port().to_string(), "-c", "50", "-n", CALLS, "-r", USERS, "--csv"]);
    command.args(["EVALSHA", &hash, "2", "{item:1001}:stock", "{item:1001}:buyers", "user-__rand_int__"]);
    let printed = output_of(&mut command)?;
    // "test","rps",... and one line of values.
    let line = printed.lines().last().with_context(|| format!("redis-benchmark printed {printed}"))?;
    let rate = line.split("\",\"").nth(1).unwrap_or_default();
    rate.parse().with_context(|| format!("redis-benchmark printed {printed}"))
}

fn ours(redis: &Redis, permits: &Path, mode: &str) -> Result<f64> {
    let url = format!("redis://{}", redis.address);
    let mut command = pinned(GENERATOR_CORE, permits);
    command.args([&url, mode, SECONDS, WAITING, BATCHERS]);
    let printed = output_of(&mut command)?;
    let printed: Value =
        serde_json::from_str(&printed).with_context(|| format!("permits printed {printed}"))?;
    printed["perSecond"].as_f64().with_context(|| format!("permits printed {printed}"))
}
