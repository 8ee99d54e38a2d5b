//! `/metrics` on the staff's listener: what happens and how things stand, for Prometheus.
//!
//! Counters are kept where things happen: per core on the purchase path ([`CoreFigures`]), at the
//! seam between the stages (`observed` in the engine). How things stand is asked of the stages at
//! the time of the scrape. `docs/metrics.md` explains every name; a test holds it to this.

mod collector;
mod figures;

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use doorbuster_engine::engine::Shared;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::ledger::Backlog;
use doorbuster_engine::observed::{LAYERS, Observed};
use doorbuster_engine::sale::{Sale, SaleState};
use doorbuster_engine::stock::{BucketId, Level};
use doorbuster_engine::workers::Watch;
use prometheus_client::encoding::{prometheus_text, text};
use prometheus_client::registry::Registry;

use crate::identity::KeySetReadings;
use crate::siteverify::Verdicts;
use crate::tls::Shown;
use collector::Scrape;
pub(crate) use figures::{CoreFigures, HttpCounts, Unanswered, count_requests};

/// Longest wait for one stage to say how it stands; a scrape with gaps beats no scrape.
const PATIENCE: Duration = Duration::from_secs(1);

const OPENMETRICS: &str = "application/openmetrics-text";
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where a scrape looks.
pub(crate) struct Metrics {
    pub(crate) shared: Shared,
    pub(crate) watch: Arc<Watch>,
    pub(crate) observed: Arc<Observed>,
    pub(crate) cores: Vec<Arc<CoreFigures>>,
    pub(crate) staff: Arc<HttpCounts>,
    pub(crate) key_sets: Arc<KeySetReadings>,
    pub(crate) verdicts: Arc<Verdicts>,
    /// What the listeners with TLS show.
    pub(crate) tls: Vec<Arc<Shown>>,
}

/// How things stand now, as far as the stages answered.
#[derive(Default)]
struct Standing {
    /// Running sales, each with its bucket's figures if the stock has them.
    sales: Vec<(Arc<Sale>, Option<Level>)>,
    /// Orders published and not yet recorded.
    lag: Option<u64>,
    /// At most the age of the oldest of them.
    lag_age: Option<Duration>,
    /// What waits in the ledger.
    backlog: Option<Backlog>,
    /// Whether each layer answered, in the order of [`LAYERS`].
    up: [bool; LAYERS.len()],
}

impl Metrics {
    /// Every metric, in the format that the Accept header asks for, with its media type.
    pub(crate) async fn scrape(self: &Arc<Self>, accept: Option<&HeaderValue>) -> (&'static str, String) {
        let standing = self.standing().await;
        let mut registry = Registry::with_prefix("doorbuster");
        registry.register_collector(Box::new(Scrape { metrics: Arc::clone(self), standing }));
        let wants = |accept: &HeaderValue| accept.to_str().is_ok_and(|accept| accept.contains(OPENMETRICS));
        let mut page = String::new();
        // Writing to a string cannot fail.
        if accept.is_some_and(wants) {
            let _ = text::encode(&mut page, &registry);
            (OPENMETRICS_TYPE, page)
        } else {
            let _ = prometheus_text::encode(&mut page, &registry);
            (prometheus_text::CONTENT_TYPE, page)
        }
    }

    async fn standing(&self) -> Standing {
        let backends = &self.shared.backends;
        let mut standing = Standing::default();
        let mut stock_up = true;
        for sale in self.shared.catalog.load_full().sales().iter().filter(|sale| is_running(sale)) {
            let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
            let level = patient(backends.stock.level(bucket)).await;
            stock_up &= level.is_some();
            standing.sales.push((Arc::clone(sale), level.flatten()));
        }
        let ledger_up = patient(backends.ledger.positions()).await.is_some();
        let room_up = self.shared.rooms.answer();
        standing.up = [stock_up, backends.queue.accepting().is_ok(), ledger_up, room_up];
        standing.backlog = patient(backends.ledger.backlog()).await;
        standing.lag = patient(self.watch.lag()).await;
        standing.lag_age = match standing.lag {
            Some(0) => Some(Duration::ZERO),
            Some(_) => self.observed.delivered_up_to().map(|moment| backends.clock.now().since(moment)),
            None => None,
        };
        standing
    }
}

/// A sale that the staff is busy with: its items get series of their own.
fn is_running(sale: &Sale) -> bool {
    match sale.terms.state {
        SaleState::Preheated | SaleState::Open | SaleState::Paused => true,
        SaleState::Draft | SaleState::Closed => false,
    }
}

async fn patient<T>(call: impl Future<Output = Result<T, BackendError>>) -> Option<T> {
    // The fault itself is logged by the worker that meets it; here it shows as a layer that is down.
    tokio::time::timeout(PATIENCE, call).await.ok()?.ok()
}
