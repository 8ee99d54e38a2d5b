//! The configuration: flags over environment over file over the compiled-in defaults.

use std::fmt;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod backends;
mod captcha;
mod eligibility;
mod events;
mod jwt;
pub(crate) mod keys;
mod layers;
mod limits;
mod payments;
mod room;
mod sale_tokens;
mod schema;
#[cfg(test)]
mod tests;
mod tls;
mod warnings;

pub use backends::{
    Kafka, KafkaSecurity, Ledger, LedgerBackend, Postgres, PostgresTls, Queue, QueueBackend, Redis,
    SaslMechanism, Stock, StockBackend,
};
pub use captcha::{Captcha, CaptchaProvider};
pub use events::{Endpoint, Events};
pub use jwt::{Jwt, TokenKey};
pub use layers::InvalidConfig;
pub use limits::GateLimits;
pub use payments::{LateName, Payments, ProviderName, Stripe};
pub use room::WaitingRoom;
pub use sale_tokens::SaleTokens;
pub use schema::schema;
pub use tls::Tls;

use schema::DurationText;

/// The documented defaults, as `config init` writes them.
pub const DEFAULTS: &str = include_str!("../../../config.default.toml");

/// The whole configuration; `config.default.toml` says what each key means.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key, and a test holds it to that")]
pub struct Config {
    pub server: Server,
    pub admin: Admin,
    pub data: Data,
    pub stock: Stock,
    pub queue: Queue,
    pub ledger: Ledger,
    pub redis: Redis,
    pub kafka: Kafka,
    pub postgres: Postgres,
    pub gate: Gate,
    pub sale: Sale,
    pub payments: Payments,
    pub events: Events,
    pub log: Log,
}

/// The public listener.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Server {
    pub listen: SocketAddr,
    pub roles: Vec<Role>,
    pub cores: usize,
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    #[serde(with = "limits::networks")]
    #[schemars(with = "Vec<String>")]
    pub trusted_proxies: Vec<IpNet>,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub header_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub body_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub idle_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub unready_delay: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub drain_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub recorder_stall_max: Duration,
    pub tls: Tls,
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves buyers.
    Gateway,
    /// Writes queued orders into the ledger.
    Recorder,
    /// Opens, expires, returns and rebuilds.
    Keeper,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 3] = [Self::Gateway, Self::Recorder, Self::Keeper];

    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Recorder => "recorder",
            Self::Keeper => "keeper",
        }
    }
}

/// The staff's listener.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Admin {
    pub listen: SocketAddr,
    pub token_file: PathBuf,
    pub tls: Tls,
}

/// The embedded engine's folder.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Data {
    pub dir: PathBuf,
}

/// The gate.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Gate {
    pub queue_lag_max: u64,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub outbox_age_max: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub ledger_silence_max: Duration,
    pub strikes_max: u32,
    pub levels: Vec<String>,
    pub shed_from_percent: u32,
    pub region_header: String,
    pub jwt: Jwt,
    pub sale_tokens: SaleTokens,
    pub waiting_room: WaitingRoom,
    pub captcha: Captcha,
    pub limits: GateLimits,
}

/// A unit is held from others for no longer than this behind its order's deadline.
const HOLD_MOST: Duration = Duration::from_secs(600);

/// Sales.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Sale {
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub preheat_lead: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub release_spread: Duration,
}

/// Logs.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// Least severe lines that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the levels")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the formats")]
pub enum LogFormat {
    Text,
    Json,
}

/// A value that is never printed.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Keeps `text` from being printed.
    pub fn new(text: String) -> Self {
        Self(text)
    }

    /// What a file says, without the line break at its end. `key` is the configuration's, for the message.
    ///
    /// # Errors
    /// When the file cannot be read, or everybody can read it.
    pub(crate) fn from_file(path: &Path, key: &str) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("the secret in {} ({key}) cannot be read", path.display()))?;
        let mode = std::fs::metadata(path).map_or(0, |it| it.permissions().mode());
        if mode & 0o007 != 0 {
            bail!(
                "{key} = {file} can be read by everybody: run `chmod 600 {file}` and, since others may have read \
                 it, make a new secret",
                file = path.display()
            );
        }
        Ok(Self(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// The value itself, for the one place that needs it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "\"\"" } else { "\"(set)\"" })
    }
}

impl Serialize for Secret {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(if self.0.is_empty() { "" } else { "(set)" })
    }
}

impl Config {
    /// Reads every layer: `file`, if one is named, `environment` (name and value pairs), and
    /// `flags` as `section.key` with a value.
    ///
    /// # Errors
    /// [`InvalidConfig`] with everything that is wrong, each line with its key; another error when
    /// the file cannot be read as a whole.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> anyhow::Result<Self> {
        layers::read(file, environment, flags)
    }

    /// What no single key can say.
    fn contradictions(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (key, value) in [
            ("server.header_timeout", self.server.header_timeout),
            ("server.body_timeout", self.server.body_timeout),
            ("server.idle_timeout", self.server.idle_timeout),
            ("server.recorder_stall_max", self.server.recorder_stall_max),
            ("payments.timeout", self.payments.timeout),
            ("payments.webhook_tolerance", self.payments.webhook_tolerance),
            ("payments.reread", self.payments.reread),
        ] {
            if value.is_zero() {
                wrong.push(format!("`{key}` must be longer than nothing"));
            }
        }
        if self.payments.hold > HOLD_MOST {
            let most = humantime::format_duration(HOLD_MOST);
            wrong.push(format!("`payments.hold` must be at most {most}"));
        }
        for (key, value) in [
            ("server.connections_max", self.server.connections_max),
            ("server.connections_per_address_max", self.server.connections_per_address_max),
        ] {
            if value == 0 {
                wrong.push(format!("`{key}` must be at least 1"));
            }
        }
        if self.data.dir.as_os_str().is_empty() {
            wrong.push("`data.dir` must name a folder".to_owned());
        }
        wrong.extend(self.impossible_backends());
        wrong.extend(self.impossible_tokens());
        wrong.extend(self.impossible_sale_tokens());
        wrong.extend(self.impossible_rooms());
        wrong.extend(self.impossible_captcha());
        wrong.extend(self.impossible_limits());
        wrong.extend(self.impossible_eligibility());
        wrong.extend(self.impossible_events());
        wrong.extend(self.impossible_tls());
        if self.server.listen == self.admin.listen && self.server.listen.port() != 0 {
            wrong.push(format!(
                "`server.listen` and `admin.listen` are both {}: buyers and staff need a port each",
                self.server.listen
            ));
        }
        wrong
    }
}
