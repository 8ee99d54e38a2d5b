//! Requests that no honest client sends, over raw sockets: each has its answer, none a second one.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use shop::http::{Heard, request};
use shop::{Sale, Shop, purchase_path};

/// How long a connection that should have been closed is listened to.
const SOON: Duration = Duration::from_secs(2);

fn click(shop: &Shop, sale: &Sale, user: &str) -> String {
    let bearer = shop.buyer(user).bearer();
    let bytes = request("POST", &purchase_path(&sale.item), &[("authorization", &bearer)], b"");
    String::from_utf8(bytes).unwrap()
}

/// The click's head with more header lines and without the empty line at its end.
fn head(shop: &Shop, sale: &Sale, user: &str, lines: &str) -> String {
    let click = click(shop, sale, user);
    format!("{}{lines}\r\n\r\n", click.trim_end_matches("\r\n\r\n").to_owned() + "\r\n")
}

/// Sends a request whose end is in doubt, with another user's click hidden behind it: at most one
/// answer may come, the connection closes, and the hidden click has bought nothing.
async fn nothing_is_smuggled(shop: &Shop, sale: &Sale, what: &str, doubtful: &str) -> Heard {
    let hidden = click(shop, sale, "smuggled");
    let heard = shop.raw(format!("{doubtful}{hidden}").as_bytes(), SOON).await;
    assert!(heard.answers() <= 1, "{what}: a second answer: {}", heard.text());
    assert!(heard.closed, "{what}: the connection stays open: {}", heard.text());
    let bought = shop.buyer("smuggled").my_orders(sale).await;
    assert!(bought.is_empty(), "{what}: the hidden click bought: {bought:?}");
    heard
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_length_that_is_in_doubt_hides_no_second_request() {
    let shop = Shop::open().await;
    let sale = shop.sale(100).await;
    let json = "content-type: application/json\r\n";
    let cases = [
        ("length and chunks", "content-length: 4\r\ntransfer-encoding: chunked", "0\r\n\r\n", false),
        ("chunks and length", "transfer-encoding: chunked\r\ncontent-length: 4", "0\r\n\r\n", false),
        ("chunked twice", "transfer-encoding: chunked, identity", "0\r\n\r\n", true),
        ("xchunked", "transfer-encoding: xchunked", "0\r\n\r\n", true),
        ("two lengths that differ", "content-length: 0\r\ncontent-length: 2", "", true),
        ("two lengths that are equal", "content-length: 2\r\ncontent-length: 2", "{}", true),
        ("a list of lengths", "content-length: 0, 2", "", true),
        ("a length with a sign", "content-length: +5", "{   }", true),
        ("a hexadecimal length", "content-length: 0x5", "{   }", true),
        ("a negative length", "content-length: -1", "", true),
        ("a length beyond 64 bits", "content-length: 18446744073709551617", "{", true),
        ("no digits", "content-length: ", "", true),
        ("a folded header", "x-fold: a\r\n b", "", true),
        ("a space before the colon", "content-length : 5", "{   }", true),
        ("a header without a colon", "nonsense", "", true),
        ("a control character", "x-control: a\u{1}b", "", true),
        ("a lone carriage return", "x-cr: a\rb", "", true),
        ("a NUL", "x-nul: a\u{0}b", "", true),
        ("a chunk size that is no number", "transfer-encoding: chunked", "zz\r\n\r\n", true),
        ("a chunk size with a sign", "transfer-encoding: chunked", "+2\r\n{}\r\n0\r\n\r\n", true),
        ("a chunk longer than it says", "transfer-encoding: chunked", "1\r\n{}\r\n0\r\n\r\n", true),
    ];
    for (number, (what, lines, body, must_be_refused)) in cases.into_iter().enumerate() {
        let doubtful = head(&shop, &sale, &format!("user-{number}"), &format!("{json}{lines}")) + body;
        let heard = nothing_is_smuggled(&shop, &sale, what, &doubtful).await;
        if must_be_refused {
            assert!([0, 400].contains(&heard.status()), "{what}: {}", heard.text());
        }
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_end_in_a_bare_line_feed_hide_no_second_request() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;

    let bare = click(&shop, &sale, "alice").replace("\r\n", "\n");

    nothing_is_smuggled(&shop, &sale, "bare line feeds", &bare).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_bare_line_feed_in_a_head_hides_no_second_request() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;

    let bare = head(&shop, &sale, "alice", "x-one: a\nx-two: b");

    nothing_is_smuggled(&shop, &sale, "one bare line feed", &bare).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_names_its_host_once_and_well() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let good = click(&shop, &sale, "alice");
    let with = |host: &str| good.replace("host: shop.test\r\n", host);

    for (what, bytes) in [
        ("none", with("")),
        ("an empty one", with("host: \r\n")),
        ("two", with("host: shop.test\r\nhost: evil.test\r\n")),
        ("the same twice", with("host: shop.test\r\nHost: shop.test\r\n")),
        ("two in one", with("host: shop.test, evil.test\r\n")),
        ("a path", with("host: shop.test/x\r\n")),
        ("a user", with("host: eve@shop.test\r\n")),
        ("a quote", with("host: shop\"test\r\n")),
    ] {
        let heard = shop.raw(bytes.as_bytes(), SOON).await;
        assert_eq!((heard.status(), heard.answers()), (400, 1), "{what}: {}", heard.text());
        assert!(heard.closed && heard.text().contains("INVALID_REQUEST"), "{what}: {}", heard.text());
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    for host in ["host: 127.0.0.1:8080\r\n", "host: [::1]:80\r\n", "HOST: shop.test\r\n"] {
        let mut line = shop.line().await;
        line.send(with(host).as_bytes()).await.unwrap();
        let status = line.reply(false).await.unwrap().status;
        assert!([202, 409].contains(&status), "{host}: {status}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_absolute_address_of_another_host_is_refused() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let absolute =
        |host: &str| click(&shop, &sale, "alice").replacen("POST ", &format!("POST http://{host}"), 1);

    let own = shop.raw(absolute("shop.test").as_bytes(), Duration::from_millis(300)).await;
    assert!(own.status() == 202, "{}", own.text());
    let other = shop.raw(absolute("evil.test").as_bytes(), Duration::from_millis(300)).await;

    assert_eq!(other.status(), 400, "{}", other.text());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_beyond_four_kilobytes_is_not_read() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let json = "content-type: application/json\r\n";
    let padded = |length: usize| format!("{{\"x\":\"{}\"}}", "x".repeat(length - 8));

    let fits = shop.buyer("fits").buy_with(&sale.item, &[], &padded(4_096)).await;
    fits.accepted();
    shop.buyer("alice").buy_with(&sale.item, &[], &padded(4_097)).await.refused(413, "CONTENT_TOO_LARGE");

    // Ten gigabytes are announced and refused before one byte of them is awaited.
    let announced = head(&shop, &sale, "alice", &format!("{json}content-length: 10000000000"));
    let heard = shop.raw(announced.as_bytes(), SOON).await;
    assert_eq!((heard.status(), heard.closed), (413, true), "{}", heard.text());

    // Chunks without an end: refused at the limit, whatever still comes.
    let mut endless = head(&shop, &sale, "alice", &format!("{json}transfer-encoding: chunked"));
    for _ in 0..10_000 {
        endless.push_str("40\r\n");
        endless.push_str(&"x".repeat(64));
        endless.push_str("\r\n");
    }
    let heard = shop.raw(endless.as_bytes(), SOON).await;
    // The close may overtake the answer: the server stops reading in the middle of ours.
    assert!([0, 413].contains(&heard.status()) && heard.closed, "{}", heard.text());
    let extended = head(&shop, &sale, "alice", &format!("{json}transfer-encoding: chunked"));
    let extended = format!("{extended}2;x={}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1_000_000));
    let heard = shop.raw(extended.as_bytes(), SOON).await;
    assert!([0, 400, 413].contains(&heard.status()) && heard.closed, "{}", heard.text());

    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_is_no_json_is_refused_by_its_kind() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let alice = shop.buyer("alice");
    let ask = async |kind: &str, body: &[u8]| {
        let bearer = alice.bearer();
        let headers = [("authorization", bearer.as_str()), ("content-type", kind)];
        shop.ask("POST", &purchase_path(&sale.item), &headers, body).await
    };

    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "multipart/form-data; boundary=x",
        "json",
    ] {
        let reply = ask(kind, b"{}").await;
        assert_eq!(reply.status, 415, "{kind}: {}", reply.said());
        reply.refused(415, "UNSUPPORTED_MEDIA_TYPE");
    }
    for body in [&b"\xff\xfe"[..], b"{\"quantity\":\xff}", b"\0\0\0", b"{\"quantity\":1}garbage"] {
        ask("application/json", body).await.refused(400, "INVALID_REQUEST");
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    for kind in ["application/json; charset=utf-8", "APPLICATION/JSON", "application/merge+json"] {
        let status = ask(kind, b"{}").await.status;
        assert!([202, 409].contains(&status), "{kind}: {status}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_has_its_bounds() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let headers =
        |count: usize| (0..count).map(|number| format!("x-{number}: y")).collect::<Vec<_>>().join("\r\n");

    // A click has two headers of its own: host and authorization.
    let most =
        shop.raw(head(&shop, &sale, "most", &headers(62)).as_bytes(), Duration::from_millis(300)).await;
    assert_eq!(most.status(), 202, "{}", most.text());
    for (what, bytes, statuses) in [
        ("65 headers", head(&shop, &sale, "alice", &headers(63)), &[431, 0][..]),
        ("10,000 headers", head(&shop, &sale, "alice", &headers(10_000)), &[431, 0]),
        ("a header of 20 KB", head(&shop, &sale, "alice", &format!("x: {}", "y".repeat(20_000))), &[431, 0]),
        (
            "an address of 100 KB",
            format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "y".repeat(100_000)),
            &[414, 431, 0],
        ),
    ] {
        let heard = shop.raw(bytes.as_bytes(), SOON).await;
        assert!(statuses.contains(&heard.status()) && heard.closed, "{what}: {}", heard.text());
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 9);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_head_that_cannot_be_read_is_told_so() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let good = click(&shop, &sale, "alice");
    let many: Vec<String> = (0..63).map(|number| format!("x-{number}: y")).collect();
    let many = head(&shop, &sale, "alice", &many.join("\r\n"));
    let id = format!("/{}/purchase", sale.item);

    for (what, bytes, status) in [
        ("a space in the address", good.replacen(&id, "/1;DROP TABLE orders/purchase", 1), 400),
        ("a space before the colon", good.replacen("host:", "host :", 1), 400),
        ("a length with a sign", head(&shop, &sale, "alice", "content-length: +5"), 400),
        ("65 headers", many, 431),
        ("101 headers", head(&shop, &sale, "alice", "x: y\r\n".repeat(98).trim_end()), 431),
        (
            "a header of nine kilobytes",
            head(&shop, &sale, "alice", &format!("x: {}", "y".repeat(9_000))),
            431,
        ),
    ] {
        let heard = shop.raw(bytes.as_bytes(), SOON).await;
        assert_eq!((heard.status(), heard.closed), (status, true), "{what}: {:?}", heard.text());
        let text = heard.text();
        let (answer, body) = text.split_once("\r\n\r\n").unwrap();
        let problem: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(problem["status"], status, "{what}: {text}");
        assert!(
            answer.contains("application/problem+json") && answer.contains("connection: close"),
            "{what}: {text}"
        );
        assert!(answer.contains(problem["requestId"].as_str().unwrap()), "{what}: {text}");
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_does_not_wait_for_what_follows_its_request() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;

    // The beginning of a next request, and the line break that old clients put behind a body.
    for (user, more) in [("alice", "POST /api/flash-sales"), ("bob", "\r\n")] {
        let mut line = shop.line().await;
        let bytes = click(&shop, &sale, user) + more;
        line.send(bytes.as_bytes()).await.unwrap();
        let reply = tokio::time::timeout(SOON, line.reply(false)).await;
        let reply = reply.unwrap_or_else(|_| {
            panic!("{user} has bought and is not told: {more:?} stands behind the click")
        });
        reply.unwrap().accepted();
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_is_answered_although_more_was_sent() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let large = head(&shop, &sale, "alice", "content-type: application/json\r\ncontent-length: 5000")
        + &"x".repeat(5_000);
    let kind = head(&shop, &sale, "alice", "content-type: text/plain\r\ncontent-length: 5") + "hello";
    let host = click(&shop, &sale, "alice").replacen("host: shop.test", "host: shop test", 1);

    for (what, bytes, status) in
        [("a large body", large, 413), ("another kind", kind, 415), ("a bad host", host, 400)]
    {
        let hidden = click(&shop, &sale, "smuggled");
        let heard = shop.raw(format!("{bytes}{hidden}").as_bytes(), SOON).await;
        assert_eq!((heard.status(), heard.closed), (status, true), "{what}: {:?}", heard.text());
        assert_eq!(heard.answers(), 1, "{what}");
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_header_of_nine_kilobytes_is_too_large() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;

    let large = head(&shop, &sale, "alice", &format!("x: {}", "y".repeat(9_000)));
    let heard = shop.raw(large.as_bytes(), Duration::from_millis(300)).await;

    assert_eq!(heard.status(), 431, "{}", heard.text());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_http_is_closed() {
    let shop = Shop::open().await;
    for (what, bytes) in [
        ("an HTTP/2 preface", &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..]),
        ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        ("zeros", &[0; 1_000]),
        ("HTTP/1.1 without a method", b" / HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a version of its own", b"GET / HTTP/9.9\r\nhost: x\r\n\r\n"),
        ("a method with a space", b"GE T / HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("spaces in the path", b"GET /a b HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a line break in the path", b"GET /a\r\nx: y HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("NUL in the path", b"GET /a\0 HTTP/1.1\r\nhost: x\r\n\r\n"),
        ("a tunnel", b"CONNECT evil.test:443 HTTP/1.1\r\nhost: evil.test:443\r\nconnection: close\r\n\r\n"),
        ("a star", b"OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
    ] {
        let heard = shop.raw(bytes, SOON).await;
        assert!(heard.closed, "{what}: the connection stays open: {}", heard.text());
        assert!([0, 400, 404, 405].contains(&heard.status()), "{what}: {}", heard.text());
    }
    assert_eq!(shop.ask("GET", "/livez", &[], b"").await.status, 200);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn item_ids_that_would_mean_something_elsewhere_mean_nothing_here() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let good = click(&shop, &sale, "alice");

    for id in
        ["1;DROP", "{", "}", "{1}", "*", "%00", "%0d%0a", "9223372036854775808", "1'--", "..%2f1", "\u{661}"]
    {
        let bytes = good.replacen(&format!("/{}/purchase", sale.item), &format!("/{id}/purchase"), 1);
        let heard = shop.raw(bytes.as_bytes(), Duration::from_millis(200)).await;
        assert!([400, 404].contains(&heard.status()), "{id}: {}", heard.text());
        assert_eq!(heard.answers(), 1, "{id}");
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 10);
    shop.finish().await;
}
