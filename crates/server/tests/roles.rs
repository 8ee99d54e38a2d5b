//! One sale on Redis, Kafka and PostgreSQL, served by several processes in roles.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use doorbuster_chaos::proxy::{Effect, Ending, Moment, Protocol, Proxy};
use doorbuster_server::config::Role;
use futures_util::future::join_all;

use shop::http::{Line, Reply, request};
use shop::{Shop, WINDOW, address_of, servers, until};

/// A gateway on three servers; the other roles are for others.
async fn gateway(more: &[(&str, &str)]) -> Shop {
    let servers = servers("redis,kafka,postgres");
    let mut settings: Vec<(&str, &str)> = servers.iter().map(|(key, value)| (*key, value.as_str())).collect();
    settings.push(("server.roles", "gateway"));
    settings.extend(more);
    Shop::open_with(&settings).await
}

/// What the staff's listener says to a probe, which has no token.
async fn probe(admin: SocketAddr, path: &str) -> Reply {
    let mut line = Line::connect(admin).await.unwrap();
    line.send(&request("GET", path, &[("connection", "close")], b"")).await.unwrap();
    line.reply(false).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_two_recorders_and_two_keepers_sell_each_unit_once() {
    let shop = gateway(&[]).await;
    let mut others = Vec::new();
    for role in [Role::Gateway, Role::Recorder, Role::Recorder, Role::Keeper, Role::Keeper] {
        others.push(shop.join(&[role]).await);
    }
    let second = others[0].public_address();
    let sale = shop.sale(20).await;

    let clicks = join_all((0..60).map(|n| {
        let at = if n % 2 == 0 { shop.address() } else { second };
        let (shop, item) = (&shop, sale.item.clone());
        async move { shop.click_at(at, &format!("user-{n}"), &item).await }
    }));
    let replies = clicks.await;

    let orders: Vec<String> = replies.iter().filter(|it| it.status == 202).map(Reply::accepted).collect();
    assert_eq!(orders.len(), 20, "{:?}", replies.iter().map(Reply::said).collect::<Vec<_>>());
    for order in &orders {
        assert_eq!(shop.recorded(order).await.status, "PENDING");
    }
    // A winner who clicks again hears of the order at either gateway, at the latest after a second.
    let winner = replies.iter().position(|it| it.status == 202).unwrap();
    for at in [shop.address(), second] {
        until("the winner hears of the order", async || {
            let reply = shop.click_at(at, &format!("user-{winner}"), &sale.item).await;
            reply.status == 409 && reply.text("orderId") == replies[winner].text("orderId")
        })
        .await;
    }

    // Half of them pay; what the others had is sold again, at every gateway.
    for order in &orders[..10] {
        shop.pay(order, &format!("event-{order}")).await;
    }
    shop.advance(WINDOW + Duration::from_secs(1));
    shop.until_free(&sale, 10).await;
    for (at, user) in [(shop.address(), "late-1"), (second, "late-2")] {
        until("a returned unit is sold", async || {
            matches!(shop.click_at(at, user, &sale.item).await.status, 202 | 409)
        })
        .await;
    }
    for other in &others {
        assert_eq!(probe(other.admin_address, "/livez").await.status, 200);
        assert_eq!(probe(other.admin_address, "/readyz").await.status, 200);
    }
    shop.finish().await;
    for other in others {
        other.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_that_comes_late_records_what_waited() {
    let shop = gateway(&[]).await;
    let keeper = shop.join(&[Role::Keeper]).await;
    let first = shop.join(&[Role::Recorder]).await;
    let sale = shop.sale(10).await;
    first.stop().await;
    let orders = join_all((0..10).map(|n| {
        let (shop, item) = (&shop, sale.item.clone());
        async move { shop.click_at(shop.address(), &format!("user-{n}"), &item).await.accepted() }
    }));
    let orders = orders.await;
    // Accepted, though nobody records: the ledger does not know them yet.
    assert!(shop.admin.order(&orders[0]).await.is_err());

    let (second, third) = (shop.join(&[Role::Recorder]).await, shop.join(&[Role::Recorder]).await);
    for order in &orders {
        assert_eq!(shop.recorded(order).await.status, "PENDING");
    }
    shop.finish().await;
    for other in [keeper, second, third] {
        other.stop().await;
    }
}

/// The server that a URL names.
fn server_of(url: &str) -> SocketAddr {
    let host =
        url.rsplit('@').next().unwrap().trim_start_matches("redis://").trim_start_matches("postgres://");
    host.split('/').next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "what is refused \"at once\" is a matter of real time")]
async fn with_stock_and_ledger_cut_off_a_gateway_refuses_at_once_and_says_why() {
    let (redis, postgres) = (address_of("REDIS"), address_of("POSTGRES"));
    let proxies = [
        Proxy::start(Protocol::Resp, server_of(&redis)).await.unwrap(),
        Proxy::start(Protocol::Postgres, server_of(&postgres)).await.unwrap(),
    ];
    let through =
        |url: &str, proxy: &Proxy| url.replace(&server_of(url).to_string(), &proxy.address().to_string());
    let (redis, postgres) = (through(&redis, &proxies[0]), through(&postgres, &proxies[1]));
    let shop = gateway(&[("redis.url", &redis), ("postgres.url", &postgres)]).await;
    let others = [shop.join(&[Role::Recorder]).await, shop.join(&[Role::Keeper]).await];
    let sale = shop.sale(10).await;
    shop.click_at(shop.address(), "alice", &sale.item).await.accepted();

    for proxy in &proxies {
        // What comes first is refused, so that nothing slips through between the two.
        proxy.add(Effect::Refuse).unwrap();
        proxy.add(Effect::Cut(Moment::Now, Ending::Reset)).unwrap();
    }
    let began = Instant::now();
    let clicks = join_all((0..200).map(|n| {
        let (shop, item) = (&shop, sale.item.clone());
        async move { shop.click_at(shop.address(), &format!("user-{n}"), &item).await }
    }));
    for reply in clicks.await {
        let word = reply.error();
        assert!(
            reply.status == 503 && ["BUSY", "OUTCOME_UNKNOWN"].contains(&word.as_str()),
            "{}",
            reply.said()
        );
    }
    assert!(began.elapsed() < Duration::from_secs(10), "refusing took {:?}", began.elapsed());
    let ready = probe(shop.address(), "/readyz").await;
    assert_eq!(ready.status, 503);
    let reasons = ready.json()["reasons"].to_string();
    assert!(reasons.contains("Redis") && reasons.contains("PostgreSQL"), "{reasons}");
    // What needs neither is served.
    assert_eq!(probe(shop.address(), "/livez").await.status, 200);

    for proxy in &proxies {
        // Refused once, and something was cut, or the story shows nothing; all was understood before.
        assert!(proxy.fired() >= 2 && proxy.counts().unparsed == 0, "{:?}", proxy.counts());
        proxy.heal();
    }
    until("selling goes on", async || {
        matches!(shop.click_at(shop.address(), "bob", &sale.item).await.status, 202 | 409)
    })
    .await;
    shop.finish().await;
    for other in others {
        other.stop().await;
    }
}
