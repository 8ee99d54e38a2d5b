//! The data directory: usable, free, with room, and how long a write takes to be safe.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use doorbuster_engine::clock::{Clock, SystemClock};
use tempfile::NamedTempFile;

use super::{Check, human};
use crate::directory::{DirectoryError, DirectoryLock};

/// Below this a sale may fill the disk: a million orders with their history take about 1 GiB.
const SPACE_WANTED: u64 = 4 << 30;
/// Below this the server cannot be trusted to end a sale.
const SPACE_NEEDED: u64 = 256 << 20;
/// Writes that are measured.
const WRITES: usize = 20;
/// Above this a batch of orders waits noticeably for its write.
const WRITE_WANTED: Duration = Duration::from_millis(20);
/// Above this buyers meet BUSY.
const WRITE_NEEDED: Duration = Duration::from_secs(1);

pub(super) fn checks(folder: &Path) -> Vec<Check> {
    const NAME: &str = "data directory";
    let shown = folder.display();
    if !folder.exists() {
        let place = nearest(folder);
        let remedy = format!("let this user write to {}, or choose another data.dir", place.display());
        return match NamedTempFile::new_in(&place) {
            Ok(_) => {
                let made = Check::ok(NAME, format!("{shown} does not exist yet and can be made"));
                vec![made, space(&place), latency(&place)]
            }
            Err(error) => vec![Check::fail(NAME, format!("{shown} cannot be made: {error}"), remedy)],
        };
    }
    let usable = match DirectoryLock::take(folder) {
        Ok(_) => Check::ok(NAME, format!("{shown} is free and can be written")),
        Err(DirectoryError::InUse { owner, .. }) => Check::fail(
            NAME,
            format!("{shown} is in use by process {owner}"),
            "stop that process before this server starts, or choose another data.dir",
        ),
        Err(error @ DirectoryError::Io { .. }) => {
            let remedy = "make it a folder that the server's user owns, or choose another data.dir";
            return vec![Check::fail(NAME, format!("{:#}", anyhow::Error::from(error)), remedy)];
        }
    };
    vec![usable, space(folder), latency(folder)]
}

/// The nearest folder above that exists.
fn nearest(folder: &Path) -> PathBuf {
    let above = folder.ancestors().skip(1).find(|it| it.is_dir());
    // Above a relative path stands the working directory.
    above.unwrap_or(Path::new(".")).to_owned()
}

fn space(folder: &Path) -> Check {
    const NAME: &str = "disk space";
    let free = match rustix::fs::statvfs(folder) {
        Ok(it) => it.f_bavail.saturating_mul(it.f_frsize),
        Err(error) => return Check::warn(NAME, format!("unknown: {error}"), "look at it with `df`"),
    };
    let found = format!("{} free", human(free));
    let remedy = "make room or move data.dir: a full disk stops the queue, and every buyer hears BUSY";
    match free {
        SPACE_WANTED.. => Check::ok(NAME, found),
        SPACE_NEEDED.. => Check::warn(NAME, found, remedy),
        _ => Check::fail(NAME, found, remedy),
    }
}

/// How long the disk takes to say that a small write is safe.
fn latency(folder: &Path) -> Check {
    const NAME: &str = "disk latency";
    let mut times = match measure(folder) {
        Ok(times) => times,
        Err(error) => return Check::fail(NAME, format!("a write failed: {error}"), "look at the disk"),
    };
    times.sort();
    let (median, slowest) = (times[times.len() / 2], times[times.len() - 1]);
    let found = format!("a safe write takes {median:.1?} (median), {slowest:.1?} (slowest of {WRITES})");
    let remedy =
        "use a local SSD for data.dir, not a network share; every batch of orders waits for one such write";
    if median >= WRITE_NEEDED {
        Check::fail(NAME, found, remedy)
    } else if median > WRITE_WANTED {
        Check::warn(NAME, found, remedy)
    } else {
        Check::ok(NAME, found)
    }
}

fn measure(folder: &Path) -> std::io::Result<Vec<Duration>> {
    let clock = SystemClock::new();
    let mut file = NamedTempFile::new_in(folder)?;
    (0..WRITES)
        .map(|_| {
            let began = clock.monotonic();
            file.write_all(&[0_u8; 4_096])?;
            file.as_file().sync_data()?;
            Ok(clock.monotonic().saturating_sub(began))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_directory_in_use_fails_and_one_that_can_be_made_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let held = DirectoryLock::take(folder.path()).unwrap();
        let found = checks(folder.path());
        assert_eq!(found[0].level, Level::Fail);
        assert!(found[0].found.contains(&std::process::id().to_string()), "{found:?}");
        drop(held);
        assert_eq!(checks(folder.path())[0].level, Level::Ok);
        let new = folder.path().join("not/yet");
        assert_eq!(checks(&new)[0].level, Level::Ok);
        assert!(!new.exists());
        std::fs::write(folder.path().join("file"), "").unwrap();
        assert_eq!(checks(&folder.path().join("file"))[0].level, Level::Fail);
    }
}
