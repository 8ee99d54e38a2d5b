//! The scripts, by their text and its hash.

use std::sync::OnceLock;

/// One script.
pub(super) struct Script {
    /// What it does, for messages.
    pub(super) what: &'static str,
    /// Its text.
    pub(super) text: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(what: &'static str, text: &'static str) -> Self {
        Self { what, text, hash: OnceLock::new() }
    }

    /// SHA-1 of the text in hexadecimal digits: the name that the server keeps it under.
    pub(super) fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.text).get_hash().to_owned())
    }
}

macro_rules! scripts {
    ($($name:ident = $what:literal, $file:literal;)*) => {$(
        pub(super) static $name: Script = Script::new($what, include_str!($file));
    )*};
}

scripts! {
    RESERVE = "reserve", "reserve.lua";
    RELEASE = "release", "release.lua";
    ADJUST = "adjust", "adjust.lua";
    BEGIN_LOAD = "begin a load", "begin_load.lua";
    LOAD = "load a page", "load.lua";
    FINISH_LOAD = "open a loaded stock", "finish_load.lua";
    FENCE = "fence", "fence.lua";
    SET_TERMS = "set a sale's terms", "set_terms.lua";
    LEVEL = "read the stock's level", "level.lua";
    UNCONFIRMED = "read the outbox", "unconfirmed.lua";
    HOLDS_OF = "read a user's holds", "holds_of.lua";
}
