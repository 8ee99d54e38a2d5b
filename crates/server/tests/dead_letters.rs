//! Records that cannot be applied: the staff sees them, applies them again, or gives them up.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::sync::Arc;

use doorbuster_engine::clock::Clock;
use doorbuster_engine::conformance::sample;
use doorbuster_engine::order::{ItemId, SaleId, UserId};
use doorbuster_engine::queue::{self, EmbeddedQueue, QueueOptions};
use doorbuster_wire::{DeadLetter, DropDeadLetter, ReplayDeadLetter};

use shop::{Sale, Shop, refusal, until};

/// Puts these records behind what the stopped server's log has, and starts it again.
async fn append(shop: &mut Shop, records: Vec<Vec<u8>>) {
    shop.stop().await;
    let clock = Arc::clone(&shop.clock) as Arc<dyn Clock>;
    let folder = shop.data().join("queue");
    let log = EmbeddedQueue::open(&folder, |_| 0, clock, QueueOptions::default()).unwrap();
    for record in records {
        log.append_bytes(record).await.unwrap();
    }
    drop(log);
    shop.start_again().await.unwrap();
}

/// The order of a buyer whose hold the present stock does not have.
fn old_order(sale: &Sale) -> doorbuster_engine::order::OrderPlaced {
    let mut order = sample::order_placed(77);
    order.reservation.sale = sale.id.parse::<SaleId>().unwrap();
    order.reservation.item = sale.item.parse::<ItemId>().unwrap();
    order.reservation.user = UserId::new("zoe").unwrap();
    order
}

async fn waiting(shop: &Shop, count: usize) -> Vec<DeadLetter> {
    until("the records are parked", async || shop.admin.dead_letters(false).await.unwrap().len() == count)
        .await;
    shop.admin.dead_letters(false).await.unwrap()
}

fn by(name: &str) -> ReplayDeadLetter {
    ReplayDeadLetter { by: name.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_waits_and_is_dropped_with_who_and_why() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(2).await;
    append(&mut shop, vec![b"\xff not a message".to_vec()]).await;
    let letters = waiting(&shop, 1).await;
    let id = letters[0].id.clone();
    assert_eq!((letters[0].size, letters[0].bytes.as_ref()), (15, None), "a list has no bytes");
    let whole = shop.admin.dead_letter(&id).await.unwrap();
    assert_eq!(whole.bytes.as_deref(), Some("/yBub3QgYSBtZXNzYWdl"));
    // The others went on.
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;

    let replayed = shop.admin.replay_dead_letter(&id, &by("ada")).await;
    assert_eq!(refusal(replayed), (422, "UNPROCESSABLE".to_owned()));
    let drop = |by: &str, reason: &str| DropDeadLetter { by: by.to_owned(), reason: reason.to_owned() };
    for (by, reason) in
        [("", "x"), ("ada", ""), ("ada", "a\nb"), (&"a".repeat(129), "x"), ("ada", &"a".repeat(501))]
    {
        let refused = shop.admin.drop_dead_letter(&id, &drop(by, reason)).await;
        assert_eq!(refusal(refused), (422, "UNPROCESSABLE".to_owned()), "{by:?}, {reason:?}");
    }
    let viewer = shop.staff(|staff| &staff.viewer);
    assert_eq!(viewer.dead_letters(true).await.unwrap().len(), 1);
    assert_eq!(refusal(viewer.drop_dead_letter(&id, &drop("eve", "x")).await), (403, "FORBIDDEN".to_owned()));

    let dropped = shop.admin.drop_dead_letter(&id, &drop("ada", "a test")).await.unwrap();
    let closing = dropped.closing.unwrap();
    assert_eq!(
        (closing.how.as_str(), closing.by.as_str(), closing.reason.as_str()),
        ("dropped", "ada", "a test")
    );
    let conflict = (409, "CONFLICT".to_owned());
    assert_eq!(refusal(shop.admin.drop_dead_letter(&id, &drop("eve", "x")).await), conflict);
    assert_eq!(refusal(shop.admin.replay_dead_letter(&id, &by("eve")).await), conflict);
    assert!(shop.admin.dead_letters(false).await.unwrap().is_empty());
    assert_eq!(shop.admin.dead_letters(true).await.unwrap()[0].closing.as_ref(), Some(&closing));
    for missing in ["999", "0", "x"] {
        assert_eq!(
            refusal(shop.admin.dead_letter(missing).await),
            (404, "DEAD_LETTER_NOT_FOUND".to_owned()),
            "{missing}"
        );
    }
    shop.finish().await;
}

/// An order in a form that the queue's reader does not know stands for a message that a program of
/// another version wrote, or a damaged one that was mended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_is_applied_again_once_and_by_the_ordinary_rules() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(2).await;
    let order = old_order(&sale);
    let bare = serde_json::to_vec(&order).unwrap();
    append(&mut shop, vec![bare.clone(), bare]).await;
    let letters = waiting(&shop, 2).await;

    // A stock was loaded without it since, so it comes too late: the ledger says so for good.
    let replayed = shop.admin.replay_dead_letter(&letters[0].id, &by("ada")).await.unwrap();
    assert_eq!((replayed.outcome.as_str(), replayed.order.status.as_str()), ("RECORDED", "REJECTED"));
    assert_eq!(replayed.order.reason.as_deref(), Some("STALE_EPOCH"));
    let again = shop.admin.replay_dead_letter(&letters[0].id, &by("ada")).await;
    assert_eq!(refusal(again), (409, "CONFLICT".to_owned()));
    let copy = shop.admin.replay_dead_letter(&letters[1].id, &by("ada")).await.unwrap();
    assert_eq!((copy.outcome.as_str(), copy.order), ("KNOWN", replayed.order));
    let closing = shop.admin.dead_letter(&letters[0].id).await.unwrap().closing.unwrap();
    assert_eq!((closing.how.as_str(), closing.reason.as_str()), ("replayed", "REJECTED (STALE_EPOCH)"));
    shop.until_free(&sale, 2).await;
    shop.finish().await;
}

/// What the ledger could read and had to refuse is final: its units went back when it was parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_that_was_refused_as_unreadable_is_not_brought_back() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(2).await;
    let mut order = old_order(&sale);
    order.reservation.units = doorbuster_engine::order::Units(9);
    append(&mut shop, vec![queue::encode(&order)]).await;
    let letters = waiting(&shop, 1).await;
    let row = shop.admin.order(&order.reservation.order.to_string()).await.unwrap();
    assert_eq!((row.status.as_str(), row.reason.as_deref()), ("REJECTED", Some("UNREADABLE")));
    let refused = shop.admin.replay_dead_letter(&letters[0].id, &by("ada")).await;
    assert_eq!(refusal(refused), (409, "CONFLICT".to_owned()));
    assert!(
        shop.admin.dead_letter(&letters[0].id).await.unwrap().closing.is_none(),
        "it waits to be dropped"
    );
    shop.finish().await;
}
