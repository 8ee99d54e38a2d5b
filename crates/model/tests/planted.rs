//! Every planted fault is found, by the invariant that it breaks.

use doorbuster_model::Protocol;
use doorbuster_model::planted::Planted;
use doorbuster_model::scopes::{Buyer, NO_FAULTS, Scope};
use doorbuster_model::state::Budget;
use doorbuster_model::witness::Invariant;
use stateright::{Checker, Expectation, HasDiscoveries, Model, Property};

/// One buyer.
const ALONE: &[Buyer] = &[Buyer { user: 0, units: 1 }];
/// One user who buys twice.
const TWICE: &[Buyer] = &[Buyer { user: 0, units: 1 }, Buyer { user: 0, units: 1 }];

const LEAST: Scope = Scope::LEAST;
/// Orders expire.
const EXPIRING: Scope = Scope { expires: true, ..LEAST };
/// One loader, one rebuild.
const REBUILT: Scope = Scope { buyers: ALONE, loaders: 1, rebuilds: 1, ..LEAST };
/// Two loaders that are at it together.
const CONTENDED: Scope = Scope { loaders: 2, ..REBUILT };

/// A scope in which the fault is found quickly, and what tells of it.
fn found_in(planted: Planted) -> (Scope, &'static str) {
    let losses = Budget { losses: 1, ..NO_FAULTS };
    let flushes = Budget { flushes: 1, ..NO_FAULTS };
    let rewinds = Budget { rewinds: 1, ..NO_FAULTS };
    let duplicates = Budget { duplicates: 1, ..NO_FAULTS };
    match planted {
        Planted::UniqueUser => (Scope { buyers: TWICE, ..EXPIRING }, "I18"),
        Planted::ReleaseByUser => (Scope { buyers: TWICE, releasers: 2, ..EXPIRING }, "I10"),
        Planted::ReleaseOnFailedPublish => (LEAST, "I10"),
        Planted::AcceptedBeforeAcknowledged => (Scope { faults: flushes, ..REBUILT }, "I4"),
        Planted::NoOutbox => (LEAST, "I8"),
        Planted::ReleaseInsideTransaction => (EXPIRING, "I10"),
        Planted::StockRulesBeforeDuplicates => (Scope { faults: duplicates, ..LEAST }, "I10"),
        Planted::RetakeWithSameId => (Scope { payments: &[0], ..EXPIRING }, "I5"),
        Planted::PaymentsByEventOnly => (Scope { payments: &[0], ..EXPIRING }, "I6"),
        Planted::RepublishByAge => (Scope { sweepers: 1, ..LEAST }, "I18"),
        Planted::GiveUpByAge => (Scope { sweepers: 1, ..LEAST }, "I17"),
        Planted::ReleaseOnCachedEpoch => (Scope { expires: true, faults: rewinds, ..REBUILT }, "I8"),
        Planted::NoGone => (Scope { repeats: true, ..EXPIRING }, "I9"),
        Planted::MissingKeyIsZero => (Scope { faults: flushes, ..REBUILT }, "I14"),
        Planted::PreheatIsSet => (CONTENDED, "I15"),
        Planted::StalledLoaderWrites => (CONTENDED, "I7"),
        Planted::StockBeforeDuplicate => (Scope { repeats: true, ..LEAST }, "I4b"),
        Planted::PositionWithoutCompareAndSet => (Scope { recorders: 2, ..LEAST }, "I13"),
        Planted::RepeatedCallRefused => (Scope { repeats: true, ..EXPIRING }, "I4b"),
        Planted::DeadLetterTouchesRow => {
            (Scope { faults: Budget { dead_letters: 1, ..duplicates }, ..LEAST }, "I10")
        }
        Planted::LatePaymentLeavesPending => (Scope { payments: &[0], ..EXPIRING }, "I6"),
        Planted::RefundWithoutRow => (Scope { payments: &[0], ..EXPIRING }, "I4b"),
        Planted::ReleaseWhileNotOpen => (Scope { expires: true, ..REBUILT }, "I8"),
        Planted::SecondRebuildBeside => (Scope { rebuilds: 2, faults: flushes, ..CONTENDED }, "I16"),
        Planted::EndBeforeOutbox => (REBUILT, "I17"),
        Planted::BarrierStoredTwice => (Scope { faults: flushes, ..CONTENDED }, "I16"),
        Planted::BarrierNeverLowered => (Scope { faults: losses, ..REBUILT }, "I18"),
        Planted::NotedEndNeverLowered => {
            (Scope { buyers: ALONE, sweepers: 1, faults: losses, ..LEAST }, "I8")
        }
        Planted::FlipWithoutReadBack => (Scope { faults: rewinds, ..REBUILT }, "I12"),
        Planted::PageWrittenAgain => (Scope { faults: rewinds, ..CONTENDED }, "I7"),
        Planted::RoomOnlyInStock => (Scope { buyers: LEAST.buyers, faults: rewinds, ..REBUILT }, "I1"),
        Planted::LimitOnlyInStock => (Scope { buyers: TWICE, quantity: 2, faults: rewinds, ..REBUILT }, "I3"),
        Planted::CountsEveryRecord => (Scope { faults: duplicates, ..LEAST }, "I2"),
    }
}

#[test]
fn every_planted_fault_is_found() {
    let mut missed = Vec::new();
    for planted in Planted::ALL {
        let (scope, wanted) = found_in(planted);
        let found = found(&Protocol::with(planted, scope), wanted);
        if !found.split(' ').any(|name| name == wanted) {
            missed.push(format!("{planted:?}: wanted {wanted}, found {found}"));
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// A check that has never failed has shown nothing.
#[test]
fn every_invariant_is_broken_by_some_fault() {
    let wanted = Planted::ALL.map(|planted| found_in(planted).1);
    for invariant in Invariant::ALL {
        let name = format!("{invariant:?}");
        assert!(wanted.contains(&name.as_str()), "no planted fault breaks {name}");
    }
}

/// What is found is the fault, and not something else in the same scope.
#[test]
fn the_same_scopes_hold_without_their_fault() {
    for planted in Planted::ALL {
        let (scope, wanted) = found_in(planted);
        assert_eq!(found(&Protocol::sound(scope), wanted), "", "the scope of {planted:?}");
    }
}

/// Searches breadth first until something tells of `wanted`, or to the end; prints the shortest way to
/// everything that broke, and answers the invariants' names.
fn found(protocol: &Protocol, wanted: &str) -> String {
    let always = |property: &Property<Protocol>| property.expectation == Expectation::Always;
    let names: Vec<&str> = protocol.properties().iter().filter(|it| always(it)).map(|it| it.name).collect();
    let telling = names.iter().copied().filter(|name| name.split(' ').any(|word| word == wanted));
    let enough = HasDiscoveries::AnyOf(telling.collect());
    let checker = protocol.clone().checker().finish_when(enough).spawn_bfs().join();
    eprintln!("{:?}: {} states", protocol.planted, checker.unique_state_count());

    let mut broken = Vec::new();
    for name in names {
        let Some(path) = checker.discovery(name) else { continue };
        let at_rest = protocol.broken_at_rest(path.last_state());
        eprintln!("  {name}; at rest {at_rest:?}");
        match name.split_once(" hold at rest") {
            Some(_) => broken.extend(at_rest.iter().map(|invariant| format!("{invariant:?}"))),
            None => broken.extend(name.split(' ').next().map(str::to_owned)),
        }
        for action in path.into_actions() {
            eprintln!("    {action}");
        }
    }
    broken.join(" ")
}
