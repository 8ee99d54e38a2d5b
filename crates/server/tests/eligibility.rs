//! Who may buy in a sale, and from when on: regions, and levels with early access.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_engine::gate::{SaleToken, SaleTokens};
use doorbuster_engine::member::{Level, Profile, Region};
use doorbuster_engine::order::UserId;
use doorbuster_services::issuer::{Algorithm, SigningKey};
use doorbuster_wire::SetSwitch;
use serde_json::json;
use shop::http::Reply;
use shop::{Offer, Sale, Shop, purchase_path, refusal, text_of, until};

const SECRET: &str = "a-secret-of-the-shop-that-nobody-knows";
const MINUTE: Duration = Duration::from_secs(60);

/// A shop with levels, whose tokens say level and region.
async fn open_with(settings: &[(&str, &str)]) -> Shop {
    let base = [
        ("gate.levels", "silver,gold"),
        ("gate.jwt.level_claim", "tier"),
        ("gate.jwt.region_claim", "country"),
        ("gate.sale_tokens.secret", SECRET),
    ];
    Shop::open_with(&[&base[..], settings].concat()).await
}

fn to(sale: &Sale, value: Option<&str>) -> SetSwitch {
    SetSwitch { value: value.map(str::to_owned), sale_id: Some(sale.id.clone()), reason: "a test".to_owned() }
}

async fn turn(shop: &Shop, sale: &Sale, name: &str, value: &str) {
    shop.admin.set_switch(name, &to(sale, Some(value))).await.unwrap();
}

/// The Authorization header of a user of whom the shop says so much; nothing that is empty is said.
fn bearer(shop: &Shop, user: &str, tier: &str, country: &str) -> String {
    let now = shop.now_secs();
    let mut claims =
        json!({"sub": user, "iss": "doorbuster", "aud": "doorbuster", "iat": now, "exp": now + 3_600});
    for (claim, value) in [("tier", tier), ("country", country)].iter().filter(|(_, value)| !value.is_empty())
    {
        claims[*claim] = json!(value);
    }
    let secret = shop.config.gate.jwt.secret.reveal().as_bytes();
    let key = SigningKey::secret("one", Algorithm::HS256, secret).unwrap();
    format!("Bearer {}", key.sign_as(None, &claims).unwrap())
}

async fn click(shop: &Shop, sale: &Sale, bearer: &str, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("authorization", bearer)], headers].concat();
    shop.ask("POST", &purchase_path(&sale.item), &headers, b"").await
}

async fn ask_token(shop: &Shop, sale: &Sale, bearer: &str, headers: &[(&str, &str)]) -> Reply {
    let headers = [&[("authorization", bearer)], headers].concat();
    shop.ask("POST", &format!("/api/flash-sales/sales/{}/token", sale.id), &headers, b"").await
}

