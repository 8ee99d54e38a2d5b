//! What is done with arbitrary bytes, one function per reader of bytes from outside. Each panics
//! when the answer is not what its documentation promises.
//!
//! Two things call them. `tests/inputs.rs` runs on every merge: each kept input, and the kept
//! inputs changed at random for a bounded while. `main.rs` hands them to libFuzzer, which follows
//! the branches that an input takes; `cargo xtask soak` runs it for long. An input that once failed
//! is kept in `regressions/<target>/` and never removed; `corpus/<target>/` holds the seeds.

mod address;
mod body;
mod config;
mod door;
mod frames;
mod head;
mod keys;
mod sealed;
mod token;

/// Takes any bytes; panics when a promise is broken.
pub type Target = fn(&[u8]);

/// Every target by its name, which is also that of its folders.
pub const TARGETS: [(&str, Target); 8] = [
    ("head", head::run),
    ("token", token::run),
    ("keys", keys::run),
    ("sealed", sealed::run),
    ("address", address::run),
    ("body", body::run),
    ("frames", frames::run),
    ("config", config::run),
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.iter().find(|(it, _)| *it == name).map(|(_, target)| *target)
}
