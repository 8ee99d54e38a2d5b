//! Whose tokens count: public keys from files, or from an identity provider that rotates them, fails,
//! lies or says nothing.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_services::issuer::{Algorithm, Issuer, Says, SigningKey};
use serde_json::{Value, json};
use shop::http::{Reply, request};
use shop::{Sale, Shop, purchase_path, until};

/// How often the set is read, and the least time between two readings.
const REFRESH: Duration = Duration::from_secs(330);
const GAP: Duration = Duration::from_secs(30);

fn key(id: &str) -> SigningKey {
    SigningKey::generate(id, Algorithm::ES256).unwrap()
}

/// What a good token of this user says.
fn claims(shop: &Shop, user: &str) -> Value {
    let now = shop.now_secs();
    json!({"sub": user, "iss": "doorbuster", "aud": "doorbuster", "iat": now, "exp": now + 3_600})
}

async fn buy(shop: &Shop, sale: &Sale, token: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    shop.ask("POST", &purchase_path(&sale.item), &[("authorization", bearer.as_str())], b"").await
}

/// A click with a token by this key. When a story has moved the clock by minutes, the ledger looks silent
/// until the watch has asked it again: BUSY is no answer here.
async fn buys(shop: &Shop, sale: &Sale, key: &SigningKey, user: &str) -> Reply {
    let mut reply = None;
    until("somebody takes orders", async || {
        let answer = buy(shop, sale, &key.sign(&claims(shop, user)).unwrap()).await;
        let busy = answer.status == 503 && answer.text("error") == "BUSY";
        reply = Some(answer);
        !busy
    })
    .await;
    reply.unwrap()
}

/// A shop whose tokens come from this provider.
async fn shop_of(issuer: &Issuer) -> Shop {
    shop_with_patience(issuer, "20s").await
}

async fn shop_with_patience(issuer: &Issuer, patience: &str) -> Shop {
    let url = issuer.url();
    let settings =
        [("gate.jwt.secret", ""), ("gate.jwt.jwks_url", &url), ("gate.jwt.jwks_timeout", patience)];
    Shop::open_with(&settings).await
}

async fn until_keys(shop: &Shop, keys: u64) {
    let line = format!("doorbuster_token_keys {keys}\n");
    until("the keys are taken", async || shop.metrics().await.contains(&line)).await;
}

