//! Paying at the provider: where a buyer begins, and where the provider says what became of it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use doorbuster_engine::order::OrderId;
use doorbuster_wire::{PaymentStarted, WebhookReceived};

use super::{ApiError, ApiState, Buyer, InPath, fresh_json};
use crate::payments::{PayAnswer, Payments, tell};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

/// Most bytes of a webhook.
pub(super) const WEBHOOK_MAX: usize = 64 * 1024;

/// After how many seconds a buyer whose order is on its way asks again.
const NOT_YET_SECONDS: u32 = 1;

/// After how many seconds a buyer asks again when the provider is down.
const DOWN_SECONDS: u32 = 3;

fn provider(state: &ApiState, id: RequestId) -> Result<&Arc<Payments>, ApiError> {
    state.payments.as_ref().ok_or_else(|| {
        let detail = "This shop takes no payments here: its staff enters them.";
        ApiError::new(problem::NOT_FOUND.because(detail), id)
    })
}

/// Starts or resumes the payment of the caller's own order.
pub(super) async fn start(
    State(state): State<ApiState>,
    InPath(order): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
) -> Result<Response, ApiError> {
    let order: OrderId = order.parse().map_err(|_| problem::ORDER_NOT_FOUND.said_to(id))?;
    let payments = provider(&state, id)?;
    let answer = payments.start(&state.engine, &user, order).await;
    match answer.map_err(|error| ApiError::fault(&error, id))? {
        PayAnswer::Page { url, expires_at } => {
            Ok(fresh_json(&PaymentStarted { payment_url: url, expires_at: views::time(expires_at) }))
        }
        PayAnswer::NotYet => Err(problem::NOT_PAYABLE.said_to(id).after(NOT_YET_SECONDS)),
        PayAnswer::Paid => {
            let detail = "The order is paid already; nothing more is owed.";
            Err(ApiError::new(problem::ALREADY_PAID.because(detail), id))
        }
        PayAnswer::Closed => {
            let detail = "The order is closed, or its time to pay is over: no payment can begin any more.";
            Err(ApiError::new(problem::ORDER_CLOSED.because(detail), id))
        }
        PayAnswer::Unknown => Err(problem::ORDER_NOT_FOUND.said_to(id)),
        PayAnswer::ProviderDown(error) => {
            let error: &dyn std::error::Error = &error;
            tracing::debug!(request.id = %id, order.id = %order, error, "a payment could not be started");
            if let Some(times) = payments.down_told.due(1) {
                tracing::warn!(
                    times,
                    error,
                    "payments could not be started; their buyers are asked to try again"
                );
            }
            Err(problem::PAYMENT_UNAVAILABLE.said_to(id).after(DOWN_SECONDS))
        }
    }
}

/// Takes a provider's webhook; 200 once what it says is stored for good.
pub(super) async fn webhook(
    State(state): State<ApiState>,
    InPath(name): InPath<String>,
    id: RequestId,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let payments = provider(&state, id)?;
    if payments.name() != name {
        return Err(problem::NOT_FOUND.said_to(id));
    }
    let body = body.map_err(|rejection| {
        let too_large = rejection.status() == StatusCode::PAYLOAD_TOO_LARGE;
        (if too_large { problem::CONTENT_TOO_LARGE } else { problem::INVALID_REQUEST }).said_to(id)
    })?;
    let received = payments.receive(&state.engine, &headers, &body).await;
    let outcome = match received.map_err(|error| ApiError::fault(&error, id))? {
        Err(refusal) => {
            tracing::debug!(request.id = %id, provider = name, reason = %refusal, "a webhook is refused");
            if let Some(times) = payments.refused_told.due(1) {
                tracing::warn!(times, provider = name, reason = %refusal, "webhooks are refused");
            }
            return Err(ApiError::new(problem::WEBHOOK_REFUSED.because(refusal.to_string()), id));
        }
        Ok(None) => "IGNORED",
        Ok(Some((event, outcome))) => {
            tell(&event, outcome);
            outcome.as_str()
        }
    };
    Ok(fresh_json(&WebhookReceived { outcome: outcome.to_owned() }))
}
