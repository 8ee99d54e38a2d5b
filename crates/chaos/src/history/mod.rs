//! What the clients asked and heard: each call with the time it began and the time it ended.
//!
//! A call that broke or never ended is [`Ending::Unknown`]: it may have happened. Times are
//! microseconds since the [`Recorder`] began, by one monotonic clock, so that "this reply came before
//! that request" is a fact.

mod lines;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{ItemId, OrderId, SaleId};

pub use lines::{UnreadableHistory, read_lines, write_lines};

/// What a client wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum Wish {
    /// `POST …/items/{item}/purchase`.
    Purchase {
        /// The item's sale.
        sale: SaleId,
        /// The item.
        item: ItemId,
        /// Units wanted.
        units: u32,
        /// The Idempotency-Key.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<String>,
    },
    /// `DELETE …/orders/{order}`.
    Cancel {
        /// The order.
        order: OrderId,
    },
    /// `GET …/orders/{order}`.
    Look {
        /// The order.
        order: OrderId,
    },
    /// A payment that the staff enters for the user.
    #[serde(rename_all = "camelCase")]
    Pay {
        /// The order.
        order: OrderId,
        /// Names this notice of the payment.
        event: String,
        /// Names the payment.
        payment: String,
        /// What was paid.
        amount_minor: i64,
        /// The payment's currency.
        currency: String,
    },
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `error` word of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The order that the answer names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order: Option<OrderId>,
    /// The orders that use up a limit above one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holding: Vec<OrderId>,
    /// What is left, where it is less than was wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<u64>,
    /// Where the order stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub order_status: Option<String>,
    /// What became of an entered payment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// Whether the server says that the key was used before.
    pub replayed: bool,
    /// Seconds after which asking again helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_s: Option<u64>,
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "ending")]
pub enum Ending {
    /// It was answered.
    Answered(Answer),
    /// No connection came about: the server has not heard of it.
    NotSent,
    /// The connection broke or no answer came in time: it may have happened.
    Unknown,
}

/// One call from its beginning to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Who called.
    pub user: String,
    /// What for.
    pub wish: Wish,
    /// Which gateway was asked, by its place in the buyers' list; for evidence only.
    pub gateway: usize,
    /// When it began.
    pub invoked_us: u64,
    /// When and how it ended; `None` if it had not when the history was taken.
    pub end: Option<(u64, Ending)>,
}

impl Call {
    /// The answer, if there was one, and when it came.
    pub fn answer(&self) -> Option<(u64, &Answer)> {
        match &self.end {
            Some((at_us, Ending::Answered(answer))) => Some((*at_us, answer)),
            _ => None,
        }
    }

    /// Whether the server may have acted on it without the client knowing how: no answer, or one of
    /// the server's own failures.
    pub fn is_unresolved(&self) -> bool {
        match &self.end {
            None | Some((_, Ending::Unknown)) => true,
            Some((_, Ending::NotSent)) => false,
            Some((_, Ending::Answered(answer))) => answer.status >= 500,
        }
    }
}

/// What all clients asked and heard, in the order in which the calls began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// The calls.
    pub calls: Vec<Call>,
}

/// Names a call that was begun and has not ended.
#[derive(Debug)]
#[must_use = "a call that is not ended counts as unknown"]
pub struct Begun(usize);

/// Keeps the history of clients that call at the same time; clones keep the same one.
#[derive(Clone, Debug)]
pub struct Recorder {
    begun_at: Instant,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { begun_at: Instant::now(), calls: Arc::default() }
    }
}

impl Recorder {
    /// Writes down that a call begins now: to be called before its first byte is sent.
    pub fn begin(&self, user: &str, gateway: usize, wish: Wish) -> Begun {
        let mut calls = self.calls();
        // The time is taken under the lock, so that the calls stand in its order.
        let invoked_us = self.now_us();
        calls.push(Call { user: user.to_owned(), wish, gateway, invoked_us, end: None });
        Begun(calls.len() - 1)
    }

    /// Writes down that a call ended now: to be called after its last byte was read.
    pub fn end(&self, call: Begun, ending: Ending) {
        let at_us = self.now_us();
        self.calls()[call.0].end = Some((at_us, ending));
    }

    /// The history up to now; calls that have not ended are in it without an end.
    pub fn history(&self) -> History {
        History { calls: self.calls().clone() }
    }

    /// Microseconds since the recorder began.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.begun_at.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
