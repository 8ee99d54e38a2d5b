//! Patient buyers over real HTTP, who write down what they asked and heard.
//!
//! Each user clicks until the answer is final (202, 409 with an order, 410, another refusal) or the
//! patience ends. After a 503, a 429, a broken connection or silence, and before the sale has begun,
//! the user clicks again, at a gateway chosen anew. Some then cancel, some have a payment entered, some
//! buy again; which, is decided by the plan's seed. So many users live at a time as there are lanes; a
//! lane is one task with a connection per gateway.

mod gateway;
mod shopper;

use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use doorbuster_loadtest::{AdminClient, TokenSigner};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::history::{History, Recorder};
use crate::{ItemId, SaleId};
use shopper::Shopper;

/// What a sale offers, as far as a buyer must know.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The sale.
    pub sale: SaleId,
    /// Its items; a user wants one of them.
    pub items: Vec<ItemId>,
    /// Most units per user. Above one, every click has an Idempotency-Key and wants 1 to this many.
    pub limit: u32,
    /// Price of one unit, in minor units, of every item.
    pub price_minor: i64,
    /// The price's currency.
    pub currency: String,
}

/// How many of a hundred users do what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shares {
    /// Send an Idempotency-Key with their clicks.
    pub keyed: u8,
    /// Cancel what they got.
    pub cancel: u8,
    /// Have a payment entered for what they got. Those who cancel never do.
    pub pay: u8,
    /// Buy again once their order is closed.
    pub again: u8,
}

/// Everything about a crowd.
#[derive(Clone)]
pub struct Plan {
    /// What is bought.
    pub offer: Offer,
    /// How many users there are.
    pub users: u32,
    /// How users are named: this and their number. Two crowds need two names.
    pub name: String,
    /// How many users live at a time.
    pub lanes: u32,
    /// Who does what.
    pub shares: Shares,
    /// How long one user tries in all.
    pub patience: Duration,
    /// How long one call may take.
    pub call_limit: Duration,
    /// Longest pause between two tries, whatever the server asks for.
    pub longest_pause: Duration,
    /// Signs the users' tokens.
    pub tokens: TokenSigner,
    /// The server's time in seconds since 1970, which tokens begin at.
    pub now_s: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// Where payments are entered; without, nobody pays.
    pub staff: Vec<Arc<AdminClient>>,
    /// Decides who does what, and every choice of a gateway.
    pub seed: u64,
}

impl Plan {
    /// Users who only buy, by the machine's clock, with a minute's patience.
    pub fn new(offer: Offer, users: u32, tokens: TokenSigner) -> Self {
        Self {
            offer,
            users,
            name: "user".to_owned(),
            lanes: 32,
            shares: Shares::default(),
            patience: Duration::from_secs(60),
            call_limit: Duration::from_secs(10),
            longest_pause: Duration::from_millis(200),
            tokens,
            now_s: Arc::new(|| u64::try_from(jiff::Timestamp::now().as_second()).unwrap_or(0)),
            staff: Vec::new(),
            seed: 1,
        }
    }
}

/// Where the gateways are; clones share the list, so that a scenario can change it under a crowd.
#[derive(Clone, Debug)]
pub struct Gateways(Arc<RwLock<Vec<SocketAddr>>>);

impl Gateways {
    /// These gateways.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self(Arc::new(RwLock::new(addresses)))
    }

    /// Other gateways from now on, such as one that came back on another port.
    pub fn replace(&self, addresses: Vec<SocketAddr>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = addresses;
    }

    fn all(&self) -> Vec<SocketAddr> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Clicks sent, repeated ones too.
    pub clicks: u64,
    /// 202s that were no replay.
    pub accepted: u64,
    /// 202s that were one.
    pub replayed: u64,
    /// 409s that name an order, or that the limit is reached.
    pub held: u64,
    /// 410s.
    pub gone: u64,
    /// Other refusals from 400 to 499.
    pub refused: u64,
    /// 5xx, broken connections and silence.
    pub unresolved: u64,
    /// Payments that paid an order.
    pub paid: u64,
    /// Orders cancelled by their users.
    pub cancelled: u64,
    /// Users whose life is over.
    pub done: u64,
    /// Those of them whose patience ended before they knew.
    pub impatient: u64,
}

/// Buyers at work.
pub struct Crowd {
    recorder: Recorder,
    // Lanes have the sending side: when the last one ends, whoever waits hears that nothing comes.
    counts: watch::Receiver<Counts>,
    stop: watch::Sender<bool>,
    lanes: JoinSet<()>,
}

impl Crowd {
    /// Lets the users of `plan` go, and writes down what they do in `recorder`.
    pub fn start(plan: Plan, gateways: &Gateways, recorder: &Recorder) -> Self {
        let (sender, counts) = watch::channel(Counts::default());
        let stop = watch::Sender::new(false);
        let mut lanes = JoinSet::new();
        let next = Arc::new(AtomicU32::new(0));
        let plan = Arc::new(plan);
        for _ in 0..plan.lanes.clamp(1, plan.users.max(1)) {
            let next = Arc::clone(&next);
            let mut shopper = Shopper::new(
                Arc::clone(&plan),
                gateways.clone(),
                recorder.clone(),
                sender.clone(),
                stop.subscribe(),
            );
            lanes.spawn(async move {
                loop {
                    let user = next.fetch_add(1, Ordering::Relaxed);
                    if user >= shopper.users() || shopper.is_stopped() {
                        return;
                    }
                    shopper.live(user).await;
                }
            });
        }
        Self { recorder: recorder.clone(), counts, stop, lanes }
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        *self.counts.borrow()
    }

    /// Waits until the counts are so, such as "500 were accepted"; answers whether they ever were: all
    /// users may be done before. The future stands on its own, so it can be awaited beside the crowd.
    pub fn reaches<F>(&self, enough: F) -> impl Future<Output = bool> + Send + use<F>
    where
        F: Fn(&Counts) -> bool + Send,
    {
        let mut counts = self.counts.clone();
        async move { counts.wait_for(enough).await.is_ok() }
    }

    /// Lets users end the call that they are in, and begin no other.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until every user's life is over, or those that had begun when it was stopped; answers
    /// everything that the recorder has.
    ///
    /// # Panics
    /// When a buyer did.
    pub async fn join(mut self) -> History {
        while let Some(lane) = self.lanes.join_next().await {
            if let Err(error) = lane {
                std::panic::resume_unwind(error.into_panic());
            }
        }
        self.recorder.history()
    }
}
