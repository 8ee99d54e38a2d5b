//! The sandbox's page, where it is the provider.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{ApiState, InPath, fresh_json};
use crate::pages;
use crate::payments::sandbox::page::{self, Done, Language};
use crate::payments::sandbox::{Choice, Sandbox};

/// The part of the page's address behind the question mark.
#[derive(Default, Deserialize)]
pub(super) struct Asked {
    lang: Option<String>,
    /// What is chosen.
    #[serde(rename = "do")]
    choice: Option<String>,
    /// What was chosen a moment ago.
    done: Option<String>,
    /// Asks how the page's attempt stands, as data.
    state: Option<String>,
}

type AskedQuery = Result<Query<Asked>, QueryRejection>;

/// The page, or the one for an address that is none of ours.
pub(super) async fn show(
    State(state): State<ApiState>,
    InPath(sealed): InPath<String>,
    asked: AskedQuery,
    headers: HeaderMap,
) -> Response {
    let asked = asked.map(|Query(asked)| asked).unwrap_or_default();
    if asked.state.is_some()
        && let Some(sandbox) = sandbox(&state)
        && let Some(bill) = sandbox.unseal(&sealed)
    {
        return fresh_json(&sandbox.state(&bill));
    }
    let language = Language::of(asked.lang.as_deref(), &headers);
    let done = asked.done.as_deref().and_then(|word| match word {
        "crowded" => Some(Done::Crowded),
        word => Choice::of(word).map(Done::Chosen),
    });
    match sandbox(&state).and_then(|sandbox| sandbox.unseal(&sealed)) {
        Some(bill) => html(StatusCode::OK, page::page(&bill, language, done)),
        None => html(StatusCode::NOT_FOUND, page::lost(language)),
    }
}

/// Does what a button says, and shows the page again: a reload of it does nothing twice.
pub(super) async fn choose(
    State(state): State<ApiState>,
    InPath(sealed): InPath<String>,
    asked: AskedQuery,
    headers: HeaderMap,
) -> Response {
    let asked = asked.map(|Query(asked)| asked).unwrap_or_default();
    let language = Language::of(asked.lang.as_deref(), &headers);
    let found = sandbox(&state).and_then(|sandbox| Some((sandbox, sandbox.unseal(&sealed)?)));
    let Some((sandbox, bill)) = found else { return html(StatusCode::NOT_FOUND, page::lost(language)) };
    let choice = asked.choice.as_deref().and_then(Choice::of);
    let Some(choice) = choice else { return html(StatusCode::OK, page::page(&bill, language, None)) };

    let done = if sandbox.choose(&bill, choice) { choice.as_str() } else { "crowded" };
    let place = format!("?done={done}{}", asked.lang.map(|_| lang_of(language)).unwrap_or_default());
    let place = HeaderValue::try_from(place).unwrap_or(HeaderValue::from_static("?"));
    (StatusCode::SEE_OTHER, [(LOCATION, place), (CACHE_CONTROL, HeaderValue::from_static("no-store"))])
        .into_response()
}

fn sandbox(state: &ApiState) -> Option<&Arc<Sandbox>> {
    state.payments.as_ref()?.sandbox()
}

fn lang_of(language: Language) -> String {
    format!("&lang={}", language.code())
}

fn html(status: StatusCode, page: String) -> Response {
    let policy = format!(
        "default-src 'none'; style-src '{}'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        pages::hash(page::STYLE)
    );
    let policy = HeaderValue::try_from(policy).unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")),
        (CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
        (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        (CONTENT_SECURITY_POLICY, policy),
    ];
    (status, headers, page).into_response()
}
