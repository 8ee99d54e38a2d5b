//! Scopes: how much there is of everything, and what may happen. Every scope is searched to its end.

use crate::state::Budget;

/// A buyer's order.
#[derive(Clone, Copy, Debug)]
pub struct Buyer {
    /// The user.
    pub user: u8,
    /// Units wanted.
    pub units: u8,
}

/// One user's order of one unit.
const fn one(user: u8) -> Buyer {
    Buyer { user, units: 1 }
}

/// What there is, and what may happen.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// Its name.
    pub name: &'static str,
    /// Units for sale.
    pub quantity: u8,
    /// Most units per user.
    pub limit: u8,
    /// The orders that buyers place, at most three.
    pub buyers: &'static [Buyer],
    /// The order that each payment is for, at most two.
    pub payments: &'static [u8],
    /// Whether calls are repeated.
    pub repeats: bool,
    /// Whether orders expire.
    pub expires: bool,
    /// Whether buyers cancel.
    pub cancels: bool,
    /// Recorders.
    pub recorders: u8,
    /// Sweepers; where there is none, one still heals.
    pub sweepers: u8,
    /// Releasers; where there is none, one still heals.
    pub releasers: u8,
    /// Loaders.
    pub loaders: u8,
    /// Rebuilds that may begin.
    pub rebuilds: u8,
    /// Most unread records.
    pub queue: u8,
    /// Faults that may happen.
    pub faults: Budget,
}

impl Scope {
    /// Whether anything closes orders.
    pub(crate) fn closes(&self) -> bool {
        self.expires || self.cancels
    }

    /// The least there can be: two buyers and one unit, nobody repeats, nothing fails.
    pub const LEAST: Self = Self {
        name: "least",
        quantity: 1,
        limit: 1,
        buyers: &[one(0), one(1)],
        payments: &[],
        repeats: false,
        expires: false,
        cancels: false,
        recorders: 1,
        sweepers: 0,
        releasers: 1,
        loaders: 0,
        rebuilds: 0,
        queue: 2,
        faults: NO_FAULTS,
    };
}

/// Nothing fails.
pub const NO_FAULTS: Budget = Budget { flushes: 0, rewinds: 0, losses: 0, duplicates: 0, dead_letters: 0 };

/// One user who buys twice, and another.
const AGAIN: &[Buyer] = &[one(0), one(0), one(1)];
/// One user.
const ALONE: &[Buyer] = &[one(0)];
/// One loader that rebuilds once.
const REBUILT: Scope = Scope { loaders: 1, rebuilds: 1, ..Scope::LEAST };
const FLUSHED: Budget = Budget { flushes: 1, ..NO_FAULTS };
const REWOUND: Budget = Budget { rewinds: 1, ..NO_FAULTS };
const LOSING: Budget = Budget { losses: 1, duplicates: 1, dead_letters: 1, ..NO_FAULTS };

/// The scopes of the test command.
pub const TESTED: [Scope; 13] = [
    Scope {
        name: "calls repeated, orders end, two releasers",
        repeats: true,
        expires: true,
        cancels: true,
        releasers: 2,
        ..Scope::LEAST
    },
    Scope { name: "two recorders", repeats: true, expires: true, recorders: 2, ..Scope::LEAST },
    Scope { name: "a user buys again", buyers: AGAIN, expires: true, releasers: 2, ..Scope::LEAST },
    Scope {
        name: "two units at once",
        buyers: &[one(0), one(0), Buyer { user: 1, units: 2 }],
        quantity: 2,
        limit: 2,
        expires: true,
        cancels: true,
        ..Scope::LEAST
    },
    Scope {
        name: "two payments, cancel, retake",
        payments: &[0, 0],
        expires: true,
        cancels: true,
        ..Scope::LEAST
    },
    Scope { name: "stock flushed", repeats: true, faults: FLUSHED, ..REBUILT },
    Scope {
        name: "stock flushed, retake",
        buyers: ALONE,
        payments: &[0],
        expires: true,
        faults: FLUSHED,
        ..REBUILT
    },
    Scope { name: "stock rewound", buyers: ALONE, expires: true, rebuilds: 2, faults: REWOUND, ..REBUILT },
    Scope { name: "stock rewound, competing loaders", buyers: ALONE, loaders: 2, faults: REWOUND, ..REBUILT },
    Scope { name: "queue loses and repeats", sweepers: 2, faults: LOSING, ..Scope::LEAST },
    Scope {
        name: "queue loses under a rebuild",
        buyers: ALONE,
        sweepers: 1,
        faults: Budget { losses: 2, ..NO_FAULTS },
        ..REBUILT
    },
    Scope { name: "competing loaders", buyers: ALONE, loaders: 2, rebuilds: 2, ..REBUILT },
    Scope {
        name: "cancelled while queued, late calls",
        buyers: ALONE,
        repeats: true,
        cancels: true,
        sweepers: 1,
        releasers: 2,
        ..REBUILT
    },
];

/// More, roughly the smaller first, for long runs.
pub const LARGER: [Scope; 11] = [
    Scope {
        name: "competing loaders, stock flushed",
        buyers: ALONE,
        expires: true,
        loaders: 2,
        faults: FLUSHED,
        ..REBUILT
    },
    Scope { name: "two sweepers, late calls", repeats: true, expires: true, sweepers: 2, ..Scope::LEAST },
    Scope {
        name: "queue loses, stock flushed, two rebuilds",
        buyers: ALONE,
        repeats: true,
        rebuilds: 2,
        faults: Budget { losses: 1, ..FLUSHED },
        ..REBUILT
    },
    Scope {
        name: "competing loaders, orders expire",
        buyers: ALONE,
        expires: true,
        loaders: 2,
        rebuilds: 2,
        ..REBUILT
    },
    Scope { name: "retake under a rebuild", payments: &[0], expires: true, ..REBUILT },
    Scope {
        name: "retake, two recorders and releasers",
        payments: &[0],
        expires: true,
        cancels: true,
        recorders: 2,
        releasers: 2,
        ..Scope::LEAST
    },
    Scope {
        name: "a user buys again, two of each worker",
        buyers: AGAIN,
        expires: true,
        cancels: true,
        recorders: 2,
        releasers: 2,
        ..Scope::LEAST
    },
    Scope {
        name: "queue loses and repeats, orders expire",
        sweepers: 1,
        expires: true,
        faults: LOSING,
        ..Scope::LEAST
    },
    Scope { name: "stock flushed, orders expire", repeats: true, expires: true, faults: FLUSHED, ..REBUILT },
    Scope { name: "cancelled while queued, two buyers", repeats: true, cancels: true, ..REBUILT },
    Scope { name: "stock rewound, two buyers", expires: true, rebuilds: 2, faults: REWOUND, ..REBUILT },
];
