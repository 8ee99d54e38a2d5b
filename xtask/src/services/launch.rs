//! Starting a server and waiting for its first answer.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::state::Process;
use crate::bench::process::{now, pause};
use crate::run::line_of;

/// Longest wait for a server's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(90);

/// Longest wait for one answer to one question.
const ANSWER: Duration = Duration::from_secs(2);

/// Lines of a server's log that an error shows.
const TAIL: usize = 20;

/// A server that was started; it ends when this is dropped, unless it is [kept](Self::keep).
pub(super) struct Launched {
    child: Option<Child>,
    process: Process,
    log: PathBuf,
}

impl Launched {
    /// Starts the command apart from our terminal; what it prints goes to the file `log`.
    /// `interrupt`: it ends by an interrupt, otherwise by being killed.
    pub(super) fn start(command: &mut Command, log: &Path, interrupt: bool) -> Result<Self> {
        let out = File::create(log).with_context(|| log.display().to_string())?;
        let err = out.try_clone()?;
        // A group of its own: an interrupt typed at our terminal is not meant for it.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {}", line_of(command)))?;
        match Process::of(child.id(), interrupt) {
            Ok(process) => Ok(Self { child: Some(child), process, log: log.to_owned() }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.context(tail(log)))
            }
        }
    }

    /// Waits until `answers` says so.
    ///
    /// # Errors
    /// It ended, or does not answer in time; the message has the end of its log.
    pub(super) fn answers(&mut self, answers: impl Fn() -> bool) -> Result<()> {
        let done = await_true(FIRST_ANSWER, || {
            let ended = self.child.as_mut().map(Child::try_wait).transpose()?.flatten();
            if let Some(status) = ended {
                bail!("it ended with {status} and had said:\n{}", tail(&self.log));
            }
            Ok(answers())
        })?;
        if !done {
            bail!(
                "it does not answer within {} s and has said:\n{}",
                FIRST_ANSWER.as_secs(),
                tail(&self.log)
            );
        }
        Ok(())
    }

    /// Leaves it running.
    pub(super) fn keep(mut self) -> Process {
        self.child = None;
        self.process.clone()
    }
}

impl Drop for Launched {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It never answered: there is nothing it would have to save.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Asks until `condition` is true, and says whether it became so within `patience`.
pub(super) fn await_true(patience: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = now() + patience;
    while !condition()? {
        if now() > until {
            return Ok(false);
        }
        pause(Duration::from_millis(20));
    }
    Ok(true)
}

/// Whether somebody at `address` answers `question` with bytes that hold `answer`.
pub(super) fn says(address: SocketAddr, question: &[u8], answer: &[u8]) -> bool {
    let ask = || -> std::io::Result<bool> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(question)?;
        let mut heard = [0; 512];
        let count = stream.read(&mut heard)?;
        Ok(heard[..count].windows(answer.len()).any(|part| part == answer))
    };
    ask().unwrap_or(false)
}

/// Different ports of the loopback that nobody uses now.
pub(super) fn free_ports<const N: usize>() -> Result<[SocketAddr; N]> {
    // All are held before the first is let go, so that none is given twice.
    let held: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<std::io::Result<_>>()?;
    let addresses: Vec<SocketAddr> =
        held.iter().map(TcpListener::local_addr).collect::<std::io::Result<_>>()?;
    addresses.try_into().ok().context("as many ports as asked for")
}

/// A folder of its own below the system's temporary folder, which stays until the server ends.
pub(super) fn folder(service: &str) -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix(&format!("doorbuster-{service}-")).tempdir();
    Ok(folder.with_context(|| format!("making a folder for {service}"))?.keep())
}

/// Removes `folder` when `started` is an error: nobody else knows of it.
pub(super) fn or_remove<T>(started: Result<T>, folder: &Path) -> Result<T> {
    if started.is_err()
        && let Err(error) = fs::remove_dir_all(folder)
    {
        eprintln!("services: {} could not be removed: {error}", folder.display());
    }
    started
}

/// The last lines of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_ends_at_once_is_told_with_the_end_of_its_log() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let mut command = Command::new("sh");
        command.args(["-c", "for i in $(seq 30); do echo line $i; done; exec sleep 0.2"]);
        let log = folder.path().join("log");
        let mut server = Launched::start(&mut command, &log, false).expect("sh can be started");
        let error = server.answers(|| false).expect_err("it never answers").to_string();
        assert!(error.contains("line 11\n") && error.contains("line 30"), "{error}");
        assert!(!error.contains("line 10\n"), "{error}");
    }

    #[test]
    fn free_ports_differ() {
        let [one, other] = free_ports().expect("there are free ports");
        assert_ne!(one, other);
    }

    #[test]
    fn an_answer_is_looked_for_in_what_is_heard() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let server = std::thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().expect("somebody comes");
                stream.write_all(b"-LOADING\r\n").expect("it listens");
            }
        });
        assert!(says(address, b"PING\r\n", b"LOADING"));
        assert!(!says(address, b"PING\r\n", b"PONG"));
        server.join().expect("it served both");
        assert!(!says(address, b"PING\r\n", b"LOADING"), "nobody is there now");
    }
}
