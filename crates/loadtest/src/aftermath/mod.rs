//! What the winners of a storm do once it is over: they pay in the sandbox, try in vain, cancel, buy
//! again, or never come back.
//!
//! As in the storm there is no task per winner: every connection takes the next winner and lives that
//! life to its end, by the same requests as a browser. What a client was told is noted as it was told.

mod line;
mod shares;
mod winner;

pub use shares::{Life, Shares, TooManyShares};
pub use winner::{Spent, Winner};

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hdrhistogram::Histogram;
use http_body_util::Full;
use hyper::Request;
use hyper::header::{CONTENT_TYPE, HOST};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::link::{BaseUrl, Link, Target};
use crate::plan::{MAX_SPAN, Plan, StormError};
use crate::storm::wall_clock_secs;
use crate::tally::{SeenOrder, new_histogram};
use crate::witness::Storm;
use line::Line;

/// Longest page of the sandbox.
const MAX_PAGE: usize = 256 * 1024;
/// How often the progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// A user of one winner in so many connections would leave them idle; more than this do not pay faster,
/// since payments are decided one after the other.
const MAX_LINES: usize = 256;

/// What the winners of one or more storms did and saw.
#[derive(Clone, Debug)]
pub struct Aftermath {
    /// Every order of a winner with what became of it; one that was bought again is one more.
    pub winners: Vec<Winner>,
    /// From the click that pays on the provider's page to the order's JSON that says `PAID`, in
    /// microseconds. The server's long poll looks every 250 ms.
    pub payment_us: Histogram<u64>,
    /// Winners whose life did not come to its end in an hour, or by a fault of the generator itself.
    pub unfinished: u64,
    /// How long it took.
    pub wall: Duration,
}

impl Aftermath {
    /// Adds what the winners of a later storm did.
    pub fn merge(&mut self, later: Aftermath) {
        self.winners.extend(later.winners);
        // Both have the same bounds, so nothing can lie outside.
        let _ = self.payment_us.add(&later.payment_us);
        self.unfinished += later.unfinished;
        self.wall += later.wall;
    }
}

/// How far an aftermath is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lived {
    /// Winners whose life is over.
    pub over: u64,
    /// Winners there are.
    pub winners: u64,
}

/// What the lines of an aftermath share with whoever waits for it.
struct Signs {
    over: AtomicU64,
    stop: AtomicBool,
}

/// What the lines of an aftermath have in common.
pub(crate) struct Street {
    plan: Plan,
    targets: Vec<Target>,
    errands: Vec<(SeenOrder, Life)>,
    next: Cell<usize>,
    winners: RefCell<Vec<Winner>>,
    payment_us: RefCell<Histogram<u64>>,
    /// The gateway behind each origin of a payment page; `None` for a stranger's.
    origins: RefCell<HashMap<String, Option<usize>>>,
    begin: Instant,
    epoch_secs: u64,
    signs: Arc<Signs>,
}

/// Stops the lines of an aftermath that nobody waits for any more.
struct StopGuard(Arc<Signs>);

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

/// Makes sure that every gateway has the sandbox, in which alone simulated people can pay.
///
/// # Errors
/// [`StormError::NoSandbox`] when one has another provider or none; as [`storm`](crate::storm()) when one
/// cannot be reached.
pub async fn find_sandbox(plan: &Plan) -> Result<(), StormError> {
    for url in &plan.urls {
        let target = BaseUrl::parse(url)?.resolve().await?;
        let unreachable = |reason: String| StormError::Unreachable { url: url.clone(), reason };
        let limit = plan.request_timeout;
        let mut link =
            Link::open(&target, None, limit).await.map_err(|error| unreachable(error.to_string()))?;
        let mut request = Request::new(Full::<Bytes>::default());
        *request.uri_mut() = format!("{}/sandbox/pay/none", target.prefix)
            .parse()
            .map_err(|_| StormError::Plan("a URL's path cannot be used"))?;
        request.headers_mut().insert(HOST, target.host.clone());
        let answer = link
            .exchange(request, limit, MAX_PAGE)
            .await
            .map_err(|broken| unreachable(broken.to_string()))?;
        // The sandbox says on a page that nothing is to be paid there; without it nothing is there at all.
        let is_page =
            answer.headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"text/html"));
        if answer.status != 404 || !is_page {
            return Err(StormError::NoSandbox { url: url.clone() });
        }
    }
    Ok(())
}

