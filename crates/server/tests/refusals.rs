//! What a click hears when it cannot buy, and which of several reasons wins.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorbuster_loadtest::TokenSigner;
use serde_json::json;

use shop::{Offer, Sale, Shop, purchase_path, text_of, until};

const HOUR: Duration = Duration::from_secs(3_600);

/// What is tried; item, Authorization and body; status and word of the answer.
type Case<'a> = (&'a str, &'a str, Option<&'a str>, &'a str, u16, &'a str);

/// A token that is well formed and whose signature is not.
fn forged(header: &str, sub: &str, now: u64) -> String {
    let claims =
        json!({"sub": sub, "iss": "doorbuster", "aud": "doorbuster", "iat": now, "exp": now + 3_600});
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.", part(header), part(&claims.to_string()))
}

async fn buy_as(shop: &Shop, sale: &Sale, authorization: &str) -> shop::http::Reply {
    shop.ask("POST", &purchase_path(&sale.item), &[("authorization", authorization)], b"").await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_good_access_token_buys() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let now = shop.now_secs();
    let secret = shop.config.jwt_secret().unwrap();
    let signer = |iss: &str, aud: &str| TokenSigner::new(secret.reveal().as_bytes(), iss, aud).unwrap();
    let ours = signer("doorbuster", "doorbuster");
    let stranger = TokenSigner::with_defaults(b"another secret that is long enough").unwrap();
    let good = ours.sign("alice", now, 60);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let parts: Vec<&str> = good.split('.').collect();
    let bearer = |token: &str| format!("Bearer {token}");

    let none = shop.ask("POST", &purchase_path(&sale.item), &[], b"").await;
    none.refused(401, "UNAUTHENTICATED");
    assert_eq!(none.header("www-authenticate"), Some("Bearer"));
    let cases = [
        ("another scheme", format!("Basic {good}")),
        ("no token", "Bearer ".to_owned()),
        ("no scheme", good.clone()),
        ("garbage", bearer("garbage")),
        ("no signature", bearer(&format!("{signed}."))),
        ("cut", bearer(&good[..good.len() - 1])),
        (
            "a signature that is not its own",
            bearer(&format!(
                "{}.{}.{signature}",
                parts[0],
                ours.sign("eve", now, 60).split('.').nth(1).unwrap()
            )),
        ),
        ("alg none", bearer(&forged(r#"{"alg":"none","typ":"JWT"}"#, "alice", now))),
        ("alg nOnE", bearer(&forged(r#"{"alg":"nOnE"}"#, "alice", now))),
        ("another secret", bearer(&stranger.sign("alice", now, 60))),
        ("expired", bearer(&ours.sign("alice", now - 66, 60))),
        ("from the future", bearer(&ours.sign("alice", now + 6, 60))),
        ("good for too long", bearer(&ours.sign("alice", now, 24 * 3_600 + 1))),
        ("another issuer", bearer(&signer("doorbuster/", "doorbuster").sign("alice", now, 60))),
        ("another audience", bearer(&signer("doorbuster", "admin").sign("alice", now, 60))),
        ("no user", bearer(&ours.sign("", now, 60))),
        ("a user of 129 bytes", bearer(&ours.sign(&"x".repeat(129), now, 60))),
        ("a user with a line break", bearer(&ours.sign("a\nb", now, 60))),
        ("3 KB", bearer(&ours.sign(&"x".repeat(3_000), now, 60))),
    ];
    for (what, authorization) in &cases {
        let reply = buy_as(&shop, &sale, authorization).await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.said());
        reply.refused(401, "UNAUTHENTICATED");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{what}");
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    // At the edge of the leeway, and whatever the case of the scheme.
    buy_as(&shop, &sale, &bearer(&ours.sign("edge", now - 65, 60))).await.accepted();
    buy_as(&shop, &sale, &format!("bEARER  {good}")).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_told_apart_byte_for_byte() {
    let shop = Shop::open().await;
    let sale = shop.sale(20).await;
    let users = [
        "1 OR 1=1",
        "1}{",
        "*",
        "12345678901234567890",
        "１",
        "1",
        "Bob",
        "bob",
        "bob ",
        "\"",
        "ß",
        &"x".repeat(128),
    ];

    for user in users {
        let order = shop.buyer(user).buy(&sale.item).await.accepted();
        assert_eq!(shop.recorded(&order).await.user_id, user);
        assert_eq!(shop.buyer(user).my_orders(&sale).await.len(), 1, "{user}");
    }

    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn before_its_time_a_sale_says_when_it_opens() {
    let shop = Shop::open().await;
    let sale = shop.draft(Offer { opens_in: HOUR, ..Offer::default() }).await;
    shop.admin.preheat(&sale.id).await.unwrap();
    let opens_at = shop.now().plus(HOUR);
    let alice = shop.buyer("alice");

    let early = alice.buy(&sale.item).await;
    let problem = early.refused(403, "NOT_STARTED");
    assert_eq!((&problem["opensAt"], &problem["startsInMs"]), (&json!(text_of(opens_at)), &json!(3_600_000)));
    assert_eq!(early.header("retry-after"), Some("3600"));

    // The sale clock opens the state ahead of time; the window still decides to the millisecond.
    shop.advance(HOUR - Duration::from_millis(1));
    let page = format!("/api/flash-sales/sales/{}", sale.id);
    until("the gateways know it as open", async || {
        shop.ask("GET", &page, &[], b"").await.text("state") == "open"
    })
    .await;
    let problem = alice.buy(&sale.item).await.refused(403, "NOT_STARTED");
    assert_eq!(problem["startsInMs"], 1);
    shop.advance(Duration::from_millis(1));
    let order = alice.buy(&sale.item).await.accepted();

    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_its_time_a_sale_is_over_for_everybody() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { opens_in: HOUR, lasts: HOUR, ..Offer::default() }).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    shop.pay(&order, "paid").await;

    shop.advance(2 * HOUR);

    for user in [&alice, &shop.buyer("bob")] {
        let problem = user.buy(&sale.item).await.refused(410, "ENDED");
        assert_eq!(problem["mayReturn"], false);
    }
    until("the sale clock has closed it", async || {
        shop.admin.sale(&sale.id).await.unwrap().state == "closed"
    })
    .await;
    assert_eq!(alice.order(&order).await.text("status"), "PAID");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_item_cannot_be_bought() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");

    for unknown in ["999", "9223372036854775807", "9223372036854775808", "0", "00", "18446744073709551617"] {
        alice.buy(unknown).await.refused(404, "ITEM_NOT_FOUND");
    }
    for malformed in
        ["-1", "-0", "+1", "1.0", "1e3", "1;DROP", "%31", "%00", "*", "1,2", "abc", "", "%7B1%7D", "１"]
    {
        let reply = alice.buy(malformed).await;
        assert_eq!(reply.status, 400, "{malformed}: {}", reply.said());
        reply.refused(400, "INVALID_REQUEST");
    }
    for nowhere in [
        "/api/flash-sales/items/1/2/purchase",
        "/api/flash-sales/items/purchase",
        "/api/flash-sales/items/1/purchase/",
        "/",
    ] {
        let reply = alice.ask("POST", nowhere, &[], "").await;
        assert!([404, 405].contains(&reply.status), "{nowhere}: {}", reply.said());
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_is_not_preheated_is_not_ready_and_then_sells() {
    let shop = Shop::open().await;
    let mut not_ready = 0;
    // Its time has come, so the sale clock preheats it within a moment: a click must meet it before.
    for round in 0..20 {
        let sale = shop.draft(Offer { opens_in: Duration::ZERO, ..Offer::default() }).await;
        let alice = shop.buyer(&format!("alice-{round}"));
        until("the click is taken", async || {
            let reply = alice.buy(&sale.item).await;
            if reply.status == 503 {
                reply.refused(503, "NOT_READY");
                assert_eq!(reply.header("retry-after"), Some("1"));
                not_ready += 1;
            } else {
                reply.accepted();
            }
            reply.status == 202
        })
        .await;
        if not_ready > 0 {
            break;
        }
    }
    assert!(not_ready > 0, "no click came before its sale was preheated");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quantity_that_is_no_plain_number_within_the_limit_moves_no_stock() {
    let shop = Shop::open().await;
    let single = shop.sale(1_000).await;
    let triple = shop.sale_of(Offer { quantities: vec![998], limit: 3, ..Offer::default() }).await;
    let alice = shop.buyer("alice");
    let key = [("idempotency-key", "k")];

    let quantities = [
        "-5",
        "0",
        "4",
        "1.5",
        "1.0",
        "1e0",
        "\"1e3\"",
        "\"1\"",
        "9223372036854775807",
        "9223372036854775808",
        "4294967297",
        "18446744073709551617",
        "-9223372036854775809",
        "true",
        "[1]",
        "{}",
    ];
    for quantity in quantities {
        let body = format!(r#"{{"quantity":{quantity}}}"#);
        for sale in [&single, &triple] {
            let reply = alice.buy_with(&sale.item, &key, &body).await;
            assert_eq!(reply.status, 400, "{quantity}: {}", reply.said());
            reply.refused(400, "INVALID_QUANTITY");
        }
    }
    alice.buy_with(&single.item, &[], r#"{"quantity":2}"#).await.refused(400, "INVALID_QUANTITY");
    for body in [
        "[]",
        "[1]",
        "1",
        "{",
        "null",
        "{\"quantity\":01}",
        "{\"quantity\":1,\"quantity\":2}",
        "{\"expectedPriceMinor\":\"1\"}",
        "{\"expectedPriceMinor\":1e309}",
        &"[".repeat(4_000),
    ] {
        let reply = alice.buy_with(&triple.item, &key, body).await;
        assert_eq!(reply.status, 400, "{body}: {}", reply.said());
        reply.refused(400, "INVALID_REQUEST");
    }

    assert_eq!(shop.free(&single, &single.item).await, 1_000);
    assert_eq!(shop.free(&triple, &triple.item).await, 998);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cheaper_and_the_plainer_reason_wins() {
    let shop = Shop::open().await;
    let open = shop.sale(10).await;
    let draft = shop.draft(Offer::default()).await;
    let over = shop.sale(10).await;
    shop.admin.close(&over.id).await.unwrap();
    let gone = shop.sale(1).await;
    let winner = shop.buyer("winner").buy(&gone.item).await.accepted();
    for late in 0..12 {
        shop.buyer(&format!("late-{late}")).buy(&gone.item).await.refused(410, "SOLD_OUT");
    }
    let held = shop.buyer("holder").buy(&open.item).await.accepted();
    let (holder, other) = (shop.buyer("holder").bearer(), shop.buyer("other").bearer());
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(5_000));
    let bad_json = "{\"quantity\":";
    let cases: [Case<'_>; 15] = [
        ("405 over 413 and 401", "PUT", None, &large, 405, "METHOD_NOT_ALLOWED"),
        ("413 over 401", &open.item, None, &large, 413, "CONTENT_TOO_LARGE"),
        ("404 over 401", "999", None, "", 404, "ITEM_NOT_FOUND"),
        ("no token over NOT_STARTED", &draft.item, None, "", 401, "UNAUTHENTICATED"),
        ("no token over ENDED", &over.item, None, "", 401, "UNAUTHENTICATED"),
        ("no token over SOLD_OUT", &gone.item, None, "", 401, "UNAUTHENTICATED"),
        ("NOT_STARTED over a bad token", &draft.item, Some("Bearer x"), bad_json, 403, "NOT_STARTED"),
        ("ENDED over a bad token", &over.item, Some("Bearer x"), bad_json, 410, "ENDED"),
        ("flagged SOLD_OUT over a bad token", &gone.item, Some("Bearer x"), bad_json, 410, "SOLD_OUT"),
        ("flagged SOLD_OUT over a bad body", &gone.item, Some(&other), bad_json, 410, "SOLD_OUT"),
        ("a bad token over a bad body", &open.item, Some("Bearer x"), bad_json, 401, "UNAUTHENTICATED"),
        ("a bad body over 409", &open.item, Some(&holder), bad_json, 400, "INVALID_REQUEST"),
        ("a bad quantity over 409", &open.item, Some(&holder), "{\"quantity\":2}", 400, "INVALID_QUANTITY"),
        (
            "a stale price over a held order",
            &open.item,
            Some(&holder),
            "{\"expectedPriceMinor\":1}",
            409,
            "PRICE_CHANGED",
        ),
        ("a held order", &open.item, Some(&holder), "", 409, "ALREADY_PURCHASED"),
    ];
    for (what, item, authorization, body, status, error) in cases {
        let (method, item) = if item == "PUT" { ("PUT", open.item.as_str()) } else { ("POST", item) };
        let mut headers = vec![("content-type", "application/json")];
        headers.extend(authorization.map(|value| ("authorization", value)));
        let reply = shop.ask(method, &purchase_path(item), &headers, body.as_bytes()).await;
        assert_eq!((reply.status, reply.error().as_str()), (status, error), "{what}");
        reply.refused(status, error);
    }
    shop.recorded(&held).await;
    shop.recorded(&winner).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_item_is_named_before_a_body_that_is_too_large() {
    let shop = Shop::open().await;
    let large = format!("{{\"x\":\"{}\"}}", "x".repeat(5_000));

    let reply = shop.buyer("alice").buy_with("999", &[], &large).await;

    reply.refused(404, "ITEM_NOT_FOUND");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_error_beside_the_purchase_has_the_same_form() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let orders = "/api/flash-sales/orders";
    let id = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";
    let sales = format!("/api/flash-sales/sales/{}", sale.id);

    for (method, path, status, error) in [
        ("GET", "/nothing/here", 404, "NOT_FOUND"),
        ("GET", "/api/flash-sales/sales/x", 404, "SALE_NOT_FOUND"),
        ("GET", "/api/flash-sales/sales/9223372036854775808/orders", 404, "SALE_NOT_FOUND"),
        ("GET", &format!("{orders}/{id}"), 404, "ORDER_NOT_FOUND"),
        ("DELETE", &format!("{orders}/{id}"), 404, "ORDER_NOT_FOUND"),
        ("GET", &format!("{orders}/x"), 404, "ORDER_NOT_FOUND"),
        ("GET", &format!("{orders}/%00"), 404, "ORDER_NOT_FOUND"),
        ("GET", &format!("{orders}/..%2f..%2f"), 404, "ORDER_NOT_FOUND"),
        ("GET", &format!("{orders}/{}", "x".repeat(6_000)), 404, "ORDER_NOT_FOUND"),
        ("GET", &format!("{orders}/{id}?wait=soon"), 400, "INVALID_REQUEST"),
        ("POST", &sales, 405, "METHOD_NOT_ALLOWED"),
        ("PUT", &format!("{orders}/{id}"), 405, "METHOD_NOT_ALLOWED"),
    ] {
        let reply = alice.ask(method, path, &[], "").await;
        assert_eq!((reply.status, reply.error().as_str()), (status, error), "{method} {path}");
        reply.refused(status, error);
    }
    for path in [format!("{orders}/{id}"), format!("{sales}/orders")] {
        let reply = shop.ask("GET", &path, &[], b"").await;
        reply.refused(401, "UNAUTHENTICATED");
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_method_that_is_not_allowed_is_told_which_are() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let order = format!("/api/flash-sales/orders/{}", "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e");
    let sales = format!("/api/flash-sales/sales/{}", sale.id);

    for (method, path, allowed) in
        [("PUT", order.as_str(), ["GET", "DELETE"]), ("POST", &sales, ["GET", "HEAD"])]
    {
        let reply = shop.buyer("alice").ask(method, path, &[], "").await;
        reply.refused(405, "METHOD_NOT_ALLOWED");
        let allow = reply.header("allow").unwrap_or_default();
        assert!(allowed.iter().all(|method| allow.contains(method)), "{method} {path}: Allow: {allow:?}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_path_that_is_not_text_is_refused_like_everything_else() {
    let shop = Shop::open().await;
    let alice = shop.buyer("alice");

    for path in
        ["/api/flash-sales/orders/%FF", "/api/flash-sales/sales/%FF", "/api/flash-sales/sales/%C3%28/orders"]
    {
        let reply = alice.ask("GET", path, &[], "").await;
        assert!([400, 404].contains(&reply.status), "{path}: {}", reply.said());
        let word = reply.error();
        assert!(!word.is_empty(), "{path}: no problem document: {}", reply.said());
        reply.refused(reply.status, &word);
    }
    shop.finish().await;
}
