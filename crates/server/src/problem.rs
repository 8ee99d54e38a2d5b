//! Errors as RFC 9457 problem details with the article's `error` member.

use std::collections::BTreeMap;

use doorbuster_wire::{JsonScalar, Problem};

/// What an error word means: its status and what a person reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    /// Its place in [`ALL`].
    pub(crate) place: usize,
    pub(crate) status: u16,
    pub(crate) error: &'static str,
    pub(crate) title: &'static str,
    pub(crate) detail: &'static str,
}

macro_rules! words {
    ($($name:ident = $status:literal, $title:literal, $detail:literal;)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "they count the words, which are written so")]
        enum Place { $($name),* }
        $(pub(crate) const $name: Word = Word {
            place: Place::$name as usize, status: $status, error: stringify!($name), title: $title, detail: $detail,
        };)*
        /// Every word, for the documentation and the counts.
        pub(crate) const ALL: &[Word] = &[$($name),*];
    };
}

words! {
    INVALID_REQUEST = 400, "Invalid request", "The request cannot be read: check the path, the headers and the JSON body against the documentation.";
    INVALID_QUANTITY = 400, "Invalid quantity", "The quantity must be a whole number from 1 to the sale's limit per user.";
    IDEMPOTENCY_KEY_REQUIRED = 400, "Idempotency-Key required", "This sale allows several units per user, so a purchase needs an Idempotency-Key header: send any text of 1 to 128 bytes that is new for each wish and the same for its repeats.";
    WEBHOOK_REFUSED = 400, "Webhook refused", "The webhook is not signed as its provider signs, too old, or cannot be read. Nothing was stored.";
    UNAUTHENTICATED = 401, "Not signed in", "The request needs a valid access token in `Authorization: Bearer`. Sign in again and repeat it.";
    FORBIDDEN = 403, "Not allowed", "This token's role does not allow the operation.";
    NOT_STARTED = 403, "Not started", "The sale has not begun. Try again when it opens.";
    NOT_ELIGIBLE = 403, "Not eligible", "You may not buy in this sale.";
    TOKEN_REQUIRED = 403, "Sale token required", "This sale needs a sale token: get one at its /token and send it as `Doorbuster-Sale-Token`.";
    CAPTCHA_REQUIRED = 403, "Captcha required", "This sale gives a token for a captcha: get its /challenge, and send the answer with the request for the token.";
    TOKEN_INVALID = 403, "Sale token not good", "The sale token is not good for this sale at this time. Get a new one.";
    TOKEN_MISMATCH = 403, "Sale token of another user", "The sale token belongs to another user than the access token. Get one of your own.";
    NOT_FOUND = 404, "Not found", "There is nothing at this address.";
    ITEM_NOT_FOUND = 404, "No such item", "There is no item with this id in any sale.";
    SALE_NOT_FOUND = 404, "No such sale", "There is no sale with this id.";
    ORDER_NOT_FOUND = 404, "No such order", "You have no order with this id.";
    REFUND_NOT_FOUND = 404, "No such refund", "There is no refund of such a payment.";
    DEAD_LETTER_NOT_FOUND = 404, "No such dead letter", "There is no dead letter with this number.";
    EVENT_NOT_FOUND = 404, "No such delivery", "There is no delivery of an event with this number.";
    SWITCH_NOT_FOUND = 404, "No such switch", "There is no switch with this name.";
    BLOCK_NOT_FOUND = 404, "No such block", "There is no block with this number.";
    METHOD_NOT_ALLOWED = 405, "Method not allowed", "This address does not take this method; the Allow header says which it takes.";
    RATE_LIMITED = 429, "Too many requests", "You, or your address, come too often. Wait for as long as Retry-After says.";
    REQUEST_TIMEOUT = 408, "Request too slow", "The request's body did not arrive in time. Send it again.";
    ALREADY_PURCHASED = 409, "Already purchased", "You already hold an order in this sale.";
    LIMIT_REACHED = 409, "Limit reached", "Your orders in this sale use up the limit per user.";
    PRICE_CHANGED = 409, "Price changed", "The price is not the one you saw. Load the page again.";
    ALREADY_PAID = 409, "Already paid", "A paid order cannot be cancelled.";
    NOT_PAYABLE = 409, "Not payable yet", "The order is on its way and not recorded yet, so no payment can begin. Try again shortly.";
    ORDER_CLOSED = 409, "Order closed", "The order is already closed.";
    CONFLICT = 409, "Not possible now", "The sale's present state does not allow this.";
    SOLD_OUT = 410, "Sold out", "Nothing is free now. Units that are not paid in time return.";
    ENDED = 410, "Sale over", "The sale is over.";
    CONTENT_TOO_LARGE = 413, "Body too large", "The request's body is longer than this address takes.";
    UNSUPPORTED_MEDIA_TYPE = 415, "Not JSON", "The body must be JSON, with `Content-Type: application/json`.";
    IDEMPOTENCY_MISMATCH = 422, "Idempotency-Key used before", "This Idempotency-Key belongs to another purchase. Use a new key for a new wish.";
    UNPROCESSABLE = 422, "Not acceptable", "The values do not fit together.";
    HEAD_TOO_LARGE = 431, "Head too large", "The request's head is longer than 8 KiB or has more than 64 headers.";
    INTERNAL = 500, "Internal error", "Something went wrong here. The request may be repeated; the log has the cause under this request id.";
    NOT_READY = 503, "Not ready", "The sale is not selling at this moment. Try again shortly.";
    BUSY = 503, "Busy", "No orders are taken right now. Try again shortly; nothing was taken.";
    OUTCOME_UNKNOWN = 503, "Outcome unknown", "Your order may have been placed and will be settled. Ask for it by its id, or repeat the purchase: you will not buy twice.";
    PAYMENT_UNAVAILABLE = 503, "Payment not available", "The payment provider does not answer. Your order is kept until its deadline; try again shortly.";
    UNAVAILABLE = 503, "Unavailable", "A part of the system does not answer. Try again shortly.";
}

impl Word {
    /// The problem with this word's own text.
    pub(crate) fn problem(self) -> Problem {
        Problem {
            kind: format!("/docs/errors#{}", self.error),
            title: self.title.to_owned(),
            status: self.status,
            detail: self.detail.to_owned(),
            error: self.error.to_owned(),
            request_id: None,
            order_id: None,
            more: BTreeMap::new(),
        }
    }

    /// The problem with a text of its own.
    pub(crate) fn because(self, detail: impl Into<String>) -> Problem {
        Problem { detail: detail.into(), ..self.problem() }
    }
}

/// Adds members to a problem.
pub(crate) trait With: Sized {
    fn with(self, name: &str, value: JsonScalar) -> Self;
}

impl With for Problem {
    fn with(mut self, name: &str, value: JsonScalar) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_has_an_error_status_and_says_what_to_do() {
        for word in ALL {
            assert!((400..600).contains(&word.status), "{word:?}");
            assert!(word.detail.ends_with('.'), "{word:?}");
        }
    }
}
