//! Orders: list by cursor, show, mark as paid.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use doorbuster_engine::ledger::PaymentEvent;
use doorbuster_engine::order::OrderId;
use doorbuster_wire::{MarkPaid, Page, Paid};
use serde::Deserialize;

use super::{AdminState, fields};
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

const LIMIT_MAX: usize = 5_000;
const LIMIT_DEFAULT: usize = 1_000;
const REFERENCE_MAX: usize = 128;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
}

/// Where a page begins and how many rows it has.
pub(super) fn page_of(
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<(Option<String>, usize), ApiError> {
    let limit = query.as_ref().map_or(0, |query| query.limit.unwrap_or(LIMIT_DEFAULT));
    match query {
        Ok(Query(query)) if (1..=LIMIT_MAX).contains(&limit) => Ok((query.cursor, limit)),
        _ => Err(ApiError::new(problem::INVALID_REQUEST.because("`limit` is a number from 1 to 5000."), id)),
    }
}

/// A sale's orders by id. The cursor is the last order of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let (cursor, limit) = page_of(query, id)?;
    let sale = sale_id(&sale, id)?;
    let after: Option<OrderId> = match cursor {
        None => None,
        Some(cursor) => Some(cursor.parse().map_err(|_| fields::bad_cursor(id))?),
    };
    let ledger = &state.shared.backends.ledger;
    if ledger.sale(sale).await.map_err(|error| ApiError::fault(&error, id))?.is_none() {
        return Err(problem::SALE_NOT_FOUND.said_to(id));
    }
    let orders = ledger.orders(sale, after, limit).await.map_err(|error| ApiError::fault(&error, id))?;
    let next = (orders.len() == limit)
        .then(|| orders.last().map(|order| order.reservation.order.to_string()))
        .flatten();
    Ok(fresh_json(&Page { items: orders.iter().map(views::order_row).collect(), next }))
}

fn order_id(text: &str, id: RequestId) -> Result<OrderId, ApiError> {
    let text = text.parse();
    text.map_err(|_| {
        ApiError::new(problem::ORDER_NOT_FOUND.because("An order's id is a UUID; this is none."), id)
    })
}

pub(super) async fn show(
    State(state): State<AdminState>,
    InPath(order): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let order = order_id(&order, id)?;
    let found =
        state.shared.backends.ledger.order(order).await.map_err(|error| ApiError::fault(&error, id))?;
    let order = found.ok_or_else(|| {
        ApiError::new(
            problem::ORDER_NOT_FOUND.because("The ledger has no order with this id. It may still be queued."),
            id,
        )
    })?;
    Ok(fresh_json(&views::order_row(&order)))
}

/// A payment that was received outside: stored by its event id, decided by the ledger.
pub(super) async fn mark_paid(
    State(state): State<AdminState>,
    InPath(order): InPath<String>,
    id: RequestId,
    paid: Result<axum::Json<MarkPaid>, axum::extract::rejection::JsonRejection>,
) -> Result<Response, ApiError> {
    let order = order_id(&order, id)?;
    let paid = super::sales::body(paid, id)?;
    let bad = |text: &str| ApiError::new(problem::UNPROCESSABLE.because(text), id);
    let payment_id = paid.payment_id.unwrap_or_else(|| paid.event_id.clone());
    let fits = |it: &String| (1..=REFERENCE_MAX).contains(&it.len()) && !it.chars().any(char::is_control);
    if ![&paid.event_id, &payment_id].into_iter().all(fits) {
        return Err(bad("eventId and paymentId need 1 to 128 bytes without control characters."));
    }
    let currency =
        paid.currency.parse().map_err(|_| bad("currency must be an ISO 4217 code such as EUR."))?;
    let ledger = &state.shared.backends.ledger;
    let known = ledger.order(order).await.map_err(|error| ApiError::fault(&error, id))?;
    if known.is_none() {
        return Err(ApiError::new(
            problem::ORDER_NOT_FOUND
                .because("The ledger has no order with this id. It may still be queued: try again shortly."),
            id,
        ));
    }
    let event = PaymentEvent {
        provider: "manual".to_owned(),
        event_id: paid.event_id,
        payment_id,
        order,
        amount_minor: paid.amount_minor,
        currency,
    };
    let outcome = ledger.pay(&event).await.map_err(|error| ApiError::fault(&error, id))?;
    let now = ledger.order(order).await.map_err(|error| ApiError::fault(&error, id))?;
    let status = now.map(|order| order.status.as_str().to_owned());
    Ok(fresh_json(&Paid { order_id: order.to_string(), outcome: outcome.as_str().to_owned(), status }))
}
