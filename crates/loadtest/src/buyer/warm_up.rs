//! Before the rush: where a sale requires sale tokens, every user gets one, over the same connections; where it has a
//! waiting room, those who are let in.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request};
use serde::Deserialize;
use tokio::time::{Instant, sleep_until};

use super::{DEFAULT_RETRY_AFTER_S, Line, Thread};
use crate::link::{Answer, Refusal};
use crate::plan::StormError;

/// Longest pause between two tries: a user whose turn comes in an hour may have it sooner when the staff
/// opens the sale.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// So many looks in a row in which nobody is let in, and those who wait are given up: they click all the same, and
/// hear that it is not their turn.
const QUIET_LOOKS: u32 = 3;

/// A look at the waiting room is this long behind the one before it.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// A user who waits.
struct Waiter {
    place: usize,
    /// The place in the room, as its last answer sealed it.
    sealed: Option<String>,
}

/// One look of all who wait.
#[derive(Default)]
struct Look {
    /// Those who have not looked yet.
    before: RefCell<Vec<Waiter>>,
    /// Those who go on waiting.
    after: RefCell<Vec<Waiter>>,
    /// Whether somebody was let in, or the sale has not opened.
    moved: Cell<bool>,
}

impl Thread {
    /// Gets a token for each of the thread's users; answers the connections.
    pub(super) async fn warm_up(self: &Rc<Self>, lines: Vec<Line>) -> Result<Vec<Line>, StormError> {
        if self.campaign.token_paths.is_empty() {
            return Ok(lines);
        }
        self.bearers.replace(vec![None; self.users]);
        if self.campaign.waiting_room {
            return self.wait_for_turns(lines).await;
        }
        let next = Rc::new(Cell::new(0));
        self.on_all(lines, |line| Rc::clone(self).get_tokens(line, Rc::clone(&next))).await
    }

