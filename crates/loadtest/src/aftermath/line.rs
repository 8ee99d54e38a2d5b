//! One connection of the aftermath to every gateway, and how it insists on an answer.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};
use tokio::time::{Instant, sleep_until};

use super::Street;
use crate::link::{Answer, BaseUrl, Broken, Link};

/// Longest body of an answer: an order has a few hundred bytes.
const MAX_BODY: usize = 64 * 1024;
/// What a retry waits for when the answer named no time, or there was no answer.
const DEFAULT_PAUSE: Duration = Duration::from_millis(500);
/// Longest wait that an answer may ask for.
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// One request as it is sent, maybe several times.
pub(super) struct Ask {
    pub(super) method: Method,
    /// The path from the gateway's root, its prefix included.
    pub(super) path: String,
    pub(super) target: usize,
    /// The user's token; none for the provider's page.
    pub(super) bearer: Option<HeaderValue>,
    pub(super) header: Option<(HeaderName, HeaderValue)>,
}

/// One of the aftermath's connections: it lives one winner's life after the other.
pub(super) struct Line {
    pub(super) street: Rc<Street>,
    index: usize,
    links: Vec<Option<Link>>,
    /// Until when the present winner goes on.
    pub(super) until: Instant,
}

impl Line {
    pub(super) fn new(street: Rc<Street>, index: usize) -> Self {
        let links = street.targets.iter().map(|_| None).collect();
        let until = street.begin;
        Self { street, index, links, until }
    }

    /// Lives on while there are winners.
    pub(super) async fn live(mut self) {
        while let Some((order, life)) = self.street.next() {
            self.until = Instant::now() + self.street.plan.patience;
            self.live_one(order, life).await;
        }
    }

    /// The gateway that this line goes to first.
    pub(super) fn home(&self) -> usize {
        self.index % self.links.len().max(1)
    }

    /// Asks until there is an answer other than 429 and 503; `None` when the patience ends before, with
    /// whether the server may have acted.
    pub(super) async fn insist(&mut self, ask: &Ask) -> Result<Answer, Silent> {
        let mut may_have_acted = false;
        loop {
            let pause = match self.exchange(ask).await {
                Ok(answer) if !matches!(answer.status, 429 | 503) => return Ok(answer),
                Ok(answer) => answer.retry_after_s.map_or(DEFAULT_PAUSE, Duration::from_secs).min(MAX_PAUSE),
                Err(broken) => {
                    may_have_acted |= broken.is_some_and(|broken| !matches!(broken, Broken::BeforeSending));
                    DEFAULT_PAUSE
                }
            };
            if !self.pause(pause).await {
                return Err(Silent { may_have_acted });
            }
        }
    }

    /// Waits; false when the patience ends before.
    pub(super) async fn pause(&self, pause: Duration) -> bool {
        let at = Instant::now() + pause;
        if at > self.until || self.street.is_over() {
            return false;
        }
        sleep_until(at).await;
        true
    }

    /// Sends once; on a connection that was closed meanwhile, once more. An error is `None` when the
    /// gateway cannot be connected to.
    async fn exchange(&mut self, ask: &Ask) -> Result<Answer, Option<Broken>> {
        let limit = self.street.plan.request_timeout;
        if let Some(mut link) = self.links[ask.target].take() {
            match link.exchange(self.request(ask)?, limit, MAX_BODY).await {
                Ok(answer) => {
                    self.links[ask.target] = Some(link);
                    return Ok(answer);
                }
                Err(Broken::BeforeSending) => {}
                Err(broken) => return Err(Some(broken)),
            }
        }
        let target = &self.street.targets[ask.target];
        let mut link = Link::open(target, target.source(self.index), limit).await.map_err(|_| None)?;
        let answer = link.exchange(self.request(ask)?, limit, MAX_BODY).await.map_err(Some)?;
        self.links[ask.target] = Some(link);
        Ok(answer)
    }

    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, Option<Broken>> {
        let mut request = Request::new(Full::default());
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.path.parse().map_err(|_| None)?;
        let headers = request.headers_mut();
        headers.insert(HOST, self.street.targets[ask.target].host.clone());
        if let Some(bearer) = &ask.bearer {
            headers.insert(AUTHORIZATION, bearer.clone());
        }
        if let Some((name, value)) = &ask.header {
            headers.insert(name, value.clone());
        }
        Ok(request)
    }

    /// The gateway and the path of a payment page. A page anywhere else is no sandbox of these gateways,
    /// and nothing is sent there.
    pub(super) async fn own_page(&self, url: &str) -> Option<(usize, String)> {
        let uri: Uri = url.parse().ok()?;
        let origin = format!("{}://{}", uri.scheme_str()?, uri.authority()?);
        let path = uri.path_and_query()?.as_str().to_owned();
        let known = self.street.origins.borrow().get(&origin).copied();
        let target = match known {
            Some(target) => target,
            None => {
                let target = self.find(&origin).await;
                self.street.origins.borrow_mut().insert(origin, target);
                target
            }
        };
        Some((target?, path))
    }

    async fn find(&self, origin: &str) -> Option<usize> {
        let address = BaseUrl::parse(origin).ok()?.resolve().await.ok()?.address;
        self.street.targets.iter().position(|target| target.address == address)
    }
}

/// Nobody answered in time.
pub(super) struct Silent {
    /// Whether the request may have been carried out.
    pub(super) may_have_acted: bool,
}
