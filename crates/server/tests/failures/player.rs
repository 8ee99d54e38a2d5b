//! One process of ours, in one role, that can be killed, frozen and started again.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use doorbuster_services::Process;
use rustix::process::{Signal, kill_process};

use crate::waiting::until_async;

/// Longest wait for a process to serve, or to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// One process of ours.
pub(crate) struct Player {
    pub(crate) name: String,
    pub(crate) role: &'static str,
    pub(crate) admin: SocketAddr,
    /// Where buyers find it; gateways alone have it.
    pub(crate) public: Option<SocketAddr>,
    /// Arguments and environment, the same at each start.
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) log: PathBuf,
    child: Option<(Child, Process)>,
}

impl Player {
    pub(crate) fn new(
        name: String,
        role: &'static str,
        admin: SocketAddr,
        public: Option<SocketAddr>,
        log: PathBuf,
    ) -> Self {
        Self { name, role, admin, public, arguments: Vec::new(), environment: Vec::new(), log, child: None }
    }

    /// Starts it, without waiting. `more` is added to its environment for this start alone.
    pub(crate) fn start(&mut self, more: &[(&str, &str)]) -> Result<()> {
        ensure!(self.child.is_none(), "{} runs already", self.name);
        let log = File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorbuster"));
        command.args(&self.arguments).envs(self.environment.iter().map(|(key, value)| (key, value)));
        command.envs(more.iter().copied());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).process_group(0);
        let child = command.spawn().with_context(|| format!("starting {}", self.name))?;
        let process = Process::of(child.id(), true)?;
        self.child = Some((child, process));
        Ok(())
    }

    /// Waits until it says that it is ready.
    pub(crate) async fn until_ready(&mut self) -> Result<()> {
        let ready = until_async(PATIENCE, async || {
            if let Some(status) = self.ended()? {
                bail!("{} ended with {status}; its log ends:\n{}", self.name, self.last_lines());
            }
            Ok(crate::http::status_of(self.admin, "/readyz").await == Some(200))
        });
        ensure!(ready.await?, "{} does not become ready; its log ends:\n{}", self.name, self.last_lines());
        Ok(())
    }

    /// Waits until it answers at all; it may say that it is not ready.
    pub(crate) async fn until_alive(&mut self) -> Result<()> {
        let alive = until_async(PATIENCE, async || {
            Ok(crate::http::status_of(self.admin, "/livez").await == Some(200))
        });
        ensure!(alive.await?, "{} does not answer; its log ends:\n{}", self.name, self.last_lines());
        Ok(())
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.as_mut().map_or(Ok(None), |(child, _)| Ok(child.try_wait()?))
    }

    pub(crate) fn runs(&mut self) -> Result<bool> {
        Ok(self.child.is_some() && self.ended()?.is_none())
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) -> Result<()> {
        let (mut child, process) =
            self.child.take().with_context(|| format!("{} does not run", self.name))?;
        process.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Waits until it has ended, however.
    async fn until_exit(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        until_async(PATIENCE, async || {
            status = self.ended()?;
            Ok(status.is_some())
        })
        .await?;
        let status = status.with_context(|| format!("{} does not end", self.name))?;
        self.child = None;
        Ok(status)
    }

    /// Waits until it has been killed at a fault point of its own.
    pub(crate) async fn until_killed(&mut self) -> Result<()> {
        use std::os::unix::process::ExitStatusExt as _;
        let status = self.until_exit().await.context("it never came to its fault point")?;
        ensure!(status.signal() == Some(9), "{} ended by itself, with {status}", self.name);
        Ok(())
    }

    /// Waits until it stands still at a fault point of its own.
    pub(crate) async fn until_stopped(&mut self) -> Result<()> {
        let stands = until_async(PATIENCE, async || Ok(self.stands_still()));
        ensure!(stands.await?, "{} never came to its fault point", self.name);
        Ok(())
    }

    /// Whether it has been stopped and not let go on.
    pub(crate) fn stands_still(&self) -> bool {
        let Ok(process) = self.process() else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    /// Waits until it has ended, however; answers its exit code.
    pub(crate) async fn until_gone(&mut self) -> Result<Option<i32>> {
        Ok(self.until_exit().await?.code())
    }

    /// Stops it without ending it.
    pub(crate) fn freeze(&self) -> Result<()> {
        self.process()?.freeze()
    }

    /// Lets it go on, if it stands still.
    pub(crate) fn thaw(&self) -> Result<()> {
        self.process()?.thaw()
    }

    /// SIGTERM, without waiting.
    pub(crate) fn terminate(&self) -> Result<()> {
        let pid = rustix::process::Pid::from_raw(self.process()?.pid()).context("zero is no process")?;
        Ok(kill_process(pid, Signal::TERM)?)
    }

    /// Waits until it has ended by itself, and well.
    pub(crate) async fn until_ended(&mut self) -> Result<()> {
        let status = self.until_exit().await?;
        ensure!(status.success(), "{} ended with {status}:\n{}", self.name, self.last_lines());
        Ok(())
    }

    fn process(&self) -> Result<&Process> {
        let child = self.child.as_ref().with_context(|| format!("{} does not run", self.name))?;
        Ok(&child.1)
    }

    /// What it has written so far.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn last_lines(&self) -> String {
        let text = self.said();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(25)..].join("\n")
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        if let Some((mut child, process)) = self.child.take() {
            // It may have ended already.
            let _ = process.kill();
            let _ = child.wait();
        }
    }
}
