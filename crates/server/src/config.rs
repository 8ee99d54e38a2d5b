//! The configuration: flags over environment over file over the compiled-in defaults.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use config::{Config as Layers, Environment, File, FileFormat};
use serde::{Deserialize, Serialize};

/// The documented defaults, as `config init` writes them.
pub const DEFAULTS: &str = include_str!("../../../config.default.toml");

/// The whole configuration; `config.default.toml` says what each key means.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key, and a test holds it to that")]
pub struct Config {
    pub server: Server,
    pub admin: Admin,
    pub data: Data,
    pub gate: Gate,
    pub sale: Sale,
    pub log: Log,
}

/// The public listener.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Server {
    pub listen: SocketAddr,
    pub cores: usize,
    pub connections_max: usize,
    pub connections_per_address_max: usize,
    #[serde(with = "humantime_serde")]
    pub header_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub body_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub idle_timeout: Duration,
    #[serde(with = "humantime_serde")]
    pub drain_timeout: Duration,
}

/// The staff's listener.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Admin {
    pub listen: SocketAddr,
    pub token_file: PathBuf,
}

/// The embedded engine's folder.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Data {
    pub dir: PathBuf,
}

/// The gate.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Gate {
    pub queue_lag_max: u64,
    #[serde(with = "humantime_serde")]
    pub outbox_age_max: Duration,
    pub jwt: Jwt,
}

/// Access tokens.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Jwt {
    pub secret: Secret,
    pub secret_file: PathBuf,
    pub issuer: String,
    pub audience: String,
    #[serde(with = "humantime_serde")]
    pub leeway: Duration,
    #[serde(with = "humantime_serde")]
    pub lifetime_max: Duration,
}

/// Sales.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Sale {
    #[serde(with = "humantime_serde")]
    pub preheat_lead: Duration,
}

/// Logs.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Log {
    pub level: LogLevel,
    pub format: LogFormat,
}

/// Least severe lines that are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the words are the levels")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

/// How lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
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
    /// When a file cannot be read, a key is unknown or a value is of the wrong kind; the message
    /// names the key.
    pub fn read(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (String, String)>,
        flags: &[(String, String)],
    ) -> anyhow::Result<Self> {
        let mut layers = Layers::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
        if let Some(path) = file {
            if !path.is_file() {
                bail!(
                    "there is no configuration file {}; `doorbuster config init` writes one",
                    path.display()
                );
            }
            layers = layers.add_source(File::from(path).format(FileFormat::Toml));
        }
        let environment = Environment::with_prefix("DOORBUSTER")
            .prefix_separator("__")
            .separator("__")
            .try_parsing(true)
            .source(Some(environment.into_iter().collect()));
        layers = layers.add_source(environment);
        for (key, value) in flags {
            layers = layers.set_override(key, value.as_str())?;
        }
        let config: Self = layers.build().and_then(Layers::try_deserialize).context(
            "the configuration is not valid; `doorbuster config init` prints every key with its meaning",
        )?;
        config.check()?;
        Ok(config)
    }

    /// What no single key can say.
    fn check(&self) -> anyhow::Result<()> {
        let mut wrong = Vec::new();
        for (key, value) in [
            ("server.header_timeout", self.server.header_timeout),
            ("server.body_timeout", self.server.body_timeout),
            ("server.idle_timeout", self.server.idle_timeout),
        ] {
            if value.is_zero() {
                wrong.push(format!("{key} must be longer than nothing"));
            }
        }
        if self.server.connections_max == 0 || self.server.connections_per_address_max == 0 {
            wrong.push(
                "server.connections_max and server.connections_per_address_max must be at least 1".to_owned(),
            );
        }
        if self.gate.jwt.issuer.is_empty() || self.gate.jwt.audience.is_empty() {
            wrong.push("gate.jwt.issuer and gate.jwt.audience must not be empty".to_owned());
        }
        if wrong.is_empty() { Ok(()) } else { bail!("the configuration is not valid: {}", wrong.join("; ")) }
    }

    /// The secret that access tokens are signed with.
    ///
    /// # Errors
    /// When neither key names one, or the file cannot be read.
    pub fn jwt_secret(&self) -> anyhow::Result<Secret> {
        let jwt = &self.gate.jwt;
        if !jwt.secret.reveal().is_empty() {
            return Ok(jwt.secret.clone());
        }
        if jwt.secret_file.as_os_str().is_empty() {
            bail!(
                "no secret for access tokens: set gate.jwt.secret_file (or DOORBUSTER__GATE__JWT__SECRET_FILE) \
                 to a file with at least 32 random bytes, such as from `openssl rand -base64 48`"
            );
        }
        let text = std::fs::read_to_string(&jwt.secret_file).with_context(|| {
            format!("the secret for access tokens cannot be read from {}", jwt.secret_file.display())
        })?;
        Ok(Secret(text.trim_end_matches(['\r', '\n']).to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(environment: &[(&str, &str)], flags: &[(&str, &str)]) -> anyhow::Result<Config> {
        let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        Config::read(None, owned(environment), &owned(flags))
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(read(&[], &[]).unwrap().server.idle_timeout, Duration::from_secs(30));
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.toml");
        std::fs::write(&path, "[server]\ncores = 1\nidle_timeout = \"7s\"\n[data]\ndir = \"file\"\n")
            .unwrap();
        let environment = [("DOORBUSTER__SERVER__CORES", "2"), ("DOORBUSTER__DATA__DIR", "environment")];
        let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned()));
        let flags = [("data.dir".to_owned(), "flag".to_owned())];
        let config = Config::read(Some(&path), environment, &flags).unwrap();
        assert_eq!(config.data.dir, Path::new("flag"));
        assert_eq!(config.server.cores, 2);
        assert_eq!(config.server.idle_timeout, Duration::from_secs(7));
    }

    #[test]
    fn unknown_keys_and_wrong_values_are_errors_that_name_the_key() {
        for (key, value, named) in [
            ("DOORBUSTER__SERVER__CORS", "2", "cors"),
            ("DOORBUSTER__SERVER__CORES", "many", "cores"),
            ("DOORBUSTER__SERVER__IDLE_TIMEOUT", "soon", "idle_timeout"),
            ("DOORBUSTER__SERVER__IDLE_TIMEOUT", "0s", "idle_timeout"),
            ("DOORBUSTER__LOG__LEVEL", "loud", "level"),
        ] {
            let error = format!("{:#}", read(&[(key, value)], &[]).unwrap_err());
            assert!(error.contains(named), "{error}");
        }
    }

    #[test]
    fn secrets_are_never_printed() {
        let config = read(&[("DOORBUSTER__GATE__JWT__SECRET", "hush-hush-hush")], &[]).unwrap();
        assert_eq!(config.jwt_secret().unwrap().reveal(), "hush-hush-hush");
        assert!(!format!("{config:?}").contains("hush"));
        assert!(!toml::to_string(&config).unwrap().contains("hush"));
    }
}
