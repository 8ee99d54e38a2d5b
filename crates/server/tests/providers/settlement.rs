//! Behind the deadline: orders that are held while their provider is asked, late payments that buy again,
//! and money that goes back.

use std::time::Duration;

use doorbuster_wire::{CloseRefund, MarkPaid, RefundOrder, RefundRow, RetryRefund};

use crate::shop::{FLAG_LIFE, PRICE, Sale, Shop, WINDOW, order_path, refusal, until};
use crate::till::{self, Told, evidence, payable_order, sandbox_shop};
use crate::{MS, press};

const RETAKE: (&str, &str) = ("payments.late", "retake");
const HOLD: (&str, &str) = ("payments.hold", "20s");

/// The refunds as the staff sees them: payment, state.
async fn refunds(shop: &Shop) -> Vec<(String, String)> {
    let all: Vec<RefundRow> = shop.admin.refunds(None).await.unwrap();
    all.into_iter().map(|it| (it.payment_id, it.state)).collect()
}

/// Buys, and lets the deadline pass; the order is EXPIRED and its unit is back.
async fn expired(shop: &Shop, sale: &Sale, user: &str) -> String {
    let buyer = shop.buyer(user);
    let order = payable_order(shop, &buyer, sale).await;
    till::start(&buyer, &order).await;
    shop.advance(WINDOW + MS);
    buyer.until_status(&order, "EXPIRED").await;
    shop.until_free(sale, 1).await;
    shop.advance(FLAG_LIFE);
    order
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_payment_buys_again_while_something_is_free() {
    let shop = sandbox_shop(&[RETAKE]).await;
    let sale = shop.sale(1).await;
    let alice = shop.buyer("alice");
    let order = expired(&shop, &sale, "alice").await;
    let before = alice.order(&order).await;
    assert_eq!(Told::of(&shop, &order).outcome(&shop).await, "LATE");

    until("it is bought again", async || alice.order(&order).await.json()["retakenBy"].is_string()).await;
    let old = alice.order(&order).await;
    assert_ne!(old.header("etag"), before.header("etag"), "whoever waits for a change hears of it");
    assert_eq!(old.text("status"), "EXPIRED", "the old order stays what it is");
    let retake = old.text("retakenBy");
    let paid = alice.until_status(&retake, "PAID").await;
    assert_eq!((&paid["retakeOf"], &paid["payable"]), (&order.clone().into(), &false.into()));
    assert_eq!(Told::of(&shop, &order).event("again").outcome(&shop).await, "DUPLICATE");
    assert!(refunds(&shop).await.is_empty());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_payment_with_nothing_left_is_given_back() {
    let shop = sandbox_shop(&[RETAKE]).await;
    let sale = shop.sale(1).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = expired(&shop, &sale, "alice").await;
    let theirs = payable_order(&shop, &bob, &sale).await;
    let before = alice.order(&order).await;
    let late = Told::of(&shop, &order);
    assert_eq!(late.outcome(&shop).await, "LATE");

    let refunded = async || alice.order(&order).await.json()["refund"]["status"] == "DONE";
    until("the money is given back", refunded).await;
    assert_eq!(refunds(&shop).await, [(late.payment.clone(), "DONE".to_owned())]);
    assert_ne!(alice.order(&order).await.header("etag"), before.header("etag"), "this too is a change");
    assert_eq!(bob.order(&theirs).await.text("status"), "PENDING", "bob keeps it");
    // Alice sees what was tried for her.
    let tried = alice.my_orders(&sale).await;
    let refused = tried.iter().find(|it| it["retakeOf"] == order.as_str()).unwrap();
    assert_eq!((&refused["status"], &refused["reason"]), (&"REJECTED".into(), &"RETAKE_REFUSED".into()));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_the_other_policy_a_late_payment_is_given_back_at_once() {
    let shop = sandbox_shop(&[("payments.late", "refund")]).await;
    let sale = shop.sale(1).await;
    let alice = shop.buyer("alice");
    let order = expired(&shop, &sale, "alice").await;
    assert_eq!(Told::of(&shop, &order).outcome(&shop).await, "LATE");
    let refunded = async || alice.order(&order).await.json()["refund"]["status"] == "DONE";
    until("the money is given back", refunded).await;
    assert_eq!(alice.my_orders(&sale).await.len(), 1, "nothing is bought again");
    assert_eq!(shop.free(&sale, &sale.item).await, 1);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_is_held_while_its_payment_is_on_its_way() {
    let shop = sandbox_shop(&[RETAKE, HOLD]).await;
    let sale = shop.sale(3).await;
    let (slow, lost, idle) = (shop.buyer("slow"), shop.buyer("lost"), shop.buyer("idle"));
    let idles = payable_order(&shop, &idle, &sale).await;
    till::start(&idle, &idles).await;
    let orders = [payable_order(&shop, &slow, &sale).await, payable_order(&shop, &lost, &sale).await];
    let mut pages = Vec::new();
    for (buyer, order) in [(&slow, &orders[0]), (&lost, &orders[1])] {
        pages.push(till::page_of(&shop, &till::start(buyer, order).await));
    }
    // Told of 30 s later: 15 s behind the deadline, which is within the hold, and 29 s behind it.
    shop.advance(WINDOW - Duration::from_secs(15));
    press(&shop, &pages[0], "late").await;
    shop.advance(Duration::from_secs(14));
    press(&shop, &pages[1], "late").await;
    shop.advance(Duration::from_secs(1) + MS);

    idle.until_status(&idles, "EXPIRED").await;
    for (buyer, order) in [(&slow, &orders[0]), (&lost, &orders[1])] {
        let held = buyer.order(order).await.json();
        assert_eq!((&held["status"], &held["payable"]), (&"PENDING".into(), &false.into()));
        till::start(buyer, order).await.refused(409, "ORDER_CLOSED");
    }
    shop.advance(Duration::from_secs(15));
    slow.until_status(&orders[0], "PAID").await;
    assert_eq!(lost.order(&orders[1]).await.text("status"), "PENDING");
    shop.advance(Duration::from_secs(5));
    lost.until_status(&orders[1], "EXPIRED").await;
    shop.advance(Duration::from_secs(9));
    until("it is bought again", async || lost.order(&orders[1]).await.json()["retakenBy"].is_string()).await;
    lost.until_status(&lost.order(&orders[1]).await.text("retakenBy"), "PAID").await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_staff_refunds_an_order_and_settles_what_it_paid_back_itself() {
    let shop = sandbox_shop(&[]).await;
    let sale = shop.sale(2).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let (order, byhand) =
        (payable_order(&shop, &alice, &sale).await, payable_order(&shop, &bob, &sale).await);
    let asked = |reason: &str| RefundOrder { by: "ada".to_owned(), reason: reason.to_owned() };
    assert_eq!(refusal(shop.admin.refund_order(&order, &asked("why")).await), (409, "CONFLICT".to_owned()));
    till::start(&alice, &order).await;
    assert_eq!(Told::of(&shop, &order).outcome(&shop).await, "PAID");
    assert_eq!(refusal(shop.admin.refund_order(&order, &asked("")).await), (422, "UNPROCESSABLE".to_owned()));

    for _ in 0..2 {
        assert_eq!(shop.admin.refund_order(&order, &asked("does not fit")).await.unwrap().status, "REFUNDED");
    }
    let refunded = async || alice.order(&order).await.json()["refund"]["status"] == "DONE";
    until("the money is given back", refunded).await;
    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    payable_order(&shop, &alice, &sale).await;

    // What was entered by hand no provider gives back: it waits for the staff.
    let paid = MarkPaid {
        event_id: "bank-1".to_owned(),
        payment_id: None,
        amount_minor: PRICE,
        currency: "EUR".to_owned(),
    };
    assert_eq!(shop.admin.mark_paid(&byhand, &paid).await.unwrap().outcome, "PAID");
    shop.admin.refund_order(&byhand, &asked("a mistake")).await.unwrap();
    let due: Vec<RefundRow> = shop.admin.refunds(Some("DUE")).await.unwrap();
    assert_eq!((due.len(), due[0].payment_id.as_str(), due[0].tries), (1, "bank-1", 0));
    let close = |payment: &str| CloseRefund {
        provider: "manual".to_owned(),
        payment_id: payment.to_owned(),
        reference: "transfer-77".to_owned(),
        by: "ada".to_owned(),
    };
    assert_eq!(shop.admin.close_refund(&close("bank-1")).await.unwrap().state, "DONE");
    assert_eq!(
        refusal(shop.admin.close_refund(&close("bank-2")).await),
        (404, "REFUND_NOT_FOUND".to_owned())
    );
    let retry = RetryRefund { provider: "manual".into(), payment_id: "bank-1".into(), by: "ada".into() };
    assert_eq!(shop.admin.retry_refund(&retry).await.unwrap().state, "DONE", "it is done for good");
    assert_eq!(refunds(&shop).await.len(), 2);
    let viewer = shop.staff(|staff| &staff.viewer);
    assert_eq!(refusal(viewer.close_refund(&close("bank-1")).await), (403, "FORBIDDEN".to_owned()));
    shop.finish().await;
}

/// R67: cancel and pay at the same moment; R36: ten cancels at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_cancelling_and_paying_at_once_one_wins_and_the_money_is_somewhere() {
    let shop = sandbox_shop(&[RETAKE]).await;
    let sale = shop.sale(20).await;
    let (mut paid, mut cancelled) = (0, 0);
    for n in 0..10 {
        let user = format!("user-{n}");
        let buyer = shop.buyer(&user);
        let order = payable_order(&shop, &buyer, &sale).await;
        till::start(&buyer, &order).await;
        let told = Told::of(&shop, &order);
        let (outcome, answers) = tokio::join!(
            told.outcome(&shop),
            futures_util::future::join_all((0..10).map(|_| buyer.cancel(&order)))
        );
        let status = buyer.ask("GET", &order_path(&order), &[], "").await.text("status");
        match outcome.as_str() {
            "PAID" => {
                assert_eq!(status, "PAID");
                assert!(answers.iter().all(|it| it.status == 409), "user {n}");
                paid += 1;
            }
            "REFUND_DUE" => {
                assert_eq!(status, "CANCELLED");
                assert!(answers.iter().all(|it| it.status == 200), "user {n}");
                cancelled += 1;
            }
            other => panic!("user {n}: {other}"),
        }
        assert_eq!(evidence(&shop, &order).await.len(), 1);
    }
    until("all is given back", async || {
        refunds(&shop).await.iter().filter(|it| it.1 == "DONE").count() == cancelled
    })
    .await;
    shop.until_free(&sale, 20 - paid).await;
    shop.finish().await;
}
