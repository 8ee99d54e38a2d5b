//! Storms over real HTTP on a stand-in server: the witness must find each of its faults.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use doorbuster_loadtest::{AdminClient, AdminError, Plan, StormError, storm};
use serde_json::Value;

use crate::shop::{Fault, Shop};

#[expect(
    clippy::unwrap_used,
    clippy::result_large_err,
    reason = "only tests use it: a panic is a failed test, and refusals may be moved about"
)]
mod shop;

#[tokio::test]
async fn correct_shop_passes_and_every_user_has_one_answer() {
    let shop = Shop::start(Fault::None).await;
    let (storm, report) = shop.rehearse().await;

    assert!(report.verdict(), "{}", report.render());
    assert_eq!((report.users, report.units, report.sold), (500, 50, 50));
    assert_eq!((report.accepted, report.held), (50, 0));
    assert_eq!(report.accepted + report.rejected.values().sum::<u64>(), 500);
    assert_eq!(report.rejected["SOLD_OUT"], 450);
    assert!(report.sell_out_seconds.unwrap() <= report.seconds);
    let answers: u64 = report.answers.values().sum();
    assert!((570..=630).contains(&answers), "a fifth clicks twice: {answers}");
    assert_eq!(report.answers[&202], 50);
    let finals = (0..500).filter(|user| storm.final_answer(*user) == Some("ACCEPTED")).count();
    assert_eq!((finals, storm.final_answer(500)), (50, None));
    assert_eq!((report.broken, report.timed_out, report.retries), (0, 0, 0));
    assert!(shop.chosen() == 0 && report.till.is_none(), "a storm alone pays for nothing");
}

#[tokio::test]
async fn course_has_every_answer_and_the_stock_drains_to_nothing() {
    let shop = Shop::start(Fault::None).await;
    let (storm, report) = shop.rehearse().await;

    let [course] = storm.courses.as_slice() else {
        panic!("one storm has one course");
    };
    for (status, answers) in &report.answers {
        let counted: u64 = course.timeline.counts(*status).iter().map(|count| u64::from(*count)).sum();
        assert_eq!(counted, *answers, "{status}");
    }
    assert_eq!(course.units_at_start, Some(50));
    assert_eq!(course.units_left.len(), course.timeline.len());
    assert!(course.units_left.is_sorted_by(|earlier, later| earlier >= later));
    assert_eq!(course.units_left.last(), Some(&0));
    assert!(storm.over_loopback && report.html().contains("shared its cores"));
}

#[tokio::test]
async fn every_connection_has_its_own_address() {
    let shop = Shop::start(Fault::None).await;
    let plan = Plan { connections: 8, ..shop.plan() };
    shop.storm(plan).await;
    assert_eq!(shop.sources_and_changed_tokens().0, 8);
}

