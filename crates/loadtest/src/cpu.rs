//! What the generator's own threads cost: figures for the report, never for the verdict.

/// The time the calling thread ran or was ready to run and waited for a core.
pub(crate) fn thread_busy_us() -> u64 {
    // "<ns on a core> <ns waiting for one> <times it ran>"; without it only the first is known.
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let mut parts = stat.split_ascii_whitespace().map_while(|part| part.parse::<u64>().ok());
    match (parts.next(), parts.next()) {
        (Some(ran_ns), Some(waited_ns)) => (ran_ns + waited_ns) / 1_000,
        _ => thread_cpu_us(),
    }
}

/// CPU time of the calling thread, user and system.
pub(crate) fn thread_cpu_us() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let secs = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    secs * 1_000_000 + nanos / 1_000
}
