//! What the staff does with a sale: preheat, open, pause, close, restock, rebuild; and with records
//! that could not be applied.
//!
//! Each is the ledger first and the stock after it; what a crash leaves between the two, the sale
//! clock, the rebuilder and the restocker finish.

use std::collections::HashMap;
use std::time::Duration;

use uuid::Uuid;

use crate::delivery::Decoded;
use crate::fault::BackendError;
use crate::ledger::{
    ChangeOutcome, RebuildOutcome, ReplayOutcome, RestockIntent, RestockOutcome, RestockState,
};
use crate::order::{Epoch, ItemId, OrderPlaced, SaleId};
use crate::queue;
use crate::sale::{LoaderToken, RebuildReason, Sale, SaleState};
use crate::stock::{BucketId, Level, PAGE_MAX};
use crate::workers::{Backends, Difference, Reconciler, Restocker};

/// How often a running preheat is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Time between two looks that compare every order: what is under way settles meanwhile.
const COMPARE_EVERY: Duration = Duration::from_secs(1);

/// The staff's operations.
#[derive(Clone)]
pub struct Operations {
    backends: Backends,
}

/// One item of a preheat's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemReport {
    /// The item.
    pub item: ItemId,
    /// Units in the sale, from the ledger.
    pub quantity: u64,
    /// Units of live orders, from the ledger.
    pub sold: u64,
    /// Units nobody holds, read back from the stock.
    pub free: u64,
    /// Units in holds, read back from the stock.
    pub held: u64,
}

/// What [`Operations::preheat`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreheatOutcome {
    /// The stock is loaded; everything was read back.
    Loaded {
        /// The sale.
        sale: Sale,
        /// Its items.
        items: Vec<ItemReport>,
    },
    /// The load goes on; ask again.
    StillLoading,
    /// The sale is over.
    Closed,
    /// There is no such sale.
    NoSale,
}

/// What [`Operations::rebuild`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildReport {
    /// The stock is loaded in a new epoch; everything was read back.
    Rebuilt {
        /// The sale, in its new epoch.
        sale: Sale,
        /// Its items.
        items: Vec<ItemReport>,
    },
    /// The rebuild goes on; asking again waits for the same one.
    StillRebuilding,
    /// The sale was never preheated: it has no stock yet.
    NoStock,
    /// There is no such sale.
    NoSale,
}

/// What [`Operations::differences`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DifferencesReport {
    /// What differs between the sale's stock and the ledger, and stood over two looks; nothing, when they
    /// agree.
    Compared {
        /// The sale.
        sale: Sale,
        /// The differences.
        differences: Vec<Difference>,
    },
    /// Too much is under way: the recorder never came past the first look, or a rebuild goes on.
    Unsettled,
    /// The sale was never preheated: it has no stock yet.
    NoStock,
    /// There is no such sale.
    NoSale,
}

/// What [`Operations::restock`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestockReport {
    /// Ledger and stock have moved, now or before.
    Done(RestockIntent),
    /// It is written down and will be finished as soon as the stock can be reached.
    Pending(RestockIntent),
    /// Fewer units are free than shall be taken away; nothing moved.
    NotEnough,
    /// Refused before anything moved.
    Refused(RestockOutcome),
}

impl Operations {
    /// Operations on these backends.
    pub fn new(backends: Backends) -> Self {
        Self { backends }
    }

    /// Reads a dead letter's bytes again, by what this program can read now, and applies the order in
    /// them by the ledger's ordinary rules.
    ///
    /// # Errors
    /// What the ledger reports.
    pub async fn replay_dead_letter(&self, id: i64, by: &str) -> Result<ReplayOutcome, BackendError> {
        let ledger = &self.backends.ledger;
        let Some(letter) = ledger.dead_letter(id).await? else { return Ok(ReplayOutcome::NoLetter) };
        if letter.closing.is_some() {
            return Ok(ReplayOutcome::ClosedBefore(letter));
        }
        match order_in(&letter.bytes) {
            Ok(order) => ledger.replay_dead_letter(id, &order, by).await,
            Err(why) => Ok(ReplayOutcome::StillDead(why)),
        }
    }

