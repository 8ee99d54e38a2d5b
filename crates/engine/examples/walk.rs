//! Walks one path of the engine many times, so that its instructions can be counted.
//!
//! `walk refusals N`: the gate says "sold out" N times, each time to a token it has to look at.
//! `walk unknown-kids N`: it refuses N tokens that name keys which nobody has.
//! `walk records N`: the SQLite ledger records N orders in batches of 500.
//!
//! Counted twice, for N and for 2 N, what happens once cancels out: `cargo xtask bench
//! instructions` does that.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Batch, Decoded, Delivered};
use doorbuster_engine::engine::{Engine, PurchaseOutcome, Shared};
use doorbuster_engine::gate::{
    Attempt, BadToken, Caller, JwtKey, JwtKeys, JwtRules, JwtVerifier, Limits, Refusal, SaleTokens, Wish,
};
use doorbuster_engine::ledger::{RecordOutcome, SqliteLedger};
use doorbuster_engine::order::ItemId;
use doorbuster_engine::queue::{EmbeddedQueue, QueueOptions};
use doorbuster_engine::sale::{Catalog, NewSale};
use doorbuster_engine::stock::{Batcher, BatcherLimits, EmbeddedStock};
use doorbuster_engine::workers::{Backends, Backpressure, Rebuilder, SaleClock, Watch, WatchLimits, Worker};

type Walked = Result<(), Box<dyn Error>>;

const SECRET: &[u8] = b"0123456789abcdef0123456789abcdef";
const WINDOW: Duration = Duration::from_secs(600);
const BATCH: u64 = 500;
const USAGE: &str = "usage: walk refusals|unknown-kids|records N";
/// Keys that are named in turn.
const KIDS: usize = 64;

fn main() -> Walked {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, count] = arguments.as_slice() else { return Err(USAGE.into()) };
    let count = count.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    runtime.block_on(async {
        // Two keys with names are looked up by them; one alone would be tried.
        let key = || JwtKey::hs256(SECRET);
        let keys = if path == "unknown-kids" {
            vec![key()?.named("old".to_owned()), key()?.named("new".to_owned())]
        } else {
            vec![key()?]
        };
        let world = World::new(handle, JwtKeys::new(keys)?).await?;
        match path.as_str() {
            "refusals" => world.refusals(count).await,
            "records" => world.records(count).await,
            "unknown-kids" => world.unknown_kids(count).await,
            _ => Err(USAGE.into()),
        }
    })
}

