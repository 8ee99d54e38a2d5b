//! Reading: the partitions that the group gives us, from the positions that the ledger has.
//!
//! Two clients: one is a [member](Membership) of the consumer group and reads nothing, the other
//! reads and belongs to nobody. So the group decides who reads what, and never from where. (One
//! client for both was refused: it would have to move its position inside the group's own steps.)
//!
//! There is no thread of our own: the client library fetches ahead by itself, within its bounds, and
//! a call of [`Reader::next`] takes out what is there. Whoever stops calling drops out of the group
//! after a minute, and others read its partitions: what counts is that records are applied, not that
//! a process lives.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset, TopicPartitionList};
use tokio::time::Instant;

use super::ask::{refused, signed};
use super::group::Membership;
use super::options::KafkaOptions;
use super::words::{Quiet, fault, unanswered};
use super::{Topic, blocking};
use crate::clock::Timestamp;
use crate::delivery::{Batch, Delivered, Position};
use crate::fault::{BackendError, Fault};
use crate::queue::{BATCH_MAX, NextOutcome, Reader, message};

/// Records that are decoded and wait here, over all partitions.
const DECODED_MAX: usize = 4 * BATCH_MAX;

/// Bytes of them; one order has about 500, the brokers take up to a million.
const DECODED_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Longest wait for records before the group is looked at again.
const SLICE: Duration = Duration::from_millis(50);

/// How often the ledger is asked whether a partition that is left out can be read again.
const LOST_LOOK: Duration = Duration::from_secs(5);

/// How often the topic's identity is looked at, and the group is told what was applied.
const TICK: Duration = Duration::from_secs(1);

/// A share of the topic's partitions, read in batches.
pub(super) struct KafkaReader {
    /// Empty only while it is dropped.
    inner: Option<Arc<Mutex<Inner>>>,
}

impl KafkaReader {
    /// A reader that joins the group when it is told where to start.
    ///
    /// # Errors
    /// The client library refuses the options.
    pub(super) fn new(options: &KafkaOptions, topic: Arc<Topic>) -> Result<Self, BackendError> {
        let group = options.consumer().create_with_context(Membership::default()).map_err(refused)?;
        let records = options.consumer().create_with_context(Quiet::default()).map_err(refused)?;
        let inner = Inner {
            topic,
            group,
            records,
            joined: false,
            reading: BTreeMap::new(),
            decoded: 0,
            bytes: 0,
            applied: BTreeMap::new(),
            ticked: Instant::now(),
            left_out: None,
        };
        Ok(Self { inner: Some(Arc::new(Mutex::new(inner))) })
    }

    /// Runs a call that waits for the client library. A caller that goes away in between leaves the
    /// positions as they are in `Inner`, so what was read for it is missed by the ledger's
    /// compare-and-set and read again.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Inner) -> Result<T, BackendError> + Send + 'static,
    ) -> Result<T, BackendError> {
        let Some(inner) = self.inner.clone() else {
            return Err(fault(Fault::Permanent, "the reader is closed"));
        };
        blocking(move || work(&mut inner.lock().unwrap_or_else(PoisonError::into_inner))).await
    }
}

impl Drop for KafkaReader {
    /// Leaving the group waits for the brokers, so it is done beside.
    fn drop(&mut self) {
        let inner = self.inner.take();
        let _ = std::thread::Builder::new().name("queue-leave".to_owned()).spawn(move || drop(inner));
    }
}

#[async_trait]
impl Reader for KafkaReader {
    async fn seek(&mut self, positions: &[Position]) -> Result<(), BackendError> {
        let positions = positions.to_vec();
        self.call(move |inner| inner.seek(&positions)).await
    }

    async fn next(&mut self, max: usize, wait: Duration) -> Result<NextOutcome, BackendError> {
        self.call(move |inner| inner.next(max, wait)).await
    }
}

struct Inner {
    topic: Arc<Topic>,
    group: BaseConsumer<Membership>,
    records: BaseConsumer<Quiet>,
    joined: bool,
    /// The partitions that are read, by number.
    reading: BTreeMap<u32, Partition>,
    /// Records in `reading`, and their bytes.
    decoded: usize,
    bytes: usize,
    /// What the ledger has applied, and the group was not told yet.
    applied: BTreeMap<u32, u64>,
    ticked: Instant,
    /// Since when partitions of ours are left out, since their positions are not in the log.
    left_out: Option<Instant>,
}

