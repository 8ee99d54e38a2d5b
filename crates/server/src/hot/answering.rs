//! One request: the purchase path first, the router behind it.

use std::borrow::Cow;
use std::convert::Infallible;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body as RouterBody;
use bytes::Bytes;
use doorbuster_engine::engine::Engine;
use doorbuster_engine::gate::{Caller, TooOften};
use doorbuster_engine::order::ItemId;
use doorbuster_wire::Problem;
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, LOCATION, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use hyper::service::Service;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tokio::time::Instant;
use tower::ServiceExt;

use super::core::Core;
use super::deadline::{Activity, Trust};
use crate::problem;
use crate::purchase::{self, Answer, Kind, PurchaseRequest, Said};
use crate::request_id::RequestId;

/// Most headers of one request. Hyper would count them too, but clears room for so many before it
/// reads a head, where otherwise it takes up to its own hundred as they come.
const HEADERS_MAX: usize = 64;
/// Most bytes of a purchase's body.
const PURCHASE_BODY_MAX: usize = 4 * 1024;

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
pub(crate) const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const SALE_TOKEN: HeaderName = HeaderName::from_static("doorbuster-sale-token");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The address at the other end, for routes behind the router.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

pub(super) type Body = Either<Full<Bytes>, RouterBody>;

/// A response; with what was said, when it was to a purchase.
type Heard = (Response<Body>, Option<Said>);

/// Answers the requests of one connection.
pub(super) struct Answering {
    pub(super) core: Arc<Core>,
    /// The address at the other end.
    pub(super) peer: IpAddr,
    pub(super) activity: Arc<Activity>,
}

/// The answer to a request: for most there is nothing to wait for, so they cost no future of their
/// own.
pub(super) enum Responding {
    /// Made; `None` once hyper has it.
    Now(Option<Response<Body>>),
    /// Being made.
    Later(BoxFuture<'static, Response<Body>>),
}

impl Future for Responding {
    type Output = Result<Response<Body>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Now(response) => {
                Poll::Ready(Ok(response.take().expect("no future is polled after it was ready")))
            }
            Self::Later(making) => making.as_mut().poll(cx).map(Ok),
        }
    }
}

impl Service<Request<Incoming>> for Answering {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Responding;

    fn call(&self, request: Request<Incoming>) -> Responding {
        self.activity.answering();
        let (id, trust) = (self.core.request_ids.next(), self.activity.trust());
        let asked = Asked { id, peer: self.peer, trust };
        if let Err(problem) = check_framing(&request, asked.trust) {
            self.core.figures.requests.count_unrouted(problem.status);
            let answer = Answer::problem(*problem, asked.id);
            return self.now((closing(write(answer, asked.id, HeaderMap::new())), None));
        }
        match purchase_item(request.uri().path()).map(purchase::item) {
            Some(item) if request.method() == Method::POST => self.buy(item, request, asked),
            Some(_) => {
                let answer = Answer::problem(problem::METHOD_NOT_ALLOWED.problem(), asked.id);
                let (mut response, said) = asked.hear(answer, HeaderMap::new());
                response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
                self.now((response, said))
            }
            None => {
                let core = Arc::clone(&self.core);
                self.later(async move { (asked.trusted(route(&core, request, asked).await), None) })
            }
        }
    }
}

impl Answering {
    fn buy(
        &self,
        item: Result<ItemId, Box<Problem>>,
        request: Request<Incoming>,
        asked: Asked,
    ) -> Responding {
        let (head, body) = request.into_parts();
        let core = &self.core;
        if !body.is_end_stream() {
            let core = Arc::clone(core);
            return self.later(async move { buy_with_body(&core, item, head.headers, body, asked).await });
        }
        let forwarded = forwarded(&core.engine, &head.headers);
        let region = region(core.region_header.as_ref(), &head.headers);
        let caller = Caller { peer: asked.peer, forwarded: forwarded.as_deref(), region };
        let admitted = match item {
            Ok(item) => {
                purchase::admit(&core.engine, &purchase_of(item, caller, &head.headers, b""), asked.id)
            }
            Err(problem) => Err(Answer::problem(*problem, asked.id)),
        };
        match admitted {
            // The request's map of headers serves once more.
            Err(answer) => self.now(asked.hear(answer, head.headers)),
            Ok(claim) => {
                let core = Arc::clone(core);
                self.later(async move {
                    let answer = purchase::carry(&core.engine, claim, asked.id).await;
                    asked.hear(answer, HeaderMap::new())
                })
            }
        }
    }

