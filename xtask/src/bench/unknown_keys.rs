//! Row J9: what buyers notice of ten thousand tokens that name keys which nobody has.

use anyhow::{Result, ensure};

use super::Bench;
use super::figure::{Books, Figure, Goal};
use super::growth::calm;
use super::shop::Shop;
use super::wrk::{Press, Requests};

/// Different keys that are named.
const KEYS: u64 = 10_000;

pub(crate) fn run(bench: &Bench) -> Result<Vec<Figure>> {
    let (mut rounds, mut books) = (Vec::new(), Books::Balanced);
    for round in 0..bench.rounds() {
        bench.say(format!("row J9, round {}: a calm sale beside tokens of unknown keys", round + 1));
        let shop = Shop::start_with_keys(bench)?;
        let [first, alone, beside] = [shop.sale(1, 10_000)?, shop.sale(1, 10_000)?, shop.sale(1, 10_000)?];
        let tokens = shop.unknown_keys(KEYS)?;
        // What a server does for the first time is not to count for one of the two.
        calm(&shop, &first, "first-", &mut books)?;
        let alone = calm(&shop, &alone, "alone-", &mut books)?;
        let requests = Requests::Paced { path: &beside.paths[0], tokens: &tokens };
        let press = Press { connections: 20, seconds: 600, pin: true };
        let counted = bench.wrk().run(shop.address, &requests, Press { seconds: 1, ..press })?;
        ensure!(counted.refused == counted.answers, "not every such token was refused: {counted:?}");
        let storm = bench.wrk().start(shop.address, &requests, press)?;
        let beside = calm(&shop, &beside, "beside-", &mut books)?;
        drop(storm);
        rounds.push((beside, Some(alone)));
    }
    Ok(vec![Figure {
        row: "J9",
        what: "99 % of a sale's 202 answers, beside tokens of unknown keys for the same item",
        unit: "ms",
        against: "alone",
        goal: Goal::AtMostTimes(1.1),
        rounds,
        books,
        notes: vec![
            "1,000 orders/s in an open loop, and up to 2,000 such tokens a second; each is looked up, tried by the one \
             key without a name, and refused; both generators share the other core"
                .to_owned(),
        ],
    }])
}
