//! The ledger in a SQLite file: WAL, synchronous=FULL, one writer.
//!
//! One writer thread makes every transaction serial, so the item locks of the protocol are there
//! by construction.

mod attempts;
mod blocks;
mod books;
mod db;
mod dead_letters;
mod events;
mod orders;
mod payments;
mod record;
mod restocks;
mod rows;
mod sales;
mod settlement;
mod staff;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;

use crate::clock::{Clock, Timestamp};
use db::Db;

/// Why the ledger's file cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum SqliteError {
    /// SQLite refused.
    #[error("the ledger's file cannot be opened: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The file could not be made, or a thread not started.
    #[error("the ledger's file or threads cannot be made: {0}")]
    Io(#[from] io::Error),
    /// The file was written by a newer program.
    #[error(
        "the ledger's file has schema version {found}, this program knows up to {known}: use the newer program"
    )]
    Newer {
        /// The file's version.
        found: u32,
        /// The newest version this program knows.
        known: u32,
    },
}

/// The schema's steps; a file at version n has the first n.
const MIGRATIONS: [&str; 9] = [
    include_str!("migrations/0001_first.sql"),
    include_str!("migrations/0002_dead_letters_closed.sql"),
    include_str!("migrations/0003_payment_attempts.sql"),
    include_str!("migrations/0004_settlement.sql"),
    include_str!("migrations/0005_events.sql"),
    include_str!("migrations/0006_staff.sql"),
    include_str!("migrations/0007_strikes.sql"),
    include_str!("migrations/0008_staff_keys.sql"),
    include_str!("migrations/0009_blocks.sql"),
];

/// The time of a transaction, and how far the moments of release are spread behind it.
#[derive(Clone, Copy)]
struct Now {
    at: Timestamp,
    release_spread: Duration,
}

impl Now {
    /// When units of an order that is closed now go back.
    fn release_at(self) -> Timestamp {
        self.at.plus(self.release_spread.mul_f64(rand::random::<f64>()))
    }
}

/// The embedded ledger. Its file belongs to one process at a time.
pub struct SqliteLedger {
    db: Db,
    clock: Arc<dyn Clock>,
    release_spread: Duration,
}

impl SqliteLedger {
    /// Opens the ledger in `path`, making or migrating it. Deadlines are decided by `clock`.
    ///
    /// # Errors
    /// See [`SqliteError`].
    pub fn open(path: &Path, clock: Arc<dyn Clock>) -> Result<Self, SqliteError> {
        Ok(Self { db: Db::open(path, migrate)?, clock, release_spread: Duration::ZERO })
    }

    /// Lets units return at a random moment within `spread` behind their order's end.
    #[must_use]
    pub fn with_release_spread(mut self, spread: Duration) -> Self {
        self.release_spread = spread;
        self
    }

    /// What a transaction that closes orders must know.
    fn now(&self) -> Now {
        Now { at: self.clock.now(), release_spread: self.release_spread }
    }
}

fn migrate(connection: &mut Connection) -> Result<(), SqliteError> {
    let found: u32 = connection.query_row("PRAGMA user_version", [], |row| row.get(0))?;
    let steps = || (1_u32..).zip(MIGRATIONS);
    let known = steps().map(|(version, _)| version).last().unwrap_or(0);
    if found > known {
        return Err(SqliteError::Newer { found, known });
    }
    for (version, step) in steps().filter(|(version, _)| *version > found) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", version)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::conformance;

    #[tokio::test]
    async fn units_return_at_random_moments() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_800_000_000_000)));
        let spread = Duration::from_millis(800);
        let ledger = SqliteLedger::open(&folder.path().join("ledger"), Arc::clone(&clock) as Arc<dyn Clock>);
        let ledger = Arc::new(ledger.unwrap().with_release_spread(spread));
        let bench = conformance::ledger::Bench { ledger, clock };
        conformance::ledger::units_return_at_random_moments(&bench, spread).await;
    }
}
