//! Sales: create, show, preheat, open, pause, close, restock.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::ledger::{ChangeOutcome, RestockOutcome};
use doorbuster_engine::operate::{ItemReport, PreheatOutcome, RestockReport};
use doorbuster_engine::order::{Currency, ItemId, Money, Units};
use doorbuster_engine::sale::{NewItem, NewSale, Sale};
use doorbuster_engine::stock::BucketId;
use doorbuster_wire::{ItemDraft, Page, PreheatItem, PreheatReport, Restock, SaleDraft};

use super::AdminState;
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

const NAME_MAX: usize = 200;
const PRODUCT_ID_MAX: usize = 128;
const ITEMS_MAX: usize = 1_000;
const QUANTITY_MAX: u64 = 1_000_000_000;
const PRICE_MAX: i64 = 1_000_000_000_000;
const LIMIT_MAX: u32 = 1_000_000;
const PAYMENT_WINDOW: std::ops::RangeInclusive<u64> = 1..=7 * 24 * 3_600;
/// Longest wait for a preheat or a rebuild before its report is asked for again.
pub(super) const LOAD_PATIENCE: Duration = Duration::from_secs(30);

pub(super) type JsonBody<T> = Result<axum::Json<T>, axum::extract::rejection::JsonRejection>;

pub(super) fn body<T>(body: JsonBody<T>, id: RequestId) -> Result<T, ApiError> {
    match body {
        Ok(axum::Json(value)) => Ok(value),
        Err(rejection) => {
            let word = match rejection.status() {
                StatusCode::UNSUPPORTED_MEDIA_TYPE => problem::UNSUPPORTED_MEDIA_TYPE,
                StatusCode::PAYLOAD_TOO_LARGE => problem::CONTENT_TOO_LARGE,
                _ => problem::INVALID_REQUEST,
            };
            Err(ApiError::new(word.because(rejection.body_text()), id))
        }
    }
}

async fn detail(state: &AdminState, sale: &Sale) -> doorbuster_wire::SaleDetail {
    let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
    let level = state.shared.backends.stock.level(bucket).await.ok().flatten();
    views::sale_detail(sale, level.as_ref().filter(|level| !level.loading && !level.fenced))
}

pub(super) async fn create(
    State(state): State<AdminState>,
    id: RequestId,
    draft: JsonBody<SaleDraft>,
) -> Result<Response, ApiError> {
    let draft = body(draft, id)?;
    let sale = new_sale(&draft, state.shared.backends.clock.now())
        .map_err(|error| ApiError::new(problem::UNPROCESSABLE.because(format!("{error}.")), id))?;
    let sale =
        state.shared.backends.ledger.create_sale(&sale).await.map_err(|error| ApiError::fault(&error, id))?;
    state.refresh().await;
    Ok((StatusCode::CREATED, fresh_json(&detail(&state, &sale).await)).into_response())
}

/// What would be refused about a draft, for a dry run.
///
/// # Errors
/// The first thing that is out of its bounds.
pub(crate) fn check_draft(draft: &SaleDraft, now: Timestamp) -> anyhow::Result<()> {
    new_sale(draft, now).map(|_| ())
}

/// The draft's values, each within its bounds.
fn new_sale(draft: &SaleDraft, now: Timestamp) -> anyhow::Result<NewSale> {
    let (opens_at, closes_at) = (views::parse_time(&draft.opens_at)?, views::parse_time(&draft.closes_at)?);
    let window = draft.payment_window_seconds.unwrap_or(600);
    let limit = draft.max_units_per_user.unwrap_or(1);
    let checks = [
        ((1..=NAME_MAX).contains(&draft.name.len()), "the name needs 1 to 200 bytes"),
        (!draft.name.chars().any(char::is_control), "the name may have no control characters"),
        (opens_at < closes_at, "the sale must open before it closes"),
        (closes_at > now, "the sale would be over already"),
        (PAYMENT_WINDOW.contains(&window), "paymentWindowSeconds must be 1 to 604800"),
        ((1..=LIMIT_MAX).contains(&limit), "maxUnitsPerUser must be 1 to 1000000"),
        ((1..=ITEMS_MAX).contains(&draft.items.len()), "a sale has 1 to 1000 items"),
    ];
    for (holds, otherwise) in checks {
        anyhow::ensure!(holds, "{otherwise}");
    }
    let items: anyhow::Result<Vec<NewItem>> = (1..)
        .zip(&draft.items)
        .map(|(number, item)| new_item(item).map_err(|error| anyhow::anyhow!("item {number}: {error}")))
        .collect();
    Ok(NewSale {
        name: draft.name.clone(),
        opens_at,
        closes_at,
        payment_window: Duration::from_secs(window),
        limit: Units(limit),
        items: items?,
    })
}

