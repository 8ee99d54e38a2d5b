//! Sale tokens: what they are made with, when and for how long.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use doorbuster_engine::gate::{CaptchaRules, SaleTokenRules, SaleTokens as GateTokens};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::payments::of_key_or_file;
use super::schema::DurationText;
use super::{Config, Secret};

/// Longest time before a sale opens in which its tokens are given out, and that a token counts.
const TIME_MOST: Duration = Duration::from_secs(7 * 24 * 3_600);

/// Shortest time that a token, or a captcha's answer, counts.
const TIME_LEAST: Duration = Duration::from_secs(60);

/// Largest number that a captcha may ask for.
const CAPTCHA_MOST: u32 = 5_000_000;

/// Sale tokens.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct SaleTokens {
    pub secret: Secret,
    pub secret_file: PathBuf,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub issue_before: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub issue_spread: Duration,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub lifetime: Duration,
    pub captcha_max_number: u32,
    #[serde(with = "humantime_serde")]
    #[schemars(with = "DurationText")]
    pub captcha_lifetime: Duration,
}

impl Config {
    /// What makes and verifies sale tokens.
    ///
    /// # Errors
    /// When the secrets' file cannot be read or is everybody's, or a secret is weak.
    pub fn sale_tokens(&self) -> anyhow::Result<GateTokens> {
        let it = &self.gate.sale_tokens;
        let text = of_key_or_file(&it.secret, &it.secret_file, "gate.sale_tokens.secret_file")?;
        let secrets = text.reveal().split_whitespace().map(str::as_bytes);
        let rules = SaleTokenRules {
            issue_before: it.issue_before,
            // All shall have their tokens when the sale opens.
            issue_spread: it.issue_spread.min(it.issue_before),
            lifetime: it.lifetime,
            place_grace: self.gate.waiting_room.grace,
            captcha: CaptchaRules { max_number: it.captcha_max_number, lifetime: it.captcha_lifetime },
        };
        GateTokens::new(secrets, rules).context("gate.sale_tokens.secret")
    }

    /// What is wrong with how sale tokens are given out.
    pub(super) fn impossible_sale_tokens(&self) -> Vec<String> {
        let it = &self.gate.sale_tokens;
        let mut wrong = Vec::new();
        for (key, time) in [("lifetime", it.lifetime), ("captcha_lifetime", it.captcha_lifetime)] {
            if time < TIME_LEAST {
                wrong.push(format!("`gate.sale_tokens.{key}` must be at least 1m"));
            }
        }
        if !(1..=CAPTCHA_MOST).contains(&it.captcha_max_number) {
            wrong.push(format!(
                "`gate.sale_tokens.captcha_max_number` must be from 1 to {CAPTCHA_MOST}: a slow phone takes a minute for that"
            ));
        }
        let times = [
            ("issue_before", it.issue_before),
            ("lifetime", it.lifetime),
            ("captcha_lifetime", it.captcha_lifetime),
        ];
        for (key, time) in times {
            if time > TIME_MOST {
                wrong.push(format!("`gate.sale_tokens.{key}` must be at most 7days"));
            }
        }
        wrong
    }
}
