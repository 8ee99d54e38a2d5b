//! How often somebody may come: by user, by address, and by what proxies say of an address.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_services::issuer::{Algorithm, SigningKey};
use futures_util::future::join_all;
use serde_json::json;
use shop::http::Reply;
use shop::{Sale, Shop, purchase_path};

/// A small address limit on an address that has none otherwise; users are not limited.
const ADDRESSES: [(&str, &str); 4] = [
    ("gate.limits.exempt", ""),
    ("gate.limits.address_rate", "1"),
    ("gate.limits.address_burst", "20"),
    ("gate.limits.user_rate", "0"),
];

/// A click of a user who says, or whose proxy says, where he comes from.
async fn click(shop: &Shop, sale: &Sale, user: &str, from: &[(&str, &str)]) -> Reply {
    let bearer = format!("Bearer {}", shop.token(user));
    let headers = [&[("authorization", bearer.as_str())], from].concat();
    shop.ask("POST", &purchase_path(&sale.item), &headers, b"").await
}

fn seconds(reply: &Reply) -> u64 {
    reply.header("retry-after").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_clicks_too_often_is_told_how_long_to_wait() {
    let shop = Shop::open_with(&[("gate.limits.user_rate", "2"), ("gate.limits.user_burst", "4")]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    alice.buy(&sale.item).await.accepted();
    for _ in 0..3 {
        alice.buy(&sale.item).await.refused(409, "ALREADY_PURCHASED");
    }
    let mut waits = Vec::new();
    for _ in 0..30 {
        let reply = alice.buy(&sale.item).await;
        reply.refused(429, "RATE_LIMITED");
        assert_eq!(reply.header("ratelimit-policy"), Some("\"user\";q=4;w=2"));
        assert_eq!(reply.header("ratelimit"), Some("\"user\";r=0;t=1"));
        waits.push(seconds(&reply));
    }
    waits.sort_unstable();
    waits.dedup();
    assert_eq!(waits, [1, 2], "the wait is jittered");
    shop.buyer("bob").buy(&sale.item).await.accepted();
    shop.advance(Duration::from_millis(500));
    alice.buy(&sale.item).await.refused(409, "ALREADY_PURCHASED");
    alice.buy(&sale.item).await.refused(429, "RATE_LIMITED");
    // Looking at orders has a limit of its own.
    assert_eq!(alice.my_orders(&sale).await.len(), 1);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_sale_tokens_are_limited_by_their_address() {
    let shop = Shop::open_with(&ADDRESSES).await;
    let sale = shop.sale(5).await;
    let click = async |bearer: &str| {
        let headers = [("authorization", bearer)];
        shop.ask("POST", &purchase_path(&sale.item), &headers, b"").await
    };
    for _ in 0..20 {
        click("Bearer dbs1.AAAA").await.refused(403, "TOKEN_INVALID");
    }
    let reply = click("Bearer dbs1.AAAA").await;
    reply.refused(429, "RATE_LIMITED");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"address\";q=20;w=20"));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_for_orders_too_often_waits_too() {
    let shop = Shop::open_with(&[("gate.limits.other_rate", "1"), ("gate.limits.other_burst", "3")]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    for _ in 0..3 {
        assert_eq!(alice.order(&order).await.status, 200);
    }
    let reply = alice.order(&order).await;
    reply.refused(429, "RATE_LIMITED");
    assert_eq!(reply.header("ratelimit-policy"), Some("\"other\";q=3;w=3"));
    assert!(seconds(&reply) >= 1);
    assert_eq!(alice.cancel(&order).await.status, 200, "who looked too often can still cancel");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_invented_addresses_are_one_client() {
    let shop = Shop::open_with(&ADDRESSES).await;
    let sale = shop.sale(1_000).await;
    let mut heard = [0, 0];
    for n in 0..1_000_u32 {
        let invented = std::net::Ipv4Addr::from_bits(0x1400_0000 + n).to_string();
        let from =
            [("x-forwarded-for", invented.as_str()), ("x-real-ip", &invented), ("forwarded", &invented)];
        match click(&shop, &sale, &format!("user-{n}"), &from).await.status {
            202 => heard[0] += 1,
            429 => heard[1] += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(heard, [20, 980]);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_of_ours_is_believed_and_what_its_client_says_is_not() {
    let proxied: Vec<_> =
        [("server.trusted_proxies", "127.0.0.0/8,10.0.0.0/8")].into_iter().chain(ADDRESSES).collect();
    let shop = Shop::open_with(&proxied).await;
    let sale = shop.sale(1_000).await;
    // Two headers, one list, other headers, other forms: one client.
    let forms: [&[(&str, &str)]; 6] = [
        &[("x-forwarded-for", "198.51.100.1")],
        &[("x-forwarded-for", "6.6.6.6, 198.51.100.1")],
        &[("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.1")],
        &[("x-forwarded-for", "198.51.100.1"), ("x-real-ip", "6.6.6.6"), ("forwarded", "for=6.6.6.6")],
        &[("x-forwarded-for", "::ffff:198.51.100.1")],
        &[("x-forwarded-for", "198.51.100.1:4711, 10.0.0.7")],
    ];
    let mut statuses = Vec::new();
    for n in 0..30 {
        statuses.push(click(&shop, &sale, &format!("user-{n}"), forms[n % forms.len()]).await.status);
    }
    assert_eq!(statuses.iter().filter(|status| **status == 202).count(), 20, "{statuses:?}");
    // Another client of the same proxy is another client, and a subnet is one.
    click(&shop, &sale, "other", &[("x-forwarded-for", "198.51.100.2")]).await.accepted();
    let mut through = 0;
    for n in 0..100 {
        let address = format!("2001:db8::{n:x}");
        through += usize::from(
            click(&shop, &sale, &format!("six-{n}"), &[("x-forwarded-for", &address)]).await.status == 202,
        );
    }
    assert_eq!(through, 20);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_sends_many_bad_tokens_has_no_more_of_them_checked() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, evil) = (key(), key());
    let file = folder.path().join("public.pem");
    std::fs::write(&file, &ours.public_pem).unwrap();
    let keys = format!("[{{ algorithm = \"ES256\", public_key_file = \"{}\" }}]", file.display());
    let settings = [
        ("gate.jwt.secret", ""),
        ("gate.jwt.keys", &keys),
        ("gate.limits.exempt", ""),
        ("gate.limits.bad_token_rate", "1"),
        ("gate.limits.bad_token_burst", "10"),
    ];
    let shop = Shop::open_with(&settings).await;
    let sale = shop.sale(5).await;
    let signed = |key: &SigningKey, user: &str| {
        let now = shop.now_secs();
        let claims =
            json!({"sub": user, "iss": "doorbuster", "aud": "doorbuster", "iat": now, "exp": now + 3_600});
        format!("Bearer {}", key.sign(&claims).unwrap())
    };
    let ask = async |method, path: &str, bearer: &str| {
        shop.ask(method, path, &[("authorization", bearer)], b"").await
    };
    let (buying, looking) = (purchase_path(&sale.item), format!("/api/flash-sales/sales/{}/orders", sale.id));
    let alice = signed(&ours, "alice");
    ask("POST", &buying, &alice).await.accepted();
    for n in 0..10 {
        ask("POST", &buying, &signed(&evil, &format!("eve-{n}"))).await.refused(401, "UNAUTHENTICATED");
    }
    let refused = ask("POST", &buying, &signed(&evil, "eve")).await;
    refused.refused(429, "RATE_LIMITED");
    assert_eq!(refused.header("ratelimit-policy"), Some("\"bad_token\";q=10;w=10"));
    ask("GET", &looking, &signed(&evil, "eve")).await.refused(429, "RATE_LIMITED");
    // What costs no check is told as ever; so is who was seen to be good before.
    ask("POST", &buying, "Bearer garbage").await.refused(401, "UNAUTHENTICATED");
    ask("POST", &buying, &alice).await.refused(409, "ALREADY_PURCHASED");
    // A new buyer at that address has to wait.
    ask("POST", &buying, &signed(&ours, "bob")).await.refused(429, "RATE_LIMITED");
    shop.advance(Duration::from_secs(1));
    ask("POST", &buying, &signed(&ours, "bob")).await.accepted();
    shop.finish().await;
}

fn key() -> SigningKey {
    SigningKey::generate("one", Algorithm::ES256).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_for_a_public_reason_is_not_counted() {
    let shop = Shop::open_with(&[&ADDRESSES[..], &[("gate.limits.address_burst", "3")]].concat()).await;
    let sale = shop.sale(1).await;
    click(&shop, &sale, "alice", &[]).await.accepted();
    click(&shop, &sale, "bob", &[]).await.refused(410, "SOLD_OUT");
    for n in 0..50 {
        click(&shop, &sale, &format!("user-{n}"), &[]).await.refused(410, "SOLD_OUT");
    }
    // The one who holds it is told so, as long as the limit lasts.
    click(&shop, &sale, "alice", &[]).await.refused(409, "ALREADY_PURCHASED");
    click(&shop, &sale, "alice", &[]).await.refused(429, "RATE_LIMITED");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_account_with_a_thousand_clicks_at_once_has_one_order() {
    let shop = Shop::open_with(&[("gate.limits.user_rate", "5")]).await;
    let sale = shop.sale(100).await;
    let alice = shop.buyer("alice");
    let replies = join_all((0..1_000).map(|_| alice.buy(&sale.item))).await;
    let count = |status: u16| replies.iter().filter(|reply| reply.status == status).count();
    assert_eq!(count(202), 1);
    assert_eq!(count(202) + count(409) + count(429), 1_000);
    assert!(count(429) > 800, "{} of them cost the stock nothing", count(429));
    let order = replies.iter().find(|reply| reply.status == 202).unwrap().text("orderId");
    for told in replies.iter().filter(|reply| reply.status == 409) {
        assert_eq!(told.text("orderId"), order);
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 99);
    shop.finish().await;
}
