//! Record: queue → ledger, and confirm: tell the stock what is recorded.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::delivery::{Batch, Decoded};
use crate::fault::{BackendError, Fault, Layer};
use crate::ledger::{RebuildOutcome, RecordOutcome, Recorded};
use crate::order::{OrderId, SaleId, UserId};
use crate::queue::{BATCH_MAX, Reader};
use crate::sale::LoaderToken;
use crate::stock::BucketId;

/// Writes what the queue delivers into the ledger. Any number may run: positions move by
/// compare-and-set, so the slower one of two aborts itself.
pub struct Recorder {
    backends: Backends,
    reader: Option<Box<dyn Reader>>,
    wait: Duration,
}

impl Recorder {
    /// A recorder that waits at most `wait` for records in one step.
    pub fn new(backends: Backends, wait: Duration) -> Self {
        Self { backends, reader: None, wait }
    }

    /// The next batch, from the ledger's own positions.
    async fn next_batch(&mut self) -> Result<Option<Batch>, BackendError> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                let ends = self.backends.queue.end_positions().await?;
                self.backends.ledger.register(&ends).await?;
                let mut reader = self.backends.queue.reader().await?;
                reader.seek(&self.backends.ledger.positions().await?).await?;
                reader
            }
        };
        let batch = reader.next(BATCH_MAX, self.wait).await?;
        self.reader = Some(reader);
        Ok(batch)
    }

    async fn apply(&mut self, batch: &Batch) -> Result<u64, BackendError> {
        match self.backends.ledger.record(batch).await {
            Ok(RecordOutcome::Recorded(recorded)) => {
                self.settle(batch, &recorded).await;
                Ok(batch.records.len() as u64)
            }
            Ok(RecordOutcome::Zombie) => {
                tracing::info!(
                    partition = batch.from.partition,
                    "another recorder was faster; going on from its position"
                );
                self.reader = None;
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
            if self.reader.is_none() {
                break;
            }
        }
        Ok(count)
    }

    /// What follows a commit. Best effort: the sweeper repeats what is lost here.
    async fn settle(&self, batch: &Batch, recorded: &Recorded) {
        if recorded.dead > 0 {
            tracing::error!(
                records = recorded.dead,
                "records could not be applied and were parked as dead letters; look at them"
            );
        }
        if recorded.rejected > 0 {
            tracing::warn!(orders = recorded.rejected, "the ledger refused orders that the stock had taken");
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
            if let Err(error) = self.backends.stock.confirm(bucket, &orders).await {
                tracing::warn!(
                    error = error.chain(),
                    "recorded orders could not be confirmed; the sweeper will"
                );
            }
        }
        for sale in &recorded.ahead {
            self.fence(*sale).await;
        }
    }

    /// The ledger refused an order that the present stock had room for: the stock is ahead of it.
    async fn fence(&self, id: SaleId) {
        tracing::error!(sale.id = %id, "the stock sold what the ledger refused: fencing the sale and rebuilding its stock");
        let begun = match self.backends.ledger.sale(id).await {
            Ok(Some(sale)) if sale.fence.is_none() => {
                let reason = "the ledger refused an order that the stock had room for";
                self.backends
                    .ledger
                    .begin_rebuild(id, sale.epoch, reason, LoaderToken::NOBODY, Duration::MAX)
                    .await
            }
            Ok(_) => return,
            Err(error) => Err(error),
        };
        match begun {
            Ok(RebuildOutcome::Owned(sale)) => {
                let bucket = BucketId { sale: id, epoch: crate::order::Epoch(sale.epoch.0 - 1) };
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
        let Some(batch) = self.next_batch().await? else { return Ok(Step::Idle) };
        let (whole, batch) = (batch.next, readable_part(batch));
        if batch.records.is_empty() && batch.next != whole {
            self.reader = None;
            return Err(BackendError::new(
                Layer::Queue,
                Fault::Transient,
                format!(
                    "record {} of partition {} has a version that this program does not know: \
                     the partition waits for a newer program",
                    batch.next, batch.from.partition
                ),
            ));
        }
        if batch.next != whole {
            // What stands before the record is applied; the next step says so.
            self.reader = None;
        }
        match self.apply(&batch).await {
            Ok(count) => Ok(Step::Worked(count)),
            Err(error) => {
                // Whether it was committed is read from the positions, not guessed.
                self.reader = None;
                Err(error)
            }
        }
    }
}
