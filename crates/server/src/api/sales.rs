//! What the sale page needs.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use doorbuster_engine::stock::BucketId;

use super::{ApiError, ApiState, InPath, is_known, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

pub(super) async fn show(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    headers: HeaderMap,
    id: RequestId,
) -> Result<Response, ApiError> {
    let shared = state.engine.shared();
    let sale = sale_id(&sale, id)?;
    let catalog = shared.catalog.load_full();
    let sale = catalog.sale(sale).ok_or_else(|| problem::SALE_NOT_FOUND.said_to(id))?;
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    // A page without figures beats no page: the stock may be down.
    let level = shared.backends.stock.level(bucket).await.ok().flatten();
    let (entry, now) = (catalog.switches().entry(sale.id), shared.backends.clock.now());
    let stock_now = now.ahead_by(catalog.stock_ahead_ms());
    let mut view = views::sale(sale, entry, level.as_ref(), now);
    view.waiting_room = state.engine.gate().is_waited_for(sale, entry.room, stock_now);
    let server_time = std::mem::take(&mut view.server_time);
    let etag = etag(&view);
    if is_known(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, [(header::ETAG, etag)]).into_response());
    }
    view.server_time = server_time;
    let headers = [(header::ETAG, etag), (header::CACHE_CONTROL, HeaderValue::from_static("max-age=1"))];
    Ok((headers, axum::Json(view)).into_response())
}

/// The same for the same contents; the server's time does not count.
fn etag(view: &doorbuster_wire::SaleView) -> HeaderValue {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(serde_json::to_vec(view).unwrap_or_default());
    let digits: String = digest.iter().take(12).map(|byte| format!("{byte:02x}")).collect();
    HeaderValue::try_from(format!("\"{digits}\"")).unwrap_or(HeaderValue::from_static("\"\""))
}
