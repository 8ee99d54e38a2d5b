//! The purchase path: bytes in, status and bytes out. Knows no HTTP library, so that another
//! connection loop can stand before it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::engine::{Engine, PurchaseOutcome};
use doorbuster_engine::gate::{Attempt, BadToken, Caller, Claim, Ineligible, Refusal, TooOften, Wish};
use doorbuster_engine::order::{ItemId, SaleId};
use doorbuster_wire::{JsonScalar, Problem, PurchaseAccepted};
use serde::Deserialize;

use crate::problem::{self, With, Word};
use crate::request_id::RequestId;
use crate::views;

/// A purchase request as far as the path needs it.
pub(crate) struct PurchaseRequest<'a> {
    /// The path's item.
    pub(crate) item: ItemId,
    /// Where the request comes from.
    pub(crate) caller: Caller<'a>,
    /// The Authorization header.
    pub(crate) authorization: Option<&'a [u8]>,
    /// The Doorbuster-Sale-Token header.
    pub(crate) sale_token: Option<&'a [u8]>,
    /// The Idempotency-Key header.
    pub(crate) idempotency_key: Option<&'a [u8]>,
    /// The traceparent header.
    pub(crate) traceparent: Option<&'a [u8]>,
    /// The body, whole.
    pub(crate) body: &'a [u8],
}

/// What goes back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) kind: Kind,
    pub(crate) body: Bytes,
    /// Seconds, where waiting helps.
    pub(crate) retry_after: Option<u32>,
    /// The limit that is used up.
    pub(crate) limited: Option<TooOften>,
    /// The order's address, with a 202.
    pub(crate) location: Option<String>,
    /// Whether the Idempotency-Key had been used before.
    pub(crate) replayed: bool,
    /// For the count.
    pub(crate) said: Said,
}

/// What an answer says: an order was taken, or an error word. One byte, so that counting it is one
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Said(u8);

impl Said {
    /// How many different things can be said.
    pub(crate) const COUNT: usize = problem::ALL.len() + 2;
    const ACCEPTED: Self = Self::at(problem::ALL.len());
    const REPLAYED: Self = Self::at(problem::ALL.len() + 1);

    #[expect(clippy::cast_possible_truncation, reason = "there are far fewer words than 256")]
    const fn at(place: usize) -> Self {
        assert!(place < Self::COUNT && Self::COUNT <= 256);
        Self(place as u8)
    }

    /// Its place among the words, which the two kinds of 202 follow.
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Whether it is a 202.
    pub(crate) fn is_accepted(self) -> bool {
        self.index() >= problem::ALL.len()
    }

    /// The word of a problem. Problems carry bodies of their own, so a search costs them little.
    fn word(error: &str) -> Self {
        let place = problem::ALL.iter().position(|word| word.error == error);
        Self::at(place.unwrap_or(problem::INTERNAL.place))
    }
}

/// The media type of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Json,
    Problem,
}

/// Said to 98 % of the buyers: the same bytes each time.
const SOLD_OUT: &str = concat!(
    r#"{"type":"/docs/errors#SOLD_OUT","title":"Sold out","status":410,"#,
    r#""detail":"Nothing is free now. Units that are not paid in time return.","error":"SOLD_OUT","mayReturn":true}"#
);
const ENDED: &str = concat!(
    r#"{"type":"/docs/errors#ENDED","title":"Sale over","status":410,"#,
    r#""detail":"The sale is over.","error":"ENDED","mayReturn":false}"#
);
const UNAUTHENTICATED: &str = concat!(
    r#"{"type":"/docs/errors#UNAUTHENTICATED","title":"Not signed in","status":401,"#,
    r#""detail":"The request needs a valid access token in `Authorization: Bearer`. Sign in again and repeat it.","#,
    r#""error":"UNAUTHENTICATED"}"#
);

