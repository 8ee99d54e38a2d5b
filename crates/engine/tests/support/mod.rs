//! A pipeline for tests: real embedded backends whose stock and queue can be tampered with.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use doorbuster_engine::audit;
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::conformance::{sample, stock::Bench};
use doorbuster_engine::delivery::Position;
use doorbuster_engine::engine::{Engine, PurchaseOutcome, Shared};
use doorbuster_engine::fault::{BackendError, Fault, Layer};
use doorbuster_engine::gate::{
    Attempt, Caller, JwtKey, JwtKeys, JwtRules, JwtVerifier, Limits, SaleTokens, Wish,
};
use doorbuster_engine::ledger::{Positions, SqliteLedger};
use doorbuster_engine::operate::Operations;
use doorbuster_engine::order::{Epoch, ItemId, OrderId, OrderPlaced, Reservation, SaleId, Units, UserId};
use doorbuster_engine::queue::{EmbeddedQueue, Queue, QueueOptions, Reader};
use doorbuster_engine::sale::{Catalog, LoaderToken, NewSale, Sale, SaleState, Terms};
use doorbuster_engine::stock::{
    AdjustOutcome, Batcher, BatcherLimits, BeginLoadOutcome, BucketId, EmbeddedStock, FinishOutcome,
    HolderPage, Level, LoadOutcome, LoadPage, ReadBack, ReleaseOutcome, ReserveOutcome, ReserveRequest,
    Stock,
};
use doorbuster_engine::workers::{
    Backends, Backpressure, Expirer, Rebuilder, Recorder, Releaser, Restocker, SaleClock, Step, Sweeper,
    Watch, WatchLimits, Worker,
};
use futures_util::future::BoxFuture;
use tempfile::TempDir;

pub(crate) type Answer<T> = Result<T, BackendError>;
type ReserveHook = dyn Fn(Arc<dyn Stock>, BucketId, Vec<ReserveRequest>) -> BoxFuture<'static, Answer<Vec<ReserveOutcome>>>
    + Send
    + Sync;

/// A stock that can be lost, and whose reserve step can be tampered with.
pub(crate) struct TamperedStock {
    inner: ArcSwap<Arc<dyn Stock>>,
    hook: Mutex<Option<Arc<ReserveHook>>>,
    pub(crate) reserves: AtomicU64,
    /// Calls to give units back.
    pub(crate) releases: Arc<AtomicU64>,
    /// Sales for which nothing is given back.
    pub(crate) silent: Mutex<Vec<SaleId>>,
}

impl TamperedStock {
    pub(crate) fn new(inner: Arc<dyn Stock>) -> Self {
        Self {
            inner: ArcSwap::from_pointee(inner),
            hook: Mutex::default(),
            reserves: AtomicU64::new(0),
            releases: Arc::default(),
            silent: Mutex::default(),
        }
    }

    /// From now on the reserve step is `hook`'s.
    pub(crate) fn tamper<F, W>(&self, hook: F)
    where
        F: Fn(Arc<dyn Stock>, BucketId, Vec<ReserveRequest>) -> W + Send + Sync + 'static,
        W: Future<Output = Answer<Vec<ReserveOutcome>>> + Send + 'static,
    {
        *self.hook.lock().unwrap() =
            Some(Arc::new(move |stock, bucket, requests| Box::pin(hook(stock, bucket, requests))));
    }

    pub(crate) fn honest(&self) {
        *self.hook.lock().unwrap() = None;
    }

    /// The stock is gone; another stands in its place.
    pub(crate) fn replace(&self, inner: Arc<dyn Stock>) {
        self.inner.store(Arc::new(inner));
    }

    fn inner(&self) -> Arc<dyn Stock> {
        Arc::clone(&self.inner.load())
    }
}

#[async_trait]
impl Stock for TamperedStock {
    async fn reserve(&self, bucket: BucketId, requests: &[ReserveRequest]) -> Answer<Vec<ReserveOutcome>> {
        self.reserves.fetch_add(1, Ordering::SeqCst);
        let hook = self.hook.lock().unwrap().clone();
        match hook {
            Some(hook) => hook(self.inner(), bucket, requests.to_vec()).await,
            None => self.inner().reserve(bucket, requests).await,
        }
    }

    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Answer<BeginLoadOutcome> {
        self.inner().begin_load(bucket, terms, token).await
    }

    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Answer<LoadOutcome> {
        self.inner().load(bucket, token, page, contents).await
    }

    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Answer<FinishOutcome> {
        self.inner().finish_load(bucket, token, read_back).await
    }

