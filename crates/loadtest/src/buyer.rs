//! One generator thread: its connections take due clicks, send them and judge the answers.
//!
//! There is no task per user. Every connection is one loop that takes the next due click of the
//! thread's schedule, whoever's it is; when none is due, it sleeps until the pacer wakes it. All
//! state belongs to the thread, so nothing is locked.

mod warm_up;

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use doorbuster_wire::PurchaseAccepted;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{Instant, sleep_until};

use crate::campaign::Campaign;
use crate::cpu::{thread_busy_us, thread_cpu_us};
pub(crate) use warm_up::token_in;

use crate::link::{Answer, Broken, Link, Refusal};
use crate::plan::{Plan, StormError};
use crate::schedule::{Click, Schedule, item_of, pause_us};
use crate::tally::{ACCEPTED, HELD, SeenOrder, Tally, Word};

/// Longest body of a purchase answer; the real ones have a few hundred bytes.
const MAX_BODY: usize = 64 * 1024;
/// What a retry waits for when the answer named no time, or there was no answer.
const DEFAULT_RETRY_AFTER_S: u64 = 1;
/// tokio's timers have a grain of 1 ms, so waking more often than that changes nothing.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
/// Connections that a thread opens without a pause before the storm.
const OPENED_AT_ONCE: usize = 16;
/// A retry that is scheduled while the pacer sleeps waits at most this long for it.
const LONGEST_SLEEP: Duration = Duration::from_millis(5);

/// The state of one generator thread.
struct Thread {
    campaign: Arc<Campaign>,
    index: usize,
    schedule: RefCell<Schedule>,
    tally: RefCell<Tally>,
    start: Cell<Instant>,
    idle: Cell<usize>,
    wake: Notify,
    /// How many users it has.
    users: usize,
    /// The sale token that each of them carries, if any.
    bearers: RefCell<Vec<Option<HeaderValue>>>,
}

/// One of a thread's connections.
struct Line {
    /// Its place among the connections of all threads.
    index: usize,
    /// The gateway it leads to.
    target: usize,
    link: Option<Link>,
}

/// Runs one thread's share of the storm: opens the connections, gets sale tokens, says so, waits for the common
/// start, and ends when every click of its users has a final answer.
pub(crate) async fn run_thread(
    campaign: Arc<Campaign>,
    index: usize,
    ready: oneshot::Sender<Result<(), StormError>>,
    mut start: watch::Receiver<Option<Instant>>,
) -> Tally {
    let schedule = Schedule::of_thread(&campaign.plan, index);
    campaign.gauges[index].total.store(schedule.clicks() as u64, Ordering::Relaxed);
    let threads = campaign.plan.threads;
    let users = usize::try_from(campaign.plan.users).unwrap_or(usize::MAX);
    let users = users.saturating_sub(index).div_ceil(threads);
    let thread = Rc::new(Thread {
        tally: RefCell::new(Tally::new(users)),
        users,
        bearers: RefCell::default(),
        schedule: RefCell::new(schedule),
        start: Cell::new(Instant::now()),
        idle: Cell::new(0),
        wake: Notify::new(),
        index,
        campaign,
    });
    let lines = match thread.warm_up(thread.open_all().await).await {
        Ok(lines) => lines,
        Err(error) => {
            let _ = ready.send(Err(error));
            return thread.into_tally();
        }
    };
    let _ = ready.send(Ok(()));
    let Ok(at) = start.wait_for(Option::is_some).await.map(|at| *at) else {
        return thread.into_tally();
    };
    thread.start.set(at.unwrap_or_else(Instant::now));

    sleep_until(thread.start.get()).await;
    let cpu_before = thread_cpu_us();
    let buyers: Vec<_> =
        lines.into_iter().map(|line| tokio::task::spawn_local(Rc::clone(&thread).buyer_loop(line))).collect();
    thread.pace().await;
    let is_cut_short = !thread.schedule.borrow().is_done();
    for buyer in buyers {
        if is_cut_short {
            buyer.abort();
        }
        let _ = buyer.await;
    }
    thread.tally.borrow_mut().cpu_us = thread_cpu_us().saturating_sub(cpu_before);
    thread.into_tally()
}

impl Thread {
    fn into_tally(self: Rc<Self>) -> Tally {
        self.tally.replace(Tally::new(0))
    }

    fn now_us(&self) -> u32 {
        let elapsed = Instant::now().saturating_duration_since(self.start.get());
        u32::try_from(elapsed.as_micros()).unwrap_or(u32::MAX)
    }

