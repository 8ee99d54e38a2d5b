//! What the embedded log makes of a damaged end: a torn tail is cut off, damage is refused, and
//! nothing that was acknowledged is ever lost silently.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::conformance::{sample, stock::Bench};
use doorbuster_engine::delivery::Position;
use doorbuster_engine::order::OrderId;
use doorbuster_engine::queue::{EmbeddedQueue, NextOutcome, OpenError, Queue, QueueOptions};
use proptest::prelude::*;

fn open(folder: &Path, recorded: u64) -> Result<EmbeddedQueue, OpenError> {
    EmbeddedQueue::open(folder, |_| recorded, Bench::clock(), QueueOptions::default())
}

/// A log with `count` orders, each acknowledged before the next.
async fn written(folder: &Path, count: u64) {
    let queue = open(folder, 0).unwrap();
    for n in 0..count {
        queue.publish(&[sample::order_placed(n)]).await.remove(0).unwrap();
    }
}

fn segment(folder: &Path) -> PathBuf {
    folder.join(format!("{:020}.log", 0))
}

async fn orders(queue: &EmbeddedQueue) -> Vec<OrderId> {
    let end = queue.end_positions().await.unwrap().remove(0);
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&[Position { next: 0, ..end.clone() }]).await.unwrap();
    let mut orders = Vec::new();
    while (orders.len() as u64) < end.next {
        let NextOutcome::Batch(batch) = reader.next(500, Duration::from_secs(10)).await.unwrap() else {
            panic!("the log's records are there")
        };
        orders
            .extend(batch.records.iter().filter_map(|it| it.contents.order()).map(|it| it.reservation.order));
    }
    orders
}

fn ids(count: u64) -> Vec<OrderId> {
    (0..count).map(sample::order_id).collect()
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// A crash in the middle of a write leaves part of it: what stands before is whole.
    #[test]
    fn a_torn_tail_is_cut_off(count in 1..8_u64, garbage in prop::collection::vec(any::<u8>(), 0..400)) {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            written(folder.path(), count).await;
            let mut bytes = fs::read(segment(folder.path())).unwrap();
            bytes.extend(&garbage);
            fs::write(segment(folder.path()), &bytes).unwrap();
            let queue = open(folder.path(), 0).unwrap();
            assert_eq!(orders(&queue).await, ids(count));
            // And the log goes on as if nothing had been.
            queue.publish(&[sample::order_placed(count)]).await.remove(0).unwrap();
            assert_eq!(orders(&queue).await, ids(count + 1));
        });
    }

    /// Any changed byte in a record that a later one calls durable stops the start.
    #[test]
    fn damage_before_a_durable_record_is_refused(count in 3..8_u64, at: prop::sample::Index, bit in 0..8_u8) {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            written(folder.path(), count).await;
            let mut bytes = fs::read(segment(folder.path())).unwrap();
            // The last record was acknowledged too, but only a later one could tell.
            let durable = bytes.len() / usize::try_from(count).unwrap() * usize::try_from(count - 1).unwrap() - 64;
            bytes[at.index(durable)] ^= 1 << bit;
            fs::write(segment(folder.path()), &bytes).unwrap();
            let error = open(folder.path(), 0).err().expect("damage was not noticed");
            assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
        });
    }

    /// Cut anywhere: a prefix is read, and less than the ledger has recorded is refused.
    #[test]
    fn a_log_that_ends_before_the_ledger_is_refused(count in 1..8_u64, at: prop::sample::Index, recorded in 0..9_u64) {
        block_on(async {
            let folder = tempfile::tempdir().unwrap();
            written(folder.path(), count).await;
            let bytes = fs::read(segment(folder.path())).unwrap();
            fs::write(segment(folder.path()), &bytes[..at.index(bytes.len())]).unwrap();
            match open(folder.path(), recorded) {
                Ok(queue) => {
                    let read = orders(&queue).await;
                    assert!(read.len() as u64 >= recorded);
                    assert_eq!(read, ids(read.len() as u64));
                }
                Err(OpenError::BehindLedger { end, .. }) => assert!(end < recorded),
                Err(other) => panic!("{other}"),
            }
        });
    }
}

#[tokio::test]
async fn segments_that_the_ledger_has_are_removed_and_a_missing_one_is_noticed() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 4).await;
    // A second segment, as if the first had been full.
    fs::rename(segment(folder.path()), folder.path().join("kept")).unwrap();
    let first = fs::read(folder.path().join("kept")).unwrap();
    let half = first.len() / 2;
    fs::write(segment(folder.path()), &first[..half]).unwrap();
    fs::write(folder.path().join(format!("{:020}.log", 2)), &first[half..]).unwrap();
    assert_eq!(orders(&open(folder.path(), 0).unwrap()).await, ids(4));
    fs::remove_file(segment(folder.path())).unwrap();
    assert!(matches!(open(folder.path(), 0).map(drop), Err(OpenError::Missing { first: 2, .. })));
    fs::write(segment(folder.path()), &first[..half]).unwrap();
    drop(open(folder.path(), 2).unwrap());
    assert!(!segment(folder.path()).exists(), "a recorded segment is not kept");
}

#[tokio::test]
async fn a_reader_does_not_see_what_is_not_durable_and_wakes_when_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let queue = Arc::new(open(folder.path(), 0).unwrap());
    let end = queue.end_positions().await.unwrap();
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&end).await.unwrap();
    assert!(matches!(reader.next(10, Duration::from_millis(10)).await.unwrap(), NextOutcome::Idle));
    let order = [sample::order_placed(1)];
    let (published, batch) = tokio::join!(queue.publish(&order), reader.next(10, Duration::from_secs(10)));
    published.into_iter().for_each(|result| result.unwrap());
    assert!(matches!(batch.unwrap(), NextOutcome::Batch(batch) if batch.records.len() == 1));
}
