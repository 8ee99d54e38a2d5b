//! Sale tokens: what they are made with, when and for how long.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use doorbuster_engine::gate::{SaleTokenRules, SaleTokens as GateTokens};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::payments::of_key_or_file;
use super::schema::DurationText;
use super::{Config, Secret};

/// Longest time before a sale opens in which its tokens are given out, and that a token counts.
const TIME_MOST: Duration = Duration::from_secs(7 * 24 * 3_600);

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
        let (issue_before, issue_spread, lifetime) = (it.issue_before, it.issue_spread, it.lifetime);
        GateTokens::new(secrets, SaleTokenRules { issue_before, issue_spread, lifetime })
            .context("gate.sale_tokens.secret")
    }

    /// What is wrong with how sale tokens are given out.
    pub(super) fn impossible_sale_tokens(&self) -> Vec<String> {
        let it = &self.gate.sale_tokens;
        let mut wrong = Vec::new();
        if it.lifetime.is_zero() {
            wrong.push("`gate.sale_tokens.lifetime` must be longer than nothing".to_owned());
        }
        for (key, time) in [("issue_before", it.issue_before), ("lifetime", it.lifetime)] {
            if time > TIME_MOST {
                wrong.push(format!("`gate.sale_tokens.{key}` must be at most 7days"));
            }
        }
        if it.issue_spread > it.issue_before {
            wrong.push(
                "`gate.sale_tokens.issue_spread` must be at most `gate.sale_tokens.issue_before`: all shall have \
                 their tokens when the sale opens"
                    .to_owned(),
            );
        }
        wrong
    }
}
