//! The ledger in PostgreSQL, for several processes at once.
//!
//! Every transaction takes its locks in one order: the sale (an advisory lock, shared by whoever
//! writes or closes orders, held alone by whoever changes its epoch, state, fence or quantities),
//! items by id, buyers by user, orders. Facts are read behind the locks, the pure rules decide,
//! and what they say is written; each step sends its statements together, in one round trip.

mod attempts;
mod blocks;
mod books;
mod closing;
mod db;
mod dead_letters;
mod events;
mod failure;
mod migrate;
mod options;
mod orders;
mod payments;
mod record;
mod releases;
mod restocks;
mod rows;
mod sales;
mod settlement;
mod staff;
mod tls;

use tokio_postgres::Row;

pub use migrate::{MigrationState, MigrationStatus};
pub use options::{PostgresOptions, PostgresTls, PostgresUrl};

use crate::fault::BackendError;
use db::{Db, Query};
use failure::Failure;

/// Why a PostgreSQL ledger cannot be used. No message holds the password.
#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    /// The URL is not one.
    #[error(
        "the URL of PostgreSQL cannot be read: {0}; it looks like postgresql://user:password@host:5432/database"
    )]
    Url(String),
    /// The schema's name is not a plain one.
    #[error("{0:?} cannot name a schema: lower-case letters, digits and _, at most 63, no digit first")]
    Schema(String),
    /// Encryption cannot be set up.
    #[error("encryption for PostgreSQL cannot be set up: {0}")]
    Tls(String),
    /// The server refuses this user.
    #[error(
        "PostgreSQL at {place} refuses this user ({why}): check user and password in the URL, and pg_hba.conf"
    )]
    Refused {
        /// Host, port and database.
        place: String,
        /// What the server said.
        why: String,
    },
    /// The server has no such database.
    #[error("PostgreSQL at {place} has no such database: create it, or mend the URL")]
    NoDatabase {
        /// Host, port and database.
        place: String,
    },
    /// There is no server, or no way to it.
    #[error(
        "PostgreSQL at {place} cannot be reached ({why}): check that it runs there and that the network lets it through"
    )]
    Unreachable {
        /// Host, port and database.
        place: String,
        /// What happened.
        why: String,
    },
    /// There is a server, and it does not prove that it is the one that is meant.
    #[error(
        "PostgreSQL at {place} does not prove who it is ({why}): check the authorities' file, and that the host name in the URL is one of those in the server's certificate"
    )]
    Untrusted {
        /// Host, port and database.
        place: String,
        /// What is wrong with its certificate.
        why: String,
    },
    /// Encryption is demanded, and the server has none.
    #[error(
        "PostgreSQL at {place} offers no encryption, and it is demanded: set ssl = on there, or demand none on a network that is trusted"
    )]
    Unencrypted {
        /// Host, port and database.
        place: String,
    },
    /// The schema was written by a newer program.
    #[error(
        "the ledger's schema has version {found}, this program knows up to {known}: use the newer program"
    )]
    Newer {
        /// The schema's version.
        found: u32,
        /// The newest version this program knows.
        known: u32,
    },
    /// A migration that was applied is not the one this program has under the same number.
    #[error(
        "migration {version} ({name}) was applied with another text than this program's: one of the two was changed, and neither is safe to go on from"
    )]
    Changed {
        /// Its number.
        version: u32,
        /// Its name.
        name: String,
    },
    /// Migrations are missing and `migrate` is off.
    #[error(
        "the ledger's schema has version {found}, this program needs {known}: apply the migrations first"
    )]
    Behind {
        /// The schema's version; 0 when there is none.
        found: u32,
        /// The version this program needs.
        known: u32,
    },
    /// A migration failed; it was undone, with those before it.
    #[error("the ledger's schema cannot be migrated: {0}")]
    Migration(#[from] BackendError),
}

/// The ledger that several processes share.
pub struct PostgresLedger {
    db: Db,
}

impl PostgresLedger {
    /// Connects, and refuses a schema that is not this program's. With
    /// [`migrate`](PostgresOptions::migrate), missing migrations are applied first.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn connect(options: &PostgresOptions) -> Result<Self, PostgresError> {
        let db = Db::new(options)?;
        db.check_reachable().await?;
        migrate::prepare(&db, options).await?;
        Ok(Self { db })
    }

    /// Applies the missing migrations in one transaction; answers where the schema stands then. Any
    /// number of processes may call it at once: one works, the others wait and find nothing to do.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn migrate_up(options: &PostgresOptions) -> Result<Vec<MigrationStatus>, PostgresError> {
        let db = Db::new(options)?;
        db.check_reachable().await?;
        migrate::up(&db, &options.schema).await
    }

    /// Every migration and whether it is applied; changes nothing.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn migrate_status(options: &PostgresOptions) -> Result<Vec<MigrationStatus>, PostgresError> {
        let db = Db::new(options)?;
        db.check_reachable().await?;
        migrate::status(&db).await
    }

    /// Makes the roles `doorbuster_gateway`, `doorbuster_recorder`, `doorbuster_keeper` and
    /// `doorbuster_migrate`, unless they are there, and gives each what it needs in this schema and
    /// no more. They cannot log in: grant them to users that can. The schema and its tables then
    /// belong to `doorbuster_migrate`. To be repeated after each migration, by a user that may
    /// create roles.
    ///
    /// # Errors
    /// See [`PostgresError`].
    pub async fn create_roles(options: &PostgresOptions) -> Result<(), PostgresError> {
        let db = Db::new(options)?;
        db.check_reachable().await?;
        migrate::create_roles(&db, &options.schema).await
    }

    /// Every row of a query that only reads, in one state.
    async fn query_all<T>(
        &self,
        what: &'static str,
        query: Query<'_>,
        read: impl FnMut(&Row) -> Result<T, Failure>,
    ) -> Result<Vec<T>, BackendError> {
        let found = self.db.query(what, query).await?;
        rows::all(&found, read).map_err(|failure| failure.before_commit(what))
    }
}
