//! The trail of what the staff changed: written down before it is done, with how it ended.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use doorbuster_engine::ledger::{ActionAnswer, ActionKey, BeginActionOutcome, StaffAction, TrailEntry};
use doorbuster_wire::{self as wire, Page};
use serde::Deserialize;

use super::{AdminState, Change, fields};
use crate::api::{ApiError, fresh_json};
use crate::request_id::RequestId;
use crate::views;

/// Most bytes of a request's body that are kept.
const BODY_MAX: usize = 4 * 1024;

/// A page of a list whose newest entry comes first.
#[derive(Deserialize)]
pub(super) struct NewestFirst {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

/// From before which number, and how many.
pub(super) fn page(
    query: Result<Query<NewestFirst>, QueryRejection>,
    id: RequestId,
) -> Result<(Option<i64>, usize), ApiError> {
    let Ok(Query(query)) = query else { return Err(fields::bad_limit(id)) };
    Ok((fields::cursor(query.cursor.as_deref(), id)?, fields::limit(query.limit, id)?))
}

/// Every change, newest first. The cursor is the last number of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    query: Result<Query<NewestFirst>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let (before, limit) = page(query, id)?;
    let trail = state.shared.backends.ledger.trail(before, limit).await;
    let trail = trail.map_err(|error| ApiError::fault(&error, id))?;
    let next = trail.last().filter(|_| trail.len() == limit).map(|it| it.id.to_string());
    Ok(fresh_json(&Page { items: trail.iter().map(row).collect(), next }))
}

/// Writes down what is about to be changed, unless its key was used before.
///
/// # Errors
/// When it cannot be written: then it is not done either.
pub(super) async fn begin(state: &AdminState, change: &Change) -> Result<BeginActionOutcome, ApiError> {
    let Change { by, key, head, body, id } = change;
    let (method, target) = (head.method.as_str(), head.uri.path_and_query().map_or("", |it| it.as_str()));
    let action = StaffAction {
        by: by.name.clone(),
        role: by.role.as_str().to_owned(),
        method: method.to_owned(),
        path: head.uri.path().to_owned(),
        body: String::from_utf8_lossy(&body[..body.len().min(BODY_MAX)]).replace('\0', "\u{fffd}"),
        request: id.to_string(),
        key: key.as_ref().map(|key| ActionKey::new(key, method, target, body)),
    };
    let begun = state.shared.backends.ledger.begin_action(&action).await;
    begun.map_err(|error| ApiError::fault(&error, *id))
}

/// Writes down how it ended. What cannot be written stays open in the trail, as after a crash.
pub(super) async fn end(state: &AdminState, action: i64, answer: &ActionAnswer, id: RequestId) {
    if let Err(error) = state.shared.backends.ledger.end_action(action, answer).await {
        tracing::warn!(request.id = %id, error = error.chain(), "the trail does not say how a change ended");
    }
}

fn row(entry: &TrailEntry) -> wire::TrailRow {
    let it = &entry.action;
    wire::TrailRow {
        action_id: entry.id.to_string(),
        at: views::time(entry.at),
        by: it.by.clone(),
        role: it.role.clone(),
        method: it.method.clone(),
        path: it.path.clone(),
        body: it.body.clone(),
        request_id: it.request.clone(),
        idempotency_key: it.key.as_ref().map(|it| it.key.clone()),
        status: entry.status,
    }
}