/// Whether a text stays what it looks like in pages, logs and terminals.
fn is_plain(text: &str) -> bool {
    !text.chars().any(char::is_control)
}

fn new_item(draft: &ItemDraft) -> anyhow::Result<NewItem> {
    let currency: Currency = draft.currency.parse()?;
    let title = draft.title.clone().unwrap_or_else(|| draft.product_id.clone());
    let checks = [
        ((1..=PRODUCT_ID_MAX).contains(&draft.product_id.len()), "productId needs 1 to 128 bytes"),
        (title.len() <= NAME_MAX, "the title has at most 200 bytes"),
        (is_plain(&draft.product_id), "productId has no control characters"),
        (is_plain(&title), "the title has no control characters"),
        ((1..=QUANTITY_MAX).contains(&draft.quantity), "the quantity must be 1 to 1000000000"),
        ((0..=PRICE_MAX).contains(&draft.price_minor), "priceMinor must be 0 to 1000000000000"),
        (
            draft.list_price_minor.is_none_or(|price| (0..=PRICE_MAX).contains(&price)),
            "listPriceMinor must be 0 to 1000000000000",
        ),
    ];
    for (holds, otherwise) in checks {
        anyhow::ensure!(holds, "{otherwise}");
    }
    Ok(NewItem {
        product_id: draft.product_id.clone(),
        title,
        quantity: draft.quantity,
        price: Money { minor: draft.price_minor, currency },
        list_price_minor: draft.list_price_minor,
    })
}

pub(super) async fn list(State(state): State<AdminState>, id: RequestId) -> Result<Response, ApiError> {
    let sales = state.shared.backends.ledger.sales().await.map_err(|error| ApiError::fault(&error, id))?;
    let mut items = Vec::with_capacity(sales.len());
    for sale in &sales {
        items.push(detail(&state, sale).await);
    }
    Ok(fresh_json(&Page { items, next: None }))
}

pub(super) async fn show(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let found = state
        .shared
        .backends
        .ledger
        .sale(sale_id(&sale, id)?)
        .await
        .map_err(|error| ApiError::fault(&error, id))?;
    let sale = found.ok_or_else(|| problem::SALE_NOT_FOUND.said_to(id))?;
    Ok(fresh_json(&detail(&state, &sale).await))
}

pub(super) async fn preheat(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let outcome = state.operations.preheat(sale_id(&sale, id)?, LOAD_PATIENCE).await;
    match outcome.map_err(|error| ApiError::fault(&error, id))? {
        PreheatOutcome::Loaded { sale, items } => {
            state.refresh().await;
            let items = read_back(&items);
            let ok = items.iter().all(|item| item.ok);
            Ok(fresh_json(&PreheatReport { sale_id: sale.id.to_string(), epoch: sale.epoch.0, ok, items }))
        }
        PreheatOutcome::StillLoading => Err(ApiError::new(
            problem::NOT_READY.because("The stock is still loading. Ask again for its report."),
            id,
        )),
        PreheatOutcome::Closed => Err(ApiError::new(problem::CONFLICT.because("The sale is closed."), id)),
        PreheatOutcome::NoSale => Err(problem::SALE_NOT_FOUND.said_to(id)),
    }
}

pub(super) fn read_back(items: &[ItemReport]) -> Vec<PreheatItem> {
    let report = |item: &ItemReport| PreheatItem {
        item_id: item.item.to_string(),
        quantity: item.quantity,
        sold: item.sold,
        free: item.free,
        held: item.held,
        // Orders that are still queued are held and not yet sold.
        ok: item.free + item.held == item.quantity && item.held >= item.sold,
    };
    items.iter().map(report).collect()
}

pub(super) async fn open(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let outcome = state.operations.open(sale_id(&sale, id)?).await;
    changed(&state, "opened", outcome.map_err(|error| ApiError::fault(&error, id))?, id).await
}

pub(super) async fn pause(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let outcome = state.operations.pause(sale_id(&sale, id)?).await;
    changed(&state, "paused", outcome.map_err(|error| ApiError::fault(&error, id))?, id).await
}

pub(super) async fn close(
    State(state): State<AdminState>,
    InPath(sale): InPath<String>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let outcome = state.operations.close(sale_id(&sale, id)?).await;
    changed(&state, "closed", outcome.map_err(|error| ApiError::fault(&error, id))?, id).await
}

