//! What the winners of a storm do afterwards, and in which shares.

use thiserror::Error;

use crate::schedule::life_percent;

/// Shares of the winners, in whole per cent of them. Whoever is left abandons the order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Pay at once.
    pub pay: u32,
    /// Try to pay in vain, then pay.
    pub fail_then_pay: u32,
    /// Pay, and the provider tells of it three times.
    pub pay_told_twice: u32,
    /// Pay a hundredth too little, then pay what is due.
    pub underpay_then_pay: u32,
    /// Cancel the order.
    pub cancel: u32,
    /// Cancel, buy again as soon as the unit is back, and pay.
    pub cancel_then_buy: u32,
}

/// The shares are of more than all winners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the shares add up to {0} %: all winners are 100 %, and whoever is left abandons")]
pub struct TooManyShares(pub u32);

/// What one winner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// See [`Shares::pay`].
    Pay,
    /// See [`Shares::fail_then_pay`].
    FailThenPay,
    /// See [`Shares::pay_told_twice`].
    PayToldTwice,
    /// See [`Shares::underpay_then_pay`].
    UnderpayThenPay,
    /// See [`Shares::cancel`].
    Cancel,
    /// See [`Shares::cancel_then_buy`].
    CancelThenBuy,
    /// Does nothing more: the order expires.
    Abandon,
}

impl Shares {
    /// How many per cent abandon.
    ///
    /// # Errors
    /// [`TooManyShares`] when nothing can be left.
    pub fn abandon(&self) -> Result<u32, TooManyShares> {
        let sum = self.lives().iter().fold(0_u32, |sum, (_, share)| sum.saturating_add(*share));
        100_u32.checked_sub(sum).ok_or(TooManyShares(sum))
    }

    fn lives(&self) -> [(Life, u32); 6] {
        [
            (Life::Pay, self.pay),
            (Life::FailThenPay, self.fail_then_pay),
            (Life::PayToldTwice, self.pay_told_twice),
            (Life::UnderpayThenPay, self.underpay_then_pay),
            (Life::Cancel, self.cancel),
            (Life::CancelThenBuy, self.cancel_then_buy),
        ]
    }

    /// What the user with this number does: the same for the same seed, whoever else wins.
    pub(crate) fn life_of(&self, seed: u64, number: u64) -> Life {
        let mut drawn = life_percent(seed, number);
        for (life, share) in self.lives() {
            match drawn.checked_sub(share) {
                Some(left) => drawn = left,
                None => return life,
            }
        }
        Life::Abandon
    }
}

impl Life {
    /// What is chosen on the sandbox's page, one try after the other; the last one pays.
    pub(super) fn choices(self) -> &'static [&'static str] {
        match self {
            Self::Pay | Self::CancelThenBuy => &["pay"],
            Self::FailThenPay => &["fail", "pay"],
            Self::PayToldTwice => &["twice"],
            Self::UnderpayThenPay => &["short", "pay"],
            Self::Cancel | Self::Abandon => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Life, Shares, TooManyShares};

    #[test]
    fn shares_are_of_all_winners_at_most() {
        let shares = |pay, cancel| Shares { pay, cancel, ..Shares::default() };
        for (shares, abandon) in [
            (shares(0, 0), Ok(100)),
            (shares(70, 20), Ok(10)),
            (shares(100, 0), Ok(0)),
            (shares(90, 11), Err(TooManyShares(101))),
            (shares(u32::MAX, 1), Err(TooManyShares(u32::MAX))),
        ] {
            assert_eq!(shares.abandon(), abandon, "{shares:?}");
        }
    }

    #[test]
    fn lives_follow_from_seed_and_user_and_come_in_their_shares() {
        let shares = Shares {
            pay: 40,
            fail_then_pay: 10,
            pay_told_twice: 10,
            underpay_then_pay: 10,
            cancel: 10,
            cancel_then_buy: 10,
        };
        let lives = |seed| (0..10_000).map(|number| shares.life_of(seed, number)).collect::<Vec<_>>();
        let drawn = lives(7);
        assert_eq!(drawn, lives(7));
        assert_ne!(drawn, lives(8));
        for (life, share) in shares.lives().into_iter().chain([(Life::Abandon, 10)]) {
            let share = share as usize * 100;
            let count = drawn.iter().filter(|it| **it == life).count();
            assert!(count.abs_diff(share) < 200, "{life:?}: {count} of {share}");
        }
    }
}
