//! The coverage-guided fuzzer over one target, which the environment variable names.
//!
//! `cargo xtask soak --fuzz-seconds 60` builds and runs it for each target.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let name = std::env::var("DOORBUSTER_FUZZ_TARGET").unwrap_or_default();
    doorbuster_fuzz::target(&name).expect("DOORBUSTER_FUZZ_TARGET names a target")(bytes);
});
