//! Who takes the money, and how to reach them.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::DurationText;
use super::{Config, Secret};

/// Fewest bytes of a secret that somebody else could otherwise guess.
const SECRET_LEAST: usize = 24;

/// Who takes the money.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "config.default.toml says what the words mean")]
pub enum ProviderName {
    None,
    Sandbox,
    Stripe,
}

/// What becomes of a payment that comes too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "config.default.toml says what the words mean")]
pub enum LateName {
    Retake,
    Refund,
}

/// Payments at a provider.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Payments {
    pub provider: ProviderName,
    pub public_url: String,
    pub return_url: String,
    pub webhook_secret: Secret,
    pub webhook_secret_file: PathBuf,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub webhook_tolerance: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub timeout: Duration,
    pub late: LateName,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub hold: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub reread: Duration,
    pub stripe: Stripe,
}

/// Stripe.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Stripe {
    pub api_key: Secret,
    pub api_key_file: PathBuf,
    pub api_url: String,
}

impl Config {
    /// The secrets of webhooks, the first of which signs; none where none is configured.
    ///
    /// # Errors
    /// When the file cannot be read, or a secret is too short.
    pub(crate) fn webhook_secrets(&self) -> anyhow::Result<Vec<Secret>> {
        let payments = &self.payments;
        let text = of_key_or_file(
            &payments.webhook_secret,
            &payments.webhook_secret_file,
            "payments.webhook_secret_file",
        )?;
        let secrets: Vec<Secret> =
            text.reveal().split_whitespace().map(|it| Secret::new(it.to_owned())).collect();
        if secrets.iter().any(|it| it.reveal().len() < SECRET_LEAST) {
            bail!("a secret in payments.webhook_secret is shorter than {SECRET_LEAST} bytes");
        }
        Ok(secrets)
    }

    /// The key of the Stripe account.
    ///
    /// # Errors
    /// When none is named, or the file cannot be read.
    pub(crate) fn stripe_key(&self) -> anyhow::Result<Secret> {
        let stripe = &self.payments.stripe;
        let key = of_key_or_file(&stripe.api_key, &stripe.api_key_file, "payments.stripe.api_key_file")?;
        if key.reveal().is_empty() {
            bail!(
                "payments.provider = stripe needs the account's key: set payments.stripe.api_key_file (or \
                 DOORBUSTER__PAYMENTS__STRIPE__API_KEY_FILE) to a file with it"
            );
        }
        Ok(key)
    }
}

/// The value of a key, or else of the file that stands beside it; empty without either.
pub(super) fn of_key_or_file(key: &Secret, file: &std::path::Path, file_key: &str) -> anyhow::Result<Secret> {
    if !key.reveal().is_empty() || file.as_os_str().is_empty() {
        return Ok(key.clone());
    }
    Secret::from_file(file, file_key)
}
