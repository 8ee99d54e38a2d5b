//! The schema's steps, numbered and applied once, each with the checksum of its text.
//!
//! A step first only adds (columns with defaults, tables, indexes) or drops what no program needs, so that
//! programs of the version before go on beside it; what they needed goes in a step of a later version.

use tokio_postgres::Row;

use sha2::{Digest, Sha256};

use super::db::{CLOCK, Db, Tx};
use super::failure::Failure;
use super::{PostgresError, PostgresOptions, rows};
use crate::clock::Timestamp;

struct Migration {
    version: u32,
    name: &'static str,
    sql: &'static str,
}

impl Migration {
    fn checksum(&self) -> String {
        Sha256::digest(self.sql).iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

const MIGRATIONS: [Migration; 10] = [
    Migration { version: 1, name: "first", sql: include_str!("migrations/0001_first.sql") },
    Migration {
        version: 2,
        name: "dead_letters_closed",
        sql: include_str!("migrations/0002_dead_letters_closed.sql"),
    },
    Migration {
        version: 3,
        name: "payment_attempts",
        sql: include_str!("migrations/0003_payment_attempts.sql"),
    },
    Migration { version: 4, name: "settlement", sql: include_str!("migrations/0004_settlement.sql") },
    Migration { version: 5, name: "events", sql: include_str!("migrations/0005_events.sql") },
    Migration { version: 6, name: "staff", sql: include_str!("migrations/0006_staff.sql") },
    Migration { version: 7, name: "strikes", sql: include_str!("migrations/0007_strikes.sql") },
    Migration { version: 8, name: "staff_keys", sql: include_str!("migrations/0008_staff_keys.sql") },
    Migration { version: 9, name: "blocks", sql: include_str!("migrations/0009_blocks.sql") },
    Migration {
        version: 10,
        name: "unchecked_releases",
        sql: include_str!("migrations/0010_unchecked_releases.sql"),
    },
];

const ROLES: &str = include_str!("migrations/roles.sql");

/// One migration and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigrationStatus {
    /// Its number, from 1.
    pub version: u32,
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub state: MigrationState,
}

/// Where a migration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MigrationState {
    /// Applied, at this time.
    Applied(Timestamp),
    /// Known to this program and not applied.
    Missing,
    /// Applied, with another text than this program's.
    Changed,
    /// Applied by a newer program, and not known to this one.
    Unknown,
}

struct Applied {
    version: u32,
    name: String,
    checksum: String,
    at: Timestamp,
}

fn applied(row: &Row) -> Result<Applied, Failure> {
    Ok(Applied {
        version: rows::narrow(row, "version")?,
        name: row.try_get("name")?,
        checksum: row.try_get("checksum")?,
        at: row.try_get("at")?,
    })
}

const HAS_HISTORY: &str =
    "SELECT 1 FROM pg_tables WHERE schemaname = current_schema() AND tablename = 'schema_version'";

const HISTORY: &str = "SELECT version, name, checksum, at FROM schema_version ORDER BY version";

const MAKE_HISTORY: &str = "CREATE TABLE schema_version ( \
     version bigint PRIMARY KEY, name text NOT NULL, checksum text NOT NULL, at bigint NOT NULL)";

/// Everything this program knows and everything that was applied, by version.
async fn read(tx: &Tx) -> Result<Vec<MigrationStatus>, Failure> {
    let history = if tx.rows((HAS_HISTORY, &[])).await?.is_empty() {
        Vec::new()
    } else {
        rows::all(&tx.rows((HISTORY, &[])).await?, applied)?
    };
    let known = MIGRATIONS.iter().map(|step| {
        let state = match history.iter().find(|it| it.version == step.version) {
            None => MigrationState::Missing,
            Some(it) if it.checksum == step.checksum() => MigrationState::Applied(it.at),
            Some(_) => MigrationState::Changed,
        };
        MigrationStatus { version: step.version, name: step.name.to_owned(), state }
    });
    let newer = history.iter().filter(|it| MIGRATIONS.iter().all(|step| step.version != it.version));
    let newer = newer.map(|it| MigrationStatus {
        version: it.version,
        name: it.name.clone(),
        state: MigrationState::Unknown,
    });
    Ok(known.chain(newer).collect())
}

