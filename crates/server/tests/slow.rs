//! Clients that are slow, silent or too many: they are closed, and the others are served.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, interval, timeout};

use shop::http::{Heard, Line, request};
use shop::{Offer, Sale, Shop, purchase_path};

/// How long a connection that should have been closed is listened to.
const SOON: Duration = Duration::from_secs(3);

fn click(shop: &Shop, sale: &Sale, user: &str) -> Vec<u8> {
    let bearer = shop.buyer(user).bearer();
    request("POST", &purchase_path(&sale.item), &[("authorization", &bearer)], b"")
}

/// Sends byte by byte until the server has enough of it.
async fn trickle(mut line: Line, bytes: &[u8]) -> Heard {
    let mut pace = interval(Duration::from_millis(50));
    let sending = async {
        for byte in bytes {
            pace.tick().await;
            if line.send(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    // Nobody may keep the server busy for so long.
    let _ = timeout(Duration::from_secs(2), sending).await;
    line.rest(SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_comes_too_slowly_is_not_waited_for() {
    let shop = Shop::open_with(&[("server.header_timeout", "300ms")]).await;
    let sale = shop.sale(10).await;
    let bytes = click(&shop, &sale, "alice");

    let slow = join_all((0..20).map(async |_| trickle(shop.line().await, &bytes).await));
    let honest = async {
        let begin = Instant::now();
        let order = shop.buyer("bob").buy(&sale.item).await.accepted();
        (order, begin.elapsed())
    };
    let (slow, silent, (order, took)) = tokio::join!(slow, shop.raw(b"", SOON), honest);

    assert!(silent.closed && silent.bytes.is_empty(), "{silent:?}");
    for heard in slow {
        assert!(heard.closed && heard.answers() == 0, "{}", heard.text());
    }
    assert!(took < Duration::from_secs(1), "an honest buyer waited {took:?}");
    shop.recorded(&order).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_head_that_comes_too_slowly_is_not_waited_for() {
    let shop = Shop::open_with(&[("server.header_timeout", "300ms")]).await;
    let sale = shop.sale(10).await;
    let mut line = shop.line().await;
    line.send(&click(&shop, &sale, "alice")).await.unwrap();
    line.reply(false).await.unwrap().accepted();

    let begin = Instant::now();
    let heard = trickle(line, &click(&shop, &sale, "bob")).await;

    assert!(heard.closed && heard.answers() == 0, "{}", heard.text());
    assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_comes_too_slowly_is_not_waited_for() {
    let shop = Shop::open_with(&[("server.body_timeout", "300ms")]).await;
    let sale = shop.sale(10).await;
    let bearer = shop.buyer("alice").bearer();
    let headers =
        [("authorization", bearer.as_str()), ("content-type", "application/json"), ("content-length", "100")];
    let head = request("POST", &purchase_path(&sale.item), &headers, b"");

    for whole in [head.clone(), [head.as_slice(), b"{"].concat()] {
        let heard = shop.raw(&whole, SOON).await;
        assert_eq!((heard.status(), heard.closed), (408, true), "{}", heard.text());
        assert!(heard.text().contains("REQUEST_TIMEOUT"), "{}", heard.text());
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_without_requests_is_closed_and_one_with_is_kept() {
    let shop = Shop::open_with(&[("server.idle_timeout", "500ms")]).await;
    let (mut idle, mut busy) = (shop.line().await, shop.line().await);
    let ask = request("GET", "/livez", &[], b"");
    idle.send(&ask).await.unwrap();
    assert_eq!(idle.reply(false).await.unwrap().status, 200);

    let working = async {
        let mut pace = interval(Duration::from_millis(100));
        for _ in 0..12 {
            pace.tick().await;
            busy.send(&ask).await.unwrap();
            assert_eq!(busy.reply(false).await.unwrap().status, 200);
        }
    };
    let ((), idle) = tokio::join!(working, idle.rest(SOON));

    assert!(idle.closed && idle.bytes.is_empty(), "{idle:?}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_poll_outlives_the_idle_timeout() {
    let shop = Shop::open_with(&[("server.idle_timeout", "300ms"), ("server.header_timeout", "300ms")]).await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;

    let begin = Instant::now();
    let seen = alice.ask("GET", &format!("/api/flash-sales/orders/{order}?wait=1500ms"), &[], "").await;

    assert_eq!(seen.status, 200);
    assert!(begin.elapsed() >= Duration::from_millis(1_500), "{:?}", begin.elapsed());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_beyond_the_cap_is_refused_quickly_and_the_others_are_served() {
    let shop = Shop::open_with(&[("server.connections_max", "8"), ("server.cores", "1")]).await;
    let sale = shop.sale(100).await;
    let ask = request("GET", "/livez", &[], b"");
    let mut served = Vec::new();
    for _ in 0..8 {
        let mut line = shop.line().await;
        line.send(&ask).await.unwrap();
        assert_eq!(line.reply(false).await.unwrap().status, 200);
        served.push(line);
    }

    let begin = Instant::now();
    let refused = join_all((0..50).map(|_| shop.raw(&ask, SOON))).await;

    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    assert!(refused.iter().all(|heard| heard.closed && heard.bytes.is_empty()), "{refused:?}");
    for (number, line) in served.iter_mut().enumerate() {
        line.send(&click(&shop, &sale, &format!("user-{number}"))).await.unwrap();
        line.reply(false).await.unwrap().accepted();
    }
    // A place is free as soon as one leaves.
    served.pop();
    shop::until("a new connection is served", async || {
        let heard = shop.raw(&request("GET", "/livez", &[("connection", "close")], b""), SOON).await;
        heard.status() == 200
    })
    .await;
    served.clear();
    shop::until("all places are free", async || {
        shop.raw(&ask, Duration::from_millis(50)).await.status() == 200
    })
    .await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_address_has_its_own_cap_over_all_cores() {
    let settings = [("server.connections_per_address_max", "8"), ("server.cores", "2")];
    let shop = Shop::open_with(&settings).await;
    let ask = request("GET", "/livez", &[], b"");

    let mut served = Vec::new();
    for _ in 0..40 {
        let mut line = shop.line().await;
        let _ = line.send(&ask).await;
        if line.reply(false).await.is_ok_and(|reply| reply.status == 200) {
            served.push(line);
        }
    }

    assert!(served.len() <= 8, "{} connections of one address are served, 8 are allowed", served.len());
    served.clear();
    shop::until("the places are free", async || {
        shop.raw(&ask, Duration::from_millis(50)).await.status() == 200
    })
    .await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_pipelined_requests_are_answered_in_order_or_dropped_and_hurt_nobody() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![20_000], ..Offer::default() }).await;
    let one = click(&shop, &sale, "alice");
    let flood: Vec<u8> = one.repeat(10_000);

    // Sent and hung up on without reading a byte.
    let mut line = shop.line().await;
    let _ = timeout(Duration::from_secs(5), line.send(&flood)).await;
    drop(line);
    let begin = Instant::now();
    shop.buyer("bob").buy(&sale.item).await.accepted();
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    shop::until("the first click is in the books", async || {
        shop.buyer("alice").my_orders(&sale).await.len() == 1
    })
    .await;
    assert_eq!(shop.free(&sale, &sale.item).await, 19_998);

    // A hundred, read in order: one 202, then 409 each.
    let mut line = shop.line().await;
    line.send(&click(&shop, &sale, "carol").repeat(100)).await.unwrap();
    let order = line.reply(false).await.unwrap().accepted();
    for _ in 1..100 {
        let problem = line.reply(false).await.unwrap().refused(409, "ALREADY_PURCHASED");
        assert_eq!(problem["orderId"], order);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_slow_or_silent_does_not_hold_the_staff_out() {
    // A head may take as long as a connection may idle: here both are short.
    let shop = Shop::open_with(&[("server.idle_timeout", "400ms"), ("server.body_timeout", "400ms")]).await;
    let operator = shop.operator();
    let headers = [
        ("authorization", operator.as_str()),
        ("content-type", "application/json"),
        ("content-length", "100"),
    ];
    let slow_body = request("POST", "/admin/api/sales", &headers, b"");
    let mut line = shop.staff_line().await;
    line.send(&slow_body).await.unwrap();
    let heard = line.rest(SOON).await;
    assert_eq!((heard.status(), heard.closed), (408, true), "{}", heard.text());
    let stranger = request("POST", "/admin/api/sales", &headers[1..], b"");
    let mut line = shop.staff_line().await;
    line.send(&stranger).await.unwrap();
    let heard = line.rest(SOON).await;
    assert_eq!((heard.status(), heard.closed), (401, true), "{}", heard.text());

    let heard = trickle(shop.staff_line().await, &slow_body).await;
    assert!(heard.closed && heard.answers() == 0, "{}", heard.text());

    // More than there are places, all silent.
    let mut silent = Vec::new();
    for _ in 0..400 {
        silent.push(shop.staff_line().await);
    }
    shop::until("the staff is let in again", async || shop.admin.sales().await.is_ok()).await;
    let ends = join_all(silent.into_iter().map(|line| line.rest(SOON))).await;
    assert!(ends.iter().all(|heard| heard.closed && heard.bytes.is_empty()));
    shop.finish().await;
}
