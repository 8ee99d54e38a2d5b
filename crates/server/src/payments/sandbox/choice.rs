//! What a buyer can let become of a payment in the sandbox.

use std::time::Duration;

use doorbuster_engine::ledger::PaymentEventKind;

/// How much later a late payment is told of.
const LATE: Duration = Duration::from_secs(30);

/// One button of the sandbox's page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// It works.
    Pay,
    /// It does not work.
    Fail,
    /// It works, and we hear of it half a minute later.
    Late,
    /// It works, and we hear of it three times: the same event twice, and another event.
    Twice,
    /// It works, with a hundredth less.
    Short,
    /// It works, and then it is said to have failed.
    Contradict,
}

/// One webhook to be sent.
pub(super) struct Told {
    /// Which event of this choice it is: the same number is the same event.
    pub(super) event: u32,
    pub(super) kind: PaymentEventKind,
    pub(super) amount_minor: i64,
    pub(super) delay: Duration,
}

impl Choice {
    /// Every button, in the page's order.
    pub(crate) const ALL: [Self; 6] =
        [Self::Pay, Self::Fail, Self::Late, Self::Twice, Self::Short, Self::Contradict];

    /// The word for it in addresses.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Pay => "pay",
            Self::Fail => "fail",
            Self::Late => "late",
            Self::Twice => "twice",
            Self::Short => "short",
            Self::Contradict => "contradict",
        }
    }

    /// The button of a word.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|choice| choice.as_str() == word)
    }

    /// What is told of it, in this order.
    pub(super) fn messages(self, amount_minor: i64) -> Vec<Told> {
        use PaymentEventKind::{Failed, Succeeded};
        let told = |event, kind| Told { event, kind, amount_minor, delay: Duration::ZERO };
        match self {
            Self::Pay => vec![told(1, Succeeded)],
            Self::Fail => vec![told(1, Failed)],
            Self::Late => vec![Told { delay: LATE, ..told(1, Succeeded) }],
            Self::Twice => vec![told(1, Succeeded), told(1, Succeeded), told(2, Succeeded)],
            Self::Short => vec![Told { amount_minor: amount_minor - 1, ..told(1, Succeeded) }],
            Self::Contradict => vec![told(1, Succeeded), told(2, Failed)],
        }
    }
}
