//! `/readyz`: whether buyers should be sent here, and why not.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::time::Duration;

use shop::{Shop, until};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_that_hangs_while_an_order_waits_turns_the_probe_red_until_it_goes_on() {
    let shop = Shop::open_with(&[("server.recorder_stall_max", "1s")]).await;
    let sale = shop.sale(5).await;
    assert_eq!(shop.ask("GET", "/readyz", &[], b"").await.status, 200);

    // Another program holds the ledger's write lock: the recorder's step waits for it, then fails.
    let other = rusqlite::Connection::open(shop.data().join("ledger.sqlite")).unwrap();
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    let mut said = String::new();
    until("the probe names the recorder", async || {
        let ready = shop.ask("GET", "/readyz", &[], b"").await;
        said = ready.said();
        ready.status == 503 && said.contains("the recorder of this process") && said.contains("wait: 1)")
    })
    .await;

    other.execute_batch("ROLLBACK").unwrap();
    assert_eq!(shop.recorded(&order).await.status, "PENDING", "{said}");
    until("all is well again", async || shop.ask("GET", "/readyz", &[], b"").await.status == 200).await;
    shop.finish().await;
}
