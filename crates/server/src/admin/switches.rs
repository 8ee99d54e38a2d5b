//! Switches: what the staff turns while sales run.

use axum::extract::rejection::QueryRejection;
use axum::extract::{Extension, Query, State};
use axum::response::Response;
use doorbuster_engine::member::Levels;
use doorbuster_engine::order::SaleId;
use doorbuster_engine::switches::{SwitchChange, SwitchName, SwitchValue, TurnedSwitch};
use doorbuster_wire::{self as wire, Page, SetSwitch};

use super::sales::{JsonBody, body};
use super::trail::{NewestFirst, page};
use super::{AdminState, By, fields};
use crate::api::{ApiError, InPath, fresh_json, sale_id};
use crate::problem;
use crate::request_id::RequestId;
use crate::views;

const REASON_MAX: usize = 500;

/// Every switch: those over all sales, whether they are turned or not, and those of one sale that are.
pub(super) async fn list(State(state): State<AdminState>, id: RequestId) -> Result<Response, ApiError> {
    let turned = state.shared.backends.ledger.switches().await;
    let turned = turned.map_err(|error| ApiError::fault(&error, id))?;
    let mut rows = Vec::new();
    for name in SwitchName::ALL {
        let of_it: Vec<&TurnedSwitch> = turned.iter().filter(|it| it.change.name == name.as_str()).collect();
        if of_it.is_empty() {
            rows.push(row(name, None));
        }
        rows.extend(of_it.into_iter().map(|it| row(name, Some(it))));
    }
    Ok(fresh_json(&Page { items: rows, next: None }))
}

/// Turns a switch, or gives it back to the configuration.
pub(super) async fn set(
    State(state): State<AdminState>,
    Extension(By { name: by, .. }): Extension<By>,
    InPath(name): InPath<String>,
    id: RequestId,
    asked: JsonBody<SetSwitch>,
) -> Result<Response, ApiError> {
    let name: SwitchName = name.parse().map_err(|_| problem::SWITCH_NOT_FOUND.said_to(id))?;
    let asked = body(asked, id)?;
    let sale = sale(name, asked.sale_id.as_deref(), id)?;
    let unfit = |text: String| ApiError::new(problem::UNPROCESSABLE.because(text), id);
    if let Some(value) = &asked.value {
        let value =
            name.value(value).map_err(|why| unfit(format!("`{name}` cannot be set to that: {why}.")))?;
        known_levels(&value, state.shared.tokens.levels()).map_err(unfit)?;
    }
    fields::words("reason", &asked.reason, REASON_MAX, id)?;
    if matches!(name, SwitchName::TokenRequired | SwitchName::CaptchaRequired)
        && asked.value.as_deref() == Some("on")
        && !state.shared.sale_tokens.are_on()
    {
        let why = "This server has no secret for sale tokens, so nobody could have one: set \
                   gate.sale_tokens.secret_file, the same on every server, and restart.";
        return Err(ApiError::new(problem::CONFLICT.because(why), id));
    }
    let change = SwitchChange { name: name.to_string(), sale, value: asked.value, reason: asked.reason, by };
    let turned = state.shared.backends.ledger.turn_switch(&change).await;
    let turned = turned.map_err(|error| ApiError::fault(&error, id))?;
    let turned = turned.ok_or_else(|| problem::SALE_NOT_FOUND.said_to(id))?;
    tracing::warn!(
        switch = %name,
        sale.id = sale.map(|it| it.0),
        value = change.value,
        by = change.by,
        reason = change.reason,
        "a switch was turned"
    );
    state.refresh().await;
    Ok(fresh_json(&row(name, Some(&turned))))
}

/// Every turn, newest first. The cursor is the last number of the page before.
pub(super) async fn history(
    State(state): State<AdminState>,
    query: Result<Query<NewestFirst>, QueryRejection>,
    id: RequestId,
) -> Result<Response, ApiError> {
    let (before, limit) = page(query, id)?;
    let turned = state.shared.backends.ledger.switch_history(before, limit).await;
    let turned = turned.map_err(|error| ApiError::fault(&error, id))?;
    let next = turned.last().filter(|_| turned.len() == limit).map(|it| it.id.to_string());
    Ok(fresh_json(&Page { items: turned.iter().map(turn).collect(), next }))
}

/// A level that is named must be one here: by a name that is misspelt nobody would come in.
fn known_levels(value: &SwitchValue, levels: &Levels) -> Result<(), String> {
    let SwitchValue::Waits(early) = value else { return Ok(()) };
    let Some(unknown) = early.unknown_in(levels) else { return Ok(()) };
    let known: Vec<&str> = levels.names().collect();
    Err(match known.as_slice() {
        [] => format!("`{unknown}` is no level: gate.levels of this server names none."),
        known => format!("`{unknown}` is no level: gate.levels of this server names {}.", known.join(", ")),
    })
}

/// The sale of a switch that is turned for one, and none of another.
fn sale(name: SwitchName, text: Option<&str>, id: RequestId) -> Result<Option<SaleId>, ApiError> {
    let unfit = |text: String| ApiError::new(problem::UNPROCESSABLE.because(text), id);
    match (name.is_per_sale(), text) {
        (true, Some(text)) => sale_id(text, id).map(Some),
        (true, None) => Err(unfit(format!("`{name}` is turned for one sale: name it as saleId."))),
        (false, Some(_)) => Err(unfit(format!("`{name}` holds for all sales: leave saleId out."))),
        (false, None) => Ok(None),
    }
}

fn row(name: SwitchName, turned: Option<&TurnedSwitch>) -> wire::SwitchRow {
    let change = turned.map(|it| &it.change);
    wire::SwitchRow {
        name: name.to_string(),
        sale_id: change.and_then(|it| it.sale).map(|it| it.to_string()),
        per_sale: name.is_per_sale(),
        takes: name.kind().takes().to_owned(),
        meaning: name.meaning().to_owned(),
        value: change.and_then(|it| it.value.clone()),
        reason: change.map(|it| it.reason.clone()),
        by: change.map(|it| it.by.clone()),
        at: turned.map(|it| views::time(it.at)),
    }
}

fn turn(turned: &TurnedSwitch) -> wire::SwitchTurn {
    let it = &turned.change;
    wire::SwitchTurn {
        turn_id: turned.id.to_string(),
        name: it.name.clone(),
        sale_id: it.sale.map(|it| it.to_string()),
        value: it.value.clone(),
        reason: it.reason.clone(),
        by: it.by.clone(),
        at: views::time(turned.at),
    }
}
