//! Fault points: places between two steps where a test lets this process die or stand still.
//!
//! They are compiled in by the feature `fault-points`, which test builds turn on; without it a point is
//! nothing, and a process that is told of one refuses to start. It is told by its environment, for example
//! `DOORBUSTER_FAULT_POINTS=gateway.reserved=kill@50,recorder.committed=stop`: the fiftieth time that a
//! gateway has reserved and not yet published, it ends as by `kill -9`; the first time that a recorder
//! has committed, it stands still until it gets SIGCONT.

/// One place between two steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "NAMES says where each stands")]
pub enum FaultPoint {
    Admitted,
    Reserved,
    Acknowledged,
    Read,
    Committed,
    Confirmed,
    Swept,
    Expired,
    Released,
    RebuildBegun,
    OutboxesRecorded,
    BarriersPassed,
    Loaded,
    Opened,
    RestockWritten,
    RestockAdjusted,
    Retaken,
    Settled,
}

/// Every point with its name: who, and what has just been done.
pub const NAMES: [(FaultPoint, &str); 18] = [
    (FaultPoint::Admitted, "gateway.admitted"),
    (FaultPoint::Reserved, "gateway.reserved"),
    (FaultPoint::Acknowledged, "gateway.acknowledged"),
    (FaultPoint::Read, "recorder.read"),
    (FaultPoint::Committed, "recorder.committed"),
    (FaultPoint::Confirmed, "recorder.confirmed"),
    (FaultPoint::Swept, "sweeper.published"),
    (FaultPoint::Expired, "expirer.expired"),
    (FaultPoint::Released, "releaser.released"),
    (FaultPoint::RebuildBegun, "rebuild.begun"),
    (FaultPoint::OutboxesRecorded, "rebuild.outboxes-recorded"),
    (FaultPoint::BarriersPassed, "rebuild.barriers-passed"),
    (FaultPoint::Loaded, "rebuild.loaded"),
    (FaultPoint::Opened, "rebuild.opened"),
    (FaultPoint::RestockWritten, "restock.written"),
    (FaultPoint::RestockAdjusted, "restock.adjusted"),
    (FaultPoint::Retaken, "settler.reserved"),
    (FaultPoint::Settled, "settler.settled"),
];

/// The environment asks for faults that cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("DOORBUSTER_FAULT_POINTS: {0}")]
pub struct NotArmed(String);

/// Where a process is told what to do.
const VARIABLE: &str = "DOORBUSTER_FAULT_POINTS";

/// Names a file that says by how many seconds this process' clock is wrong; it may change at any time.
const CLOCK_VARIABLE: &str = "DOORBUSTER_FAULT_CLOCK";

/// This build has no faults of its own.
///
/// # Errors
/// The environment asks for some.
#[cfg(not(feature = "fault-points"))]
pub fn check_environment() -> Result<(), NotArmed> {
    match [VARIABLE, CLOCK_VARIABLE].into_iter().find(|name| std::env::var_os(name).is_some()) {
        Some(name) => Err(NotArmed(format!("{name} is set, and this build has no fault points: unset it"))),
        None => Ok(()),
    }
}

/// The clock as it is: this build has no faults of its own.
#[cfg(not(feature = "fault-points"))]
pub fn clock(clock: std::sync::Arc<dyn crate::clock::Clock>) -> std::sync::Arc<dyn crate::clock::Clock> {
    clock
}

#[cfg(not(feature = "fault-points"))]
impl FaultPoint {
    /// Nothing: this build has no faults of its own.
    #[inline(always)]
    pub(crate) fn reached(self) {}
}

#[cfg(feature = "fault-points")]
pub use armed::check_environment;

#[cfg(feature = "fault-points")]
pub use wrong_clock::clock;

#[cfg(feature = "fault-points")]
mod armed {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    use super::{FaultPoint, NAMES, NotArmed, VARIABLE};

