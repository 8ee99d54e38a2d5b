//! Whether buyers should be sent to this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use doorbuster_engine::engine::Shared;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::sale::{Sale, SaleState};
use doorbuster_engine::stock::BucketId;
use doorbuster_engine::workers::Watchdog;
use futures_util::future::{join, join_all};

/// Whether buyers should be sent here.
#[derive(Default)]
pub struct Readiness {
    draining: AtomicBool,
    /// Whether this process verifies tokens, and so needs a key.
    gateway: bool,
    /// Of this process's recorder, if it has one.
    watchdog: Option<Arc<Watchdog>>,
}

/// Longest wait for one stage's answer: a probe that hears nothing knows less than one that hears who
/// is silent. It is longer than the usual wait for a connection, whose end says more than this one's.
const READY_ANSWER: Duration = Duration::from_secs(5);

/// What a stage answers, or what is wrong with it.
async fn in_time<T>(stage: &str, asked: impl Future<Output = Result<T, BackendError>>) -> Result<T, String> {
    match tokio::time::timeout(READY_ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(format!("{stage}: no answer within {} s", READY_ANSWER.as_secs())),
    }
}

impl Readiness {
    /// Of a process that begins to serve, as a gateway or not.
    pub(super) fn new(gateway: bool, watchdog: Option<Arc<Watchdog>>) -> Self {
        Self { draining: AtomicBool::new(false), gateway, watchdog }
    }

    /// From now on no more buyers should be sent here.
    pub(super) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Why buyers should not be sent here now; empty when they should.
    pub async fn reasons(&self, shared: &Shared) -> Vec<String> {
        let mut reasons = Vec::new();
        if self.draining.load(Ordering::Relaxed) {
            reasons.push("the server is stopping".to_owned());
        }
        if self.gateway && shared.tokens.keys() == 0 {
            reasons
                .push("the identity provider's keys (gate.jwt.jwks_url) have not been read yet".to_owned());
        }
        let catalog = shared.catalog.load_full();
        if self.gateway && !shared.sale_tokens.are_on() {
            let open = catalog.sales().iter().filter(|it| it.terms.state != SaleState::Closed);
            let locked = open.filter(|it| catalog.switches().entry(it.id).token);
            reasons.extend(locked.map(|sale| {
                format!("sale {} requires sale tokens, and this server has no secret for them: set gate.sale_tokens.secret_file, the same on every server", sale.id)
            }));
        }
        // All are asked at once: several that are silent make the probe no slower than one.
        let open = catalog.sales().iter().filter(|sale| sale.terms.state == SaleState::Open);
        let stocks = join_all(open.map(|sale| not_selling(shared, sale)));
        let (ledger, stocks) = join(in_time("ledger", shared.backends.ledger.positions()), stocks).await;
        reasons.extend(ledger.err());
        if let Err(error) = shared.backends.queue.accepting() {
            reasons.push(error.to_string());
        }
        reasons.extend(shared.backpressure.cause());
        reasons.extend(self.watchdog.as_ref().and_then(|watchdog| watchdog.complaint()));
        reasons.extend(stocks.into_iter().flatten());
        reasons
    }
}

/// Why an open sale does not sell.
async fn not_selling(shared: &Shared, sale: &Sale) -> Option<String> {
    if let Some(fence) = &sale.fence {
        return Some(format!("sale {} is being rebuilt: {}", sale.id, fence.reason));
    }
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    match in_time("stock", shared.backends.stock.level(bucket)).await {
        Ok(Some(level)) if !level.loading && !level.fenced => None,
        Ok(_) => Some(format!("the stock of sale {} is not loaded", sale.id)),
        Err(reason) => Some(reason),
    }
}
