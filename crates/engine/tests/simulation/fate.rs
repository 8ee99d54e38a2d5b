//! What befalls each call of a backend: nothing, a refusal, a lost reply, or the death of the
//! process just before or just after it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use doorbuster_engine::fault::{BackendError, Fault, Layer};
use tokio::sync::Notify;

use crate::random::Random;

/// How often a fault befalls a call, in a thousand.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Odds {
    pub(crate) refused: u64,
    pub(crate) reply_lost: u64,
    pub(crate) died_before: u64,
    pub(crate) died_after: u64,
}

#[derive(Default)]
struct State {
    odds: Odds,
    dead: bool,
    fired: BTreeMap<&'static str, u64>,
}

/// The fates of one process's calls.
#[derive(Clone)]
pub(crate) struct Fate {
    state: Arc<Mutex<State>>,
    random: Arc<Mutex<Random>>,
    death: Arc<Notify>,
}

impl Fate {
    pub(crate) fn new(random: Random) -> Self {
        Self { state: Arc::default(), random: Arc::new(Mutex::new(random)), death: Arc::default() }
    }

    pub(crate) fn set_odds(&self, odds: Odds) {
        self.state.lock().unwrap().odds = odds;
    }

    /// Returns when the process has died.
    pub(crate) async fn death(&self) {
        while !self.state.lock().unwrap().dead {
            self.death.notified().await;
        }
    }

    /// A new process runs.
    pub(crate) fn revive(&self) {
        self.state.lock().unwrap().dead = false;
    }

    /// How often each fault befell a call.
    pub(crate) fn fired(&self) -> BTreeMap<&'static str, u64> {
        self.state.lock().unwrap().fired.clone()
    }

    fn befalls(&self, what: &'static str, odds: impl Fn(&Odds) -> u64) -> bool {
        let mut state = self.state.lock().unwrap();
        let befalls = odds(&state.odds) > 0 && self.random.lock().unwrap().below(1_000) < odds(&state.odds);
        if befalls {
            *state.fired.entry(what).or_default() += 1;
        }
        befalls
    }

    async fn die(&self) {
        self.state.lock().unwrap().dead = true;
        self.death.notify_waiters();
        std::future::pending().await
    }

    pub(crate) async fn before(&self, layer: Layer) -> Result<(), BackendError> {
        if self.befalls("died before a call", |odds| odds.died_before) {
            self.die().await;
        }
        if self.befalls("call refused", |odds| odds.refused) {
            return Err(BackendError::new(layer, Fault::Transient, "refused, says the simulation"));
        }
        Ok(())
    }

    pub(crate) async fn after(&self, layer: Layer) -> Result<(), BackendError> {
        if self.befalls("died after a call", |odds| odds.died_after) {
            self.die().await;
        }
        if self.befalls("reply lost", |odds| odds.reply_lost) {
            return Err(BackendError::new(layer, Fault::Ambiguous, "reply lost, says the simulation"));
        }
        Ok(())
    }
}
