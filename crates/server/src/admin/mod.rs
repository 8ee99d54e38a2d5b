//! The staff's listener: sales, orders, payments by hand, audit. Own address, own tokens.

mod blocks;
mod dead_letters;
mod events;
mod fields;
mod keys;
mod listener;
mod orders;
mod payments;
mod refunds;
mod repair;
mod sales;
mod switches;
mod tokens;
mod trail;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use bytes::Bytes;
use doorbuster_engine::audit;
use doorbuster_engine::engine::Shared;
use doorbuster_engine::operate::Operations;
use doorbuster_engine::workers::Watch;
use doorbuster_wire::{AuditFinding, AuditReport};
use http_body_util::LengthLimitError;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::api::{ApiError, fresh_json, live, readiness_page};
use crate::app::Readiness;
use crate::docs;
use crate::metrics::{Metrics, count_requests};
use crate::problem;
use crate::request_id::{RequestId, RequestIds};
use crate::tls::Acceptor;

pub(crate) use blocks::ENTRIES_MAX as BLOCK_ENTRIES_MAX;
use keys::Begun;
use listener::Changes;
pub(crate) use listener::Patience;
use listener::WayIn;
pub(crate) use sales::check_draft;
pub use tokens::{Member, Role, Tokens, token_file};
pub(crate) use tokens::{first_token, is_name, made};

/// Most bytes of a request's body.
const BODY_MAX: usize = 1024 * 1024;

/// What the staff's routes need.
#[derive(Clone)]
pub(crate) struct AdminState {
    shared: Shared,
    operations: Operations,
    watch: Arc<Watch>,
    metrics: Arc<Metrics>,
    tokens: Arc<Tokens>,
    request_ids: Arc<RequestIds>,
    readiness: Arc<Readiness>,
    body_timeout: Duration,
    changes: Changes,
}

impl AdminState {
    /// What the staff changed shall be seen by buyers at once, not with the next tick.
    async fn refresh(&self) {
        if let Err(error) = self.watch.refresh().await {
            tracing::warn!(error = error.chain(), "the catalog could not be refreshed; the watch will");
        }
    }
}

/// The staff's listener, bound; the caller runs [`AdminListener::serve`].
pub(crate) struct AdminListener {
    pub(crate) address: SocketAddr,
    listener: TcpListener,
    patience: Patience,
    state: AdminState,
}

impl AdminListener {
    /// Binds the address.
    pub(crate) async fn bind(
        address: SocketAddr,
        patience: Patience,
        metrics: Metrics,
        tokens: Tokens,
        readiness: Arc<Readiness>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let shared = metrics.shared.clone();
        let state = AdminState {
            operations: Operations::new(shared.backends.clone()),
            shared,
            watch: Arc::clone(&metrics.watch),
            metrics: Arc::new(metrics),
            tokens: Arc::new(tokens),
            request_ids: Arc::new(RequestIds::new()),
            readiness,
            body_timeout: patience.body,
            changes: Changes::default(),
        };
        Ok(Self { address, listener, patience, state })
    }

    /// Serves the staff, encrypted where `tls` is given, until `stop` turns true and running requests have ended.
    pub(crate) async fn serve(self, tls: Option<Acceptor>, stop: watch::Receiver<bool>) {
        let changes = self.state.changes.clone();
        let way_in = WayIn { listener: self.listener, tls, patience: self.patience };
        listener::serve(way_in, router(self.state), stop).await;
        // Those too whose client has gone.
        changes.ended().await;
    }
}

