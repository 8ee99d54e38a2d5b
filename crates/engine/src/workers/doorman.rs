//! Doorman: reads who may not buy any more, for the gates of this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::block::Blocked;
use crate::fault::BackendError;
use crate::gate::{Barred, BlockList};
use crate::order::SaleId;
use crate::sale::{Catalog, Sale, SaleState};
use crate::switches::SwitchName;

/// Bars users with too many strikes, which are orders that held units and were not paid, and whom the staff has blocked.
pub struct Doorman {
    backends: Backends,
    catalog: Arc<ArcSwap<Catalog>>,
    barred: Arc<Barred>,
    strikes_max: u32,
    /// The blocks that stand, by their ids, at most as many as the staff may add.
    blocks: HashMap<i64, (Option<SaleId>, Blocked)>,
    /// The number of the last change to them that was read.
    seen: i64,
    /// Whether the gates do not go by all of that yet.
    behind: bool,
    /// Not before this time of the monotonic clock.
    next: Duration,
    rounds: Rounds,
}

/// Most changes of blocks that are read at once.
const CHANGES_MAX: usize = 10_000;

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
        Self {
            backends,
            catalog,
            barred,
            strikes_max,
            blocks: HashMap::new(),
            seen: 0,
            behind: false,
            next: Duration::ZERO,
            rounds: Rounds::default(),
        }
    }

    /// Follows what the staff has blocked and lifted. The gates go by it once all of it is read: what cannot be read
    /// leaves their list as it was.
    async fn read_blocks(&mut self) -> Result<(), BackendError> {
        loop {
            let page = self.backends.ledger.block_changes(self.seen, CHANGES_MAX).await?;
            if page.newest < self.seen {
                tracing::warn!("the ledger's list of blocks has gone back: it is read from the start");
                self.blocks.clear();
                (self.seen, self.behind) = (0, true);
                continue;
            }
            let whole = page.changes.len() < CHANGES_MAX;
            for change in page.changes {
                (self.seen, self.behind) = (change.number, true);
                if change.stands {
                    self.blocks.insert(change.id, (change.sale, change.blocked));
                } else {
                    self.blocks.remove(&change.id);
                }
            }
            if whole {
                self.seen = self.seen.max(page.newest);
                break;
            }
        }
        if std::mem::take(&mut self.behind) {
            self.barred.replace_blocks(BlockList::new(self.blocks.values().map(|(sale, it)| (*sale, it))));
        }
        Ok(())
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
        round.note(self.read_blocks().await.map(|()| 0));
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