#[tokio::test]
async fn where_sale_tokens_are_required_every_user_gets_one_before_the_rush() {
    let shop = Shop::start(Fault::RequiresTokens).await;
    let seen = AtomicU64::new(0);
    let storm = storm(shop.plan(), |progress| {
        seen.fetch_max(progress.tokens, Ordering::Relaxed);
    });
    let storm = storm.await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 500);
    assert!(storm.pace.sale_tokens);
    assert_eq!((storm.accepted.len(), storm.rejected["SOLD_OUT"]), (50, 450));

    let shop = Shop::start(Fault::TokenForAllButOne).await;
    match storm_of(&shop).await {
        Err(StormError::NoSaleToken { user, status: 403, error }) => {
            assert_eq!((user.as_str(), error.as_str()), ("user-77", "NOT_ELIGIBLE"));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn users_wait_for_their_turn_and_who_is_not_let_in_hears_so() {
    let shop = Shop::start(Fault::LetsInEveryThird).await;
    let storm = storm_of(&shop).await.unwrap();
    assert!(storm.pace.sale_tokens);
    let heard = (storm.accepted.len(), storm.rejected["SOLD_OUT"], storm.rejected["TOKEN_REQUIRED"]);
    assert_eq!(heard, (50, 117, 333));
}

async fn storm_of(shop: &Shop) -> Result<doorbuster_loadtest::Storm, StormError> {
    storm(shop.plan(), |_| {}).await
}

#[tokio::test]
async fn users_are_dealt_out_to_several_gateways() {
    let (one, other) = (Shop::start(Fault::None).await, Shop::start(Fault::None).await);
    let plan =
        Plan { urls: vec![one.url.clone(), other.url.replace("127.0.0.1", "localhost")], ..one.plan() };
    let storm = one.storm(plan).await;
    assert_eq!(storm.accepted.len(), 100);
    let sources = [one, other].map(|shop| shop.sources_and_changed_tokens().0);
    assert_eq!(sources, [8, 8]);
}

#[tokio::test]
async fn oversold_units_are_counted() {
    let shop = Shop::start(Fault::Oversells(3)).await;
    let (_, report) = shop.rehearse().await;
    assert_eq!((report.oversold, report.sold), (6, 56));
    assert_eq!((report.lost, report.duplicates, report.mismatches), (0, 0, 0));
    assert!(!report.verdict());
    assert!(report.render().starts_with("FAIL"), "{}", report.render());
    assert!(report.findings.iter().any(|finding| finding.contains("item 11: 33 live units of 30")));
}

#[tokio::test]
async fn orders_without_a_row_and_rejected_ones_are_lost() {
    for fault in [Fault::LosesOrders, Fault::RejectsOrders] {
        let shop = Shop::start(fault).await;
        let (_, report) = shop.rehearse().await;
        assert_eq!((report.lost, report.sold, report.oversold), (5, 45, 0));
        assert!(!report.verdict());
    }
}

#[tokio::test]
async fn users_who_got_two_units_are_counted() {
    let shop = Shop::start(Fault::SellsTwice).await;
    let plan = Plan { users: 40, impatient: 1.0, ..shop.plan() };
    let storm = shop.storm(plan).await;
    let balance = shop.balance(&storm).await;
    assert_eq!((balance.duplicates, balance.lost), (40, 0));
    assert_eq!(storm.accepted.len(), 80);
}

#[tokio::test]
async fn rows_of_other_users_are_mismatches() {
    let shop = Shop::start(Fault::MixesUpUsers).await;
    let (_, report) = shop.rehearse().await;
    assert_eq!((report.mismatches, report.lost, report.oversold), (5, 0, 0));
    assert!(!report.verdict());
}

#[tokio::test]
async fn busy_answers_are_retried_with_the_same_token_until_an_answer() {
    let shop = Shop::start(Fault::BusyFirst).await;
    let plan = Plan { users: 60, impatient: 0.0, ..shop.plan() };
    let storm = shop.storm(plan).await;
    assert_eq!((storm.answers(503), storm.retries), (60, 60));
    assert_eq!(storm.accepted.len() as u64 + storm.rejected.values().sum::<u64>(), 60);
    assert!(storm.wall >= Duration::from_secs(1), "Retry-After is kept: {:?}", storm.wall);
    // The latency counts from the click, not from the retry.
    assert!(storm.latency_us[&202].min() >= 1_000_000);
    assert_eq!(shop.sources_and_changed_tokens().1, 0);
}

#[tokio::test]
async fn patience_ends() {
    let shop = Shop::start(Fault::AlwaysBusy).await;
    let patience = Duration::from_millis(1_500);
    let storm = shop.storm(Plan { users: 20, patience, ..shop.plan() }).await;
    assert_eq!(storm.rejected, [("IMPATIENT".to_owned(), 20)].into());
    assert!(storm.wall < Duration::from_secs(5), "{:?}", storm.wall);
}

#[tokio::test]
async fn cut_connections_are_retried_and_no_unit_is_lost_by_them() {
    let shop = Shop::start(Fault::CutsConnections).await;
    let (storm, report) = shop.rehearse().await;
    assert!(report.verdict(), "{}", report.render());
    assert!(report.broken > 50, "{}", report.broken);
    assert_eq!(report.sold, 50);
    assert_eq!(report.accepted + report.held, 50, "{}", report.render());
    assert_eq!(storm.rejected.values().sum::<u64>(), 450);
}

#[tokio::test]
async fn order_of_an_unknown_outcome_is_held_after_the_retry() {
    let shop = Shop::start(Fault::OutcomeUnknown).await;
    let (_, report) = shop.rehearse().await;
    assert!(report.verdict(), "{}", report.render());
    assert_eq!(report.accepted + report.held, 50);
    assert!(report.held > 5, "{}", report.held);
    assert_eq!(report.held_without_row, 0);
}

#[tokio::test]
async fn nonsense_is_counted_and_nothing_panics() {
    let shop = Shop::start(Fault::TalksNonsense).await;
    let storm = shop.storm(Plan { impatient: 0.0, ..shop.plan() }).await;
    assert_eq!(storm.rejected, [("INVALID".to_owned(), 500)].into());
    assert!(storm.accepted.is_empty() && storm.sell_out_seconds().is_none());
    assert_eq!(storm.answers(500), 125);
}

#[tokio::test]
async fn silent_server_times_out() {
    let shop = Shop::start(Fault::NeverAnswers).await;
    let plan = Plan {
        users: 4,
        impatient: 0.0,
        patience: Duration::from_millis(100),
        request_timeout: Duration::from_millis(300),
        ..shop.plan()
    };
    let storm = shop.storm(plan).await;
    assert_eq!(storm.timed_out, 4);
    assert_eq!(storm.rejected, [("UNREACHABLE".to_owned(), 4)].into());
}

#[tokio::test]
async fn waves_are_merged() {
    let shop = Shop::start(Fault::None).await;
    let mut first = shop.storm(Plan { users: 20, impatient: 0.0, ..shop.plan() }).await;
    let second = Plan { first_user: 20, users: 100, impatient: 0.0, ..shop.plan() };
    let second = shop.storm(second).await;
    assert_eq!((first.accepted.len(), second.accepted.len()), (20, 30));
    assert_eq!(first.sell_out_seconds(), None);
    first.merge(second);
    assert_eq!(first.courses.len(), 2);
    assert!(first.courses[1].begins_after >= first.courses[0].wall);
    assert_eq!((first.users, first.accepted.len()), (120, 50));
    assert_eq!(first.rejected["SOLD_OUT"], 70);
    assert!((0..120).all(|user| first.final_answer(user).is_some()));
    assert!(shop.balance(&first).await.is_even());
}

#[tokio::test]
async fn progress_reaches_the_total() {
    let shop = Shop::start(Fault::None).await;
    let (clicked, total) = (AtomicU64::new(0), AtomicU64::new(0));
    storm(shop.plan(), |progress| {
        clicked.store(progress.clicked, Ordering::Relaxed);
        total.store(progress.total, Ordering::Relaxed);
    })
    .await
    .unwrap();
    assert_eq!(clicked.load(Ordering::Relaxed), total.load(Ordering::Relaxed));
    assert!(total.load(Ordering::Relaxed) > 500);
}

#[tokio::test]
async fn report_has_the_promised_json() {
    let shop = Shop::start(Fault::None).await;
    let (_, report) = shop.rehearse().await;
    let json = serde_json::to_value(&report).unwrap();
    for (member, value) in [
        ("users", 500),
        ("units", 50),
        ("sold", 50),
        ("oversold", 0),
        ("lost", 0),
        ("duplicates", 0),
        ("seed", 1),
    ] {
        assert_eq!(json[member], value, "{member}");
    }
    assert_eq!(json["rejected"]["SOLD_OUT"], 450);
    assert_eq!(json["answers"]["202"], 50);
    assert_eq!(json["audit"], "ok");
    for path in [
        "/seconds",
        "/sellOutSeconds",
        "/latencyMs/202/p50",
        "/latencyMs/202/p99",
        "/latencyMs/410/max",
        "/conditions/connections",
        "/conditions/windowSeconds",
    ] {
        assert!(json.pointer(path).is_some_and(Value::is_number), "{path}: {json}");
    }
    assert!(json["conditions"].as_object().unwrap().contains_key("bottleneck"));
}

#[tokio::test]
async fn impossible_storms_are_refused_in_words() {
    let shop = Shop::start(Fault::None).await;
    let https = Plan { urls: vec!["https://shop.example".to_owned()], ..shop.plan() };
    let error = storm(https, |_| {}).await.unwrap_err();
    assert!(matches!(error, StormError::Url(_)) && error.to_string().contains("plain http://"));

    let unknown = Plan { sale_id: "9".to_owned(), ..shop.plan() };
    let error = storm(unknown, |_| {}).await.unwrap_err();
    assert!(matches!(error, StormError::Sale { status: 404, .. }), "{error}");

    let closed = Plan { urls: vec!["http://127.0.0.1:1".to_owned()], ..shop.plan() };
    let error = storm(closed, |_| {}).await.unwrap_err();
    assert!(matches!(error, StormError::Unreachable { .. }), "{error}");

    let nobody = Plan { users: 0, ..shop.plan() };
    assert!(matches!(storm(nobody, |_| {}).await, Err(StormError::Plan(_))));
}

#[tokio::test]
async fn admin_client_reads_all_pages_and_names_refusals() {
    let shop = Shop::start(Fault::None).await;
    let storm = shop.storm(shop.plan()).await;
    assert_eq!(shop.settle(&storm).await.missing, 0);
    assert_eq!(shop.admin.all_orders("1").await.unwrap().len(), 50);
    assert_eq!(shop.admin.sale("1").await.unwrap().items.len(), 2);

    let error = shop.admin.sale("9").await.unwrap_err();
    assert_eq!(error.status(), Some(404));
    assert!(error.to_string().contains("NOT_FOUND"), "{error}");
    assert!(matches!(shop.admin.sale("../1").await, Err(AdminError::Argument(_))));
    let gopher = AdminClient::new("gopher://shop.example", "token").unwrap_err();
    assert!(gopher.to_string().contains("not a base URL"), "{gopher}");
}

#[tokio::test]
async fn unreachable_gateway_beside_a_good_one_costs_nobody_an_order() {
    let shop = Shop::start(Fault::None).await;
    let plan =
        Plan { urls: vec![shop.url.clone(), "http://127.0.0.1:1".to_owned()], users: 100, ..shop.plan() };
    let storm = shop.storm(plan).await;
    assert!(storm.broken > 0);
    assert_eq!(storm.accepted.len(), 50);
    assert_eq!(storm.rejected, [("SOLD_OUT".to_owned(), 50)].into());
}
