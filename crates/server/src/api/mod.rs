//! The buyers' routes beside the purchase itself.

mod health;
mod orders;
mod payments;
mod sale_tokens;
mod sales;
mod sandbox;
mod waiting_room;

pub(crate) use health::{live, readiness_page};

use std::net::IpAddr;
use std::sync::{Arc, Once};

use axum::Router;
use axum::extract::{DefaultBodyLimit, FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use doorbuster_engine::engine::Engine;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::gate::{BadToken, Caller, NotAdmitted, TooOften, Visitor};
use doorbuster_engine::order::{SaleId, UserId};
use doorbuster_engine::room::{Desk, Room};
use doorbuster_wire::Problem;
use serde::de::DeserializeOwned;

use crate::app::Readiness;
use crate::docs;
use crate::hot::{CoreContext, Peer, X_FORWARDED_FOR, forwarded, limit_headers, region};
use crate::metrics::{Unanswered, count_requests};
use crate::pages::Site;
use crate::payments::Payments;
use crate::problem::{self, Word};
use crate::request_id::RequestId;
use crate::siteverify::Siteverify;

/// What the routes of one core need.
#[derive(Clone)]
pub(crate) struct ApiState {
    pub(crate) engine: Arc<Engine>,
    /// Where this core's users ask for their place in a waiting room.
    desk: Desk,
    room: Arc<dyn Room>,
    pub(crate) site: Arc<Site>,
    pub(crate) readiness: Arc<Readiness>,
    /// Where buyers pay; `None` where only the staff enters payments.
    pub(crate) payments: Option<Arc<Payments>>,
    /// Who judges captchas; `None` where they are our own.
    pub(crate) siteverify: Option<Arc<Siteverify>>,
    /// In which proxies say where a client is.
    region_header: Option<HeaderName>,
    /// Said once: somebody speaks for others who is not known to be a proxy.
    stranger_told: Arc<Once>,
}

impl ApiState {
    /// A proxy that nobody named makes all buyers behind it one client.
    fn look_at_forwarding(&self, peer: IpAddr, headers: &HeaderMap) {
        if headers.contains_key(X_FORWARDED_FOR) && !self.engine.shared().limits.trusts(peer) {
            self.stranger_told.call_once(|| {
                tracing::warn!(
                    "requests say whom they speak for (X-Forwarded-For) and come from an address that is not in \
                     server.trusted_proxies: if that is a proxy of yours, name it, or its buyers share its limits"
                );
            });
        }
    }
}

/// One core's router.
pub(crate) fn router(engine: Arc<Engine>, desk: Desk, context: &CoreContext) -> Router {
    let state = ApiState {
        engine,
        desk,
        room: Arc::clone(&context.room),
        site: Arc::clone(&context.site),
        readiness: Arc::clone(&context.readiness),
        payments: context.payments.clone(),
        siteverify: context.siteverify.clone(),
        region_header: context.region_header.clone(),
        stranger_told: Arc::new(Once::new()),
    };
    let webhook = post(payments::webhook).layer(DefaultBodyLimit::max(payments::WEBHOOK_MAX));
    let waiting_room = post(waiting_room::ask).delete(waiting_room::leave);
    let mut router = Router::new()
        .route("/", get(sale_page))
        .route("/orders/{order}", get(order_page))
        .route("/api/flash-sales/orders/{order}", get(orders::show).delete(orders::cancel))
        .route("/api/flash-sales/orders/{order}/payment", post(payments::start))
        .route("/api/flash-sales/payments/{provider}/webhook", webhook)
        .route("/api/flash-sales/sales/{sale}", get(sales::show))
        .route("/api/flash-sales/sales/{sale}/orders", get(orders::mine))
        .route("/api/flash-sales/sales/{sale}/token", post(sale_tokens::issue))
        .route("/api/flash-sales/sales/{sale}/challenge", get(sale_tokens::challenge))
        .route("/api/flash-sales/sales/{sale}/waiting-room", waiting_room)
        .route("/api/time", get(health::time))
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/version", get(health::version))
        .route("/openapi.json", get(docs::public_document))
        .route("/docs", get(docs::api))
        .route("/docs/errors", get(docs::errors));
    if state.site.demo_tokens.is_some() {
        router = router.route("/demo/token", post(health::demo_token));
    }
    if state.payments.as_ref().is_some_and(|it| it.sandbox().is_some()) {
        router = router.route("/sandbox/pay/{bill}", get(sandbox::show).post(sandbox::choose));
    }
    router
        .fallback(nothing_here)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(4 * 1024))
        .layer(from_fn_with_state(Arc::clone(&context.figures.requests), count_requests))
        .with_state(state)
}

async fn sale_page(State(state): State<ApiState>, asked: HeaderMap) -> Response {
    state.site.sale_page(state.payments.is_some(), &asked)
}

async fn order_page(State(state): State<ApiState>, asked: HeaderMap) -> Response {
    state.site.order_page(state.payments.is_some(), &asked)
}

async fn nothing_here(id: RequestId) -> ApiError {
    problem::NOT_FOUND.said_to(id)
}

async fn method_not_allowed(id: RequestId) -> ApiError {
    problem::METHOD_NOT_ALLOWED.said_to(id)
}

