//! What the shop is told: signed webhooks to a receiver on the loopback, repeated until they are taken.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

mod receiver;
#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
#[path = "../shop/mod.rs"]
mod shop;

use std::time::Duration;

use doorbuster_wire::EventDelivery;

use receiver::{Answer, Heard, Receiver, SECRETS, signed_by};
use shop::{Offer, Shop, WINDOW, refusal, text_of, until};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);

/// Behind the first wait, however it was spread.
const FIRST_WAIT: Duration = Duration::from_secs(6);

/// The waits of a whole day and more, each spread to its longest.
const WAITS: [u64; 10] = [6, 36, 144, 720, 2_160, 4_320, 8_640, 17_280, 34_560, 34_560];

/// A shop that tells one endpoint of these types.
async fn telling(url: &str, types: &str, settings: &[(&str, &str)]) -> Shop {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("shop.secret");
    shop::write_private(&secret, &SECRETS.join("\n"));
    let endpoint = format!(
        r#"[{{ name = "shop", url = "{url}", secret_file = "{}", types = [{types}] }}]"#,
        secret.display()
    );
    let mut all = vec![
        ("events.endpoints", endpoint.as_str()),
        ("events.allow_private", "127.0.0.1"),
        ("events.timeout", "2s"),
    ];
    all.extend(settings);
    Shop::open_with(&all).await
}