    /// Loads a draft's stock and reads it back, waiting at most `patience`; for a loaded sale it
    /// only reads back. The loading is the rebuilder's work.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn preheat(&self, id: SaleId, patience: Duration) -> Result<PreheatOutcome, BackendError> {
        let ledger = &self.backends.ledger;
        let mut look = tokio::time::interval(LOOK_EVERY);
        let until = tokio::time::Instant::now() + patience;
        loop {
            let Some(sale) = ledger.sale(id).await? else { return Ok(PreheatOutcome::NoSale) };
            if sale.epoch == Epoch(0) && sale.fence.is_none() {
                if sale.terms.state == SaleState::Closed {
                    return Ok(PreheatOutcome::Closed);
                }
                let begun = ledger
                    .begin_rebuild(
                        id,
                        sale.epoch,
                        RebuildReason::Preheat.text(),
                        LoaderToken::NOBODY,
                        Duration::MAX,
                    )
                    .await?;
                if let RebuildOutcome::Owned(sale) = begun {
                    tracing::info!(sale.id = %id, epoch = sale.epoch.0, "preheating");
                }
            } else if sale.fence.is_none()
                && let Some(items) = self.read_back(&sale).await?
            {
                return Ok(PreheatOutcome::Loaded { sale, items });
            }
            if tokio::time::Instant::now() >= until {
                return Ok(PreheatOutcome::StillLoading);
            }
            look.tick().await;
        }
    }

    /// Loads a sale's stock anew from the ledger in the next epoch and reads it back, waiting at
    /// most `patience`; where a rebuild is going on, it waits for that one. Buyers hear NOT_READY
    /// meanwhile. The loading is the rebuilder's work.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn rebuild(
        &self,
        id: SaleId,
        reason: &str,
        patience: Duration,
    ) -> Result<RebuildReport, BackendError> {
        let ledger = &self.backends.ledger;
        let Some(before) = ledger.sale(id).await? else { return Ok(RebuildReport::NoSale) };
        if before.epoch == Epoch(0) || before.terms.state == SaleState::Draft {
            return Ok(RebuildReport::NoStock);
        }
        // A fence that stands is a rebuild that goes on: a second one beside it would only repeat it.
        let mut wanted = before.epoch;
        if before.fence.is_none() {
            wanted = Epoch(before.epoch.0 + 1);
            let begun =
                ledger.begin_rebuild(id, before.epoch, reason, LoaderToken::NOBODY, Duration::MAX).await?;
            if let RebuildOutcome::Owned(sale) = begun {
                tracing::warn!(sale.id = %id, epoch = sale.epoch.0, reason, "the staff rebuilds the sale's stock");
            }
        }

        let mut look = tokio::time::interval(LOOK_EVERY);
        let until = tokio::time::Instant::now() + patience;
        loop {
            let Some(sale) = ledger.sale(id).await? else { return Ok(RebuildReport::NoSale) };
            if sale.fence.is_none()
                && sale.epoch >= wanted
                && let Some(items) = self.read_back(&sale).await?
            {
                return Ok(RebuildReport::Rebuilt { sale, items });
            }
            if tokio::time::Instant::now() >= until {
                return Ok(RebuildReport::StillRebuilding);
            }
            look.tick().await;
        }
    }

    /// Compares a sale's stock with the ledger, order by order, and changes nothing; waits at most
    /// `patience` for what is under way.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn differences(
        &self,
        id: SaleId,
        patience: Duration,
    ) -> Result<DifferencesReport, BackendError> {
        let mut reconciler = Reconciler::new(self.backends.clone());
        let mut look = tokio::time::interval(COMPARE_EVERY);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let until = tokio::time::Instant::now() + patience;
        loop {
            look.tick().await;
            let Some(sale) = self.backends.ledger.sale(id).await? else {
                return Ok(DifferencesReport::NoSale);
            };
            if sale.epoch == Epoch(0) || sale.terms.state == SaleState::Draft {
                return Ok(DifferencesReport::NoStock);
            }
            if sale.fence.is_none()
                && let Some(differences) = reconciler.look(&sale).await?
            {
                return Ok(DifferencesReport::Compared { sale, differences });
            }
            if tokio::time::Instant::now() >= until {
                return Ok(DifferencesReport::Unsettled);
            }
        }
    }

    /// Every item and every hold of the sale's bucket; `None` while it is not open.
    async fn read_back(&self, sale: &Sale) -> Result<Option<Vec<ItemReport>>, BackendError> {
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        let open = |level: &Level| !level.loading && !level.fenced;
        let Some(level) = self.backends.stock.level(bucket).await?.filter(open) else { return Ok(None) };
        let mut held: HashMap<ItemId, u64> = HashMap::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = self.backends.stock.holders(bucket, cursor.as_deref(), PAGE_MAX).await?;
            for hold in page.holds {
                *held.entry(hold.item).or_default() += u64::from(hold.units.0);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        let report = |item: &crate::sale::Item| ItemReport {
            item: item.id,
            quantity: item.quantity,
            sold: item.sold,
            free: level.items.iter().find(|it| it.item == item.id).map_or(0, |it| it.free),
            held: held.get(&item.id).copied().unwrap_or(0),
        };
        Ok(Some(sale.items.iter().map(report).collect()))
    }

    /// Opens a preheated or paused sale now, whatever its window said.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn open(&self, id: SaleId) -> Result<ChangeOutcome, BackendError> {
        let now = self.backends.clock.now();
        self.change(id, SaleState::Open, Some(now)).await
    }

    /// Stops selling until it is opened again; orders, payments and cancels go on.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn pause(&self, id: SaleId) -> Result<ChangeOutcome, BackendError> {
        self.change(id, SaleState::Paused, None).await
    }

    /// Ends a sale for good; orders that are placed can still be paid.
    ///
    /// # Errors
    /// What a backend reports; repeating is safe.
    pub async fn close(&self, id: SaleId) -> Result<ChangeOutcome, BackendError> {
        self.change(id, SaleState::Closed, None).await
    }

    async fn change(
        &self,
        id: SaleId,
        to: SaleState,
        opens_at: Option<crate::clock::Timestamp>,
    ) -> Result<ChangeOutcome, BackendError> {
        let outcome = self.backends.ledger.change_state(id, to, opens_at).await?;
        if let ChangeOutcome::Done(sale) = &outcome
            && sale.fence.is_none()
            && sale.epoch != Epoch(0)
        {
            let bucket = BucketId { sale: id, epoch: sale.epoch };
            self.backends.stock.set_terms(bucket, &sale.terms).await?;
        }
        Ok(outcome)
    }

    /// Changes an item's quantity by a difference, once per operation id.
    ///
    /// # Errors
    /// What a backend reports; repeating with the same operation id is safe.
    pub async fn restock(
        &self,
        operation: Uuid,
        sale: SaleId,
        item: ItemId,
        units: i64,
    ) -> Result<RestockReport, BackendError> {
        let intent = match self.backends.ledger.begin_restock(operation, sale, item, units).await? {
            RestockOutcome::Intent(intent) => intent,
            refused => return Ok(RestockReport::Refused(refused)),
        };
        let intent = Restocker::new(self.backends.clone()).finish(intent).await?;
        Ok(match intent.state {
            RestockState::Done => RestockReport::Done(intent),
            RestockState::Open => RestockReport::Pending(intent),
            RestockState::Cancelled => RestockReport::NotEnough,
        })
    }
}

/// The order that a parked record says: a message as it stood in the queue, or an order that could be
/// read and was refused.
fn order_in(bytes: &[u8]) -> Result<Box<OrderPlaced>, String> {
    match queue::decode(bytes) {
        Decoded::Order(order) | Decoded::Refused { order, .. } => Ok(order),
        Decoded::UnknownVersion(version) => {
            Err(format!("it is a message of version {version}, which a newer program reads"))
        }
        Decoded::Unreadable { why, .. } => serde_json::from_slice(bytes).map_err(|_| why),
    }
}
