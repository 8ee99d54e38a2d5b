//! How many rows the server reads for a batch: those of the batch, and not all that are there. Its statistics
//! know nothing of the first round, and before the second they say that nothing is pending.

use std::time::Duration;

use doorbuster_engine::conformance::sample;
use doorbuster_engine::ledger::{
    Orders, PayOutcome, Payments, PostgresLedger, PostgresOptions, RecordOutcome, Releases,
};

use crate::shop::{PATIENCE, Shop, WINDOW, batch_of, options, payment_of};

const BATCH: usize = 400;
const BATCHES: usize = 20;
const ORDERS: i64 = (BATCH * BATCHES) as i64;
/// Orders that are paid in a round.
const PAID: i64 = 40;
const SPREAD: Duration = Duration::from_secs(3_600);

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
    let mut shop = Shop::with(PostgresOptions { release_spread: SPREAD, ..options("plans") }).await;
    for table in TABLES {
        let sql = format!("ALTER TABLE {table} SET (autovacuum_enabled = off)");
        shop.sql.batch_execute(&sql).await.unwrap();
    }
    shop.sale(20_000, 1).await;
    let (mut first, mut written, mut before) = (0, 0, 0);
    for round in ["without statistics", "by statistics of a quiet time"] {
        let orders: Vec<_> = (first..).map(sample::order_placed).take(BATCH * BATCHES).collect();
        for (at, orders) in (first..).step_by(BATCH).zip(orders.chunks(BATCH)) {
            let batch = batch_of(0, at, orders.to_vec());
            assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
        }
        written += 2 * ORDERS;
        let read = rows_read(&mut shop, written).await;
        let recording = read - before;
        assert!(recording < ORDERS, "{round}: {recording} rows were read to record {ORDERS} orders");

        for n in first..first + PAID.cast_unsigned() {
            let paid = shop.ledger.pay(&payment_of(n, &format!("e-{n}"), &format!("p-{n}"))).await.unwrap();
            assert_eq!(paid, PayOutcome::Paid);
        }
        written += PAID;
        before = read;
        let read = rows_read(&mut shop, written).await;
        let paying = read - before;
        assert!(paying < 20 * PAID, "{round}: {paying} rows were read to take {PAID} payments");

        shop.clock.advance(WINDOW + Duration::from_millis(1));
        let mut closed = 0;
        loop {
            let expired = shop.ledger.expire(BATCH, Duration::ZERO).await.unwrap();
            closed += expired.closed.cast_signed();
            if !expired.more {
                break;
            }
        }
        assert_eq!(closed, ORDERS - PAID);
        written += 3 * closed;
        before = read;
        let read = rows_read(&mut shop, written).await;
        let expiring = read - before;
        assert!(expiring < 8 * ORDERS, "{round}: {expiring} rows were read to expire {closed} orders");

        // Hardly one of them is due yet.
        for _ in 0..BATCHES {
            let due = shop.ledger.releases_due(&[], BATCH).await.unwrap();
            let due: Vec<_> = due.iter().map(|row| row.order).collect();
            shop.ledger.releases_done(&due).await.unwrap();
            written += due.len() as i64;
        }
        before = read;
        let read = rows_read(&mut shop, written).await;
        let looking = read - before;
        assert!(looking < ORDERS, "{round}: {looking} rows were read to find what is due, {BATCHES} times");

        shop.clock.advance(SPREAD);
        loop {
            let due = shop.ledger.releases_due(&[], BATCH).await.unwrap();
            if due.is_empty() {
                break;
            }
            let due: Vec<_> = due.iter().map(|row| row.order).collect();
            shop.ledger.releases_done(&due).await.unwrap();
            written += due.len() as i64;
        }
        before = read;
        let read = rows_read(&mut shop, written).await;
        let returning = read - before;
        // What waits here is so little that reading all of it costs no more than an index.
        assert!(returning < 20 * ORDERS, "{round}: {returning} rows were read to return {closed} units");
        for table in TABLES {
            shop.sql.batch_execute(&format!("ANALYZE {table}")).await.unwrap();
        }
        before = read;
        first += ORDERS.cast_unsigned();
    }
    shop.close().await;
}
