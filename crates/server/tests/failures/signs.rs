//! What an operator sees of a fault: counters that move, one line in a log, and no line again and again.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::http;
use crate::player::Player;
use crate::scene::STAFF;
use crate::waiting::until_async;

/// Longest wait for a sign: a look at the stages takes up to a second each.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most lines that say the same within [`WINDOW_S`] in one process. It is not one: a process has a
/// batcher per core, a sweeper of its own in the rebuilder, and several connections to Kafka.
const SAME_LINES_MAX: usize = 4;
const WINDOW_S: f64 = 5.0;

/// Every series of the processes that answer, added up by name and labels.
#[derive(Debug, Default)]
pub(crate) struct Signs(BTreeMap<String, f64>);

impl Signs {
    /// Asks every process that runs. Counters of one that was killed are gone with it.
    pub(crate) async fn read(players: &[Player]) -> Self {
        let mut signs = Self::default();
        for player in players {
            let answer = http::get_as(player.admin, "/metrics", STAFF).await;
            let Some((200, page)) = answer else { continue };
            for line in page.lines().filter(|line| !line.starts_with('#')) {
                let Some((series, value)) = line.rsplit_once(' ') else { continue };
                let Ok(value) = value.parse::<f64>() else { continue };
                *signs.0.entry(series.to_owned()).or_default() += value;
            }
        }
        signs
    }

    /// What the series of this sign add up to. A sign is a name without our prefix and, behind a space,
    /// words of its labels: `rebuilds_total missing|not_open`.
    pub(crate) fn sum(&self, sign: &str) -> f64 {
        let (name, words) = sign.split_once(' ').unwrap_or((sign, ""));
        let named = |series: &str| {
            let (full, labels) = series.split_once('{').unwrap_or((series, ""));
            full.strip_prefix("doorbuster_") == Some(name)
                && words.split('|').any(|word| labels.contains(word))
        };
        self.0.iter().filter(|(series, _)| named(series)).map(|(_, value)| value).sum()
    }
}

/// Waits until every sign is above zero.
pub(crate) async fn until_seen(players: &[Player], signs: &[&str]) -> Result<()> {
    let mut missing = String::new();
    let seen = until_async(PATIENCE, async || {
        let read = Signs::read(players).await;
        let absent: Vec<&str> = signs.iter().copied().filter(|sign| read.sum(sign) <= 0.0).collect();
        missing = absent.join(", ");
        Ok(absent.is_empty())
    });
    ensure!(seen.await?, "no process shows {missing}");
    Ok(())
}

/// Whether some process has said each of these in its log.
pub(crate) fn are_told(players: &[Player], lines: &[&str]) -> Result<()> {
    let logs: Vec<String> = players.iter().map(Player::said).collect();
    for line in lines {
        ensure!(logs.iter().any(|log| log.contains(line)), "no log says: {line}");
    }
    Ok(())
}

/// Whether no process says the same again and again.
pub(crate) fn nobody_babbles(players: &[Player]) -> Result<()> {
    for player in players {
        if let Some((line, times)) = babble(&player.said()) {
            bail!("{} says {times} times within {WINDOW_S} s: {line}", player.name);
        }
    }
    Ok(())
}

/// The line that is said too often, with how often.
fn babble(log: &str) -> Option<(String, usize)> {
    let mut said = BTreeMap::<String, Vec<f64>>::new();
    for line in log.lines() {
        if let Some((at, what)) = told(line) {
            said.entry(what).or_default().push(at);
        }
    }
    said.into_iter().find_map(|(what, times)| {
        let most = times
            .iter()
            .map(|from| times.iter().filter(|at| (*from..*from + WINDOW_S).contains(*at)).count());
        let most = most.max().unwrap_or(0);
        (most > SAME_LINES_MAX).then_some((what, most))
    })
}

/// The second of the day at which a line was written, and what it says: level, message, who, and of what
/// epoch. `None` for what is no line of ours, and for what nobody needs to act on.
fn told(line: &str) -> Option<(f64, String)> {
    let (time, rest) = line.split_once("Z ")?;
    let clock = time.split_once('T')?.1;
    let mut at = 0.0;
    for part in clock.split(':') {
        at = at * 60.0 + part.parse::<f64>().ok()?;
    }
    let rest = rest.trim_start();
    if rest.starts_with("INFO") {
        return None;
    }
    let is_field = |word: &&str| word.contains('=');
    let message: Vec<&str> = rest.split(' ').take_while(|word| !is_field(word)).collect();
    let who = rest
        .split(' ')
        .filter(|word| ["worker=", "facility=", "epoch="].iter().any(|field| word.starts_with(field)));
    let what: Vec<&str> = message.into_iter().chain(who).collect();
    Some((at, what.join(" ")))
}