    async fn fence(&self, bucket: BucketId) -> Answer<()> {
        self.inner().fence(bucket).await
    }

    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Answer<bool> {
        self.inner().set_terms(bucket, terms).await
    }

    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Answer<()> {
        self.inner().confirm(bucket, orders).await
    }

    async fn release(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Answer<Vec<ReleaseOutcome>> {
        self.releases.fetch_add(1, Ordering::SeqCst);
        if self.silent.lock().unwrap().contains(&bucket.sale) {
            return Err(BackendError::new(Layer::Stock, Fault::Ambiguous, "timed out, says the test"));
        }
        self.inner().release(bucket, orders).await
    }

    async fn adjust(
        &self,
        bucket: BucketId,
        operation: uuid::Uuid,
        item: ItemId,
        units: i64,
    ) -> Answer<AdjustOutcome> {
        self.inner().adjust(bucket, operation, item, units).await
    }

    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Answer<Vec<Reservation>> {
        self.inner().unconfirmed(bucket, before, limit).await
    }

    async fn holds_of(&self, bucket: BucketId, user: &UserId) -> Answer<Option<Vec<(Reservation, bool)>>> {
        self.inner().holds_of(bucket, user).await
    }

    async fn holders(&self, bucket: BucketId, cursor: Option<&str>, limit: usize) -> Answer<HolderPage> {
        self.inner().holders(bucket, cursor, limit).await
    }

    async fn level(&self, bucket: BucketId) -> Answer<Option<Level>> {
        self.inner().level(bucket).await
    }
}

/// What happens to what is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Publishing {
    Honest,
    /// Not appended, and the publisher hears of a time-out.
    Lost,
    /// Appended, and the publisher hears of a time-out.
    AckLost,
    /// Appended twice.
    Twice,
}

/// A queue whose publishes can be tampered with.
pub(crate) struct TamperedQueue {
    inner: EmbeddedQueue,
    pub(crate) publishing: Mutex<Publishing>,
    pub(crate) published: AtomicU64,
}

#[async_trait]
impl Queue for TamperedQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Answer<()>> {
        self.published.fetch_add(orders.len() as u64, Ordering::SeqCst);
        let publishing = *self.publishing.lock().unwrap();
        let timeout = || Err(BackendError::new(Layer::Queue, Fault::Ambiguous, "timed out, says the test"));
        match publishing {
            Publishing::Honest => self.inner.publish(orders).await,
            Publishing::Lost => orders.iter().map(|_| timeout()).collect(),
            Publishing::AckLost => self.inner.publish(orders).await.into_iter().map(|_| timeout()).collect(),
            Publishing::Twice => {
                self.inner.publish(orders).await;
                self.inner.publish(orders).await
            }
        }
    }

    fn accepting(&self) -> Answer<()> {
        self.inner.accepting()
    }

    async fn end_positions(&self) -> Answer<Vec<Position>> {
        self.inner.end_positions().await
    }

    async fn reader(&self) -> Answer<Box<dyn Reader>> {
        self.inner.reader().await
    }
}

pub(crate) const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
pub(crate) const WINDOW: Duration = Duration::from_secs(600);
pub(crate) const SALE: SaleId = SaleId(1);
pub(crate) const ITEM: ItemId = ItemId(1);

