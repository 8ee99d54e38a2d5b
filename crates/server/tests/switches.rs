//! What the staff turns while sales run, and the trail of what it changed.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use doorbuster_server::config::Role;
use doorbuster_wire::SetSwitch;
use shop::http::request;
use shop::{Shop, refusal, until};

fn to(value: Option<&str>) -> SetSwitch {
    SetSwitch { value: value.map(str::to_owned), sale_id: None, reason: "a test".to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishing_is_paused_and_goes_on() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.admin.set_switch("publish_pause", &to(Some("on"))).await.unwrap();
    // At once, where it was turned.
    shop.buyer("bob").buy(&sale.item).await.refused(503, "BUSY");
    // Buyers are still sent here: they pay and cancel.
    let ready = shop.ask("GET", "/readyz", &[], b"").await;
    assert_eq!(ready.status, 200, "{}", ready.said());
    shop.pay(&order, "event-1").await;
    assert_eq!(shop.free(&sale, &sale.item).await, 4, "nothing was taken");
    shop.admin.set_switch("publish_pause", &to(None)).await.unwrap();
    until("bob buys", async || shop.buyer("bob").buy(&sale.item).await.status == 202).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_is_turned_on_every_gateway_and_stays_so_after_a_restart() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let alone = shop.config.uses_data_dir();
    let gateways = if alone { Vec::new() } else { vec![shop.join(&[Role::Gateway]).await] };
    shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.admin.set_switch("user_burst", &to(Some("3"))).await.unwrap();
    shop.admin.set_switch("user_rate", &to(Some("1"))).await.unwrap();
    // The clock stands: what is used up stays so.
    until("alice hears that she comes too often", async || {
        shop.buyer("alice").buy(&sale.item).await.status == 429
    })
    .await;
    for gateway in &gateways {
        until("so she does elsewhere", async || {
            shop.click_at(gateway.public_address(), "alice", &sale.item).await.status == 429
        })
        .await;
    }
    shop.buyer("bob").buy(&sale.item).await.accepted();
    for gateway in gateways {
        gateway.stop().await;
    }
    shop.stop().await;
    shop.start_again().await.unwrap();
    let clicks = async || shop.buyer("carol").buy(&sale.item).await.status == 429;
    until("carol hears it too", clicks).await;
    shop.admin.set_switch("user_rate", &to(None)).await.unwrap();
    until("as configured again", async || shop.buyer("carol").buy(&sale.item).await.status == 409).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_turned_is_refused_with_the_reason() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let set = async |name: &str, asked: &SetSwitch| refusal(shop.admin.set_switch(name, asked).await);
    let of_sale = |sale: &str| SetSwitch { sale_id: Some(sale.to_owned()), ..to(Some("off")) };
    for (name, asked, status, word) in [
        ("no_such_switch", to(Some("on")), 404, "SWITCH_NOT_FOUND"),
        ("publish_pause", to(Some("yes")), 422, "UNPROCESSABLE"),
        ("user_rate", to(Some("-1")), 422, "UNPROCESSABLE"),
        ("user_burst", to(Some("0")), 422, "UNPROCESSABLE"),
        ("outbox_age_max", to(Some("30")), 422, "UNPROCESSABLE"),
        ("publish_pause", of_sale(&sale.id), 422, "UNPROCESSABLE"),
        ("token_required", to(Some("off")), 422, "UNPROCESSABLE"),
        ("token_required", of_sale("99"), 404, "SALE_NOT_FOUND"),
        ("token_required", of_sale("x"), 404, "SALE_NOT_FOUND"),
        ("user_rate", SetSwitch { reason: String::new(), ..to(Some("1")) }, 422, "UNPROCESSABLE"),
        ("user_rate", SetSwitch { reason: "\u{1b}[2J".to_owned(), ..to(Some("1")) }, 422, "UNPROCESSABLE"),
        ("user_rate", SetSwitch { reason: "x".repeat(501), ..to(Some("1")) }, 422, "UNPROCESSABLE"),
    ] {
        assert_eq!(set(name, &asked).await, (status, word.to_owned()), "{name} {asked:?}");
    }
    let viewer = shop.staff(|staff| &staff.viewer);
    let refused = viewer.set_switch("user_rate", &to(Some("1"))).await;
    assert_eq!(refusal(refused), (403, "FORBIDDEN".to_owned()));
    assert!(viewer.switches().await.unwrap().iter().all(|row| row.value.is_none()));
    assert_eq!(viewer.switch_history(10).await.unwrap(), []);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_turn_is_kept_with_who_and_why() {
    let shop = Shop::open().await;
    for value in [Some("7"), Some("8"), None] {
        shop.admin.set_switch("user_rate", &to(value)).await.unwrap();
    }
    let viewer = shop.staff(|staff| &staff.viewer);
    let turns = viewer.switch_history(2).await.unwrap();
    let seen: Vec<_> =
        turns.iter().map(|it| (it.name.as_str(), it.value.as_deref(), it.reason.as_str())).collect();
    assert_eq!(seen, [("user_rate", None, "a test"), ("user_rate", Some("8"), "a test")]);
    assert_eq!(viewer.switch_history(10).await.unwrap().len(), 3);
    let stands = viewer.switches().await.unwrap();
    assert!(stands.iter().any(|row| row.name == "user_rate" && row.value.is_none()));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_staff_changes_is_in_the_trail_and_what_it_looks_at_is_not() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    shop.admin.sale(&sale.id).await.unwrap();
    let operator = shop.staff(|staff| &staff.operator);
    operator.pause(&sale.id).await.unwrap();
    operator.open("99").await.unwrap_err();
    let viewer = shop.staff(|staff| &staff.viewer);
    viewer.close(&sale.id).await.unwrap_err();
    let trail = viewer.trail(100).await.unwrap();
    let seen: Vec<_> = trail.iter().map(|it| (it.role.as_str(), it.path.clone(), it.status)).collect();
    let of_sale = |id: &str, what: &str| format!("/admin/api/sales/{id}/{what}");
    assert_eq!(
        seen,
        [
            ("operator", of_sale("99", "open"), Some(404)),
            ("operator", of_sale(&sale.id, "pause"), Some(200)),
            ("admin", of_sale(&sale.id, "open"), Some(200)),
            ("admin", of_sale(&sale.id, "preheat"), Some(200)),
            ("admin", "/admin/api/sales".to_owned(), Some(201)),
        ]
    );
    assert!(trail[4].body.contains("\"name\":\"Drop\""), "{}", trail[4].body);
    assert!(trail.iter().all(|it| it.method == "POST" && !it.request_id.is_empty()));

    // Bytes that are no text, and many of them, are kept as far as they can be.
    let bearer = shop.operator();
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let body = [&b"\xff\0"[..], &b"x".repeat(10_000)].concat();
    let mut line = shop.staff_line().await;
    line.send(&request("POST", "/admin/api/sales", &headers, &body)).await.unwrap();
    assert_eq!(line.reply(false).await.unwrap().status, 400);
    let newest = &viewer.trail(1).await.unwrap()[0];
    assert!(newest.body.starts_with("\u{fffd}\u{fffd}xxx") && newest.body.len() < 4_200, "{newest:?}");
    assert_eq!(newest.status, Some(400));
    shop.finish().await;
}
