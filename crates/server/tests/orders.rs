//! What becomes of an order: seen, waited for, cancelled, expired, found again.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, interval};

use shop::http::request;
use shop::{Buyer, FLAG_LIFE, Offer, Sale, Shop, WINDOW, order_path, purchase_path, text_of, until};

const MS: Duration = Duration::from_millis(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_its_owners_alone() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let (alice, eve) = (shop.buyer("alice"), shop.buyer("eve"));
    let order = alice.buy(&sale.item).await.accepted();
    let unknown = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";

    // While it is queued and once it is recorded.
    for _ in 0..2 {
        for reply in [eve.order(&order).await, eve.cancel(&order).await] {
            let mut foreign = reply.refused(404, "ORDER_NOT_FOUND");
            let mut none = eve.order(unknown).await.refused(404, "ORDER_NOT_FOUND");
            foreign["requestId"].take();
            none["requestId"].take();
            assert_eq!(foreign, none, "a foreign order is told from an unknown one");
        }
        alice.until_payable(&order).await;
    }

    assert!(eve.my_orders(&sale).await.is_empty());
    assert_eq!(alice.order(&order).await.text("status"), "PENDING");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_reader_hears_of_the_change_when_it_happens() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    let etag = alice.order(&order).await.header("etag").unwrap().to_owned();
    let path = format!("{}?wait=20s", order_path(&order));

    let begin = Instant::now();
    let known = [("if-none-match", etag.as_str())];
    let pay = async {
        let mut pace = interval(Duration::from_millis(300));
        pace.tick().await;
        pace.tick().await;
        shop.pay(&order, "paid").await
    };
    let (told, first, _) =
        tokio::join!(alice.ask("GET", &path, &known, ""), alice.ask("GET", &path, &[], ""), pay);

    for reply in [told, first] {
        assert_eq!((reply.status, reply.text("status").as_str()), (200, "PAID"));
        assert_ne!(reply.header("etag"), Some(etag.as_str()));
        assert_eq!(reply.header("cache-control"), Some("no-store"));
    }
    let took = begin.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_who_knows_the_order_hears_that_nothing_changed() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    let etag = alice.order(&order).await.header("etag").unwrap().to_owned();
    let known = [("if-none-match", etag.as_str())];

    let at_once = alice.ask("GET", &order_path(&order), &known, "").await;
    let begin = Instant::now();
    let waited = alice.ask("GET", &format!("{}?wait=400ms", order_path(&order)), &known, "").await;
    assert!(begin.elapsed() >= Duration::from_millis(400));
    let unknowing = alice.ask("GET", &format!("{}?wait=100ms", order_path(&order)), &[], "").await;

    for reply in [at_once, waited] {
        assert_eq!((reply.status, reply.body.len(), reply.header("etag")), (304, 0, Some(etag.as_str())));
    }
    assert_eq!((unknowing.status, unknowing.header("etag")), (200, Some(etag.as_str())));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_none_match_takes_a_list_a_weak_tag_and_a_star() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    let etag = alice.order(&order).await.header("etag").unwrap().to_owned();

    for known in [format!("\"other\", {etag}"), format!("W/{etag}"), "*".to_owned()] {
        let reply = alice.ask("GET", &order_path(&order), &[("if-none-match", &known)], "").await;
        assert_eq!(reply.status, 304, "If-None-Match: {known}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancelled_order_gives_its_unit_to_the_next_buyer() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    bob.buy(&sale.item).await.refused(410, "SOLD_OUT");

    let cancelled = alice.cancel(&order).await;

    assert_eq!((cancelled.status, cancelled.text("status").as_str()), (200, "CANCELLED"));
    assert_eq!(cancelled.json()["payable"], false);
    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    let next = bob.buy(&sale.item).await.accepted();
    shop.recorded(&next).await;
    // Again, the same; the unit is bob's and stays his.
    assert_eq!(alice.cancel(&order).await.text("status"), "CANCELLED");
    assert_eq!(shop.free(&sale, &sale.item).await, 0);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_cancelled_right_after_their_202_give_every_unit_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(30).await;
    let buyers: Vec<_> = (0..30).map(|user| shop.buyer(&format!("user-{user}"))).collect();

    let orders = join_all(buyers.iter().map(async |buyer| {
        let order = buyer.buy(&sale.item).await.accepted();
        let cancelled = buyer.cancel(&order).await;
        assert_eq!(
            (cancelled.status, cancelled.text("status").as_str()),
            (200, "CANCELLED"),
            "{}",
            cancelled.said()
        );
        order
    }))
    .await;

    shop.until_free(&sale, 30).await;
    for (buyer, order) in buyers.iter().zip(&orders) {
        assert_eq!(buyer.order(order).await.text("status"), "CANCELLED");
    }
    shop.advance(FLAG_LIFE);
    let again = join_all(buyers.iter().map(|buyer| buyer.buy(&sale.item))).await;
    for (reply, old) in again.iter().zip(&orders) {
        assert_ne!(reply.accepted(), *old);
    }
    shop.until_free(&sale, 0).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_cancels_at_once_return_the_unit_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    shop.buyer("bob").buy(&sale.item).await.accepted();

    let replies = join_all((0..10).map(|_| alice.cancel(&order))).await;

    for reply in replies {
        assert_eq!((reply.status, reply.text("status").as_str()), (200, "CANCELLED"), "{}", reply.said());
    }
    shop.until_free(&sale, 4).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paid_and_closed_orders_cannot_be_cancelled() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let paid = alice.buy(&sale.item).await.accepted();
    let expired = bob.buy(&sale.item).await.accepted();
    shop.pay(&paid, "paid").await;
    shop.recorded(&expired).await;
    shop.advance(WINDOW + MS);
    bob.until_status(&expired, "EXPIRED").await;

    alice.cancel(&paid).await.refused(409, "ALREADY_PAID");
    bob.cancel(&expired).await.refused(409, "ORDER_CLOSED");

    shop.until_free(&sale, 4).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unpaid_order_expires_and_its_user_may_buy_again() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    let until_when = text_of(shop.now().plus(WINDOW));
    alice.until_payable(&order).await;

    // To the last millisecond it may be paid.
    shop.advance(WINDOW);
    assert_eq!(alice.order(&order).await.json()["payable"], true);
    shop.advance(MS);
    let late = alice.order(&order).await.json();
    assert_eq!(late["payable"], false, "the deadline decides, swept or not: {late}");

    let expired = alice.until_status(&order, "EXPIRED").await;
    assert_eq!((&expired["payable"], &expired["expiresAt"]), (&json!(false), &json!(until_when)));
    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    let again = alice.buy(&sale.item).await.accepted();
    assert_ne!(again, order);
    alice.until_payable(&again).await;
    // The old one stays readable beside the new one, newest first.
    let statuses: Vec<_> =
        alice.my_orders(&sale).await.iter().map(|it| (it["orderId"].clone(), it["status"].clone())).collect();
    assert_eq!(statuses, [(json!(again), json!("PENDING")), (json!(order), json!("EXPIRED"))]);
    shop.finish().await;
}

/// A hundred buyers send their click whole and hang up without waiting for an answer.
async fn hang_up<'a>(shop: &'a Shop, sale: &Sale, body: &[u8]) -> Vec<Buyer<'a>> {
    let buyers: Vec<_> = (0..100).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let mut lines = Vec::new();
    for buyer in &buyers {
        let bearer = buyer.bearer();
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let click = request("POST", &purchase_path(&sale.item), &headers, body);
        lines.push((shop.line().await, click));
    }
    // In one burst, so that click and hang-up are there before the server looks.
    for (mut line, click) in lines {
        line.send(&click).await.unwrap();
        drop(line);
    }
    buyers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buyer_who_hangs_up_right_after_the_click_finds_the_order() {
    let shop = Shop::open_with(&[("server.cores", "1")]).await;
    let sale = shop.sale(100).await;
    let buyers = hang_up(&shop, &sale, b"{\"quantity\":1}").await;

    for buyer in &buyers {
        // Recorded, so that its payment window has begun before the clock moves.
        let recorded = async || {
            let mine = buyer.my_orders(&sale).await;
            mine.len() == 1 && mine[0]["payable"] == true
        };
        until("the order is among the buyer's", recorded).await;
    }
    // And it expires on time.
    shop.advance(WINDOW + MS);
    shop.until_free(&sale, 100).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_click_that_was_hung_up_on_is_an_order_or_nothing() {
    for body in [&b""[..], b"{\"quantity\":1}"] {
        let shop = Shop::open_with(&[("server.cores", "1")]).await;
        let sale = shop.sale(100).await;
        let buyers = hang_up(&shop, &sale, body).await;

        for buyer in &buyers {
            let again = buyer.buy(&sale.item).await;
            let order = match again.status {
                202 => again.accepted(),
                _ => again.refused(409, "ALREADY_PURCHASED")["orderId"].as_str().unwrap().to_owned(),
            };
            buyer.until_payable(&order).await;
            let mine = buyer.my_orders(&sale).await;
            assert_eq!((mine.len(), mine[0]["orderId"].as_str()), (1, Some(order.as_str())));
        }
        assert_eq!(shop.free(&sale, &sale.item).await, 0);
        shop.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn my_orders_are_those_of_the_sale_newest_first() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { limit: 5, ..Offer::default() }).await;
    let other = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let mut orders = Vec::new();
    for key in ["a", "b", "c"] {
        orders.insert(0, alice.buy_units(&sale.item, key, 1).await.accepted());
        shop.advance(MS);
    }
    alice.buy(&other.item).await.accepted();

    let mine: Vec<_> =
        alice.my_orders(&sale).await.iter().map(|it| it["orderId"].as_str().unwrap().to_owned()).collect();

    assert_eq!(mine, orders);
    assert_eq!(alice.my_orders(&other).await.len(), 1);
    let none = alice.ask("GET", "/api/flash-sales/sales/999/orders", &[], "").await;
    none.refused(404, "SALE_NOT_FOUND");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_found_at_every_moment_from_its_202_on() {
    let shop = Shop::open().await;
    let sale = shop.sale(40).await;
    let buyers: Vec<_> = (0..40).map(|user| shop.buyer(&format!("user-{user}"))).collect();

    join_all(buyers.iter().map(async |buyer| {
        let order = buyer.buy(&sale.item).await.accepted();
        until("the order is payable", async || {
            let seen = buyer.order(&order).await;
            assert_eq!(seen.status, 200, "{}", seen.said());
            assert_eq!(buyer.my_orders(&sale).await.len(), 1);
            seen.json()["payable"] == true
        })
        .await;
    }))
    .await;

    shop.finish().await;
}
