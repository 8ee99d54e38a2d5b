//! Access tokens: what they say, and which keys sign them.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use doorbuster_engine::gate::{JwtAlgorithm, JwtKey, JwtKeys};
use reqwest::Url;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::{AlgorithmWord, DurationText};
use super::{Config, Secret};

/// How far a shop's clock and ours may differ at the most: within it, a token that is over still counts.
const LEEWAY_MOST: Duration = Duration::from_secs(5);

/// Access tokens.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Jwt {
    pub secret: Secret,
    pub secret_file: PathBuf,
    #[schemars(with = "AlgorithmWord")]
    pub algorithm: JwtAlgorithm,
    pub keys: Vec<TokenKey>,
    pub jwks_url: String,
    #[schemars(with = "Vec<AlgorithmWord>")]
    pub jwks_algorithms: Vec<JwtAlgorithm>,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub jwks_refresh: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub jwks_timeout: Duration,
    pub issuer: String,
    pub audience: String,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub leeway: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub lifetime_max: Duration,
    pub level_claim: String,
    pub region_claim: String,
}

/// One key of several.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TokenKey {
    /// What a token's `kid` says; empty for the one key of tokens that name no other.
    pub id: String,
    /// The algorithm it signs by.
    #[schemars(with = "AlgorithmWord")]
    pub algorithm: Option<JwtAlgorithm>,
    /// File with the secret, for HS256, HS384 and HS512.
    pub secret_file: PathBuf,
    /// PEM file with the public key, for all others.
    pub public_key_file: PathBuf,
}

impl TokenKey {
    fn wrong(&self) -> Option<String> {
        let id = self.id.escape_default();
        let Some(algorithm) = self.algorithm else {
            return Some(format!("`gate.jwt.keys`: the key `{id}` needs an algorithm, such as \"RS256\""));
        };
        let (needed, other, wanted) = if algorithm.is_secret() {
            (&self.secret_file, &self.public_key_file, "secret_file")
        } else {
            (&self.public_key_file, &self.secret_file, "public_key_file")
        };
        let right = !needed.as_os_str().is_empty() && other.as_os_str().is_empty();
        (!right)
            .then(|| format!("`gate.jwt.keys`: the key `{id}` of {algorithm} needs a {wanted} and no other"))
    }

    fn read(&self) -> anyhow::Result<JwtKey> {
        let id = self.id.escape_default();
        let Some(algorithm) = self.algorithm else { bail!("gate.jwt.keys: the key `{id}` has no algorithm") };
        let key = if algorithm.is_secret() {
            let secret = Secret::from_file(&self.secret_file, "secret_file of gate.jwt.keys")?;
            JwtKey::secret(algorithm, secret.reveal().as_bytes())
                .with_context(|| format!("gate.jwt.keys: `{id}`"))?
        } else {
            let file = self.public_key_file.display();
            let pem = std::fs::read(&self.public_key_file).with_context(|| {
                format!("gate.jwt.keys: the public key of `{id}` cannot be read from {file}")
            })?;
            JwtKey::public(algorithm, &pem).with_context(|| format!("gate.jwt.keys: `{id}`, {file}"))?
        };
        Ok(if self.id.is_empty() { key } else { key.named(self.id.clone()) })
    }
}

impl Config {
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
        Secret::from_file(&jwt.secret_file, "gate.jwt.secret_file")
    }

    /// The keys that access tokens are signed with, as far as they stand here: none yet where they are
    /// read from `gate.jwt.jwks_url`.
    ///
    /// # Errors
    /// When there is none, a file cannot be read, or a key is weak or of another kind.
    pub fn jwt_keys(&self) -> anyhow::Result<JwtKeys> {
        let jwt = &self.gate.jwt;
        if !jwt.jwks_url.is_empty() {
            return Ok(JwtKeys::none());
        }
        let keys = if jwt.keys.is_empty() {
            let secret = self.jwt_secret()?;
            let key = JwtKey::secret(jwt.algorithm, secret.reveal().as_bytes());
            vec![key.context("gate.jwt.secret")?]
        } else {
            jwt.keys.iter().map(TokenKey::read).collect::<anyhow::Result<_>>()?
        };
        JwtKeys::new(keys).context("gate.jwt.keys")
    }

    /// What is wrong with how access tokens are verified.
    pub(super) fn impossible_tokens(&self) -> Vec<String> {
        let jwt = &self.gate.jwt;
        let mut wrong = Vec::new();
        for (key, value) in [("gate.jwt.issuer", &jwt.issuer), ("gate.jwt.audience", &jwt.audience)] {
            if value.is_empty() {
                wrong.push(format!("`{key}` must not be empty"));
            }
        }
        if jwt.leeway > LEEWAY_MOST {
            let most = humantime::format_duration(LEEWAY_MOST);
            wrong.push(format!(
                "`gate.jwt.leeway` must be at most {most}: a token that is over counts for so long"
            ));
        }
        if !jwt.algorithm.is_secret() {
            wrong.push(format!(
                "`gate.jwt.algorithm` is that of a secret, which {} has not: name the public key in `gate.jwt.keys`",
                jwt.algorithm
            ));
        }
        let secret = !jwt.secret.reveal().is_empty() || !jwt.secret_file.as_os_str().is_empty();
        if [secret, !jwt.keys.is_empty(), !jwt.jwks_url.is_empty()].iter().filter(|it| **it).count() > 1 {
            wrong.push(
                "`gate.jwt` has more than one of a secret, keys and a jwks_url: tokens come from one issuer, so \
                 choose one of the three"
                    .to_owned(),
            );
        }
        wrong.extend(jwt.keys.iter().filter_map(TokenKey::wrong));
        if !jwt.jwks_url.is_empty() {
            wrong.extend(jwt.impossible_jwks());
        }
        wrong
    }
}

impl Jwt {
    fn impossible_jwks(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        if let Err(why) = web_or_local(&self.jwks_url) {
            wrong.push(format!("`gate.jwt.jwks_url` {why}"));
        }
        if self.jwks_algorithms.is_empty() || self.jwks_algorithms.iter().any(|it| it.is_secret()) {
            wrong.push(
                "`gate.jwt.jwks_algorithms` must name some of RS256, PS256, ES256, ES384 and EdDSA: whoever reads a \
                 key set could sign with a secret in it"
                    .to_owned(),
            );
        }
        for (key, value) in
            [("gate.jwt.jwks_refresh", self.jwks_refresh), ("gate.jwt.jwks_timeout", self.jwks_timeout)]
        {
            if value.is_zero() {
                wrong.push(format!("`{key}` must be longer than nothing"));
            }
        }
        wrong
    }
}

/// Whoever stands between could offer keys or verdicts of his own: without encryption only on this machine.
pub(super) fn web_or_local(text: &str) -> Result<(), String> {
    let url = Url::parse(text).map_err(|error| format!("is not a URL ({error})"))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err("has a user or a password in it: none is asked for there".to_owned());
    }
    let host = url.host_str().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    let local = bare == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    match url.scheme() {
        "https" => Ok(()),
        "http" if local => Ok(()),
        _ => Err("does not begin with https:// (http:// is for this machine alone)".to_owned()),
    }
}
