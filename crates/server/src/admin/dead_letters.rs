//! Dead letters: list by cursor, show, replay, drop.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use doorbuster_engine::ledger::{DeadLetter, DropOutcome, ReplayOutcome};
use doorbuster_engine::order::Order;
use doorbuster_wire::{self as wire, DropDeadLetter, Page, ReplayDeadLetter, Replayed};
use serde::Deserialize;

use super::sales::{JsonBody, body};
use super::{AdminState, fields};
use crate::api::{ApiError, InPath, fresh_json};
use crate::problem::{self, Word};
use crate::request_id::RequestId;
use crate::views;

const BY_MAX: usize = 128;
const REASON_MAX: usize = 500;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    closed: bool,
}

/// Letters by number, without their bytes. The cursor is the last number of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let Ok(Query(query)) = query else {
        return Err(fields::bad("`limit` is a number from 1 to 1000, `closed` is true or false.", id));
    };
    let limit = fields::limit(query.limit, id)?;
    let after = fields::cursor(query.cursor.as_deref(), id)?;
    let letters = state.shared.backends.ledger.dead_letters(after, limit, query.closed).await;
    let letters = letters.map_err(|error| ApiError::fault(&error, id))?;
    let next = (letters.len() == limit).then(|| letters.last().map(|it| it.id.to_string())).flatten();
    Ok(fresh_json(&Page { items: letters.iter().map(|it| row(it, false)).collect(), next }))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    InPath(letter): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let letter = letter_id(&letter, id)?;
    let found = state.shared.backends.ledger.dead_letter(letter).await;
    let found = found.map_err(|error| ApiError::fault(&error, id))?.ok_or_else(|| no_letter(id))?;
    Ok(fresh_json(&row(&found, true)))
}

pub(super) async fn replay(
    State(state): State<AdminState>,
    InPath(letter): InPath<String>,
    id: RequestId,
    replay: JsonBody<ReplayDeadLetter>,
) -> Result<Response, ApiError> {
    let letter = letter_id(&letter, id)?;
    let replay = body(replay, id)?;
    fields::words("by", &replay.by, BY_MAX, id)?;
    let outcome = state.operations.replay_dead_letter(letter, &replay.by).await;
    let done = |outcome: &str, order: &Order| {
        tracing::info!(dead_letter.id = letter, order.id = %order.reservation.order, outcome, by = replay.by, "a dead letter was replayed");
        let (id, outcome) = (letter.to_string(), outcome.to_owned());
        Ok(fresh_json(&Replayed { id, outcome, order: views::order_row(order) }))
    };
    match outcome.map_err(|error| ApiError::fault(&error, id))? {
        ReplayOutcome::Recorded(order) => done("RECORDED", &order),
        ReplayOutcome::Known(order) => done("KNOWN", &order),
        ReplayOutcome::Final(order) => Err(refused(
            problem::CONFLICT,
            format!(
                "Order {} was refused as UNREADABLE when its record was parked, and its units went back: that is \
                 final. Drop the letter; the buyer may order again.",
                order.reservation.order
            ),
            id,
        )),
        ReplayOutcome::StillDead(why) => Err(refused(
            problem::UNPROCESSABLE,
            format!("The record still cannot be applied: {why}. The letter stays."),
            id,
        )),
        ReplayOutcome::ClosedBefore(letter) => Err(closed_before(&letter, id)),
        ReplayOutcome::NoLetter => Err(no_letter(id)),
    }
}

pub(super) async fn drop_letter(
    State(state): State<AdminState>,
    InPath(letter): InPath<String>,
    id: RequestId,
    given_up: JsonBody<DropDeadLetter>,
) -> Result<Response, ApiError> {
    let letter = letter_id(&letter, id)?;
    let given_up = body(given_up, id)?;
    fields::words("by", &given_up.by, BY_MAX, id)?;
    fields::words("reason", &given_up.reason, REASON_MAX, id)?;
    let ledger = &state.shared.backends.ledger;
    let outcome = ledger.drop_dead_letter(letter, &given_up.by, &given_up.reason).await;
    match outcome.map_err(|error| ApiError::fault(&error, id))? {
        DropOutcome::Dropped(letter) => {
            tracing::info!(dead_letter.id = letter.id, by = given_up.by, "a dead letter was dropped");
            Ok(fresh_json(&row(&letter, true)))
        }
        DropOutcome::ClosedBefore(letter) => Err(closed_before(&letter, id)),
        DropOutcome::NoLetter => Err(no_letter(id)),
    }
}

fn letter_id(text: &str, id: RequestId) -> Result<i64, ApiError> {
    fields::number(text).ok_or_else(|| no_letter(id))
}

fn no_letter(id: RequestId) -> ApiError {
    problem::DEAD_LETTER_NOT_FOUND.said_to(id)
}

fn closed_before(letter: &DeadLetter, id: RequestId) -> ApiError {
    let text = match &letter.closing {
        Some(closing) => {
            format!("The letter was {} by {} at {}.", closing.how, closing.by, views::time(closing.at))
        }
        None => "The letter was closed before.".to_owned(),
    };
    refused(problem::CONFLICT, text, id)
}

fn refused(word: Word, text: String, id: RequestId) -> ApiError {
    ApiError::new(word.because(text), id)
}

fn row(letter: &DeadLetter, whole: bool) -> wire::DeadLetter {
    wire::DeadLetter {
        id: letter.id.to_string(),
        topic: letter.place.topic.0.clone(),
        partition: letter.place.partition,
        offset: letter.place.next.to_string(),
        why: letter.why.clone(),
        parked_at: views::time(letter.parked_at),
        size: letter.bytes.len(),
        bytes: whole.then(|| STANDARD.encode(&letter.bytes)),
        closing: letter.closing.as_ref().map(|closing| wire::DeadLetterClosing {
            at: views::time(closing.at),
            how: closing.how.clone(),
            by: closing.by.clone(),
            reason: closing.reason.clone(),
        }),
    }
}
