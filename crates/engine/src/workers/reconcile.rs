//! Reconcile: a detector, not a second repair. It compares who holds units in the stock with the
//! live orders of the ledger; a difference that stands is answered by the one repair, a rebuild.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::delivery::{Position, reached};
use crate::fault::BackendError;
use crate::order::{Epoch, OrderId, OrderStatus};
use crate::sale::{LoaderToken, RebuildReason, Sale};
use crate::stock::{BucketId, PAGE_MAX};

/// One way in which stock and ledger differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Live in the ledger and not held.
    NotHeld(OrderId),
    /// Held, closed in the ledger, and no release row is on its way.
    HeldThoughClosed(OrderId),
    /// Held, unknown to the ledger, and not in the outbox.
    HeldAndUnknown(OrderId),
    /// Nothing is in flight and free units are not the ones that are not sold.
    WrongFree(i64),
    /// The stock gave its step of this number to two orders: it has gone back in between.
    SameStep(u64),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeld(order) => {
                write!(f, "order {order} is live in the ledger and the stock does not hold it")
            }
            Self::HeldThoughClosed(order) => {
                write!(f, "order {order} is closed, the stock holds it, and no release is on its way")
            }
            Self::HeldAndUnknown(order) => {
                write!(f, "order {order} is held, and neither the ledger nor the outbox knows it")
            }
            Self::SameStep(seq) => {
                write!(f, "two orders have step {seq} of the stock, which has gone back in between")
            }
            Self::WrongFree(units) => {
                write!(f, "free units in the stock are {units} away from those that are not sold")
            }
        }
    }
}

/// What the last pass over a sale saw.
struct Pass {
    epoch: Epoch,
    differences: BTreeSet<Difference>,
    /// The queue's ends as read in that pass.
    ends: Vec<Position>,
}

/// Compares every open sale's stock with the ledger, one sale per step.
pub struct Reconciler {
    backends: Backends,
    last: HashMap<crate::order::SaleId, Pass>,
    turn: usize,
}

impl Reconciler {
    /// A reconciler that has seen nothing yet.
    pub fn new(backends: Backends) -> Self {
        Self { backends, last: HashMap::new(), turn: 0 }
    }

    /// One pass over one sale, which changes nothing: the differences that stood over this one and the one
    /// before. `None` is no answer yet: it was the first pass of this epoch, the recorder has not come past
    /// it, or the stock is not open.
    ///
    /// # Errors
    /// What a backend reports; the pass does not count then.
    pub async fn look(&mut self, sale: &Sale) -> Result<Option<Vec<Difference>>, BackendError> {
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        let ends = self.backends.queue.end_positions().await?;
        let positions = self.backends.ledger.positions().await?;
        let Some(differences) = self.compare(sale, bucket, &ends).await? else {
            self.last.remove(&sale.id);
            return Ok(None);
        };
        let before =
            self.last.insert(sale.id, Pass { epoch: sale.epoch, differences: differences.clone(), ends });
        let Some(before) = before.filter(|it| it.epoch == sale.epoch && reached(&positions, &it.ends)) else {
            return Ok(None);
        };
        Ok(Some(differences.intersection(&before.differences).copied().collect()))
    }

    /// One pass over one sale, which fences it when differences stood; answers how many did.
    ///
    /// # Errors
    /// What a backend reports; the pass does not count then.
    pub async fn pass(&mut self, sale: &Sale) -> Result<u64, BackendError> {
        let standing = self.look(sale).await?.unwrap_or_default();
        let Some(first) = standing.first() else { return Ok(0) };
        tracing::error!(
            sale.id = %sale.id, differences = standing.len(), first = %first,
            "stock and ledger differ and it stands: fencing the sale and rebuilding its stock"
        );
        let reason = RebuildReason::Differs.text();
        self.backends
            .ledger
            .begin_rebuild(sale.id, sale.epoch, reason, LoaderToken::NOBODY, Duration::MAX)
            .await?;
        self.last.remove(&sale.id);
        Ok(standing.len() as u64)
    }

