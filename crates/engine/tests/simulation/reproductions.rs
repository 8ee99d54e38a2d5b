//! Seeds that once showed a fault. They stay, so that it cannot come back.

use crate::run::run;

/// A seed, and what it showed.
const SEEDS: &[(u64, &str)] = &[];

#[test]
fn no_old_fault_comes_back() {
    for (seed, what) in SEEDS {
        let outcome = run(*seed, None, None);
        assert_eq!(outcome.violation, None, "seed {seed}, which once showed: {what}");
    }
}