fn router(state: AdminState) -> Router {
    let layer = from_fn_with_state(state.clone(), change);
    // What changes something, and that alone: a method or a path that nobody serves is no change.
    let changes = |methods: MethodRouter<AdminState>| methods.route_layer(layer.clone());
    Router::new()
        .route("/admin/api/sales", get(sales::list))
        .route("/admin/api/sales", changes(post(sales::create)))
        .route("/admin/api/sales/{sale}", get(sales::show))
        .route("/admin/api/sales/{sale}/preheat", changes(post(sales::preheat)))
        .route("/admin/api/sales/{sale}/open", changes(post(sales::open)))
        .route("/admin/api/sales/{sale}/pause", changes(post(sales::pause)))
        .route("/admin/api/sales/{sale}/close", changes(post(sales::close)))
        .route("/admin/api/sales/{sale}/rebuild", changes(post(repair::rebuild)))
        .route("/admin/api/sales/{sale}/repair", changes(post(repair::repair)))
        .route("/admin/api/sales/{sale}/items/{item}/restock", changes(post(sales::restock)))
        .route("/admin/api/sales/{sale}/orders", get(orders::list))
        .route("/admin/api/sales/{sale}/payments", get(payments::list))
        .route("/admin/api/orders/{order}", get(orders::show))
        .route("/admin/api/orders/{order}/mark-paid", changes(post(orders::mark_paid)))
        .route("/admin/api/orders/{order}/refund", changes(post(refunds::refund_order)))
        .route("/admin/api/refunds", get(refunds::list))
        .route("/admin/api/refunds/close", changes(post(refunds::close)))
        .route("/admin/api/refunds/retry", changes(post(refunds::retry)))
        .route("/admin/api/dead-letters", get(dead_letters::list))
        .route("/admin/api/dead-letters/{letter}", get(dead_letters::show))
        .route("/admin/api/dead-letters/{letter}", changes(delete(dead_letters::drop_letter)))
        .route("/admin/api/dead-letters/{letter}/replay", changes(post(dead_letters::replay)))
        .route("/admin/api/events", get(events::list))
        .route("/admin/api/events/{delivery}", get(events::show))
        .route("/admin/api/events/{delivery}/replay", changes(post(events::replay)))
        .route("/admin/api/events/endpoints/{endpoint}/replay", changes(post(events::replay_dead)))
        .route("/admin/api/switches", get(switches::list))
        .route("/admin/api/switches/{name}", changes(put(switches::set)))
        .route("/admin/api/switch-history", get(switches::history))
        .route("/admin/api/blocks", get(blocks::list))
        .route("/admin/api/blocks", changes(post(blocks::add)))
        .route("/admin/api/blocks/{block}/lift", changes(post(blocks::lift)))
        .route("/admin/api/trail", get(trail::list))
        .route("/admin/api/audit", get(run_audit))
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .route("/admin/openapi.json", get(docs::staff_document))
        .fallback(|id: RequestId| async move { problem::NOT_FOUND.said_to(id) })
        .method_not_allowed_fallback(|id: RequestId| async move { problem::METHOD_NOT_ALLOWED.said_to(id) })
        .layer(from_fn_with_state(state.clone(), admit))
        .layer(from_fn_with_state(Arc::clone(&state.metrics.staff), count_requests))
        .with_state(state)
}

async fn ready(State(state): State<AdminState>) -> Response {
    readiness_page(state.readiness.reasons(&state.shared).await)
}

/// Names the request, and its answer after it.
async fn admit(State(state): State<AdminState>, mut request: Request, next: Next) -> Response {
    let id = state.request_ids.next();
    request.extensions_mut().insert(id);
    let mut response = admitted(&state, request, next, id).await.into_response();
    if let Ok(value) = HeaderValue::from_bytes(&id.digits()) {
        response.headers_mut().insert("x-request-id", value);
    }
    response
}

/// Lets only the staff in: reading needs a viewer, changing an operator.
async fn admitted(
    state: &AdminState,
    request: Request,
    next: Next,
    id: RequestId,
) -> Result<Response, ApiError> {
    // Probes have no token, and a process without the role of a gateway has no other listener.
    if request.method().is_safe() && matches!(request.uri().path(), "/livez" | "/readyz") {
        return Ok(next.run(request).await);
    }
    let header = request.headers().get(axum::http::header::AUTHORIZATION).map(|value| value.as_bytes());
    let token = header.and_then(crate::purchase::bearer).ok_or_else(|| unknown_token(id))?;
    let now = state.shared.backends.clock.now();
    let member = state.tokens.member(token, now).ok_or_else(|| unknown_token(id))?;
    let needed = if request.method().is_safe() { Role::Viewer } else { Role::Operator };
    if member.role < needed {
        return Err(problem::FORBIDDEN.said_to(id));
    }
    let (mut head, body) = whole(request, state.body_timeout, id).await?;
    head.extensions.insert(By { name: member.name.clone(), role: member.role });
    Ok(next.run(Request::from_parts(head, Body::from(body))).await)
}

