//! Counters of the listeners.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use doorbuster_engine::observed::Latency;
use doorbuster_engine::told::Told;

use crate::problem;
use crate::purchase::Said;

/// The template of whatever has no route.
pub(super) const NO_ROUTE: &str = "none";

/// One core's figures. Purchases are counted by the core's own thread alone: a count is a load and
/// a store, without a lock, an allocation or a locked instruction.
#[derive(Debug)]
// Two cores' figures never share a line of the processor's cache.
#[repr(align(128))]
pub(crate) struct CoreFigures {
    said: [AtomicU64; Said::COUNT],
    /// Purchases that took an order.
    pub(super) accepted: Latency,
    /// Purchases that were refused.
    pub(super) refused: Latency,
    /// Open connections.
    pub(crate) connections: AtomicUsize,
    /// Connections closed at once, for too many were open.
    pub(crate) turned_away: AtomicU64,
    /// Reserve calls that were repeated.
    pub(crate) reserve_repeats: Arc<AtomicU64>,
    /// Requests that were no purchase.
    pub(crate) requests: Arc<HttpCounts>,
}

impl CoreFigures {
    pub(crate) fn new() -> Self {
        Self {
            said: [const { AtomicU64::new(0) }; Said::COUNT],
            accepted: Latency::default(),
            refused: Latency::default(),
            connections: AtomicUsize::new(0),
            turned_away: AtomicU64::new(0),
            reserve_repeats: Arc::default(),
            requests: Arc::default(),
        }
    }

    /// Counts one answered purchase. The core's own thread only.
    pub(crate) fn purchase(&self, said: Said, took: Duration) {
        let count = &self.said[said.index()];
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let latency = if said.is_accepted() { &self.accepted } else { &self.refused };
        latency.note_alone(took);
    }

    /// Each outcome of a purchase with its status and how often it was said.
    pub(super) fn purchases(&self) -> impl Iterator<Item = (&'static str, u16, u64)> + '_ {
        let words = problem::ALL.iter().map(|word| (word.error, word.status));
        let words = words.chain([("ACCEPTED", 202), ("REPLAYED", 202)]);
        words.zip(&self.said).map(|((word, status), count)| (word, status, count.load(Ordering::Relaxed)))
    }
}

/// Requests by route and class of status. Off the purchase path: the lock is held for a look-up.
#[derive(Debug, Default)]
pub(crate) struct HttpCounts {
    answers: Mutex<BTreeMap<(String, u16), u64>>,
    told: Told,
}

/// Travels in a response whose request a layer left without an answer.
#[derive(Clone, Debug)]
pub(crate) struct Unanswered {
    pub(crate) request: String,
    pub(crate) error: String,
}

impl HttpCounts {
    /// Counts one answer; `route` is a template, never a path.
    pub(crate) fn count(&self, route: &str, status: u16) {
        let mut counts = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry((route.to_owned(), status / 100)).or_default() += 1;
    }

    /// Counts one answer to a request that never came to a route.
    pub(crate) fn count_unrouted(&self, status: u16) {
        self.count(NO_ROUTE, status);
    }

    /// Route, class of status and count.
    pub(super) fn read(&self) -> BTreeMap<(String, u16), u64> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Counts what a router answers, and tells of layers that do not: one line for all who waited meanwhile.
pub(crate) async fn count_requests(
    State(counts): State<Arc<HttpCounts>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    if let Some(fault) = response.extensions().get::<Unanswered>()
        && let Some(requests) = counts.told.due(1)
    {
        tracing::warn!(
            requests,
            request.id = fault.request,
            error = fault.error,
            "requests could not be answered"
        );
    }
    counts.count(route.as_ref().map_or(NO_ROUTE, MatchedPath::as_str), response.status().as_u16());
    response
}
