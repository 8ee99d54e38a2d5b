//! The waiting room: places are drawn before a sale opens and come by afterwards, users are let in as far as there is
//! something to buy, and whoever comes back in time keeps the place.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::net::SocketAddr;
use std::time::Duration;

use doorbuster_engine::gate::solve;
use doorbuster_server::config::Role;
use doorbuster_wire::{SetSwitch, WaitingRoomView};
use futures_util::future::join_all;
use shop::http::{Line, Reply, request};
use shop::{Offer, Sale, Shop, purchase_path, until};

const SECRET: (&str, &str) = ("gate.sale_tokens.secret", "a-secret-of-the-shop-that-nobody-knows");
const MINUTE: Duration = Duration::from_secs(60);

async fn turn(shop: &Shop, sale: &Sale, name: &str, value: &str) {
    let (value, reason) = (Some(value.to_owned()), "a test".to_owned());
    let asked = SetSwitch { value, sale_id: Some(sale.id.clone()), reason };
    shop.admin.set_switch(name, &asked).await.unwrap();
}

/// A preheated sale with a waiting room that opens in a minute.
async fn sale_with_room(shop: &Shop, quantity: u64, mode: &str) -> Sale {
    let sale = shop.draft(Offer { quantities: vec![quantity], opens_in: MINUTE, ..Offer::default() }).await;
    assert!(shop.admin.preheat(&sale.id).await.unwrap().ok);
    turn(shop, &sale, "room", mode).await;
    sale
}

fn room_path(sale: &Sale) -> String {
    format!("/api/flash-sales/sales/{}/waiting-room", sale.id)
}

async fn ask_with(shop: &Shop, sale: &Sale, user: &str, body: &str) -> Reply {
    shop.buyer(user).ask("POST", &room_path(sale), &[], body).await
}

fn said(reply: &Reply) -> WaitingRoomView {
    assert_eq!(reply.status, 200, "{}", reply.said());
    serde_json::from_value(reply.json()).unwrap()
}

async fn ask(shop: &Shop, sale: &Sale, user: &str) -> WaitingRoomView {
    said(&ask_with(shop, sale, user, "").await)
}