/// The answer to a request that the gate refuses, or the claim that is to be carried on.
pub(crate) fn admit(engine: &Engine, request: &PurchaseRequest<'_>, id: RequestId) -> Result<Claim, Answer> {
    let attempt = Attempt {
        item: request.item,
        caller: request.caller,
        bearer: request.authorization.and_then(bearer),
        sale_token: request.sale_token,
        idempotency_key: request.idempotency_key,
        wish: wish(request.body),
        trace: request.traceparent.and_then(trace),
    };
    engine.admit(&attempt).map_err(|refusal| refused(refusal, id))
}

/// Places a claim's order and answers its request.
pub(crate) async fn carry(engine: &Arc<Engine>, claim: Claim, id: RequestId) -> Answer {
    let item = claim.item;
    let outcome = engine.carry(claim).await;
    if let PurchaseOutcome::Accepted(order) = &outcome {
        tracing::debug!(order.id = %order, item.id = %item, request.id = %id, "an order was accepted");
    }
    answer(outcome, id)
}

/// The item that a path names; whether a sale has it is not asked.
pub(crate) fn item(text: &str) -> Result<ItemId, Box<Problem>> {
    text.parse::<ItemId>().map_err(|_| {
        // Any number may have been meant as an id; it is just none that was ever given.
        Box::new(if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
            problem::ITEM_NOT_FOUND.problem()
        } else {
            problem::INVALID_REQUEST
                .because("The item id in the path is not a whole number from 1 to 9223372036854775807.")
        })
    })
}

/// The item again, if a sale has it: for those who would otherwise read a body in vain.
pub(crate) fn known(engine: &Engine, item: ItemId) -> Result<ItemId, Box<Problem>> {
    let known = engine.shared().catalog.load().sale_of(item).is_some();
    if known { Ok(item) } else { Err(Box::new(problem::ITEM_NOT_FOUND.problem())) }
}

pub(crate) fn bearer(header: &[u8]) -> Option<&[u8]> {
    let (scheme, rest) = header.split_at_checked(7)?;
    let token = rest.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

/// A well-formed version 00 traceparent; anything else is dropped.
fn trace(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok().filter(|text| text.len() == 55)?;
    let dashes = [2, 35, 52];
    let form = text.bytes().enumerate().all(|(at, byte)| {
        if dashes.contains(&at) { byte == b'-' } else { matches!(byte, b'0'..=b'9' | b'a'..=b'f') }
    });
    (form && text.starts_with("00-")).then_some(text)
}

#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow, default)]
    quantity: Option<&'a serde_json::value::RawValue>,
    #[serde(rename = "expectedPriceMinor", default)]
    expected_price_minor: Option<i64>,
}

/// What the body of a purchase says: nothing, or a JSON object with `quantity` and
/// `expectedPriceMinor`, each of which may be absent or null. Unknown members are ignored; the user
/// is always the token's.
pub fn wish(body: &[u8]) -> Wish {
    if body.trim_ascii().is_empty() {
        return Wish::Wanted { quantity: 1, expected_price_minor: None };
    }
    // An array would be taken for the members in order.
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Wish::Malformed;
    }
    // Read as bytes, a member that is ignored may hold what is no text.
    let Some(body) = std::str::from_utf8(body).ok().and_then(|it| serde_json::from_str::<Body<'_>>(it).ok())
    else {
        return Wish::Malformed;
    };
    let quantity = match body.quantity {
        None => 1,
        Some(raw) => match raw.get().parse::<i64>() {
            Ok(quantity) if plain_integer(raw.get()) => quantity,
            _ => return Wish::BadQuantity,
        },
    };
    Wish::Wanted { quantity, expected_price_minor: body.expected_price_minor }
}

