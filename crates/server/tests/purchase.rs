//! Buying: what a click brings, what a second one hears, and that a rush sells each unit once.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use shop::http::{Line, Reply, request};
use shop::{FLAG_LIFE, Offer, PRICE, Shop, WINDOW, purchase_path, text_of, until};

/// So many connections that both cores are surely met.
const BOTH_CORES: usize = 12;

fn count(replies: &[Reply], status: u16) -> usize {
    replies.iter().filter(|reply| reply.status == status).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_accepted_order_is_placed_and_not_yet_payable() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");

    let reply = alice.buy(&sale.item).await;

    let order = reply.accepted();
    assert_eq!(reply.json(), json!({"orderId": order, "status": "PENDING", "payable": false}));
    assert_eq!(reply.header("location"), Some(format!("/api/flash-sales/orders/{order}").as_str()));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("x-request-id").map(str::len), Some(24));
    assert_eq!(reply.header("idempotent-replayed"), None);
    let seen = alice.order(&order).await;
    assert_eq!((seen.status, seen.text("status").as_str()), (200, "PENDING"));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_becomes_payable_for_the_payment_window() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();

    let seen = alice.until_payable(&order).await;

    let expected = json!({
        "orderId": order, "saleId": sale.id, "itemId": sale.item, "quantity": 1, "status": "PENDING", "payable": true,
        "total": {"amount": "19.90", "currency": "EUR", "minor": PRICE},
        "reservedAt": text_of(shop.now()), "expiresAt": text_of(shop.now().plus(WINDOW)),
    });
    assert_eq!(seen, expected);
    assert_eq!(alice.my_orders(&sale).await, [expected]);
    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_click_is_told_which_order_it_has() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;

    for _ in 0..BOTH_CORES {
        let problem = alice.buy(&sale.item).await.refused(409, "ALREADY_PURCHASED");
        assert_eq!(problem["orderId"], order);
    }

    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_the_sell_out_losers_hear_sold_out_and_winners_their_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(2).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let orders = [alice.buy(&sale.item).await.accepted(), bob.buy(&sale.item).await.accepted()];

    // Twice: the second round is answered by the flags, after them by the stock again.
    for _ in 0..2 {
        for loser in 0..BOTH_CORES {
            let problem = shop.buyer(&format!("late-{loser}")).buy(&sale.item).await.refused(410, "SOLD_OUT");
            assert_eq!(problem["mayReturn"], true);
        }
        for (winner, order) in [(&alice, &orders[0]), (&bob, &orders[1])] {
            for _ in 0..BOTH_CORES {
                let problem = winner.buy(&sale.item).await.refused(409, "ALREADY_PURCHASED");
                assert_eq!(problem["orderId"], *order);
            }
        }
        shop.advance(FLAG_LIFE);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_price_is_refused_and_the_right_one_is_taken() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");

    let problem =
        alice.buy_with(&sale.item, &[], r#"{"expectedPriceMinor":1890}"#).await.refused(409, "PRICE_CHANGED");

    assert_eq!(problem["priceMinor"], PRICE);
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    let body = json!({"quantity": 1, "expectedPriceMinor": PRICE}).to_string();
    alice.buy_with(&sale.item, &[], &body).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_units_need_a_key_and_end_at_the_limit() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { limit: 3, ..Offer::default() }).await;
    let alice = shop.buyer("alice");

    alice.buy(&sale.item).await.refused(400, "IDEMPOTENCY_KEY_REQUIRED");
    let two = alice.buy_units(&sale.item, "a", 2).await.accepted();
    let problem = alice.buy_units(&sale.item, "b", 2).await.refused(409, "LIMIT_REACHED");
    assert_eq!(problem["orderIds"], json!([two]));
    let one = alice.buy_units(&sale.item, "c", 1).await.accepted();
    let problem = alice.buy_units(&sale.item, "d", 1).await.refused(409, "LIMIT_REACHED");

    let mut named: Vec<&str> =
        problem["orderIds"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    named.sort_unstable();
    let mut orders = [two.as_str(), one.as_str()];
    orders.sort_unstable();
    assert_eq!(named, orders);
    let seen = alice.until_payable(&two).await;
    assert_eq!((&seen["quantity"], &seen["total"]["minor"]), (&json!(2), &json!(2 * PRICE)));
    assert_eq!(shop.free(&sale, &sale.item).await, 7);
    for long in ["", &"k".repeat(129)] {
        alice.buy_units(&sale.item, long, 1).await.refused(400, "INVALID_REQUEST");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeated_key_brings_the_same_order_as_it_stands_now() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![10, 10], limit: 3, ..Offer::default() }).await;
    let alice = shop.buyer("alice");
    let order = alice.buy_units(&sale.item, "key", 2).await.accepted();
    alice.until_payable(&order).await;

    let replay = alice.buy_units(&sale.item, "key", 2).await;
    assert_eq!(replay.accepted(), order);
    assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    assert_eq!(replay.json()["payable"], true);
    for (item, quantity) in [(&sale.item, 1), (&sale.items[1], 2)] {
        alice.buy_units(item, "key", quantity).await.refused(422, "IDEMPOTENCY_MISMATCH");
    }
    // The key is the user's own: another's is another order.
    let other = shop.buyer("bob").buy_units(&sale.item, "key", 2).await.accepted();
    assert_ne!(other, order);

    shop.pay(&order, "paid").await;
    let replay = alice.buy_units(&sale.item, "key", 2).await;
    assert_eq!((replay.accepted(), replay.text("status").as_str()), (order, "PAID"));
    assert_eq!(shop.free(&sale, &sale.item).await, 6);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_twenty_clicks_with_one_key_nineteen_say_that_they_are_repeats() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { limit: 3, ..Offer::default() }).await;
    let alice = shop.buyer("alice");

    let replies = join_all((0..20).map(|_| alice.buy_units(&sale.item, "key", 1))).await;

    let mut orders: Vec<String> = replies.iter().map(Reply::accepted).collect();
    orders.dedup();
    assert_eq!(orders.len(), 1);
    shop.recorded(&orders[0]).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    let new = replies.iter().filter(|reply| reply.header("idempotent-replayed").is_none()).count();
    assert_eq!(new, 1, "answers without Idempotent-Replayed");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_is_not_remembered_under_its_key() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![3], limit: 3, ..Offer::default() }).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    alice.buy_units(&sale.item, "a", 3).await.accepted();
    bob.buy_units(&sale.item, "b", 1).await.refused(410, "SOLD_OUT");

    shop.restock(&sale, 1).await.unwrap();
    shop.advance(FLAG_LIFE);

    let order = bob.buy_units(&sale.item, "b", 1).await.accepted();
    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_body_says_beside_the_wish_is_ignored() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let forged = json!({
        "quantity": 1, "userId": "eve", "sub": "eve", "price": 1, "priceMinor": 1, "status": "PAID", "payable": true,
        "orderId": "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e", "itemId": "999", "saleId": "999",
    });

    let order = alice.buy_with(&sale.item, &[], &forged.to_string()).await.accepted();

    assert_ne!(order, "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e");
    let row = shop.recorded(&order).await;
    assert_eq!((row.user_id.as_str(), row.item_id, row.total.minor), ("alice", sale.item, PRICE));
    assert_eq!(row.status, "PENDING");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_buyers_of_the_last_unit_make_one_order() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;

    let buyers: Vec<_> = (0..50).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let replies = join_all(buyers.iter().map(|buyer| buyer.buy(&sale.item))).await;

    assert_eq!((count(&replies, 202), count(&replies, 410)), (1, 49));
    let winner = replies.iter().find(|reply| reply.status == 202).unwrap().accepted();
    shop.recorded(&winner).await;
    assert_eq!(shop.admin.all_orders(&sale.id).await.unwrap().len(), 1);
    assert_eq!(shop.free(&sale, &sale.item).await, 0);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_units_each_of_five_find_one_winner_and_leave_two() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![5], limit: 3, ..Offer::default() }).await;

    let buyers: Vec<_> = (0..20).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let replies = join_all(buyers.iter().map(|buyer| buyer.buy_units(&sale.item, "key", 3))).await;

    assert_eq!((count(&replies, 202), count(&replies, 410)), (1, 19));
    for loser in replies.iter().filter(|reply| reply.status == 410) {
        let problem = loser.refused(410, "SOLD_OUT");
        assert_eq!((&problem["left"], &problem["mayReturn"]), (&json!(2), &json!(true)));
    }
    // Who wants less still gets it: nobody was flagged out.
    let order = shop.buyer("modest").buy_units(&sale.item, "key", 2).await.accepted();
    shop.recorded(&order).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 0);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_user_who_clicks_a_hundred_times_takes_one_unit() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");

    let replies = join_all((0..100).map(|_| alice.buy(&sale.item))).await;

    assert_eq!((count(&replies, 202), count(&replies, 409)), (1, 99));
    let order = replies.iter().find(|reply| reply.status == 202).unwrap().accepted();
    for reply in replies.iter().filter(|reply| reply.status == 409) {
        assert_eq!(reply.refused(409, "ALREADY_PURCHASED")["orderId"], order);
    }
    shop.recorded(&order).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_users_buy_exactly_the_hundred_units() {
    let shop = Shop::open().await;
    let sale = shop.sale(100).await;

    let buyers: Vec<_> = (0..1_000).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let mut replies = Vec::new();
    for wave in buyers.chunks(250) {
        replies.extend(join_all(wave.iter().map(|buyer| buyer.buy(&sale.item))).await);
    }

    assert_eq!((count(&replies, 202), count(&replies, 410)), (100, 900));
    let orders: std::collections::HashSet<String> =
        replies.iter().filter(|reply| reply.status == 202).map(Reply::accepted).collect();
    assert_eq!(orders.len(), 100);
    until("all are recorded", async || shop.admin.all_orders(&sale.id).await.unwrap().len() == 100).await;
    for row in shop.admin.all_orders(&sale.id).await.unwrap() {
        assert!(orders.contains(&row.order_id) && row.status == "PENDING", "{row:?}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_held_by_unpaid_orders_are_not_for_sale() {
    let shop = Shop::open().await;
    let sale = shop.sale(3).await;
    let mut orders = Vec::new();
    for user in 0..3 {
        orders.push(shop.buyer(&format!("holder-{user}")).buy(&sale.item).await.accepted());
    }

    shop.buyer("late").buy(&sale.item).await.refused(410, "SOLD_OUT");

    shop.recorded(&orders[2]).await;
    let page = shop.ask("GET", &format!("/api/flash-sales/sales/{}", sale.id), &[], b"").await.json();
    let item = &page["items"][0];
    assert_eq!((&item["free"], &item["held"], &item["sold"]), (&json!(0), &json!(3), &json!(0)));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sale_page_tells_what_is_left_and_may_be_kept_for_a_second() {
    let shop = Shop::open().await;
    let sale = shop.sale(3).await;
    let path = format!("/api/flash-sales/sales/{}", sale.id);

    let page = shop.ask("GET", &path, &[], b"").await;
    assert_eq!((page.status, page.header("cache-control")), (200, Some("max-age=1")));
    let etag = page.header("etag").unwrap().to_owned();
    shop.advance(Duration::from_secs(1));
    let same = shop.ask("GET", &path, &[("if-none-match", &etag)], b"").await;
    assert_eq!((same.status, same.body.len(), same.header("etag")), (304, 0, Some(etag.as_str())));

    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.pay(&order, "paid").await;
    until("the page shows the payment", async || {
        shop.ask("GET", &path, &[], b"").await.json()["items"][0]["sold"] == 1
    })
    .await;
    let page = shop.ask("GET", &path, &[("if-none-match", &etag)], b"").await;
    assert_eq!((page.status, &page.json()["items"][0]["free"]), (200, &json!(2)));
    assert_eq!(page.json()["serverTime"], text_of(shop.now()));
    shop.ask("GET", "/api/flash-sales/sales/999", &[], b"").await.refused(404, "SALE_NOT_FOUND");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purchase_takes_only_a_post() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");

    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let reply = alice.ask(method, &purchase_path(&sale.item), &[], "").await;
        reply.refused(405, "METHOD_NOT_ALLOWED");
        assert_eq!(reply.header("allow"), Some("POST"), "{method}");
    }
    let head = alice.ask("HEAD", &purchase_path(&sale.item), &[], "").await;
    assert_eq!((head.status, head.header("allow")), (405, Some("POST")));
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_winner_of_a_returned_unit_is_told_so_on_every_core_within_a_flags_life() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let click = async |line: &mut Line, user: &str| {
        let bearer = shop.buyer(user).bearer();
        let path = purchase_path(&sale.item);
        line.send(&request("POST", &path, &[("authorization", &bearer)], b"")).await.unwrap();
        line.reply(false).await.unwrap()
    };
    let alice = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&alice).await;
    // One connection on each core: a request id begins with its core's number.
    let (mut one, mut other) = (shop.line().await, shop.line().await);
    let core = click(&mut one, "bob").await.header("x-request-id").unwrap()[..8].to_owned();
    while click(&mut other, "bob").await.header("x-request-id").unwrap().starts_with(&core) {
        other = shop.line().await;
    }
    // The other core has just asked the stock again when the unit comes back.
    shop.advance(FLAG_LIFE - Duration::from_millis(10));
    click(&mut other, "bob").await.refused(410, "SOLD_OUT");
    shop.buyer("alice").cancel(&alice).await;
    shop.until_free(&sale, 1).await;
    shop.advance(Duration::from_millis(20));

    let carol = click(&mut one, "carol").await.accepted();
    // Until its flag ends, another core may not have heard of her.
    shop.advance(FLAG_LIFE);
    let problem = click(&mut other, "carol").await.refused(409, "ALREADY_PURCHASED");

    assert_eq!(problem["orderId"], carol);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_on_one_sale_costs_a_calm_one_no_order() {
    let shop = Shop::open().await;
    let (stormed, calm) = (shop.sale(10).await, shop.sale(40).await);
    let storm =
        join_all((0..600).map(async |number| shop.buyer(&format!("s-{number}")).buy(&stormed.item).await));
    let buyers =
        join_all((0..40).map(async |number| shop.buyer(&format!("c-{number}")).buy(&calm.item).await));

    let (storm, buyers) = tokio::join!(storm, buyers);

    assert_eq!((count(&storm, 202), count(&storm, 410)), (10, 590));
    assert_eq!(count(&buyers, 202), 40);
    assert_eq!((shop.free(&stormed, &stormed.item).await, shop.free(&calm, &calm.item).await), (0, 0));
    shop.finish().await;
}
