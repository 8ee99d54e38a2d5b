//! Rebuild: the one repair. Start, preheat and rebuild are the same routine: fence, let everything
//! in flight land, load the stock anew from the ledger in the sale's new epoch, lift the fence.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Sweeper, Worker};
use crate::clock::Timestamp;
use crate::delivery::{Position, reached};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::ledger::RebuildOutcome;
use crate::order::{Epoch, ItemId, OrderId, Reservation, SaleId};
use crate::sale::{LoaderToken, RebuildReason, Sale, SaleState};
use crate::stock::{BeginLoadOutcome, BucketId, FinishOutcome, LoadOutcome, LoadPage, PAGE_MAX, ReadBack};

/// A closed sale's stock is kept this long after its last payment could have begun.
const KEPT_AFTER_CLOSING: Duration = Duration::from_secs(7 * 24 * 3600);

/// How far a rebuild came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The stock is loaded and the fence is lifted.
    Done,
    /// Something in flight has not landed yet, or another loader owns it: call again later.
    Waiting,
}

/// Rebuilds the stock of sales that are fenced or whose stock is missing.
pub struct Rebuilder {
    backends: Backends,
    sweeper: Sweeper,
    token: LoaderToken,
    lease: Duration,
    rounds: Rounds,
    /// The epoch of each sale whose rebuild was told of.
    told: HashMap<SaleId, Epoch>,
}

impl Rebuilder {
    /// A rebuilder that takes a rebuild over when its owner has not been heard of for `lease`
    /// (zero where this process is surely the only one).
    pub fn new(backends: Backends, lease: Duration) -> Self {
        let sweeper = Sweeper::new(backends.clone());
        Self {
            backends,
            sweeper,
            token: LoaderToken(rand::random::<u64>() >> 1),
            lease,
            rounds: Rounds::default(),
            told: HashMap::new(),
        }
    }

    /// Takes the sale's rebuild one bounded way further.
    ///
    /// # Errors
    /// What a backend reports; calling again goes on.
    pub async fn advance(&mut self, sale: &Sale, reason: &str) -> Result<Progress, BackendError> {
        // A fence stands in an epoch that was begun with it. Whoever finds it lifted meanwhile has nothing to take
        // over, and begins no other.
        let from = if sale.fence.is_some() { Epoch(sale.epoch.0.saturating_sub(1)) } else { sale.epoch };
        let begun = self.backends.ledger.begin_rebuild(sale.id, from, reason, self.token, self.lease).await?;
        let sale = match begun {
            RebuildOutcome::Owned(sale) => sale,
            RebuildOutcome::OwnedByOther(_) => return Ok(Progress::Waiting),
            RebuildOutcome::Overtaken | RebuildOutcome::NoSale => return Ok(Progress::Done),
        };
        self.tell_begun(&sale);
        FaultPoint::RebuildBegun.reached();
        if !self.outboxes_are_recorded(&sale).await? {
            return Ok(Progress::Waiting);
        }
        FaultPoint::OutboxesRecorded.reached();
        if !self.barriers_are_passed(&sale).await? {
            return Ok(Progress::Waiting);
        }
        FaultPoint::BarriersPassed.reached();
        self.load(&sale).await
    }

    /// One line per rebuild, also of one that was taken over from somebody who is silent. A preheat is no
    /// fault: that it has ended is told.
    fn tell_begun(&mut self, sale: &Sale) {
        let new = self.told.insert(sale.id, sale.epoch) != Some(sale.epoch);
        let reason = sale.fence.as_ref().map(|fence| fence.reason.as_str());
        if new && reason != Some(RebuildReason::Preheat.text()) {
            tracing::warn!(
                sale.id = %sale.id, epoch = sale.epoch.0, reason,
                "the sale is fenced; its stock will be loaded anew from the ledger"
            );
        }
    }

    /// Fences the buckets of all earlier epochs and publishes what is left in their outboxes until
    /// the ledger knows every one of those orders.
    async fn outboxes_are_recorded(&mut self, sale: &Sale) -> Result<bool, BackendError> {
        let mut left = 0;
        for epoch in 1..sale.epoch.0 {
            let bucket = BucketId { sale: sale.id, epoch: Epoch(epoch) };
            self.backends.stock.fence(bucket).await?;
            left += self.sweeper.sweep(bucket, sale, Timestamp::from_ms(i64::MAX)).await?.0;
        }
        Ok(left == 0)
    }

