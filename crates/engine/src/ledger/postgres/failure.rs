//! What went wrong, and whether it may have happened.

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::error::SqlState;

use super::PostgresError;
use super::db::chain;
use crate::fault::{BackendError, Fault, Layer};
use crate::order::InvalidValue;

/// Why a transaction's work failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server or the connection said so.
    Sql(tokio_postgres::Error),
    /// The server accepted the bytes and did not answer in time.
    Silent,
    /// What was read is not what was locked: somebody was faster. Trying again sees it.
    Overtaken,
    /// What was asked for can never be, and why.
    Refused(&'static str),
    /// A column holds what this program never writes.
    Column(String, InvalidValue),
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Sql(error)
    }
}

impl Failure {
    /// Whether the transaction gave way to another one: then it is over, and may simply run again.
    pub(super) fn is_worth_repeating(&self) -> bool {
        match self {
            Self::Sql(error) => error.code().is_some_and(|code| {
                *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
            }),
            Self::Overtaken => true,
            Self::Silent | Self::Refused(_) | Self::Column(..) => false,
        }
    }

    /// Whether the server takes no writes: it is a standby, or has become one.
    pub(super) fn is_read_only(&self) -> bool {
        match self {
            Self::Sql(error) => error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION),
            Self::Silent | Self::Refused(_) | Self::Column(..) | Self::Overtaken => false,
        }
    }

    /// The fault of a transaction whose COMMIT was never sent: the server rolls it back, whatever
    /// happened to it.
    pub(super) fn before_commit(self, what: &'static str) -> BackendError {
        let fault = if self.is_refused_for_good() { Fault::Permanent } else { Fault::Transient };
        self.into_error(what, fault)
    }

    /// The fault of a COMMIT that was sent and not acknowledged.
    pub(super) fn at_commit(self, what: &'static str) -> BackendError {
        self.into_error(what, Fault::Ambiguous)
    }

    /// Whether the values themselves are what cannot be stored or read. Everything else, such as a
    /// missing table or right, is of the kind that staff can mend: answering "for good" there
    /// would make a recorder park a whole queue.
    fn is_refused_for_good(&self) -> bool {
        match self {
            Self::Sql(error) => match error.code() {
                // Class 22: data exception; 23: a constraint is violated.
                Some(code) => ["22", "23"].iter().any(|class| code.code().starts_with(class)),
                // A parameter or a column that cannot be converted has another cause than the link.
                None => std::error::Error::source(error)
                    .is_some_and(|cause| !error.is_closed() && !cause.is::<std::io::Error>()),
            },
            Self::Refused(_) | Self::Column(..) => true,
            Self::Silent | Self::Overtaken => false,
        }
    }

    fn into_error(self, what: &'static str, fault: Fault) -> BackendError {
        let error = |text: String| BackendError::new(Layer::Ledger, fault, text);
        match self {
            Self::Sql(cause) => match cause.as_db_error() {
                Some(db) => {
                    let code = db.code().code();
                    let hint = remedy(db.code());
                    error(format!("{what}: PostgreSQL answered {code}{hint}"))
                        .caused_by(db.message().to_owned())
                }
                None => error(format!("{what}: the connection to PostgreSQL failed")).caused_by(cause),
            },
            Self::Silent => error(format!(
                "{what}: PostgreSQL did not answer in time; look for long locks in pg_stat_activity and at the network"
            )),
            Self::Overtaken => {
                error(format!("{what}: other transactions were faster again and again; repeat it"))
            }
            Self::Refused(why) => error(format!("{what}: {why}")),
            Self::Column(column, cause) => {
                tracing::error!(column, "the ledger has a value that this program never writes");
                error(format!("{what}: column {column}")).caused_by(cause)
            }
        }
    }
}

/// What staff can do about it, where that is known.
fn remedy(code: &SqlState) -> &'static str {
    match code.code() {
        "57014" => ", a statement ran into its time limit; it changed nothing",
        "55P03" => ", a lock was not to be had in time; it changed nothing",
        "25006" => ", this server takes no writes: name the primary in the URL",
        "42501" => ", the user lacks a right: run the roles' file again after a migration",
        "42P01" | "3F000" => ", the schema lacks a table: apply the migrations",
        "53100" => ", its disk is full: make room",
        "53300" => ", it has no connection left: lower pool_max or raise max_connections",
        _ => "",
    }
}

/// There is no connection to work on, so nothing happened.
pub(super) fn no_connection(what: &str, place: &str, size: usize, error: PoolError) -> BackendError {
    let text = match &error {
        PoolError::Timeout(TimeoutType::Wait) => format!(
            "{what}: all {size} connections to PostgreSQL at {place} are busy; raise pool_max, or look for slow statements"
        ),
        PoolError::Timeout(TimeoutType::Create | TimeoutType::Recycle) => format!(
            "{what}: PostgreSQL at {place} did not take a connection in time; check the server and the network"
        ),
        PoolError::Backend(cause) => format!(
            "{what}: PostgreSQL at {place} cannot be reached ({}); check that it runs and takes this user",
            chain(cause)
        ),
        PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => {
            format!("{what}: the connections to PostgreSQL are closed")
        }
    };
    BackendError::new(Layer::Ledger, Fault::Transient, text)
}

/// Why the first connection failed.
pub(super) fn start_refused(place: &str, error: &PoolError) -> PostgresError {
    let place = place.to_owned();
    let code = match error {
        PoolError::Backend(cause) => cause.code().map(SqlState::code),
        _ => None,
    };
    match (code, error) {
        (Some("28P01" | "28000"), _) => PostgresError::Refused { place, why: chain(error) },
        (Some("3D000"), _) => PostgresError::NoDatabase { place },
        (_, PoolError::Backend(cause)) if is_untrusted(cause) => {
            PostgresError::Untrusted { place, why: chain(cause) }
        }
        (_, PoolError::Backend(cause)) if is_unencrypted(cause) => PostgresError::Unencrypted { place },
        (_, PoolError::Timeout(_)) => {
            PostgresError::Unreachable { place, why: "no answer in time".to_owned() }
        }
        (_, PoolError::Backend(cause)) => PostgresError::Unreachable { place, why: chain(cause) },
        (_, error) => PostgresError::Unreachable { place, why: chain(error) },
    }
}

/// Whether the server's certificate was not believed.
fn is_untrusted(error: &tokio_postgres::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|it| it.downcast_ref::<std::io::Error>());
    let cause = cause.and_then(std::io::Error::get_ref).and_then(|it| it.downcast_ref::<rustls::Error>());
    matches!(cause, Some(rustls::Error::InvalidCertificate(_)))
}

/// Whether the server said no when it was asked for encryption. (The client library has no other word
/// for it.)
fn is_unencrypted(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|it| it.to_string() == "server does not support TLS")
}