    /// Opens the thread's connections in small groups: a listener's queue is often 128 long, and a
    /// connection that finds it full is tried again by the kernel only after a second. One that
    /// cannot be opened now is opened by its first click; so are all after it, lest the storm wait
    /// for one time limit after the other.
    async fn open_all(&self) -> Vec<Line> {
        let plan = &self.campaign.plan;
        let mut is_reachable = true;
        let mut lines = Vec::with_capacity(plan.connections.div_ceil(plan.threads));
        for index in (self.index..plan.connections).step_by(plan.threads) {
            let mut line = Line { index, target: index % self.campaign.targets.len(), link: None };
            if is_reachable && !self.campaign.stop.load(Ordering::Relaxed) {
                line.link = self.open(&line).await.ok();
                is_reachable = line.link.is_some();
            }
            lines.push(line);
            if is_reachable && lines.len().is_multiple_of(OPENED_AT_ONCE) {
                sleep_until(Instant::now() + SHORTEST_SLEEP).await;
            }
        }
        lines
    }

    fn is_over(&self, now_us: u32) -> bool {
        self.schedule.borrow().is_done()
            || self.campaign.stop.load(Ordering::Relaxed)
            || u64::from(now_us) > self.campaign.plan.latest_end_us()
    }

    /// Wakes as many sleeping connections as there are due clicks, until the last click is done.
    async fn pace(&self) {
        let before_us = thread_busy_us();
        let mut is_rush = true;
        loop {
            let now_us = self.now_us();
            if is_rush && self.schedule.borrow().all_begun() {
                is_rush = false;
                let busy_us = thread_busy_us().saturating_sub(before_us);
                let share = busy_us as f64 / f64::from(now_us.max(1));
                self.tally.borrow_mut().busy = share.min(1.0);
            }
            if self.is_over(now_us) {
                break;
            }
            let (due, next_us) = {
                let schedule = self.schedule.borrow();
                (schedule.due(now_us, self.idle.get()), schedule.next_due_us())
            };
            for _ in 0..due {
                self.wake.notify_one();
            }
            self.show();
            let wait = next_us.map_or(LONGEST_SLEEP, |next_us| {
                Duration::from_micros(u64::from(next_us.saturating_sub(now_us)))
                    .clamp(SHORTEST_SLEEP, LONGEST_SLEEP)
            });
            sleep_until(Instant::now() + wait).await;
        }
        self.show();
        self.wake.notify_waiters();
    }

    fn show(&self) {
        let gauges = &self.campaign.gauges[self.index];
        let tally = self.tally.borrow();
        let schedule = self.schedule.borrow();
        for (gauge, value) in [
            (&gauges.clicked, schedule.begun()),
            (&gauges.accepted, tally.accepted.len()),
            (&gauges.waiting, schedule.waiting()),
        ] {
            gauge.store(value as u64, Ordering::Relaxed);
        }
        gauges.gone.store(tally.gone, Ordering::Relaxed);
    }

    async fn buyer_loop(self: Rc<Self>, mut line: Line) {
        while let Some(click) = self.next_click().await {
            let answer = self.send(&mut line, |target| self.request(target, click)).await;
            let now_us = self.now_us();
            let word = match answer {
                Some(answer) => self.judge(click, &answer, now_us),
                None => Err((DEFAULT_RETRY_AFTER_S, "UNREACHABLE")),
            };
            self.end_or_retry(click, word, now_us);
        }
    }

    async fn next_click(&self) -> Option<Click> {
        loop {
            let now_us = self.now_us();
            if self.is_over(now_us) {
                return None;
            }
            let click = self.schedule.borrow_mut().take_due(now_us);
            if let Some(click) = click {
                let mut tally = self.tally.borrow_mut();
                tally.taken(click, u64::from(now_us));
                return Some(click);
            }
            self.idle.set(self.idle.get() + 1);
            self.wake.notified().await;
            self.idle.set(self.idle.get() - 1);
        }
    }

    async fn open(&self, line: &Line) -> io::Result<Link> {
        let target = &self.campaign.targets[line.target];
        Link::open(target, target.source(line.index), self.campaign.plan.request_timeout).await
    }

    /// Sends a request over the line. A gateway that cannot be connected to is left for the next one,
    /// as a load balancer would: it must not swallow clicks as fast as it refuses them.
    async fn send(&self, line: &mut Line, request: impl Fn(usize) -> Request<Full<Bytes>>) -> Option<Answer> {
        let limit = self.campaign.plan.request_timeout;
        if let Some(mut link) = line.link.take() {
            match link.exchange(request(line.target), limit, MAX_BODY).await {
                Ok(answer) => {
                    line.link = Some(link);
                    return Some(answer);
                }
                // An idle connection may be closed by the server at any time: that is no fault.
                Err(Broken::BeforeSending) => {}
                Err(broken) => return self.count_broken(&broken),
            }
        }
        for _ in 0..self.campaign.targets.len() {
            let Ok(mut link) = self.open(line).await else {
                self.tally.borrow_mut().broken += 1;
                line.target = (line.target + 1) % self.campaign.targets.len();
                continue;
            };
            match link.exchange(request(line.target), limit, MAX_BODY).await {
                Ok(answer) => {
                    line.link = Some(link);
                    return Some(answer);
                }
                Err(broken) => return self.count_broken(&broken),
            }
        }
        None
    }

