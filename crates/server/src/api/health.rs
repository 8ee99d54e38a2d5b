//! Is it alive, is it ready, which version, what time is it.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use doorbuster_wire::TimeView;

use super::{ApiError, ApiState, fresh_json};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

pub(crate) async fn live() -> Response {
    ([(header::CACHE_CONTROL, "no-store")], "alive\n").into_response()
}

/// 200 when sales can be served, else 503 with the reasons.
pub(super) async fn ready(State(state): State<ApiState>) -> Response {
    readiness_page(state.readiness.reasons(state.engine.shared()).await)
}

/// The reasons as a page.
pub(crate) fn readiness_page(reasons: Vec<String>) -> Response {
    let ready = reasons.is_empty();
    let mut response = fresh_json(&serde_json::json!({ "ready": ready, "reasons": reasons }));
    if !ready {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    response
}

pub(super) async fn version() -> Response {
    fresh_json(&serde_json::json!({ "name": "doorbuster", "version": env!("CARGO_PKG_VERSION") }))
}

pub(super) async fn time(State(state): State<ApiState>) -> Response {
    // Pages count down by the clock that opens the sale.
    let shared = state.engine.shared();
    let now = shared.backends.clock.now().ahead_by(shared.catalog.load().stock_ahead_ms());
    fresh_json(&TimeView { now: views::time(now), epoch_ms: now.as_ms() })
}

/// A token for a new user; only a demo has this route.
pub(super) async fn demo_token(State(state): State<ApiState>, id: RequestId) -> Result<Response, ApiError> {
    let signer = state.site.demo_tokens.as_ref().ok_or_else(|| problem::NOT_FOUND.said_to(id))?;
    let user = format!("visitor-{id}");
    let now = u64::try_from(state.engine.shared().backends.clock.now().as_ms() / 1_000).unwrap_or(0);
    let token = signer.sign(&user, now, 3_600);
    Ok(fresh_json(&serde_json::json!({ "token": token, "user": user })))
}