async fn until_read(shop: &Shop, outcome: &str, times: u64) {
    let line = format!("doorbuster_jwks_readings_total{{outcome=\"{outcome}\"}} {times}\n");
    until("the set is read", async || shop.metrics().await.contains(&line)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_says_nothing_holds_up_nobody_and_lets_nobody_in() {
    let one = key("one");
    let issuer = Issuer::start(&[&one]).unwrap();
    issuer.say(Says::Silence);
    let shop = shop_with_patience(&issuer, "1s").await;
    let sale = shop.sale(5).await;
    let refused = buys(&shop, &sale, &one, "alice").await;
    refused.refused(503, "NOT_READY");
    assert!(refused.header("retry-after").is_some());
    let order = format!("/api/flash-sales/orders/{}", uuid::Uuid::from_u128(7));
    let bearer = format!("Bearer {}", one.sign(&claims(&shop, "alice")).unwrap());
    shop.ask("GET", &order, &[("authorization", bearer.as_str())], b"").await.refused(503, "NOT_READY");
    let ready = shop.ask("GET", "/readyz", &[], b"").await;
    assert!(ready.status == 503 && ready.said().contains("gate.jwt.jwks_url"), "{}", ready.said());

    issuer.offer(&[&one]);
    // However often the silence was met, it is asked again.
    until("the keys are taken", async || {
        shop.advance(GAP);
        shop.metrics().await.contains("doorbuster_token_keys 1\n")
    })
    .await;
    buys(&shop, &sale, &one, "alice").await.accepted();
    assert_eq!(shop.ask("GET", "/readyz", &[], b"").await.status, 200);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_rotate_with_an_overlap() {
    let (old, new) = (key("old"), key("new"));
    let issuer = Issuer::start(&[&old]).unwrap();
    let shop = shop_of(&issuer).await;
    let sale = shop.sale(5).await;
    until_keys(&shop, 1).await;
    buys(&shop, &sale, &old, "alice").await.accepted();

    issuer.offer(&[&new, &old]);
    buys(&shop, &sale, &new, "bob").await.refused(401, "UNAUTHENTICATED");
    shop.advance(GAP);
    until_keys(&shop, 2).await;
    buys(&shop, &sale, &new, "bob").await.accepted();
    buys(&shop, &sale, &old, "carol").await.accepted();

    issuer.offer(&[&new]);
    shop.advance(REFRESH);
    until_keys(&shop, 1).await;
    buys(&shop, &sale, &old, "dave").await.refused(401, "UNAUTHENTICATED");
    // Also a token that was seen to be good before.
    buys(&shop, &sale, &old, "carol").await.refused(401, "UNAUTHENTICATED");
    buys(&shop, &sale, &new, "dave").await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_unknown_keys_have_the_set_read_once_in_thirty_seconds() {
    let one = key("one");
    let issuer = Issuer::start(&[&one]).unwrap();
    let shop = shop_of(&issuer).await;
    let sale = shop.sale(5).await;
    until_keys(&shop, 1).await;
    let claims = claims(&shop, "eve");
    let mut line = shop.line().await;
    for number in 0..10_000 {
        if number == 5_000 {
            shop.advance(GAP);
            // A clock that was moved so far makes the ledger look silent for a moment.
            buys(&shop, &sale, &one, "bob").await;
        }
        let token = if number % 100 == 0 {
            // Rightly signed, and yet by a key that nobody knows.
            key("gone").sign_as(Some(&format!("kid-{number}")), &claims).unwrap()
        } else {
            format!("{}.e30.c2ln", kid_header(&format!("kid-{number}")))
        };
        let bearer = format!("Bearer {token}");
        let headers = [("authorization", bearer.as_str())];
        line.send(&request("POST", &purchase_path(&sale.item), &headers, b"")).await.unwrap();
        line.reply(false).await.unwrap().refused(401, "UNAUTHENTICATED");
    }
    until_read(&shop, "unchanged", 1).await;
    assert_eq!(issuer.asked(), 2, "once at the start, once for all of them");
    buys(&shop, &sale, &one, "alice").await.accepted();
    shop.finish().await;
}

fn kid_header(kid: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD
        .encode(json!({"alg": "ES256", "typ": "JWT", "kid": kid}).to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_fails_or_lies_changes_nothing() {
    let (one, evil) = (key("one"), key("one"));
    let (issuer, other) = (Issuer::start(&[&one]).unwrap(), Issuer::start(&[&evil]).unwrap());
    let shop = shop_of(&issuer).await;
    let sale = shop.sale(20).await;
    until_keys(&shop, 1).await;
    let mut failed = 0;
    for says in [
        Says::Status(500),
        Says::Redirect(other.url()),
        Says::Body(String::new()),
        Says::Body("<html>".to_owned()),
        Says::Body(r#"{"keys":[]}"#.to_owned()),
        Says::Body("[".repeat(100_000)),
        Says::Body(format!(r#"{{"keys":[],"x":"{}"}}"#, "x".repeat(300 * 1024))),
        Says::Body(r#"{"keys":[{"kty":"EC","crv":"P-256","kid":"one","x":"AA","y":"AA"}]}"#.to_owned()),
    ] {
        issuer.say(says.clone());
        shop.advance(REFRESH);
        failed += 1;
        until_read(&shop, "failed", failed).await;
        buys(&shop, &sale, &one, &format!("user-{failed}")).await.accepted();
        buys(&shop, &sale, &evil, "eve").await.refused(401, "UNAUTHENTICATED");
    }
    assert_eq!(other.asked(), 0, "nobody followed the redirect");
    assert_eq!(shop.ask("GET", "/readyz", &[], b"").await.status, 200);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_says_where_its_key_is_is_not_believed() {
    let (one, evil) = (key("one"), key("one"));
    let (issuer, other) = (Issuer::start(&[&one]).unwrap(), Issuer::start(&[&evil]).unwrap());
    let shop = shop_of(&issuer).await;
    let sale = shop.sale(5).await;
    until_keys(&shop, 1).await;
    let forged = evil.sign_pointing_at(&other.url(), &claims(&shop, "eve")).unwrap();
    buy(&shop, &sale, &forged).await.refused(401, "UNAUTHENTICATED");
    shop.advance(REFRESH);
    until_read(&shop, "unchanged", 1).await;
    buys(&shop, &sale, &one, "alice").await.accepted();
    buy(&shop, &sale, &forged).await.refused(401, "UNAUTHENTICATED");
    assert_eq!((other.asked(), issuer.asked()), (0, 2));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn public_keys_come_from_files_too_and_are_no_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let (rsa, ed) = (
        SigningKey::generate("rsa", Algorithm::RS256).unwrap(),
        SigningKey::generate("ed", Algorithm::EdDSA).unwrap(),
    );
    let mut keys = Vec::new();
    for (key, algorithm) in [(&rsa, "RS256"), (&ed, "EdDSA")] {
        let file = folder.path().join(&key.id);
        std::fs::write(&file, &key.public_pem).unwrap();
        let file = file.display();
        keys.push(format!(
            "{{ id = \"{}\", algorithm = \"{algorithm}\", public_key_file = \"{file}\" }}",
            key.id
        ));
    }
    let keys = format!("[{}]", keys.join(", "));
    let shop = Shop::open_with(&[("gate.jwt.secret", ""), ("gate.jwt.keys", &keys)]).await;
    let sale = shop.sale(5).await;
    buys(&shop, &sale, &rsa, "alice").await.accepted();
    buys(&shop, &sale, &ed, "bob").await.accepted();
    for (public, kid) in [(&rsa, "rsa"), (&ed, "ed")] {
        let secret = SigningKey::secret(kid, Algorithm::HS256, public.public_pem.as_bytes()).unwrap();
        buys(&shop, &sale, &secret, "eve").await.refused(401, "UNAUTHENTICATED");
    }
    let swapped = rsa.sign_as(Some("ed"), &claims(&shop, "eve")).unwrap();
    buy(&shop, &sale, &swapped).await.refused(401, "UNAUTHENTICATED");
    shop.finish().await;
}
