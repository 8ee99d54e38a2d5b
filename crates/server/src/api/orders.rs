//! A buyer's own orders.

use std::time::Duration;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use doorbuster_engine::ledger::{CancelOutcome, RefundState};
use doorbuster_engine::my_orders::MyOrder;
use doorbuster_engine::order::OrderId;
use doorbuster_wire::MyOrders;
use serde::Deserialize;

use super::{ApiError, ApiState, Buyer, InPath, fresh_json, is_known, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

/// Longest `?wait=`.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// How often a waited-for order is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The query of an order read.
#[derive(Deserialize)]
pub(super) struct WaitQuery {
    /// How long to wait for a change, such as `10s`.
    #[serde(default, with = "humantime_serde::option")]
    wait: Option<Duration>,
}

/// One order; with `?wait=` only once it differs from the `If-None-Match` that came along, or
/// from what it was when the request came in.
pub(super) async fn show(
    State(state): State<ApiState>,
    InPath(order): InPath<String>,
    Buyer(user): Buyer,
    query: Result<Query<WaitQuery>, QueryRejection>,
    headers: HeaderMap,
    id: RequestId,
) -> Result<Response, ApiError> {
    let Ok(Query(query)) = query else {
        return Err(ApiError::new(
            problem::INVALID_REQUEST.because("`wait` is a duration such as `10s`."),
            id,
        ));
    };
    let order: OrderId = order.parse().map_err(|_| problem::ORDER_NOT_FOUND.said_to(id))?;
    let seen = headers.contains_key(header::IF_NONE_MATCH);
    let mut first = None;
    let mut look = tokio::time::interval(LOOK_EVERY);
    let until = tokio::time::Instant::now() + query.wait.unwrap_or_default().min(WAIT_MAX);
    loop {
        let found = state.engine.my_order(&user, order).await.map_err(|error| ApiError::fault(&error, id))?;
        let found = found.ok_or_else(|| problem::ORDER_NOT_FOUND.said_to(id))?;
        let etag = etag(&found);
        let known =
            if seen { is_known(&headers, &etag) } else { *first.get_or_insert_with(|| etag.clone()) == etag };
        if known && tokio::time::Instant::now() < until {
            look.tick().await;
            continue;
        }
        if seen && known {
            return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
        }
        let mut response = fresh_json(&views::my_order(&found));
        response.headers_mut().insert(header::ETAG, etag);
        return Ok(response);
    }
}

/// The same while nothing that the owner can see has changed.
fn etag(order: &MyOrder) -> HeaderValue {
    let until = order.expires_at.map_or(0, doorbuster_engine::clock::Timestamp::as_ms);
    let (payable, retaken) = (u8::from(order.payable), u8::from(order.aftermath.retaken_by.is_some()));
    let refund = order.aftermath.refund.map_or("none", RefundState::as_str);
    let text = format!("\"{}-{payable}-{until}-{retaken}-{refund}\"", order.status);
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static("\"\""))
}

/// A user's orders in one sale, newest first.
pub(super) async fn mine(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let found = state.engine.my_orders(&user, sale).await.map_err(|error| ApiError::fault(&error, id))?;
    let orders = found.ok_or_else(|| problem::SALE_NOT_FOUND.said_to(id))?;
    Ok(fresh_json(&MyOrders { orders: orders.iter().map(views::my_order).collect() }))
}

/// Cancels before paying, queued or not.
pub(super) async fn cancel(
    State(state): State<ApiState>,
    InPath(order): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
) -> Result<Response, ApiError> {
    let order: OrderId = order.parse().map_err(|_| problem::ORDER_NOT_FOUND.said_to(id))?;
    match state.engine.cancel(&user, order).await.map_err(|error| ApiError::fault(&error, id))? {
        CancelOutcome::Cancelled(_) => {
            let found =
                state.engine.my_order(&user, order).await.map_err(|error| ApiError::fault(&error, id))?;
            let found = found.ok_or_else(|| problem::ORDER_NOT_FOUND.said_to(id))?;
            Ok(fresh_json(&views::my_order(&found)))
        }
        CancelOutcome::Paid(_) => Err(problem::ALREADY_PAID.said_to(id)),
        CancelOutcome::Closed(_) => Err(problem::ORDER_CLOSED.said_to(id)),
        CancelOutcome::Unknown => Err(problem::ORDER_NOT_FOUND.said_to(id)),
    }
}