async fn changed(
    state: &AdminState,
    verb: &str,
    outcome: ChangeOutcome,
    id: RequestId,
) -> Result<Response, ApiError> {
    match outcome {
        ChangeOutcome::Done(sale) => {
            state.refresh().await;
            Ok(fresh_json(&detail(state, &sale).await))
        }
        ChangeOutcome::NotFrom(from) => {
            let hint = match from.as_str() {
                "draft" => " Preheat it first.",
                "closed" => " A closed sale stays closed.",
                _ => "",
            };
            let text = format!("The sale is {from} and cannot be {verb} now.{hint}");
            Err(ApiError::new(problem::CONFLICT.because(text), id))
        }
        ChangeOutcome::NoSale => Err(problem::SALE_NOT_FOUND.said_to(id)),
    }
}

pub(super) async fn restock(
    State(state): State<AdminState>,
    InPath((sale, item)): InPath<(String, String)>,
    id: RequestId,
    restock: JsonBody<Restock>,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let item: ItemId = item.parse().map_err(|_| problem::ITEM_NOT_FOUND.said_to(id))?;
    let restock = body(restock, id)?;
    let refused = |word: problem::Word, text: &str| Err(ApiError::new(word.because(text), id));
    let Ok(operation) = restock.operation_id.parse() else {
        return refused(
            problem::UNPROCESSABLE,
            "operationId must be a UUID; the same operation sent again must carry the same one.",
        );
    };
    if restock.units == 0 || restock.units.unsigned_abs() > QUANTITY_MAX {
        return refused(
            problem::UNPROCESSABLE,
            "units must be a difference from -1000000000 to 1000000000 and not 0.",
        );
    }
    let report = state.operations.restock(operation, sale, item, restock.units).await;
    match report.map_err(|error| ApiError::fault(&error, id))? {
        RestockReport::Done(_) => {
            state.refresh().await;
            show(State(state), InPath(sale.to_string()), id).await
        }
        RestockReport::Pending(_) => {
            state.refresh().await;
            Ok((StatusCode::ACCEPTED, show(State(state), InPath(sale.to_string()), id).await?)
                .into_response())
        }
        RestockReport::NotEnough => {
            refused(problem::CONFLICT, "Fewer units are free than shall be taken away; nothing was changed.")
        }
        RestockReport::Refused(RestockOutcome::OtherContent) => {
            refused(problem::IDEMPOTENCY_MISMATCH, "This operationId belongs to another restock.")
        }
        RestockReport::Refused(RestockOutcome::NoItem) => Err(problem::ITEM_NOT_FOUND.said_to(id)),
        RestockReport::Refused(RestockOutcome::OutOfRange) => {
            refused(problem::UNPROCESSABLE, "The quantity would leave 0 to 1000000000.")
        }
        RestockReport::Refused(RestockOutcome::NotNow | RestockOutcome::Intent(_)) => refused(
            problem::CONFLICT,
            "The sale has no loaded stock now: it is a draft, closed, or being rebuilt.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft() -> SaleDraft {
        let item = ItemDraft {
            product_id: "P".to_owned(),
            title: None,
            quantity: 1,
            price_minor: 1990,
            list_price_minor: None,
            currency: "EUR".to_owned(),
        };
        SaleDraft {
            name: "S".to_owned(),
            opens_at: "2026-11-27T09:00:00+01:00".to_owned(),
            closes_at: "2026-11-27T10:00:00Z".to_owned(),
            payment_window_seconds: None,
            max_units_per_user: None,
            items: vec![item],
        }
    }

    #[test]
    fn a_draft_is_taken_within_its_bounds_only() {
        let now = Timestamp::from_ms(1_700_000_000_000);
        assert!(new_sale(&draft(), now).is_ok());
        type Spoil = fn(&mut SaleDraft);
        let bad: [(&str, Spoil); 12] = [
            ("offset", |it| it.opens_at = "2026-11-27T09:00:00".to_owned()),
            ("open before", |it| it.closes_at = it.opens_at.clone()),
            ("over already", |it| {
                (it.opens_at, it.closes_at) =
                    ("2001-01-01T00:00:00Z".to_owned(), "2002-01-01T00:00:00Z".to_owned())
            }),
            ("name", |it| it.name.clear()),
            ("paymentWindow", |it| it.payment_window_seconds = Some(0)),
            ("maxUnits", |it| it.max_units_per_user = Some(0)),
            ("items", |it| it.items.clear()),
            ("quantity", |it| it.items[0].quantity = 0),
            ("priceMinor", |it| it.items[0].price_minor = -1),
            ("currency", |it| it.items[0].currency = "euro".to_owned()),
            ("title", |it| it.items[0].title = Some("\u{1b}[2J".to_owned())),
            ("productId", |it| it.items[0].product_id = "P\n".to_owned()),
        ];
        for (named, spoil) in bad {
            let mut draft = draft();
            spoil(&mut draft);
            let error = new_sale(&draft, now).unwrap_err().to_string();
            assert!(error.contains(named), "{named}: {error}");
        }
    }
}
