//! Reaching a Redis: one server, a master that sentinels name, or a cluster. The stages that keep something there
//! share how it is reached, and no connection.

mod link;
mod script;
mod target;
mod tls;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Clock;
pub(crate) use link::Links;
pub(crate) use script::Script;

/// How to reach a Redis.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://[user:password@]host[:port][/db]`; `rediss://` for TLS; `redis+cluster://host,host…`
    /// for a cluster by some of its nodes; `redis+sentinel://host,host…/master` for the master that
    /// sentinels name; `rediss+cluster` and `rediss+sentinel` for TLS.
    pub url: String,
    /// Stands before every key; lets several shops share a server.
    pub prefix: String,
    /// A PEM file with the authorities to trust instead of the system's.
    pub ca_file: Option<PathBuf>,
    /// PEM files with a certificate and its key, for servers that ask clients for one.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Longest wait for a connection; below the time that the batcher gives a call, which else cannot
    /// know that nothing was sent.
    pub connect_timeout: Duration,
    /// Longest wait for one reply.
    pub response_timeout: Duration,
    /// Whose time windows and reservations are decided by.
    pub clock: RedisClock,
}

impl RedisOptions {
    /// Options for `url` with short timeouts and the server's clock.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            prefix: "doorbuster:".to_owned(),
            ca_file: None,
            certificate: None,
            connect_timeout: Duration::from_millis(400),
            response_timeout: Duration::from_millis(400),
            clock: RedisClock::Server,
        }
    }
}

impl fmt::Debug for RedisOptions {
    /// The URL may carry a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisOptions").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Whose clock the stock reads.
#[derive(Clone)]
pub enum RedisClock {
    /// The server's, the same for every gateway.
    Server,
    /// This one; for tests, and for a server beside an embedded ledger.
    Given(Arc<dyn Clock>),
}
