//! Payments: list by cursor.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use doorbuster_engine::ledger::PaymentKey;
use doorbuster_wire::Page;

use super::orders::ListQuery;
use super::{AdminState, fields};
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

/// A sale's payments by provider and id. The cursor is the last payment of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let (cursor, limit) = super::orders::page_of(query, id)?;
    let sale = sale_id(&sale, id)?;
    let after: Option<PaymentKey> = match cursor {
        None => None,
        Some(cursor) => Some(cursor.parse().map_err(|_| fields::bad_cursor(id))?),
    };
    let ledger = &state.shared.backends.ledger;
    if ledger.sale(sale).await.map_err(|error| ApiError::fault(&error, id))?.is_none() {
        return Err(problem::SALE_NOT_FOUND.said_to(id));
    }
    let payments = ledger.payments(sale, after.as_ref(), limit).await;
    let payments = payments.map_err(|error| ApiError::fault(&error, id))?;
    let next =
        (payments.len() == limit).then(|| payments.last().map(|row| row.payment.to_string())).flatten();
    Ok(fresh_json(&Page { items: payments.into_iter().map(views::payment_row).collect(), next }))
}