/// The whole pipeline, stepped by hand.
pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    pub(crate) stock: Arc<TamperedStock>,
    pub(crate) queue: Arc<TamperedQueue>,
    pub(crate) backends: Backends,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) catalog: Arc<ArcSwap<Catalog>>,
    recorder: tokio::sync::Mutex<Recorder>,
    sweeper: tokio::sync::Mutex<Sweeper>,
    rebuilder: tokio::sync::Mutex<Rebuilder>,
    folder: Arc<TempDir>,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| ()).await
    }

    /// The same, where the engine's cores share something else.
    pub(crate) async fn with(change: impl FnOnce(&mut Shared)) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), Bench::clock(), change).await
    }

    /// What the same folder makes of a process that died.
    pub(crate) async fn restarted(self) -> Self {
        let (folder, clock) = (Arc::clone(&self.folder), Arc::clone(&self.clock));
        drop(self);
        Self::on(folder, clock, |_| ()).await
    }

    async fn on(folder: Arc<TempDir>, clock: Arc<ManualClock>, change: impl FnOnce(&mut Shared)) -> Self {
        let dynamic: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let ledger = SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&dynamic)).unwrap();
        let positions = ledger.positions().await.unwrap();
        let next = positions.first().map_or(0, |it| it.next);
        let queue = open_queue(folder.path(), next, Arc::clone(&dynamic));
        let queue = Arc::new(TamperedQueue {
            inner: queue,
            publishing: Mutex::new(Publishing::Honest),
            published: AtomicU64::new(0),
        });
        let stock = Arc::new(TamperedStock::new(Arc::new(EmbeddedStock::new(Arc::clone(&dynamic)))));
        let backends = Backends {
            stock: Arc::clone(&stock) as _,
            queue: Arc::clone(&queue) as _,
            ledger: Arc::new(ledger),
            clock: dynamic,
        };
        let catalog = Arc::new(ArcSwap::from_pointee(Catalog::default()));
        let mut shared = Shared {
            backends: backends.clone(),
            catalog: Arc::clone(&catalog),
            backpressure: Arc::new(Backpressure::default()),
            tokens: Arc::new(verifier()),
            sale_tokens: Arc::new(SaleTokens::none()),
            limits: Arc::new(Limits::none()),
            barred: Arc::default(),
            rooms: Arc::default(),
        };
        change(&mut shared);
        Self {
            engine: engine(shared),
            stock,
            queue,
            clock,
            catalog,
            recorder: Recorder::new(backends.clone(), Duration::from_millis(1)).into(),
            sweeper: Sweeper::new(backends.clone()).into(),
            rebuilder: Rebuilder::new(backends.clone(), Duration::ZERO).into(),
            backends,
            folder,
        }
    }

    /// An open sale of `quantity` units of item 1.
    pub(crate) async fn sale(&self, quantity: u64, limit: u32) -> Sale {
        let item = sample::new_item("A", quantity);
        let sale = NewSale {
            payment_window: WINDOW,
            limit: Units(limit),
            ..sample::new_sale(self.clock.now(), vec![item])
        };
        let sale = self.backends.ledger.create_sale(&sale).await.unwrap();
        self.work().await;
        self.read_sale(sale.id).await
    }

    pub(crate) async fn read_sale(&self, id: SaleId) -> Sale {
        self.backends.ledger.sale(id).await.unwrap().unwrap()
    }

    pub(crate) fn operations(&self) -> Operations {
        Operations::new(self.backends.clone())
    }

    /// Where the ledger is.
    pub(crate) fn ledger_file(&self) -> std::path::PathBuf {
        self.folder.path().join("ledger")
    }

    /// Steps every worker until none has anything to do; also refreshes the catalog.
    pub(crate) async fn work(&self) {
        loop {
            let mut idle = self.record().await == Step::Idle;
            idle &= self.sweeper.lock().await.step().await.unwrap() == Step::Idle;
            idle &= self.rebuilder.lock().await.step().await.unwrap() == Step::Idle;
            let backends = || self.backends.clone();
            let others: [&mut dyn Worker; 4] = [
                &mut Expirer::new(backends()),
                &mut Releaser::new(backends()),
                &mut Restocker::new(backends()),
                &mut SaleClock::new(backends(), WINDOW),
            ];
            for worker in others {
                idle &= worker.step().await.unwrap() == Step::Idle;
            }
            if idle {
                break;
            }
        }
        self.refresh().await;
    }

    pub(crate) async fn record(&self) -> Step {
        self.recorder.lock().await.step().await.unwrap()
    }

    /// What the recorder answers when it may fail.
    pub(crate) async fn try_record(&self) -> Answer<Step> {
        self.recorder.lock().await.step().await
    }

    /// Appends a record as it stands.
    pub(crate) async fn append_bytes(&self, bytes: &[u8]) {
        self.queue.inner.append_bytes(bytes.to_vec()).await.unwrap();
    }

    pub(crate) async fn sweep(&self) -> Step {
        self.sweeper.lock().await.step().await.unwrap()
    }

    pub(crate) async fn rebuild(&self) -> Step {
        self.rebuilder.lock().await.step().await.unwrap()
    }

    pub(crate) async fn refresh(&self) {
        self.watch().refresh().await.unwrap();
    }

    pub(crate) fn watch(&self) -> Watch {
        self.watch_within(WatchLimits::default())
    }

    pub(crate) fn watch_within(&self, limits: WatchLimits) -> Watch {
        let backpressure = Arc::clone(&self.engine.shared().backpressure);
        Watch::new(self.backends.clone(), Arc::clone(&self.catalog), backpressure, limits)
    }

    pub(crate) async fn buy(&self, user: &str) -> PurchaseOutcome {
        self.buy_as(user, None, 1).await
    }

    pub(crate) async fn buy_as(&self, user: &str, key: Option<&str>, quantity: i64) -> PurchaseOutcome {
        let token = self.token(user);
        self.engine.purchase(attempt(&token, key, quantity)).await
    }

    pub(crate) fn token(&self, user: &str) -> String {
        token_of(user, self.clock.now())
    }

    pub(crate) async fn level(&self) -> Level {
        let epoch = self.read_sale(SALE).await.epoch;
        self.backends.stock.level(BucketId { sale: SALE, epoch }).await.unwrap().unwrap()
    }

    pub(crate) async fn free(&self) -> u64 {
        self.level().await.items[0].free
    }

    pub(crate) fn fresh_stock(&self) -> Arc<dyn Stock> {
        Arc::new(EmbeddedStock::new(Arc::clone(&self.backends.clock)))
    }

    /// Everything has come to rest and every invariant holds.
    pub(crate) async fn finish(&self) {
        self.work().await;
        let snapshot = audit::collect(&self.backends).await.unwrap();
        assert!(snapshot.at_rest, "not at rest: {snapshot:?}");
        assert_eq!(audit::check(&snapshot).findings, []);
    }
}

