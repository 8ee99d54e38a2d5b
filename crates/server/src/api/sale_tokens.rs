//! Sale tokens for those who are signed in.

use axum::extract::State;
use axum::response::Response;
use bytes::Bytes;
use doorbuster_engine::gate::{CaptchaAnswer, NotIssued};
use doorbuster_engine::order::{SaleId, UserId};
use doorbuster_wire::{GetSaleToken, SaleTokenView};

use super::{ApiError, ApiState, InPath, SignedIn, fresh_json, said, sale_id};
use crate::problem;
use crate::purchase;
use crate::request_id::RequestId;
use crate::siteverify::Verdict;
use crate::views;

/// Whoever cannot have a captcha judged now waits for so many seconds, each for a time of its own.
const JUDGED_LATER: std::ops::RangeInclusive<u32> = 2..=6;

/// A token each time, good until it ends: asking again does no harm.
pub(super) async fn issue(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    SignedIn(visitor): SignedIn,
    id: RequestId,
    body: Bytes,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let asked: GetSaleToken = said(&body, id)?;
    let gate = state.engine.gate();
    let needed = gate.needs_captcha(sale, &visitor).map_err(|not| not_issued(not, sale, id))?;
    let answer = match &asked.captcha {
        Some(answer) if needed => judged(&state, (sale, &visitor.known.user), answer, id).await?,
        Some(_) | None => CaptchaAnswer::Missing,
    };
    let issued = gate.issue_sale_token(sale, &visitor, answer).map_err(|not| not_issued(not, sale, id))?;
    Ok(fresh_json(&SaleTokenView {
        sale_id: sale.to_string(),
        token: issued.token,
        expires_at: views::time(issued.ends),
    }))
}

/// The answer to a captcha; one of another provider's is judged by it.
pub(super) async fn judged<'a>(
    state: &ApiState,
    (sale, user): (SaleId, &UserId),
    answer: &'a str,
    id: RequestId,
) -> Result<CaptchaAnswer<'a>, ApiError> {
    let Some(siteverify) = &state.siteverify else { return Ok(CaptchaAnswer::Proof(answer.as_bytes())) };
    let gate = state.engine.gate();
    let later = |word: problem::Word, why: &str| {
        ApiError::new(word.because(why), id).after(rand::random_range(JUDGED_LATER))
    };
    match siteverify.judge(answer, sale, |mark| gate.is_captcha_mark(sale, user, mark)).await {
        Verdict::Good => Ok(CaptchaAnswer::Judged(answer.as_bytes())),
        Verdict::Bad | Verdict::OfAnother => Err(not_issued(NotIssued::BadCaptcha, sale, id)),
        Verdict::TooMany => Err(later(
            problem::BUSY,
            "Too many captchas are being judged. Send the answer again when Retry-After says.",
        )),
        Verdict::Silent => Err(later(
            problem::UNAVAILABLE,
            "The captcha's provider does not say whether the answer is good, and there is no token without that. Ask for a \
             new captcha when Retry-After says.",
        )),
        Verdict::OurFault => Err(later(
            problem::NOT_READY,
            "This server cannot have captchas judged: the staff sees why in its log. Ask for a new one when Retry-After says.",
        )),
    }
}

/// Why somebody gets no sale token, or no place in a waiting room.
pub(super) fn not_issued(not: NotIssued, sale: SaleId, id: RequestId) -> ApiError {
    match not {
        NotIssued::NoSale => problem::SALE_NOT_FOUND.said_to(id),
        NotIssued::NotEligible(why) => ApiError::new(purchase::not_eligible(why), id),
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

/// A captcha for whoever is signed in, or how to show that of another; nothing is kept of it.
pub(super) async fn challenge(
    State(state): State<ApiState>,
    InPath(sale): InPath<String>,
    SignedIn(visitor): SignedIn,
    id: RequestId,
) -> Result<Response, ApiError> {
    let sale = sale_id(&sale, id)?;
    let (gate, user) = (state.engine.gate(), &visitor.known.user);
    gate.may_buy(sale, &visitor).map_err(|why| not_issued(NotIssued::NotEligible(why), sale, id))?;
    let asked = match &state.siteverify {
        None => gate.ask_captcha(sale, user).map(|challenge| fresh_json(&challenge)),
        Some(siteverify) => {
            gate.captcha_mark(sale, user).map(|mark| fresh_json(&siteverify.widget(sale, mark)))
        }
    };
    match asked {
        Some(asked) => Ok(asked),
        None if state.engine.shared().sale_tokens.are_on() => Err(problem::SALE_NOT_FOUND.said_to(id)),
        None => Err(no_tokens(id)),
    }
}
