//! The promises of [`Queue`] as tests.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{sample, sound};
use crate::delivery::{Batch, Decoded, Position};
use crate::order::{OrderId, OrderPlaced};
use crate::queue::{NextOutcome, Queue, Reader, partition_of};

/// Hands every promise of the suite to the macro `$each`, as a list of names.
#[macro_export]
macro_rules! queue_promises {
    ($each:ident) => {
        $each! {
            an_acknowledged_order_is_read, a_reader_goes_on_from_its_position,
            the_end_is_behind_every_acknowledged_order, an_unreadable_record_is_delivered_as_such,
            a_users_orders_share_a_partition, many_publishers_lose_nothing,
        }
    };
}

/// One queue under test, and a way to put bytes into it that are no message.
#[async_trait]
pub trait Bench: Send + Sync {
    /// The queue.
    fn queue(&self) -> Arc<dyn Queue>;
    /// Appends a record that cannot be decoded.
    async fn append_garbage(&self);
}

/// How long a test waits for a record that must be there.
const WAIT: Duration = Duration::from_secs(10);

async fn publish(queue: &dyn Queue, orders: &[OrderPlaced]) {
    for result in queue.publish(orders).await {
        sound(result);
    }
}

fn start(ends: &[Position]) -> Vec<Position> {
    ends.iter().map(|end| Position { next: 0, ..end.clone() }).collect()
}

/// Batches from `positions` on until `count` records have come.
async fn read(queue: &dyn Queue, positions: &[Position], count: usize, max: usize) -> Vec<Batch> {
    let mut reader: Box<dyn Reader> = sound(queue.reader().await);
    sound(reader.seek(positions).await);
    let mut positions = positions.to_vec();
    let (mut batches, mut seen) = (Vec::new(), 0);
    while seen < count {
        match sound(reader.next(max, WAIT).await) {
            NextOutcome::Batch(batch) => {
                assert!(!batch.records.is_empty() && batch.records.len() <= max);
                let read = positions.iter_mut().find(|it| it.partition == batch.from.partition);
                read.expect("only what was named is read").next = batch.next;
                seen += batch.records.len();
                batches.push(batch);
            }
            NextOutcome::Moved => sound(reader.seek(&positions).await),
            NextOutcome::Idle => panic!("only {seen} of {count} records came"),
        }
    }
    batches
}

fn orders_in(batches: &[Batch]) -> Vec<OrderPlaced> {
    batches
        .iter()
        .flat_map(|batch| &batch.records)
        .filter_map(|record| record.contents.order())
        .cloned()
        .collect()
}

/// Promise 1: content and all, and by every reader.
pub async fn an_acknowledged_order_is_read(bench: &dyn Bench) {
    let queue = bench.queue();
    let from = sound(queue.end_positions().await);
    let orders: Vec<OrderPlaced> = (1..=3).map(sample::order_placed).collect();
    publish(queue.as_ref(), &orders).await;
    for _ in 0..2 {
        let mut read = orders_in(&read(queue.as_ref(), &from, 3, 500).await);
        read.sort_by_key(|order| order.reservation.order);
        assert_eq!(read, orders);
    }
}

/// Promise 2.
pub async fn a_reader_goes_on_from_its_position(bench: &dyn Bench) {
    let queue = bench.queue();
    let mut orders: Vec<OrderPlaced> = (1..=50).map(sample::order_placed).collect();
    for order in &mut orders {
        order.reservation.user = sample::user(1);
    }
    for order in &orders {
        publish(queue.as_ref(), std::slice::from_ref(order)).await;
    }
    let from = start(&sound(queue.end_positions().await));
    let batches = read(queue.as_ref(), &from, 50, 7).await;
    let mut next = 0;
    for batch in &batches {
        assert_eq!(batch.from.next, next, "batches join");
        for record in &batch.records {
            assert!(record.offset >= next, "offsets grow");
            next = record.offset + 1;
        }
        assert!(batch.next >= next);
        next = batch.next;
    }
    let ids =
        |orders: &[OrderPlaced]| orders.iter().map(|order| order.reservation.order).collect::<Vec<OrderId>>();
    assert_eq!(ids(&orders_in(&batches)), ids(&orders), "one user's orders keep their order");
    let middle = Position { next: batches[3].from.next, ..batches[3].from.clone() };
    let rest = read(queue.as_ref(), &[middle], 50 - 21, 500).await;
    assert_eq!(ids(&orders_in(&rest)), ids(&orders[21..]));
}

/// Promise 4.
pub async fn the_end_is_behind_every_acknowledged_order(bench: &dyn Bench) {
    let queue = bench.queue();
    for n in 1..=5 {
        let before = sound(queue.end_positions().await);
        publish(queue.as_ref(), &[sample::order_placed(n)]).await;
        let after = sound(queue.end_positions().await);
        assert_eq!(before.len(), after.len());
        assert!(after.iter().zip(&before).all(|(after, before)| after.next >= before.next));
        let grown: u64 = after.iter().zip(&before).map(|(after, before)| after.next - before.next).sum();
        assert!(grown >= 1, "the end did not move");
    }
}

/// Promise 5.
pub async fn an_unreadable_record_is_delivered_as_such(bench: &dyn Bench) {
    let queue = bench.queue();
    publish(queue.as_ref(), &[sample::order_placed(1)]).await;
    bench.append_garbage().await;
    publish(queue.as_ref(), &[sample::order_placed(2)]).await;
    let from = start(&sound(queue.end_positions().await));
    let batches = read(queue.as_ref(), &from, 3, 500).await;
    let records = batches.iter().flat_map(|batch| &batch.records);
    let unreadable = records.filter(|record| matches!(record.contents, Decoded::Unreadable { .. })).count();
    assert_eq!((unreadable, orders_in(&batches).len()), (1, 2));
}

/// Promise 6.
pub async fn a_users_orders_share_a_partition(bench: &dyn Bench) {
    // The same in every process and version: other programs compute it too.
    assert_eq!(partition_of(&sample::user(1), 16), crc32c::crc32c(b"user-1") % 16);
    let queue = bench.queue();
    let mut orders: Vec<OrderPlaced> = (1..=20).map(sample::order_placed).collect();
    for order in &mut orders {
        order.reservation.user = sample::user(1);
    }
    publish(queue.as_ref(), &orders).await;
    let from = start(&sound(queue.end_positions().await));
    let batches = read(queue.as_ref(), &from, 20, 500).await;
    let partitions: HashSet<u32> = batches.iter().map(|batch| batch.from.partition).collect();
    assert_eq!(partitions.len(), 1);
}

/// Promise 1 under load.
pub async fn many_publishers_lose_nothing(bench: &dyn Bench) {
    let queue = bench.queue();
    let orders: Vec<OrderPlaced> = (1..=2_000).map(sample::order_placed).collect();
    let publishers = orders.chunks(9).map(|chunk| publish(queue.as_ref(), chunk));
    futures_util::future::join_all(publishers).await;
    let from = start(&sound(queue.end_positions().await));
    let batches = read(queue.as_ref(), &from, 2_000, 500).await;
    let ids: HashSet<OrderId> = orders_in(&batches).iter().map(|order| order.reservation.order).collect();
    assert_eq!(ids.len(), 2_000);
}
