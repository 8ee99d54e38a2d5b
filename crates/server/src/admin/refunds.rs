//! Refunds: refund an order, list what is to be given back, close or retry one.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::response::Response;
use doorbuster_engine::ledger::{PaymentKey, Refund, RefundOutcome, RefundReport, RefundState};
use doorbuster_engine::order::OrderId;
use doorbuster_wire::{self as wire, CloseRefund, Page, RefundOrder, RetryRefund};
use serde::Deserialize;

use super::sales::{JsonBody, body};
use super::{AdminState, fields};
use crate::api::{ApiError, InPath, fresh_json};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

const WORDS_MAX: usize = 255;

#[derive(Deserialize)]
pub(super) struct ListQuery {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    state: Option<String>,
}

/// Refunds by payment. The cursor is the last payment of the page before, behind its provider and a slash.
pub(super) async fn list(
    State(state): State<AdminState>,
    query: Result<Query<ListQuery>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let Ok(Query(query)) = query else { return Err(fields::bad_limit(id)) };
    let limit = fields::limit(query.limit, id)?;
    let wanted: Option<RefundState> = match query.state {
        None => None,
        Some(word) => {
            let bad = |_| fields::bad("`state` is DUE, DONE or REFUSED, in capital letters.", id);
            Some(word.parse().map_err(bad)?)
        }
    };
    let after = match &query.cursor {
        None => None,
        Some(cursor) => Some(cursor.parse::<PaymentKey>().map_err(|_| fields::bad_cursor(id))?),
    };
    let refunds = state.shared.backends.ledger.refunds(wanted, after.as_ref(), limit).await;
    let refunds = refunds.map_err(|error| ApiError::fault(&error, id))?;
    let last = refunds.last().map(|it| it.key.to_string());
    let next = last.filter(|_| refunds.len() == limit);
    Ok(fresh_json(&Page { items: refunds.iter().map(row).collect(), next }))
}

/// Closes a paid order as REFUNDED; its units return, and its provider is asked to give the money back.
pub(super) async fn refund_order(
    State(state): State<AdminState>,
    InPath(order): InPath<String>,
    id: RequestId,
    asked: JsonBody<RefundOrder>,
) -> Result<Response, ApiError> {
    let order: OrderId = order.parse().map_err(|_| problem::ORDER_NOT_FOUND.said_to(id))?;
    let asked = body(asked, id)?;
    fields::words("by", &asked.by, WORDS_MAX, id)?;
    fields::words("reason", &asked.reason, WORDS_MAX, id)?;
    let outcome = state.shared.backends.ledger.refund_order(order).await;
    match outcome.map_err(|error| ApiError::fault(&error, id))? {
        RefundOutcome::Refunded(refunded) => {
            tracing::info!(order.id = %order, by = asked.by, reason = asked.reason, "an order was refunded");
            Ok(fresh_json(&views::order_row(&refunded)))
        }
        RefundOutcome::NotPaid(it) => Err(ApiError::new(
            problem::CONFLICT
                .because(format!("The order is {}, so there is nothing to give back.", it.status)),
            id,
        )),
        RefundOutcome::Unknown => Err(problem::ORDER_NOT_FOUND.said_to(id)),
    }
}

/// The staff has given the money back itself.
pub(super) async fn close(
    State(state): State<AdminState>,
    id: RequestId,
    asked: JsonBody<CloseRefund>,
) -> Result<Response, ApiError> {
    let asked = body(asked, id)?;
    fields::words("by", &asked.by, WORDS_MAX, id)?;
    fields::words("reference", &asked.reference, WORDS_MAX, id)?;
    let report = RefundReport::Done { reference: asked.reference };
    note(&state, id, asked.provider, asked.payment_id, report, &asked.by).await
}

/// The provider is asked again.
pub(super) async fn retry(
    State(state): State<AdminState>,
    id: RequestId,
    asked: JsonBody<RetryRefund>,
) -> Result<Response, ApiError> {
    let asked = body(asked, id)?;
    fields::words("by", &asked.by, WORDS_MAX, id)?;
    let report = RefundReport::Later { why: format!("asked for again by {}", asked.by) };
    note(&state, id, asked.provider, asked.payment_id, report, &asked.by).await
}

async fn note(
    state: &AdminState,
    id: RequestId,
    provider: String,
    payment_id: String,
    report: RefundReport,
    by: &str,
) -> Result<Response, ApiError> {
    let key = PaymentKey { provider, payment_id };
    let noted = state.shared.backends.ledger.note_refund(&key, &report).await;
    let Some(refund) = noted.map_err(|error| ApiError::fault(&error, id))? else {
        return Err(problem::REFUND_NOT_FOUND.said_to(id));
    };
    let status = refund.state.as_str();
    tracing::info!(payment.id = key.payment_id, by, refund.state = status, "the staff settled a refund");
    Ok(fresh_json(&row(&refund)))
}

fn row(refund: &Refund) -> wire::RefundRow {
    wire::RefundRow {
        provider: refund.key.provider.clone(),
        payment_id: refund.key.payment_id.clone(),
        order_id: refund.order.to_string(),
        amount: views::money(refund.amount),
        state: refund.state.as_str().to_owned(),
        reference: refund.reference.clone(),
        said: refund.said.clone(),
        tries: refund.tries,
        decided_at: views::time(refund.at),
    }
}
