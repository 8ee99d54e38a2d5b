//! The stock's scripts.

use crate::redis_links::Script;

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
