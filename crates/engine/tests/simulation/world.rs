//! One simulated shop: the real engine over backends with fates, its clients, and what they saw.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use doorbuster_engine::audit;
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::engine::{Engine, PurchaseOutcome, Shared};
use doorbuster_engine::gate::{
    Attempt, Caller, JwtKey, JwtKeys, JwtRules, JwtVerifier, Limits, Refusal, SaleTokens, Wish,
};
use doorbuster_engine::ledger::{CancelOutcome, PaymentEvent, Positions, SqliteLedger};
use doorbuster_engine::operate::Operations;
use doorbuster_engine::order::{ItemId, OrderId, OrderPlaced, OrderStatus, SaleId, Units, UserId};
use doorbuster_engine::queue::{EmbeddedQueue, Queue, QueueOptions};
use doorbuster_engine::sale::{Catalog, LoaderToken, NewSale, Sale};
use doorbuster_engine::stock::{Batcher, BatcherLimits, BucketId, EmbeddedStock, LoadPage, ReadBack, Stock};
use doorbuster_engine::workers::*;

use crate::backends::{SimLedger, SimQueue, SimStock, Wire};
use crate::disk::Disk;
use crate::endpoint::{self, Heard};
use crate::fate::{Fate, Odds};
use crate::pages::{self, Page};
use crate::planted::Planted;
use crate::random::Random;

pub(crate) const WINDOW: Duration = Duration::from_secs(60);
pub(crate) const SALE: SaleId = SaleId(1);
const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const START: Timestamp = Timestamp::from_ms(1_800_000_000_000);
pub(crate) const LIMIT: u32 = 2;

/// A 202 or a held order that a client saw.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) order: OrderId,
    pub(crate) user: String,
    pub(crate) item: i64,
    pub(crate) units: i64,
    pub(crate) key: String,
    /// When, by the monotonic clock.
    pub(crate) at: Duration,
}

/// What the clients saw, and what was done to the stock; outlives every process.
#[derive(Default)]
pub(crate) struct Clients {
    pub(crate) accepted: Vec<Seen>,
    /// Orders whose cancel may have taken effect.
    pub(crate) cancels: BTreeSet<OrderId>,
    pub(crate) cancelled: BTreeSet<OrderId>,
    /// Payments that the provider captured: id, order, amount; and those the ledger took.
    pub(crate) captured: BTreeMap<String, (OrderId, i64)>,
    pub(crate) told: BTreeSet<String>,
    /// What the shop was told of.
    pub(crate) heard: Arc<Mutex<Heard>>,
    /// The provider's pages, by order.
    pub(crate) pages: BTreeMap<OrderId, Page>,
    /// The latest time that any clock has shown.
    pub(crate) latest: Option<Timestamp>,
    pub(crate) restocked: BTreeMap<u128, (i64, i64)>,
    /// By derived order id: whether any answer but a refusal was ever given.
    pub(crate) keyed: HashMap<OrderId, bool>,
    pub(crate) stock_was_lost: bool,
    pub(crate) last_positions: BTreeMap<String, u64>,
    /// When an item was last seen with nothing free, by the monotonic clock.
    pub(crate) last_empty: HashMap<i64, Duration>,
    pub(crate) next_user: u64,
}

/// What outlives the process.
pub(crate) struct Outside {
    pub(crate) disk: Disk,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) fate: Fate,
    pub(crate) wire: Arc<Mutex<Wire>>,
    /// The stock, where it runs beside the process; `None` where it dies with it.
    pub(crate) stock: Option<Arc<SimStock>>,
    pub(crate) snapshot: Option<Arc<EmbeddedStock>>,
    pub(crate) planted: Option<Planted>,
    pub(crate) clients: Clients,
    pub(crate) stock_survives: bool,
}

impl Outside {
    pub(crate) fn new(random: &mut Random, planted: Option<Planted>, stock_survives: bool) -> Self {
        let shm = std::path::Path::new("/dev/shm");
        let folder = if shm.is_dir() { tempfile::tempdir_in(shm) } else { tempfile::tempdir() };
        Self {
            disk: Disk::default(),
            folder: folder.unwrap(),
            clock: Arc::new(ManualClock::at(START)),
            fate: Fate::new(Random::new(random.next())),
            wire: Arc::default(),
            stock: None,
            snapshot: None,
            planted,
            clients: Clients::default(),
            stock_survives,
        }
    }
}

