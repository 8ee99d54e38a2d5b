//! What this process may take of the system: open files, of which every connection is one, and
//! memory.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Files open beside the connections: ledger, queue, listeners, timers, with room.
const BESIDE_CONNECTIONS: u64 = 256;

/// Takes what the system would allow, since the usual soft limit of 1024 is far below a rush.
pub(super) fn raise_open_files() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        // Where the system refuses, the limit stays and is reported where it is too low.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    }
}

/// Leaves huge pages to others: an idle connection touches the first page of each of its buffers,
/// and a huge page would make all of them resident.
pub(super) fn avoid_huge_pages() {
    // Where the system refuses, the process only takes more memory.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Most open files; `None` where there is no limit.
pub(super) fn open_files() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Files that so many connections need.
pub(super) fn needed_for(connections: usize) -> u64 {
    connections as u64 + BESIDE_CONNECTIONS
}

/// What is wrong when the limit is below what the connections need.
pub(super) fn too_few(connections: usize) -> Option<String> {
    let (allowed, needed) = (open_files()?, needed_for(connections));
    (allowed < needed).then(|| {
        format!(
            "this process may open {allowed} files, and server.connections_max = {connections} needs {needed}: \
             raise the limit (`ulimit -n {needed}`, LimitNOFILE= in a systemd unit) or lower the key"
        )
    })
}
