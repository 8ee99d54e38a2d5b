//! Payments that the staff enters by hand: once, in full, in time.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use doorbuster_wire::{MarkPaid, Paid};
use futures_util::future::join_all;

use shop::{FLAG_LIFE, PRICE, Shop, WINDOW, refusal};

const MS: Duration = Duration::from_millis(1);

fn payment(event: &str, payment: &str, amount_minor: i64, currency: &str) -> MarkPaid {
    let payment_id = Some(payment.to_owned());
    MarkPaid { event_id: event.to_owned(), payment_id, amount_minor, currency: currency.to_owned() }
}

fn said(paid: &Paid) -> (&str, Option<&str>) {
    (&paid.outcome, paid.status.as_deref())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_at_the_deadline_is_taken_and_a_millisecond_later_it_is_not() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let (in_time, late) = (alice.buy(&sale.item).await.accepted(), bob.buy(&sale.item).await.accepted());
    shop.recorded(&in_time).await;
    shop.recorded(&late).await;

    shop.advance(WINDOW);
    assert_eq!(said(&shop.pay(&in_time, "a").await), ("PAID", Some("PAID")));
    shop.advance(MS);
    // Whether or not the order has been swept by now.
    assert_eq!(said(&shop.pay(&late, "b").await), ("LATE", Some("EXPIRED")));

    assert_eq!(alice.order(&in_time).await.text("status"), "PAID");
    assert_eq!(bob.order(&late).await.text("status"), "EXPIRED");
    shop.until_free(&sale, 4).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_payment_does_not_take_the_unit_from_its_new_owner() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let late = alice.buy(&sale.item).await.accepted();
    shop.recorded(&late).await;
    shop.advance(WINDOW + MS);
    alice.until_status(&late, "EXPIRED").await;
    shop.until_free(&sale, 1).await;
    let new = bob.buy(&sale.item).await.accepted();

    assert_eq!(said(&shop.pay(&late, "late").await), ("LATE", Some("EXPIRED")));
    assert_eq!(said(&shop.pay(&late, "late").await), ("DUPLICATE", Some("EXPIRED")));

    assert_eq!(said(&shop.pay(&new, "new").await), ("PAID", Some("PAID")));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_amount_or_currency_pays_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    shop.recorded(&order).await;

    for (event, amount, currency) in [
        ("a", PRICE - 1, "EUR"),
        ("b", PRICE + 1, "EUR"),
        ("c", PRICE, "USD"),
        ("d", -PRICE, "EUR"),
        ("e", 0, "EUR"),
    ] {
        let paid = shop.admin.mark_paid(&order, &payment(event, event, amount, currency)).await.unwrap();
        assert_eq!(said(&paid), ("AMOUNT_MISMATCH", Some("PENDING")), "{amount} {currency}");
    }
    for wrong in [
        payment("f", "f", PRICE, "euro"),
        payment("", "f", PRICE, "EUR"),
        payment("f", &"x".repeat(129), PRICE, "EUR"),
        payment("f\0", "f", PRICE, "EUR"),
    ] {
        assert_eq!(refusal(shop.admin.mark_paid(&order, &wrong).await), (422, "UNPROCESSABLE".to_owned()));
    }
    let unknown = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";
    let paid = shop.admin.mark_paid(unknown, &payment("g", "g", PRICE, "EUR")).await;
    assert_eq!(refusal(paid), (404, "ORDER_NOT_FOUND".to_owned()));

    // A mismatch ends nothing: the same payment, told right, pays.
    let right = shop.admin.mark_paid(&order, &payment("h", "a", PRICE, "EUR")).await.unwrap();
    assert_eq!(said(&right), ("PAID", Some("PAID")));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_payment_told_twenty_times_at_once_counts_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;

    // The same event ten times, and the same payment under ten other events.
    let staff: Vec<_> = (0..20).map(|_| shop.admin.another()).collect();
    let told = join_all(staff.iter().enumerate().map(async |(number, staff)| {
        let event = if number < 10 { "event".to_owned() } else { format!("event-{number}") };
        staff.mark_paid(&order, &payment(&event, "payment", PRICE, "EUR")).await.unwrap()
    }))
    .await;

    assert_eq!(told.iter().filter(|paid| paid.outcome == "PAID").count(), 1);
    assert_eq!(told.iter().filter(|paid| paid.outcome == "DUPLICATE").count(), 19);
    // Another payment for the same order is another's money.
    let second = shop.admin.mark_paid(&order, &payment("other", "other", PRICE, "EUR")).await.unwrap();
    assert_eq!(said(&second), ("REFUND_DUE", Some("PAID")));
    let page = shop.ask("GET", &format!("/api/flash-sales/sales/{}", sale.id), &[], b"").await;
    assert_eq!(page.json()["items"][0]["free"], 4);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_payment_and_a_cancel_at_once_exactly_one_wins() {
    let shop = Shop::open().await;
    let sale = shop.sale(30).await;
    let buyers: Vec<_> = (0..30).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let mut orders = Vec::new();
    for buyer in &buyers {
        orders.push(buyer.buy(&sale.item).await.accepted());
    }
    for order in &orders {
        shop.recorded(order).await;
    }

    let paid = join_all(buyers.iter().zip(&orders).map(async |(buyer, order)| {
        let staff = shop.admin.another();
        let event = payment(order, order, PRICE, "EUR");
        let (paid, cancelled) = tokio::join!(staff.mark_paid(order, &event), buyer.cancel(order));
        let won = paid.unwrap().outcome == "PAID";
        if won {
            cancelled.refused(409, "ALREADY_PAID");
        } else {
            assert_eq!((cancelled.status, cancelled.text("status").as_str()), (200, "CANCELLED"));
        }
        assert_eq!(buyer.order(order).await.text("status"), if won { "PAID" } else { "CANCELLED" });
        u64::from(won)
    }))
    .await;

    shop.until_free(&sale, 30 - paid.iter().sum::<u64>()).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_for_a_cancelled_order_is_to_be_given_back() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = alice.buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    alice.cancel(&order).await;

    assert_eq!(said(&shop.pay(&order, "late").await), ("REFUND_DUE", Some("CANCELLED")));

    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    let next = bob.buy(&sale.item).await.accepted();
    shop.recorded(&next).await;
    shop.finish().await;
}
