//! Sale tokens for those who are signed in.

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use doorbuster_engine::gate::NotIssued;
use doorbuster_engine::order::SaleId;
use doorbuster_wire::{GetSaleToken, SaleTokenView};

use super::{ApiError, ApiState, Buyer, InPath, fresh_json, said, sale_id};
use crate::problem;
use crate::purchase;
use crate::request_id::RequestId;
use crate::views;

/// A token each time, good until it ends: asking again does no harm.
pub(super) async fn issue(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
    body: Bytes,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let asked: GetSaleToken = said(&body, id)?;
    let proof = asked.captcha.as_deref().map(str::as_bytes);
    let issued = state.engine.gate().issue_sale_token(sale, &user, proof);
    let issued = issued.map_err(|not| not_issued(not, sale, id))?;
    Ok(fresh_json(&SaleTokenView {
        sale_id: sale.to_string(),
        token: issued.token,
        expires_at: views::time(issued.ends),
    }))
}

/// Why somebody gets no sale token, or no place in a waiting room.
pub(super) fn not_issued(not: NotIssued, sale: SaleId, id: RequestId) -> ApiError {
    match not {
        NotIssued::NoSale => problem::SALE_NOT_FOUND.said_to(id),
        NotIssued::NotEligible => problem::NOT_ELIGIBLE.said_to(id),
        NotIssued::Ended => problem::ENDED.said_to(id),
        NotIssued::NotYet { turn, wait } => {
            let (problem, seconds) = purchase::not_started(turn, wait);
            let problem = doorbuster_wire::Problem {
                detail: "Your turn to get a token for this sale has not come. Ask again then.".to_owned(),
                ..problem
            };
            ApiError::new(problem, id).after(seconds)
        }
        NotIssued::RoomRequired => ApiError::new(purchase::wait_first(sale), id),
        NotIssued::CaptchaRequired => problem::CAPTCHA_REQUIRED.said_to(id),
        NotIssued::BadCaptcha => {
            let why =
                "The captcha's answer is wrong, over, another user's, or was used before. Ask for a new one.";
            ApiError::new(problem::CAPTCHA_REQUIRED.because(why), id)
        }
        NotIssued::Off => no_tokens(id),
    }
}

fn no_tokens(id: RequestId) -> ApiError {
    ApiError::new(problem::NOT_READY.because(
        "This server has no secret to make sale tokens with. Buy without one; the staff sets gate.sale_tokens.secret_file.",
    ), id)
}

/// A captcha for whoever is signed in; nothing is kept of it.
pub(super) async fn challenge(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    Buyer(user): Buyer,
    id: RequestId,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let gate = state.engine.gate();
    match gate.ask_captcha(sale, &user) {
        Some(challenge) => Ok(fresh_json(&challenge)),
        None if state.engine.shared().sale_tokens.are_on() => Err(problem::SALE_NOT_FOUND.said_to(id)),
        None => Err(no_tokens(id)),
    }
}