/// One partition as it is read.
struct Partition {
    /// The offset of the next record to hand out.
    next: u64,
    /// Records that were not handed out yet, with their lengths in bytes.
    records: VecDeque<(Delivered, usize)>,
}

impl Inner {
    fn seek(&mut self, positions: &[Position]) -> Result<(), BackendError> {
        self.topic.check_identity()?;
        if !self.joined {
            let joined = self.group.subscribe(&[&self.topic.name]);
            joined.map_err(|error| unanswered("joining the recorders' group", error))?;
            self.joined = true;
        }
        let share = self.group.context().take();
        let ours = positions.iter().filter(|it| it.topic == self.topic.id && share.contains(&it.partition));
        let mut wanted: BTreeMap<u32, u64> = ours.map(|it| (it.partition, it.next)).collect();
        self.leave_out_lost(&mut wanted)?;

        self.assign(&wanted).map_err(|error| unanswered("going to the ledger's positions", error))?;
        (self.decoded, self.bytes) = (0, 0);
        self.applied.clone_from(&wanted);
        let partition = |(number, next)| (number, Partition { next, records: VecDeque::new() });
        self.reading = wanted.into_iter().map(partition).collect();
        Ok(())
    }

    /// Replaces what is read. What was fetched before is thrown away by the client library.
    fn assign(&self, wanted: &BTreeMap<u32, u64>) -> Result<(), KafkaError> {
        if wanted.is_empty() {
            return self.records.unassign();
        }
        self.records.assign(&self.list(wanted)?)
    }

    fn list(&self, offsets: &BTreeMap<u32, u64>) -> Result<TopicPartitionList, KafkaError> {
        let mut list = TopicPartitionList::new();
        for (partition, next) in offsets {
            let offset = Offset::Offset(i64::try_from(*next).unwrap_or(i64::MAX));
            list.add_partition_offset(&self.topic.name, signed(*partition), offset)?;
        }
        Ok(list)
    }

    /// Takes away the positions that are not in the log; when none is left, that is the error. The
    /// others go on: a partition that was cut short must not stop them wherever it is moved to.
    fn leave_out_lost(&mut self, wanted: &mut BTreeMap<u32, u64>) -> Result<(), BackendError> {
        self.left_out = None;
        if wanted.is_empty() {
            return Ok(());
        }
        let mut lost = Vec::new();
        let (beginnings, ends) = (self.topic.asker.beginnings()?, self.topic.asker.ends()?);
        let bounds = (0..).zip(beginnings.into_iter().zip(ends));
        for (partition, (begin, end)) in bounds {
            let Some(&next) = wanted.get(&partition) else { continue };
            let what = if next < begin {
                format!("begins at record {begin}: records were deleted before they were read")
            } else if next > end {
                format!("ends at record {end}: records that were in it are lost")
            } else {
                continue;
            };
            let what = format!(
                "the ledger wants record {next} of partition {partition} of the topic {}, which {what}. Nothing is \
                 skipped by itself: restore the topic, or rebuild the open sales (doorbuster rebuild), which goes on \
                 from where the topic ends now",
                self.topic.name
            );
            lost.push((partition, what));
        }
        for (partition, _) in &lost {
            wanted.remove(partition);
        }
        let Some((_, what)) = lost.first() else { return Ok(()) };
        if wanted.is_empty() {
            return Err(fault(Fault::Permanent, what.clone()));
        }
        tracing::error!(partitions = lost.len(), what, "partitions are not read; the others go on");
        self.left_out = Some(Instant::now());
        Ok(())
    }

    fn next(&mut self, max: usize, wait: Duration) -> Result<NextOutcome, BackendError> {
        let until = Instant::now() + wait;
        // Who asks for more has applied what it was given; in doubt it would have sought.
        for (number, partition) in &self.reading {
            self.applied.insert(*number, partition.next);
        }
        if self.ticked.elapsed() >= TICK {
            self.tick()?;
        }
        loop {
            self.serve_group()?;
            let look_again = self.left_out.is_some_and(|since| since.elapsed() >= LOST_LOOK);
            if self.group.context().moved() || look_again {
                return Ok(NextOutcome::Moved);
            }
            let left = until.saturating_duration_since(Instant::now());
            self.fetch(left.min(SLICE))?;
            if let Some(batch) = self.take(max) {
                return Ok(NextOutcome::Batch(batch));
            }
            if left.is_zero() {
                return Ok(NextOutcome::Idle);
            }
        }
    }