    /// Whether the recorder has passed the queue's ends as they were first stored for this epoch.
    async fn barriers_are_passed(&self, sale: &Sale) -> Result<bool, BackendError> {
        let Backends { queue, ledger, .. } = &self.backends;
        // Positions first: whatever was recorded up to here stood in the queue before its end was read.
        let recorded = ledger.positions().await?;
        let ends = queue.end_positions().await?;
        for position in &recorded {
            self.cut_back(position, &ends).await?;
        }
        ledger.register(&ends).await?;
        let Some(barriers) = ledger.put_barriers(sale.id, self.token, &ends).await? else {
            return Ok(false);
        };
        let positions = ledger.positions().await?;
        Ok(reached(&positions, &barriers))
    }

    /// A queue that ends before the recorder's position has lost records that were recorded: their
    /// orders stand, and recording goes on at the end that is left.
    async fn cut_back(&self, position: &Position, ends: &[Position]) -> Result<(), BackendError> {
        let end = ends.iter().find(|it| (&it.topic, it.partition) == (&position.topic, position.partition));
        let Some(end) = end.filter(|end| end.next < position.next) else { return Ok(()) };
        if self.backends.ledger.cut_back(position, end.next).await? {
            tracing::error!(
                topic = %position.topic, partition = position.partition, from = position.next, to = end.next,
                "the queue lost records that had been recorded: recording goes on at its end"
            );
        }
        Ok(())
    }

    /// Loads the bucket of the sale's epoch, reads it back, opens it and lifts the fence.
    async fn load(&self, sale: &Sale) -> Result<Progress, BackendError> {
        let Backends { stock, ledger, .. } = &self.backends;
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        // A bucket that is open was opened by a loader who could not lift the fence any more. One that
        // was fenced since (it went back) is found so, and starts the next epoch, once this one ends.
        if stock.begin_load(bucket, &sale.terms, self.token).await? == BeginLoadOutcome::Started {
            let Some((expected, pages)) = self.load_pages(sale, bucket).await? else {
                return Ok(Progress::Waiting);
            };
            let Some(read_back) = self.read_back(sale, bucket, &expected, pages).await? else {
                return Ok(Progress::Waiting);
            };
            FaultPoint::Loaded.reached();
            match stock.finish_load(bucket, self.token, read_back).await? {
                FinishOutcome::Open => {}
                FinishOutcome::NotLoader | FinishOutcome::Changed => return Ok(Progress::Waiting),
            }
        }
        FaultPoint::Opened.reached();
        if !ledger.finish_rebuild(sale.id, self.token).await? {
            return Ok(Progress::Waiting);
        }
        tracing::info!(sale.id = %sale.id, epoch = sale.epoch.0, "the sale's stock is loaded and read back");
        Ok(Progress::Done)
    }

    /// Writes items, live orders and closed ids. Orders that close meanwhile are loaded as live
    /// and released by their release rows once the bucket is open.
    async fn load_pages(
        &self,
        sale: &Sale,
        bucket: BucketId,
    ) -> Result<Option<(HashMap<OrderId, Reservation>, u32)>, BackendError> {
        let mut pages = 0;
        let mut expected = HashMap::new();
        for items in sale.items.chunks(PAGE_MAX) {
            let items = items.iter().map(|item| (item.id, item.quantity)).collect();
            if !self.load_page(bucket, &mut pages, LoadPage::Items(items)).await? {
                return Ok(None);
            }
        }
        let mut after = None;
        loop {
            let ledger = &self.backends.ledger;
            let Some(snapshot) = ledger.load_snapshot(sale.id, self.token, after, PAGE_MAX).await? else {
                return Ok(None);
            };
            expected.extend(snapshot.live.iter().map(|hold| (hold.order, hold.clone())));
            for page in [LoadPage::Holds(snapshot.live), LoadPage::Closed(snapshot.closed)] {
                if !self.load_page(bucket, &mut pages, page).await? {
                    return Ok(None);
                }
            }
            after = snapshot.next;
            if after.is_none() {
                return Ok(Some((expected, pages)));
            }
        }
    }

