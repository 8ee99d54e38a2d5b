//! What several routes of the staff's are asked with, and how each part is refused.

use crate::api::ApiError;
use crate::problem;
use crate::request_id::RequestId;

const LIMIT_MAX: usize = 1_000;
const LIMIT_DEFAULT: usize = 100;

pub(super) fn bad(text: &str, id: RequestId) -> ApiError {
    ApiError::new(problem::INVALID_REQUEST.because(text), id)
}

pub(super) fn bad_limit(id: RequestId) -> ApiError {
    bad("`limit` is a number from 1 to 1000.", id)
}

pub(super) fn bad_cursor(id: RequestId) -> ApiError {
    bad("`cursor` is what the page before gave as `next`.", id)
}

/// How many entries a page has.
pub(super) fn limit(wanted: Option<usize>, id: RequestId) -> Result<usize, ApiError> {
    let limit = wanted.unwrap_or(LIMIT_DEFAULT);
    if (1..=LIMIT_MAX).contains(&limit) { Ok(limit) } else { Err(bad_limit(id)) }
}

/// A number that the ledger gave to an entry.
pub(super) fn number(text: &str) -> Option<i64> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.starts_with('0');
    text.parse().ok().filter(|_| plain)
}

/// The cursor of a list by such numbers.
pub(super) fn cursor(text: Option<&str>, id: RequestId) -> Result<Option<i64>, ApiError> {
    text.map(|text| number(text).ok_or_else(|| bad_cursor(id))).transpose()
}

/// Text that the staff gives: some, not too much, and nothing that a terminal or a database chokes on.
pub(super) fn words(member: &str, text: &str, most: usize, id: RequestId) -> Result<(), ApiError> {
    if !text.trim().is_empty() && text.len() <= most && !text.chars().any(char::is_control) {
        return Ok(());
    }
    let text = format!("{member} needs 1 to {most} bytes without control characters.");
    Err(ApiError::new(problem::UNPROCESSABLE.because(text), id))
}
