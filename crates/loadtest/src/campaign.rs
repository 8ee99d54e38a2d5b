//! What the threads of one storm have in common: the plan made concrete, and the signs they give.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use hyper::Uri;

use crate::link::Target;
use crate::plan::Plan;

/// What all threads of a storm read.
pub(crate) struct Campaign {
    pub(crate) plan: Plan,
    pub(crate) targets: Vec<Target>,
    pub(crate) items: Vec<Arc<str>>,
    /// The purchase path by target and item.
    pub(crate) paths: Vec<Vec<Uri>>,
    /// Where sale tokens are got, by target; empty where the sale requires none.
    pub(crate) token_paths: Vec<Uri>,
    /// Whether that is the sale's waiting room.
    pub(crate) waiting_room: bool,
    /// The wall clock at the first possible click, for the tokens' `iat`.
    pub(crate) epoch_secs: u64,
    /// Set when nobody waits for the storm any more.
    pub(crate) stop: AtomicBool,
    /// One per thread, for the progress.
    pub(crate) gauges: Vec<Gauges>,
}

/// What a thread shows while it runs, as of the pacer's last turn.
#[derive(Default)]
pub(crate) struct Gauges {
    /// Users who have got their sale token.
    pub(crate) tokens: AtomicU64,
    pub(crate) total: AtomicU64,
    pub(crate) clicked: AtomicU64,
    pub(crate) accepted: AtomicU64,
    pub(crate) gone: AtomicU64,
    pub(crate) waiting: AtomicU64,
}
