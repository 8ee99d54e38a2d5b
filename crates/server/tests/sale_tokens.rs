//! Sale tokens: given out to whoever is signed in, required where the staff wants it, good for one user in one
//! sale.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::gate::{SaleToken, SaleTokens, solve};
use doorbuster_engine::member::Profile;
use doorbuster_engine::order::UserId;
use doorbuster_wire::SetSwitch;
use futures_util::future::join_all;
use shop::http::Reply;
use shop::{FLAG_LIFE, Offer, Sale, Shop, purchase_path, refusal, text_of};

const SECRET: &str = "a-secret-of-the-shop-that-nobody-knows";
const HEADER: &str = "doorbuster-sale-token";

async fn open_with(settings: &[(&str, &str)]) -> Shop {
    let secret = [("gate.sale_tokens.secret", SECRET)];
    Shop::open_with(&[&secret[..], settings].concat()).await
}

/// Has the sale require tokens.
async fn require(shop: &Shop, sale: &Sale) {
    turn_on(shop, sale, "token_required").await;
}

async fn turn_on(shop: &Shop, sale: &Sale, name: &str) {
    let (value, reason) = (Some("on".to_owned()), "a test".to_owned());
    let asked = SetSwitch { value, sale_id: Some(sale.id.clone()), reason };
    shop.admin.set_switch(name, &asked).await.unwrap();
}

/// An open sale that requires tokens.
async fn locked_sale(shop: &Shop, quantity: u64) -> Sale {
    let sale = shop.sale(quantity).await;
    require(shop, &sale).await;
    sale
}

fn token_path(sale: &Sale) -> String {
    format!("/api/flash-sales/sales/{}/token", sale.id)
}

async fn ask_token(shop: &Shop, sale: &Sale, user: &str) -> Reply {
    shop.buyer(user).ask("POST", &token_path(sale), &[], "").await
}

async fn token(shop: &Shop, sale: &Sale, user: &str) -> String {
    let reply = ask_token(shop, sale, user).await;
    assert_eq!(reply.status, 200, "{}", reply.said());
    reply.text("token")
}

/// A click with the sale token beside an access token.
async fn buy_beside(shop: &Shop, sale: &Sale, user: &str, token: &str) -> Reply {
    shop.buyer(user).buy_with(&sale.item, &[(HEADER, token)], "").await
}

/// A click with nothing but the sale token.
async fn buy_by(shop: &Shop, sale: &Sale, token: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    shop.ask("POST", &purchase_path(&sale.item), &[("authorization", &bearer)], b"").await
}

