//! What the machine allows: files, connections, memory, cores, ports, and its clock.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use doorbuster_engine::clock::{Clock, SystemClock, Timestamp};

use super::{Check, human};
use crate::cli::limits;
use crate::config::Config;
use crate::hot::BACKLOG;

/// Memory of the server beside its connections: stock, ledger's cache, buffers.
const MEMORY_BASE: u64 = 256 << 20;
/// Memory of one connection with its buffers.
const MEMORY_PER_CONNECTION: u64 = 24 << 10;
/// Most that the time of day may move against the monotonic clock while we look.
const DRIFT_MAX: Duration = Duration::from_millis(20);
/// The clock is wrong before this (2025) and after that (2100).
const YEARS: std::ops::Range<i64> = 1_735_689_600_000..4_102_444_800_000;

pub(super) fn open_files(connections: usize) -> Check {
    const NAME: &str = "open files";
    match limits::too_few(connections) {
        Some(found) => {
            let (found, remedy) = found.split_once(": ").unwrap_or((&found, "raise the limit"));
            Check::fail(NAME, found, remedy)
        }
        None => {
            let allowed =
                limits::open_files().map_or("no limit".to_owned(), |most| format!("{most} allowed"));
            Check::ok(NAME, format!("{allowed}, {} needed", limits::needed_for(connections)))
        }
    }
}

/// Connections that the kernel keeps until they are accepted.
pub(super) fn accept_queue() -> Check {
    const NAME: &str = "accept queue";
    let wanted = u64::from(BACKLOG.unsigned_abs());
    let Some(allowed) = number_in("/proc/sys/net/core/somaxconn") else {
        return Check::ok(NAME, "this system does not say how long it may be");
    };
    let found = format!("net.core.somaxconn = {allowed}");
    if allowed >= wanted {
        return Check::ok(NAME, found);
    }
    let remedy =
        format!("`sysctl -w net.core.somaxconn={wanted}`, or connections of the first second are refused");
    Check::warn(NAME, found, remedy)
}

pub(super) fn memory(connections: usize) -> Check {
    const NAME: &str = "memory";
    let wanted = MEMORY_BASE + MEMORY_PER_CONNECTION * connections as u64;
    let Some(free) = available_memory() else {
        return Check::ok(NAME, "this system does not say how much is free");
    };
    let found = format!(
        "{} available, {} wanted for server.connections_max = {connections}",
        human(free),
        human(wanted)
    );
    let remedy = "give it more memory or lower server.connections_max: the system kills what outgrows it";
    if free >= wanted {
        Check::ok(NAME, found)
    } else if free >= MEMORY_BASE {
        Check::warn(NAME, found, remedy)
    } else {
        Check::fail(NAME, found, remedy)
    }
}

/// What is free on the machine or in the container, whichever is less.
fn available_memory() -> Option<u64> {
    let machine = std::fs::read_to_string("/proc/meminfo").ok();
    let machine = machine.as_deref().and_then(available_in);
    let container = number_in("/sys/fs/cgroup/memory.max")
        .map(|most| most.saturating_sub(number_in("/sys/fs/cgroup/memory.current").unwrap_or(0)));
    machine.into_iter().chain(container).min()
}

fn available_in(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1_024)
}

pub(super) fn cores(configured: usize) -> Check {
    const NAME: &str = "cores";
    let Ok(cores) = std::thread::available_parallelism() else {
        return Check::ok(NAME, "this system does not say how many there are");
    };
    if configured > cores.get() {
        let remedy = "set server.cores to 0, which takes every core, or to what there is";
        return Check::warn(NAME, format!("server.cores = {configured}, and there are {cores}"), remedy);
    }
    Check::ok(NAME, cores.to_string())
}

pub(super) fn ports(config: &Config) -> Vec<Check> {
    let ports = [
        ("buyers' port", "server.listen", config.server.listen),
        ("staff's port", "admin.listen", config.admin.listen),
    ];
    ports.into_iter().map(|(name, key, address)| port(name, key, address)).collect()
}

fn port(name: &'static str, key: &str, address: SocketAddr) -> Check {
    match TcpListener::bind(address) {
        Ok(_) => Check::ok(name, format!("{address} is free")),
        Err(error) => {
            let remedy = match error.kind() {
                std::io::ErrorKind::AddrInUse => "stop what listens there, or choose another port with",
                std::io::ErrorKind::PermissionDenied => "choose a port above 1023 with",
                std::io::ErrorKind::AddrNotAvailable => {
                    "this machine has no such address: choose another with"
                }
                _ => "choose another address with",
            };
            Check::fail(name, format!("{address}: {error}"), format!("{remedy} {key}"))
        }
    }
}

/// The year, steps against the monotonic clock since `began`, and files from the future.
pub(super) fn clock(clock: &SystemClock, began: Timestamp, folder: &Path) -> Check {
    const NAME: &str = "clock";
    let (now, passed) = (clock.now(), clock.monotonic());
    let remedy = "synchronise the clock (chrony, systemd-timesyncd): a sale opens, closes and expires by it";
    if !YEARS.contains(&now.as_ms()) {
        return Check::fail(NAME, format!("it says {}", crate::views::time(now)), remedy);
    }
    let (most, least) = (now.since(began).max(passed), now.since(began).min(passed));
    if most - least > DRIFT_MAX {
        return Check::warn(NAME, format!("it jumped by {:.1?} while we looked", most - least), remedy);
    }
    if newest(folder).is_some_and(|newest| newest > now.plus(Duration::from_secs(5))) {
        return Check::fail(NAME, "the data directory has files from the future", remedy);
    }
    Check::ok(NAME, format!("{}, steady", crate::views::time(now)))
}

/// When the data was last written.
fn newest(folder: &Path) -> Option<Timestamp> {
    let written = std::fs::metadata(folder.join("ledger.sqlite")).ok()?.modified().ok()?;
    let since = written.duration_since(UNIX_EPOCH).ok()?;
    Some(Timestamp::from_ms(i64::try_from(since.as_millis()).ok()?))
}

/// The number a file of the system holds; `None` where there is none, such as `max`.
fn number_in(path: &str) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_port_that_is_taken_fails_and_names_its_key() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let check = port("staff's port", "admin.listen", taken.local_addr().unwrap());
        assert_eq!(check.level, Level::Fail);
        assert!(check.remedy.unwrap().contains("admin.listen"));
    }

    #[test]
    fn more_connections_than_files_or_memory_are_noticed() {
        assert_eq!(memory(usize::MAX >> 20).level, Level::Warn);
        assert_eq!(memory(1).level, Level::Ok);
        assert_eq!(open_files(1).level, Level::Ok);
    }

    #[test]
    fn available_memory_is_read() {
        assert_eq!(available_in("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
    }

    #[test]
    fn files_from_the_future_show_a_clock_that_is_behind() {
        let folder = tempfile::tempdir().unwrap();
        let system = SystemClock::new();
        assert_eq!(clock(&system, system.now(), folder.path()).level, Level::Ok);
        let file = std::fs::File::create(folder.path().join("ledger.sqlite")).unwrap();
        let later = UNIX_EPOCH + Duration::from_secs(4_000_000_000);
        file.set_modified(later).unwrap();
        assert_eq!(clock(&system, system.now(), folder.path()).level, Level::Fail);
    }
}