fn open_queue(folder: &Path, next: u64, clock: Arc<dyn Clock>) -> EmbeddedQueue {
    EmbeddedQueue::open(&folder.join("queue"), |_| next, clock, QueueOptions::default()).unwrap()
}

/// A token of `user`, made at `now`.
pub(crate) fn token_of(user: &str, now: Timestamp) -> String {
    token_of_level(user, "", now)
}

/// The same of a member of this level.
pub(crate) fn token_of_level(user: &str, level: &str, now: Timestamp) -> String {
    let now = now.as_ms() / 1_000;
    let claims = serde_json::json!({
        "sub": user, "iss": "shop", "aud": "doorbuster", "iat": now, "exp": now + 3_600, "level": level
    });
    let key = jsonwebtoken::EncodingKey::from_secret(SECRET).unwrap();
    jsonwebtoken::encode(&jsonwebtoken::Header::default(), &claims, &key).unwrap()
}

pub(crate) fn verifier() -> JwtVerifier {
    let rules = JwtRules {
        issuer: "shop".into(),
        audience: "doorbuster".into(),
        leeway: Duration::from_secs(5),
        lifetime_max: Duration::from_secs(86_400),
    };
    JwtVerifier::new(JwtKeys::new(vec![JwtKey::hs256(SECRET).unwrap()]).unwrap(), rules)
}

#[expect(clippy::disallowed_methods, reason = "a test starts what the server would start")]
pub(crate) fn engine(shared: Shared) -> Arc<Engine> {
    let limits = BatcherLimits { call_timeout: Duration::from_secs(5), ..BatcherLimits::default() };
    let (batcher, work) = Batcher::new(Arc::clone(&shared.backends.stock), limits);
    tokio::spawn(work.run());
    Arc::new(Engine::new(shared, batcher, Arc::new(|work| drop(tokio::spawn(work)))))
}

pub(crate) fn attempt<'a>(token: &'a str, key: Option<&'a str>, quantity: i64) -> Attempt<'a> {
    Attempt {
        item: ITEM,
        caller: Caller { peer: std::net::Ipv4Addr::LOCALHOST.into(), forwarded: None, region: None },
        bearer: Some(token.as_bytes()),
        sale_token: None,
        idempotency_key: key.map(str::as_bytes),
        wish: Wish::Wanted { quantity, expected_price_minor: None },
        trace: None,
    }
}

pub(crate) fn accepted(outcome: PurchaseOutcome) -> OrderId {
    match outcome {
        PurchaseOutcome::Accepted(order) => order,
        other => panic!("not accepted: {other:?}"),
    }
}

/// The sale's state as most tests leave it.
pub(crate) const OPEN: SaleState = SaleState::Open;
/// The first epoch that sells.
pub(crate) const FIRST: Epoch = Epoch(1);