/// One process: from its start to its death.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    /// Behind their fates.
    pub(crate) backends: Backends,
    /// As they are.
    pub(crate) raw: Backends,
    pub(crate) stock: Arc<SimStock>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    pub(crate) workers: Vec<Box<dyn Worker>>,
}

impl World {
    /// Starts a process on what is left outside.
    pub(crate) async fn start(outside: &mut Outside) -> Result<Self, String> {
        let clock: Arc<dyn Clock> = Arc::clone(&outside.clock) as _;
        let path = outside.folder.path().join("ledger");
        let ledger =
            Arc::new(SqliteLedger::open(&path, Arc::clone(&clock)).map_err(|error| error.to_string())?);
        let positions = ledger.positions().await.unwrap();
        let recorded = |topic: &_| positions.iter().find(|it| it.topic == *topic).map_or(0, |it| it.next);
        let options = QueueOptions { segment_bytes: 1_200, reserve_bytes: 64, ..QueueOptions::default() };
        let queue =
            EmbeddedQueue::open_on(Arc::new(outside.disk.clone()), recorded, Arc::clone(&clock), options);
        let queue: Arc<dyn Queue> = Arc::new(queue.map_err(|error| error.to_string())?);
        let ends = queue.end_positions().await.unwrap();
        if positions.iter().any(|it| it.next > 0 && !ends.iter().any(|end| end.topic == it.topic)) {
            return Err("the queue is not the one that the ledger was written from".to_owned());
        }
        let kept = outside.stock.clone().filter(|_| outside.stock_survives);
        let stock = kept.unwrap_or_else(|| {
            Arc::new(SimStock {
                inner: Mutex::new(Arc::new(EmbeddedStock::new(Arc::clone(&clock)))),
                fate: outside.fate.clone(),
                planted: outside.planted,
                cached: Mutex::default(),
            })
        });
        outside.stock = Some(Arc::clone(&stock));
        let (fate, planted) = (outside.fate.clone(), outside.planted);
        let sim_ledger =
            SimLedger { inner: Arc::clone(&ledger), stock: Arc::clone(&stock), fate: fate.clone(), planted };
        let sim_queue = SimQueue {
            inner: Arc::clone(&queue),
            fate,
            wire: Arc::clone(&outside.wire),
            disk: outside.disk.clone(),
            planted,
        };
        let backends = Backends {
            stock: Arc::clone(&stock) as _,
            queue: Arc::new(sim_queue),
            ledger: Arc::new(sim_ledger),
            clock: Arc::clone(&clock),
        };
        let raw = Backends { stock: stock.inner(), queue, ledger, clock };
        let catalog = Arc::new(ArcSwap::from_pointee(Catalog::default()));
        let engine = engine(&backends, &catalog);
        raw.ledger.register_endpoint(endpoint::SHOP).await.unwrap();
        let workers = workers(&backends, outside);
        Ok(Self { engine, backends, raw, stock, catalog, workers })
    }

    /// The backends as they are now: the stock may have been replaced.
    pub(crate) fn raw(&self) -> Backends {
        Backends { stock: self.stock.inner(), ..self.raw.clone() }
    }

    pub(crate) async fn create_sale(&self) -> Sale {
        let sale = NewSale {
            opens_at: START.minus(WINDOW * 60),
            closes_at: START.plus(WINDOW * 100_000),
            payment_window: WINDOW,
            limit: Units(LIMIT),
            ..sample::new_sale(START, vec![sample::new_item("A", 7), sample::new_item("B", 5)])
        };
        self.raw.ledger.create_sale(&sale).await.unwrap()
    }

    pub(crate) async fn sale(&self) -> Sale {
        self.raw.ledger.sale(SALE).await.unwrap().unwrap()
    }

    pub(crate) async fn refresh(&self) {
        self.catalog.store(Arc::new(Catalog::new(self.raw.ledger.sales().await.unwrap())));
    }

    pub(crate) async fn free(&self, item: i64) -> Option<u64> {
        let sale = self.sale().await;
        let level = self.stock.inner().level(BucketId { sale: SALE, epoch: sale.epoch }).await.unwrap()?;
        level.items.iter().find(|it| it.item == ItemId(item)).map(|it| it.free)
    }

