//! Where a listener's certificate and key are.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// A listener's certificate and its key; both empty: the listener speaks plain HTTP.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "config.default.toml documents every key")]
pub struct Tls {
    pub certificate_file: PathBuf,
    pub key_file: PathBuf,
}

impl Tls {
    /// Whether the listener speaks TLS.
    pub fn is_on(&self) -> bool {
        !self.certificate_file.as_os_str().is_empty()
    }

    /// How an address of the listener begins.
    pub fn scheme(&self) -> &'static str {
        if self.is_on() { "https" } else { "http" }
    }
}

impl Config {
    /// A certificate without its key, or the reverse.
    pub(super) fn impossible_tls(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for (section, tls) in [("server.tls", &self.server.tls), ("admin.tls", &self.admin.tls)] {
            let (set, missing) = match (tls.is_on(), !tls.key_file.as_os_str().is_empty()) {
                (true, false) => ("certificate_file", "key_file"),
                (false, true) => ("key_file", "certificate_file"),
                (true, true) | (false, false) => continue,
            };
            wrong.push(format!(
                "`{section}.{set}` is set and `{section}.{missing}` is not: TLS needs a certificate and its key, \
                 name both files or neither"
            ));
        }
        wrong
    }
}