    fn tick(&mut self) -> Result<(), BackendError> {
        self.topic.check_identity()?;
        let told = self.list(&self.applied).and_then(|list| {
            if list.count() == 0 { Ok(()) } else { self.group.commit(&list, CommitMode::Async) }
        });
        if let Err(error) = told {
            // For lag monitors alone; the next tick tells them more.
            tracing::debug!(%error, "the group was not told what is applied");
        }
        self.applied.clear();
        self.ticked = Instant::now();
        Ok(())
    }

    /// Takes part in the group: gives and takes partitions.
    fn serve_group(&self) -> Result<(), BackendError> {
        while let Some(event) = self.group.poll(Duration::ZERO) {
            if let Err(error) = event {
                heed(error, &self.topic.name)?;
            }
        }
        Ok(())
    }

    /// Decodes what was fetched, waiting at most `wait` for the first record.
    fn fetch(&mut self, wait: Duration) -> Result<(), BackendError> {
        let mut wait = if self.decoded == 0 { wait } else { Duration::ZERO };
        while self.decoded < DECODED_MAX && self.bytes < DECODED_BYTES_MAX {
            match self.records.poll(wait) {
                None => break,
                Some(Ok(message)) => {
                    let bytes = store(&mut self.reading, &message);
                    self.decoded += usize::from(bytes.is_some());
                    self.bytes += bytes.unwrap_or_default();
                }
                Some(Err(error)) => heed(error, &self.topic.name)?,
            }
            wait = Duration::ZERO;
        }
        Ok(())
    }

    /// At most `max` records of the partition whose first record is the oldest.
    fn take(&mut self, max: usize) -> Option<Batch> {
        let front = |it: &Partition| it.records.front().map(|(record, _)| record.appended_at);
        let oldest = self.reading.iter_mut().filter(|(_, it)| !it.records.is_empty());
        let (&number, partition) = oldest.min_by_key(|(_, it)| front(it))?;
        let count = max.min(partition.records.len());
        let mut records = Vec::with_capacity(count);
        for (record, bytes) in partition.records.drain(..count) {
            self.bytes -= bytes;
            records.push(record);
        }
        self.decoded -= count;
        let behind = records.last()?.offset + 1;
        let from = Position { topic: self.topic.id.clone(), partition: number, next: partition.next };
        partition.next = behind;
        Some(Batch { from, next: behind, records })
    }
}

/// Keeps a record, and answers its bytes; `None` when it is none that we wait for.
fn store(reading: &mut BTreeMap<u32, Partition>, message: &BorrowedMessage<'_>) -> Option<usize> {
    let partition = reading.get_mut(&u32::try_from(message.partition()).ok()?)?;
    let offset = u64::try_from(message.offset()).ok()?;
    let expected = partition.records.back().map_or(partition.next, |(record, _)| record.offset + 1);
    if offset < expected {
        return None;
    }
    let payload = message.payload().unwrap_or_default();
    let appended_at = Timestamp::from_ms(message.timestamp().to_millis().unwrap_or_default());
    let record = Delivered { offset, appended_at, contents: message::decode(payload) };
    partition.records.push_back((record, payload.len()));
    Some(payload.len())
}

/// Lets pass what the client library mends by itself; the rest is a fault.
fn heed(error: KafkaError, topic: &str) -> Result<(), BackendError> {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::BrokerTransportFailure
            | RDKafkaErrorCode::Resolve
            | RDKafkaErrorCode::OperationTimedOut
            | RDKafkaErrorCode::PollExceeded,
        ) => {
            tracing::debug!(%error, "Kafka reader");
            Ok(())
        }
        Some(RDKafkaErrorCode::AllBrokersDown) => Err(unanswered("no Kafka broker can be reached", error)),
        Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
            let what =
                format!("the record to go on from is no longer in the topic {topic}: nothing is skipped");
            Err(fault(Fault::Permanent, what).caused_by(error))
        }
        _ => Err(unanswered(format!("the topic {topic} cannot be read"), error)),
    }
}
