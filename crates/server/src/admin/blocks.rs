//! Blocks: whom the staff keeps out, of one sale or of all.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use doorbuster_engine::block::{Block, Blocked, NewBlocks};
use doorbuster_engine::ledger::{BlockFilter, BlockOutcome};
use doorbuster_wire::{self as wire, AddBlocks, BlocksAdded, LiftBlock, Page};
use serde::Deserialize;

use super::sales::{JsonBody, body};
use super::{AdminState, By, fields};
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

/// Most entries of one request.
pub(crate) const ENTRIES_MAX: usize = 1_000;

/// Most blocks that stand: each costs a gateway about a hundred bytes.
const STANDING_MAX: u64 = 200_000;

const REASON_MAX: usize = 500;

/// Which blocks are asked for.
#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    cursor: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    /// Those that were lifted, too.
    #[serde(default)]
    lifted: bool,
    #[serde(default)]
    value: Option<String>,
}

/// Blocks, newest first. The cursor is the last number of the page before.
pub(super) async fn list(
    State(state): State<AdminState>,
    query: Result<Query<Asked>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let Ok(Query(asked)) = query else {
        return Err(fields::bad("`limit` is a number from 1 to 1000, `lifted` is true or false.", id));
    };
    let (before, limit) = (fields::cursor(asked.cursor.as_deref(), id)?, fields::limit(asked.limit, id)?);
    let filter = BlockFilter { lifted: asked.lifted, value: asked.value };
    let blocks = state.shared.backends.ledger.blocks(&filter, before, limit).await;
    let blocks = blocks.map_err(|error| ApiError::fault(&error, id))?;
    let next = blocks.last().filter(|_| blocks.len() == limit).map(|it| it.id.to_string());
    Ok(fresh_json(&Page { items: blocks.iter().map(row).collect(), next }))
}

/// Keeps users and networks out, all of them or none.
pub(super) async fn add(
    State(state): State<AdminState>,
    Extension(By { name: by, .. }): Extension<By>,
    id: RequestId,
    asked: JsonBody<AddBlocks>,
) -> Result<Response, ApiError> {
    let asked = body(asked, id)?;
    let unfit = |text: String| ApiError::new(problem::UNPROCESSABLE.because(text), id);
    if !(1..=ENTRIES_MAX).contains(&asked.entries.len()) {
        return Err(unfit(format!("A request has 1 to {ENTRIES_MAX} entries.")));
    }
    fields::words("reason", &asked.reason, REASON_MAX, id)?;
    let sale = asked.sale_id.as_deref().map(|sale| sale_id(sale, id)).transpose()?;
    let mut blocked = Vec::with_capacity(asked.entries.len());
    for (number, entry) in (1..).zip(&asked.entries) {
        let it = Blocked::of(&entry.kind, &entry.value);
        blocked.push(it.map_err(|why| unfit(format!("Entry {number}: {why}. Nothing was added.")))?);
    }

    let (asked_for, new) = (blocked.len() as u64, NewBlocks { blocked, sale, reason: asked.reason, by });
    let added = state.shared.backends.ledger.block(&new, STANDING_MAX).await;
    match added.map_err(|error| ApiError::fault(&error, id))? {
        BlockOutcome::Stand { added } => {
            tracing::warn!(
                added,
                sale.id = sale.map(|it| it.0),
                by = new.by,
                reason = new.reason,
                "blocks were added"
            );
            Ok(fresh_json(&BlocksAdded { added, known: asked_for.saturating_sub(added) }))
        }
        BlockOutcome::NoSale => Err(problem::SALE_NOT_FOUND.said_to(id)),
        BlockOutcome::Full { standing } => {
            let why = format!(
                "{standing} blocks stand, and at most {STANDING_MAX} may: lift some, or block a network instead of its users. \
                 Nothing was added."
            );
            Err(ApiError::new(problem::CONFLICT.because(why), id))
        }
    }
}

/// Lifts a block. It stays in the list with how it ended.
pub(super) async fn lift(
    State(state): State<AdminState>,
    Extension(By { name: by, .. }): Extension<By>,
    InPath(block): InPath<String>,
    id: RequestId,
    asked: JsonBody<LiftBlock>,
) -> Result<Response, ApiError> {
    let block = fields::number(&block).ok_or_else(|| problem::BLOCK_NOT_FOUND.said_to(id))?;
    let asked = body(asked, id)?;
    fields::words("reason", &asked.reason, REASON_MAX, id)?;
    let lifted = state.shared.backends.ledger.lift_block(block, &asked.reason, &by).await;
    let lifted = lifted.map_err(|error| ApiError::fault(&error, id))?;
    let lifted = lifted.ok_or_else(|| problem::BLOCK_NOT_FOUND.said_to(id))?;
    Ok(fresh_json(&row(&lifted)))
}

fn row(block: &Block) -> wire::BlockRow {
    let lifted = block.lifted.as_ref();
    wire::BlockRow {
        block_id: block.id.to_string(),
        kind: block.blocked.kind().to_owned(),
        value: block.blocked.value(),
        sale_id: block.sale.map(|it| it.to_string()),
        reason: block.reason.clone(),
        by: block.by.clone(),
        at: views::time(block.at),
        lifted_reason: lifted.map(|it| it.reason.clone()),
        lifted_by: lifted.map(|it| it.by.clone()),
        lifted_at: lifted.map(|it| views::time(it.at)),
    }
}
