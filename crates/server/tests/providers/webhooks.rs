//! Webhooks: who may send them, and what they may do.

use futures_util::future::join_all;

use crate::shop::http::request;
use crate::shop::{Buyer, PRICE, Sale, Shop, WINDOW};
use crate::till::{self, Told, WEBHOOK, evidence, payable_order, sandbox_shop};
use crate::{HELD, MS};

/// An order whose payment was begun.
async fn begun(shop: &Shop, buyer: &Buyer<'_>, sale: &Sale) -> String {
    let order = payable_order(shop, buyer, sale).await;
    assert_eq!(till::start(buyer, &order).await.status, 200);
    order
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_proves_nothing_is_refused_and_changes_nothing() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = begun(&shop, &alice, &sale).await;
    let good = Told::of(&shop, &order);
    let body = good.body();
    let signature = good.signature(&body);

    shop.ask("POST", WEBHOOK, &[], &body).await.refused(400, "WEBHOOK_REFUSED");
    for bad in ["", "v1", "v1,", "v1,!", "v2,AAAA", &signature[..signature.len() - 4], &signature[1..]] {
        good.send_as(&shop, bad, &body).await.refused(400, "WEBHOOK_REFUSED");
    }
    let forged = Told { secret: "another secret that somebody guessed", ..good.clone() };
    forged.send(&shop).await.refused(400, "WEBHOOK_REFUSED");
    // The same event, parsed and written again; cut short; with another amount; under another name.
    let again = [body.as_slice(), b" "].concat();
    good.send_as(&shop, &signature, &again).await.refused(400, "WEBHOOK_REFUSED");
    good.send_as(&shop, &signature, &body[..body.len() - 1]).await.refused(400, "WEBHOOK_REFUSED");
    let dear = String::from_utf8(body.clone()).unwrap().replace("1990", "1991");
    good.send_as(&shop, &signature, dear.as_bytes()).await.refused(400, "WEBHOOK_REFUSED");
    good.event("evt-other").send_as(&shop, &signature, &body).await.refused(400, "WEBHOOK_REFUSED");
    for at in [good.at - 301, good.at + 301, 0] {
        Told { at, ..good.clone() }.send(&shop).await.refused(400, "WEBHOOK_REFUSED");
    }
    // Signed well, and no event.
    let huge = format!(r#"{{"amountMinor":{}}}"#, "9".repeat(40));
    for nonsense in ["", "{", "[]", "{}", huge.as_str()] {
        let signed = good.signature(nonsense.as_bytes());
        good.send_as(&shop, &signed, nonsense.as_bytes()).await.refused(400, "WEBHOOK_REFUSED");
    }
    let long = vec![b' '; 64 * 1024 + 1];
    let refused = good.send_as(&shop, &good.signature(&long), &long).await;
    refused.refused(413, "CONTENT_TOO_LARGE");
    shop.ask("GET", WEBHOOK, &[], b"").await.refused(405, "METHOD_NOT_ALLOWED");
    shop.ask("POST", &WEBHOOK.replace("sandbox", "stripe"), &[], &body).await.refused(404, "NOT_FOUND");

    assert!(evidence(&shop, &order).await.is_empty(), "nothing of it was stored");
    assert_eq!(alice.order(&order).await.text("status"), "PENDING");
    for at in [good.at - 300, good.at + 300] {
        let told = Told { at, kind: "payment.failed", ..good.event(&format!("evt-{at}")) };
        assert_eq!(told.outcome(&shop).await, "FAILED", "five minutes off is near enough");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_webhook_a_hundred_times_at_once_counts_once() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = begun(&shop, &alice, &sale).await;
    let told = Told::of(&shop, &order);

    let outcomes = join_all((0..100).map(|_| told.outcome(&shop))).await;

    let count = |word: &str| outcomes.iter().filter(|it| *it == word).count();
    assert_eq!((count("PAID"), count("DUPLICATE")), (1, 99), "{outcomes:?}");
    assert_eq!(told.event("evt-2").outcome(&shop).await, "DUPLICATE", "another event of the same payment");
    let second = Told { payment: "sandbox_second".to_owned(), ..told.event("evt-3") };
    assert_eq!(second.outcome(&shop).await, "REFUND_DUE", "a second payment of the same order");
    assert_eq!(evidence(&shop, &order).await.len(), 3);
    let page = shop.ask("GET", &format!("/api/flash-sales/sales/{}", sale.id), &[], b"").await;
    assert_eq!(page.json()["items"][0]["free"], 4);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_configured_secret_signs_and_a_removed_one_does_not() {
    let [old, new] = ["the-old-secret-of-this-shop", "the-new-secret-of-this-shop"];
    let both = format!("{new} {old}");
    for (settings, works) in [(&[("payments.webhook_secret", both.as_str())][..], true), (&[][..], false)] {
        let shop = sandbox_shop(settings).await;
        let sale = shop.sale(5).await;
        for (user, secret) in [("alice", old), ("bob", new)] {
            let buyer = shop.buyer(user);
            let order = begun(&shop, &buyer, &sale).await;
            let told = Told { secret, ..Told::of(&shop, &order) };
            if works {
                assert_eq!(told.outcome(&shop).await, "PAID", "{user}");
            } else {
                told.send(&shop).await.refused(400, "WEBHOOK_REFUSED");
            }
        }
        shop.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_does_not_fit_its_order_is_kept_and_changes_nothing() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = begun(&shop, &alice, &sale).await;
    let good = Told::of(&shop, &order);

    for (event, amount, currency) in [
        ("cheap", PRICE - 1, "EUR"),
        ("dear", PRICE + 1, "EUR"),
        ("nothing", 0, "EUR"),
        ("negative", -PRICE, "EUR"),
        ("huge", i64::MAX, "EUR"),
        ("dollars", PRICE, "USD"),
    ] {
        let told = Told { amount, currency, ..good.event(event) };
        assert_eq!(told.outcome(&shop).await, "AMOUNT_MISMATCH", "{event}");
        assert_eq!(told.outcome(&shop).await, "DUPLICATE", "{event} again");
    }
    let unknown = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";
    assert_eq!(Told::of(&shop, unknown).outcome(&shop).await, "UNKNOWN_ATTEMPT");
    assert_eq!(evidence(&shop, unknown).await, [("SUCCEEDED".to_owned(), "UNKNOWN_ATTEMPT".to_owned())]);
    assert_eq!(Told { kind: "payment.created", ..good.event("created") }.outcome(&shop).await, "IGNORED");

    // An attempt is bound to its order, and a payment to its attempt.
    let other = begun(&shop, &bob, &sale).await;
    let theirs = Told { order: other.clone(), ..good.event("crossed") };
    assert_eq!(theirs.outcome(&shop).await, "OTHER_ORDER");
    let payment = Told { payment: good.payment.clone(), ..Told::of(&shop, &other).event("borrowed") };
    assert_eq!(payment.outcome(&shop).await, "OTHER_ORDER");
    assert_eq!(bob.order(&other).await.text("status"), "PENDING");
    assert_eq!(evidence(&shop, &other).await.len(), 2);

    // Told right, the payment of the first order still counts; behind deadline and hold the other's does not.
    assert_eq!(good.event("right").outcome(&shop).await, "PAID");
    shop.advance(WINDOW + HELD + MS);
    let late = Told::of(&shop, &other).event("late");
    assert_eq!(late.outcome(&shop).await, "LATE");
    assert_eq!(bob.order(&other).await.text("status"), "EXPIRED");
    shop.until_free(&sale, 4).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_contradicts_a_payment_changes_nothing_and_what_gives_it_back_does() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = begun(&shop, &alice, &sale).await;
    let paid = Told::of(&shop, &order);

    assert_eq!(paid.outcome(&shop).await, "PAID");
    let failed = Told { kind: "payment.failed", ..paid.event("failed") };
    assert_eq!(failed.outcome(&shop).await, "CONTRADICTION");
    let part = Told { kind: "payment.refunded", amount: 1, ..paid.event("part") };
    assert_eq!(part.outcome(&shop).await, "PARTLY_REFUNDED");
    assert_eq!(alice.order(&order).await.text("status"), "PAID");
    let refunded = Told { kind: "payment.refunded", ..paid.event("refunded") };
    assert_eq!(refunded.outcome(&shop).await, "REFUNDED");
    assert_eq!(paid.event("again").outcome(&shop).await, "DUPLICATE", "R54: a late success flips nothing");

    let end = alice.order(&order).await.json();
    assert_eq!((&end["status"], &end["refund"]["status"]), (&"REFUNDED".into(), &"DONE".into()));
    shop.until_free(&sale, 5).await;
    let outcomes: Vec<String> = evidence(&shop, &order).await.into_iter().map(|it| it.1).collect();
    assert_eq!(outcomes.len(), 5);
    assert!(outcomes.contains(&"CONTRADICTION".to_owned()), "{outcomes:?}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_webhook_that_is_cut_short_on_its_way_is_no_event() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = begun(&shop, &alice, &sale).await;
    let told = Told::of(&shop, &order);
    let (body, at) = (told.body(), told.at.to_string());
    let signature = told.signature(&body);
    let headers = [
        ("webhook-id", told.event.as_str()),
        ("webhook-timestamp", at.as_str()),
        ("webhook-signature", signature.as_str()),
    ];

    let mut line = shop.line().await;
    let whole = request("POST", WEBHOOK, &headers, &body);
    line.send(&whole[..whole.len() - 10]).await.unwrap();
    drop(line);

    assert_eq!(told.outcome(&shop).await, "PAID", "the cut one was not stored in its place");
    assert_eq!(evidence(&shop, &order).await.len(), 1);
    shop.finish().await;
}
