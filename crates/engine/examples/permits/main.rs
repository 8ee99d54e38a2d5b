//! Permits through the batcher from a real Redis, as fast as they come: what the benchmark measures.
//!
//! `permits URL refusals|holds|gated-holds SECONDS WAITING BATCHERS` prints one JSON object. `gated-holds` is
//! `holds` with each click through a whole gate first, where everything is on: a sale token of somebody who has
//! passed the captcha and the waiting room, limits, a blocklist, regions, early access.
#![expect(clippy::print_stdout, reason = "a program for the benchmark: it prints its figure")]
#![expect(clippy::disallowed_methods, reason = "it measures real time and starts tasks of its own")]

mod gated;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::gate::Gate;
use doorbuster_engine::order::{Epoch, ItemId, OrderIds, SaleId, Units, UserId};
use doorbuster_engine::sale::{LoaderToken, SaleState, Terms};
use doorbuster_engine::stock::{
    Batcher, BatcherLimits, BucketId, LoadPage, ReadBack, RedisOptions, RedisStock, ReserveOutcome,
    ReserveReply, ReserveRequest, Stock,
};

const BUCKET: BucketId = BucketId { sale: SaleId(1), epoch: Epoch(1) };
/// More clicks through the gate in a second than a core can answer: so many tokens are made before.
const CLICKS_MAX: usize = 400_000;
/// More units than a run can take.
const PLENTY: u64 = 1_000_000_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, mode, seconds, waiting, batchers] = words.as_slice() else {
        return Err("permits URL refusals|holds|gated-holds SECONDS WAITING BATCHERS".into());
    };
    let run = Run {
        units: if mode == "refusals" { 0 } else { PLENTY },
        gated: mode == "gated-holds",
        seconds: seconds.parse()?,
        waiting: waiting.parse()?,
        batchers: batchers.parse()?,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, run.measure(url))
}

struct Run {
    units: u64,
    /// Whether clicks pass a gate before.
    gated: bool,
    seconds: u32,
    waiting: usize,
    batchers: usize,
}

/// What all buyers share.
struct Buyers {
    gate: Option<(Gate, Vec<String>)>,
    ids: OrderIds,
    clock: SystemClock,
    clicks: Cell<usize>,
    answered: Cell<u64>,
    held: Cell<u64>,
}

impl Run {
    async fn measure(self, url: &str) -> Result<(), Box<dyn std::error::Error>> {
        let prefix = format!("permits:{:x}:", rand::random::<u64>());
        let stock = Arc::new(RedisStock::connect(RedisOptions { prefix, ..RedisOptions::new(url) }).await?);
        let clock = SystemClock::new();
        let terms = terms(&clock);
        open(stock.as_ref(), &terms, self.units).await?;
        let gate = if self.gated {
            let count = CLICKS_MAX * usize::try_from(self.seconds)?;
            Some((gated::gate(terms)?, gated::tokens(count, user)?))
        } else {
            None
        };
        let (answered, held) = (Cell::default(), Cell::default());
        let buyers =
            Rc::new(Buyers { gate, ids: OrderIds::new(), clock, clicks: Cell::default(), answered, held });
        let began = Instant::now();
        for _ in 0..self.batchers {
            let (batcher, work) = Batcher::new(Arc::clone(&stock) as _, BatcherLimits::default());
            tokio::task::spawn_local(work.run());
            for _ in 0..self.waiting {
                tokio::task::spawn_local(Rc::clone(&buyers).click_on(batcher.clone()));
            }
        }
        tokio::time::sleep(Duration::from_secs(self.seconds.into())).await;
        let seconds = began.elapsed().as_secs_f64();
        println!(
            "{{\"answered\":{},\"held\":{},\"perSecond\":{:.0}}}",
            buyers.answered.get(),
            buyers.held.get(),
            buyers.answered.get() as f64 / seconds
        );
        Ok(())
    }
}

impl Buyers {
    /// One of the buyers who click without end. Every click is another user's, as in a sale.
    async fn click_on(self: Rc<Self>, batcher: Batcher) {
        loop {
            let click = self.clicks.replace(self.clicks.get() + 1);
            let (order, user) = match &self.gate {
                None => (self.ids.next(self.clock.now()), user(click)),
                Some((gate, tokens)) => {
                    let claim = gated::admit(gate, &tokens[click], click);
                    (claim.order, claim.user)
                }
            };
            let (item, units) = (ItemId(1), Units(1));
            let request = ReserveRequest { order, user, item, units, trace: None, retake_of: None };
            match batcher.reserve(BUCKET, request).await {
                ReserveReply::Answered { outcome, .. } => {
                    self.answered.set(self.answered.get() + 1);
                    if matches!(outcome, ReserveOutcome::Held { .. }) {
                        self.held.set(self.held.get() + 1);
                    }
                }
                other => panic!("the stock does not answer: {other:?}"),
            }
        }
    }
}

fn user(number: usize) -> UserId {
    UserId::new(&format!("user-{number}")).expect("a short plain id")
}

fn terms(clock: &dyn Clock) -> Terms {
    let now = clock.now();
    Terms {
        state: SaleState::Open,
        opens_at: now.minus(Duration::from_secs(3_600)),
        closes_at: now.plus(Duration::from_secs(3_600)),
        limit: Units(1),
    }
}

async fn open(stock: &dyn Stock, terms: &Terms, units: u64) -> Result<(), Box<dyn std::error::Error>> {
    let token = LoaderToken(1);
    stock.begin_load(BUCKET, terms, token).await?;
    stock.load(BUCKET, token, 0, &LoadPage::Items(vec![(ItemId(1), units)])).await?;
    stock.finish_load(BUCKET, token, ReadBack { seq: 0, pages: 1 }).await?;
    Ok(())
}
