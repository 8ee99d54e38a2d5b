//! What the winners of a simulated storm do afterwards, as flags.

use clap::Args;
use doorbuster_loadtest::Shares;

use super::failure::WrongUsage;

/// Shares of the winners, in whole per cent. They pay in the sandbox.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "What winners do after the storm, in per cent of them")]
pub(crate) struct SharesArgs {
    /// Pay at once
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    pay: Option<u32>,
    /// Fail to pay, then pay
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    fail_then_pay: Option<u32>,
    /// Pay, and the provider tells of it three times
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    pay_told_twice: Option<u32>,
    /// Pay 0.01 too little, then pay what is due
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    underpay_then_pay: Option<u32>,
    /// Cancel the order
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    cancel: Option<u32>,
    /// Cancel, buy again as soon as the unit is back, and pay
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    cancel_then_buy: Option<u32>,
    /// Never pay: the order expires. Whoever is left over does so too
    #[arg(long, value_name = "PERCENT", value_parser = percent())]
    abandon: Option<u32>,
}

fn percent() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=100)
}

impl SharesArgs {
    /// The shares; nothing when none was given.
    pub(super) fn shares(&self) -> anyhow::Result<Option<Shares>> {
        let given = [
            self.pay,
            self.fail_then_pay,
            self.pay_told_twice,
            self.underpay_then_pay,
            self.cancel,
            self.cancel_then_buy,
            self.abandon,
        ];
        if given.iter().all(Option::is_none) {
            return Ok(None);
        }
        let sum: u32 = given.into_iter().flatten().sum();
        if sum > 100 {
            let text =
                format!("the shares add up to {sum} %; all winners are 100 %, so make one of them smaller");
            return Err(WrongUsage(text).into());
        }

        Ok(Some(Shares {
            pay: self.pay.unwrap_or(0),
            fail_then_pay: self.fail_then_pay.unwrap_or(0),
            pay_told_twice: self.pay_told_twice.unwrap_or(0),
            underpay_then_pay: self.underpay_then_pay.unwrap_or(0),
            cancel: self.cancel.unwrap_or(0),
            cancel_then_buy: self.cancel_then_buy.unwrap_or(0),
        }))
    }
}

#[cfg(test)]
mod tests {
    use doorbuster_loadtest::Shares;

    use super::SharesArgs;

    #[test]
    fn shares_are_told_or_refused_and_none_are_none() {
        let none = SharesArgs::default();
        assert_eq!(none.shares().unwrap(), None);
        let some = SharesArgs { pay: Some(70), cancel: Some(20), abandon: Some(10), ..none.clone() };
        let wanted = Shares { pay: 70, cancel: 20, ..Shares::default() };
        assert_eq!(some.shares().unwrap(), Some(wanted));
        let only_abandon = SharesArgs { abandon: Some(100), ..none };
        assert_eq!(only_abandon.shares().unwrap(), Some(Shares::default()));
        let error = SharesArgs { abandon: Some(11), ..some }.shares().unwrap_err();
        assert!(error.to_string().contains("101 %") && error.is::<super::WrongUsage>(), "{error}");
    }
}
