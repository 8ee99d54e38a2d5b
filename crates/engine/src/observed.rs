//! Measures the calls to the stages, at the seam: [`Observed::over`] wraps the traits, backends
//! measure nothing.
//!
//! Everything here is an atomic counter: measuring takes no lock and allocates nothing. The figures
//! are of this process and begin at zero with it. A server writes them out as metrics.

mod blocks;
mod latency;
mod ledger;
mod queue;
mod room;
mod staff;
mod stock;
mod worker;

pub use latency::{BOUNDS_US, Latency, Reading};
use worker::ObservedWorker;
pub use worker::WorkerFigures;

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::clock::{Clock, Timestamp};
use crate::fault::{BackendError, Fault, Layer};
use crate::room::Room;
use crate::workers::{Backends, Worker};

/// Counts by a fixed list of words.
#[derive(Debug)]
pub struct Counts<const N: usize> {
    words: [&'static str; N],
    counts: [AtomicU64; N],
}

impl<const N: usize> Counts<N> {
    const fn new(words: [&'static str; N]) -> Self {
        Self { words, counts: [const { AtomicU64::new(0) }; N] }
    }

    fn add(&self, index: usize, count: u64) {
        self.counts[index].fetch_add(count, Ordering::Relaxed);
    }

    /// Each word with its count so far.
    pub fn read(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.words.iter().zip(&self.counts).map(|(word, count)| (*word, count.load(Ordering::Relaxed)))
    }
}

/// What the stock answered, in the order of `word_of` in `stock.rs`.
const RESERVED: [&str; 13] = [
    "not_loaded",
    "held_before",
    "gone",
    "mismatch",
    "fenced",
    "limit",
    "not_open",
    "early",
    "ended",
    "no_item",
    "sold_out",
    "not_enough",
    "held",
];

/// What became of published orders.
const PUBLISHED: [&str; 4] = ["acknowledged", "transient", "ambiguous", "permanent"];

/// What happened to orders in the ledger.
const ORDERS: [&str; 7] =
    ["recorded", "known_before", "rejected", "dead_letter", "expired", "cancelled", "paid"];

/// Why rebuilds were begun, in the order of `RebuildReason::ALL`; last, what the staff wished.
const REBUILDS: [&str; 7] = ["preheat", "missing", "not_open", "went_back", "refused", "differs", "staff"];

/// What became of payments.
const PAYMENTS: [&str; 7] =
    ["paid", "duplicate", "refund_due", "amount_mismatch", "no_order", "late", "refunded"];

/// What became of attempts to tell the shop of an event.
const DELIVERIES: [&str; 3] = ["delivered", "failed", "dead"];

/// Faults of each layer, by what may have happened.
const FAULTS: [&str; 3] = ["transient", "ambiguous", "permanent"];

/// The layers, by their words.
pub const LAYERS: [&str; 4] = ["stock", "queue", "ledger", "room"];

/// No moment yet.
const NEVER: i64 = i64::MIN;

/// The figures of one process.
#[derive(Debug)]
pub struct Observed {
    /// Reserve calls to the stock; one call decides up to 256 requests.
    pub reserve: Latency,
    /// Publish calls to the queue, until durable.
    pub publish: Latency,
    /// Record calls to the ledger; one transaction takes up to 500 orders.
    pub record: Latency,
    /// Requests that reached the stock, by what it answered.
    pub reserved: Counts<13>,
    /// Orders published, by what became of it.
    pub published: Counts<4>,
    /// Orders in the ledger, by what happened to them.
    pub orders: Counts<7>,
    /// Rebuilds begun, by why. One that two processes began at one moment may count twice.
    pub rebuilds: Counts<7>,
    /// Rebuilds at whose end the fence was lifted.
    pub rebuilds_finished: AtomicU64,
    /// Batches that another recorder had recorded first.
    pub zombie_batches: AtomicU64,
    /// Orders published again that the ledger did not know: a part of those published.
    pub published_again: AtomicU64,
    /// Payments entered, by what became of them.
    pub payments: Counts<7>,
    /// Attempts to tell the shop of an event, by what became of them.
    pub deliveries: Counts<3>,
    faults: [Counts<3>; LAYERS.len()],
    delivered_up_to_ms: AtomicI64,
    workers: Mutex<Vec<Arc<WorkerFigures>>>,
}

impl Default for Observed {
    fn default() -> Self {
        Self {
            reserve: Latency::default(),
            publish: Latency::default(),
            record: Latency::default(),
            reserved: Counts::new(RESERVED),
            published: Counts::new(PUBLISHED),
            orders: Counts::new(ORDERS),
            rebuilds: Counts::new(REBUILDS),
            rebuilds_finished: AtomicU64::new(0),
            zombie_batches: AtomicU64::new(0),
            published_again: AtomicU64::new(0),
            payments: Counts::new(PAYMENTS),
            deliveries: Counts::new(DELIVERIES),
            faults: [const { Counts::new(FAULTS) }; LAYERS.len()],
            delivered_up_to_ms: AtomicI64::new(NEVER),
            workers: Mutex::default(),
        }
    }
}

impl Observed {
    /// The same waiting rooms, whose faults are counted.
    pub fn room(self: &Arc<Self>, inner: Arc<dyn Room>, clock: &Arc<dyn Clock>) -> Arc<dyn Room> {
        Arc::new(room::ObservedRoom { inner, seen: self.seen(clock) })
    }