/// A request that changes something.
struct Change {
    by: By,
    key: Option<String>,
    head: Parts,
    body: Bytes,
    id: RequestId,
}

/// Runs a change to its end, whether whoever asked still waits or not: else a connection that breaks would leave it
/// half done, and nobody would know its answer.
async fn change(
    State(state): State<AdminState>,
    Extension(by): Extension<By>,
    id: RequestId,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    let key = keys::key(request.headers(), id)?;
    // In memory by now, so that this does not wait.
    let (head, body) = whole(request, state.body_timeout, id).await?;
    let (change, changes) = (Change { by, key, head, body, id }, state.changes.clone());
    let Some(done) = changes.begin(async move { carry_out(&state, change, next).await }) else {
        let why = "Too many changes are under way. This one was not begun: ask again shortly.";
        return Err(ApiError::new(problem::UNAVAILABLE.because(why), id));
    };
    done.await.unwrap_or_else(|_| Err(problem::INTERNAL.said_to(id)))
}

/// Changes something, once it is in the trail; or says again how that ended.
async fn carry_out(state: &AdminState, change: Change, next: Next) -> Result<Response, ApiError> {
    let id = change.id;
    let action = match keys::begun(trail::begin(state, &change).await?, id)? {
        Begun::Now(action) => action,
        Begun::Before(answer) => return Ok(answer),
    };
    let Change { by, key, head, body, .. } = change;
    let (method, path) = (head.method.clone(), head.uri.path().to_owned());
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let (response, answer) = keys::kept(response, key.is_some()).await;
    trail::end(state, action, &answer, id).await;
    let status = response.status();
    if status.is_success() {
        let (by, role, status) = (&by.name, by.role.as_str(), status.as_u16());
        tracing::info!(request.id = %id, by, role, %method, path, status, "the staff changed something");
    }
    Ok(response)
}

/// Who asks: the name beside the token, and its role.
#[derive(Clone)]
struct By {
    name: String,
    role: Role,
}

/// The request and its whole body, which a slow sender does not get to hold up.
async fn whole(request: Request, patience: Duration, id: RequestId) -> Result<(Parts, Bytes), ApiError> {
    let (head, body) = request.into_parts();
    match tokio::time::timeout(patience, to_bytes(body, BODY_MAX)).await {
        Ok(Ok(body)) => Ok((head, body)),
        Ok(Err(error)) => {
            let too_long = std::error::Error::source(&error).is_some_and(|it| it.is::<LengthLimitError>());
            let word = if too_long { problem::CONTENT_TOO_LARGE } else { problem::INVALID_REQUEST };
            Err(word.said_to(id))
        }
        Err(_) => Err(problem::REQUEST_TIMEOUT.said_to(id)),
    }
}

/// A member of the staff has no session to renew: other words than a buyer hears.
fn unknown_token(id: RequestId) -> ApiError {
    let text = "The request needs one of the tokens in this server's token file, whose time is not over, in `Authorization: Bearer`.";
    ApiError::new(problem::UNAUTHENTICATED.because(text), id)
}

/// Counters and gauges for Prometheus; `docs/metrics.md` explains them.
async fn metrics(State(state): State<AdminState>, headers: HeaderMap) -> Response {
    let (kind, page) = state.metrics.scrape(headers.get(header::ACCEPT)).await;
    let mut response = page.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

async fn run_audit(State(state): State<AdminState>, id: RequestId) -> Result<Response, ApiError> {
    let snapshot =
        audit::collect(&state.shared.backends).await.map_err(|error| ApiError::fault(&error, id))?;
    Ok(fresh_json(&audit_report(&audit::check(&snapshot))))
}

/// An audit as the wire says it.
pub(crate) fn audit_report(report: &audit::Report) -> AuditReport {
    AuditReport {
        ok: report.is_ok(),
        at_rest: report.at_rest,
        checked: report.checked.iter().map(|it| (*it).to_owned()).collect(),
        orders: report.orders,
        findings: report
            .findings
            .iter()
            .map(|finding| AuditFinding {
                invariant: finding.invariant.to_owned(),
                detail: finding.detail.clone(),
            })
            .collect(),
    }
}