    fn request(&self, target: usize, click: Click) -> Request<Full<Bytes>> {
        let campaign = &*self.campaign;
        let plan = &campaign.plan;
        let number = plan.first_user + u64::from(click.user);
        let item = item_of(plan, number, campaign.items.len());

        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = campaign.paths[target][item].clone();
        let headers = request.headers_mut();
        headers.insert(HOST, campaign.targets[target].host.clone());
        headers.insert(AUTHORIZATION, self.bearer(click));
        request
    }

    /// The sale token that the user has got, or else an access token.
    fn bearer(&self, click: Click) -> HeaderValue {
        let plan = &self.campaign.plan;
        if let Some(Some(bearer)) = self.bearers.borrow().get(click.user as usize / plan.threads) {
            return bearer.clone();
        }
        let mut bearer = String::with_capacity(320);
        bearer.push_str("Bearer ");
        // Not "now" but the click's own moment: a retry carries the same token.
        let issued = self.campaign.epoch_secs + u64::from(click.at_us / 1_000_000);
        plan.tokens.sign_into(&mut bearer, &user_id(plan, click), issued, plan.token_lifetime_secs());
        HeaderValue::from_maybe_shared(Bytes::from(bearer))
            .unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
    }

    /// The final word of a click, or after how many seconds to try again and what to say if the
    /// patience ends before.
    fn judge(&self, click: Click, answer: &Answer, now_us: u32) -> Result<Word, (u64, &'static str)> {
        let mut tally = self.tally.borrow_mut();
        let latency_us = u64::from(now_us - click.at_us);
        tally.answered(answer.status, latency_us, u64::from(now_us));
        match answer.status {
            410 => Ok(tally.gone_word(&answer.body)),
            429 | 503 => {
                let pause_s = answer.retry_after_s.unwrap_or(DEFAULT_RETRY_AFTER_S);
                Err((pause_s, "IMPATIENT"))
            }
            202 => match serde_json::from_slice::<PurchaseAccepted>(&answer.body) {
                Ok(accepted) => {
                    tally.accepted.push(self.seen(click, accepted.order_id, now_us));
                    Ok(ACCEPTED)
                }
                Err(_) => Ok(tally.words.index("INVALID")),
            },
            _ => match serde_json::from_slice::<Refusal>(&answer.body) {
                Ok(Refusal { error, order_id: Some(order_id), .. })
                    if answer.status == 409 && error == "ALREADY_PURCHASED" =>
                {
                    tally.held.push(self.seen(click, order_id, now_us));
                    Ok(HELD)
                }
                Ok(refusal) => Ok(tally.words.index(&refusal.error)),
                Err(_) => Ok(tally.words.index("INVALID")),
            },
        }
    }

    fn seen(&self, click: Click, order_id: String, now_us: u32) -> SeenOrder {
        let plan = &self.campaign.plan;
        let number = plan.first_user + u64::from(click.user);
        let item = item_of(plan, number, self.campaign.items.len());
        SeenOrder {
            order_id,
            user_id: user_id(plan, click),
            item_id: Arc::clone(&self.campaign.items[item]),
            at_us: u64::from(now_us),
        }
    }

    fn count_broken(&self, broken: &Broken) -> Option<Answer> {
        let mut tally = self.tally.borrow_mut();
        match broken {
            Broken::TimedOut => tally.timed_out += 1,
            Broken::BeforeSending | Broken::Lost(_) | Broken::TooLong => tally.broken += 1,
        }
        None
    }

    fn end_or_retry(&self, click: Click, word: Result<Word, (u64, &'static str)>, now_us: u32) {
        let plan = &self.campaign.plan;
        let mut schedule = self.schedule.borrow_mut();
        let mut tally = self.tally.borrow_mut();
        let word = match word {
            Ok(word) => word,
            Err((pause_s, give_up)) => {
                let number = plan.first_user + u64::from(click.user);
                let pause_us = pause_us(plan, number, click.retries, pause_s);
                let due_us = u64::from(now_us).saturating_add(pause_us);
                let patience_us = u64::try_from(plan.patience.as_micros()).unwrap_or(u64::MAX);
                let end_us = u64::from(click.at_us).saturating_add(patience_us);
                match u32::try_from(due_us) {
                    Ok(due) if due_us <= end_us => return schedule.again(click, due),
                    _ => tally.words.index(give_up),
                }
            }
        };
        schedule.done();
        tally.ended(click.user as usize / plan.threads, word);
    }
}

fn user_id(plan: &Plan, click: Click) -> String {
    format!("{}{}", plan.user_prefix, plan.first_user + u64::from(click.user))
}
