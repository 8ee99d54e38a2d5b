//! The shop's identity provider: the keys that access tokens are verified with, and how they stay fresh.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use async_trait::async_trait;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::gate::{JwtAlgorithm, JwtKeys, JwtRules, JwtVerifier, UnusableKey};
use doorbuster_engine::told::Told;
use doorbuster_engine::workers::{Step, Worker};
use reqwest::Client;
use reqwest::redirect::Policy;

use crate::config::Config;

/// Least time between two readings for tokens that name unknown keys, of which there may be any number.
const GAP: Duration = Duration::from_secs(30);

/// Longest set that is read, in bytes.
const SET_MAX: usize = 256 * 1024;

/// Verifies access tokens as the configuration says.
///
/// # Errors
/// When there is no key, or one that is weak or cannot be read.
pub(crate) fn verifier(config: &Config) -> anyhow::Result<JwtVerifier> {
    let jwt = &config.gate.jwt;
    let rules = JwtRules {
        issuer: jwt.issuer.clone(),
        audience: jwt.audience.clone(),
        leeway: jwt.leeway,
        lifetime_max: jwt.lifetime_max,
    };
    Ok(JwtVerifier::new(config.jwt_keys()?, rules).reading(config.profile_claims()))
}

/// How often the set of keys was read, by what came of it.
#[derive(Debug, Default)]
pub(crate) struct KeySetReadings {
    pub(crate) taken: AtomicU64,
    pub(crate) unchanged: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Why a set of keys was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoKeySet {
    #[error("no answer")]
    Unreachable(#[source] reqwest::Error),
    #[error("it answers {0}")]
    Status(u16),
    #[error("the answer is longer than {SET_MAX} bytes")]
    TooLong,
    #[error("no key of it can be used")]
    Unusable(#[source] UnusableKey),
}

/// Where a set of keys is.
pub(crate) struct KeySet {
    client: Client,
    url: String,
    algorithms: Vec<JwtAlgorithm>,
}

impl KeySet {
    /// The set at `gate.jwt.jwks_url`, if there is one.
    ///
    /// # Errors
    /// When no HTTP client can be made.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Option<Self>> {
        let jwt = &config.gate.jwt;
        if jwt.jwks_url.is_empty() {
            return Ok(None);
        }
        let timeout = jwt.jwks_timeout;
        // A redirect or a proxy of the environment's would let others name the keys.
        let client =
            Client::builder().redirect(Policy::none()).no_proxy().connect_timeout(timeout).timeout(timeout);
        let client = client.build().context("the HTTP client for gate.jwt.jwks_url cannot be made")?;
        Ok(Some(Self { client, url: jwt.jwks_url.clone(), algorithms: jwt.jwks_algorithms.clone() }))
    }

    async fn text(&self) -> Result<Vec<u8>, NoKeySet> {
        let silent = |error: reqwest::Error| NoKeySet::Unreachable(error.without_url());
        let mut answer = self.client.get(&self.url).send().await.map_err(silent)?;
        if answer.status() != reqwest::StatusCode::OK {
            return Err(NoKeySet::Status(answer.status().as_u16()));
        }
        let mut text = Vec::new();
        while let Some(part) = answer.chunk().await.map_err(silent)? {
            text.extend_from_slice(&part);
            if text.len() > SET_MAX {
                return Err(NoKeySet::TooLong);
            }
        }
        Ok(text)
    }

    fn keys(&self, text: &[u8]) -> Result<(JwtKeys, Vec<String>), NoKeySet> {
        let read = JwtKeys::of_jwks(text, &self.algorithms).map_err(NoKeySet::Unusable)?;
        Ok((read.keys, read.passed_over))
    }

    /// The set as it is now: how many of its keys can be used, and what is passed over.
    ///
    /// # Errors
    /// [`NoKeySet`].
    pub(crate) async fn look(&self) -> Result<(usize, Vec<String>), NoKeySet> {
        let (keys, passed_over) = self.keys(&self.text().await?)?;
        Ok((keys.len(), passed_over))
    }
}

/// Reads the set again and again, beside the purchase path: nobody who buys waits for it. What was read
/// last stays until something better comes.
pub(crate) struct KeySetReader {
    set: KeySet,
    verifier: Arc<JwtVerifier>,
    clock: Arc<dyn Clock>,
    refresh: Duration,
    readings: Arc<KeySetReadings>,
    last: Vec<u8>,
    /// When it was last asked for, by the clock that cannot jump.
    asked_at: Option<Duration>,
    /// How long until it is asked for again, if no token names an unknown key.
    pause: Duration,
    failures: u32,
    wanted: bool,
    failures_told: Told,
}

impl KeySetReader {
    pub(crate) fn new(
        set: KeySet,
        verifier: Arc<JwtVerifier>,
        clock: Arc<dyn Clock>,
        refresh: Duration,
        readings: Arc<KeySetReadings>,
    ) -> Self {
        Self {
            set,
            verifier,
            clock,
            refresh,
            readings,
            last: Vec::new(),
            asked_at: None,
            pause: Duration::ZERO,
            failures: 0,
            wanted: false,
            failures_told: Told::default(),
        }
    }

    fn is_due(&mut self) -> bool {
        self.wanted |= self.verifier.take_unknown();
        let Some(asked_at) = self.asked_at else { return true };
        let since = self.clock.monotonic().saturating_sub(asked_at);
        since >= self.pause || (self.wanted && since >= GAP)
    }

    /// Takes the set, if it is another one.
    async fn read(&mut self) -> Result<(), NoKeySet> {
        let text = self.set.text().await?;
        if text == self.last {
            self.readings.unchanged.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        let (keys, passed_over) = self.set.keys(&text)?;
        tracing::info!(keys = keys.len(), "took the identity provider's keys");
        if !passed_over.is_empty() {
            tracing::info!(
                keys = passed_over.join("; "),
                "some of the identity provider's keys are not used"
            );
        }
        self.verifier.replace_keys(keys);
        self.last = text;
        self.readings.taken.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Not all gateways at the same moment; after a failure sooner, and soonest while there is no key.
    fn next_pause(&self) -> Duration {
        if self.failures == 0 {
            return self.refresh.mul_f64(0.9 + rand::random::<f64>() / 5.0);
        }
        if self.verifier.keys() > 0 {
            return GAP.min(self.refresh);
        }
        Duration::from_secs(1 << self.failures.min(5)).min(GAP)
    }
}

#[async_trait]
impl Worker for KeySetReader {
    fn name(&self) -> &'static str {
        "jwks"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        if !self.is_due() {
            return Ok(Step::Idle);
        }
        self.asked_at = Some(self.clock.monotonic());
        self.wanted = false;
        match self.read().await {
            Ok(()) => self.failures = 0,
            Err(error) => {
                self.failures = self.failures.saturating_add(1);
                self.readings.failed.fetch_add(1, Ordering::Relaxed);
                if let Some(readings) = self.failures_told.due(1) {
                    let keys = self.verifier.keys();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        readings,
                        keys,
                        error,
                        "the identity provider's keys (gate.jwt.jwks_url) could not be read; those read before stay"
                    );
                }
            }
        }
        self.pause = self.next_pause();
        Ok(Step::Worked(1))
    }
}
