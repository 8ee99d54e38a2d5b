//! Payments at a provider: the sandbox's page by plain HTTP, webhooks of every kind, and Stripe against a
//! stand-in of its API.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

mod settlement;
#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
#[path = "../shop/mod.rs"]
mod shop;
mod stripe;
mod till;
mod webhooks;

use std::time::Duration;

use shop::{FLAG_LIFE, Shop, WINDOW, order_path, until};
use till::{Told, evidence, payable_order, sandbox_shop};

/// A millisecond.
const MS: Duration = Duration::from_millis(1);
/// How long an order is held for its buyer at the provider's page, by default.
const HELD: Duration = Duration::from_secs(20);

/// Presses a button of the sandbox's page without a script: the form's address, then the page it leads to.
async fn press(shop: &Shop, page: &str, choice: &str) {
    let pressed = shop.ask("POST", &format!("{page}?do={choice}&lang=en"), &[], b"").await;
    assert_eq!(pressed.status, 303, "{}", pressed.said());
    let shown = shop.ask("GET", &format!("{page}{}", pressed.header("location").unwrap()), &[], b"").await;
    assert_eq!(shown.status, 200);
    assert!(String::from_utf8_lossy(&shown.body).contains("role=\"status\""), "{}", shown.said());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buyer_pays_on_the_sandboxs_page() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;

    let started = till::start(&alice, &order).await;
    assert_eq!(started.status, 200, "{}", started.said());
    assert_eq!(started.header("cache-control"), Some("no-store"));
    assert_eq!(started.text("expiresAt"), alice.order(&order).await.text("expiresAt"));
    let again = till::start(&alice, &order).await;
    assert_eq!(again.text("paymentUrl"), started.text("paymentUrl"), "again is the same attempt");

    let page = till::page_of(&shop, &started);
    for (language, says) in [("en", "Sandbox payment"), ("fr", "Paiement d’essai"), ("zh-CN", "沙盒付款")]
    {
        let shown = shop.ask("GET", &page, &[("accept-language", language)], b"").await;
        let text = String::from_utf8(shown.body.clone()).unwrap();
        assert!(shown.status == 200 && text.contains(says) && text.contains("19.90 EUR"), "{text}");
        assert!(!text.contains("<script") && text.contains(&order));
        let policy = shown.header("content-security-policy").unwrap();
        assert!(
            policy.starts_with("default-src 'none'") && policy.contains("form-action 'self'"),
            "{policy}"
        );
    }
    press(&shop, &page, "pay").await;

    alice.until_status(&order, "PAID").await;
    till::start(&alice, &order).await.refused(409, "ALREADY_PAID");
    alice.cancel(&order).await.refused(409, "ALREADY_PAID");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_payment_the_buyer_pays_at_the_same_page() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;
    let started = till::start(&alice, &order).await;
    let page = till::page_of(&shop, &started);

    press(&shop, &page, "fail").await;
    until("the failure is known", async || !evidence(&shop, &order).await.is_empty()).await;
    assert_eq!(alice.order(&order).await.json()["payable"], true, "the units stay held until the deadline");
    assert_eq!(till::start(&alice, &order).await.text("paymentUrl"), started.text("paymentUrl"));
    // Events of one moment are in no order.
    shop.advance(MS);
    press(&shop, &page, "pay").await;

    alice.until_status(&order, "PAID").await;
    let told = evidence(&shop, &order).await;
    assert_eq!(told, [("FAILED".to_owned(), "FAILED".to_owned()), ("SUCCEEDED".to_owned(), String::new())]);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_button_of_the_sandbox_does_what_it_says() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    for (choice, status, events) in
        [("twice", "PAID", 2), ("short", "PENDING", 1), ("contradict", "PAID", 2), ("late", "PENDING", 0)]
    {
        let buyer = shop.buyer(choice);
        let order = payable_order(&shop, &buyer, &sale).await;
        let page = till::page_of(&shop, &till::start(&buyer, &order).await);
        press(&shop, &page, choice).await;
        until(choice, async || evidence(&shop, &order).await.len() == events).await;
        assert_eq!(buyer.order(&order).await.text("status"), status, "{choice}");
        let outcomes: Vec<String> = evidence(&shop, &order).await.into_iter().map(|it| it.1).collect();
        match choice {
            "contradict" => assert_eq!(outcomes, ["", "CONTRADICTION"]),
            "short" => {
                press(&shop, &page, "pay").await;
                buyer.until_status(&order, "PAID").await;
            }
            "late" => {
                // What is told at once overtakes it.
                press(&shop, &page, "fail").await;
                until("the failure is known", async || evidence(&shop, &order).await.len() == 1).await;
                shop.advance(Duration::from_secs(30));
                buyer.until_status(&order, "PAID").await;
            }
            _ => {}
        }
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_told_behind_the_deadline_is_given_back() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(1).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = payable_order(&shop, &alice, &sale).await;
    let page = till::page_of(&shop, &till::start(&alice, &order).await);
    press(&shop, &page, "late").await;
    shop.advance(WINDOW + MS);

    alice.until_status(&order, "EXPIRED").await;
    until("the payment is known", async || evidence(&shop, &order).await.len() == 1).await;
    assert_eq!(
        alice.order(&order).await.text("status"),
        "EXPIRED",
        "its money does not bring the order back"
    );
    let refunded = async || alice.order(&order).await.json()["refund"]["status"] == "DONE";
    until("the money is given back", refunded).await;
    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    let next = bob.buy(&sale.item).await.accepted();
    shop.recorded(&next).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_begins_for_its_owner_alone_and_while_it_may() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(5).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = payable_order(&shop, &alice, &sale).await;
    let cancelled = payable_order(&shop, &bob, &sale).await;
    bob.cancel(&cancelled).await;

    let unknown = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";
    let theirs = till::start(&bob, &order).await.refused(404, "ORDER_NOT_FOUND");
    let nobodys = till::start(&bob, unknown).await.refused(404, "ORDER_NOT_FOUND");
    assert_eq!(theirs["detail"], nobodys["detail"], "another's order and none are told alike");
    till::start(&bob, "no-order").await.refused(404, "ORDER_NOT_FOUND");
    shop.ask("POST", &till::payment_path(&order), &[], b"").await.refused(401, "UNAUTHENTICATED");
    till::start(&bob, &cancelled).await.refused(409, "ORDER_CLOSED");
    assert!(evidence(&shop, &order).await.is_empty());

    shop.advance(WINDOW);
    assert_eq!(till::start(&alice, &order).await.status, 200, "at the deadline");
    shop.advance(MS);
    till::start(&alice, &order).await.refused(409, "ORDER_CLOSED");
    alice.until_status(&order, "EXPIRED").await;
    till::start(&alice, &order).await.refused(409, "ORDER_CLOSED");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_sandbox_there_is_no_way_into_it() {
    let page_of_another = {
        let shop = sandbox_shop(&[]).await;
        let sale = shop.sale(1).await;
        let alice = shop.buyer("alice");
        let order = payable_order(&shop, &alice, &sale).await;
        let page = till::page_of(&shop, &till::start(&alice, &order).await);
        // A page's address that was changed is nobody's.
        let broken = format!("{}x", &page[..page.len() - 2]);
        assert_eq!(shop.ask("GET", &broken, &[], b"").await.status, 404);
        assert_eq!(shop.ask("POST", &format!("{broken}?do=pay"), &[], b"").await.status, 404);
        shop.finish().await;
        page
    };
    let nowhere = "127.0.0.1:1";
    let api_url = format!("http://{nowhere}");
    let stripe = [("payments.stripe.api_url", api_url.as_str()), ("payments.stripe.api_key", "sk_test_1")];
    for (provider, more) in [("none", &[][..]), ("stripe", &stripe[..])] {
        let settings = [&till::settings(provider)[..], more].concat();
        let shop = Shop::open_with(&settings).await;
        let sale = shop.sale(1).await;
        let alice = shop.buyer("alice");
        let order = payable_order(&shop, &alice, &sale).await;
        for method in ["GET", "POST"] {
            let reply = shop.ask(method, &page_of_another, &[], b"").await;
            reply.refused(404, "NOT_FOUND");
        }
        let told = Told::of(&shop, &order);
        told.send(&shop).await.refused(404, "NOT_FOUND");
        if provider == "none" {
            till::start(&alice, &order).await.refused(404, "NOT_FOUND");
        }
        assert_eq!(alice.ask("GET", &order_path(&order), &[], "").await.text("status"), "PENDING");
        shop.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_without_its_secrets_does_not_start() {
    for (settings, says) in [
        (vec![("payments.provider", "stripe")], "payments.webhook_secret_file"),
        (till::settings("stripe").to_vec(), "payments.stripe.api_key_file"),
        (vec![("payments.provider", "sandbox"), ("payments.webhook_secret", "short")], "24 bytes"),
        (
            vec![("payments.provider", "sandbox"), ("payments.public_url", "shop.example")],
            "payments.public_url",
        ),
        (
            vec![("payments.provider", "sandbox"), ("payments.return_url", "javascript:1")],
            "payments.return_url",
        ),
    ] {
        let error = Shop::try_open(&settings).await.err().map(|error| format!("{error:#}"));
        let error = error.unwrap_or_else(|| panic!("started with {settings:?}"));
        assert!(error.contains(says) && !error.contains(till::SECRET), "{error}");
    }
}