pub(super) async fn status(db: &Db) -> Result<Vec<MigrationStatus>, PostgresError> {
    Ok(db.read("read the schema's version", |tx| async move { read(&tx).await }).await?)
}

/// Refuses what this program must not write to.
fn check(steps: &[MigrationStatus]) -> Result<(), PostgresError> {
    let known = newest_known();
    for step in steps {
        match step.state {
            MigrationState::Unknown => {
                return Err(PostgresError::Newer { found: newest_applied(steps), known });
            }
            MigrationState::Changed => {
                return Err(PostgresError::Changed { version: step.version, name: step.name.clone() });
            }
            MigrationState::Applied(_) | MigrationState::Missing => {}
        }
    }
    Ok(())
}

fn newest_known() -> u32 {
    MIGRATIONS.iter().map(|step| step.version).max().unwrap_or(0)
}

fn newest_applied(steps: &[MigrationStatus]) -> u32 {
    let applied = steps.iter().filter(|step| step.state != MigrationState::Missing);
    applied.map(|step| step.version).max().unwrap_or(0)
}

/// What `connect` does: look first, so that a program without the right to change tables can start.
pub(super) async fn prepare(db: &Db, options: &PostgresOptions) -> Result<(), PostgresError> {
    let steps = status(db).await?;
    check(&steps)?;
    let missing = steps.iter().any(|step| step.state == MigrationState::Missing);
    match (missing, options.migrate) {
        (false, _) => Ok(()),
        (true, true) => up(db, &options.schema).await.map(drop),
        (true, false) => Err(PostgresError::Behind { found: newest_applied(&steps), known: newest_known() }),
    }
}

pub(super) async fn up(db: &Db, schema: &str) -> Result<Vec<MigrationStatus>, PostgresError> {
    let steps = db.write("migrate the schema", |tx| async move { apply(&tx, schema).await }).await?;
    check(&steps)?;
    status(db).await
}

/// Applies what is missing; answers how the schema was found, and changes nothing when that is
/// to be refused.
async fn apply(tx: &Tx, schema: &str) -> Result<Vec<MigrationStatus>, Failure> {
    // An index over many orders takes longer than any statement of a sale may.
    tx.batch("SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    tx.rows((LOCK, &[&tx.migration_key()])).await?;
    let found = tx.rows(("SELECT 1 FROM pg_namespace WHERE nspname = $1", &[&schema])).await?;
    if found.is_empty() {
        tx.batch(&format!("CREATE SCHEMA \"{schema}\"")).await?;
    }
    let steps = read(tx).await?;
    if check(&steps).is_err() {
        return Ok(steps);
    }
    if tx.rows((HAS_HISTORY, &[])).await?.is_empty() {
        tx.batch(MAKE_HISTORY).await?;
    }
    for step in &MIGRATIONS {
        let missing =
            |it: &MigrationStatus| it.version == step.version && it.state == MigrationState::Missing;
        if steps.iter().any(missing) {
            tx.batch(step.sql).await?;
            let now = rows::time(&tx.rows((CLOCK, &[&tx.clock()])).await?)?;
            let note = "INSERT INTO schema_version (version, name, checksum, at) VALUES ($1, $2, $3, $4)";
            tx.rows((note, &[&i64::from(step.version), &step.name, &step.checksum(), &now])).await?;
        }
    }
    Ok(steps)
}

/// Held by whoever migrates; ends with the transaction, also when its process dies.
const LOCK: &str = "SELECT pg_advisory_xact_lock($1)";

/// Roles belong to the whole server, so all schemas share this lock.
const ROLES_LOCK: i64 = 0x646f_6f72_726f_6c65;

pub(super) async fn create_roles(db: &Db, schema: &str) -> Result<(), PostgresError> {
    let sql = &ROLES.replace("{schema}", schema);
    db.write("create roles", |tx| async move {
        tx.rows((LOCK, &[&ROLES_LOCK])).await?;
        tx.batch(sql).await
    })
    .await?;
    Ok(())
}
