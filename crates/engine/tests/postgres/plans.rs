//! How many rows the server reads for a batch, while its statistics know nothing of the sale: those of the
//! batch, and not all that are there.

use std::time::Duration;

use doorbuster_engine::conformance::sample;
use doorbuster_engine::ledger::{Orders, PostgresLedger, PostgresOptions, RecordOutcome, Releases};

use crate::shop::{PATIENCE, Shop, WINDOW, batch_of, options};

const BATCH: usize = 400;
const BATCHES: i64 = 20;
const ORDERS: i64 = 8_000;

/// The tables that grow with a sale.
const TABLES: [&str; 3] = ["orders", "buyer", "release_row"];

/// Rows that the server has read of them, once it counts `written`: a connection's counts are in when it
/// has ended, so this ends those of the ledger.
async fn rows_read(shop: &mut Shop, written: i64) -> i64 {
    shop.ledger = PostgresLedger::connect(&shop.options).await.unwrap().into();
    let sql = "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::bigint, \
             sum(n_tup_ins + n_tup_upd + n_tup_del)::bigint FROM pg_stat_user_tables \
         WHERE schemaname = current_schema() AND relname = ANY($1)";
    let counted = async {
        loop {
            let row = shop.sql.query_one(sql, &[&TABLES.as_slice()]).await.unwrap();
            if row.get::<_, i64>(1) >= written {
                return row.get(0);
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, counted).await.expect("the server counts what was written")
}

#[tokio::test]
async fn a_batch_reads_its_own_rows_and_not_all_that_are_there() {
    let options = PostgresOptions { release_spread: Duration::from_secs(3_600), ..options("plans") };
    let mut shop = Shop::with(options).await;
    for table in TABLES {
        let sql = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        shop.sql.batch_execute(&sql).await.unwrap();
    }
    shop.sale(10_000, 1).await;
    let orders: Vec<_> = (0..).map(sample::order_placed).take(BATCH * 20).collect();
    for (first, orders) in (0..).step_by(BATCH).zip(orders.chunks(BATCH)) {
        let batch = batch_of(0, first, orders.to_vec());
        assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
    }
    let recording = rows_read(&mut shop, 2 * ORDERS).await;
    assert!(recording < ORDERS, "{recording} rows were read to record {ORDERS} orders");

    shop.clock.advance(WINDOW + Duration::from_millis(1));
    for _ in 0..BATCHES {
        let expired = shop.ledger.expire(BATCH, Duration::ZERO).await.unwrap();
        assert!(expired.closed == BATCH as u64 && expired.more, "{expired:?}");
    }
    let expiring = rows_read(&mut shop, 5 * ORDERS).await - recording;
    assert!(expiring < 8 * ORDERS, "{expiring} rows were read to expire {ORDERS} orders");

    // Hardly one of them is due yet.
    for _ in 0..BATCHES {
        let due = shop.ledger.releases_due(&[], BATCH).await.unwrap();
        let due: Vec<_> = due.iter().map(|row| row.order).collect();
        shop.ledger.releases_done(&due).await.unwrap();
    }
    shop.clock.advance(Duration::from_secs(3_600));
    let due = shop.ledger.releases_due(&[], 1).await.unwrap();
    shop.ledger.releases_done(&[due[0].order]).await.unwrap();
    let looking = rows_read(&mut shop, 5 * ORDERS + 1).await - recording - expiring;
    assert!(looking < ORDERS, "{looking} rows were read to find what is due, {BATCHES} times");
    shop.close().await;
}