/// `1`, not `+1`, `01` or `1.0`.
fn plain_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn answer(outcome: PurchaseOutcome, id: RequestId) -> Answer {
    match outcome {
        PurchaseOutcome::Refused(refusal) => refused(refusal, id),
        PurchaseOutcome::Accepted(order) => accepted(order.to_string(), "PENDING", false, false),
        PurchaseOutcome::Replayed { order, status, payable } => {
            accepted(order.to_string(), status.as_str(), payable, true)
        }
        PurchaseOutcome::AlreadyPurchased(order) => {
            let mut problem = problem::ALREADY_PURCHASED.problem();
            problem.order_id = Some(order.to_string());
            Answer::problem(problem, id)
        }
        PurchaseOutcome::LimitReached(orders) => {
            let orders = orders.iter().map(ToString::to_string).collect();
            Answer::problem(problem::LIMIT_REACHED.problem().with("orderIds", JsonScalar::Texts(orders)), id)
        }
        PurchaseOutcome::NotEnough { left } => {
            let problem = problem::SOLD_OUT
                .because(format!("Only {left} left, which is less than you want. Ask for fewer units."))
                .with("mayReturn", JsonScalar::Bool(true))
                .with("left", JsonScalar::Integer(i64::try_from(left).unwrap_or(i64::MAX)));
            Answer::problem(problem, id)
        }
        PurchaseOutcome::IdempotencyMismatch => Answer::problem(problem::IDEMPOTENCY_MISMATCH.problem(), id),
        PurchaseOutcome::OutcomeUnknown(order) => {
            let mut problem = problem::OUTCOME_UNKNOWN.problem();
            problem.order_id = Some(order.to_string());
            Answer::problem(problem, id).retry_after(1)
        }
    }
}

fn accepted(order: String, status: &str, payable: bool, replayed: bool) -> Answer {
    let location = Some(format!("/api/flash-sales/orders/{order}"));
    let body = PurchaseAccepted { order_id: order, status: status.to_owned(), payable };
    let body = serde_json::to_vec(&body).unwrap_or_default().into();
    let said = if replayed { Said::REPLAYED } else { Said::ACCEPTED };
    Answer {
        status: 202,
        kind: Kind::Json,
        body,
        retry_after: Some(1),
        limited: None,
        location,
        replayed,
        said,
    }
}

fn refused(refusal: Refusal, id: RequestId) -> Answer {
    match refusal {
        Refusal::SoldOut => Answer::fixed(problem::SOLD_OUT, SOLD_OUT),
        Refusal::Ended => Answer::fixed(problem::ENDED, ENDED),
        Refusal::NoToken => Answer::fixed(problem::UNAUTHENTICATED, UNAUTHENTICATED),
        Refusal::BadToken(BadToken::Subject) => Answer::problem(
            problem::UNAUTHENTICATED
                .because("The token's `sub` is not a user id of 1 to 128 bytes without control characters."),
            id,
        ),
        Refusal::BadToken(BadToken::NoKeys) => Answer::problem(no_keys(), id).retry_after(1),
        Refusal::BadToken(BadToken::Invalid | BadToken::Expired) => {
            Answer::fixed(problem::UNAUTHENTICATED, UNAUTHENTICATED)
        }
        Refusal::ItemNotFound => Answer::problem(problem::ITEM_NOT_FOUND.problem(), id),
        Refusal::NotStarted { opens_at, starts_in_ms } => {
            let (problem, seconds) = not_started(opens_at, Duration::from_millis(starts_in_ms));
            Answer::problem(problem, id).retry_after(seconds)
        }
        Refusal::NotEligible(why) => Answer::problem(not_eligible(why), id),
        Refusal::NotYet { opens_at, starts_in_ms } => {
            let (problem, seconds) = not_started(opens_at, Duration::from_millis(starts_in_ms));
            let detail =
                "The sale has begun for some; your time to buy comes later. Try again then.".to_owned();
            Answer::problem(Problem { detail, ..problem }, id).retry_after(seconds)
        }
        Refusal::SaleTokenRequired => Answer::problem(problem::TOKEN_REQUIRED.problem(), id),
        Refusal::RoomRequired(sale) => Answer::problem(wait_first(sale), id),
        Refusal::CaptchaRequired => Answer::problem(problem::CAPTCHA_REQUIRED.problem(), id),
        Refusal::BadSaleToken => Answer::problem(problem::TOKEN_INVALID.problem(), id),
        Refusal::SaleTokenMismatch => Answer::problem(problem::TOKEN_MISMATCH.problem(), id),
        Refusal::NotReady => Answer::problem(problem::NOT_READY.problem(), id).retry_after(1),
        Refusal::Busy | Refusal::Shed(_) => Answer::problem(problem::BUSY.problem(), id).retry_after(2),
        Refusal::TooOften(limited) => {
            let answer = Answer::problem(problem::RATE_LIMITED.problem(), id);
            Answer { limited: Some(limited), ..answer }.retry_after(jittered(limited))
        }
        Refusal::InvalidRequest => Answer::problem(problem::INVALID_REQUEST.problem(), id),
        Refusal::InvalidQuantity { limit } => Answer::problem(
            problem::INVALID_QUANTITY
                .because(format!("The quantity must be a whole number from 1 to {}.", limit.0)),
            id,
        ),
        Refusal::IdempotencyKeyRequired => Answer::problem(problem::IDEMPOTENCY_KEY_REQUIRED.problem(), id),
        Refusal::PriceChanged { price } => Answer::problem(
            problem::PRICE_CHANGED
                .because(format!(
                    "The price is {} {}, not the one you saw. Load the page again.",
                    price.decimal(),
                    price.currency.as_str()
                ))
                .with("priceMinor", JsonScalar::Integer(price.minor)),
            id,
        ),
    }
}