    /// An answer that nobody waited for. Its making took microseconds, so it counts as no time:
    /// reading a clock twice would cost as much as the rest of the count and more.
    fn now(&self, (response, said): Heard) -> Responding {
        self.activity.idle();
        if let Some(said) = said {
            self.core.figures.purchase(said, Duration::ZERO);
        }
        Responding::Now(Some(response))
    }

    fn later(&self, making: impl Future<Output = Heard> + Send + 'static) -> Responding {
        let (core, activity) = (Arc::clone(&self.core), Arc::clone(&self.activity));
        let began = Instant::now();
        Responding::Later(Box::pin(async move {
            let (response, said) = making.await;
            activity.idle();
            if let Some(said) = said {
                core.figures.purchase(said, began.elapsed());
            }
            response
        }))
    }
}

/// What is known of a request before it is read.
#[derive(Clone, Copy)]
struct Asked {
    id: RequestId,
    peer: IpAddr,
    trust: Trust,
}

impl Asked {
    /// The answer to a purchase, in a map of headers that may have been used before.
    fn hear(self, answer: Answer, headers: HeaderMap) -> Heard {
        let said = answer.said;
        (self.trusted(write(answer, self.id, headers)), Some(said))
    }

    /// The response, which ends the connection if nothing behind this request is trusted.
    fn trusted(self, response: Response<Body>) -> Response<Body> {
        if self.trust == Trust::LastRequest { closing(response) } else { response }
    }
}

async fn buy_with_body(
    core: &Core,
    item: Result<ItemId, Box<Problem>>,
    headers: HeaderMap,
    body: Incoming,
    asked: Asked,
) -> Heard {
    let refuse = |problem: Box<Problem>| {
        let (response, said) = asked.hear(Answer::problem(*problem, asked.id), HeaderMap::new());
        // What stands behind a body that was not read cannot be.
        (closing(response), said)
    };
    let item = match item.and_then(|item| purchase::known(&core.engine, item)) {
        Ok(item) => item,
        Err(problem) => return refuse(problem),
    };
    let body = match read_body(core, &headers, body).await {
        Ok(body) => body,
        Err(problem) => return refuse(problem),
    };
    let forwarded = forwarded(&core.engine, &headers);
    let region = region(core.region_header.as_ref(), &headers);
    let caller = Caller { peer: asked.peer, forwarded: forwarded.as_deref(), region };
    let admitted = purchase::admit(&core.engine, &purchase_of(item, caller, &headers, &body), asked.id);
    let answer = match admitted {
        Ok(claim) => purchase::carry(&core.engine, claim, asked.id).await,
        Err(answer) => answer,
    };
    asked.hear(answer, HeaderMap::new())
}

/// All that proxies wrote of whom they speak for, in the order of the headers; where there are none,
/// nobody looks for it.
pub(crate) fn forwarded<'a>(engine: &Engine, headers: &'a HeaderMap) -> Option<Cow<'a, [u8]>> {
    if !engine.shared().limits.has_proxies() {
        return None;
    }
    let mut lists = headers.get_all(X_FORWARDED_FOR).iter().map(HeaderValue::as_bytes);
    let first = lists.next()?;
    let Some(second) = lists.next() else { return Some(Cow::Borrowed(first)) };
    let all: Vec<&[u8]> = [first, second].into_iter().chain(lists).collect();
    Some(Cow::Owned(all.join(&b","[..])))
}

/// Where a proxy says the client is, in the header that is read for that. What stands there twice is in doubt: a proxy
/// that adds to its client's word instead of replacing it says nothing.
pub(crate) fn region<'a>(header: Option<&HeaderName>, headers: &'a HeaderMap) -> Option<&'a [u8]> {
    let mut said = headers.get_all(header?).iter();
    let first = said.next()?;
    said.next().is_none().then(|| first.as_bytes())
}

fn purchase_of<'a>(
    item: ItemId,
    caller: Caller<'a>,
    headers: &'a HeaderMap,
    body: &'a [u8],
) -> PurchaseRequest<'a> {
    let header = |name| headers.get(name).map(HeaderValue::as_bytes);
    PurchaseRequest {
        item,
        caller,
        authorization: header(AUTHORIZATION),
        sale_token: header(SALE_TOKEN),
        idempotency_key: header(IDEMPOTENCY_KEY),
        traceparent: header(TRACEPARENT),
        body,
    }
}