/// Asserts that it is the region, in words that say nothing of it.
fn refused_for_its_region(reply: &Reply) {
    let detail = reply.refused(403, "NOT_ELIGIBLE")["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("certain regions"), "{detail}");
    for secret in ["DE", "FR", "CH", "ch"] {
        assert!(!detail.contains(&format!(" {secret}")), "{detail}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_for_regions_is_for_those_whose_token_says_one_of_them() {
    let shop = open_with(&[]).await;
    let sale = shop.sale(10).await;
    let other = shop.sale(10).await;
    click(&shop, &sale, &bearer(&shop, "early", "", "CH"), &[]).await.accepted();
    turn(&shop, &sale, "regions", "DE,FR").await;
    for (user, country) in [("anna", "DE"), ("fanny", "FR")] {
        ask_token(&shop, &sale, &bearer(&shop, user, "", country), &[]).await;
        click(&shop, &sale, &bearer(&shop, user, "", country), &[]).await.accepted();
    }
    for country in ["CH", "", "de", "DEU", "XX"] {
        let bearer = bearer(&shop, "urs", "gold", country);
        refused_for_its_region(&click(&shop, &sale, &bearer, &[]).await);
        refused_for_its_region(&ask_token(&shop, &sale, &bearer, &[]).await);
        // Nobody is a proxy here, and no header is read.
        refused_for_its_region(&click(&shop, &sale, &bearer, &[("cf-ipcountry", "DE")]).await);
    }
    click(&shop, &other, &bearer(&shop, "urs", "", "CH"), &[]).await.accepted();
    shop.admin.set_switch("regions", &to(&sale, None)).await.unwrap();
    click(&shop, &sale, &bearer(&shop, "urs", "", ""), &[]).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_of_ours_says_where_somebody_is_and_nobody_else_does() {
    let header = ("gate.region_header", "CF-IPCountry");
    let shop = open_with(&[header, ("server.trusted_proxies", "127.0.0.0/8")]).await;
    let sale = shop.sale(10).await;
    turn(&shop, &sale, "regions", "DE,FR").await;
    let of = |user| bearer(&shop, user, "", "");
    click(&shop, &sale, &of("anna"), &[("cf-ipcountry", "DE")]).await.accepted();
    let twice = [("cf-ipcountry", "DE"), ("CF-IPCountry", "DE")];
    let bad: [&[(&str, &str)]; 6] = [
        &[],
        &[("cf-ipcountry", "CH")],
        &[("cf-ipcountry", "de")],
        &[("cf-ipcountry", "T1")],
        &[("cf-ipcountry", "DE,CH")],
        &twice,
    ];
    for headers in bad {
        refused_for_its_region(&click(&shop, &sale, &of("urs"), headers).await);
        refused_for_its_region(&ask_token(&shop, &sale, &of("urs"), headers).await);
    }
    // The shop's own word goes first, whichever it is.
    let at_home = bearer(&shop, "fanny", "", "FR");
    click(&shop, &sale, &at_home, &[("cf-ipcountry", "CH")]).await.accepted();
    let elsewhere = bearer(&shop, "urs", "", "CH");
    refused_for_its_region(&click(&shop, &sale, &elsewhere, &[("cf-ipcountry", "DE")]).await);
    shop.finish().await;

    let shop = open_with(&[header, ("server.trusted_proxies", "10.0.0.0/8")]).await;
    let sale = shop.sale(10).await;
    turn(&shop, &sale, "regions", "DE,FR").await;
    let urs = bearer(&shop, "urs", "", "");
    for headers in [&[("cf-ipcountry", "DE")][..], &[("cf-ipcountry", "DE"), ("x-forwarded-for", "10.0.0.7")]]
    {
        refused_for_its_region(&click(&shop, &sale, &urs, headers).await);
        refused_for_its_region(&ask_token(&shop, &sale, &urs, headers).await);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_token_alone_says_of_its_user_what_was_known_when_it_was_given_out() {
    let header = [("gate.region_header", "CF-IPCountry"), ("server.trusted_proxies", "127.0.0.0/8")];
    let shop = open_with(&header).await;
    let sale = shop.sale(10).await;
    turn(&shop, &sale, "regions", "DE,FR").await;
    turn(&shop, &sale, "early_access", "gold=0s,*=10m").await;
    for (user, tier, country, headers) in
        [("anna", "gold", "DE", &[][..]), ("fanny", "gold", "", &[("cf-ipcountry", "FR")])]
    {
        let token = ask_token(&shop, &sale, &bearer(&shop, user, tier, country), headers).await.text("token");
        // Wherever they are when it counts.
        let alone = format!("Bearer {token}");
        click(&shop, &sale, &alone, &[("cf-ipcountry", "CH")]).await.accepted();
    }
    // As the shop makes them.
    let tokens = SaleTokens::new([SECRET.as_bytes()], SaleTokens::none().rules()).unwrap();
    let made = |user: &str, level, region: &str| {
        let (user, profile) = (
            UserId::new(user).unwrap(),
            Profile { level: Level(level), region: Region::of(region.as_bytes()) },
        );
        let (begins, ends) = (shop.now(), shop.now().plus(60 * MINUTE));
        let said = SaleToken {
            sale: sale.id.parse().unwrap(),
            user: &user,
            begins,
            ends,
            captcha: false,
            let_in: false,
            profile,
        };
        format!("Bearer {}", tokens.sign(&said).unwrap())
    };
    refused_for_its_region(&click(&shop, &sale, &made("urs", 2, "CH"), &[("cf-ipcountry", "DE")]).await);
    refused_for_its_region(&click(&shop, &sale, &made("urs", 2, ""), &[]).await);
    click(&shop, &sale, &made("silvia", 1, "DE"), &[]).await.refused(403, "NOT_STARTED");
    click(&shop, &sale, &made("urs", 2, ""), &[("cf-ipcountry", "DE")]).await.accepted();
    click(&shop, &sale, &made("gerda", 2, "DE"), &[]).await.accepted();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nearer_levels_buy_earlier_and_each_hears_when_its_own_time_comes() {
    let shop = open_with(&[]).await;
    let sale = shop.draft(Offer { opens_in: 15 * MINUTE, ..Offer::default() }).await;
    turn(&shop, &sale, "early_access", "gold=0s,silver=10m,*=30m").await;
    shop.admin.preheat(&sale.id).await.unwrap();
    let opens = shop.now().plus(15 * MINUTE);
    let of = |user: &str, tier| (user.to_owned(), tier);
    let bearer_of = |(user, tier): &(String, &str)| bearer(&shop, user, tier, "");
    let told = async |who: &(String, &str), at, wait: Duration| {
        let reply = click(&shop, &sale, &bearer_of(who), &[]).await;
        let problem = reply.refused(403, "NOT_STARTED");
        assert_eq!(problem["opensAt"], text_of(at).as_str(), "{who:?}");
        assert_eq!(
            problem["startsInMs"].as_u64().unwrap(),
            u64::try_from(wait.as_millis()).unwrap(),
            "{who:?}"
        );
        assert_eq!(reply.header("retry-after").unwrap(), wait.as_secs().to_string());
        problem["detail"].as_str().unwrap().to_owned()
    };
    let (gold, silver, nobody, strange) =
        (of("gerda", "gold"), of("silvia", "silver"), of("nora", ""), of("peter", "platin"));
    // Before it opens all hear the same; a token can be had all the same.
    for who in [&gold, &silver, &nobody] {
        assert!(told(who, opens, 15 * MINUTE).await.contains("has not begun"));
    }
    shop.advance(5 * MINUTE);
    for who in [&gold, &nobody] {
        until_given(&shop, &sale, &bearer_of(who)).await;
    }
    shop.advance(opens.since(shop.now()));
    shop::until("it is open", async || shop.admin.sale(&sale.id).await.unwrap().state == "open").await;
    shop::until("a gateway knows", async || {
        click(&shop, &sale, &bearer_of(&gold), &[]).await.error() != "NOT_READY"
    })
    .await;
    click(&shop, &sale, &bearer_of(&gold), &[]).await.refused(409, "ALREADY_PURCHASED");
    for (who, wait) in [(&silver, 10), (&nobody, 30), (&strange, 30)] {
        assert!(told(who, opens.plus(wait * MINUTE), wait * MINUTE).await.contains("begun for some"));
    }
    shop.advance(10 * MINUTE - Duration::from_millis(1));
    click(&shop, &sale, &bearer_of(&silver), &[]).await.refused(403, "NOT_STARTED");
    shop.advance(Duration::from_millis(1));
    once_awake(&shop, &sale, &bearer_of(&silver)).await.accepted();
    told(&nobody, opens.plus(30 * MINUTE), 20 * MINUTE).await;
    // The staff lets everybody in.
    shop.admin.set_switch("early_access", &to(&sale, None)).await.unwrap();
    click(&shop, &sale, &bearer_of(&nobody), &[]).await.accepted();
    shop.finish().await;
}

/// A sale token, which each gets at a moment of their own.
async fn until_given(shop: &Shop, sale: &Sale, bearer: &str) {
    shop::until("a token is given out", async || {
        shop.advance(Duration::from_secs(1));
        ask_token(shop, sale, bearer, &[]).await.status == 200
    })
    .await;
}

/// A click, again while the shop finds that it was asleep: the clock has jumped.
async fn once_awake(shop: &Shop, sale: &Sale, bearer: &str) -> Reply {
    let mut reply = click(shop, sale, bearer, &[]).await;
    shop::until("the shop takes orders", async || {
        if reply.error() == "BUSY" {
            reply = click(shop, sale, bearer, &[]).await;
        }
        reply.error() != "BUSY"
    })
    .await;
    reply
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_level_that_is_remembered_with_its_token_still_counts() {
    let folder = tempfile::tempdir().unwrap();
    let key = SigningKey::generate("one", Algorithm::ES256).unwrap();
    let file = folder.path().join("public.pem");
    std::fs::write(&file, &key.public_pem).unwrap();
    let keys = format!("[{{ algorithm = \"ES256\", public_key_file = \"{}\" }}]", file.display());
    let shop = open_with(&[("gate.jwt.secret", ""), ("gate.jwt.keys", &keys)]).await;
    let sale = shop.sale(10).await;
    turn(&shop, &sale, "regions", "DE").await;
    turn(&shop, &sale, "early_access", "gold=0s,*=30m").await;
    let now = shop.now_secs();
    let bearer = |user: &str, tier: &str| {
        let claims = json!({"sub": user, "iss": "doorbuster", "aud": "doorbuster", "iat": now, "exp": now + 3_600,
            "tier": tier, "country": "DE"});
        format!("Bearer {}", key.sign(&claims).unwrap())
    };
    let (gerda, nora) = (bearer("gerda", "gold"), bearer("nora", ""));
    click(&shop, &sale, &gerda, &[]).await.accepted();
    for _ in 0..3 {
        click(&shop, &sale, &nora, &[]).await.refused(403, "NOT_STARTED");
        click(&shop, &sale, &gerda, &[]).await.refused(409, "ALREADY_PURCHASED");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_nobody_could_follow_are_refused_with_what_could_be() {
    let shop = open_with(&[]).await;
    let sale = shop.sale(1).await;
    for (name, value, says) in [
        ("early_access", "platin=0s,*=1m", "gate.levels of this server names silver, gold"),
        ("early_access", "gold=0s", "everybody else"),
        ("early_access", "gold=0s,*=8days", "at most 7days"),
        ("regions", "de", "such as DE,FR,AT"),
        ("regions", "", "such as DE,FR,AT"),
    ] {
        let said = shop.admin.set_switch(name, &to(&sale, Some(value))).await;
        let text = format!("{:?}", said.as_ref().unwrap_err());
        assert_eq!(refusal(said), (422, "UNPROCESSABLE".to_owned()), "{name} {value}");
        assert!(text.contains(says), "{text}");
    }
    let everywhere = SetSwitch { sale_id: None, ..to(&sale, Some("DE")) };
    assert_eq!(refusal(shop.admin.set_switch("regions", &everywhere).await).0, 422);
    shop.finish().await;
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let said = shop.admin.set_switch("early_access", &to(&sale, Some("gold=0s,*=1m"))).await;
    assert!(format!("{said:?}").contains("names none"), "{said:?}");
    turn(&shop, &sale, "early_access", "*=1m").await;
    shop.buyer("nora").buy(&sale.item).await.refused(403, "NOT_STARTED");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiting_room_lets_each_level_come_in_its_time_and_nobody_from_elsewhere() {
    let shop = open_with(&[]).await;
    let sale = shop.draft(Offer { opens_in: MINUTE, ..Offer::default() }).await;
    assert!(shop.admin.preheat(&sale.id).await.unwrap().ok);
    turn(&shop, &sale, "room", "on").await;
    turn(&shop, &sale, "regions", "DE").await;
    turn(&shop, &sale, "early_access", "gold=0s,*=10m").await;
    let path = format!("/api/flash-sales/sales/{}/waiting-room", sale.id);
    let ask = async |bearer: &str| shop.ask("POST", &path, &[("authorization", bearer)], b"").await;
    let (gold, other) = (bearer(&shop, "gerd", "gold", "DE"), bearer(&shop, "otto", "", "DE"));
    until("gerd waits", async || ask(&gold).await.json()["status"] == "PREQUEUE").await;
    assert_eq!(ask(&other).await.refused(403, "NOT_STARTED")["startsInMs"], 11 * 60 * 1_000);
    refused_for_its_region(&ask(&bearer(&shop, "urs", "gold", "CH")).await);

    shop.advance(MINUTE);
    until("gerd is let in", async || ask(&gold).await.json()["status"] == "ADMITTED").await;
    let token = format!("Bearer {}", ask(&gold).await.text("token"));
    until("the sale sells", async || click(&shop, &sale, &token, &[]).await.status != 503).await;
    assert_eq!(click(&shop, &sale, &token, &[]).await.status, 409, "gerd has bought");
    assert_eq!(ask(&other).await.refused(403, "NOT_STARTED")["startsInMs"], 10 * 60 * 1_000);
    shop.advance(10 * MINUTE);
    let other = bearer(&shop, "otto", "", "DE");
    until("otto is let in", async || ask(&other).await.json()["status"] == "ADMITTED").await;
    shop.finish().await;
}
