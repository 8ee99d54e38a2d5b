//! Orders recorded in a real PostgreSQL, batch after batch as a recorder does: what the benchmark
//! measures.
//!
//! `record URL ORDERS` makes a schema of its own, prints one JSON object and leaves the schema.
#![expect(clippy::print_stdout, reason = "a program for the benchmark: it prints its figure")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::time::{Duration, Instant};

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Batch, Decoded, Delivered, Position, TopicId};
use doorbuster_engine::ledger::{
    Ledger, Orders, Positions, PostgresLedger, PostgresOptions, PostgresUrl, RebuildOutcome, RecordOutcome,
};
use doorbuster_engine::order::{Epoch, OrderId, OrderPlaced};
use doorbuster_engine::queue::BATCH_MAX;
use doorbuster_engine::sale::{LoaderToken, Sale};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, orders] = words.as_slice() else { return Err("record URL ORDERS".into()) };
    let orders = orders.parse()?;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(url, orders))
}

async fn run(url: &str, orders: u64) -> Result<(), Box<dyn std::error::Error>> {
    let schema = format!("record_{:x}", rand::random::<u64>());
    let options = PostgresOptions { schema: schema.clone(), ..PostgresOptions::new(PostgresUrl::new(url)) };
    let ledger = PostgresLedger::connect(&options).await?;
    let position = |next| Position { topic: TopicId("record".to_owned()), partition: 0, next };
    ledger.register(&[position(0)]).await?;
    let sale = open(&ledger, orders).await?;
    let batches: Vec<Batch> = (0..orders)
        .step_by(BATCH_MAX)
        .map(|first| {
            let next = orders.min(first + BATCH_MAX as u64);
            let records = (first..next).map(|offset| Delivered {
                offset,
                appended_at: SystemClock::new().now(),
                contents: Decoded::Order(Box::new(order(&sale, offset))),
            });
            Batch { from: position(first), next, records: records.collect() }
        })
        .collect();

    let began = Instant::now();
    let mut pending = 0;
    for batch in &batches {
        match ledger.record(batch).await? {
            RecordOutcome::Recorded(recorded) => pending += recorded.pending,
            RecordOutcome::Zombie => return Err("somebody else records".into()),
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    if pending != orders {
        return Err(format!("{pending} of {orders} orders are PENDING").into());
    }
    println!("{{\"schema\":\"{schema}\",\"orders\":{orders},\"perSecond\":{:.0}}}", orders as f64 / seconds);
    Ok(())
}

fn order(sale: &Sale, number: u64) -> OrderPlaced {
    let mut placed = sample::order_placed(number + 1);
    let it = &mut placed.reservation;
    // Ids of this moment, as gateways make them.
    it.order = OrderId(uuid::Uuid::now_v7());
    (it.sale, it.item, it.epoch) = (sale.id, sale.items[0].id, sale.epoch);
    placed
}

/// A sale of one hot item with enough units, in its first epoch.
async fn open(ledger: &dyn Ledger, units: u64) -> Result<Sale, Box<dyn std::error::Error>> {
    let sale = sample::new_sale(SystemClock::new().now(), vec![sample::new_item("P-1", units)]);
    let sale = ledger.create_sale(&sale).await?;
    let token = LoaderToken(1);
    match ledger.begin_rebuild(sale.id, Epoch(0), "benchmark", token, Duration::ZERO).await? {
        RebuildOutcome::Owned(sale) if ledger.finish_rebuild(sale.id, token).await? => {
            Ok(ledger.sale(sale.id).await?.ok_or("the sale is gone")?)
        }
        other => Err(format!("the sale is not opened: {other:?}").into()),
    }
}