/// This sale sells to those who are let in from its waiting room.
pub(crate) fn wait_first(sale: SaleId) -> Problem {
    let why = "This sale has a waiting room: ask at its /waiting-room until you are let in, and buy with the token that you get then.";
    let address = format!("/api/flash-sales/sales/{sale}/waiting-room");
    problem::TOKEN_REQUIRED.because(why).with("waitingRoom", JsonScalar::Text(address))
}

/// Something begins at `opens_at`, which is `wait` from now; and after how many seconds to ask again.
pub(crate) fn not_started(opens_at: Timestamp, wait: Duration) -> (Problem, u32) {
    let ms = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    let seconds = u32::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).clamp(1, 3_600);
    let problem = problem::NOT_STARTED
        .problem()
        .with("opensAt", JsonScalar::Text(views::time(opens_at)))
        .with("startsInMs", JsonScalar::Integer(ms));
    (problem, seconds)
}

/// Why a user may not buy in a sale. Nothing of it is about anybody else.
pub(crate) fn not_eligible(why: Ineligible) -> Problem {
    problem::NOT_ELIGIBLE.because(match why {
        Ineligible::Blocked => "You, or the network you come from, may not buy in this sale.",
        Ineligible::Strikes => {
            "You may not buy in this sale any more: too many of your orders in it were not paid."
        }
        Ineligible::Region => "This sale is for certain regions, and yours is none of them or is not known.",
    })
}

/// Seconds until the next request is allowed, and a few more: not all who wait come back at once.
pub(crate) fn jittered(limited: TooOften) -> u32 {
    let wait = u32::try_from(limited.wait.as_millis().div_ceil(1_000)).unwrap_or(u32::MAX).clamp(1, 3_600);
    wait + rand::random_range(0..=wait.min(5))
}

/// Nothing is wrong with the token: this gateway has just begun.
pub(crate) fn no_keys() -> Problem {
    problem::NOT_READY
        .because("The keys that access tokens are verified with are not known yet. Try again shortly.")
}

