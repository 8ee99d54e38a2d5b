//! The sale clock: sales are preheated, opened and closed on time, and the stock sells by the
//! ledger's terms.

use std::time::Duration;

use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::ledger::{ChangeOutcome, RebuildOutcome};
use crate::order::Epoch;
use crate::sale::{LoaderToken, RebuildReason, Sale, SaleState};
use crate::stock::{BucketId, Level};

/// A sale's state is opened this long before its window, so that the state has reached the stock
/// and every gateway when the window begins; the stock's own clock opens the window to the
/// millisecond.
const OPEN_LEAD: Duration = Duration::from_secs(2);

/// Moves sales along their window.
pub struct SaleClock {
    backends: Backends,
    preheat_lead: Duration,
    rounds: Rounds,
}

impl SaleClock {
    /// A sale clock that preheats `preheat_lead` before a sale opens.
    pub fn new(backends: Backends, preheat_lead: Duration) -> Self {
        Self { backends, preheat_lead, rounds: Rounds::default() }
    }

    /// `now` is this machine's time. Opening and closing go by the stock's clock, as the window does: a
    /// keeper's wrong clock closes nothing, and keeps no loaded sale shut.
    async fn tick(&self, sale: &Sale, now: Timestamp) -> Result<u64, BackendError> {
        let terms = &sale.terms;
        let level = self.level(sale).await?;
        let stocks_now = level.as_ref().map(|level| level.now);
        let due = match terms.state {
            SaleState::Closed => None,
            _ if stocks_now.is_some_and(|now| now >= terms.closes_at) => Some(SaleState::Closed),
            SaleState::Draft if now >= terms.opens_at.minus(self.preheat_lead) && now < terms.closes_at => {
                return self.preheat(sale).await;
            }
            SaleState::Preheated
                if stocks_now.unwrap_or(now) >= terms.opens_at.minus(OPEN_LEAD) && sale.fence.is_none() =>
            {
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
        Ok(moved + self.tell_stock(&sale, level).await?)
    }

    /// The figures of the sale's present bucket; nothing while there is none.
    async fn level(&self, sale: &Sale) -> Result<Option<Level>, BackendError> {
        if sale.epoch == Epoch(0) {
            return Ok(None);
        }
        self.backends.stock.level(BucketId { sale: sale.id, epoch: sale.epoch }).await
    }

    async fn preheat(&self, sale: &Sale) -> Result<u64, BackendError> {
        if sale.fence.is_some() {
            return Ok(0);
        }
        let begun = self
            .backends
            .ledger
            .begin_rebuild(
                sale.id,
                sale.epoch,
                RebuildReason::Preheat.text(),
                LoaderToken::NOBODY,
                Duration::MAX,
            )
            .await?;
        Ok(u64::from(matches!(begun, RebuildOutcome::Owned(_))))
    }

    /// The stock sells by what it was told: a change that was lost on the way is repeated here.
    async fn tell_stock(&self, sale: &Sale, level: Option<Level>) -> Result<u64, BackendError> {
        let differs = |level: &Level| !level.loading && !level.fenced && level.terms != sale.terms;
        if sale.fence.is_some() || !level.as_ref().is_some_and(differs) {
            return Ok(0);
        }
        // The staff may have changed the sale since it was read: the stock is told what holds now.
        match self.backends.ledger.sale(sale.id).await? {
            Some(sale) if sale.fence.is_none() => {
                let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
                Ok(u64::from(self.backends.stock.set_terms(bucket, &sale.terms).await?))
            }
            _ => Ok(0),
        }
    }
}

#[async_trait]
impl Worker for SaleClock {
    fn name(&self) -> &'static str {
        "sale_clock"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let now = self.backends.clock.now();
        let mut round = Round::default();
        for sale in self.backends.ledger.sales().await?.iter().filter(|sale| !sale.is_settled(now)) {
            round.note(self.tick(sale, now).await);
        }
        self.rounds.end(round, self.name())
    }
}
