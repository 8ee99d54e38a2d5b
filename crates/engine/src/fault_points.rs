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
}

/// Every point with its name: who, and what has just been done.
pub const NAMES: [(FaultPoint, &str); 16] = [
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
];

/// The environment asks for faults that cannot be had.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("DOORBUSTER_FAULT_POINTS: {0}")]
pub struct NotArmed(String);

/// Where a process is told what to do.
const VARIABLE: &str = "DOORBUSTER_FAULT_POINTS";

/// This build has no faults of its own.
///
/// # Errors
/// The environment asks for some.
#[cfg(not(feature = "fault-points"))]
pub fn check_environment() -> Result<(), NotArmed> {
    match std::env::var_os(VARIABLE) {
        Some(_) => Err(NotArmed("it is set, and this build has no fault points: unset it".to_owned())),
        None => Ok(()),
    }
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
