//! Winners who live on, on a stand-in server: the till must find each of its faults.

use std::time::Duration;

use doorbuster_loadtest::{
    Aftermath, Plan, Shares, Storm, StormError, Till, count_till, find_sandbox, live_on,
};

use crate::shop::{Fault, Shop};

#[expect(
    clippy::unwrap_used,
    clippy::result_large_err,
    dead_code,
    reason = "only tests use it: a panic is a failed test, refusals may be moved about, and each file of tests has its part"
)]
mod shop;

/// Everybody wins: both items have more units than there are users for them.
const USERS: u64 = 30;
/// Each life has some of them.
const EVERY: Shares = Shares {
    pay: 20,
    fail_then_pay: 10,
    pay_told_twice: 10,
    underpay_then_pay: 10,
    cancel: 15,
    cancel_then_buy: 20,
};
const ALL_PAY: Shares = Shares {
    pay: 100,
    fail_then_pay: 0,
    pay_told_twice: 0,
    underpay_then_pay: 0,
    cancel: 0,
    cancel_then_buy: 0,
};
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(300);
const ALL_CANCEL: Shares = Shares { pay: 0, cancel: 100, ..ALL_PAY };

/// A storm whose winners live on, for so long each at most.
async fn lived(fault: Fault, shares: Shares, patience: Duration) -> (Shop, Storm, Aftermath, Till) {
    let shop = Shop::start(fault).await;
    let plan = Plan { users: USERS, impatient: 0.0, window: Duration::ZERO, patience, ..shop.plan() };
    let mut storm = shop.storm(plan.clone()).await;
    let lived = live_on(&plan, shares, &mut storm, |_| {}).await.unwrap_or_else(|error| panic!("{error}"));
    let till = count_till(&shop.admin, "1", &lived, Duration::from_millis(100)).await;
    (shop, storm, lived, till.unwrap_or_else(|error| panic!("{error}")))
}

#[tokio::test]
async fn every_life_is_lived_and_the_till_is_even() {
    for fault in [Fault::None, Fault::CrowdedFirst, Fault::RecordsLate] {
        let (shop, storm, lived, till) = lived(fault, EVERY, LONG).await;
        assert!(till.is_even(), "{:?}", till.findings);
        assert!(till.cut_short.is_empty(), "{:?}", till.cut_short);
        assert!(till.failed_tries > 0 && till.abandoned > 0 && till.bought_again > 0, "{till:?}");
        assert_eq!(
            till.paid + till.cancelled - till.bought_again + till.abandoned,
            storm.accepted.len() as u64
        );
        assert_eq!(till.money["EUR"].captured, 1_990 * i64::try_from(till.paid).unwrap_or(0));
        assert_eq!(lived.payment_us.len(), till.paid);
        assert_eq!(storm.again.len() as u64, till.bought_again);
        let balance = shop.balance(&storm).await;
        assert!(balance.is_even() && balance.sold == till.paid + till.abandoned, "{balance:?}");
    }
}

#[tokio::test]
async fn faults_of_the_till_are_found() {
    let (_, _, _, till) = lived(Fault::LosesPayments, ALL_PAY, SHORT).await;
    assert_eq!((till.money_lost, till.uneven, till.paid), (6, 1, 30), "{:?}", till.findings);

    let (_, _, _, till) = lived(Fault::KeepsCancelled, ALL_CANCEL, SHORT).await;
    assert_eq!((till.word_broken, till.cancelled, till.stranded), (30, 30, 0), "{:?}", till.findings);

    let (_, _, _, till) = lived(Fault::NeverSaysPaid, ALL_PAY, SHORT).await;
    assert_eq!((till.paid_unseen, till.paid, till.cut_short["UNSEEN"]), (30, 0, 30), "{:?}", till.findings);
}

#[tokio::test]
async fn whoever_cannot_pay_is_counted_and_breaks_no_promise() {
    for (fault, word) in [(Fault::ClosesOrders, "ORDER_CLOSED"), (Fault::PagesElsewhere, "FOREIGN_PAGE")] {
        let (shop, _, _, till) = lived(fault, ALL_PAY, SHORT).await;
        assert!(till.is_even(), "{:?}", till.findings);
        assert_eq!((till.cut_short[word], till.paid), (30, 0));
        assert_eq!(shop.chosen(), 0, "nothing is sent to a page that is not the server's own");
    }
}

#[tokio::test]
async fn impossible_aftermaths_are_refused_in_words() {
    let shop = Shop::start(Fault::NoSandbox).await;
    let error = find_sandbox(&shop.plan()).await.err();
    assert!(error.is_some_and(|error| error.to_string().contains("payments.provider=sandbox")));
    let shop = Shop::start(Fault::None).await;
    assert!(find_sandbox(&shop.plan()).await.is_ok());

    let mut storm = shop.storm(Plan { users: 10, ..shop.plan() }).await;
    let shares = Shares { pay: 90, cancel: 11, ..Shares::default() };
    let error = live_on(&shop.plan(), shares, &mut storm, |_| {}).await.err();
    assert!(matches!(error, Some(StormError::Shares(_))));
}
