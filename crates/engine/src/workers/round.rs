//! A step over several sales, in which a fault of one holds up no other.

use super::Step;
use crate::fault::BackendError;
use crate::told::Told;

/// What became of each sale in one step.
#[derive(Default)]
pub(super) struct Round {
    done: u64,
    sound: u64,
    failed: u64,
    first: Option<BackendError>,
}

impl Round {
    /// Notes how much was done for one sale, or its fault.
    pub(super) fn note(&mut self, result: Result<u64, BackendError>) {
        match result {
            Ok(done) => {
                self.done += done;
                self.sound += 1;
            }
            Err(error) => {
                self.failed += 1;
                self.first.get_or_insert(error);
            }
        }
    }
}

/// One worker's rounds.
#[derive(Default)]
pub(super) struct Rounds {
    told: Told,
}

impl Rounds {
    /// What the step answers: the fault when nothing went well, so that the worker waits; else how much
    /// was done, with the first fault in the log now and then.
    pub(super) fn end(&self, round: Round, worker: &'static str) -> Result<Step, BackendError> {
        let Some(error) = round.first else { return Ok(Step::of(round.done)) };
        if round.sound == 0 {
            return Err(error);
        }
        if let Some(steps) = self.told.due(1) {
            tracing::warn!(
                worker,
                steps,
                failed = round.failed,
                sound = round.sound,
                error = error.chain(),
                "a part of the step failed and will be done again; the rest goes on"
            );
        }
        Ok(Step::of(round.done))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Fault, Layer};

    #[test]
    fn one_fault_among_others_ends_no_step_and_nothing_but_faults_does() {
        let fault = || Err(BackendError::new(Layer::Stock, Fault::Transient, "a shard is down"));
        let rounds = Rounds::default();
        let mut round = Round::default();
        round.note(fault());
        round.note(Ok(2));
        assert_eq!(rounds.end(round, "test").ok(), Some(Step::Worked(2)));
        let mut round = Round::default();
        round.note(fault());
        assert!(rounds.end(round, "test").is_err());
        assert_eq!(rounds.end(Round::default(), "test").ok(), Some(Step::Idle));
    }
}