/// Waits until an attempt of this number at the log's only delivery has ended now, and answers it. The
/// clock has moved since the attempt before.
async fn attempted(shop: &Shop, attempts: u64) -> EventDelivery {
    let now = Some(text_of(shop.now()));
    until(&format!("attempt {attempts} has ended"), async || {
        let all = shop.admin.event_deliveries(&[], 10).await.unwrap();
        all.len() == 1 && all[0].attempts == attempts && all[0].attempted_at == now
    })
    .await;
    shop.admin.event_deliveries(&[], 10).await.unwrap().remove(0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_shop_is_told_of_every_step_in_order_and_signed_by_every_secret() {
    let receiver = Receiver::start(|_| Answer::Status(200)).await;
    let shop = telling(&receiver.url, "", &[]).await;
    let sale = shop.sale(2).await;
    let (alice, bob, carol) = (shop.buyer("alice"), shop.buyer("bob"), shop.buyer("carol"));
    let paid = alice.buy(&sale.item).await.accepted();
    shop.recorded(&paid).await;
    let expired = bob.buy(&sale.item).await.accepted();
    shop.recorded(&expired).await;
    shop.pay(&paid, "e1").await;
    shop.advance(WINDOW + MS);
    bob.until_status(&expired, "EXPIRED").await;
    shop.until_free(&sale, 1).await;
    let cancelled = carol.buy(&sale.item).await.accepted();
    shop.recorded(&cancelled).await;
    assert_eq!(carol.cancel(&cancelled).await.status, 200);
    shop.until_free(&sale, 1).await;
    shop.admin.close(&sale.id).await.unwrap();

    let heard = receiver.until(12).await;
    let of_order = |order: &str| -> Vec<&str> {
        heard.iter().filter(|it| it.data("orderId") == order).map(|it| it.text("type")).collect()
    };
    assert_eq!(of_order(&paid), ["order.payable", "order.paid"]);
    assert_eq!(of_order(&expired), ["order.payable", "order.expired"]);
    assert_eq!(of_order(&cancelled), ["order.payable", "order.cancelled"]);
    let of_sale: Vec<&str> =
        heard.iter().filter(|it| it.data("orderId").is_empty()).map(|it| it.text("type")).collect();
    let returned = ["stock.returned", "sale.sold_out", "stock.returned", "sale.closed"];
    assert_eq!(of_sale, [&["sale.opened", "sale.sold_out"][..], &returned].concat());
    for it in &heard {
        for secret in SECRETS {
            assert!(signed_by(it, secret), "{it:?}");
        }
        assert!(!signed_by(it, "whsec_c29tZWJvZHkgZWxzZSBlbnRpcmVseSwgb2YgY291cnNl"), "{it:?}");
        assert_eq!((it.header("content-type"), it.json()["version"].as_u64()), ("application/json", Some(1)));
    }
    let it = heard.iter().find(|it| it.text("type") == "order.paid").unwrap();
    assert_eq!(it.header("webhook-id"), format!("order_paid_{paid}"));
    let row = shop.admin.order(&paid).await.unwrap();
    let data = &it.json()["data"];
    assert_eq!((data["userId"].as_str(), data["status"].as_str()), (Some("alice"), Some("PAID")));
    assert_eq!(data["total"], serde_json::to_value(&row.total).unwrap());
    assert_eq!(data["expiresAt"], row.expires_at);
    let first = heard.iter().find(|it| it.data("orderId") == paid).unwrap();
    assert_eq!(first.data("status"), "PENDING", "as it was then");
    let sold_out = heard.iter().find(|it| it.text("type") == "sale.sold_out").unwrap();
    assert_eq!(
        (sold_out.data("itemId"), sold_out.json()["data"]["quantity"].as_u64()),
        (sale.item.as_str(), Some(2))
    );
    until("all are taken", async || {
        let waiting = shop.admin.event_deliveries(&[("state", "waiting")], 10).await.unwrap();
        waiting.is_empty()
    })
    .await;
    assert_eq!(receiver.count(), 12, "each once");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_sent_again_later_under_the_same_id() {
    let receiver = Receiver::start(|n| Answer::Status(if n == 0 { 500 } else { 200 })).await;
    let shop = telling(&receiver.url, r#""sale.opened""#, &[]).await;
    shop.sale(1).await;
    let failed = attempted(&shop, 1).await;
    assert_eq!(
        (failed.state.as_str(), failed.status, failed.answer.as_deref()),
        ("waiting", Some(500), Some("refused"))
    );
    assert!(failed.next_at.is_some());
    shop.advance(FIRST_WAIT);
    let taken = attempted(&shop, 2).await;
    assert_eq!((taken.state.as_str(), taken.status, taken.next_at), ("delivered", Some(200), None));
    let heard = receiver.until(2).await;
    assert_eq!(heard[0].body, heard[1].body);
    assert_eq!(heard[0].header("webhook-id"), heard[1].header("webhook-id"));
    assert_ne!(heard[0].header("webhook-timestamp"), heard[1].header("webhook-timestamp"), "signed anew");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_about_a_day_it_is_given_up_and_the_staff_sends_it_again() {
    let receiver = Receiver::start(|n| Answer::Status(if n < 11 { 503 } else { 204 })).await;
    let shop = telling(&receiver.url, r#""sale.opened""#, &[]).await;
    shop.sale_of(Offer { lasts: Duration::from_secs(4 * 24 * 3_600), ..Offer::default() }).await;
    for (attempts, wait) in (1..).zip(WAITS) {
        assert_eq!(attempted(&shop, attempts).await.state, "waiting");
        shop.advance(Duration::from_secs(wait));
    }
    let dead = attempted(&shop, 11).await;
    assert_eq!((dead.state.as_str(), dead.status, dead.next_at), ("dead", Some(503), None));
    let shown = shop.admin.event_delivery(&dead.id).await.unwrap();
    assert_eq!(shown.message.unwrap().kind, "sale.opened");

    assert_eq!(
        shop.staff(|it| &it.viewer).event_deliveries(&[("state", "dead")], 10).await.unwrap().len(),
        1
    );
    let refused = refusal(shop.staff(|it| &it.viewer).replay_event(&dead.id).await);
    assert_eq!(refused, (403, "FORBIDDEN".to_owned()));
    assert_eq!(refusal(shop.admin.replay_event("999").await), (404, "EVENT_NOT_FOUND".to_owned()));
    shop.advance(MS);
    let replayed = shop.staff(|it| &it.operator).replay_dead_events("shop").await.unwrap();
    assert_eq!(replayed.replayed, 1);
    let taken = attempted(&shop, 12).await;
    assert_eq!((taken.state.as_str(), taken.status), ("delivered", Some(204)));
    shop.advance(MS);
    shop.admin.replay_event(&taken.id).await.unwrap();
    attempted(&shop, 13).await;
    let heard = receiver.until(13).await;
    assert!(heard.iter().all(|it| it.header("webhook-id") == heard[0].header("webhook-id")));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redirect_is_not_followed_a_silence_ends_and_nobody_there_is_said_so() {
    let inside = Receiver::start(|_| Answer::Status(200)).await;
    let target = inside.url.clone();
    let redirecting = Receiver::start(move |_| Answer::Redirect(target.clone())).await;
    let silent = Receiver::start(|_| Answer::Silence).await;
    let endless = Receiver::start(|_| Answer::Endless).await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (url, state, status, says) in [
        (redirecting.url.as_str(), "waiting", Some(307), "a redirect, which is not followed"),
        (silent.url.as_str(), "waiting", None, "no answer within 300ms"),
        (endless.url.as_str(), "delivered", Some(200), "taken"),
        (&format!("http://127.0.0.1:{}/", closed.port()), "waiting", None, "cannot be reached"),
    ] {
        let shop = telling(url, r#""sale.opened""#, &[("events.timeout", "300ms")]).await;
        shop.sale(1).await;
        let ended = attempted(&shop, 1).await;
        assert_eq!((ended.state.as_str(), ended.status), (state, status), "{ended:?}");
        assert!(ended.answer.as_deref().unwrap().contains(says), "{ended:?}");
        shop.finish().await;
    }
    assert_eq!(inside.count(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_address_behind_a_name_is_not_called() {
    let receiver = Receiver::start(|_| Answer::Status(200)).await;
    let url = receiver.url.replace("http://127.0.0.1", "https://localhost");
    let shop = telling(&url, r#""sale.opened""#, &[]).await;
    shop.sale(1).await;
    let refused = attempted(&shop, 1).await;
    let answer = refused.answer.as_deref().unwrap();
    assert!(answer.contains("a loopback address: not called"), "{answer}");
    assert_eq!((refused.state.as_str(), refused.status), ("waiting", None));
    assert_eq!(receiver.connections(), 0, "nobody knocked");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_hangs_stops_no_other() {
    let silent = Receiver::start(|_| Answer::Silence).await;
    let prompt = Receiver::start(|_| Answer::Status(200)).await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    shop::write_private(&secret, SECRETS[0]);
    let endpoint = |name: &str, url: &str| {
        format!(r#"{{ name = "{name}", url = "{url}", secret_file = "{}" }}"#, secret.display())
    };
    let endpoints = format!("[{}, {}]", endpoint("silent", &silent.url), endpoint("prompt", &prompt.url));
    let settings = [
        ("events.endpoints", endpoints.as_str()),
        ("events.allow_private", "127.0.0.1"),
        ("events.timeout", "1h"),
    ];
    let mut shop = Shop::open_with(&settings).await;
    let sale = shop.sale(3).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.pay(&order, "e").await;
    let heard = prompt.until(3).await;
    assert!(heard.iter().any(|it| it.text("type") == "order.paid"));
    until("the silent one was called", async || silent.count() > 0).await;
    let left = shop.admin.event_deliveries(&[("endpoint", "silent")], 10).await.unwrap();
    assert!(left.iter().all(|it| it.state == "waiting"), "{left:?}");
    drop(silent);
    // What was planned stands in the ledger: a new start goes on where it was.
    until("the log knows", async || {
        let all = shop.admin.event_deliveries(&[("endpoint", "prompt")], 10).await.unwrap();
        all.len() == 3 && all.iter().all(|it| it.state == "delivered")
    })
    .await;
    shop.stop().await;
    shop.start_again().await.unwrap();
    shop.admin.close(&sale.id).await.unwrap();
    assert_eq!(prompt.until(4).await[3].text("type"), "sale.closed", "and nothing twice");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_weak_or_missing_secret_stops_the_start() {
    let folder = tempfile::tempdir().unwrap();
    for (secret, says) in [
        ("not a secret of the right form", "whsec_"),
        ("whsec_short", "not base64"),
        ("whsec_c2hvcnQ=", "shorter than 16 bytes"),
        ("", "has no secret"),
    ] {
        let path = folder.path().join("secret");
        shop::write_private(&path, secret);
        let endpoint = format!(
            r#"[{{ name = "shop", url = "https://shop.example/", secret_file = "{}" }}]"#,
            path.display()
        );
        let error = Shop::try_open(&[("events.endpoints", &endpoint)]).await.err().unwrap();
        assert!(format!("{error:#}").contains(says), "{error:#}");
    }
}

/// A heard webhook's members, for assertions.
impl Heard {
    fn text(&self, member: &str) -> &str {
        self.json[member].as_str().unwrap_or_default()
    }

    fn data(&self, member: &str) -> &str {
        self.json["data"][member].as_str().unwrap_or_default()
    }

    fn json(&self) -> &serde_json::Value {
        &self.json
    }
}
