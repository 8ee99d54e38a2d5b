//! Which stock, queue and ledger, and how to reach them.

use std::path::PathBuf;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::DurationText;
use super::{Config, Role, Secret};

/// The shortest silence that brokers let a member of a group have (`group.min.session.timeout.ms`).
const POLL_INTERVAL_LEAST: Duration = Duration::from_secs(6);
/// The longest that Kafka's client takes.
const POLL_INTERVAL_MOST: Duration = Duration::from_secs(24 * 3_600);

/// The stock's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the backends")]
pub enum StockBackend {
    Embedded,
    Redis,
}

/// The queue's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the backends")]
pub enum QueueBackend {
    Embedded,
    Kafka,
}

/// The ledger's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the backends")]
pub enum LedgerBackend {
    Sqlite,
    Postgres,
}

/// The stock.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Stock {
    pub backend: StockBackend,
}

/// The queue.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Queue {
    pub backend: QueueBackend,
}

/// The ledger.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Ledger {
    pub backend: LedgerBackend,
}

/// Redis.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Redis {
    pub url: Secret,
    pub url_file: PathBuf,
    pub prefix: String,
    pub ca_file: PathBuf,
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub connect_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub response_timeout: Duration,
}

/// How brokers are spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the words are Kafka's")]
pub enum KafkaSecurity {
    Plaintext,
    Ssl,
    SaslPlaintext,
    SaslSsl,
}

/// How a password is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[expect(missing_docs, reason = "the words are Kafka's")]
pub enum SaslMechanism {
    #[serde(rename = "plain")]
    Plain,
    #[serde(rename = "scram-sha-256")]
    ScramSha256,
    #[serde(rename = "scram-sha-512")]
    ScramSha512,
}

/// Kafka.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Kafka {
    pub brokers: Vec<String>,
    pub topic: String,
    pub partitions: u32,
    pub replication: u16,
    pub group: String,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub message_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub poll_interval_max: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub retention: Duration,
    pub security: KafkaSecurity,
    pub ca_file: PathBuf,
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
    pub key_password: Secret,
    pub key_password_file: PathBuf,
    pub sasl_mechanism: SaslMechanism,
    pub user: String,
    pub password: Secret,
    pub password_file: PathBuf,
}

/// How the database is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the words are PostgreSQL's")]
pub enum PostgresTls {
    Disable,
    Prefer,
    Require,
    VerifyFull,
}

/// PostgreSQL.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Postgres {
    pub url: Secret,
    pub url_file: PathBuf,
    pub schema: String,
    pub pool_max: usize,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub connect_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub statement_timeout: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub lock_timeout: Duration,
    pub tls: PostgresTls,
    pub ca_file: PathBuf,
    pub migrate: bool,
}

impl Config {
    /// The Redis URL, from its file when one is named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn redis_url(&self) -> anyhow::Result<Secret> {
        from_file_or(&self.redis.url_file, "redis.url_file", &self.redis.url)
    }

    /// The Kafka password, from its file when one is named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn kafka_password(&self) -> anyhow::Result<Secret> {
        from_file_or(&self.kafka.password_file, "kafka.password_file", &self.kafka.password)
    }

    /// The password of the Kafka client's key, from its file when one is named; empty without one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn kafka_key_password(&self) -> anyhow::Result<Secret> {
        let keys = &self.kafka;
        from_file_or(&keys.key_password_file, "kafka.key_password_file", &keys.key_password)
    }

    /// The PostgreSQL URL, from its file when one is named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn postgres_url(&self) -> anyhow::Result<Secret> {
        from_file_or(&self.postgres.url_file, "postgres.url_file", &self.postgres.url)
    }

    /// Whether a part of this process's state is in its data directory.
    pub fn uses_data_dir(&self) -> bool {
        self.queue.backend == QueueBackend::Embedded || self.ledger.backend == LedgerBackend::Sqlite
    }

    /// Roles and backends that cannot work together.
    pub(super) fn impossible_backends(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let roles = &self.server.roles;
        if roles.is_empty() {
            wrong.push("`server.roles` must name at least one of gateway, recorder and keeper".to_owned());
        }
        if let Some(twice) = roles.iter().enumerate().find(|(at, role)| roles[..*at].contains(role)) {
            wrong.push(format!("`server.roles` names {} twice", twice.1.as_str()));
        }
        let missing: Vec<&str> =
            Role::ALL.into_iter().filter(|role| !roles.contains(role)).map(Role::as_str).collect();
        for (key, value, embedded) in [
            ("stock.backend", "embedded", self.stock.backend == StockBackend::Embedded),
            ("queue.backend", "embedded", self.queue.backend == QueueBackend::Embedded),
            ("ledger.backend", "sqlite", self.ledger.backend == LedgerBackend::Sqlite),
        ] {
            if embedded && !roles.is_empty() && !missing.is_empty() {
                wrong.push(format!(
                    "`{key}` = {value} belongs to one process, so that process must have every role, and \
                     `server.roles` lacks {}: choose a server for it, or give this process all roles",
                    missing.join(" and ")
                ));
            }
        }
        for (key, value) in [
            ("redis.connect_timeout", self.redis.connect_timeout),
            ("redis.response_timeout", self.redis.response_timeout),
            ("kafka.retention", self.kafka.retention),
            ("kafka.message_timeout", self.kafka.message_timeout),
            ("postgres.connect_timeout", self.postgres.connect_timeout),
            ("postgres.statement_timeout", self.postgres.statement_timeout),
            ("postgres.lock_timeout", self.postgres.lock_timeout),
        ] {
            if value.is_zero() {
                wrong.push(format!("`{key}` must be longer than nothing"));
            }
        }
        if !(POLL_INTERVAL_LEAST..=POLL_INTERVAL_MOST).contains(&self.kafka.poll_interval_max) {
            wrong.push(format!(
                "`kafka.poll_interval_max` must be from {} to {}: Kafka takes no other one",
                humantime::format_duration(POLL_INTERVAL_LEAST),
                humantime::format_duration(POLL_INTERVAL_MOST)
            ));
        }
        for (key, fine) in [
            ("kafka.brokers", !self.kafka.brokers.is_empty()),
            ("kafka.topic", !self.kafka.topic.is_empty()),
            ("kafka.group", !self.kafka.group.is_empty()),
            ("postgres.schema", !self.postgres.schema.is_empty()),
        ] {
            if !fine {
                wrong.push(format!("`{key}` must not be empty"));
            }
        }
        for (key, value) in [
            ("kafka.partitions", u64::from(self.kafka.partitions)),
            ("kafka.replication", u64::from(self.kafka.replication)),
            ("postgres.pool_max", self.postgres.pool_max as u64),
        ] {
            if value == 0 {
                wrong.push(format!("`{key}` must be at least 1"));
            }
        }
        wrong
    }
}

fn from_file_or(file: &std::path::Path, key: &str, otherwise: &Secret) -> anyhow::Result<Secret> {
    if file.as_os_str().is_empty() { Ok(otherwise.clone()) } else { Secret::from_file(file, key) }
}