/// An error on its way out.
pub(crate) struct ApiError {
    problem: Box<Problem>,
    retry_after: Option<u32>,
    /// The limit that is used up.
    limited: Option<TooOften>,
    /// What a layer said instead of an answer.
    fault: Option<Unanswered>,
}

impl Word {
    /// This word as the answer to a request.
    pub(crate) fn said_to(self, id: RequestId) -> ApiError {
        ApiError::new(self.problem(), id)
    }
}

impl ApiError {
    pub(crate) fn new(mut problem: Problem, id: RequestId) -> Self {
        problem.request_id = Some(id.to_string());
        Self::of(problem)
    }

    fn of(problem: Problem) -> Self {
        let retry_after = (problem.status == 503).then_some(1);
        Self { problem: Box::new(problem), retry_after, limited: None, fault: None }
    }

    /// The same, and when to try again.
    pub(crate) fn after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// A layer that did not answer: logged where the answer is counted.
    pub(crate) fn fault(error: &BackendError, id: RequestId) -> Self {
        let fault = Some(Unanswered { request: id.to_string(), error: error.chain() });
        Self { fault, ..problem::UNAVAILABLE.said_to(id) }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self.problem).unwrap_or_default();
        let mut response = (status, body).into_response();
        if let Some(fault) = self.fault {
            response.extensions_mut().insert(fault);
        }
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(limited) = self.limited {
            limit_headers(limited, headers);
        }
        response
    }
}

impl<S: Sync> FromRequestParts<S> for RequestId {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, StatusCode> {
        parts.extensions.get().copied().ok_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

/// Whether a request's If-None-Match names this tag: a list, weak tags, or `*`.
pub(crate) fn is_known(headers: &HeaderMap, etag: &HeaderValue) -> bool {
    let strong = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    let wanted = etag.to_str().unwrap_or_default();
    let named = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    named.flat_map(|value| value.split(',')).map(strong).any(|tag| tag == "*" || tag == wanted)
}

/// The user of the request's verified access token.
pub(crate) struct Buyer(pub(crate) UserId);

impl FromRequestParts<ApiState> for Buyer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        SignedIn::from_request_parts(parts, state).await.map(|SignedIn(visitor)| Self(visitor.known.user))
    }
}

/// The same, and what is said of them beside, and from where they ask.
pub(crate) struct SignedIn(pub(crate) Visitor);

impl FromRequestParts<ApiState> for SignedIn {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, ApiError> {
        let id = parts.extensions.get().copied();
        let id = id.ok_or_else(|| ApiError::of(problem::INTERNAL.problem()))?;
        let header = parts.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
        let token =
            header.and_then(crate::purchase::bearer).ok_or_else(|| problem::UNAUTHENTICATED.said_to(id))?;
        let Peer(peer) = parts.extensions.get().copied().ok_or_else(|| problem::INTERNAL.said_to(id))?;
        state.look_at_forwarding(peer, &parts.headers);
        let forwarded = forwarded(&state.engine, &parts.headers);
        let region = region(state.region_header.as_ref(), &parts.headers);
        let caller = Caller { peer, forwarded: forwarded.as_deref(), region };
        let changes = !parts.method.is_safe();
        state.engine.gate().authenticate(token, caller, changes).map(SignedIn).map_err(|not| match not {
            NotAdmitted::BadToken(BadToken::NoKeys) => ApiError::new(crate::purchase::no_keys(), id),
            NotAdmitted::BadToken(BadToken::Invalid | BadToken::Expired | BadToken::Subject) => {
                problem::UNAUTHENTICATED.said_to(id)
            }
            NotAdmitted::TooOften(limited) => ApiError {
                limited: Some(limited),
                ..problem::RATE_LIMITED.said_to(id).after(crate::purchase::jittered(limited))
            },
        })
    }
}

/// Parts of the path; a path that is not text is answered like any other bad request.
pub(crate) struct InPath<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for InPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match Path::from_request_parts(parts, state).await {
            Ok(Path(inner)) => Ok(Self(inner)),
            Err(_) => {
                let word = problem::INVALID_REQUEST;
                Err(parts
                    .extensions
                    .get::<RequestId>()
                    .map_or_else(|| ApiError::of(word.problem()), |id| word.said_to(*id)))
            }
        }
    }
}

/// The sale that a text names; whether there is one is not asked.
pub(crate) fn sale_id(text: &str, id: RequestId) -> Result<SaleId, ApiError> {
    text.parse().map_err(|_| problem::SALE_NOT_FOUND.said_to(id))
}

/// What a body says: a JSON object, or nothing.
pub(crate) fn said<T: Default + DeserializeOwned>(body: &[u8], id: RequestId) -> Result<T, ApiError> {
    match body.trim_ascii() {
        b"" => Some(T::default()),
        // The library would take a list for an object, too: its members in their order.
        body if body.starts_with(b"{") => serde_json::from_slice(body).ok(),
        _ => None,
    }
    .ok_or_else(|| problem::INVALID_REQUEST.said_to(id))
}

/// JSON that nobody may keep.
pub(crate) fn fresh_json<T: serde::Serialize>(value: &T) -> Response {
    let mut response = axum::Json(value).into_response();
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
