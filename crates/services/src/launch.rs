//! Starting a server and waiting for its first answer.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::command::line_of;
use crate::process::Process;

/// Longest wait for a server's first answer.
const FIRST_ANSWER: Duration = Duration::from_secs(90);

/// Longest wait for one answer to one question.
const ANSWER: Duration = Duration::from_secs(2);

/// Lines of a server's log that an error shows.
const TAIL: usize = 20;

/// How one node of a server is started; the same again after it was killed.
pub(crate) struct Recipe {
    pub(crate) program: PathBuf,
    pub(crate) arguments: Vec<String>,
    /// Where it runs.
    pub(crate) folder: PathBuf,
    /// What it prints is added to this file.
    pub(crate) log: PathBuf,
    /// The user and group to run as, where they are not ours.
    pub(crate) run_as: Option<(u32, u32)>,
    /// Whether it is ended by an interrupt; otherwise it is killed.
    pub(crate) interrupt: bool,
    /// Whether it answers.
    pub(crate) answers: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Recipe {
    /// Starts it apart from our terminal, without waiting for an answer.
    ///
    /// # Errors
    /// It cannot be started, or ends at once; the message has the end of its log.
    pub(crate) fn start(&self) -> Result<Launched> {
        let log = File::options().create(true).append(true).open(&self.log);
        let out = log.with_context(|| self.log.display().to_string())?;
        let err = out.try_clone()?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        if let Some((user, group)) = self.run_as {
            command.uid(user).gid(group);
        }
        // A group of its own: an interrupt typed at our terminal is not meant for it.
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
        let mut child = command.spawn().with_context(|| format!("starting {}", line_of(&command)))?;
        match Process::of(child.id(), self.interrupt) {
            Ok(process) => Ok(Launched { child, process }),
            Err(error) => {
                child.kill()?;
                child.wait()?;
                Err(error.context(tail(&self.log)))
            }
        }
    }

    /// Waits until it answers.
    ///
    /// # Errors
    /// It ended, or does not answer in time; the message has the end of its log.
    pub(crate) fn until_it_answers(&self, launched: &mut Launched) -> Result<()> {
        let done = await_true(FIRST_ANSWER, || {
            if let Some(status) = launched.child.try_wait()? {
                bail!("it ended with {status} and had said:\n{}", tail(&self.log));
            }
            Ok((self.answers)())
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
}

/// A process that was started.
pub(crate) struct Launched {
    child: Child,
    pub(crate) process: Process,
}

impl Launched {
    /// Takes note of its end, so that its number may be given to another one.
    pub(crate) fn reap(&mut self) {
        // It was killed or has ended; how is of no interest.
        let _ = self.child.wait();
    }
}

/// Asks until `condition` is true, and says whether it became so within `patience`.
///
/// # Errors
/// What the condition reports.
pub fn await_true(patience: Duration, mut condition: impl FnMut() -> Result<bool>) -> Result<bool> {
    let until = now() + patience;
    while !condition()? {
        if now() > until {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

#[expect(clippy::disallowed_methods, reason = "servers of others live in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Whether somebody at `address` answers `question` with bytes that hold `answer`.
pub(crate) fn says(address: SocketAddr, question: &[u8], answer: &[u8]) -> bool {
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

/// Different ports of the loopback that nobody uses now. None is given twice within this process: whoever
/// got it may not listen on it yet.
///
/// # Errors
/// There are not as many.
pub fn free_ports<const N: usize>() -> Result<[SocketAddr; N]> {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    // All are held until the end, so that the system offers others.
    let (mut held, mut addresses) = (Vec::new(), Vec::new());
    while addresses.len() < N {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port of the loopback is free")?;
        let address = listener.local_addr()?;
        if given.insert(address.port()) {
            addresses.push(address);
        }
        held.push(listener);
    }
    addresses.try_into().ok().context("as many ports as asked for")
}

/// A folder of its own below the system's temporary folder, which stays until the server ends.
pub(crate) fn folder(service: &str) -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix(&format!("doorbuster-{service}-")).tempdir();
    Ok(folder.with_context(|| format!("making a folder for {service}"))?.keep())
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
        let script = "for i in $(seq 30); do echo line $i; done; exec sleep 0.2";
        let recipe = Recipe {
            program: "sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
            folder: folder.path().to_owned(),
            log: folder.path().join("log"),
            run_as: None,
            interrupt: false,
            answers: Box::new(|| false),
        };
        let mut launched = recipe.start().expect("sh can be started");
        let error = recipe.until_it_answers(&mut launched).expect_err("it never answers").to_string();
        assert!(error.contains("line 11\n") && error.contains("line 30"), "{error}");
        assert!(!error.contains("line 10\n"), "{error}");
    }

    #[test]
    fn no_port_is_given_twice() {
        let mut given = BTreeSet::new();
        // The system offers a port that was let go again sooner or later: one of so many it would.
        for _ in 0..2_000 {
            let addresses: [SocketAddr; 2] = free_ports().expect("there are free ports");
            assert!(addresses.iter().all(|address| given.insert(address.port())), "{addresses:?}");
        }
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
