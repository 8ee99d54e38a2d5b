//! A whole sale on Redis, Kafka and PostgreSQL, bought by the failure scenarios' buyers and judged by
//! their checker: what it reads from outside is what the product says of itself, and nothing is wrong.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use doorbuster_chaos::books::{Books, Sources};
use doorbuster_chaos::buyers::{Counts, Crowd, Gateways, Offer, Plan, Shares};
use doorbuster_chaos::checker::{Circumstances, check, check_progress};
use doorbuster_chaos::history::{History, Recorder};
use doorbuster_chaos::{ItemId, SaleId};
use doorbuster_engine::clock::Clock;
use doorbuster_server::config::Role;
use doorbuster_wire::Rebuild;
use tokio::time::interval;

use shop::{PRICE, Sale, Shop, address_of, servers, until};

const QUANTITY: u64 = 40;

/// How far the shop's clock moves at a time, so that flags end as they do in life.
const TICK: Duration = Duration::from_millis(10);

fn sources(shop: &Shop) -> Sources {
    Sources {
        postgres: address_of("POSTGRES"),
        schema: shop.config.postgres.schema.clone(),
        redis: address_of("REDIS"),
        prefix: shop.config.redis.prefix.clone(),
    }
}

fn plan(shop: &Shop, sale: &Sale, name: &str, users: u32, shares: Shares) -> Plan {
    let offer = Offer {
        sale: SaleId(sale.id.parse().unwrap()),
        items: vec![ItemId(sale.item.parse().unwrap())],
        limit: 1,
        price_minor: PRICE,
        currency: "EUR".to_owned(),
    };
    let clock = Arc::clone(&shop.clock);
    let mut plan = Plan::new(offer, users, shop.signer());
    plan.name = name.to_owned();
    plan.shares = shares;
    plan.now_s = Arc::new(move || u64::try_from(clock.now().as_ms() / 1_000).unwrap());
    plan.staff = vec![Arc::new(shop.admin.another())];
    plan
}

/// Lets a crowd live to its end, while the shop's clock goes on.
async fn let_buy(shop: &Shop, crowd: Crowd) -> (Counts, History) {
    let mut pace = interval(TICK);
    let ticking = async {
        loop {
            pace.tick().await;
            shop.advance(TICK);
        }
    };
    let all = crowd.reaches(|_| false);
    tokio::select! {
        _ = all => {}
        () = ticking => {}
    }
    (crowd.counts(), crowd.join().await)
}

/// The books once nothing is in flight.
async fn books_at_rest(shop: &Shop) -> Books {
    until("the shop comes to rest", async || shop.admin.audit().await.is_ok_and(|report| report.at_rest))
        .await;
    Books::read(&sources(shop)).await.unwrap()
}

/// What the books read from outside say of a sale is what the staff's listener says.
async fn assert_same_as_told(shop: &Shop, sale: &Sale, books: &Books) {
    let row = books.sales.iter().find(|it| it.id.to_string() == sale.id).unwrap();
    let bucket = books.bucket(row).unwrap();
    let held: BTreeSet<_> = bucket
        .holds
        .iter()
        .map(|hold| (hold.order.to_string(), hold.user.clone(), hold.item.to_string(), hold.units))
        .collect();
    let rows = shop.admin.all_orders(&sale.id).await.unwrap();
    let live = rows.iter().filter(|order| ["PENDING", "PAID"].contains(&order.status.as_str()));
    let live: BTreeSet<_> = live
        .map(|order| {
            (order.order_id.clone(), order.user_id.clone(), order.item_id.clone(), u64::from(order.quantity))
        })
        .collect();
    assert_eq!(held, live);
    assert_eq!(books.orders.len(), rows.len());
    let free = bucket.free[&ItemId(sale.item.parse().unwrap())];
    assert_eq!(u64::try_from(free).unwrap(), shop.free(sale, &sale.item).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sound_sale_is_found_sound_from_outside() {
    let settings = servers("redis,kafka,postgres");
    let mut settings: Vec<(&str, &str)> =
        settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
    settings.push(("server.roles", "gateway"));
    let shop = Shop::open_with(&settings).await;
    let second = shop.join(&[Role::Gateway]).await;
    let others = [shop.join(&[Role::Recorder]).await, shop.join(&[Role::Keeper]).await];
    let sale = shop.sale(QUANTITY).await;
    let gateways = Gateways::new(vec![shop.address(), second.public_address()]);
    let recorder = Recorder::default();

    let shares = Shares { keyed: 50, cancel: 30, pay: 50, again: 60 };
    let crowd = Crowd::start(plan(&shop, &sale, "early", 150, shares), &gateways, &recorder);
    let (counts, _) = let_buy(&shop, crowd).await;
    assert!(counts.accepted >= QUANTITY && counts.done == 150 && counts.impatient == 0, "{counts:?}");
    assert!(counts.cancelled > 0 && counts.paid > 0 && counts.gone > 0, "{counts:?}");
    let earlier = books_at_rest(&shop).await;
    assert_same_as_told(&shop, &sale, &earlier).await;

    let reason = Rebuild { reason: "a story".to_owned() };
    let _ = shop.admin.rebuild(&sale.id, &reason).await;
    until("the stock is loaded anew", async || {
        shop.admin.sale(&sale.id).await.is_ok_and(|sale| sale.epoch == 2 && sale.fence.is_none())
    })
    .await;
    shop.restock(&sale, 5).await.unwrap();
    let mut rounds = 0;
    until("everything is sold", async || {
        let shares = Shares { pay: 40, ..Shares::default() };
        let late = plan(&shop, &sale, &format!("late-{rounds}"), 10, shares);
        rounds += 1;
        let_buy(&shop, Crowd::start(late, &gateways, &recorder)).await;
        shop.free(&sale, &sale.item).await == 0
    })
    .await;

    let books = books_at_rest(&shop).await;
    let history = recorder.history();
    let circumstances = Circumstances { at_rest: true, demand_above_stock: true, ..Circumstances::default() };
    assert_eq!(check(&history, &books, &circumstances), []);
    assert_eq!(check_progress(&earlier, &books, &circumstances), []);
    assert_same_as_told(&shop, &sale, &books).await;
    assert!(!books.barriers.is_empty() && !books.steps.is_empty() && !books.restocks.is_empty());
    // It would have been seen: with one row less the same evidence is damning.
    let mut spoilt = books.clone();
    spoilt.orders.remove(0);
    assert_ne!(check(&history, &spoilt, &circumstances), []);

    shop.finish().await;
    second.stop().await;
    for other in others {
        other.stop().await;
    }
}