impl Answer {
    fn fixed(word: Word, body: &'static str) -> Self {
        let body = Bytes::from_static(body.as_bytes());
        Self {
            status: word.status,
            kind: Kind::Problem,
            body,
            retry_after: None,
            limited: None,
            location: None,
            replayed: false,
            said: Said::at(word.place),
        }
    }

    /// A problem that carries its request's id.
    pub(crate) fn problem(mut problem: Problem, id: RequestId) -> Self {
        problem.request_id = Some(id.to_string());
        let body = serde_json::to_vec(&problem).unwrap_or_default().into();
        Self {
            status: problem.status,
            kind: Kind::Problem,
            body,
            retry_after: None,
            limited: None,
            location: None,
            replayed: false,
            said: Said::word(&problem.error),
        }
    }

    fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_bodies_are_what_the_words_say() {
        for (body, word) in [
            (SOLD_OUT, problem::SOLD_OUT),
            (ENDED, problem::ENDED),
            (UNAUTHENTICATED, problem::UNAUTHENTICATED),
        ] {
            let mut fixed: Problem = serde_json::from_str(body).unwrap();
            fixed.more.remove("mayReturn");
            assert_eq!(fixed, word.problem());
        }
    }

    #[test]
    fn a_quantity_is_a_plain_whole_number() {
        let wanted = |quantity| Wish::Wanted { quantity, expected_price_minor: None };
        for (body, expected) in [
            ("", wanted(1)),
            ("  ", wanted(1)),
            ("{}", wanted(1)),
            (r#"{"quantity":2}"#, wanted(2)),
            (r#"{"quantity":-5}"#, wanted(-5)),
            (r#"{"quantity":0}"#, wanted(0)),
            (r#"{"quantity":null}"#, wanted(1)),
            (r#"{"userId":"eve","price":1,"quantity":1}"#, wanted(1)),
            (r#"{"quantity":1.5}"#, Wish::BadQuantity),
            (r#"{"quantity":1e3}"#, Wish::BadQuantity),
            (r#"{"quantity":"1e3"}"#, Wish::BadQuantity),
            (r#"{"quantity":"1"}"#, Wish::BadQuantity),
            (r#"{"quantity":9223372036854775808}"#, Wish::BadQuantity),
            (r#"{"quantity":1.0}"#, Wish::BadQuantity),
            (r#"{"quantity":[1]}"#, Wish::BadQuantity),
            (r#"{"quantity":true}"#, Wish::BadQuantity),
            ("[1]", Wish::Malformed),
            ("1", Wish::Malformed),
            ("{", Wish::Malformed),
            ("\u{0}", Wish::Malformed),
            (r#"{"quantity":1,"quantity":2}"#, Wish::Malformed),
            (r#"{"expectedPriceMinor":"x"}"#, Wish::Malformed),
        ] {
            assert_eq!(wish(body.as_bytes()), expected, "{body}");
        }
        assert_eq!(wish(b"\xff\xfe{}"), Wish::Malformed);
        assert_eq!(wish(b"{\"ignored\":\"\xff\"}"), Wish::Malformed);
        assert_eq!(wish("[".repeat(4_000).as_bytes()), Wish::Malformed);
    }

    #[test]
    fn only_a_bearer_token_is_a_token() {
        assert_eq!(bearer(b"Bearer abc"), Some(&b"abc"[..]));
        assert_eq!(bearer(b"bearer  abc "), Some(&b"abc"[..]));
        for none in [&b""[..], b"Bearer", b"Bearer ", b"Basic abc", b"Bearerabc", b"abc"] {
            assert_eq!(bearer(none), None);
        }
    }

    #[test]
    fn only_a_well_formed_traceparent_travels_on() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(trace(good.as_bytes()), Some(good));
        for bad in
            ["", "00", &good.to_uppercase(), &good.replace("00-", "ff-"), &"0".repeat(55), &good.repeat(20)]
        {
            assert_eq!(trace(bad.as_bytes()), None, "{bad}");
        }
    }
}