    /// Does something on all connections at once; answers them.
    async fn on_all<F: Future<Output = Result<Line, StormError>> + 'static>(
        &self,
        lines: Vec<Line>,
        work: impl Fn(Line) -> F,
    ) -> Result<Vec<Line>, StormError> {
        let walks: Vec<_> = lines.into_iter().map(|line| tokio::task::spawn_local(work(line))).collect();
        let mut lines = Vec::with_capacity(walks.len());
        for walk in walks {
            let ended = |_| StormError::Thread("it ended while users got their tokens".to_owned());
            lines.push(walk.await.map_err(ended)??);
        }
        Ok(lines)
    }

    /// One user after the other, until all have a token.
    async fn get_tokens(self: Rc<Self>, mut line: Line, next: Rc<Cell<usize>>) -> Result<Line, StormError> {
        while next.get() < self.users && !self.campaign.stop.load(Ordering::Relaxed) {
            let place = next.replace(next.get() + 1);
            let token = self.ask_for_token(&mut line, place, None).await?.token;
            self.carries(place, token);
        }
        Ok(line)
    }

    /// Everybody asks the waiting room, again and again, until nobody is let in any more.
    async fn wait_for_turns(self: &Rc<Self>, mut lines: Vec<Line>) -> Result<Vec<Line>, StormError> {
        let mut waiters: Vec<Waiter> = (0..self.users).map(|place| Waiter { place, sealed: None }).collect();
        let (until, mut quiet) = (Instant::now() + self.campaign.plan.patience, 0);
        while quiet < QUIET_LOOKS && !waiters.is_empty() && Instant::now() < until {
            let look = Rc::new(Look { before: RefCell::new(waiters), ..Look::default() });
            let began = Instant::now();
            lines = self.on_all(lines, |line| Rc::clone(self).look(line, Rc::clone(&look))).await?;
            if self.campaign.stop.load(Ordering::Relaxed) {
                break;
            }
            waiters = look.after.take();
            quiet = if look.moved.get() { 0 } else { quiet + 1 };
            sleep_until(began + LOOK_PAUSE).await;
        }
        Ok(lines)
    }

    /// One after the other asks where he stands.
    async fn look(self: Rc<Self>, mut line: Line, look: Rc<Look>) -> Result<Line, StormError> {
        while !self.campaign.stop.load(Ordering::Relaxed) {
            let Some(Waiter { place, sealed }) = look.before.borrow_mut().pop() else { break };
            let told = self.ask_for_token(&mut line, place, sealed).await?;
            match told.status.as_deref() {
                Some("WAITING" | "PREQUEUE") => {
                    if told.status.as_deref() == Some("PREQUEUE") {
                        look.moved.set(true);
                    }
                    look.after.borrow_mut().push(Waiter { place, sealed: told.place });
                }
                // Let in; or nobody waits any more.
                _ => {
                    look.moved.set(true);
                    self.carries(place, told.token);
                }
            }
        }
        Ok(line)
    }

    /// What this user has in the rush.
    fn carries(&self, place: usize, token: Option<String>) {
        let bearer = token.map(|token| Bytes::from(format!("Bearer {token}")));
        let bearer = bearer.and_then(|bearer| HeaderValue::from_maybe_shared(bearer).ok());
        if bearer.is_some() {
            self.campaign.gauges[self.index].tokens.fetch_add(1, Ordering::Relaxed);
        }
        self.bearers.borrow_mut()[place] = bearer;
    }

    /// What this user is told at the token's address, or the waiting room's. Who is put off tries again until the
    /// patience ends.
    async fn ask_for_token(
        &self,
        line: &mut Line,
        place: usize,
        sealed: Option<String>,
    ) -> Result<Told, StormError> {
        let plan = &self.campaign.plan;
        let number = plan.first_user + (self.index + place * plan.threads) as u64;
        let user = format!("{}{number}", plan.user_prefix);
        let body = sealed.map(|place| serde_json::json!({ "place": place }).to_string()).unwrap_or_default();
        let body = Bytes::from(body);
        let until = Instant::now() + plan.patience;
        loop {
            let answer = self.send(line, |target| self.token_request(target, &user, &body)).await;
            if let Some(told) = answer.as_ref().and_then(told_in) {
                return Ok(told);
            }
            let told = answer.as_ref().map(|it| (it.status, word(it)));
            let again = match &told {
                None | Some((429 | 503, _)) => true,
                Some((_, word)) => word == "NOT_STARTED",
            };
            let pause_s = answer.and_then(|it| it.retry_after_s).unwrap_or(DEFAULT_RETRY_AFTER_S);
            let then = Instant::now() + Duration::from_secs(pause_s).min(PAUSE_MAX);
            if !again || then > until || self.campaign.stop.load(Ordering::Relaxed) {
                let (status, error) = told.unwrap_or((0, "UNREACHABLE".to_owned()));
                return Err(StormError::NoSaleToken { user, status, error });
            }
            sleep_until(then).await;
        }
    }

    fn token_request(&self, target: usize, user: &str, body: &Bytes) -> Request<Full<Bytes>> {
        let campaign = &*self.campaign;
        let mut bearer = "Bearer ".to_owned();
        let lifetime = campaign.plan.token_lifetime_secs();
        campaign.plan.tokens.sign_into(&mut bearer, user, campaign.epoch_secs, lifetime);
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = campaign.token_paths[target].clone();
        let headers = request.headers_mut();
        headers.insert(HOST, campaign.targets[target].host.clone());
        let bearer = HeaderValue::from_maybe_shared(Bytes::from(bearer));
        headers.insert(AUTHORIZATION, bearer.unwrap_or_else(|_| HeaderValue::from_static("Bearer")));
        request
    }
}

/// What an answer says that brings a token, or a place in the waiting room.
#[derive(Deserialize)]
struct Told {
    /// Where the user stands in the waiting room.
    status: Option<String>,
    place: Option<String>,
    token: Option<String>,
}

fn told_in(answer: &Answer) -> Option<Told> {
    let told = (answer.status == 200).then(|| serde_json::from_slice::<Told>(&answer.body).ok())??;
    (told.token.is_some() || told.status.is_some()).then_some(told)
}

/// The token that an answer brings.
pub(crate) fn token_in(answer: &Answer) -> Option<String> {
    told_in(answer)?.token
}

fn word(answer: &Answer) -> String {
    serde_json::from_slice::<Refusal>(&answer.body).map_or_else(|_| "INVALID".to_owned(), |it| it.error)
}
