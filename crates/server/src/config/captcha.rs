//! The captcha before a sale token: whose it is, and where its answers are judged.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::jwt::web_or_local;
use super::payments::of_key_or_file;
use super::schema::DurationText;
use super::{Config, Secret};

/// Longest wait for a verdict: the buyer waits for it too.
const TIMEOUT_MOST: Duration = Duration::from_secs(30);

/// Most questions at once that may be configured: each is a connection.
const CALLS_MOST: usize = 10_000;

/// Whose captcha it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "config.default.toml says what the words mean")]
pub enum CaptchaProvider {
    Altcha,
    Turnstile,
    Hcaptcha,
}

impl CaptchaProvider {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Altcha => "altcha",
            Self::Turnstile => "turnstile",
            Self::Hcaptcha => "hcaptcha",
        }
    }

    /// Where its answers are judged, unless the configuration says another place.
    const fn siteverify_url(self) -> &'static str {
        match self {
            Self::Altcha => "",
            Self::Turnstile => "https://challenges.cloudflare.com/turnstile/v0/siteverify",
            Self::Hcaptcha => "https://api.hcaptcha.com/siteverify",
        }
    }

    /// The script that shows it on a page, unless the configuration says another one.
    pub(crate) const fn script_url(self) -> &'static str {
        match self {
            Self::Altcha => "",
            Self::Turnstile => "https://challenges.cloudflare.com/turnstile/v0/api.js",
            Self::Hcaptcha => "https://js.hcaptcha.com/1/api.js",
        }
    }
}

/// The captcha.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Captcha {
    pub provider: CaptchaProvider,
    pub site_key: String,
    pub secret: Secret,
    pub secret_file: PathBuf,
    pub hostname: String,
    pub siteverify_url: String,
    pub script_url: String,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub timeout: Duration,
    pub calls_max: usize,
}

impl Captcha {
    /// Where answers are judged.
    pub(crate) fn siteverify(&self) -> &str {
        if self.siteverify_url.is_empty() { self.provider.siteverify_url() } else { &self.siteverify_url }
    }

    /// The script that shows the captcha on a page.
    pub(crate) fn script(&self) -> &str {
        if self.script_url.is_empty() { self.provider.script_url() } else { &self.script_url }
    }
}

impl Config {
    /// What proves to the captcha's provider that we ask.
    ///
    /// # Errors
    /// When the file cannot be read or is everybody's, or nothing stands in it.
    pub(crate) fn captcha_secret(&self) -> anyhow::Result<Secret> {
        let it = &self.gate.captcha;
        let secret = of_key_or_file(&it.secret, &it.secret_file, "gate.captcha.secret_file")?;
        if secret.reveal().trim().is_empty() {
            bail!("the file of gate.captcha.secret_file is empty: it must hold the secret of the site key");
        }
        Ok(Secret::new(secret.reveal().trim().to_owned()))
    }

    /// What is wrong with the captcha.
    pub(super) fn impossible_captcha(&self) -> Vec<String> {
        let it = &self.gate.captcha;
        let mut wrong = Vec::new();
        for (key, url) in [("siteverify_url", &it.siteverify_url), ("script_url", &it.script_url)] {
            if let (false, Err(why)) = (url.is_empty(), web_or_local(url)) {
                wrong.push(format!("`gate.captcha.{key}` {why}"));
            }
        }
        if it.timeout.is_zero() || it.timeout > TIMEOUT_MOST {
            let most = humantime::format_duration(TIMEOUT_MOST);
            wrong.push(format!("`gate.captcha.timeout` must be longer than nothing and at most {most}"));
        }
        if !(1..=CALLS_MOST).contains(&it.calls_max) {
            wrong.push(format!("`gate.captcha.calls_max` must be from 1 to {CALLS_MOST}"));
        }
        if it.provider == CaptchaProvider::Altcha {
            return wrong;
        }
        let provider = it.provider.as_str();
        if it.site_key.is_empty() {
            wrong.push(format!(
                "`gate.captcha.site_key` is missing: {provider}'s page shows it beside the secret"
            ));
        }
        if it.secret.reveal().is_empty() && it.secret_file.as_os_str().is_empty() {
            wrong.push(format!(
                "`gate.captcha.secret_file` is missing: without {provider}'s secret no answer can be judged, and no \
                 captcha would ever be passed"
            ));
        }
        wrong
    }
}
