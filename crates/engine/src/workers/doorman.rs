//! Doorman: reads who may not buy any more, for the gates of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::gate::Barred;
use crate::sale::{Catalog, Sale, SaleState};
use crate::switches::SwitchName;

/// Bars users with too many strikes: orders that held units and were not paid.
pub struct Doorman {
    backends: Backends,
    catalog: Arc<ArcSwap<Catalog>>,
    barred: Arc<Barred>,
    strikes_max: u32,
    /// Not before this time of the monotonic clock.
    next: Duration,
    rounds: Rounds,
}

/// A look is as dear as there are strikes: it rests so many times as long as it took, and the ledger has all
/// that time for buyers.
const REST: u32 = 20;
/// And at most so long: a ledger that was silent for a while is asked soon.
const REST_MAX: Duration = Duration::from_secs(5);

impl Doorman {
    /// A doorman who bars users with `strikes_max` strikes, where the staff has not turned that; 0 bars nobody.
    pub fn new(
        backends: Backends,
        catalog: Arc<ArcSwap<Catalog>>,
        barred: Arc<Barred>,
        strikes_max: u32,
    ) -> Self {
        Self { backends, catalog, barred, strikes_max, next: Duration::ZERO, rounds: Rounds::default() }
    }
}

#[async_trait]
impl Worker for Doorman {
    fn name(&self) -> &'static str {
        "doorman"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let began = self.backends.clock.monotonic();
        if began < self.next {
            return Ok(Step::of(0));
        }
        let catalog = self.catalog.load_full();
        let strikes = catalog.switches().number(SwitchName::StrikesMax).unwrap_or(self.strikes_max);
        let mut round = Round::default();
        let mut barred = BTreeMap::new();
        let selling = |it: &&Arc<Sale>| matches!(it.terms.state, SaleState::Open | SaleState::Paused);
        for sale in catalog.sales().iter().filter(selling).filter(|_| strikes > 0) {
            let struck = self.backends.ledger.struck(sale.id, strikes).await;
            // Who cannot be read stay as they were.
            let users = match &struck {
                Ok(users) => users.iter().cloned().collect(),
                Err(_) => self.barred.of(sale.id).unwrap_or_default(),
            };
            if !users.is_empty() {
                barred.insert(sale.id, users);
            }
            round.note(struck.map(|_| 0));
        }
        self.barred.replace(barred);
        let ended = self.backends.clock.monotonic();
        self.next = ended + (ended.saturating_sub(began) * REST).min(REST_MAX);
        self.rounds.end(round, self.name())
    }
}