    /// One purchase, and what its buyer makes of the answer. An error is a violation.
    pub(crate) async fn buy(&self, outside: &mut Outside, wish: Seen) -> Result<&'static str, String> {
        let token = token(&wish.user, outside.clock.now());
        let attempt = Attempt {
            item: ItemId(wish.item),
            caller: Caller { peer: std::net::Ipv4Addr::LOCALHOST.into(), forwarded: None, region: None },
            bearer: Some(token.as_bytes()),
            sale_token: None,
            idempotency_key: Some(wish.key.as_bytes()),
            wish: Wish::Wanted { quantity: wish.units, expected_price_minor: None },
            trace: None,
        };
        let user = UserId::new(&wish.user).unwrap();
        let derived = OrderId::derived(SALE, &user, wish.key.as_bytes());
        // A process that dies may have placed it: its buyer hears nothing.
        outside.clients.keyed.entry(derived).or_insert(true);
        self.note_empty(outside, wish.item).await;
        let outcome = self.engine.purchase(attempt).await;
        self.note_empty(outside, wish.item).await;
        let clients = &mut outside.clients;
        let refused_only = *clients.keyed.get(&derived).unwrap_or(&true);
        let mut said = |refused: bool| {
            clients.keyed.insert(derived, refused_only && refused);
        };
        let word = match outcome {
            PurchaseOutcome::Accepted(order) => {
                said(false);
                if order != derived {
                    return Err(format!(
                        "key {} of {} made order {order}, not {derived}",
                        wish.key, wish.user
                    ));
                }
                clients.accepted.push(Seen { order, at: outside.clock.monotonic(), ..wish });
                "accepted"
            }
            PurchaseOutcome::Replayed { order, .. } => {
                said(false);
                // Also a 202: whatever became of the first answer, the order must be there.
                if clients.accepted.iter().all(|seen| seen.order != order) {
                    clients.accepted.push(Seen { order, at: outside.clock.monotonic(), ..wish });
                }
                "replayed"
            }
            PurchaseOutcome::OutcomeUnknown(order) => {
                said(false);
                if self.stock.planted == Some(Planted::ReleaseOnFailedPublish) {
                    let bucket = BucketId { sale: SALE, epoch: self.sale().await.epoch };
                    self.stock.inner().release(bucket, &[(order, user)]).await.unwrap();
                }
                "unknown"
            }
            PurchaseOutcome::AlreadyPurchased(_) | PurchaseOutcome::LimitReached(_) => "limit",
            PurchaseOutcome::NotEnough { .. } => "not enough",
            PurchaseOutcome::IdempotencyMismatch => "mismatch",
            PurchaseOutcome::Refused(Refusal::SoldOut) => {
                self.check_sold_out(outside, &wish).await?;
                "sold out"
            }
            PurchaseOutcome::Refused(Refusal::NotReady) => "not ready",
            PurchaseOutcome::Refused(Refusal::Busy) => "busy",
            PurchaseOutcome::Refused(refusal) => {
                return Err(format!("an honest wish was refused: {refusal:?}"));
            }
        };
        Ok(word)
    }

    async fn note_empty(&self, outside: &mut Outside, item: i64) {
        if self.free(item).await == Some(0) {
            outside.clients.last_empty.insert(item, outside.clock.monotonic());
        }
    }

    /// I14, and that a holder hears of the order and not of the sell-out.
    async fn check_sold_out(&self, outside: &Outside, wish: &Seen) -> Result<(), String> {
        let empty = outside.clients.last_empty.get(&wish.item);
        let age = empty.map(|at| outside.clock.monotonic().saturating_sub(*at));
        if age.is_none_or(|age| age > Duration::from_millis(200)) {
            return Err(format!(
                "I14: item {} was said to be sold out, and was last empty {age:?} ago",
                wish.item
            ));
        }
        let user = UserId::new(&wish.user).unwrap();
        let bucket = BucketId { sale: SALE, epoch: self.sale().await.epoch };
        let held = self.stock.inner().holds_of(bucket, &user).await.unwrap().unwrap_or_default();
        let units: u32 = held.iter().map(|(hold, _)| hold.units.0).sum();
        let named = OrderId::derived(SALE, &user, wish.key.as_bytes());
        let mine = held.iter().any(|(hold, _)| hold.order == named);
        // For a second after a purchase whose answer was lost, the gateway may not know of it.
        let settled = outside
            .clients
            .accepted
            .iter()
            .any(|it| it.user == wish.user && outside.clock.monotonic() > it.at + Duration::from_secs(1));
        if settled && mine || settled && (units > 0 && i64::from(units) + wish.units > i64::from(LIMIT)) {
            return Err(format!("{} holds an order and was told it is sold out", wish.user));
        }
        Ok(())
    }

    pub(crate) async fn cancel(&self, outside: &mut Outside, seen: &Seen) -> &'static str {
        outside.clients.cancels.insert(seen.order);
        match self.engine.cancel(&UserId::new(&seen.user).unwrap(), seen.order).await {
            Ok(CancelOutcome::Cancelled(_)) => {
                outside.clients.cancelled.insert(seen.order);
                "cancelled"
            }
            Ok(CancelOutcome::Paid(_)) => "paid",
            Ok(CancelOutcome::Closed(_)) => "closed",
            Ok(CancelOutcome::Unknown) => "unknown",
            Err(_) => "failed",
        }
    }

    /// The provider captures the money and tells of it; telling is repeated until it is heard.
    pub(crate) async fn pay(
        &self,
        outside: &mut Outside,
        seen: &Seen,
        payment: &str,
        event: &str,
    ) -> &'static str {
        let price = doorbuster_engine::conformance::sample::price();
        let minor = price.minor * seen.units;
        outside.clients.captured.entry(payment.to_owned()).or_insert((seen.order, minor));
        let event = PaymentEvent {
            provider: "test".to_owned(),
            event_id: event.to_owned(),
            payment_id: payment.to_owned(),
            order: seen.order,
            amount_minor: minor,
            currency: price.currency,
        };
        match self.backends.ledger.pay(&event).await {
            Ok(doorbuster_engine::ledger::PayOutcome::NoOrder) => "no order",
            Ok(_) => {
                outside.clients.told.insert(payment.to_owned());
                "told"
            }
            Err(_) => "failed",
        }
    }

    pub(crate) async fn restock(
        &self,
        outside: &mut Outside,
        operation: u128,
        item: i64,
        units: i64,
    ) -> &'static str {
        outside.clients.restocked.insert(operation, (item, units));
        let operations = Operations::new(self.backends.clone());
        match operations.restock(uuid::Uuid::from_u128(operation), SALE, ItemId(item), units).await {
            Ok(doorbuster_engine::operate::RestockReport::Done(_)) => "done",
            Ok(_) => "not done",
            Err(_) => "failed",
        }
    }

    /// What was kept back comes, in another order.
    pub(crate) async fn deliver_delayed(&self, outside: &Outside, random: &mut Random) -> usize {
        let mut delayed: Vec<OrderPlaced> = std::mem::take(&mut outside.wire.lock().unwrap().delayed);
        let count = delayed.len();
        while !delayed.is_empty() {
            let index = usize::try_from(random.below(delayed.len() as u64)).unwrap();
            let order = delayed.swap_remove(index);
            self.raw.queue.publish(std::slice::from_ref(&order)).await;
        }
        count
    }

    /// The planted sweeper that gives up.
    pub(crate) async fn give_up_by_age(&self) {
        let sale = self.sale().await;
        let bucket = BucketId { sale: SALE, epoch: sale.epoch };
        let old = self.backends.clock.now().minus(Duration::from_secs(5));
        for entry in self.stock.inner().unconfirmed(bucket, old, 100).await.unwrap() {
            let price = doorbuster_engine::conformance::sample::price();
            let (order, user) = (entry.order, entry.user.clone());
            let placed = OrderPlaced { reservation: entry, price };
            self.raw.ledger.cancel(order, &user, Some(&placed)).await.unwrap();
        }
    }

    /// The planted second preheat: the stock is what was written down for the sale, as if nobody
    /// had bought.
    pub(crate) async fn preheat_by_set(&self) {
        let sale = self.sale().await;
        let (bucket, token) = (BucketId { sale: SALE, epoch: sale.epoch }, LoaderToken(1));
        let fresh = EmbeddedStock::new(Arc::clone(&self.backends.clock));
        fresh.begin_load(bucket, &sale.terms, token).await.unwrap();
        let items = sale.items.iter().map(|item| (item.id, item.quantity)).collect();
        fresh.load(bucket, token, 0, &LoadPage::Items(items)).await.unwrap();
        fresh.finish_load(bucket, token, ReadBack { seq: 0, pages: 1 }).await.unwrap();
        *self.stock.inner.lock().unwrap() = Arc::new(fresh);
    }

    /// Without a stock loss, nothing ever needs the one repair.
    pub(crate) async fn check_needs_no_repair(&self, outside: &Outside) -> Result<(), String> {
        let fence = self.sale().await.fence;
        match fence {
            Some(fence) if fence.reason.starts_with("reconcile") && !outside.clients.stock_was_lost => {
                Err(format!("I8: {}, and no stock was lost", fence.reason))
            }
            _ => Ok(()),
        }
    }

    /// Everything that must hold at every moment.
    pub(crate) async fn check(&self, outside: &mut Outside) -> Result<(), String> {
        outside.clients.latest = outside.clients.latest.max(Some(outside.clock.now()));
        let snapshot = audit::collect(&self.raw()).await.unwrap();
        let report = audit::check(&snapshot);
        // Ages are bounded in healthy operation only; a stock that went back is wrong until it is
        // rebuilt, and gives its steps again.
        let excused = |invariant: &str| {
            invariant == "I18" || (outside.clients.stock_was_lost && ["I8", "I15"].contains(&invariant))
        };
        if let Some(finding) = report.findings.iter().find(|it| !excused(it.invariant)) {
            return Err(format!("{}: {}", finding.invariant, finding.detail));
        }
        self.check_needs_no_repair(outside).await?;
        for position in &snapshot.books.positions {
            let last = outside.clients.last_positions.entry(position.topic.to_string()).or_default();
            if position.next < *last {
                return Err(format!("I13: the position went back from {last} to {}", position.next));
            }
            *last = position.next;
        }
        outside.clients.heard.lock().unwrap().check(&snapshot.books)
    }

    /// Everything that must hold once all is healed and quiet.
    pub(crate) async fn check_at_rest(&self, outside: &mut Outside) -> Result<(), String> {
        let snapshot = audit::collect(&self.raw()).await.unwrap();
        if let Some(finding) = audit::check(&snapshot).findings.iter().find(|it| it.invariant == "I8") {
            return Err(format!("I8: {}", finding.detail));
        }
        if !snapshot.at_rest {
            return Err(format!(
                "I12: it does not come to rest: {:?}",
                snapshot.buckets.iter().map(|it| &it.level).collect::<Vec<_>>()
            ));
        }
        let clients = &outside.clients;
        let rows: HashMap<OrderId, _> =
            snapshot.books.orders.iter().map(|row| (row.reservation.order, row)).collect();
        for seen in &clients.accepted {
            let Some(row) = rows.get(&seen.order) else {
                return Err(format!(
                    "I4: order {} of {} was answered 202 and has no row",
                    seen.order, seen.user
                ));
            };
            let it = &row.reservation;
            if (it.user.as_str(), it.item.0, i64::from(it.units.0))
                != (seen.user.as_str(), seen.item, seen.units)
            {
                return Err(format!("I19: order {} is not what {} bought", seen.order, seen.user));
            }
            if row.status == OrderStatus::Rejected && !clients.stock_was_lost {
                return Err(format!("I17: order {} was answered 202 and ends {:?}", seen.order, row.reason));
            }
            if row.status == OrderStatus::Cancelled && !clients.cancels.contains(&seen.order) {
                return Err(format!("I4: order {} was answered 202 and is cancelled by nobody", seen.order));
            }
        }
        for order in &clients.cancelled {
            if rows.get(order).is_none_or(|row| row.status != OrderStatus::Cancelled) {
                return Err(format!("order {order} was said to be cancelled and is not"));
            }
        }
        for (order, refused_only) in &clients.keyed {
            if *refused_only
                && rows.get(order).is_some_and(|row| row.status.is_live())
                && self.never_died(outside)
            {
                return Err(format!("I4b: order {order} is live and was only ever refused"));
            }
        }
        if let Some(late) = snapshot.books.payments.iter().find(|it| it.outcome == "LATE") {
            return Err(format!("I6: payment {} still waits at rest", late.payment));
        }
        for payment in &clients.told {
            let row = snapshot.books.payments.iter().find(|it| it.payment.payment_id == *payment);
            if row.is_none_or(|it| it.outcome != "PAID" && it.outcome != "REFUND_DUE") {
                return Err(format!("I6: payment {payment} was told of, and is {row:?}"));
            }
        }
        for payment in &clients.told {
            let order = clients.captured[payment].0;
            let captured = self.captured_for(outside, order);
            let settled = snapshot
                .books
                .payments
                .iter()
                .filter(|it| it.order == order && (it.outcome == "PAID" || it.outcome == "REFUND_DUE"));
            let settled: i64 = settled.map(|it| it.amount_minor).sum();
            if settled > captured {
                return Err(format!(
                    "I6: {captured} captured for order {order}, {settled} paid and refunded"
                ));
            }
        }
        clients.heard.lock().unwrap().check_at_rest(&snapshot.books, clients.stock_was_lost)
    }

    fn captured_for(&self, outside: &Outside, order: OrderId) -> i64 {
        outside.clients.captured.values().filter(|it| it.0 == order).map(|it| it.1).sum()
    }

    /// Whether every call was answered: a process that died may have placed what it never answered.
    fn never_died(&self, outside: &Outside) -> bool {
        !outside.fate.fired().keys().any(|what| what.starts_with("died"))
    }
}