/// Lets every winner of a storm live on, in the shares that were asked for; orders that were bought again
/// are added to the storm. `plan` is the storm's.
///
/// Every life ends when it is over, or `patience` after it began. Dropping the future stops all within one
/// request.
///
/// # Errors
/// When the shares are of more than all winners, a gateway cannot be found, or no thread can be started.
/// What single winners met is in the [`Aftermath`].
pub async fn live_on(
    plan: &Plan,
    shares: Shares,
    storm: &mut Storm,
    progress: impl Fn(Lived) + Send + Sync,
) -> Result<Aftermath, StormError> {
    plan.check()?;
    shares.abandon()?;
    let mut targets = Vec::with_capacity(plan.urls.len());
    for url in &plan.urls {
        targets.push(BaseUrl::parse(url)?.resolve().await?);
    }
    let errands = errands(plan, shares, storm);
    let winners = errands.len() as u64;
    let signs = Arc::new(Signs { over: AtomicU64::new(0), stop: AtomicBool::new(false) });
    let guard = StopGuard(Arc::clone(&signs));
    let mut done = start(plan.clone(), targets, errands, signs)?;

    let aftermath = loop {
        match timeout(PROGRESS_EVERY, &mut done).await {
            Ok(Ok(aftermath)) => break aftermath,
            Ok(Err(_)) => return Err(StormError::Thread("it ended early".to_owned())),
            Err(_) => progress(Lived { over: guard.0.over.load(Ordering::Relaxed), winners }),
        }
    };
    progress(Lived { over: winners, winners });
    storm.again.extend(aftermath.winners.iter().filter(|it| it.again).map(|it| it.order.clone()));
    Ok(aftermath)
}

/// Every winner's order, once, with what is to become of it.
fn errands(plan: &Plan, shares: Shares, storm: &Storm) -> Vec<(SeenOrder, Life)> {
    let mut known = std::collections::HashSet::new();
    let orders = storm.accepted.iter().chain(&storm.held);
    orders
        .filter(|seen| known.insert(seen.order_id.as_str()))
        .map(|seen| {
            let number = seen.user_id.strip_prefix(&plan.user_prefix).and_then(|it| it.parse().ok());
            (seen.clone(), shares.life_of(plan.seed, number.unwrap_or(0)))
        })
        .collect()
}

fn start(
    plan: Plan,
    targets: Vec<Target>,
    errands: Vec<(SeenOrder, Life)>,
    signs: Arc<Signs>,
) -> Result<oneshot::Receiver<Aftermath>, StormError> {
    let (result, done) = oneshot::channel();
    std::thread::Builder::new()
        .name("loadtest-winners".to_owned())
        .spawn(move || {
            // If the runtime cannot be built, the channel closes, and it is said that the thread ended early.
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            if let Ok(runtime) = runtime {
                let _ = result.send(runtime.block_on(live_all(plan, targets, errands, signs)));
            }
        })
        .map_err(|error| StormError::Thread(error.to_string()))?;
    Ok(done)
}

async fn live_all(
    plan: Plan,
    targets: Vec<Target>,
    errands: Vec<(SeenOrder, Life)>,
    signs: Arc<Signs>,
) -> Aftermath {
    let lines = plan.connections.min(MAX_LINES).min(errands.len());
    let street = Rc::new(Street {
        plan,
        targets,
        winners: RefCell::new(Vec::with_capacity(errands.len())),
        errands,
        next: Cell::new(0),
        payment_us: RefCell::new(new_histogram()),
        origins: RefCell::default(),
        begin: Instant::now(),
        epoch_secs: wall_clock_secs(),
        signs,
    });
    let lines: Vec<_> = (0..lines)
        .map(|index| tokio::task::spawn_local(Line::new(Rc::clone(&street), index).live()))
        .collect();
    for line in lines {
        // A line that panicked leaves its winner out, who is then among the unfinished.
        let _ = line.await;
    }
    let winners = street.winners.take();
    let lived = winners.iter().filter(|winner| !winner.again).count();
    Aftermath {
        unfinished: (street.errands.len() - lived) as u64,
        winners,
        payment_us: street.payment_us.replace(new_histogram()),
        wall: street.begin.elapsed(),
    }
}

impl Street {
    /// The next winner, until all have lived or nobody waits for them.
    fn next(&self) -> Option<(SeenOrder, Life)> {
        let place = self.next.get();
        self.next.set(place + 1);
        self.errands.get(place).filter(|_| !self.is_over()).cloned()
    }

    fn is_over(&self) -> bool {
        self.signs.stop.load(Ordering::Relaxed) || self.begin.elapsed() > MAX_SPAN
    }

    fn note(&self, winner: Winner) {
        if !winner.again {
            self.signs.over.fetch_add(1, Ordering::Relaxed);
        }
        self.winners.borrow_mut().push(winner);
    }

    /// Microseconds after the first possible click of the storm cannot be told here; those since the
    /// aftermath's begin can.
    fn now_us(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}
