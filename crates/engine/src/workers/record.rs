//! Record: queue → ledger, and confirm: tell the stock what is recorded.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::delivery::{Batch, Decoded, Position, TopicId};
use crate::fault::{BackendError, Fault, Layer};
use crate::fault_points::FaultPoint;
use crate::ledger::{RebuildOutcome, RecordOutcome, Recorded};
use crate::order::{Epoch, OrderId, SaleId, UserId};
use crate::queue::{BATCH_MAX, NextOutcome, Reader};
use crate::sale::{LoaderToken, RebuildReason};
use crate::stock::BucketId;
use crate::told::Told;

/// Writes what the queue delivers into the ledger. Any number may run: positions move by
/// compare-and-set, so the slower one of two aborts itself.
pub struct Recorder {
    backends: Backends,
    reader: Option<Box<dyn Reader>>,
    /// Whether the reader goes on from the ledger's positions. Not after a doubt: they are read anew.
    placed: bool,
    /// Records of a newer version, each by its partition and offset: those partitions wait.
    waiting: Vec<(u32, u64)>,
    /// How far each partition was recorded as this recorder last knew, one entry per partition.
    recorded: HashMap<(TopicId, u32), u64>,
    wait: Duration,
    told: Lines,
}

/// Lines that many batches in a row may be reason for.
#[derive(Default)]
struct Lines {
    zombie: Told,
    dead: Told,
    rejected: Told,
    unconfirmed: Told,
}

impl Recorder {
    /// A recorder that waits at most `wait` for records in one step.
    pub fn new(backends: Backends, wait: Duration) -> Self {
        Self {
            backends,
            reader: None,
            placed: false,
            waiting: Vec::new(),
            recorded: HashMap::new(),
            wait,
            told: Lines::default(),
        }
    }

