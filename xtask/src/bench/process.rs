//! Programs that run beside us while we measure, and what the kernel says of them.

use std::ffi::OsStr;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use doorbuster_services::command::line_of;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The core of the server under test.
pub(crate) const SERVER_CORE: &str = "0";
/// The core of the load generator.
pub(crate) const GENERATOR_CORE: &str = "1";

/// Longest wait for a server to listen.
const START: Duration = Duration::from_secs(20);

/// Longest wait for a server to end.
const STOP: Duration = Duration::from_secs(20);

/// A program that ends when this is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts the command; what it prints goes to the file `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(command: &mut Command, log: &Path) -> Result<Self> {
        let out = std::fs::File::create(log).with_context(|| log.display().to_string())?;
        let err = out.try_clone()?;
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().with_context(|| format!("starting {}", line_of(command)))?;
        Ok(Self { child })
    }

    /// Waits until somebody listens on the address.
    ///
    /// # Errors
    /// The program ended, or nobody listens in time.
    pub(crate) fn listens(&mut self, address: SocketAddr, log: &Path) -> Result<()> {
        let until = now() + START;
        while TcpStream::connect(address).is_err() {
            let ended = self.child.try_wait()?;
            if ended.is_some() || now() > until {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("a server does not listen on {address}; it said:\n{said}");
            }
            pause(Duration::from_millis(10));
        }
        Ok(())
    }

    /// CPU time of all its threads, user and system, in seconds.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        // The first number of `schedstat` is the same time as utime + stime in `stat`, in
        // nanoseconds instead of hundredths of a second.
        let mut nanoseconds = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
            let ran = text.split_ascii_whitespace().next().unwrap_or_default();
            nanoseconds += ran.parse::<u64>().context("the kernel keeps no scheduler statistics")?;
        }
        Ok(nanoseconds as f64 / 1e9)
    }

    /// Resident memory in kilobytes.
    ///
    /// # Errors
    /// The kernel does not tell.
    pub(crate) fn resident_kb(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_ascii_whitespace().next());
        Ok(number.context("the program has ended")?.parse()?)
    }
}

impl Running {
    /// Kills the program at once.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks the program to end and waits for it.
    ///
    /// # Errors
    /// It does not end in time, or ends with an error.
    pub(crate) fn terminate(&mut self) -> Result<()> {
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(id.context("a process has an id")?, rustix::process::Signal::TERM)?;
        let until = now() + STOP;
        loop {
            match self.child.try_wait()? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => bail!("it ended with {status}"),
                None if now() > until => bail!("it does not end"),
                None => pause(Duration::from_millis(10)),
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Its folder goes with it, so there is nothing it would have to save.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command that stays on one core.
pub(crate) fn pinned(core: &str, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(program);
    command
}

/// Does something on one core, on which all processes stay that it starts.
///
/// # Errors
/// There is no such core, or what is done fails.
pub(crate) fn on_core<T>(core: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut one = CpuSet::new();
    one.set(core.parse()?);
    let before = sched_getaffinity(None)?;
    sched_setaffinity(None, &one)?;
    let done = act();
    sched_setaffinity(None, &before)?;
    done
}

/// A loopback address that nobody uses now.
///
/// # Errors
/// There is none.
pub(crate) fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?)
}

/// The present moment.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets real time pass.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
