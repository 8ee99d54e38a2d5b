//! What a storm is to be: who clicks, when, where, and with which limits.

use std::time::Duration;

use thiserror::Error;

use crate::aftermath::TooManyShares;
use crate::link::UrlError;
use crate::token::TokenSigner;

/// Most users of one storm: 2 bytes of final answer and 12 to 28 bytes of schedule each.
pub const MAX_USERS: u64 = 50_000_000;
/// Longest window plus patience: moments are kept as 32-bit microseconds, which end after 71 min.
pub const MAX_SPAN: Duration = Duration::from_secs(3_600);
/// Most connections: every one has its own source address in 127.1.0.0 and up on loopback, and a
/// file descriptor.
pub const MAX_CONNECTIONS: usize = 60_000;
/// Most generator threads.
pub const MAX_THREADS: usize = 64;

/// One storm on one sale.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Base URLs of the gateways (`http://host:port[/prefix]`); connections are dealt out in
    /// turn, and one that cannot be opened moves on to the next gateway.
    pub urls: Vec<String>,
    /// The sale, as in `GET /api/flash-sales/sales/{id}`; its items are read from there.
    pub sale_id: String,
    /// How many users click, 1 to [`MAX_USERS`].
    pub users: u64,
    /// The number of the first user: a second wave of new users starts where the first ended.
    pub first_user: u64,
    /// What stands before the number in a user's id: user 7 of prefix `user-` is `user-7`.
    pub user_prefix: String,
    /// Over how long the first clicks are spread, evenly at random; zero means all at once.
    pub window: Duration,
    /// Share of users, 0 to 1, who click a second time 100 to 600 ms after their first click.
    pub impatient: f64,
    /// How long after a click its retries go on; window plus patience is at most [`MAX_SPAN`].
    pub patience: Duration,
    /// Decides every moment and every choice of an item: the same seed gives the same schedule.
    pub seed: u64,
    /// Kept-alive connections over all threads; a click waits for a free one. At least one per thread.
    pub connections: usize,
    /// Threads of the generator, each with one core's worth of clicks, 1 to [`MAX_THREADS`].
    pub threads: usize,
    /// How long one request may take, connecting or answering, before it counts as timed out.
    pub request_timeout: Duration,
    /// Mints the users' tokens.
    pub tokens: TokenSigner,
}

impl Plan {
    /// A plan with the usual figures: a 2 s window, 5 % impatient users, 120 s of patience,
    /// 256 connections, at most two threads, 10 s per request, seed 1, users `user-0` and up.
    pub fn new(urls: Vec<String>, sale_id: &str, users: u64, tokens: TokenSigner) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            urls,
            sale_id: sale_id.to_owned(),
            users,
            first_user: 0,
            user_prefix: "user-".to_owned(),
            window: Duration::from_secs(2),
            impatient: 0.05,
            patience: Duration::from_secs(120),
            seed: 1,
            connections: 256,
            threads: cores.min(2),
            request_timeout: Duration::from_secs(10),
            tokens,
        }
    }

    /// Checks every bound of the plan.
    ///
    /// # Errors
    /// [`StormError::Plan`] names the first member that is out of its bounds.
    pub fn check(&self) -> Result<(), StormError> {
        let span = self.window.saturating_add(self.patience);
        let refusal = if self.urls.is_empty() {
            "no URL to send to"
        } else if self.sale_id.is_empty() || !is_path_segment(&self.sale_id) {
            "the sale id must be letters, digits, '-', '_', '.' or '~'"
        } else if self.users == 0 || self.users > MAX_USERS {
            "users must be 1 to 50,000,000"
        } else if self.first_user.checked_add(self.users).is_none() {
            "first_user plus users is beyond 64 bits"
        } else if self.user_prefix.len() > 100 {
            "the user prefix must have at most 100 bytes, so that an id has at most 128"
        } else if span > MAX_SPAN {
            "window plus patience must be at most one hour"
        } else if !(0.0..=1.0).contains(&self.impatient) {
            "the share of impatient users must be 0 to 1"
        } else if self.threads == 0 || self.threads > MAX_THREADS {
            "threads must be 1 to 64"
        } else if self.connections < self.threads || self.connections > MAX_CONNECTIONS {
            "connections must be at least one per thread and at most 60,000"
        } else if self.request_timeout.is_zero() || self.request_timeout > Duration::from_secs(120) {
            "the time limit of a request must be above zero and at most 120 s"
        } else {
            return Ok(());
        };
        Err(StormError::Plan(refusal))
    }

    /// When a storm is ended whatever happens: no click can have gone on for so long, unless a
    /// connection's loop has died with its click.
    pub(crate) fn latest_end_us(&self) -> u64 {
        let slack = Duration::from_secs(5);
        let whole = self.window + self.patience + 2 * self.request_timeout + slack;
        u64::try_from(whole.as_micros()).unwrap_or(u64::MAX)
    }

    /// How long a token is valid: to the end of the patience, and at least a quarter of an hour.
    pub(crate) fn token_lifetime_secs(&self) -> u64 {
        let whole = self.window + self.patience + self.request_timeout;
        whole.as_secs().saturating_add(60).max(900)
    }
}

/// Whether a text can stand in a path as it is: ids are never escaped here.
pub(crate) fn is_path_segment(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~'))
}

/// Why a storm did not take place. What single buyers met is never an error but part of the
/// [`Storm`](crate::Storm).
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StormError {
    /// A member of the plan is out of its bounds.
    #[error("the plan cannot be carried out: {0}")]
    Plan(&'static str),
    /// A base URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The first gateway does not answer.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// The base URL.
        url: String,
        /// What went wrong, in words.
        reason: String,
    },
    /// The sale view came with another status than 200.
    #[error("the sale {sale_id} cannot be read: status {status} {error}")]
    Sale {
        /// The sale asked for.
        sale_id: String,
        /// The HTTP status.
        status: u16,
        /// The `error` member of the answer, or `INVALID`.
        error: String,
    },
    /// The sale view cannot be used: it is not JSON of the promised shape, or it has no items.
    #[error("the sale {sale_id} cannot be used: {reason}")]
    SaleView {
        /// The sale asked for.
        sale_id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A user of a sale that requires sale tokens got none.
    #[error(
        "{user} gets no sale token ({}), and the sale requires one of everybody: see that the server has a secret for \
         them, and that the sale requires no captcha, which simulated people do not solve (`doorbuster switch list`)",
        match status { 0 => error.clone(), status => format!("status {status} {error}") }
    )]
    NoSaleToken {
        /// The user.
        user: String,
        /// The HTTP status; 0 when there was no answer.
        status: u16,
        /// The `error` member of the answer, `INVALID`, or `UNREACHABLE`.
        error: String,
    },
    /// The winners are to pay, and a gateway has no sandbox to pay in.
    #[error(
        "{url} has no sandbox: simulated people can pay nowhere else, and what they would do to a real \
         provider is nobody's wish. Start the server with `--set payments.provider=sandbox`, or leave the \
         shares of who pays and cancels out"
    )]
    NoSandbox {
        /// The base URL.
        url: String,
    },
    /// The shares are of more than all winners.
    #[error(transparent)]
    Shares(#[from] TooManyShares),
    /// A generator thread could not be started or ended early.
    #[error("a generator thread failed: {0}")]
    Thread(String),
}