    /// The next batch, from the ledger's own positions.
    async fn next_batch(&mut self) -> Result<NextOutcome, BackendError> {
        // Taken out: after an error, a new one is made.
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let ends = self.backends.queue.end_positions().await?;
                self.backends.ledger.register(&ends).await?;
                self.placed = false;
                self.backends.queue.reader().await?
            }
        };
        if !self.placed {
            let mut positions = self.backends.ledger.positions().await?;
            positions.retain(|it| self.waiting.iter().all(|(partition, _)| *partition != it.partition));
            reader.seek(&positions).await?;
            self.recorded.extend(positions.into_iter().map(|it| ((it.topic, it.partition), it.next)));
            self.placed = true;
        }
        let outcome = reader.next(BATCH_MAX, self.wait).await?;
        self.reader = Some(reader);
        Ok(outcome)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<u64, BackendError> {
        FaultPoint::Read.reached();
        match self.backends.ledger.record(batch).await {
            Ok(RecordOutcome::Recorded(recorded)) => {
                FaultPoint::Committed.reached();
                self.recorded.insert((batch.from.topic.clone(), batch.from.partition), batch.next);
                self.settle(batch, &recorded).await;
                FaultPoint::Confirmed.reached();
                Ok(batch.records.len() as u64)
            }
            Ok(RecordOutcome::Zombie) => {
                if let Some(batches) = self.told.zombie.due(1) {
                    tracing::info!(
                        batches,
                        partition = batch.from.partition,
                        "another recorder was faster; going on from its position"
                    );
                }
                self.placed = false;
                Ok(1)
            }
            Err(error) if error.fault == Fault::Permanent => self.apply_in_halves(batch, &error).await,
            Err(error) => Err(error),
        }
    }

    /// A batch that the ledger refuses for good hides one bad record: it is found by halving, and
    /// parked when it stands alone.
    async fn apply_in_halves(&mut self, batch: &Batch, error: &BackendError) -> Result<u64, BackendError> {
        tracing::warn!(
            records = batch.records.len(),
            error = error.chain(),
            "the ledger refused a batch; looking for the record"
        );
        let halves = match batch.records.as_slice() {
            [one] => {
                let why = error.chain();
                let contents = match &one.contents {
                    Decoded::Order(order) => Decoded::Refused { order: order.clone(), why },
                    Decoded::Refused { .. } => Decoded::Unreadable { bytes: Vec::new(), why },
                    Decoded::UnknownVersion(_) | Decoded::Unreadable { .. } => {
                        return Err(BackendError::new(error.layer, Fault::Transient, why));
                    }
                };
                let mut parked = batch.clone();
                parked.records[0].contents = contents;
                vec![parked]
            }
            records => {
                let (first, second) = records.split_at(records.len() / 2);
                let middle = second.first().map_or(batch.next, |record| record.offset);
                let mut from = batch.from.clone();
                from.next = middle;
                vec![
                    Batch { from: batch.from.clone(), next: middle, records: first.to_vec() },
                    Batch { from, next: batch.next, records: second.to_vec() },
                ]
            }
        };
        let mut count = 0;
        for half in halves {
            count += Box::pin(self.apply(&half)).await?;
            if !self.placed {
                break;
            }
        }
        Ok(count)
    }

    /// Nothing came. Partitions that wait are tried again, and said again: after an error the loop
    /// pauses, longer each time, so this is no circle.
    async fn idle(&mut self) -> Result<Step, BackendError> {
        let Some((partition, offset)) = self.waiting.first().copied() else {
            return self.look_for_lost_commits().await;
        };
        self.waiting.clear();
        self.placed = false;
        Err(newer_version(partition, offset))
    }

    /// A ledger that failed over to a standby may have lost commits, and its positions went back with
    /// them. The next record would be refused as a zombie's and tell; where none comes, this look does.
    async fn look_for_lost_commits(&mut self) -> Result<Step, BackendError> {
        let positions = self.backends.ledger.positions().await?;
        let gone_back = |it: &Position| {
            let known = self.recorded.get(&(it.topic.clone(), it.partition));
            known.is_some_and(|known| *known > it.next)
        };
        let Some(position) = positions.into_iter().find(gone_back) else { return Ok(Step::Idle) };
        tracing::error!(
            partition = position.partition,
            next = position.next,
            "the ledger is behind what it had confirmed, as after a failover: reading the queue again from there"
        );
        self.recorded.clear();
        self.placed = false;
        Ok(Step::Worked(1))
    }

    /// What follows a commit. Best effort: the sweeper repeats what is lost here.
    async fn settle(&self, batch: &Batch, recorded: &Recorded) {
        if recorded.dead > 0
            && let Some(records) = self.told.dead.due(recorded.dead)
        {
            tracing::error!(
                records,
                "records could not be applied and were parked as dead letters; look at them"
            );
        }
        if recorded.rejected > 0
            && let Some(orders) = self.told.rejected.due(recorded.rejected)
        {
            tracing::warn!(orders, "the ledger refused orders that the stock had taken");
        }
        for (sale, epoch) in &recorded.ahead {
            self.fence(*sale, *epoch).await;
        }
        let users: HashMap<OrderId, &UserId> = batch
            .records
            .iter()
            .filter_map(|record| record.contents.order())
            .map(|it| (it.reservation.order, &it.reservation.user))
            .collect();
        let mut by_bucket: HashMap<BucketId, Vec<(OrderId, UserId)>> = HashMap::new();
        for (sale, epoch, order) in &recorded.live {
            let Some(user) = users.get(order) else { continue };
            let orders = by_bucket.entry(BucketId { sale: *sale, epoch: *epoch }).or_default();
            orders.push((*order, (*user).clone()));
        }
        for (bucket, orders) in by_bucket {
            if let Err(error) = self.backends.stock.confirm(bucket, &orders).await
                && let Some(orders) = self.told.unconfirmed.due(orders.len() as u64)
            {
                tracing::warn!(
                    orders,
                    error = error.chain(),
                    "recorded orders could not be confirmed; the sweeper will"
                );
            }
        }
    }

    /// The ledger refused an order that the stock of this epoch had room for: that stock is ahead of it.
    /// If another epoch has begun since, it was rebuilt already.
    async fn fence(&self, id: SaleId, epoch: Epoch) {
        tracing::error!(sale.id = %id, epoch = epoch.0, "the stock sold what the ledger refused: fencing the sale and rebuilding its stock");
        let reason = RebuildReason::Refused.text();
        let ledger = &self.backends.ledger;
        match ledger.begin_rebuild(id, epoch, reason, LoaderToken::NOBODY, Duration::MAX).await {
            Ok(RebuildOutcome::Owned(_)) => {
                let bucket = BucketId { sale: id, epoch };
                if let Err(error) = self.backends.stock.fence(bucket).await {
                    tracing::warn!(
                        error = error.chain(),
                        "the stock could not be fenced yet; the rebuild will"
                    );
                }
            }
            Ok(RebuildOutcome::OwnedByOther(_) | RebuildOutcome::Overtaken | RebuildOutcome::NoSale) => {}
            Err(error) => tracing::error!(
                error = error.chain(),
                "the sale could not be fenced; the next refused order tries again"
            ),
        }
    }
}

fn newer_version(partition: u32, offset: u64) -> BackendError {
    let what = format!(
        "record {offset} of partition {partition} has a version that this program does not know: \
         the partition waits for a newer program"
    );
    BackendError::new(Layer::Queue, Fault::Transient, what)
}

/// The part of the batch before a record of an unknown version.
fn readable_part(mut batch: Batch) -> Batch {
    let unknown =
        batch.records.iter().position(|record| matches!(record.contents, Decoded::UnknownVersion(_)));
    if let Some(index) = unknown {
        batch.next = batch.records[index].offset;
        batch.records.truncate(index);
    }
    batch
}

#[async_trait]
impl Worker for Recorder {
    fn name(&self) -> &'static str {
        "record"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let batch = match self.next_batch().await? {
            NextOutcome::Batch(batch) => batch,
            NextOutcome::Idle => return self.idle().await,
            NextOutcome::Moved => {
                self.placed = false;
                return Ok(Step::Worked(1));
            }
        };
        let (whole, batch) = (batch.next, readable_part(batch));
        if batch.records.is_empty() && batch.next != whole {
            // The others go on; this one is looked at again when they have nothing.
            self.waiting.push((batch.from.partition, batch.next));
            self.placed = false;
            return Err(newer_version(batch.from.partition, batch.next));
        }
        if batch.next != whole {
            // What stands before the record is applied; the next step says so.
            self.placed = false;
        }
        match self.apply(&batch).await {
            Ok(count) => Ok(Step::Worked(count)),
            Err(error) => {
                // Whether it was committed is read from the positions, not guessed.
                self.placed = false;
                Err(error)
            }
        }
    }
}
