//! Who holds units without paying, again and again, buys no more.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_wire::SetSwitch;
use futures_util::future::join_all;
use shop::http::Reply;
use shop::{Sale, Shop, WINDOW, until};

/// A click, again while the shop finds that it was asleep: the clock has jumped.
async fn click(shop: &Shop, sale: &Sale, user: &str) -> Reply {
    let mut reply = shop.buyer(user).buy(&sale.item).await;
    until("the shop takes orders", async || {
        if reply.error() == "BUSY" {
            reply = shop.buyer(user).buy(&sale.item).await;
        }
        reply.error() != "BUSY"
    })
    .await;
    reply
}

/// How many of a gauge there are.
async fn gauge(shop: &Shop, name: &str) -> u64 {
    let page = shop.metrics().await;
    let line = page.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("no {name}"));
    line.trim().parse().unwrap()
}

async fn until_barred(shop: &Shop, users: u64) {
    until("they are barred", async || gauge(shop, "doorbuster_barred_users ").await == users).await;
}

/// D1s, as many rounds as there are strikes and one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_never_pays_holds_the_stock_for_two_rounds_and_not_for_a_third() {
    let shop = Shop::open_with(&[("gate.limits.address_rate", "0")]).await;
    let sale = shop.sale(20).await;
    let hoarders: Vec<String> = (0..20).map(|n| format!("hoarder-{n}")).collect();
    for round in 0..2 {
        let clicks = join_all(hoarders.iter().map(|user| click(&shop, &sale, user))).await;
        assert!(clicks.iter().all(|reply| reply.status == 202), "round {round}");
        shop.until_free(&sale, 0).await;
        shop.recorded(&clicks[19].accepted()).await;
        until("all are recorded", async || shop.admin.sale(&sale.id).await.unwrap().items[0].sold == 20)
            .await;
        shop.advance(WINDOW + Duration::from_secs(1));
        shop.until_free(&sale, 20).await;
    }
    until_barred(&shop, 20).await;
    for user in &hoarders {
        click(&shop, &sale, user).await.refused(403, "NOT_ELIGIBLE");
    }
    let honest: Vec<String> = (0..20).map(|n| format!("honest-{n}")).collect();
    let clicks = join_all(honest.iter().map(|user| click(&shop, &sale, user))).await;
    let bought = clicks.iter().filter(|reply| reply.status == 202).count();
    assert_eq!(bought, 20, "honest users have the whole stock");

    // Another sale does not know of it, and the staff can be lenient.
    let other = shop.sale(5).await;
    click(&shop, &other, "hoarder-0").await.accepted();
    let lenient = SetSwitch { value: Some("0".to_owned()), sale_id: None, reason: "a test".to_owned() };
    shop.admin.set_switch("strikes_max", &lenient).await.unwrap();
    until_barred(&shop, 0).await;
    click(&shop, &sale, "hoarder-0").await.refused(410, "SOLD_OUT");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_cancel_is_a_strike_and_an_early_one_is_none() {
    let sale_tokens = ("gate.sale_tokens.secret", "a-secret-of-the-shop-that-nobody-knows");
    let shop = Shop::open_with(&[("gate.strikes_max", "1"), sale_tokens]).await;
    let sale = shop.sale(5).await;
    for (user, after, barred) in [("early", 30, 0), ("late", 90, 1)] {
        let order = click(&shop, &sale, user).await.accepted();
        shop.buyer(user).until_payable(&order).await;
        shop.advance(Duration::from_secs(after));
        assert_eq!(shop.buyer(user).cancel(&order).await.status, 200);
        shop.until_free(&sale, 5).await;
        until_barred(&shop, barred).await;
    }
    click(&shop, &sale, "early").await.accepted();
    click(&shop, &sale, "late").await.refused(403, "NOT_ELIGIBLE");
    let path = format!("/api/flash-sales/sales/{}/token", sale.id);
    shop.buyer("late").ask("POST", &path, &[], "").await.refused(403, "NOT_ELIGIBLE");
    assert_eq!(shop.buyer("late").my_orders(&sale).await.len(), 1, "looking is free");
    shop.finish().await;
}