    async fn load_page(
        &self,
        bucket: BucketId,
        pages: &mut u32,
        page: LoadPage,
    ) -> Result<bool, BackendError> {
        let outcome = self.backends.stock.load(bucket, self.token, *pages, &page).await?;
        if outcome == LoadOutcome::Refused {
            tracing::error!(sale.id = %bucket.sale, page = *pages, "the stock refused a page: the ledger has more live units than the sale; run an audit");
        }
        *pages += 1;
        Ok(outcome == LoadOutcome::Loaded)
    }

    /// Everything read back and compared with what was to be loaded.
    async fn read_back(
        &self,
        sale: &Sale,
        bucket: BucketId,
        expected: &HashMap<OrderId, Reservation>,
        pages: u32,
    ) -> Result<Option<ReadBack>, BackendError> {
        let stock = &self.backends.stock;
        let Some(level) = stock.level(bucket).await? else { return Ok(None) };
        let mut held: HashMap<ItemId, u64> = HashMap::new();
        // A listing may name a hold twice.
        let mut seen = HashSet::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = stock.holders(bucket, cursor.as_deref(), PAGE_MAX).await?;
            for hold in &page.holds {
                if expected
                    .get(&hold.order)
                    .is_none_or(|it| (it.item, &it.user, it.units) != (hold.item, &hold.user, hold.units))
                {
                    return Ok(self.differs(sale, "it has a hold that was not loaded"));
                }
                if seen.insert(hold.order) {
                    *held.entry(hold.item).or_default() += u64::from(hold.units.0);
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        if seen.len() != expected.len() || level.items.len() != sale.items.len() || level.pages != pages {
            return Ok(self.differs(sale, "holds, items or pages are missing"));
        }
        for item in &sale.items {
            let found = level.items.iter().find(|it| it.item == item.id);
            let free = item.quantity.checked_sub(held.get(&item.id).copied().unwrap_or(0));
            if found.map(|it| (it.allocated, Some(it.free))) != Some((item.quantity, free)) {
                return Ok(self.differs(sale, "an item's units are not what was loaded"));
            }
        }
        Ok(Some(ReadBack { seq: level.seq, pages: level.pages }))
    }

    fn differs(&self, sale: &Sale, what: &str) -> Option<ReadBack> {
        tracing::error!(sale.id = %sale.id, what, "the loaded stock reads back different; loading again");
        None
    }

    /// Takes a rebuild further if the sale needs one; answers 1 when it is done.
    async fn look_after(&mut self, sale: &Sale) -> Result<u64, BackendError> {
        let Some(reason) = self.trouble(sale).await? else { return Ok(0) };
        Ok(u64::from(self.advance(sale, reason).await? == Progress::Done))
    }

    /// Why the sale needs a rebuild, if it does.
    async fn trouble(&self, sale: &Sale) -> Result<Option<&'static str>, BackendError> {
        if sale.fence.is_some() {
            return Ok(Some("taken over"));
        }
        let kept_until = sale.terms.closes_at.plus(sale.payment_window).plus(KEPT_AFTER_CLOSING);
        let over = sale.terms.state == SaleState::Closed && self.backends.clock.now() > kept_until;
        if sale.epoch == Epoch(0) || over {
            return Ok(None);
        }
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        Ok(match self.backends.stock.level(bucket).await? {
            None => Some(RebuildReason::Missing.text()),
            Some(level) if level.loading || level.fenced => Some(RebuildReason::NotOpen.text()),
            // The sale was read first: a sound stock can only be further by now.
            Some(level) if level.seq < sale.recorded_seq => Some(RebuildReason::WentBack.text()),
            Some(_) => None,
        })
    }
}

#[async_trait]
impl Worker for Rebuilder {
    fn name(&self) -> &'static str {
        "rebuild"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let mut round = Round::default();
        for sale in self.backends.ledger.sales().await? {
            round.note(self.look_after(&sale).await);
        }
        self.rounds.end(round, self.name())
    }
}
