//! The protocol's invariants as an outsider can prove them: [`check`] is a pure function of what the
//! clients heard and of the books, and is itself tested by mutated histories.
//!
//! A check claims only what follows for certain from what is known, so that a finding is a fault: of
//! the product, or of a [`Circumstances`] that says less than what happened. What each invariant says
//! stands with its function. I21 (the embedded log) cannot be seen from outside: the product's own
//! audit and its kill tests show it.

mod answers;
mod book_index;
mod demand;
mod keys;
mod money;
mod queue;
mod rest;
mod sequence;
mod sold_out;
mod steps;
mod stock;
mod units;

use std::fmt;
use std::time::Duration;

use crate::books::Books;
use crate::history::History;
use book_index::Index;

/// What happened, as far as it decides what may be concluded. Everything is off in a healthy run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circumstances {
    /// Nothing was in flight when the books were read, and nothing is any more.
    pub at_rest: bool,
    /// The stock lost something: keys, a server without its file, a failover, an old state.
    pub stock_lost: bool,
    /// The ledger lost commits.
    pub ledger_lost: bool,
    /// The queue lost records that it had acknowledged, or was cut short.
    pub queue_lost: bool,
    /// Buyers wanted more units of every item than there were, and asked again until the end.
    pub demand_above_stock: bool,
    /// Others than the recorded clients bought too.
    pub others_bought: bool,
    /// How long a gateway may repeat "sold out".
    pub flag_life: Duration,
    /// How long an answer of the stock, or of a gateway, may have been under way.
    pub slack: Duration,
    /// How soon after an order's end, as its client heard of it, its units were surely free again;
    /// `None` claims nothing.
    pub release_within: Option<Duration>,
    /// Oldest outbox entry and release row while work goes on.
    pub oldest_waiting: Duration,
}

impl Default for Circumstances {
    fn default() -> Self {
        Self {
            at_rest: false,
            stock_lost: false,
            ledger_lost: false,
            queue_lost: false,
            demand_above_stock: false,
            others_bought: false,
            flag_life: Duration::from_millis(200),
            slack: Duration::from_secs(1),
            release_within: None,
            oldest_waiting: Duration::from_secs(120),
        }
    }
}

/// One violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number, such as `I1`.
    pub invariant: &'static str,
    /// What is wrong, with ids and figures.
    pub words: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.words)
    }
}

/// Everything a check looks at.
struct Evidence<'a> {
    history: &'a History,
    books: &'a Books,
    index: Index<'a>,
    circumstances: &'a Circumstances,
}

/// Where a check puts what it found.
struct Findings {
    invariant: &'static str,
    list: Vec<Finding>,
}

impl Findings {
    fn add(&mut self, words: String) {
        self.list.push(Finding { invariant: self.invariant, words });
    }
}

type Check = (&'static str, fn(&Evidence<'_>, &mut Findings));

/// Every invariant that can be seen from outside, with what looks for its violations.
const CHECKS: [Check; 21] = [
    ("I1", units::never_oversold),
    ("I2", units::sold_is_the_live_units),
    ("I3", units::users_are_within_the_limit),
    ("I4", answers::every_promise_has_its_row),
    ("I4b", answers::no_order_without_a_reason),
    ("I5", steps::only_legal_arrows),
    ("I6", money::paid_exactly_once),
    ("I7", stock::free_and_held_are_allocated),
    ("I8", rest::stock_is_ledger),
    ("I9", stock::reserved_once_and_released_once),
    ("I10", stock::released_only_after_the_end),
    ("I11", steps::one_row_one_life),
    ("I12", demand::everything_is_sold),
    ("I13", queue::each_record_is_applied_once),
    ("I14", sold_out::sold_out_only_when_empty),
    ("I15", sequence::steps_follow_real_time),
    ("I16", queue::no_stale_record_is_live),
    ("I17", answers::no_promise_is_broken),
    ("I18", rest::nothing_waits_for_ever),
    ("I19", answers::orders_belong_to_their_buyers),
    ("I20", keys::one_key_one_order),
];

/// Which invariants the history and the books together disprove.
pub fn check(history: &History, books: &Books, circumstances: &Circumstances) -> Vec<Finding> {
    let evidence = Evidence { history, books, index: Index::new(books), circumstances };
    let mut found = Findings { invariant: "", list: Vec::new() };
    for (invariant, look) in CHECKS {
        found.invariant = invariant;
        look(&evidence, &mut found);
    }
    found.list
}

/// What one pair of books proves about an earlier one of the same ledger: positions never go back, no
/// order and no payment disappears, and what is final stays (I13, I4, I5, I6).
pub fn check_progress(earlier: &Books, later: &Books, circumstances: &Circumstances) -> Vec<Finding> {
    let mut found = Findings { invariant: "I13", list: Vec::new() };
    queue::positions_never_go_back(earlier, later, circumstances, &mut found);
    if !circumstances.ledger_lost {
        found.invariant = "I4";
        answers::no_row_disappears(earlier, later, &mut found);
        found.invariant = "I5";
        steps::the_end_is_the_end(earlier, later, &mut found);
        found.invariant = "I6";
        money::no_payment_changes(earlier, later, &mut found);
    }
    found.list
}
