//! A script, by its text and its hash.

use std::sync::OnceLock;

/// One script.
pub(crate) struct Script {
    /// What it does, for messages.
    pub(super) what: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    /// The script that does `what`.
    pub(crate) const fn new(what: &'static str, text: &'static str) -> Self {
        Self { what, text, hash: OnceLock::new() }
    }

    /// SHA-1 of the text in hexadecimal digits: the name that the server keeps it under.
    pub(super) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}
