//! Captchas of others: a provider judges the answer before there is a sale token. Whatever it says, or does not,
//! nobody gets a token without its good verdict, and nobody who buys waits for it.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_services::judge::{Judge, Says, Solved};
use doorbuster_wire::SetSwitch;
use futures_util::future::{join, join_all};
use shop::http::Reply;
use shop::{Offer, Sale, Shop, until};

const SECRET: &str = "the-secret-that-the-provider-knows-us-by";
const HOST: &str = "shop.test";
const GOOD: &str = r#"{"success":true,"hostname":"shop.test"}"#;

/// A shop whose captchas are this provider's.
async fn shop_of(provider: &str, judge: &Judge, settings: &[(&str, &str)]) -> Shop {
    let (siteverify, script) = (judge.siteverify_url(), judge.script_url());
    let base = [
        ("gate.sale_tokens.secret", "a-secret-of-the-shop-that-nobody-knows"),
        ("gate.captcha.provider", provider),
        ("gate.captcha.site_key", "0x4AAA-site"),
        ("gate.captcha.secret", SECRET),
        ("gate.captcha.siteverify_url", &siteverify),
        ("gate.captcha.script_url", &script),
        ("gate.captcha.hostname", HOST),
    ];
    Shop::open_with(&[&base[..], settings].concat()).await
}

async fn require_captcha(shop: &Shop, sale: &Sale) {
    let (value, reason) = (Some("on".to_owned()), "a test".to_owned());
    let asked = SetSwitch { value, sale_id: Some(sale.id.clone()), reason };
    shop.admin.set_switch("captcha_required", &asked).await.unwrap();
}

/// An open sale whose tokens need a captcha.
async fn guarded_sale(shop: &Shop) -> Sale {
    let sale = shop.sale(50).await;
    require_captcha(shop, &sale).await;
    sale
}

async fn ask_token(shop: &Shop, sale: &Sale, user: &str, captcha: &str) -> Reply {
    let body = serde_json::json!({ "captcha": captcha }).to_string();
    shop.buyer(user).ask("POST", &format!("/api/flash-sales/sales/{}/token", sale.id), &[], &body).await
}

async fn challenge(shop: &Shop, sale: &Sale, user: &str) -> Reply {
    shop.buyer(user).ask("GET", &format!("/api/flash-sales/sales/{}/challenge", sale.id), &[], "").await
}

/// What this user's page hands to the widget in this sale.
async fn shown_to(shop: &Shop, sale: &Sale, user: &str) -> Solved {
    let widget = challenge(shop, sale, user).await;
    assert_eq!(widget.status, 200, "{}", widget.said());
    Solved { hostname: HOST.to_owned(), action: widget.text("action"), cdata: widget.text("cdata") }
}

async fn buy_by(shop: &Shop, sale: &Sale, token: &str) -> Reply {
    let bearer = format!("Bearer {token}");
    shop.ask("POST", &shop::purchase_path(&sale.item), &[("authorization", &bearer)], b"").await
}

/// How often the shop counted this verdict.
async fn counted(shop: &Shop, outcome: &str) -> u64 {
    let page = shop.metrics().await;
    let begin = format!("doorbuster_siteverify_total{{outcome=\"{outcome}\"}} ");
    let line = page.lines().find_map(|line| line.strip_prefix(&begin));
    line.unwrap_or_else(|| panic!("no {outcome}: {page}")).parse().unwrap()
}