/// An engine with one open sale, in a folder of its own.
struct World {
    engine: Arc<Engine>,
    backends: Backends,
    clock: Arc<ManualClock>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn new(runtime: tokio::runtime::Handle, keys: JwtKeys) -> Result<Self, Box<dyn Error>> {
        // A clock that stands: the flag never ages, so nothing but refusals is counted.
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_800_000_000_000)));
        let folder = tempfile::tempdir()?;
        let dynamic: Arc<dyn Clock> = Arc::clone(&clock) as _;
        let backends = Backends {
            stock: Arc::new(EmbeddedStock::new(Arc::clone(&dynamic))),
            queue: Arc::new(EmbeddedQueue::open(
                &folder.path().join("queue"),
                |_| 0,
                Arc::clone(&dynamic),
                QueueOptions::default(),
            )?),
            ledger: Arc::new(SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&dynamic))?),
            clock: dynamic,
        };
        let rules = JwtRules {
            issuer: "shop".into(),
            audience: "doorbuster".into(),
            leeway: Duration::from_secs(5),
            lifetime_max: Duration::from_secs(86_400),
        };
        let shared = Shared {
            backends: backends.clone(),
            catalog: Arc::new(ArcSwap::from_pointee(Catalog::default())),
            backpressure: Arc::new(Backpressure::default()),
            sale_tokens: Arc::new(SaleTokens::none()),
            limits: Arc::new(Limits::none()),
            barred: Arc::default(),
            rooms: Arc::default(),
            tokens: Arc::new(JwtVerifier::new(keys, rules)),
        };
        let (batcher, work) = Batcher::new(Arc::clone(&backends.stock), BatcherLimits::default());
        runtime.spawn(work.run());
        let engine = Engine::new(shared, batcher, Arc::new(move |work| drop(runtime.spawn(work))));
        Ok(Self { engine: Arc::new(engine), backends, clock, _folder: folder })
    }

    /// Opens a sale, which is sale 1 with item 1, and lets the gate know it.
    async fn sale(&self, quantity: u64) -> Walked {
        let item = sample::new_item("A", quantity);
        let sale = NewSale { payment_window: WINDOW, ..sample::new_sale(self.clock.now(), vec![item]) };
        self.backends.ledger.create_sale(&sale).await?;
        for _ in 0..10 {
            SaleClock::new(self.backends.clone(), WINDOW).step().await?;
            Rebuilder::new(self.backends.clone(), Duration::ZERO).step().await?;
        }
        let shared = self.engine.shared();
        let (catalog, pressure) = (Arc::clone(&shared.catalog), Arc::clone(&shared.backpressure));
        Watch::new(self.backends.clone(), catalog, pressure, WatchLimits::default()).refresh().await?;
        Ok(())
    }

    async fn buy(&self, token: &str) -> PurchaseOutcome {
        let attempt = Attempt {
            item: ItemId(1),
            caller: Caller { peer: std::net::Ipv4Addr::LOCALHOST.into(), forwarded: None, region: None },
            bearer: Some(token.as_bytes()),
            sale_token: None,
            idempotency_key: None,
            wish: Wish::Wanted { quantity: 1, expected_price_minor: None },
            trace: None,
        };
        self.engine.purchase(attempt).await
    }

    fn token(&self, user: &str) -> Result<String, Box<dyn Error>> {
        self.token_of(None, user)
    }

    fn token_of(&self, kid: Option<String>, user: &str) -> Result<String, Box<dyn Error>> {
        let now = self.clock.now().as_ms() / 1_000;
        let claims = serde_json::json!({"sub": user, "iss": "shop", "aud": "doorbuster", "iat": now, "exp": now + 3_600});
        let key = jsonwebtoken::EncodingKey::from_secret(SECRET)?;
        let header = jsonwebtoken::Header { kid, ..jsonwebtoken::Header::default() };
        Ok(jsonwebtoken::encode(&header, &claims, &key)?)
    }

    async fn refusals(&self, count: u64) -> Walked {
        self.sale(1).await?;
        let bought = self.buy(&self.token("alice")?).await;
        if !matches!(bought, PurchaseOutcome::Accepted(_)) {
            return Err(format!("the one unit was not sold: {bought:?}").into());
        }
        let token = self.token("bob")?;
        for _ in 0..count {
            let refused = self.buy(&token).await;
            if refused != PurchaseOutcome::Refused(Refusal::SoldOut) {
                return Err(format!("not sold out: {refused:?}").into());
            }
        }
        Ok(())
    }

    async fn unknown_kids(&self, count: u64) -> Walked {
        self.sale(1_000_000).await?;
        let token = |number| self.token_of(Some(format!("key-{number}")), "eve");
        let tokens = (0..KIDS).map(token).collect::<Result<Vec<_>, _>>()?;
        for (_, token) in (0..count).zip(tokens.iter().cycle()) {
            let refused = self.buy(token).await;
            if refused != PurchaseOutcome::Refused(Refusal::BadToken(BadToken::Invalid)) {
                return Err(format!("not an unknown key: {refused:?}").into());
            }
        }
        Ok(())
    }

    async fn records(&self, count: u64) -> Walked {
        self.sale(1_000_000).await?;
        self.backends.ledger.register(&[sample::position(0)]).await?;
        for first in (0..count).step_by(usize::try_from(BATCH)?) {
            let next = (first + BATCH).min(count);
            let record = |offset| Delivered {
                offset,
                appended_at: self.clock.now(),
                contents: Decoded::Order(Box::new(sample::order_placed(offset))),
            };
            let records = (first..next).map(record).collect();
            let batch = Batch { from: sample::position(first), next, records };
            match self.backends.ledger.record(&batch).await? {
                RecordOutcome::Recorded(it) if it.live.len() as u64 == next - first => {}
                other => return Err(format!("not every order was recorded: {other:?}").into()),
            }
        }
        Ok(())
    }
}
