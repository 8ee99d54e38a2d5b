//! The storm itself: threads of buyers, started together, and what they saw in the end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use doorbuster_wire::SaleView;
use http_body_util::Full;
use hyper::header::HOST;
use hyper::{Request, Uri};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};

use crate::buyer::run_thread;
use crate::campaign::{Campaign, Gauges};
use crate::link::{BaseUrl, Link, Refusal, Target};
use crate::plan::{Plan, StormError, is_path_segment};
use crate::tally::Tally;
use crate::witness::Storm;

/// Longest wait until every gateway has heard of the sale.
const SPREAD: Duration = Duration::from_secs(3);
/// How often they are asked.
const LOOK: Duration = Duration::from_millis(20);
/// How often the progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(100);
/// From the last connection's opening to the first possible click: all threads are awake by then.
const START_DELAY: Duration = Duration::from_millis(20);
/// Longest sale view: 1,000 items of less than 1 KB.
const MAX_SALE_VIEW: usize = 4 * 1024 * 1024;

/// How far a storm is, some 100 ms ago at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Users who have got their sale token, before the first click; 0 where the sale requires none.
    pub tokens: u64,
    /// Clicks that were sent at least once, second clicks of impatient users included.
    pub clicked: u64,
    /// Clicks there will be.
    pub total: u64,
    /// 202 answers so far.
    pub accepted: u64,
    /// 410 answers so far.
    pub gone: u64,
    /// Clicks that were put off and wait for their next attempt.
    pub retries_waiting: u64,
    /// Time since the first possible click.
    pub elapsed: Duration,
}

/// Runs a storm to its end: until every click has a final answer or its patience ended.
///
/// Waits until every gateway has heard of the sale, reads the first one's view of it, opens all connections, gets a
/// sale token for every user if the sale requires them, and starts the clicks on threads of its own; the caller's task only tells the progress, about ten times a second.
/// Dropping the future stops the threads within some milliseconds.
///
/// # Errors
/// When the plan is out of bounds, the first gateway or the sale cannot be read, or a thread
/// cannot be started. Whatever happens to buyers later is not an error but in the [`Storm`].
pub async fn storm(plan: Plan, progress: impl Fn(Progress) + Send + Sync) -> Result<Storm, StormError> {
    plan.check()?;
    let mut targets = Vec::with_capacity(plan.urls.len());
    for url in &plan.urls {
        targets.push(BaseUrl::parse(url)?.resolve().await?);
    }
    let sale = seen_everywhere(&plan, &targets).await?;
    let campaign = Arc::new(prepare(plan, targets, &sale)?);
    let guard = StopGuard(Arc::clone(&campaign));

    let (go, start) = watch::channel(None);
    let mut tallies = Vec::new();
    let mut readies = Vec::new();
    for index in 0..campaign.plan.threads {
        let (ready, is_ready) = oneshot::channel();
        readies.push(is_ready);
        tallies.push(start_thread(Arc::clone(&campaign), index, ready, start.clone())?);
    }
    let opened = Instant::now();
    for mut ready in readies {
        loop {
            match timeout(PROGRESS_EVERY, &mut ready).await {
                Ok(Ok(ready)) => break ready?,
                Ok(Err(_)) => {
                    return Err(StormError::Thread("it ended before its connections were open".to_owned()));
                }
                Err(_) => progress(guard.progress(opened)),
            }
        }
    }
    let begin = Instant::now() + START_DELAY;
    go.send_replace(Some(begin));

    let mut done = Vec::new();
    for mut tally in tallies {
        done.push(loop {
            match timeout(PROGRESS_EVERY, &mut tally).await {
                Ok(Ok(tally)) => break tally,
                Ok(Err(_)) => return Err(StormError::Thread("it ended early".to_owned())),
                Err(_) => progress(guard.progress(begin)),
            }
        });
    }
    progress(guard.progress(begin));
    Ok(Storm::of_tallies(&campaign, &sale, begin, done))
}

/// The first gateway's view of the sale, once every gateway knows it and sells it. What the staff did a
/// moment ago at one process reaches the others within a tenth of a second or so; who is not told in time
/// is stormed as it is.
async fn seen_everywhere(plan: &Plan, targets: &[Target]) -> Result<SaleView, StormError> {
    let until = Instant::now() + SPREAD;
    let mut look = tokio::time::interval(LOOK);
    for target in targets.iter().rev() {
        loop {
            look.tick().await;
            let seen = fetch_sale(plan, target).await;
            let waits = match &seen {
                Ok(sale) => ["draft", "preheated"].contains(&sale.state.as_str()),
                Err(StormError::Sale { status: 404, .. }) => true,
                Err(_) => false,
            };
            if !waits || Instant::now() >= until {
                if std::ptr::eq(target, &targets[0]) {
                    return seen;
                }
                break;
            }
        }
    }
    Err(StormError::Plan("it names no gateway"))
}

