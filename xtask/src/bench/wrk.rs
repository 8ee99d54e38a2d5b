//! The load generator of the closed loops: every connection sends its next request when the last
//! one is answered.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use doorbuster_services::command::output_of;

use super::process::{GENERATOR_CORE, Running, pinned};

/// A script, and behind it what all of them count.
macro_rules! script {
    ($file:literal) => {
        concat!(include_str!($file), include_str!("lua/done.lua"))
    };
}

const SAME: &str = script!("lua/same.lua");
const EACH: &str = script!("lua/each.lua");
const PACED: &str = script!("lua/paced.lua");

/// How hard wrk presses, and how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Press {
    pub(crate) connections: u32,
    pub(crate) seconds: u32,
    /// Whether wrk stays on the generator's core.
    pub(crate) pin: bool,
}

/// What wrk sends.
pub(crate) enum Requests<'a> {
    /// The same request each time.
    Same { path: &'a str, token: &'a str },
    /// Paths in turn, and tokens in turn from a file; from the start again, or once.
    Each { paths: &'a [String], tokens: &'a Path, once: bool },
    /// One path and tokens in turn from a file; a connection sends less than 100 a second.
    Paced { path: &'a str, tokens: &'a Path },
}

/// What wrk counted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counted {
    pub(crate) seconds: f64,
    pub(crate) answers: u64,
    /// Answers with a status of 400 and above.
    pub(crate) refused: u64,
}

/// wrk's scripts, written down where wrk can read them.
pub(crate) struct Wrk {
    folder: PathBuf,
}

impl Wrk {
    /// Writes the scripts into `folder`.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        std::fs::write(folder.join("same.lua"), SAME)?;
        std::fs::write(folder.join("each.lua"), EACH)?;
        std::fs::write(folder.join("paced.lua"), PACED)?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Presses to the end.
    ///
    /// # Errors
    /// wrk fails, or a request was not answered.
    pub(crate) fn run(&self, address: SocketAddr, requests: &Requests<'_>, press: Press) -> Result<Counted> {
        counted(&output_of(&mut self.command(address, requests, press)?)?)
    }

    /// Presses until what is answered is dropped.
    ///
    /// # Errors
    /// wrk cannot be started.
    pub(crate) fn start(
        &self,
        address: SocketAddr,
        requests: &Requests<'_>,
        press: Press,
    ) -> Result<Running> {
        Running::start(&mut self.command(address, requests, press)?, &self.folder.join("wrk.log"))
    }

    fn command(&self, address: SocketAddr, requests: &Requests<'_>, press: Press) -> Result<Command> {
        let mut command = if press.pin { pinned(GENERATOR_CORE, "wrk") } else { Command::new("wrk") };
        command.args(["-t", "1", "--timeout", "10"]);
        command.args(["-c", &press.connections.to_string(), "-d", &press.seconds.to_string(), "-s"]);
        match requests {
            Requests::Same { path, token } => {
                command.arg(self.folder.join("same.lua")).arg(format!("http://{address}{path}"));
                command.args(["--", token]);
            }
            Requests::Paced { path, tokens } => {
                command.arg(self.folder.join("paced.lua")).arg(format!("http://{address}/"));
                command.arg("--").arg(path).arg(tokens);
            }
            Requests::Each { paths, tokens, once } => {
                let list = self.folder.join("paths");
                std::fs::write(&list, paths.join("\n"))?;
                command.arg(self.folder.join("each.lua")).arg(format!("http://{address}/"));
                command.arg("--").arg(list).arg(tokens).arg(if *once { "once" } else { "again" });
            }
        }
        Ok(command)
    }
}

/// Reads the line that the scripts print at their end.
fn counted(printed: &str) -> Result<Counted> {
    let line = printed.lines().find_map(|line| line.strip_prefix("counted "));
    let numbers: Vec<u64> = line
        .with_context(|| format!("wrk counted nothing:\n{printed}"))?
        .split(' ')
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [us, answers, refused, broken] = numbers[..] else { anyhow::bail!("wrk counted {numbers:?}") };
    ensure!(broken == 0, "{broken} requests were not answered:\n{printed}");
    ensure!(answers > 0, "nothing was answered:\n{printed}");
    Ok(Counted { seconds: us as f64 / 1e6, answers, refused })
}

impl Counted {
    pub(crate) fn per_second(self) -> f64 {
        self.answers as f64 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_prints_is_read() {
        let counts = counted("Running\ncounted 2000000 10 9 0\n").expect("is well-formed");
        assert_eq!(counts, Counted { seconds: 2.0, answers: 10, refused: 9 });
        assert!(counted("counted 2000000 10 9 1\n").is_err(), "a broken request");
        assert!(counted("counted 2000000 0 0 0\n").is_err(), "no answer");
        assert!(counted("Running\n").is_err(), "no line");
    }
}
