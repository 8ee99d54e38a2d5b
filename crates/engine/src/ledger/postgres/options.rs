//! How a PostgreSQL ledger is reached, and what it may cost before a call gives up.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;

/// Where the server is and who asks: `postgresql://user:password@host:port/database`, several
/// hosts separated by commas. Its `Debug` shows nothing, since it holds a password.
#[derive(Clone)]
pub struct PostgresUrl(String);

impl PostgresUrl {
    /// Takes a URL or a `key=value` text as libpq does; [`PostgresLedger::connect`] reads it.
    ///
    /// [`PostgresLedger::connect`]: super::PostgresLedger::connect
    pub fn new(url: impl Into<String>) -> Self {
        Self(url.into())
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PostgresUrl(hidden)")
    }
}

/// How a connection is encrypted. It is decided here alone: an `sslmode` in the URL is not heard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PostgresTls {
    /// Not at all: for a server on this machine.
    Disable,
    /// If the server offers it; nobody proves to be the server.
    Prefer,
    /// Always; nobody proves to be the server, so who sits between can still read along.
    Require,
    /// Always, with a certificate for the URL's host name that one of these authorities signed.
    VerifyFull {
        /// Certificates of the authorities, PEM; the system's where none is named.
        ca_file: Option<PathBuf>,
    },
}

/// Everything that [`PostgresLedger::connect`](super::PostgresLedger::connect) must know.
#[derive(Clone)]
pub struct PostgresOptions {
    /// Where the server is.
    pub url: PostgresUrl,
    /// The schema that holds the ledger, made by the first migration: a lower-case letter or `_`,
    /// then those and digits, at most 63 bytes.
    pub schema: String,
    /// Most connections at once. A recorder, an expirer and a releaser use one each; what buyers
    /// ask shares the others. PostgreSQL itself does best with two or three per core of its own.
    pub pool_max: usize,
    /// Longest wait for a connection: for a free one of the pool, and for the server to take a new one.
    pub connect_timeout: Duration,
    /// Longest run of one statement. A whole call may take [`Self::call_timeout`].
    pub statement_timeout: Duration,
    /// Longest wait for one lock that another transaction holds.
    pub lock_timeout: Duration,
    /// Encryption.
    pub tls: PostgresTls,
    /// Whether `connect` applies missing migrations. Without it a ledger that lacks some is refused,
    /// which is right where the program may not change tables (see `create_roles`).
    pub migrate: bool,
    /// Decides deadlines. `None` is the server's own clock, the same for every process; tests give
    /// one that they can move.
    pub clock: Option<Arc<dyn Clock>>,
    /// Units return at a random moment within this time behind their order's end.
    pub release_spread: Duration,
}

impl PostgresOptions {
    /// The defaults: schema `doorbuster`, 8 connections, 5 s to connect, 10 s for a statement,
    /// 5 s for a lock, encryption where the server offers it, missing migrations applied, units return at once.
    pub fn new(url: PostgresUrl) -> Self {
        Self {
            url,
            schema: "doorbuster".to_owned(),
            pool_max: 8,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(10),
            lock_timeout: Duration::from_secs(5),
            tls: PostgresTls::Prefer,
            migrate: true,
            clock: None,
            release_spread: Duration::ZERO,
        }
    }

    /// Longest time a transaction may take before this side gives up on a server that accepts
    /// bytes and answers nothing: four statements' worth, since no call has more in a row.
    pub fn call_timeout(&self) -> Duration {
        self.statement_timeout * 4
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("url", &self.url)
            .field("schema", &self.schema)
            .field("pool_max", &self.pool_max)
            .field("tls", &self.tls)
            .field("migrate", &self.migrate)
            .finish_non_exhaustive()
    }
}
