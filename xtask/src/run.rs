//! Starting other programs.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, PipeReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use doorbuster_services::command::line_of;

/// A cargo command in the repository's root, by the cargo that started us.
pub(crate) fn cargo<S: AsRef<std::ffi::OsStr>>(root: &Path, arguments: &[S]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(root);
    command
}

/// Prints the command, runs it with our own input and outputs, and says whether it succeeded.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn shown(command: &mut Command) -> Result<bool> {
    println!("$ {}", line_of(command));
    let status = command.status().with_context(|| format!("starting {}", line_of(command)))?;
    Ok(status.success())
}

/// Lines that [`shown_and_kept`] keeps of a program that failed.
const KEPT_LINES: usize = 60;

/// Longest wait for the rest of an output whose program has ended: one that outlives it may hold the pipe.
const REST_MAX: Duration = Duration::from_secs(5);

/// As [`shown`], both outputs on standard output; a program that fails adds the end of them to `ends`, for
/// those who see no more than the end of a long run.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn shown_and_kept(command: &mut Command, ends: &mut Vec<String>) -> Result<bool> {
    let line = line_of(command);
    println!("$ {line}");
    let starting = || format!("starting {line}");
    let (output, input) = std::io::pipe().with_context(starting)?;
    command.stdout(input.try_clone().with_context(starting)?).stderr(input);
    let child = command.spawn();
    // The pipe ends when nobody holds it for writing: neither do we.
    command.stdout(Stdio::inherit()).stderr(Stdio::inherit());
    let mut child = child.with_context(starting)?;

    let last = Arc::new(Mutex::new(VecDeque::new()));
    let (at_end, ended) = mpsc::channel::<()>();
    let keeper = Arc::clone(&last);
    std::thread::spawn(move || {
        pass_on(output, &keeper);
        drop(at_end);
    });
    let status = child.wait().with_context(starting)?;
    let _ended_or_held = ended.recv_timeout(REST_MAX);
    if !status.success() {
        let last = last.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(format!("$ {line}\n{}", last.iter().cloned().collect::<String>()));
    }
    Ok(status.success())
}

/// Prints each line of `output` as it comes, and keeps the last ones.
fn pass_on(output: PipeReader, last: &Mutex<VecDeque<String>>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
        // Nobody may read us any more; the program is to end all the same.
        let _printed = std::io::stdout().write_all(&line);
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() == KEPT_LINES {
            last.pop_front();
        }
        last.push_back(String::from_utf8_lossy(&line).into_owned());
        line.clear();
    }
}

/// As [`shown`], with everything on standard error: for commands whose output is not ours.
///
/// # Errors
/// The program cannot be started.
pub(crate) fn reported(command: &mut Command) -> Result<bool> {
    eprintln!("$ {}", line_of(command));
    let status = command.stdout(std::io::stderr()).status();
    Ok(status.with_context(|| format!("starting {}", line_of(command)))?.success())
}

/// The repository's root: the nearest folder upwards whose manifest is a workspace's.
///
/// # Errors
/// We were started outside the repository.
pub(crate) fn repository_root() -> Result<PathBuf> {
    let here = std::env::current_dir().context("finding the current folder")?;
    for folder in here.ancestors() {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.contains("[workspace]") {
            return Ok(folder.to_owned());
        }
    }
    bail!("start this inside the repository: no folder above {} holds the workspace", here.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::process::now;

    fn shell(script: &str, ends: &mut Vec<String>) -> bool {
        shown_and_kept(Command::new("sh").args(["-c", script]), ends).expect("a shell")
    }

    #[test]
    fn only_a_program_that_fails_leaves_the_end_of_what_it_printed() {
        let mut ends = Vec::new();
        assert!(shell("echo well", &mut ends));
        assert_eq!(ends, [""; 0]);

        assert!(!shell("seq 100; echo why >&2; exit 3", &mut ends));
        let [end] = ends.as_slice() else { panic!("{ends:?}") };
        assert!(end.ends_with("\n99\n100\nwhy\n") && !end.contains("\n41\n"), "{end}");
    }

    #[test]
    fn who_outlives_a_program_does_not_hold_us() {
        let (mut ends, begun) = (Vec::new(), now());
        assert!(!shell("echo last; sleep 20 & exit 1", &mut ends));
        assert!(ends[0].ends_with("last\n"), "{ends:?}");
        assert!(begun.elapsed() < Duration::from_secs(20), "it waited for somebody else");
    }
}
