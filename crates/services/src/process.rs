//! One process, told from a later one of the same number.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::{Deserialize, Serialize};

use crate::launch::await_true;

/// Longest wait for a process to end by itself; then it is killed.
const END: Duration = Duration::from_secs(10);

/// One process, told from a later one of the same number by when it began. It leads a group of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    pid: i32,
    /// The machine's boot and the clock tick in it at which the process began.
    birth: String,
    /// Whether it is asked to end by an interrupt first; otherwise it is killed at once, since its
    /// folder goes with it.
    interrupt: bool,
}

impl Process {
    /// The process of this number that runs now.
    ///
    /// # Errors
    /// There is none.
    pub fn of(pid: u32, interrupt: bool) -> Result<Self> {
        let pid = i32::try_from(pid).context("a process number is small")?;
        let birth = birth(pid).with_context(|| format!("process {pid} ended at once"))?;
        Ok(Self { pid, birth, interrupt })
    }

    /// Its number.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it still runs, and is not a later one of the same number.
    pub fn runs(&self) -> bool {
        birth(self.pid).is_some_and(|birth| birth == self.birth)
    }

    /// Ends it, and waits until it has ended.
    ///
    /// # Errors
    /// The system refuses, or it does not end.
    pub fn end(&self) -> Result<()> {
        let signals = if self.interrupt { &[Signal::INT, Signal::KILL][..] } else { &[Signal::KILL] };
        for &signal in signals {
            if !self.runs() {
                return Ok(());
            }
            match kill_process(self.number()?, signal) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("ending process {}", self.pid)),
            }
            await_true(END, || Ok(!self.runs()))?;
        }
        if self.runs() {
            bail!("process {} does not end", self.pid);
        }
        Ok(())
    }

    /// `kill -9` for it and the processes that it started, at once: what a power cut leaves of them.
    ///
    /// # Errors
    /// The system refuses, or it does not end.
    pub fn kill(&self) -> Result<()> {
        self.signal(Signal::KILL)?;
        if !await_true(END, || Ok(!self.runs()))? {
            bail!("process {} does not end", self.pid);
        }
        Ok(())
    }

    /// Stops it and the processes that it started without ending them: connections stand, nothing answers.
    ///
    /// # Errors
    /// The system refuses.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets them go on after a [`freeze`](Self::freeze).
    ///
    /// # Errors
    /// The system refuses.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    /// Sends a signal to the whole group and to the processes that it started, which may have left the
    /// group, as PostgreSQL's do; nothing when the process has ended.
    fn signal(&self, signal: Signal) -> Result<()> {
        if !self.runs() {
            return Ok(());
        }
        let started = children_of(self.pid)?;
        let sent = kill_process_group(self.number()?, signal);
        let others = started.into_iter().filter_map(Pid::from_raw).map(|child| kill_process(child, signal));
        for sent in std::iter::once(sent).chain(others) {
            match sent {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error).with_context(|| format!("a signal to process {}", self.pid)),
            }
        }
        Ok(())
    }

    fn number(&self) -> Result<Pid> {
        Pid::from_raw(self.pid).context("zero is no process")
    }
}

/// The processes that a process has started and that still run.
fn children_of(parent: i32) -> Result<Vec<i32>> {
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").context("the kernel lists its processes")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        // It may have ended since it was listed.
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let by = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        if by.and_then(|by| by.parse().ok()) == Some(parent) {
            children.push(pid);
        }
    }
    Ok(children)
}

/// When the process began; `None` when there is none, or it has ended and nobody asked how.
fn birth(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name, in parentheses, may hold anything; the fields behind it are plain.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    let ticks = fields.nth(18)?;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(format!("{} {ticks}", boot.trim()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper() -> std::process::Child {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null()).process_group(0);
        command.spawn().expect("sleep is everywhere")
    }

    #[test]
    fn a_process_is_ended_and_a_later_one_of_its_number_is_not() {
        let mut child = sleeper();
        let process = Process::of(child.id(), true).expect("it runs");
        let stranger = Process { birth: "another boot 1".to_owned(), ..process.clone() };
        assert!(!stranger.runs());
        stranger.end().expect("nothing is there to end");
        stranger.kill().expect("nothing is there to kill");
        assert!(process.runs(), "the process of the same number was left alone");

        process.end().expect("it ends");
        assert!(!process.runs());
        child.wait().expect("it is our child");
    }

    #[test]
    fn what_a_process_started_ends_with_it_also_outside_its_group() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 60 & wait"]).stdin(Stdio::null()).process_group(0);
        let mut child = command.spawn().expect("sh is everywhere");
        let process = Process::of(child.id(), false).expect("it runs");
        let mut started = Vec::new();
        let has_started = await_true(END, || {
            started = children_of(process.pid())?;
            Ok(started.len() == 1)
        });
        assert!(has_started.expect("the kernel lists them"));
        let started = Process::of(started[0].unsigned_abs(), false).expect("it runs");
        process.kill().expect("it is ours");
        child.wait().expect("it is our child");
        assert!(await_true(END, || Ok(!started.runs())).expect("it ends"));
    }

    #[test]
    fn a_frozen_process_stands_still_until_it_is_thawed() {
        let mut child = sleeper();
        let process = Process::of(child.id(), false).expect("it runs");
        let state = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid())).expect("it is there");
            stat.rsplit_once(") ").map(|(_, rest)| rest.chars().next()).expect("it has a state")
        };
        process.freeze().expect("it is ours");
        assert!(await_true(END, || Ok(state() == Some('T'))).expect("it has a state"));
        process.thaw().expect("it is ours");
        assert!(await_true(END, || Ok(state() == Some('S'))).expect("it has a state"));
        process.kill().expect("it is ours");
        child.wait().expect("it is our child");
    }
}