/// A token that says this, made as the server makes them.
fn made(sale: &Sale, user: &str, begins: Timestamp, ends: Timestamp) -> String {
    let tokens = SaleTokens::new([SECRET.as_bytes()], SaleTokens::none().rules()).unwrap();
    let user = UserId::new(user).unwrap();
    let said = SaleToken {
        sale: sale.id.parse().unwrap(),
        user: &user,
        begins,
        ends,
        captcha: false,
        let_in: false,
        profile: Profile::default(),
    };
    tokens.sign(&said).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_requires_a_token_is_opened_by_one_and_by_nothing_else() {
    let shop = open_with(&[]).await;
    let sale = shop.sale(5).await;
    let page = format!("/api/flash-sales/sales/{}", sale.id);
    assert_eq!(shop.ask("GET", &page, &[], b"").await.json()["tokenRequired"], false);
    shop.buyer("early").buy(&sale.item).await.accepted();

    require(&shop, &sale).await;
    assert_eq!(shop.ask("GET", &page, &[], b"").await.json()["tokenRequired"], true);
    shop.buyer("alice").buy(&sale.item).await.refused(403, "TOKEN_REQUIRED");
    let of_alice = token(&shop, &sale, "alice").await;
    let order = buy_beside(&shop, &sale, "alice", &of_alice).await.accepted();
    let again = buy_beside(&shop, &sale, "alice", &of_alice).await;
    assert_eq!(again.refused(409, "ALREADY_PURCHASED")["orderId"], order.as_str(), "T1");
    assert_eq!(
        buy_by(&shop, &sale, &of_alice).await.refused(409, "ALREADY_PURCHASED")["orderId"],
        order.as_str()
    );

    // T1: with a key, the same order again.
    let of_bob = token(&shop, &sale, "bob").await;
    let keyed = [("idempotency-key", "wish-1"), (HEADER, of_bob.as_str())];
    let order = shop.buyer("bob").buy_with(&sale.item, &keyed, "").await.accepted();
    let replayed = shop.buyer("bob").buy_with(&sale.item, &keyed, "").await;
    assert_eq!(replayed.accepted(), order);
    assert_eq!(replayed.header("idempotent-replayed"), Some("true"));

    // Alone it says who buys; what it buys is that user's.
    let of_carol = token(&shop, &sale, "carol").await;
    let order = buy_by(&shop, &sale, &of_carol).await.accepted();
    assert_eq!(shop.buyer("carol").until_payable(&order).await["saleId"], sale.id.as_str());
    assert_eq!(shop.free(&sale, &sale.item).await, 1);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_another_user_sale_or_time_opens_nothing() {
    let shop = open_with(&[]).await;
    let sale = locked_sale(&shop, 5).await;
    let other = locked_sale(&shop, 5).await;
    let of_alice = token(&shop, &sale, "alice").await;
    buy_beside(&shop, &sale, "bob", &of_alice).await.refused(403, "TOKEN_MISMATCH");

    let (now, hour) = (shop.now(), Duration::from_secs(3_600));
    let mut flipped = of_alice.clone().into_bytes();
    let middle = flipped.len() / 2;
    flipped[middle] = if flipped[middle] == b'A' { b'B' } else { b'A' };
    for (what, bad) in [
        ("of another sale", token(&shop, &other, "alice").await),
        ("over", made(&sale, "alice", now.minus(hour), now)),
        ("not yet", made(&sale, "alice", now.plus(hour), now.plus(hour).plus(hour))),
        ("one character changed", String::from_utf8(flipped).unwrap()),
        ("truncated", of_alice[..of_alice.len() - 1].to_owned()),
        ("longer", format!("{of_alice}AAAA")),
        ("no token at all", "dbs1.".to_owned()),
        ("nothing like it", "x".repeat(4_000)),
        ("an access token", shop.token("alice")),
    ] {
        let said = buy_beside(&shop, &sale, "alice", &bad).await;
        assert_eq!((said.status, said.error().as_str()), (403, "TOKEN_INVALID"), "{what}");
        if bad.starts_with("dbs1.") {
            let said = buy_by(&shop, &sale, &bad).await;
            assert_eq!((said.status, said.error().as_str()), (403, "TOKEN_INVALID"), "{what}, alone");
        }
    }
    buy_by(&shop, &sale, "nothing like it").await.refused(401, "UNAUTHENTICATED");
    shop.buyer("alice").buy_with(&sale.item, &[(HEADER, "")], "").await.refused(403, "TOKEN_INVALID");
    // A bad access token beside a good sale token is a bad access token.
    let headers = [("authorization", "Bearer x.y.z"), (HEADER, of_alice.as_str())];
    shop.ask("POST", &purchase_path(&sale.item), &headers, b"").await.refused(401, "UNAUTHENTICATED");
    buy_beside(&shop, &sale, "alice", &of_alice).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_token_on_a_hundred_connections_is_one_order() {
    let shop = open_with(&[]).await;
    let sale = locked_sale(&shop, 50).await;
    let of_alice = token(&shop, &sale, "alice").await;
    let clicks = join_all((0..100).map(|_| buy_by(&shop, &sale, &of_alice))).await;
    let accepted: Vec<_> = clicks.iter().filter(|reply| reply.status == 202).map(Reply::accepted).collect();
    assert_eq!(accepted.len(), 1);
    for refused in clicks.iter().filter(|reply| reply.status != 202) {
        assert_eq!(refused.refused(409, "ALREADY_PURCHASED")["orderId"], accepted[0].as_str());
    }
    assert_eq!(shop.free(&sale, &sale.item).await, 49);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_token_is_no_access_token() {
    let shop = open_with(&[]).await;
    let sale = locked_sale(&shop, 5).await;
    let of_alice = token(&shop, &sale, "alice").await;
    let order = buy_by(&shop, &sale, &of_alice).await.accepted();
    let bearer = format!("Bearer {of_alice}");
    let order_path = format!("/api/flash-sales/orders/{order}");
    for (method, path) in [
        ("GET", order_path.clone()),
        ("DELETE", order_path.clone()),
        ("POST", format!("{order_path}/payment")),
        ("GET", format!("/api/flash-sales/sales/{}/orders", sale.id)),
        ("POST", token_path(&sale)),
    ] {
        let reply = shop.ask(method, &path, &[("authorization", &bearer)], b"").await;
        assert_eq!((reply.status, reply.error().as_str()), (401, "UNAUTHENTICATED"), "{method} {path}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_are_given_out_before_the_sale_to_each_in_their_turn() {
    let times = [("gate.sale_tokens.issue_before", "10m"), ("gate.sale_tokens.issue_spread", "5m")];
    let shop = open_with(&[&times[..], &[("gate.sale_tokens.lifetime", "30m")]].concat()).await;
    let offer = Offer { lasts: Duration::from_secs(1_200), ..Offer::default() };
    let sale = shop.draft(offer).await;
    let opens = shop.now().plus(Duration::from_secs(3_600));
    ask_token(&shop, &Sale { id: "99".to_owned(), ..sale.clone() }, "alice")
        .await
        .refused(404, "SALE_NOT_FOUND");
    shop.ask("POST", &token_path(&sale), &[], b"").await.refused(401, "UNAUTHENTICATED");

    let users: Vec<String> = (0..40).map(|n| format!("user-{n}")).collect();
    let mut turns = Vec::new();
    for user in &users {
        let reply = ask_token(&shop, &sale, user).await;
        let told = reply.refused(403, "NOT_STARTED");
        let starts_in = told["startsInMs"].as_u64().unwrap();
        assert!((3_000_000..3_300_000).contains(&starts_in), "{starts_in}: ten minutes before, over five");
        assert_eq!(told["opensAt"], text_of(shop.now().plus(Duration::from_millis(starts_in))).as_str());
        assert_eq!(reply.header("retry-after").unwrap(), starts_in.div_ceil(1_000).to_string());
        turns.push(starts_in);
    }
    let early = turns.iter().filter(|turn| **turn < 3_150_000).count();
    assert!((8..=32).contains(&early), "{early} of 40 in the first half");
    turns.sort_unstable();
    turns.dedup();
    assert!(turns.len() > 30, "each has a moment of his own");

    shop.advance(Duration::from_secs(3_300));
    for user in &users {
        let reply = ask_token(&shop, &sale, user).await;
        assert_eq!(reply.status, 200, "{}", reply.said());
        // The sale is over in 25 minutes, before the token would be.
        assert_eq!(reply.text("expiresAt"), text_of(opens.plus(Duration::from_secs(1_200))));
    }
    shop.advance(Duration::from_secs(1_500));
    ask_token(&shop, &sale, "user-1").await.refused(410, "ENDED");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_holds_an_order_hears_of_it_by_sale_token_after_the_sell_out() {
    // Flags are a core's own.
    let shop = open_with(&[("server.cores", "1")]).await;
    let sale = locked_sale(&shop, 1).await;
    let (of_alice, of_bob) = (token(&shop, &sale, "alice").await, token(&shop, &sale, "bob").await);
    let order = buy_by(&shop, &sale, &of_alice).await.accepted();
    buy_by(&shop, &sale, &of_bob).await.refused(410, "SOLD_OUT");
    for _ in 0..20 {
        let held = buy_by(&shop, &sale, &of_alice).await;
        assert_eq!(held.refused(409, "ALREADY_PURCHASED")["orderId"], order.as_str());
        // Whoever forges the holder's token learns nothing, nor does who has none.
        let forged = format!("{}AAAA", &of_alice[..of_alice.len() - 4]);
        buy_by(&shop, &sale, &forged).await.refused(410, "SOLD_OUT");
        shop.buyer("carol").buy(&sale.item).await.refused(410, "SOLD_OUT");
    }
    shop.advance(FLAG_LIFE);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_secret_there_are_no_tokens_and_no_sale_needs_one() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    ask_token(&shop, &sale, "alice").await.refused(503, "NOT_READY");
    let (value, reason) = (Some("on".to_owned()), "a test".to_owned());
    let asked = SetSwitch { value, sale_id: Some(sale.id.clone()), reason };
    let said = shop.admin.set_switch("token_required", &asked).await;
    assert_eq!(refusal(said), (409, "CONFLICT".to_owned()));
    let now = shop.now();
    let forged = made(&sale, "alice", now, now.plus(Duration::from_secs(60)));
    buy_by(&shop, &sale, &forged).await.refused(403, "TOKEN_INVALID");
    // A token that nobody asked for does no harm.
    buy_beside(&shop, &sale, "alice", &forged).await.accepted();
    let weak = Shop::try_open(&[("gate.sale_tokens.secret", "too short")]).await;
    let why = format!("{:#}", weak.err().unwrap());
    assert!(why.contains("gate.sale_tokens.secret") && !why.contains("too short,"), "{why}");
    shop.finish().await;
}

async fn challenge(shop: &Shop, sale: &Sale, user: &str) -> String {
    let path = format!("/api/flash-sales/sales/{}/challenge", sale.id);
    let reply = shop.buyer(user).ask("GET", &path, &[], "").await;
    assert_eq!(reply.status, 200, "{}", reply.said());
    solve(&serde_json::from_value(reply.json()).unwrap()).unwrap()
}

async fn ask_token_with(shop: &Shop, sale: &Sale, user: &str, captcha: &str) -> Reply {
    let body = serde_json::json!({ "captcha": captcha }).to_string();
    shop.buyer(user).ask("POST", &token_path(sale), &[], &body).await
}

/// T4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_captcha_gives_one_token_to_who_solved_it_in_time() {
    let shop = open_with(&[("gate.sale_tokens.captcha_max_number", "200")]).await;
    let sale = shop.sale(5).await;
    let other = shop.sale(5).await;
    let without = token(&shop, &sale, "alice").await;
    for sale in [&sale, &other] {
        turn_on(&shop, sale, "captcha_required").await;
    }
    buy_by(&shop, &sale, &without).await.refused(403, "CAPTCHA_REQUIRED");
    shop.buyer("alice").buy(&sale.item).await.refused(403, "TOKEN_REQUIRED");
    ask_token(&shop, &sale, "alice").await.refused(403, "CAPTCHA_REQUIRED");

    let proof = challenge(&shop, &sale, "alice").await;
    ask_token_with(&shop, &sale, "bob", &proof).await.refused(403, "CAPTCHA_REQUIRED");
    ask_token_with(&shop, &other, "alice", &proof).await.refused(403, "CAPTCHA_REQUIRED");
    let reply = ask_token_with(&shop, &sale, "alice", &proof).await;
    assert_eq!(reply.status, 200, "{}", reply.said());
    ask_token_with(&shop, &sale, "alice", &proof).await.refused(403, "CAPTCHA_REQUIRED");
    buy_by(&shop, &sale, &reply.text("token")).await.accepted();

    let late = challenge(&shop, &sale, "carol").await;
    shop.advance(Duration::from_secs(301));
    ask_token_with(&shop, &sale, "carol", &late).await.refused(403, "CAPTCHA_REQUIRED");
    for garbage in ["", "!", "e30=", "bnVsbA==", &"A".repeat(3_000)] {
        ask_token_with(&shop, &sale, "carol", garbage).await.refused(403, "CAPTCHA_REQUIRED");
    }
    for body in ["[1]", "{", "{\"captcha\":7}"] {
        let reply = shop.buyer("carol").ask("POST", &token_path(&sale), &[], body).await;
        assert_eq!((reply.status, reply.error().as_str()), (400, "INVALID_REQUEST"), "{body}");
    }
    let long = shop.buyer("carol").ask("POST", &token_path(&sale), &[], &"x".repeat(5_000)).await;
    assert_eq!(long.status, 413);
    let path = |sale: &str| format!("/api/flash-sales/sales/{sale}/challenge");
    shop.ask("GET", &path(&sale.id), &[], b"").await.refused(401, "UNAUTHENTICATED");
    shop.buyer("carol").ask("GET", &path("99"), &[], "").await.refused(404, "SALE_NOT_FOUND");
    shop.finish().await;
}
