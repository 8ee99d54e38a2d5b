//! The micro-batcher in front of the stock.
//!
//! Requests of one sale that arrive while the previous call is in flight go into the next one. No
//! timer is involved, so an idle system adds no latency, and a slow sale holds up no other one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use super::{BucketId, RESERVE_BATCH_MAX, ReserveOutcome, ReserveRequest, Stock};
use crate::fault::{BackendError, Fault, Layer};
use crate::told::Told;

/// Bounds of one [`Batcher`].
#[derive(Clone, Copy, Debug)]
pub struct BatcherLimits {
    /// Requests of one bucket that may wait; one more is refused at once, and other buckets' are
    /// not.
    pub waiting_max: usize,
    /// How often a failed call is repeated, with the same order ids.
    pub repeats: u32,
    /// Longest time for one call.
    pub call_timeout: Duration,
}

impl Default for BatcherLimits {
    fn default() -> Self {
        Self { waiting_max: 16_384, repeats: 2, call_timeout: Duration::from_millis(500) }
    }
}

/// What became of one request.
#[derive(Debug)]
pub enum ReserveReply {
    /// The stock answered.
    Answered {
        /// What it answered.
        outcome: ReserveOutcome,
        /// Whether the call had been repeated: an order that was held before may then be held by
        /// this very request.
        repeated: bool,
    },
    /// The stock was not reached, or the queue of requests is full: nothing was taken.
    Busy,
    /// A call may have taken the units and its reply was lost.
    Unknown,
}

struct Waiting {
    request: ReserveRequest,
    answer: oneshot::Sender<ReserveReply>,
}

impl Waiting {
    /// Nothing was sent for it.
    fn refuse(self) {
        // A receiver that is gone belongs to a stopping server.
        let _ = self.answer.send(ReserveReply::Busy);
    }
}

/// How a call to the stock ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Answered,
    Failed,
}

/// The side of the batcher that requests come in by. One per core.
#[derive(Clone)]
pub struct Batcher {
    requests: mpsc::Sender<(BucketId, Waiting)>,
}

/// The side of the batcher that calls the stock; [`BatcherWork::run`] ends when every [`Batcher`]
/// is dropped.
pub struct BatcherWork {
    requests: mpsc::Receiver<(BucketId, Waiting)>,
    stock: Arc<dyn Stock>,
    limits: BatcherLimits,
    signs: Signs,
}

/// What an operator sees of calls that fail.
#[derive(Clone, Default)]
struct Signs {
    /// Calls that were repeated.
    repeated: Arc<AtomicU64>,
    told: Arc<Told>,
}

impl Batcher {
    /// A batcher for `stock` and the work that somebody must run.
    pub fn new(stock: Arc<dyn Stock>, limits: BatcherLimits) -> (Self, BatcherWork) {
        let (sender, requests) = mpsc::channel(limits.waiting_max);
        (Self { requests: sender }, BatcherWork { requests, stock, limits, signs: Signs::default() })
    }

    /// Sends one request with the next call for its bucket and waits for the answer.
    pub async fn reserve(&self, bucket: BucketId, request: ReserveRequest) -> ReserveReply {
        let (answer, reply) = oneshot::channel();
        if self.requests.try_send((bucket, Waiting { request, answer })).is_err() {
            return ReserveReply::Busy;
        }
        reply.await.unwrap_or(ReserveReply::Unknown)
    }
}

impl BatcherWork {
    /// The same, which counts the calls that it repeats.
    #[must_use]
    pub fn counting(self, repeated: Arc<AtomicU64>) -> Self {
        Self { signs: Signs { repeated, ..self.signs }, ..self }
    }

