//! The sale clock: sales are preheated, opened and closed on time, and the stock sells by the
//! ledger's terms.

use std::time::Duration;

use async_trait::async_trait;

use super::{Backends, Step, Worker};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::{ChangeOutcome, RebuildOutcome};
use crate::order::Epoch;
use crate::sale::{LoaderToken, Sale, SaleState};
use crate::stock::BucketId;

/// A sale's state is opened this long before its window, so that the state has reached the stock
/// and every gateway when the window begins; the stock's own clock opens the window to the
/// millisecond.
const OPEN_LEAD: Duration = Duration::from_secs(2);

/// Moves sales along their window.
pub struct SaleClock {
    backends: Backends,
    preheat_lead: Duration,
}

impl SaleClock {
    /// A sale clock that preheats `preheat_lead` before a sale opens.
    pub fn new(backends: Backends, preheat_lead: Duration) -> Self {
        Self { backends, preheat_lead }
    }

    async fn tick(&self, sale: &Sale, now: Timestamp) -> Result<u64, BackendError> {
        let terms = &sale.terms;
        let due = match terms.state {
            SaleState::Closed => None,
            _ if now >= terms.closes_at => Some(SaleState::Closed),
            SaleState::Draft if now >= terms.opens_at.minus(self.preheat_lead) => {
                return self.preheat(sale).await;
            }
            SaleState::Preheated if now >= terms.opens_at.minus(OPEN_LEAD) && sale.fence.is_none() => {
                Some(SaleState::Open)
            }
            SaleState::Draft | SaleState::Preheated | SaleState::Open | SaleState::Paused => None,
        };
        let mut sale = sale.clone();
        let mut moved = 0;
        if let Some(to) = due
            && let ChangeOutcome::Done(changed) = self.backends.ledger.change_state(sale.id, to, None).await?
        {
            tracing::info!(sale.id = %sale.id, state = %to, "the sale's time has come");
            sale = changed;
            moved = 1;
        }
        Ok(moved + self.tell_stock(&sale).await?)
    }

    async fn preheat(&self, sale: &Sale) -> Result<u64, BackendError> {
        if sale.fence.is_some() {
            return Ok(0);
        }
        let begun = self
            .backends
            .ledger
            .begin_rebuild(sale.id, sale.epoch, "preheat", LoaderToken::NOBODY, Duration::MAX)
            .await?;
        Ok(u64::from(matches!(begun, RebuildOutcome::Owned(_))))
    }

    /// The stock sells by what it was told: a change that was lost on the way is repeated here.
    async fn tell_stock(&self, sale: &Sale) -> Result<u64, BackendError> {
        if sale.epoch == Epoch(0) || sale.fence.is_some() {
            return Ok(0);
        }
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        let Some(level) = self.backends.stock.level(bucket).await? else { return Ok(0) };
        if level.loading || level.fenced || level.terms == sale.terms {
            return Ok(0);
        }
        Ok(u64::from(self.backends.stock.set_terms(bucket, &sale.terms).await?))
    }
}

#[async_trait]
impl Worker for SaleClock {
    fn name(&self) -> &'static str {
        "sale_clock"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let now = self.backends.clock.now();
        let mut moved = 0;
        for sale in self.backends.ledger.sales().await? {
            moved += self.tick(&sale, now).await?;
        }
        Ok(Step::of(moved))
    }
}