/// Stops the threads of a storm that nobody waits for any more.
struct StopGuard(Arc<Campaign>);

impl StopGuard {
    fn progress(&self, begin: Instant) -> Progress {
        let sum = |pick: fn(&Gauges) -> &AtomicU64| {
            self.0.gauges.iter().map(|gauges| pick(gauges).load(Ordering::Relaxed)).sum()
        };
        Progress {
            tokens: sum(|gauges| &gauges.tokens),
            clicked: sum(|gauges| &gauges.clicked),
            total: sum(|gauges| &gauges.total),
            accepted: sum(|gauges| &gauges.accepted),
            gone: sum(|gauges| &gauges.gone),
            retries_waiting: sum(|gauges| &gauges.waiting),
            elapsed: Instant::now().saturating_duration_since(begin),
        }
    }
}

impl Drop for StopGuard {
    fn drop(&mut self) {
        self.0.stop.store(true, Ordering::Relaxed);
    }
}

async fn fetch_sale(plan: &Plan, target: &Target) -> Result<SaleView, StormError> {
    let unreachable = |reason: String| StormError::Unreachable { url: plan.urls[0].clone(), reason };
    let limit = plan.request_timeout;
    let mut link = Link::open(target, None, limit).await.map_err(|error| unreachable(error.to_string()))?;
    let mut request = Request::new(Full::<Bytes>::default());
    *request.uri_mut() = path(target, "sales", &plan.sale_id, "")?;
    request.headers_mut().insert(HOST, target.host.clone());
    let answer = link
        .exchange(request, limit, MAX_SALE_VIEW)
        .await
        .map_err(|broken| unreachable(broken.to_string()))?;
    if answer.status != 200 {
        let refusal = serde_json::from_slice::<Refusal>(&answer.body);
        return Err(StormError::Sale {
            sale_id: plan.sale_id.clone(),
            status: answer.status,
            error: refusal.map_or_else(|_| "INVALID".to_owned(), |refusal| refusal.error),
        });
    }
    serde_json::from_slice(&answer.body)
        .map_err(|error| StormError::SaleView { sale_id: plan.sale_id.clone(), reason: error.to_string() })
}

fn prepare(plan: Plan, targets: Vec<Target>, sale: &SaleView) -> Result<Campaign, StormError> {
    let unusable =
        |reason: &str| StormError::SaleView { sale_id: plan.sale_id.clone(), reason: reason.to_owned() };
    if sale.items.is_empty() {
        return Err(unusable("it has no items"));
    }
    if sale.items.iter().any(|item| !is_path_segment(&item.item_id)) {
        return Err(unusable("an item id cannot stand in a path"));
    }

    let mut paths = Vec::with_capacity(targets.len());
    for target in &targets {
        let of_target: Result<Vec<_>, _> =
            sale.items.iter().map(|item| path(target, "items", &item.item_id, "/purchase")).collect();
        paths.push(of_target?);
    }
    let tokens = if sale.waiting_room { "/waiting-room" } else { "/token" };
    let token_paths = match sale.token_required || sale.waiting_room {
        true => targets.iter().map(|target| path(target, "sales", &plan.sale_id, tokens)).collect(),
        false => Ok(Vec::new()),
    };
    Ok(Campaign {
        token_paths: token_paths?,
        waiting_room: sale.waiting_room,
        items: sale.items.iter().map(|item| Arc::from(item.item_id.as_str())).collect(),
        epoch_secs: wall_clock_secs(),
        stop: AtomicBool::new(false),
        gauges: (0..plan.threads).map(|_| Gauges::default()).collect(),
        plan,
        targets,
        paths,
    })
}

fn path(target: &Target, kind: &str, id: &str, rest: &str) -> Result<Uri, StormError> {
    let path = format!("{}/api/flash-sales/{kind}/{id}{rest}", target.prefix);
    path.parse().map_err(|_| StormError::Plan("a URL's path cannot be used"))
}

#[expect(clippy::disallowed_methods, reason = "tokens are checked against the server's real clock")]
pub(crate) fn wall_clock_secs() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn start_thread(
    campaign: Arc<Campaign>,
    index: usize,
    ready: oneshot::Sender<Result<(), StormError>>,
    start: watch::Receiver<Option<Instant>>,
) -> Result<oneshot::Receiver<Tally>, StormError> {
    let failed = |error: std::io::Error| StormError::Thread(error.to_string());
    let (result, tally) = oneshot::channel();
    std::thread::Builder::new()
        .name(format!("loadtest-{index}"))
        .spawn(move || {
            // The runtime belongs to its thread. If it cannot be built, both channels close, and
            // the storm says that the thread ended early.
            let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
            if let Ok(runtime) = runtime {
                let tally = runtime.block_on(run_thread(campaign, index, ready, start));
                let _ = result.send(tally);
            }
        })
        .map_err(failed)?;
    Ok(tally)
}