    /// Serves requests until every sender is gone and the last call is answered.
    pub async fn run(mut self) {
        let mut lanes: HashMap<BucketId, VecDeque<Waiting>> = HashMap::new();
        let mut calls: FuturesUnordered<BoxFuture<'static, (BucketId, Call)>> = FuturesUnordered::new();
        let mut arrived = Vec::with_capacity(RESERVE_BATCH_MAX);
        let mut open = true;
        while open || !calls.is_empty() {
            tokio::select! {
                biased;
                Some((bucket, call)) = calls.next(), if !calls.is_empty() => {
                    // The bucket's call is back: what waited meanwhile goes into the next one. Behind a
                    // stock that is not there nobody waits any longer.
                    match lanes.get_mut(&bucket) {
                        Some(waiting) if call == Call::Answered && !waiting.is_empty() => {
                            calls.push(self.call(bucket, waiting));
                        }
                        _ => lanes.remove(&bucket).into_iter().flatten().for_each(Waiting::refuse),
                    }
                }
                count = self.requests.recv_many(&mut arrived, RESERVE_BATCH_MAX), if open => {
                    open = count > 0;
                    let mut idle = Vec::new();
                    for (bucket, waiting) in arrived.drain(..) {
                        let lane = lanes.entry(bucket).or_insert_with(|| { idle.push(bucket); VecDeque::new() });
                        if lane.len() < self.limits.waiting_max {
                            lane.push_back(waiting);
                        } else {
                            waiting.refuse();
                        }
                    }
                    for bucket in idle {
                        if let Some(waiting) = lanes.get_mut(&bucket) {
                            calls.push(self.call(bucket, waiting));
                        }
                    }
                }
            }
        }
    }

    fn call(
        &self,
        bucket: BucketId,
        waiting: &mut VecDeque<Waiting>,
    ) -> BoxFuture<'static, (BucketId, Call)> {
        let batch: Vec<Waiting> = waiting.drain(..waiting.len().min(RESERVE_BATCH_MAX)).collect();
        let (stock, limits, signs) = (Arc::clone(&self.stock), self.limits, self.signs.clone());
        Box::pin(async move { (bucket, serve(stock.as_ref(), bucket, batch, (limits, &signs)).await) })
    }
}

async fn serve(
    stock: &dyn Stock,
    bucket: BucketId,
    batch: Vec<Waiting>,
    (limits, signs): (BatcherLimits, &Signs),
) -> Call {
    let (requests, answers): (Vec<ReserveRequest>, Vec<oneshot::Sender<ReserveReply>>) =
        batch.into_iter().map(|waiting| (waiting.request, waiting.answer)).unzip();
    let mut may_have_happened = false;
    for repeat in 0..=limits.repeats {
        signs.repeated.fetch_add(u64::from(repeat > 0), Ordering::Relaxed);
        let call = stock.reserve(bucket, &requests);
        let result = tokio::time::timeout(limits.call_timeout, call).await.unwrap_or_else(|_| {
            Err(BackendError::new(Layer::Stock, Fault::Ambiguous, "the reserve call timed out"))
        });
        match result {
            Ok(outcomes) if outcomes.len() == requests.len() => {
                for (outcome, answer) in outcomes.into_iter().zip(answers) {
                    // A receiver that is gone belongs to a stopping server.
                    let _ = answer.send(said(outcome, may_have_happened));
                }
                return Call::Answered;
            }
            Ok(outcomes) => {
                may_have_happened = true;
                tracing::error!(
                    answers = outcomes.len(),
                    requests = requests.len(),
                    "stock answered another number of requests than it was sent"
                );
            }
            Err(error) => {
                may_have_happened |= error.fault != Fault::Transient;
                if let Some(calls) = signs.told.due(1) {
                    tracing::warn!(
                        sale.id = %bucket.sale, calls, error = error.chain(),
                        "reserve calls fail; they are repeated with the same orders, then their buyers are put off"
                    );
                }
            }
        }
    }
    for answer in answers {
        let _ = answer.send(if may_have_happened { ReserveReply::Unknown } else { ReserveReply::Busy });
    }
    Call::Failed
}

/// A refusal that answers a repeated call is no refusal: the first copy may still run.
fn said(outcome: ReserveOutcome, repeated: bool) -> ReserveReply {
    match outcome {
        ReserveOutcome::Held { .. } | ReserveOutcome::HeldBefore { .. } | ReserveOutcome::Gone => {
            ReserveReply::Answered { outcome, repeated }
        }
        _ if repeated => ReserveReply::Unknown,
        _ => ReserveReply::Answered { outcome, repeated },
    }
}