/// T4.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_judged_answer_gives_one_token_to_who_solved_it_in_its_sale_and_on_its_host() {
    let judge = Judge::start(SECRET).unwrap();
    let shop = shop_of("turnstile", &judge, &[]).await;
    let (sale, other) = (guarded_sale(&shop).await, guarded_sale(&shop).await);
    let widget = challenge(&shop, &sale, "alice").await.json();
    assert_eq!(widget["provider"], "turnstile");
    assert_eq!(widget["siteKey"], "0x4AAA-site");
    assert_eq!(widget["scriptUrl"], judge.script_url());
    let alices = shown_to(&shop, &sale, "alice").await;
    assert!(alices.action.len() <= 32 && (1..=255).contains(&alices.cdata.len()), "{alices:?}");
    assert!(!alices.cdata.contains("alice"), "the provider is not told who it is");

    // Each is good at the provider, once.
    for (what, solved) in [
        ("another user's", shown_to(&shop, &sale, "bob").await),
        ("of another sale", shown_to(&shop, &other, "alice").await),
        ("of another action", Solved { action: "login".to_owned(), ..alices.clone() }),
        ("of another host", Solved { hostname: "elsewhere.test".to_owned(), ..alices.clone() }),
        ("of no host", Solved { hostname: String::new(), ..alices.clone() }),
        ("bound to nobody", Solved { cdata: String::new(), ..alices.clone() }),
    ] {
        let said = ask_token(&shop, &sale, "alice", &judge.solved(solved)).await;
        assert_eq!((said.status, said.error().as_str()), (403, "CAPTCHA_REQUIRED"), "{what}");
    }
    let answer = judge.solved(alices.clone());
    let issued = ask_token(&shop, &sale, "alice", &answer).await;
    assert_eq!(issued.status, 200, "{}", issued.said());
    ask_token(&shop, &sale, "alice", &answer).await.refused(403, "CAPTCHA_REQUIRED");
    ask_token(&shop, &sale, "alice", "invented").await.refused(403, "CAPTCHA_REQUIRED");
    buy_by(&shop, &sale, &issued.text("token")).await.accepted();

    let fields =
        |name: &str| [("secret", SECRET), ("response", name)].map(|(a, b)| (a.to_owned(), b.to_owned()));
    assert_eq!(judge.asked().last().unwrap()[..], fields("invented"), "and nothing of the buyer");
    assert_eq!(
        (counted(&shop, "good").await, counted(&shop, "bad").await, counted(&shop, "of_another").await),
        (1, 2, 6)
    );
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_good_verdict_there_is_no_token() {
    let (judge, trap) = (Judge::start(SECRET).unwrap(), Judge::start(SECRET).unwrap());
    trap.say(Says::Text(200, GOOD.to_owned()));
    // An answer of hCaptcha's is bound to nothing: whatever is good for anybody would be good here.
    let shop = shop_of("hcaptcha", &judge, &[("gate.captcha.timeout", "300ms")]).await;
    let sale = guarded_sale(&shop).await;
    let refused = |codes: &str| format!(r#"{{"success":false,"error-codes":{codes}}}"#);
    let text = |status, text: &str| Says::Text(status, text.to_owned());
    let long = format!(r#"{{"success":true,"hostname":"shop.test","filler":"{}"}}"#, "x".repeat(64 * 1024));
    for (says, status, word) in [
        (Says::Silence, 503, "UNAVAILABLE"),
        (Says::End, 503, "UNAVAILABLE"),
        (Says::Redirect(trap.siteverify_url()), 503, "UNAVAILABLE"),
        (text(200, ""), 503, "UNAVAILABLE"),
        (text(200, "good"), 503, "UNAVAILABLE"),
        (text(200, "[true]"), 503, "UNAVAILABLE"),
        (text(200, r#"{"success":"true"}"#), 503, "UNAVAILABLE"),
        (text(200, r#"{"success":false,"success":true}"#), 503, "UNAVAILABLE"),
        (text(200, &long), 503, "UNAVAILABLE"),
        (text(201, GOOD), 503, "UNAVAILABLE"),
        (text(400, GOOD), 503, "UNAVAILABLE"),
        (text(429, "slow down"), 503, "UNAVAILABLE"),
        (text(500, GOOD), 503, "UNAVAILABLE"),
        (text(503, &refused("[]")), 503, "UNAVAILABLE"),
        (text(200, &refused(r#"["internal-error"]"#)), 503, "UNAVAILABLE"),
        (text(200, &refused(r#"["invalid-input-secret"]"#)), 503, "NOT_READY"),
        (text(400, &refused(r#"["missing-input-secret"]"#)), 503, "NOT_READY"),
        (text(200, &refused(r#"["bad-request","sitekey-secret-mismatch"]"#)), 503, "NOT_READY"),
        (text(200, r#"{"success":true}"#), 403, "CAPTCHA_REQUIRED"),
        (text(200, r#"{"success":false}"#), 403, "CAPTCHA_REQUIRED"),
        (text(200, &refused(r#"["timeout-or-duplicate"]"#)), 403, "CAPTCHA_REQUIRED"),
        (text(400, &refused(r#"["invalid-input-response"]"#)), 403, "CAPTCHA_REQUIRED"),
    ] {
        judge.say(says.clone());
        let reply = ask_token(&shop, &sale, "alice", "an-answer").await;
        assert_eq!((reply.status, reply.error().as_str()), (status, word), "{says:?}");
        assert_eq!(reply.header("retry-after").is_some(), status == 503, "{says:?}");
        assert!(!reply.said().contains("dbs1."), "{says:?}");
    }
    assert_eq!(trap.asked().len(), 0, "nobody else is asked");
    assert_eq!((counted(&shop, "silent").await, counted(&shop, "our_fault").await), (15, 3));

    let issued = {
        judge.say(Says::Text(200, GOOD.to_owned()));
        ask_token(&shop, &sale, "alice", "an-answer").await
    };
    assert_eq!(issued.status, 200, "nothing of all that used the answer up: {}", issued.said());
    drop(judge);
    ask_token(&shop, &sale, "alice", "an-answer").await.refused(503, "UNAVAILABLE");
    // Who has a token buys, whether the provider is there or not.
    buy_by(&shop, &sale, &issued.text("token")).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hcaptcha_is_asked_with_the_site_key_and_counts_an_answer_once_here() {
    let judge = Judge::start(SECRET).unwrap();
    let shop = shop_of("hcaptcha", &judge, &[("gate.captcha.hostname", "")]).await;
    let (sale, other) = (guarded_sale(&shop).await, guarded_sale(&shop).await);
    let widget = challenge(&shop, &sale, "alice").await.json();
    assert_eq!(widget["provider"], "hcaptcha");
    assert!(widget.get("cdata").is_none() && widget.get("action").is_none(), "{widget}");

    // A provider that would take an answer twice, from anybody.
    judge.say(Says::Text(200, r#"{"success":true}"#.to_owned()));
    assert_eq!(ask_token(&shop, &sale, "alice", "an+answer&1").await.status, 200);
    for (sale, user) in [(&sale, "alice"), (&other, "alice"), (&sale, "bob")] {
        ask_token(&shop, sale, user, "an+answer&1").await.refused(403, "CAPTCHA_REQUIRED");
    }
    let fields = [("secret", SECRET), ("response", "an+answer&1"), ("sitekey", "0x4AAA-site")];
    assert_eq!(judge.asked()[0][..], fields.map(|(name, value)| (name.to_owned(), value.to_owned())));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_is_asked_for_nobody_who_could_have_no_token() {
    let judge = Judge::start(SECRET).unwrap();
    judge.say(Says::Text(200, GOOD.to_owned()));
    let shop = shop_of("hcaptcha", &judge, &[("gate.sale_tokens.issue_before", "10m")]).await;
    let (open, sale) = (shop.sale(5).await, guarded_sale(&shop).await);
    let early = shop.draft(Offer::default()).await;
    require_captcha(&shop, &early).await;
    let over = shop.draft(Offer {
        lasts: Duration::from_secs(60),
        opens_in: Duration::from_secs(1),
        ..Offer::default()
    });
    let over = over.await;
    require_captcha(&shop, &over).await;
    shop.advance(Duration::from_secs(120));

    let none = Sale { id: "99".to_owned(), ..sale.clone() };
    ask_token(&shop, &none, "alice", "an-answer").await.refused(404, "SALE_NOT_FOUND");
    challenge(&shop, &none, "alice").await.refused(404, "SALE_NOT_FOUND");
    ask_token(&shop, &early, "alice", "an-answer").await.refused(403, "NOT_STARTED");
    ask_token(&shop, &over, "alice", "an-answer").await.refused(410, "ENDED");
    for empty in ["", &"x".repeat(2_049)] {
        ask_token(&shop, &sale, "alice", empty).await.refused(403, "CAPTCHA_REQUIRED");
    }
    let path = format!("/api/flash-sales/sales/{}/token", sale.id);
    shop.buyer("alice").ask("POST", &path, &[], "").await.refused(403, "CAPTCHA_REQUIRED");
    shop.ask("POST", &path, &[], b"{\"captcha\":\"x\"}").await.refused(401, "UNAUTHENTICATED");
    // A sale without a captcha looks at no answer.
    assert_eq!(ask_token(&shop, &open, "alice", "an-answer").await.status, 200);
    assert_eq!(judge.asked().len(), 0);
    assert_eq!(ask_token(&shop, &sale, "alice", &"x".repeat(2_048)).await.status, 200);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_hangs_holds_up_no_purchase_and_no_more_than_so_many_answers() {
    let judge = Judge::start(SECRET).unwrap();
    judge.say(Says::Silence);
    let settings = [("gate.captcha.calls_max", "10"), ("gate.captcha.timeout", "20s"), ("server.cores", "1")];
    let shop = shop_of("turnstile", &judge, &settings).await;
    let (sale, open) = (guarded_sale(&shop).await, shop.sale(50).await);
    let users: Vec<String> = (0..10).map(|number| format!("user-{number}")).collect();
    let asking = join_all(users.iter().map(|user| ask_token(&shop, &sale, user, "an-answer")));
    let meanwhile = async {
        until("all are being judged", async || judge.asked().len() == 10).await;
        let busy = ask_token(&shop, &sale, "one-more", "an-answer").await;
        busy.refused(503, "BUSY");
        assert!(busy.header("retry-after").is_some());
        for user in &users {
            shop.buyer(user).buy(&open.item).await.accepted();
        }
        assert_eq!(shop.ask("GET", "/readyz", &[], b"").await.status, 200);
        assert_eq!(counted(&shop, "silent").await, 0, "they still wait");
        // The connections end with it.
        drop(judge);
    };
    let (asked, ()) = join(asking, meanwhile).await;
    for reply in asked {
        reply.refused(503, "UNAVAILABLE");
    }
    assert_eq!((counted(&shop, "silent").await, counted(&shop, "too_many").await), (10, 1));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_lets_in_the_providers_script_where_there_is_one() {
    let judge = Judge::start(SECRET).unwrap();
    let shop = shop_of("turnstile", &judge, &[]).await;
    let policy = shop.ask("GET", "/", &[], b"").await.header("content-security-policy").unwrap().to_owned();
    let origin = judge.script_url().replace("/api.js", "");
    assert!(policy.contains(&format!("frame-src https://challenges.cloudflare.com {origin};")), "{policy}");
    shop.finish().await;

    let shop = Shop::open().await;
    let policy = shop.ask("GET", "/", &[], b"").await.header("content-security-policy").unwrap().to_owned();
    assert!(!policy.contains("http") && !policy.contains("frame-src"), "{policy}");
    shop.finish().await;
}
