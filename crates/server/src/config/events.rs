//! Where the shop is told of events.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use doorbuster_engine::ledger::EventType;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::DurationText;
use super::{Config, Secret};
use crate::outgoing::address::Allowed;

/// Longest name of an endpoint, in bytes.
const NAME_MAX: usize = 40;

/// Most endpoints: each has workers and connections of its own.
const ENDPOINTS_MAX: usize = 20;

/// Events for the shop.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Events {
    pub endpoints: Vec<Endpoint>,
    pub allow_private: Vec<String>,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub retention: Duration,
}

/// One place that is told.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Endpoint {
    /// Its name in the ledger and the log: lower-case letters, digits, `-` and `_`. Under a new name it
    /// is a new endpoint.
    pub name: String,
    /// Where it is.
    pub url: String,
    /// File with the secrets that sign for it, one a line.
    pub secret_file: PathBuf,
    /// What it is told of; everything when empty.
    pub types: Vec<String>,
}

impl Endpoint {
    /// What it is told of.
    pub(crate) fn event_types(&self) -> Vec<EventType> {
        let named =
            |kind: &EventType| self.types.is_empty() || self.types.iter().any(|it| it == kind.as_str());
        EventType::ALL.into_iter().filter(named).collect()
    }

    /// The secrets that sign for it, all of them.
    ///
    /// # Errors
    /// When the file cannot be read, or has something else in it.
    pub(crate) fn secrets(&self) -> anyhow::Result<Vec<Secret>> {
        let text = Secret::from_file(&self.secret_file, "secret_file of events.endpoints")?;
        let secrets: Vec<Secret> =
            text.reveal().split_whitespace().map(|it| Secret::new(it.to_owned())).collect();
        if secrets.iter().any(|it| !it.reveal().starts_with("whsec_")) {
            bail!(
                "a secret in {} does not begin with whsec_: make one with `echo \"whsec_$(openssl rand -base64 32)\"`",
                self.secret_file.display()
            );
        }
        Ok(secrets)
    }

    fn wrong(&self, allowed: &Allowed) -> Vec<String> {
        let mut wrong = Vec::new();
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
        if self.name.is_empty() || self.name.len() > NAME_MAX || !self.name.bytes().all(plain) {
            wrong.push(format!(
                "`events.endpoints`: `{}` is no name: 1 to {NAME_MAX} of a-z, 0-9, - and _",
                self.name.escape_default()
            ));
        }
        if let Err(why) = allowed.checked(&self.url) {
            wrong.push(format!("`events.endpoints`: the url of `{}` {why}", self.name.escape_default()));
        }
        if self.secret_file.as_os_str().is_empty() {
            wrong.push(format!("`events.endpoints`: `{}` needs a secret_file", self.name.escape_default()));
        }
        for kind in self.types.iter().filter(|kind| kind.parse::<EventType>().is_err()) {
            let known: Vec<&str> = EventType::ALL.iter().map(|it| it.as_str()).collect();
            wrong.push(format!(
                "`events.endpoints`: `{}` of `{}` is no type of events: {}",
                kind.escape_default(),
                self.name.escape_default(),
                known.join(", ")
            ));
        }
        wrong
    }
}

impl Config {
    /// What is wrong with where events go.
    pub(super) fn impossible_events(&self) -> Vec<String> {
        let events = &self.events;
        let allowed = Allowed::new(&events.allow_private);
        let mut wrong: Vec<String> = events.endpoints.iter().flat_map(|it| it.wrong(&allowed)).collect();
        let mut names = BTreeSet::new();
        for endpoint in events.endpoints.iter().filter(|it| !names.insert(&it.name)) {
            wrong.push(format!("`events.endpoints` has {} twice", endpoint.name.escape_default()));
        }
        if events.endpoints.len() > ENDPOINTS_MAX {
            wrong.push(format!("`events.endpoints` has more than {ENDPOINTS_MAX} endpoints"));
        }
        if events.timeout.is_zero() {
            wrong.push("`events.timeout` must be longer than nothing".to_owned());
        }
        wrong
    }

    /// Endpoints that are told in the clear, with the host in each.
    pub(super) fn warn_of_events(&self, warnings: &mut Vec<String>) {
        for endpoint in &self.events.endpoints {
            let Ok(url) = reqwest::Url::parse(&endpoint.url) else { continue };
            let host = url.host_str().unwrap_or_default();
            let near = host == "localhost" || host.starts_with("127.") || host == "[::1]";
            if url.scheme() == "http" && !near {
                warnings.push(format!(
                    "events.endpoints: {} is told at http://{host}: what users buy and pay is sent in the clear",
                    endpoint.name
                ));
            }
        }
    }
}