/// A request that two parsers could read as two different ones is refused.
fn check_framing(request: &Request<Incoming>, trust: Trust) -> Result<(), Box<Problem>> {
    let headers = request.headers();
    let refuse = |detail: &str| Err(Box::new(problem::INVALID_REQUEST.because(detail)));
    if headers.len() > HEADERS_MAX {
        return Err(Box::new(problem::HEAD_TOO_LARGE.problem()));
    }
    if trust == Trust::BadHead {
        return refuse(
            "Every line of a request's head must end in CR LF, and one alone may be Content-Length.",
        );
    }
    if headers.get_all(CONTENT_LENGTH).iter().count() + usize::from(headers.contains_key(TRANSFER_ENCODING))
        > 1
    {
        return refuse("The request must say its body's length in exactly one way.");
    }
    if !host_is_good(request) {
        return refuse("The request must name the host it is for in exactly one Host header.");
    }
    Ok(())
}

/// The item's place in the path of a purchase.
fn purchase_item(path: &str) -> Option<&str> {
    let item = path.strip_prefix("/api/flash-sales/items/")?.strip_suffix("/purchase")?;
    (!item.contains('/')).then_some(item)
}

/// The whole body, within its size and time.
async fn read_body(core: &Core, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Box<Problem>> {
    if body.size_hint().lower() > PURCHASE_BODY_MAX as u64 {
        return Err(Box::new(problem::CONTENT_TOO_LARGE.problem()));
    }
    if !is_json(headers) {
        return Err(Box::new(problem::UNSUPPORTED_MEDIA_TYPE.problem()));
    }
    let whole = tokio::time::timeout(core.limits.body, Limited::new(body, PURCHASE_BODY_MAX).collect()).await;
    match whole {
        Ok(Ok(whole)) => Ok(whole.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            Err(Box::new(problem::CONTENT_TOO_LARGE.problem()))
        }
        Ok(Err(_)) => Err(Box::new(
            problem::INVALID_REQUEST
                .because("The request's body ended early or is not framed as HTTP wants it."),
        )),
        Err(_) => Err(Box::new(problem::REQUEST_TIMEOUT.problem())),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_none_or(|kind| {
        let kind = kind.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        kind.eq_ignore_ascii_case(b"application/json") || kind.to_ascii_lowercase().ends_with(b"+json")
    })
}

fn host_is_good(request: &Request<Incoming>) -> bool {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-:[]_".contains(byte);
    let same = request.uri().authority().is_none_or(|it| it.as_str().as_bytes() == host.as_bytes());
    same && !host.is_empty() && host.as_bytes().iter().all(plain)
}

async fn route(core: &Core, request: Request<Incoming>, asked: Asked) -> Response<Body> {
    let Asked { id, peer, .. } = asked;
    let mut request = request.map(RouterBody::new);
    request.extensions_mut().insert(id);
    request.extensions_mut().insert(Peer(peer));
    let mut response = match core.router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if let Ok(value) = HeaderValue::from_bytes(&id.digits()) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response.map(Either::Right)
}

/// An answer as an HTTP response, its headers in a map that may have been used before: hyper keeps
/// the map for the connection's next request, so none need be made anew.
fn write(answer: Answer, id: RequestId, mut headers: HeaderMap) -> Response<Body> {
    headers.clear();
    headers.insert(
        CONTENT_TYPE,
        match answer.kind {
            Kind::Json => HeaderValue::from_static("application/json"),
            Kind::Problem => HeaderValue::from_static("application/problem+json"),
        },
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(value) = HeaderValue::from_bytes(&id.digits()) {
        headers.insert(X_REQUEST_ID, value);
    }
    if let Some(seconds) = answer.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if let Some(limited) = answer.limited {
        limit_headers(limited, &mut headers);
    }
    if let Some(location) = answer.location.and_then(|location| HeaderValue::try_from(location).ok()) {
        headers.insert(LOCATION, location);
    }
    if answer.status == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if answer.replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    let mut response = Response::new(Either::Left(Full::new(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    *response.headers_mut() = headers;
    response
}

/// What is allowed and when again, after the IETF's draft on rate limit headers.
pub(crate) fn limit_headers(limited: TooOften, headers: &mut HeaderMap) {
    let TooOften { policy, rate, wait } = limited;
    let wait_s = wait.as_millis().div_ceil(1_000).max(1);
    let texts = [
        (RATE_LIMIT_POLICY, format!("\"{policy}\";q={};w={}", rate.burst, rate.window_s())),
        (RATE_LIMIT, format!("\"{policy}\";r=0;t={wait_s}")),
    ];
    for (name, text) in texts {
        if let Ok(value) = HeaderValue::try_from(text) {
            headers.insert(name, value);
        }
    }
}

/// A request whose rest cannot be trusted ends its connection.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