/// The same by somebody who shows the place he was given.
async fn show(shop: &Shop, sale: &Sale, user: &str, place: &str) -> WaitingRoomView {
    said(&ask_with(shop, sale, user, &format!(r#"{{"place":"{place}"}}"#)).await)
}

async fn ask_at(shop: &Shop, gateway: SocketAddr, sale: &Sale, user: &str) -> WaitingRoomView {
    let bearer = format!("Bearer {}", shop.token(user));
    let mut line = Line::connect(gateway).await.unwrap();
    line.send(&request("POST", &room_path(sale), &[("authorization", &bearer)], b"")).await.unwrap();
    said(&line.reply(false).await.unwrap())
}

/// Brings the clock to the opening, and waits until the sale sells.
async fn open(shop: &Shop, sale: &Sale) {
    shop.advance(MINUTE);
    until_it_sells(shop, sale).await;
}

async fn until_it_sells(shop: &Shop, sale: &Sale) {
    let page = format!("/api/flash-sales/sales/{}", sale.id);
    until("the sale is open", async || shop.ask("GET", &page, &[], b"").await.json()["state"] == "open")
        .await;
}

async fn shows_room(shop: &Shop, sale: &Sale) -> bool {
    let page = format!("/api/flash-sales/sales/{}", sale.id);
    shop.ask("GET", &page, &[], b"").await.json()["waitingRoom"] == true
}

/// Those of `users` who are inside.
async fn inside(shop: &Shop, sale: &Sale, users: &[String]) -> Vec<String> {
    let views = join_all(users.iter().map(|user| ask(shop, sale, user))).await;
    let inside = users.iter().zip(views).filter(|(_, view)| view.status == "ADMITTED");
    inside.map(|(user, _)| user.clone()).collect()
}

async fn buy_by(shop: &Shop, sale: &Sale, token: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    shop.ask("POST", &purchase_path(&sale.item), &[("authorization", &bearer)], b"").await
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("user-{number:03}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_are_let_in_as_far_as_there_are_units_and_buy_with_the_token_of_their_turn() {
    let shop = Shop::open_with(&[SECRET]).await;
    let sale = sale_with_room(&shop, 4, "on").await;
    let users = names(30);
    let page = format!("/api/flash-sales/sales/{}", sale.id);
    until("the page says so", async || shop.ask("GET", &page, &[], b"").await.json()["waitingRoom"] == true)
        .await;
    for user in &users {
        let view = ask(&shop, &sale, user).await;
        assert_eq!((view.status.as_str(), view.ahead, view.token), ("PREQUEUE", None, None));
        assert!(view.place.is_some() && view.refresh_in_ms <= 120_000 / 3);
    }
    shop.buyer(&users[0]).buy(&sale.item).await.refused(403, "NOT_STARTED");

    open(&shop, &sale).await;
    // Four units, and half as many more inside.
    until("six are let in", async || inside(&shop, &sale, &users).await.len() == 6).await;
    let first = inside(&shop, &sale, &users).await;
    assert_eq!(first.len(), 6);
    assert_ne!(first, users[..6], "places are drawn, not taken");
    let outside: Vec<String> = users.iter().filter(|user| !first.contains(user)).cloned().collect();
    let mut ahead: Vec<u64> = Vec::new();
    for user in &outside {
        ahead.push(ask(&shop, &sale, user).await.ahead.unwrap());
    }
    ahead.sort_unstable();
    assert_eq!(ahead, (0..24).collect::<Vec<_>>());

    let refused = shop.buyer(&outside[0]).buy(&sale.item).await.refused(403, "TOKEN_REQUIRED");
    assert_eq!(refused["waitingRoom"], room_path(&sale));
    let token = shop.buyer(&outside[0]).ask("POST", &format!("{page}/token"), &[], "").await;
    assert_eq!(token.refused(403, "TOKEN_REQUIRED")["waitingRoom"], room_path(&sale));
    let token = ask(&shop, &sale, &first[0]).await.token.unwrap();
    let beside = [("doorbuster-sale-token", token.as_str())];
    shop.buyer(&outside[0]).buy_with(&sale.item, &beside, "").await.refused(403, "TOKEN_MISMATCH");
    let mut orders = Vec::new();
    for user in &first[..4] {
        let token = ask(&shop, &sale, user).await.token.unwrap();
        orders.push(buy_by(&shop, &sale, &token).await.accepted());
    }
    let token = ask(&shop, &sale, &first[5]).await.token.unwrap();
    buy_by(&shop, &sale, &token).await.refused(410, "SOLD_OUT");
    until("who waits hears it", async || ask(&shop, &sale, &outside[0]).await.sold_out).await;

    // A unit returns, and the turns end: the next two come, one of them more than there is to buy.
    shop.buyer(&first[0]).until_payable(&orders[0]).await;
    assert_eq!(shop.buyer(&first[0]).cancel(&orders[0]).await.status, 200);
    shop.until_free(&sale, 1).await;
    for step in 0..6 {
        // Who waits is seen all the time.
        shop.advance(MINUTE / 2);
        let waiting = inside(&shop, &sale, &outside).await;
        assert!(step > 4 || waiting.is_empty(), "{step}: {waiting:?}");
    }
    until("two more are let in", async || inside(&shop, &sale, &outside).await.len() == 2).await;
    let next = inside(&shop, &sale, &outside).await;
    let token = ask(&shop, &sale, &next[0]).await.token.unwrap();
    until("the server has caught up", async || buy_by(&shop, &sale, &token).await.status != 503).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 0);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_is_kept_for_who_comes_back_in_time_and_is_nobody_elses() {
    let mut shop = Shop::open_with(&[SECRET]).await;
    let sale = sale_with_room(&shop, 1, "on").await;
    open(&shop, &sale).await;
    // Nobody is let in while it is paused.
    shop.admin.pause(&sale.id).await.unwrap();
    let mut places = Vec::new();
    for user in ["ann", "bob", "cid", "dan"] {
        places.push(ask(&shop, &sale, user).await.place.unwrap());
    }
    // The room of one process is gone with it; what they hold is not.
    let alone = shop.config.uses_data_dir();
    shop.advance(Duration::from_secs(1));
    shop.stop().await;
    shop.start_again().await.unwrap();
    if alone {
        assert_eq!(
            show(&shop, &sale, "eve", &places[0]).await.ahead,
            Some(0),
            "a place of ann's is none of eve's"
        );
    }
    for (user, place) in ["dan", "cid", "bob", "ann"].iter().zip(places.iter().rev()) {
        show(&shop, &sale, user, place).await;
    }
    let mut ahead = Vec::new();
    for user in ["ann", "bob", "cid", "dan"] {
        ahead.push(ask(&shop, &sale, user).await);
    }
    let numbers: Vec<u64> = ahead.iter().filter_map(|view| view.ahead).collect();
    assert_eq!(numbers, [0, 1, 2, 3], "{ahead:?}");

    // Whoever leaves is behind the others when he comes again, and so is who was away for too long.
    let gone = shop.buyer("bob").ask("DELETE", &room_path(&sale), &[], "").await;
    assert_eq!(said(&gone).status, "LEFT");
    let last = ask(&shop, &sale, "bob").await.ahead.unwrap();
    assert!(last > ask(&shop, &sale, "dan").await.ahead.unwrap());
    for _ in 0..3 {
        shop.advance(MINUTE);
        ask(&shop, &sale, "bob").await;
    }
    let alone_in_there = format!("doorbuster_room_waiting{{sale=\"{}\"}} 1\n", sale.id);
    until("the others are forgotten", async || shop.metrics().await.contains(&alone_in_there)).await;
    assert_eq!(show(&shop, &sale, "dan", &places[3]).await.ahead, Some(1));
    assert_eq!(ask(&shop, &sale, "bob").await.ahead, Some(0));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_captcha_is_passed_once_and_the_place_remembers_it() {
    let shop = Shop::open_with(&[SECRET, ("gate.sale_tokens.captcha_max_number", "1000")]).await;
    let sale = sale_with_room(&shop, 10, "on").await;
    turn(&shop, &sale, "captcha_required", "on").await;
    ask_with(&shop, &sale, "ann", "").await.refused(403, "CAPTCHA_REQUIRED");
    ask_with(&shop, &sale, "ann", r#"{"captcha":"nonsense"}"#).await.refused(403, "CAPTCHA_REQUIRED");
    let challenge = format!("/api/flash-sales/sales/{}/challenge", sale.id);
    let challenge = shop.buyer("ann").ask("GET", &challenge, &[], "").await.json();
    let proof = solve(&serde_json::from_value(challenge).unwrap()).unwrap();
    let body = format!(r#"{{"captcha":"{proof}"}}"#);
    ask_with(&shop, &sale, "bob", &body).await.refused(403, "CAPTCHA_REQUIRED");
    let place = said(&ask_with(&shop, &sale, "ann", &body).await).place.unwrap();
    ask_with(&shop, &sale, "ann", &body).await.refused(403, "CAPTCHA_REQUIRED");
    open(&shop, &sale).await;
    until("she is let in", async || show(&shop, &sale, "ann", &place).await.status == "ADMITTED").await;
    let token = show(&shop, &sale, "ann", &place).await.token.unwrap();
    buy_by(&shop, &sale, &token).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_automatic_room_is_there_when_too_many_come_and_gone_when_they_are_served() {
    let mut shop = Shop::open_with(&[SECRET]).await;
    let calm = sale_with_room(&shop, 10, "auto").await;
    let hot = sale_with_room(&shop, 2, "auto").await;
    let users = names(12);
    for user in &users {
        assert_eq!(ask(&shop, &hot, user).await.status, "PREQUEUE");
    }
    for user in &users[..5] {
        assert_eq!(ask(&shop, &calm, user).await.status, "PREQUEUE");
    }
    until("the usher has counted them", async || {
        let metrics = shop.metrics().await;
        metrics.contains(&format!("doorbuster_room_waiting{{sale=\"{}\"}} 12", hot.id))
    })
    .await;
    open(&shop, &calm).await;
    until("all five fit in", async || !shows_room(&shop, &calm).await).await;
    assert_eq!(ask(&shop, &calm, "late").await.status, "NOT_NEEDED");
    shop.buyer("late").buy(&calm.item).await.accepted();

    until_it_sells(&shop, &hot).await;
    assert!(shows_room(&shop, &hot).await);
    shop.buyer("late").buy(&hot.item).await.refused(403, "TOKEN_REQUIRED");
    // A process that has just begun does not take a room without its users for one that nobody needs.
    shop.stop().await;
    shop.start_again().await.unwrap();
    until_it_sells(&shop, &hot).await;
    until("it sells by the room", async || {
        let reply = shop.buyer("late").buy(&hot.item).await;
        assert!([403, 503].contains(&reply.status), "{}", reply.said());
        reply.status == 403
    })
    .await;
    until("three of twelve are let in", async || inside(&shop, &hot, &users).await.len() == 3).await;
    for user in inside(&shop, &hot, &users).await {
        let token = ask(&shop, &hot, &user).await.token.unwrap();
        assert!([202, 410].contains(&buy_by(&shop, &hot, &token).await.status));
    }
    // Nobody is seen any more: the room is empty after the grace, and calm a little later.
    shop.advance(3 * MINUTE);
    until("the room is empty", async || {
        shop.advance(Duration::from_secs(11));
        !shows_room(&shop, &hot).await
    })
    .await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_waited_for_is_refused_in_words() {
    let shop = Shop::open_with(&[SECRET]).await;
    let sale = shop.sale(5).await;
    assert_eq!(ask(&shop, &sale, "ann").await.status, "NOT_NEEDED");
    shop.ask("POST", &room_path(&sale), &[], b"").await.refused(401, "UNAUTHENTICATED");
    turn(&shop, &sale, "room", "on").await;
    for body in ["[]", "{", r#"{"place":1}"#, "\u{0}", r#"{"captcha":{}}"#] {
        ask_with(&shop, &sale, "ann", body).await.refused(400, "INVALID_REQUEST");
    }
    for place in ["", "dbp1.", "dbs1.AAAA", "\u{fffd}", &"x".repeat(3_000)] {
        assert!(show(&shop, &sale, "ann", place).await.place.is_some());
    }
    let none = Sale { id: "999999".to_owned(), ..sale.clone() };
    ask_with(&shop, &none, "ann", "").await.refused(404, "SALE_NOT_FOUND");
    shop.buyer("ann").ask("DELETE", &room_path(&none), &[], "").await.refused(404, "SALE_NOT_FOUND");
    let later = shop.draft(Offer { opens_in: MINUTE * 60, ..Offer::default() }).await;
    turn(&shop, &later, "room", "on").await;
    let early = ask_with(&shop, &later, "ann", "").await.refused(403, "NOT_STARTED");
    assert_eq!(early["startsInMs"], 50 * 60 * 1_000, "the prequeue begins ten minutes before the sale");
    shop.admin.close(&sale.id).await.unwrap();
    until("it is over", async || ask_with(&shop, &sale, "ann", "").await.status == 410).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_share_one_room() {
    let shop = Shop::open_with(&[SECRET]).await;
    // One process has the room for itself; on servers another gateway has the same.
    let other = if shop.config.uses_data_dir() { None } else { Some(shop.join(&[Role::Gateway]).await) };
    let there = other.as_ref().map_or(shop.address(), |other| other.public_address());
    let sale = sale_with_room(&shop, 2, "on").await;
    let users = names(20);
    for user in &users[..10] {
        ask(&shop, &sale, user).await;
    }
    until("the other knows of it", async || {
        ask_at(&shop, there, &sale, &users[0]).await.status == "PREQUEUE"
    })
    .await;
    for user in &users[10..] {
        ask_at(&shop, there, &sale, user).await;
    }
    open(&shop, &sale).await;
    until("three are let in, whoever looks", async || inside(&shop, &sale, &users).await.len() == 3).await;
    for user in &users {
        let (here, there) = (ask(&shop, &sale, user).await, ask_at(&shop, there, &sale, user).await);
        assert_eq!((here.status, here.ahead), (there.status, there.ahead));
    }
    let winner = inside(&shop, &sale, &users).await.remove(0);
    let token = ask_at(&shop, there, &sale, &winner).await.token.unwrap();
    buy_by(&shop, &sale, &token).await.accepted();
    if let Some(other) = other {
        other.stop().await;
    }
    shop.finish().await;
}