    /// What happens at a point.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        /// The process ends at once: no handler runs, nothing is flushed.
        Kill,
        /// The process stands still until somebody lets it go on.
        Stop,
    }

    /// A fault that waits for its moment.
    #[derive(Debug)]
    struct Armed {
        point: FaultPoint,
        fault: Fault,
        /// At the how-manieth time, from one on.
        at: u64,
        reached: AtomicU64,
    }

    /// One per process: the fault is the process' own end.
    static ARMED: OnceLock<Vec<Armed>> = OnceLock::new();

    /// Reads what the environment asks for.
    ///
    /// # Errors
    /// What cannot be understood of it, in words.
    pub fn check_environment() -> Result<(), NotArmed> {
        let armed = parse(&std::env::var(VARIABLE).unwrap_or_default())?;
        ARMED.get_or_init(|| armed);
        Ok(())
    }

    fn parse(text: &str) -> Result<Vec<Armed>, NotArmed> {
        let parts = text.split(',').filter(|part| !part.is_empty());
        parts
            .map(|part| {
                let (name, what) =
                    part.split_once('=').ok_or_else(|| NotArmed(format!("{part} names no fault")))?;
                let known = NAMES.iter().find(|(_, known)| *known == name);
                let point = known.ok_or_else(|| NotArmed(format!("there is no fault point {name}")))?.0;
                let (fault, at) = what.split_once('@').unwrap_or((what, "1"));
                let fault = match fault {
                    "kill" => Fault::Kill,
                    "stop" => Fault::Stop,
                    other => return Err(NotArmed(format!("{other} is no fault: kill or stop"))),
                };
                let at = at.parse().ok().filter(|&at| at > 0);
                let at =
                    at.ok_or_else(|| NotArmed(format!("{part}: a number from one on stands behind the @")))?;
                Ok(Armed { point, fault, at, reached: AtomicU64::new(0) })
            })
            .collect()
    }

    impl FaultPoint {
        /// Does what this process was told to do here.
        pub(crate) fn reached(self) {
            let Some(armed) = ARMED.get() else { return };
            for it in armed.iter().filter(|it| it.point == self) {
                if it.reached.fetch_add(1, Ordering::Relaxed) + 1 == it.at {
                    it.fault.happen(self);
                }
            }
        }
    }

    impl Fault {
        fn happen(self, point: FaultPoint) {
            eprintln!("fault point {point:?}: {self:?}");
            let signal = match self {
                Self::Kill => Signal::KILL,
                Self::Stop => Signal::STOP,
            };
            kill_process(getpid(), signal).expect("a process may send itself a signal");
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn what_the_environment_asks_for_is_understood_or_refused() {
            let armed = parse("gateway.reserved=kill@50,recorder.committed=stop").expect("it is right");
            let told: Vec<_> = armed.iter().map(|it| (it.point, it.fault, it.at)).collect();
            assert_eq!(
                told,
                [(FaultPoint::Reserved, Fault::Kill, 50), (FaultPoint::Committed, Fault::Stop, 1)]
            );
            assert!(parse("").expect("nothing is asked for").is_empty());
            for wrong in
                ["gateway.reserved", "gateway.lost=kill", "gateway.reserved=sing", "gateway.reserved=kill@0"]
            {
                assert!(parse(wrong).is_err(), "{wrong}");
            }
        }
    }
}

#[cfg(feature = "fault-points")]
mod wrong_clock {
    use std::path::PathBuf;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    use super::CLOCK_VARIABLE;
    use crate::clock::{Clock, Timestamp};

    /// How long what was read is good for: a clock that is set jumps so long after it at most.
    const READ_EVERY: Duration = Duration::from_millis(100);

    /// The clock, wrong as the environment asks for. (libfaketime was refused: Kafka's client, which waits by
    /// both of the machine's clocks, never connects under it.)
    pub fn clock(clock: Arc<dyn Clock>) -> Arc<dyn Clock> {
        match std::env::var_os(CLOCK_VARIABLE) {
            Some(file) => Arc::new(WrongClock { clock, file: file.into(), read: Mutex::default() }),
            None => clock,
        }
    }

    /// A clock that is as wrong as a file says.
    struct WrongClock {
        clock: Arc<dyn Clock>,
        file: PathBuf,
        /// When the file was read, and what it said, in milliseconds.
        read: Mutex<Option<(Duration, i64)>>,
    }

    impl WrongClock {
        /// A file that cannot be read leaves the clock as it is.
        fn error_ms(&self) -> i64 {
            let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
            let now = self.clock.monotonic();
            if let Some((at, ms)) = *read
                && now.saturating_sub(at) < READ_EVERY
            {
                return ms;
            }
            let told =
                std::fs::read_to_string(&self.file).ok().and_then(|text| text.trim().parse::<i64>().ok());
            let ms =
                told.map_or_else(|| read.map_or(0, |(_, ms)| ms), |seconds| seconds.saturating_mul(1_000));
            *read = Some((now, ms));
            ms
        }
    }

    impl Clock for WrongClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_ms(self.clock.now().as_ms().saturating_add(self.error_ms()))
        }

        fn monotonic(&self) -> Duration {
            self.clock.monotonic()
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::clock::ManualClock;

        #[test]
        fn a_clock_is_as_wrong_as_its_file_says_and_jumps_with_it() {
            let folder = tempfile::tempdir().expect("a temporary folder can be made");
            let file = folder.path().join("clock");
            let right = Arc::new(ManualClock::at(Timestamp::from_ms(1_000_000)));
            let wrong =
                WrongClock { clock: Arc::clone(&right) as _, file: file.clone(), read: Mutex::default() };
            assert_eq!(wrong.now().as_ms(), 1_000_000, "there is no file yet");
            std::fs::write(&file, "-600\n").expect("the folder is there");
            right.advance(READ_EVERY);
            assert_eq!(wrong.now().as_ms(), 400_100);
            assert_eq!(wrong.monotonic(), right.monotonic());
        }
    }
}