#[expect(clippy::disallowed_methods, reason = "the simulation starts what the server would start")]
fn engine(backends: &Backends, catalog: &Arc<ArcSwap<Catalog>>) -> Arc<Engine> {
    let rules = JwtRules {
        issuer: "shop".to_owned(),
        audience: "doorbuster".to_owned(),
        leeway: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(86_400),
    };
    let shared = Shared {
        backends: backends.clone(),
        catalog: Arc::clone(catalog),
        backpressure: Arc::new(Backpressure::default()),
        sale_tokens: Arc::new(SaleTokens::none()),
        limits: Arc::new(Limits::none()),
        barred: Arc::default(),
        rooms: Arc::default(),
        tokens: Arc::new(JwtVerifier::new(
            JwtKeys::new(vec![JwtKey::hs256(SECRET).unwrap()]).unwrap(),
            rules,
        )),
    };
    let limits = BatcherLimits { call_timeout: Duration::from_secs(600), ..BatcherLimits::default() };
    let (batcher, work) = Batcher::new(Arc::clone(&backends.stock), limits);
    tokio::spawn(work.run());
    Arc::new(Engine::new(shared, batcher, Arc::new(|work| drop(tokio::spawn(work)))))
}

/// Two of each, as if two processes ran.
fn workers(backends: &Backends, outside: &Outside) -> Vec<Box<dyn Worker>> {
    let hold = pages::hold(outside.planted);
    let mut workers: Vec<Box<dyn Worker>> = Vec::new();
    for _ in 0..2 {
        let backends = || backends.clone();
        workers.push(Box::new(Recorder::new(backends(), Duration::ZERO)));
        workers.push(Box::new(Sweeper::new(backends())));
        workers.push(Box::new(Expirer::new(backends()).holding(hold)));
        workers.push(Box::new(Settler::new(backends(), LatePolicy::Retake)));
        workers.push(Box::new(Releaser::new(backends())));
        workers.push(Box::new(Restocker::new(backends())));
        workers.push(Box::new(Rebuilder::new(backends(), Duration::ZERO)));
        workers.push(Box::new(SaleClock::new(backends(), WINDOW)));
        workers.push(Box::new(Reconciler::new(backends())));
        workers.push(Box::new(endpoint::relay(backends(), &outside.clients.heard, &outside.fate)));
    }
    workers
}

fn token(user: &str, now: Timestamp) -> String {
    let now = now.as_ms() / 1_000;
    let claims =
        serde_json::json!({"sub": user, "iss": "shop", "aud": "doorbuster", "iat": now, "exp": now + 3_600});
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET).unwrap();
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

/// The odds of a bad day.
pub(crate) fn bad_odds(random: &mut Random) -> Odds {
    match random.below(4) {
        0 => Odds::default(),
        1 => Odds { refused: 30, reply_lost: 0, died_before: 0, died_after: 0 },
        2 => Odds { refused: 20, reply_lost: 40, died_before: 0, died_after: 0 },
        _ => Odds { refused: 10, reply_lost: 20, died_before: 6, died_after: 6 },
    }
}
