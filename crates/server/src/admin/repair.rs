//! What differs between a sale's stock and the ledger, and the one repair: a rebuild.

use axum::extract::State;
use axum::response::Response;
use doorbuster_engine::operate::{DifferencesReport, RebuildReport};
use doorbuster_engine::order::SaleId;
use doorbuster_wire::{Rebuild, Repair, RepairReport};

use super::AdminState;
use super::sales::{JsonBody, LOAD_PATIENCE, body, read_back};
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;

const REASON_MAX: usize = 200;

/// Differences that a report tells one by one.
const TOLD_MAX: usize = 100;

pub(super) async fn rebuild(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
    rebuild: JsonBody<Rebuild>,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let Rebuild { reason } = body(rebuild, id)?;
    if !(1..=REASON_MAX).contains(&reason.len()) || reason.chars().any(char::is_control) {
        let text = "reason needs 1 to 200 bytes and may have no control characters.";
        return Err(ApiError::new(problem::UNPROCESSABLE.because(text), id));
    }
    Ok(fresh_json(&rebuilt(&state, sale, &reason, id).await?))
}

pub(super) async fn repair(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
    repair: JsonBody<Repair>,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let Repair { dry_run } = body(repair, id)?;
    let found = state.operations.differences(sale, LOAD_PATIENCE).await;
    let differences = match found.map_err(|error| ApiError::fault(&error, id))? {
        DifferencesReport::Compared { differences, .. } => differences,
        DifferencesReport::Unsettled => {
            let text = "Too much is under way: the recorder did not come past the first look, or a rebuild goes on. \
                        Ask again; while orders pour in, the reconciler looks by itself.";
            return Err(ApiError::new(problem::NOT_READY.because(text), id));
        }
        DifferencesReport::NoStock => return Err(no_stock(id)),
        DifferencesReport::NoSale => return Err(problem::SALE_NOT_FOUND.said_to(id)),
    };
    let rebuilt = if differences.is_empty() || dry_run {
        None
    } else {
        Some(rebuilt(&state, sale, "the staff repairs a difference between stock and ledger", id).await?)
    };
    Ok(fresh_json(&RepairReport {
        sale_id: sale.to_string(),
        ok: rebuilt.as_ref().map_or(differences.is_empty(), |it| it.ok),
        differences: differences.len() as u64,
        first: differences.iter().take(TOLD_MAX).map(ToString::to_string).collect(),
        rebuilt,
    }))
}

async fn rebuilt(
    state: &AdminState,
    sale: SaleId,
    reason: &str,
    id: RequestId,
) -> Result<doorbuster_wire::RebuildReport, ApiError> {
    let outcome = state.operations.rebuild(sale, reason, LOAD_PATIENCE).await;
    match outcome.map_err(|error| ApiError::fault(&error, id))? {
        RebuildReport::Rebuilt { sale, items } => {
            state.refresh().await;
            let items = read_back(&items);
            let ok = items.iter().all(|item| item.ok);
            let (sale_id, epoch) = (sale.id.to_string(), sale.epoch.0);
            Ok(doorbuster_wire::RebuildReport { sale_id, epoch, ok, items })
        }
        RebuildReport::StillRebuilding => Err(ApiError::new(
            problem::NOT_READY.because(
                "The rebuild goes on: it waits until every order in flight is recorded. Ask again for its report; \
                 no second rebuild is begun meanwhile.",
            ),
            id,
        )),
        RebuildReport::NoStock => Err(no_stock(id)),
        RebuildReport::NoSale => Err(problem::SALE_NOT_FOUND.said_to(id)),
    }
}

fn no_stock(id: RequestId) -> ApiError {
    let text = "The sale was never preheated, so it has no stock to rebuild. Preheat it.";
    ApiError::new(problem::CONFLICT.because(text), id)
}
