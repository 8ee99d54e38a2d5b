//! Deliveries of events: list by cursor, show, replay.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use doorbuster_engine::ledger::DeliveryFilter;
use doorbuster_wire::{EventsReplayed, Page};
use serde::Deserialize;

use super::{AdminState, fields};
use crate::api::{ApiError, InPath, fresh_json};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

/// Most bytes of a name or an id that is looked for.
const TEXT_MAX: usize = 128;

/// Most dead deliveries that one request makes due again.
const REPLAY_MAX: usize = 10_000;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    endpoint: Option<String>,
    #[serde(default)]
    state: Option<String>,
    #[serde(default)]
    subject: Option<String>,
}

/// Deliveries, newest first. The cursor is the last number of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let bad = |text: &str| fields::bad(text, id);
    let Ok(Query(query)) = query else { return Err(fields::bad_limit(id)) };
    let limit = fields::limit(query.limit, id)?;
    let before = fields::cursor(query.cursor.as_deref(), id)?;
    let wanted = query.state.map(|state| state.parse()).transpose();
    let wanted = wanted.map_err(|_| bad("`state` is waiting, delivered or dead."))?;
    let strange = |text: &Option<String>| {
        text.as_ref().is_some_and(|it| it.len() > TEXT_MAX || it.chars().any(char::is_control))
    };
    if strange(&query.endpoint) || strange(&query.subject) {
        return Err(bad("`endpoint` and `subject` have at most 128 bytes without control characters."));
    }
    let filter = DeliveryFilter { endpoint: query.endpoint, state: wanted, subject: query.subject };
    let found = state.shared.backends.ledger.deliveries(&filter, before, limit).await;
    let found = found.map_err(|error| ApiError::fault(&error, id))?;
    let next = (found.len() == limit).then(|| found.last().map(|it| it.id.to_string())).flatten();
    Ok(fresh_json(&Page { items: found.iter().map(|it| views::delivery(it, None)).collect(), next }))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    InPath(delivery): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let number = fields::number(&delivery).ok_or_else(|| no_delivery(id))?;
    let found = state.shared.backends.ledger.delivery(number).await;
    let found = found.map_err(|error| ApiError::fault(&error, id))?;
    let (delivery, event) = found.ok_or_else(|| no_delivery(id))?;
    Ok(fresh_json(&views::delivery(&delivery, Some(&event))))
}

/// Makes one delivery due now, whatever its state.
pub(super) async fn replay(
    State(state): State<AdminState>,
    InPath(delivery): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let number = fields::number(&delivery).ok_or_else(|| no_delivery(id))?;
    let replayed = state.shared.backends.ledger.replay_delivery(number).await;
    let replayed = replayed.map_err(|error| ApiError::fault(&error, id))?.ok_or_else(|| no_delivery(id))?;
    Ok(fresh_json(&views::delivery(&replayed, None)))
}

/// Makes the dead deliveries of one endpoint due now.
pub(super) async fn replay_dead(
    State(state): State<AdminState>,
    InPath(endpoint): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    if endpoint.len() > TEXT_MAX || endpoint.chars().any(char::is_control) {
        return Err(ApiError::new(
            problem::INVALID_REQUEST.because("The endpoint's name is one of the configuration's."),
            id,
        ));
    }
    let replayed = state.shared.backends.ledger.replay_dead(&endpoint, REPLAY_MAX).await;
    let replayed = replayed.map_err(|error| ApiError::fault(&error, id))?;
    Ok(fresh_json(&EventsReplayed { endpoint, replayed }))
}

fn no_delivery(id: RequestId) -> ApiError {
    problem::EVENT_NOT_FOUND.said_to(id)
}