    /// `None` when the bucket is not open.
    async fn compare(
        &self,
        sale: &Sale,
        bucket: BucketId,
        ends: &[Position],
    ) -> Result<Option<BTreeSet<Difference>>, BackendError> {
        let (orders, same_steps) = self.ledgers_orders(sale).await?;
        let Some(level) = self.backends.stock.level(bucket).await? else { return Ok(None) };
        if level.loading || level.fenced {
            return Ok(None);
        }
        let mut differences = same_steps;
        let mut live: BTreeSet<OrderId> =
            orders.iter().filter(|(_, status)| status.is_live()).map(|(order, _)| *order).collect();
        let unconfirmed: BTreeSet<OrderId> = self.unconfirmed(bucket).await?;
        let (mut closed, mut cursor): (Vec<OrderId>, Option<String>) = (Vec::new(), None);
        loop {
            let page = self.backends.stock.holders(bucket, cursor.as_deref(), PAGE_MAX).await?;
            for hold in page.holds {
                live.remove(&hold.order);
                match orders.get(&hold.order) {
                    Some(status) if status.is_live() => {}
                    Some(_) => closed.push(hold.order),
                    None if unconfirmed.contains(&hold.order) => {}
                    None => drop(differences.insert(Difference::HeldAndUnknown(hold.order))),
                }
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        differences.extend(live.into_iter().map(Difference::NotHeld));
        // A release row would bring the unit back; without one nothing will.
        let waiting: BTreeSet<OrderId> =
            self.backends.ledger.releases_waiting(PAGE_MAX).await?.into_iter().collect();
        if waiting.len() < PAGE_MAX {
            let stuck = closed.into_iter().filter(|order| !waiting.contains(order));
            differences.extend(stuck.map(Difference::HeldThoughClosed));
        }
        let quiet = waiting.is_empty() && unconfirmed.is_empty();
        if quiet && self.nothing_moved(sale, bucket, level.seq, ends).await? {
            differences.extend(wrong_free(sale, &level));
        }
        Ok(Some(differences))
    }

    /// Whether the sale and its stock are as they were when the pass began.
    async fn nothing_moved(
        &self,
        sale: &Sale,
        bucket: BucketId,
        seq: u64,
        ends: &[Position],
    ) -> Result<bool, BackendError> {
        let Backends { stock, ledger, .. } = &self.backends;
        let recorded = reached(&ledger.positions().await?, ends);
        let same_sale = ledger.sale(sale.id).await?.is_some_and(|now| now == *sale);
        let same_stock = stock.level(bucket).await?.is_some_and(|now| now.seq == seq);
        Ok(recorded && same_sale && same_stock)
    }

    /// Every order of the sale with its status; and the steps of the present epoch that two of them have.
    async fn ledgers_orders(
        &self,
        sale: &Sale,
    ) -> Result<(HashMap<OrderId, OrderStatus>, BTreeSet<Difference>), BackendError> {
        let (mut orders, mut after) = (HashMap::new(), None);
        let (mut steps, mut same) = (HashSet::new(), BTreeSet::new());
        loop {
            let page = self.backends.ledger.orders(sale.id, after, PAGE_MAX).await?;
            after = page.last().map(|order| order.reservation.order);
            let full = page.len() == PAGE_MAX;
            for order in page {
                let it = &order.reservation;
                if it.epoch == sale.epoch && it.has_step() && !steps.insert(it.seq) {
                    same.insert(Difference::SameStep(it.seq));
                }
                orders.insert(it.order, order.status);
            }
            if !full {
                return Ok((orders, same));
            }
        }
    }

    async fn unconfirmed(&self, bucket: BucketId) -> Result<BTreeSet<OrderId>, BackendError> {
        let far = crate::clock::Timestamp::from_ms(i64::MAX);
        let entries = self.backends.stock.unconfirmed(bucket, far, usize::MAX).await?;
        Ok(entries.into_iter().map(|entry| entry.order).collect())
    }
}

fn wrong_free(sale: &Sale, level: &crate::stock::Level) -> Option<Difference> {
    let wrong = level.items.iter().map(|it| {
        let item = sale.item(it.item);
        let expected = item.map_or(0, |item| item.quantity.saturating_sub(item.sold));
        i128::from(it.free) - i128::from(expected)
    });
    let sum: i128 = wrong.map(i128::abs).sum();
    (sum != 0).then(|| Difference::WrongFree(i64::try_from(sum).unwrap_or(i64::MAX)))
}

#[async_trait]
impl Worker for Reconciler {
    fn name(&self) -> &'static str {
        "reconcile"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let sales = self.backends.ledger.sales().await?;
        let open: Vec<&Sale> =
            sales.iter().filter(|sale| sale.epoch != Epoch(0) && sale.fence.is_none()).collect();
        if open.is_empty() {
            return Ok(Step::Idle);
        }
        self.turn = (self.turn + 1) % open.len();
        let found = self.pass(open[self.turn]).await?;
        // Idle even when something was found: the pace of the passes is the loop's.
        if found > 0 {
            tracing::warn!(found, "differences that stood");
        }
        Ok(Step::Idle)
    }
}
