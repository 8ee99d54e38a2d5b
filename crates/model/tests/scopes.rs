//! Every scope is searched to its end, and holds.
//!
//! `DOORBUSTER_MODEL_STATES` asks for more states than the test command needs: the larger scopes follow
//! until there were as many.

use std::time::Instant;

use doorbuster_model::Protocol;
use doorbuster_model::scopes::{LARGER, Scope, TESTED};
use stateright::{Checker, Expectation, Model};

/// States that the scopes of the test command have together, at the least: none may shrink unseen.
const TESTED_STATES: usize = 1_000_000;
/// Cores that search.
const THREADS: usize = 2;

#[test]
fn every_scope_holds_and_together_they_have_a_million_states() {
    let tested: usize = TESTED.iter().map(states_of).sum();
    eprintln!("{tested} states in {} scopes", TESTED.len());
    assert!(tested >= TESTED_STATES, "the scopes have shrunk to {tested} states");

    let wanted = match std::env::var("DOORBUSTER_MODEL_STATES") {
        Ok(wanted) => wanted.parse().expect("DOORBUSTER_MODEL_STATES is a number"),
        Err(_) => return,
    };
    let mut states = tested;
    for scope in LARGER {
        if states < wanted {
            states += states_of(&scope);
        }
    }
    eprintln!("{states} states with larger scopes");
    assert!(states >= wanted, "all scopes together have {states} states: add one, or ask for less");
}

#[expect(clippy::disallowed_methods, reason = "how long a search takes is only printed")]
fn now() -> Instant {
    Instant::now()
}

/// Searches a scope to its end, prints how far it went, and answers how many states it has.
fn states_of(scope: &Scope) -> usize {
    let began = now();
    let checker = Protocol::sound(*scope).checker().threads(THREADS).spawn_bfs().join();
    eprintln!(
        "{:<40} {:>9} states, depth {:>3}, {:>5.1} s",
        scope.name,
        checker.unique_state_count(),
        checker.max_depth(),
        began.elapsed().as_secs_f64()
    );
    for property in checker.model().properties() {
        let found = checker.discovery(property.name);
        match (property.expectation, found) {
            (Expectation::Sometimes, None) => panic!("{}: never {}", scope.name, property.name),
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                let at_rest = checker.model().broken_at_rest(path.last_state());
                eprintln!("{}: {} is broken; at rest {at_rest:?}", scope.name, property.name);
                eprintln!("{:#?}", path.last_state());
                for action in path.into_actions() {
                    eprintln!("    {action}");
                }
                panic!("{}: {}", scope.name, property.name);
            }
            (Expectation::Sometimes, Some(_)) | (_, None) => {}
        }
    }
    checker.unique_state_count()
}
