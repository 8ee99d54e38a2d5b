//! One request: the purchase path first, the router behind it.

use axum::body::Body as RouterBody;
use bytes::Bytes;
use doorbuster_wire::Problem;
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderName,
    HeaderValue, LOCATION, RETRY_AFTER, TRANSFER_ENCODING, WWW_AUTHENTICATE,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use tower::ServiceExt;

use super::core::Core;
use super::deadline::Trust;
use crate::problem;
use crate::purchase::{self, Answer, Kind, PurchaseRequest, Said};
use crate::request_id::RequestId;

/// Most bytes of a purchase's body.
const PURCHASE_BODY_MAX: usize = 4 * 1024;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

type Body = Either<Full<Bytes>, RouterBody>;

/// The answer to a request; with what was said, when it was a purchase.
pub(super) async fn respond(
    core: &Core,
    request: Request<Incoming>,
    trust: Trust,
) -> (Response<Body>, Option<Said>) {
    let id = core.request_ids.next();
    if let Err(problem) = check_framing(&request, trust) {
        core.figures.requests.count_unrouted(problem.status);
        return (closing(write(Answer::problem(*problem, id), id)), None);
    }
    let (response, said) = match purchase_item(request.uri().path()) {
        Some(_) if request.method() == Method::POST => {
            let (response, said) = buy(core, request, id).await;
            (response, Some(said))
        }
        Some(_) => {
            let answer = Answer::problem(problem::METHOD_NOT_ALLOWED.problem(), id);
            let said = answer.said;
            let mut response = write(answer, id);
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            (response, Some(said))
        }
        None => (route(core, request, id).await, None),
    };
    if trust == Trust::LastRequest { (closing(response), said) } else { (response, said) }
}

/// A request that two parsers could read as two different ones is refused.
fn check_framing(request: &Request<Incoming>, trust: Trust) -> Result<(), Box<Problem>> {
    let headers = request.headers();
    let refuse = |detail: &str| Err(Box::new(problem::INVALID_REQUEST.because(detail)));
    if trust == Trust::BadHead {
        return refuse("Every line of a request's head must end in CR LF.");
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

async fn buy(core: &Core, request: Request<Incoming>, id: RequestId) -> (Response<Body>, Said) {
    let (head, body) = request.into_parts();
    let bodiless = body.is_end_stream();
    let refuse = |problem: Box<Problem>, whole: bool| {
        let answer = Answer::problem(*problem, id);
        let said = answer.said;
        // What stands behind a body that was not read cannot be.
        (if whole { write(answer, id) } else { closing(write(answer, id)) }, said)
    };
    let item = match purchase::item(&core.engine, purchase_item(head.uri.path()).unwrap_or_default()) {
        Ok(item) => item,
        Err(problem) => return refuse(problem, bodiless),
    };
    let body = match read_body(core, &head.headers, body).await {
        Ok(body) => body,
        Err(problem) => return refuse(problem, false),
    };
    let header = |name| head.headers.get(name).map(HeaderValue::as_bytes);
    let request = PurchaseRequest {
        item,
        authorization: header(AUTHORIZATION),
        idempotency_key: header(IDEMPOTENCY_KEY),
        traceparent: header(TRACEPARENT),
        body: &body,
    };
    let answer = purchase::purchase(&core.engine, request, id).await;
    let said = answer.said;
    (write(answer, id), said)
}

/// The whole body, within its size and time; for most requests there is none.
async fn read_body(core: &Core, headers: &HeaderMap, body: Incoming) -> Result<Bytes, Box<Problem>> {
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
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

async fn route(core: &Core, request: Request<Incoming>, id: RequestId) -> Response<Body> {
    let mut request = request.map(RouterBody::new);
    request.extensions_mut().insert(id);
    let mut response = match core.router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    if let Ok(value) = HeaderValue::from_bytes(&id.digits()) {
        response.headers_mut().insert(X_REQUEST_ID, value);
    }
    response.map(Either::Right)
}

/// An answer as an HTTP response.
fn write(answer: Answer, id: RequestId) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.reserve(8);
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
    if let Some(location) = answer.location.and_then(|location| HeaderValue::try_from(location).ok()) {
        headers.insert(LOCATION, location);
    }
    if answer.status == 401 {
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if answer.replayed {
        headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    response
}

/// A request whose rest cannot be trusted ends its connection.
fn closing(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    response
}
