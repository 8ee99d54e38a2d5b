//! Idempotency keys of the staff: the same change sent again is answered as it was, and not done again.
//!
//! The trail keeps them, so that every server of a ledger knows them, also after a restart. What may have happened
//! and has no answer that can be given again is never done a second time by its key: the trail says more.

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use doorbuster_engine::gate::IDEMPOTENCY_KEY_MAX;
use doorbuster_engine::ledger::{ActionAnswer, BeginActionOutcome};

use crate::api::ApiError;
use crate::problem;
use crate::request_id::RequestId;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Longest answer that is kept, in bytes: most have a few hundred, a sale of many items is longer.
const ANSWER_MAX: usize = 64 * 1024;

/// The key that a request carries.
///
/// # Errors
/// When it is not one key of 1 to 128 visible ASCII characters.
pub(super) fn key(headers: &HeaderMap, id: RequestId) -> Result<Option<String>, ApiError> {
    let mut keys = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(key) = keys.next() else { return Ok(None) };
    let visible = key.to_str().ok().filter(|key| key.bytes().all(|byte| byte.is_ascii_graphic()));
    match visible {
        Some(key) if (1..=IDEMPOTENCY_KEY_MAX).contains(&key.len()) && keys.next().is_none() => {
            Ok(Some(key.to_owned()))
        }
        _ => {
            let why = "An Idempotency-Key is one text of 1 to 128 visible ASCII characters.";
            Err(ApiError::new(problem::INVALID_REQUEST.because(why), id))
        }
    }
}

/// Whether a change is to be done.
pub(super) enum Begun {
    /// Yes: it stands in the trail under this number.
    Now(i64),
    /// It was done before, and this was its answer.
    Before(Response),
}

/// Whether a change is to be done, by what the trail says of it.
///
/// # Errors
/// When the key is another request's, or the first answer cannot be given again.
pub(super) fn begun(outcome: BeginActionOutcome, id: RequestId) -> Result<Begun, ApiError> {
    match outcome {
        BeginActionOutcome::Begun(action) => Ok(Begun::Now(action)),
        BeginActionOutcome::Answered { status, body } => Ok(Begun::Before(again(status, body))),
        BeginActionOutcome::Unanswered { request, status } => {
            let how = status.map_or_else(
                || "is under way, or nobody knows how it ended".to_owned(),
                |status| format!("was answered {status}, which cannot be said again"),
            );
            let why = format!(
                "The first request with this Idempotency-Key ({request}) {how}. It is not done again by this key: look \
                 in the trail and at what it was to change, and ask again with a new key once you know."
            );
            Err(ApiError::new(problem::CONFLICT.because(why), id))
        }
        BeginActionOutcome::OtherRequest => {
            let why =
                "This Idempotency-Key belongs to another request of yours. Use a new key for another change.";
            Err(ApiError::new(problem::IDEMPOTENCY_MISMATCH.because(why), id))
        }
    }
}

/// The first answer, again.
fn again(status: u16, body: String) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = if status.is_client_error() { "application/problem+json" } else { "application/json" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (IDEMPOTENT_REPLAYED, HeaderValue::from_static("true")),
    ];
    (status, headers, body).into_response()
}

/// An answer, and what is kept of it: all of it for a request with a key, unless the change may have happened
/// without that being said, or the answer is too long.
pub(super) async fn kept(response: Response, keyed: bool) -> (Response, ActionAnswer) {
    let status = response.status();
    let short = response.body().size_hint().upper().is_some_and(|most| most <= ANSWER_MAX as u64);
    if !keyed || status.is_server_error() || !short {
        return (response, ActionAnswer { status: status.as_u16(), body: None });
    }
    let (head, body) = response.into_parts();
    // It is in memory already: reading it does not wait, and cannot fail.
    let bytes = to_bytes(body, ANSWER_MAX).await.unwrap_or_default();
    let answer = ActionAnswer { status: status.as_u16(), body: String::from_utf8(bytes.to_vec()).ok() };
    (Response::from_parts(head, Body::from(bytes)), answer)
}