    /// The same stages, measured.
    pub fn over(self: &Arc<Self>, backends: Backends) -> Backends {
        let Backends { stock, queue, ledger, clock } = backends;
        Backends {
            stock: Arc::new(stock::ObservedStock { inner: stock, seen: self.seen(&clock) }),
            queue: Arc::new(queue::ObservedQueue { inner: queue, seen: self.seen(&clock) }),
            ledger: Arc::new(ledger::ObservedLedger { inner: ledger, seen: self.seen(&clock) }),
            clock,
        }
    }

    /// The same measured stages for the workers: what they publish was published before.
    pub fn for_workers(self: &Arc<Self>, backends: Backends) -> Backends {
        let queue = queue::Republished { inner: backends.queue, figures: Arc::clone(self) };
        Backends { queue: Arc::new(queue), ..backends }
    }

    /// The same worker, measured. Workers of one name are counted together.
    pub fn worker(&self, inner: Box<dyn Worker>) -> Box<dyn Worker> {
        let mut list = self.worker_list();
        let known = list.iter().find(|it| it.name == inner.name()).cloned();
        let figures = known.unwrap_or_else(|| {
            let new = Arc::new(WorkerFigures::new(inner.name()));
            list.push(Arc::clone(&new));
            new
        });
        Box::new(ObservedWorker::new(inner, figures))
    }

    /// The figures of every worker, in the order in which they were wrapped.
    pub fn workers(&self) -> Vec<Arc<WorkerFigures>> {
        self.worker_list().clone()
    }

    /// Faults of every layer: layer, what may have happened, how often.
    pub fn faults(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> + '_ {
        let layers = LAYERS.iter().zip(&self.faults);
        layers.flat_map(|(layer, counts)| counts.read().map(|(fault, count)| (*layer, fault, count)))
    }

    /// A moment before which every queued record has been delivered to this process' recorder.
    /// Behind it, a record may be unrecorded; `None` when no recorder has read here.
    pub fn delivered_up_to(&self) -> Option<Timestamp> {
        let ms = self.delivered_up_to_ms.load(Ordering::Relaxed);
        (ms != NEVER).then(|| Timestamp::from_ms(ms))
    }

    fn seen(self: &Arc<Self>, clock: &Arc<dyn Clock>) -> Seen {
        Seen { figures: Arc::clone(self), clock: Arc::clone(clock) }
    }

    fn worker_list(&self) -> MutexGuard<'_, Vec<Arc<WorkerFigures>>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a wrapper notes things in.
#[derive(Clone)]
struct Seen {
    figures: Arc<Observed>,
    clock: Arc<dyn Clock>,
}

impl Seen {
    /// Waits for a call and counts its fault.
    async fn call<T>(
        &self,
        call: impl Future<Output = Result<T, BackendError>> + Send,
    ) -> Result<T, BackendError> {
        call.await.inspect_err(|error| self.fault(error))
    }

    /// Waits for a call and notes how long it took.
    async fn timed<T>(&self, latency: &Latency, call: impl Future<Output = T> + Send) -> T {
        let began = self.clock.monotonic();
        let answer = call.await;
        latency.note(self.clock.monotonic().saturating_sub(began));
        answer
    }

    fn fault(&self, error: &BackendError) {
        let layer = match error.layer {
            Layer::Stock => 0,
            Layer::Queue => 1,
            Layer::Ledger => 2,
            Layer::Room => 3,
        };
        self.figures.faults[layer].add(fault_index(error.fault), 1);
    }
}

fn fault_index(fault: Fault) -> usize {
    match fault {
        Fault::Transient => 0,
        Fault::Ambiguous => 1,
        Fault::Permanent => 2,
    }
}
