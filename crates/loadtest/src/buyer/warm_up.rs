//! Before the rush: where a sale requires sale tokens, every user gets one, over the same connections.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use doorbuster_wire::SaleTokenView;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderValue};
use hyper::{Method, Request};
use tokio::time::{Instant, sleep_until};

use super::{DEFAULT_RETRY_AFTER_S, Line, Thread};
use crate::link::{Answer, Refusal};
use crate::plan::StormError;

/// Longest pause between two tries: a user whose turn comes in an hour may have it sooner when the staff
/// opens the sale.
const PAUSE_MAX: Duration = Duration::from_secs(5);

impl Thread {
    /// Gets a token for each of the thread's users; answers the connections.
    pub(super) async fn warm_up(self: &Rc<Self>, lines: Vec<Line>) -> Result<Vec<Line>, StormError> {
        if self.campaign.token_paths.is_empty() {
            return Ok(lines);
        }
        self.bearers.replace(vec![HeaderValue::from_static("Bearer"); self.users]);
        let next = Rc::new(Cell::new(0));
        let walks: Vec<_> = lines
            .into_iter()
            .map(|line| tokio::task::spawn_local(Rc::clone(self).get_tokens(line, Rc::clone(&next))))
            .collect();
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
            let bearer = self.get_token(&mut line, place).await?;
            self.bearers.borrow_mut()[place] = bearer;
            self.campaign.gauges[self.index].tokens.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line)
    }

    /// What this user carries in the rush. Who is put off tries again until the patience ends.
    async fn get_token(&self, line: &mut Line, place: usize) -> Result<HeaderValue, StormError> {
        let plan = &self.campaign.plan;
        let number = plan.first_user + (self.index + place * plan.threads) as u64;
        let user = format!("{}{number}", plan.user_prefix);
        let until = Instant::now() + plan.patience;
        loop {
            let answer = self.send(line, |target| self.token_request(target, &user)).await;
            if let Some(token) = answer.as_ref().and_then(token_in) {
                let bearer = Bytes::from(format!("Bearer {token}"));
                if let Ok(bearer) = HeaderValue::from_maybe_shared(bearer) {
                    return Ok(bearer);
                }
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

    fn token_request(&self, target: usize, user: &str) -> Request<Full<Bytes>> {
        let campaign = &*self.campaign;
        let mut bearer = "Bearer ".to_owned();
        let lifetime = campaign.plan.token_lifetime_secs();
        campaign.plan.tokens.sign_into(&mut bearer, user, campaign.epoch_secs, lifetime);
        let mut request = Request::new(Full::default());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = campaign.token_paths[target].clone();
        let headers = request.headers_mut();
        headers.insert(HOST, campaign.targets[target].host.clone());
        let bearer = HeaderValue::from_maybe_shared(Bytes::from(bearer));
        headers.insert(AUTHORIZATION, bearer.unwrap_or_else(|_| HeaderValue::from_static("Bearer")));
        request
    }
}

/// The token that an answer brings.
pub(crate) fn token_in(answer: &Answer) -> Option<String> {
    let view = (answer.status == 200).then(|| serde_json::from_slice::<SaleTokenView>(&answer.body).ok());
    view.flatten().map(|view| view.token)
}

fn word(answer: &Answer) -> String {
    serde_json::from_slice::<Refusal>(&answer.body).map_or_else(|_| "INVALID".to_owned(), |it| it.error)
}
