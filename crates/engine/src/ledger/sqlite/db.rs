//! One writer thread and a few reader threads around SQLite connections.
//!
//! Calls that wait for the writer share one commit: each runs in a savepoint of its own, and
//! nobody is answered before the commit they share is on the disk.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags, Transaction, TransactionBehavior};
use tokio::sync::{mpsc, oneshot};

use super::SqliteError;
use crate::fault::{BackendError, Fault, Layer};

/// Calls that may wait for one thread; more are refused at once.
const WAITING_MAX: usize = 8_192;

/// Most calls that share one commit.
const GROUP_MAX: usize = 64;

/// Threads that read beside the writer.
const READERS: usize = 2;

type ReadJob = Box<dyn FnOnce(&mut Connection) + Send>;

/// Works inside the shared transaction; what it answers is told once the commit's fate is known.
type WriteJob = Box<dyn FnOnce(&Connection) -> Told + Send>;
type Told = Box<dyn FnOnce(Result<(), &BackendError>) + Send>;

/// The database's threads. They end when this is dropped, which waits for the last commit.
pub(super) struct Db {
    writer: Option<mpsc::Sender<WriteJob>>,
    writer_thread: Option<JoinHandle<()>>,
    readers: Vec<mpsc::Sender<ReadJob>>,
    turn: AtomicUsize,
}

impl Db {
    /// Starts the threads around connections to `path`; `prepare` runs on the writer's first.
    pub(super) fn open(
        path: &Path,
        prepare: impl FnOnce(&mut Connection) -> Result<(), SqliteError>,
    ) -> Result<Self, SqliteError> {
        // For its owner alone; SQLite gives the files beside it the same rights.
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        let mut connection = Connection::open(path)?;
        configure(&connection)?;
        prepare(&mut connection)?;
        let (writer, waiting) = mpsc::channel(WAITING_MAX);
        let writer_thread = spawn("ledger-writer", move || write_groups(connection, waiting))?;
        let mut readers = Vec::with_capacity(READERS);
        for _ in 0..READERS {
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut connection = Connection::open_with_flags(path, flags)?;
            configure(&connection)?;
            connection.pragma_update(None, "query_only", true)?;
            let (reader, mut waiting) = mpsc::channel::<ReadJob>(WAITING_MAX);
            spawn("ledger-reader", move || {
                while let Some(job) = waiting.blocking_recv() {
                    job(&mut connection);
                }
            })?;
            readers.push(reader);
        }
        Ok(Self {
            writer: Some(writer),
            writer_thread: Some(writer_thread),
            readers,
            turn: AtomicUsize::new(0),
        })
    }

    /// Runs `work` in a transaction on the writer. What it did is kept if it answers `Ok`, and
    /// undone alone if it answers `Err`.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BackendError> {
        let (answer, answered) = oneshot::channel();
        let job: WriteJob = Box::new(move |connection| {
            let worked = in_savepoint(what, connection, work);
            Box::new(move |committed| {
                // A caller that is gone does not undo the work.
                let _ = answer.send(match committed {
                    Ok(()) => worked,
                    Err(error) => worked.and(Err(BackendError::new(
                        Layer::Ledger,
                        error.fault,
                        format!("{what}: {error}"),
                    ))),
                });
            })
        });
        let writer = self.writer.as_ref().ok_or_else(|| stopped(what))?;
        send(writer, job, what)?;
        answered.await.unwrap_or_else(|_| Err(stopped(what)))
    }

    /// Runs `work` on a reader, in one state of the database.
    pub(super) async fn read<T: Send + 'static>(
        &self,
        what: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, BackendError> {
        let (answer, answered) = oneshot::channel();
        let job: ReadJob = Box::new(move |connection| {
            let read = || connection.transaction().and_then(|transaction| work(&transaction));
            let _ = answer.send(unpanicked(what, read));
        });
        let turn = self.turn.fetch_add(1, Ordering::Relaxed) % self.readers.len();
        send(&self.readers[turn], job, what)?;
        answered.await.unwrap_or_else(|_| Err(stopped(what)))
    }
}

fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(Duration::from_secs(5))?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "cache_size", -16_384)?;
    // Without this promise SQLite looks at the values bound to a statement to plan it, and plans it anew for
    // each call: a third of the ledger's time. No query of ours is planned better for a value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

impl Drop for Db {
    fn drop(&mut self) {
        self.readers.clear();
        self.writer = None;
        if self.writer_thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the ledger's writer ended in a panic");
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, SqliteError> {
    Ok(std::thread::Builder::new().name(name.to_owned()).spawn(run)?)
}

fn send<J>(thread: &mpsc::Sender<J>, job: J, what: &'static str) -> Result<(), BackendError> {
    thread.try_send(job).map_err(|_| {
        BackendError::new(Layer::Ledger, Fault::Transient, format!("{what}: too many calls wait"))
    })
}

fn stopped(what: &str) -> BackendError {
    let why = "was not answered: the transaction it shared was lost before it ran, or the ledger is stopping";
    BackendError::new(Layer::Ledger, Fault::Ambiguous, format!("{what}: {why}; repeat it"))
}

fn write_groups(mut connection: Connection, mut waiting: mpsc::Receiver<WriteJob>) {
    let mut group = Vec::with_capacity(GROUP_MAX);
    while waiting.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
        let mut told = Vec::with_capacity(group.len());
        let committed = write_group(&mut connection, &mut group, &mut told);
        // Jobs that never ran because the transaction was lost are dropped: their callers hear
        // that the outcome is unknown, which is true enough to repeat.
        group.clear();
        for tell in told {
            tell(committed.as_ref().copied());
        }
    }
    if let Err(error) = fold_in(&connection) {
        tracing::warn!(%error, "the ledger's write-ahead log could not be folded in; the next start will");
    }
}

/// Moves the write-ahead log into the file, which is whole by itself then, for whoever copies it.
fn fold_in(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma(None, "wal_checkpoint", "TRUNCATE", |_| Ok(()))
}

fn write_group(
    connection: &mut Connection,
    group: &mut Vec<WriteJob>,
    told: &mut Vec<Told>,
) -> Result<(), BackendError> {
    let begun = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = begun.map_err(|error| fault("begin", error))?;
    for job in group.drain(..) {
        told.push(job(&transaction));
        if transaction.is_autocommit() {
            // A full disk and the like end the whole transaction at once.
            return Err(BackendError::new(
                Layer::Ledger,
                Fault::Transient,
                "the transaction was rolled back",
            ));
        }
    }
    transaction.commit().map_err(|error| {
        let error = fault("commit", error);
        let may_have_happened = error.fault != Fault::Transient;
        BackendError { fault: if may_have_happened { Fault::Ambiguous } else { Fault::Transient }, ..error }
    })
}

fn in_savepoint<T>(
    what: &'static str,
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> Result<T, BackendError> {
    let run = |sql| {
        let ran = connection.prepare_cached(sql).and_then(|mut statement| statement.execute([]));
        ran.map_err(|error| fault(what, error))
    };
    run("SAVEPOINT job")?;
    let worked = unpanicked(what, || work(connection));
    if worked.is_err() && !connection.is_autocommit() {
        run("ROLLBACK TO job")?;
    }
    if !connection.is_autocommit() {
        run("RELEASE job")?;
    }
    worked
}

/// Works; a panic, which is a fault of ours, fails this call alone and not all that come after it.
/// The work is undone, so it may be repeated.
fn unpanicked<T>(what: &'static str, work: impl FnOnce() -> rusqlite::Result<T>) -> Result<T, BackendError> {
    // What the work leaves half done is in the database only, where it is rolled back.
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(worked) => worked.map_err(|error| fault(what, error)),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("of unknown kind");
            Err(BackendError::new(Layer::Ledger, Fault::Transient, format!("{what}: a panic: {text}")))
        }
    }
}

fn fault(what: &'static str, error: rusqlite::Error) -> BackendError {
    let kind = match error.sqlite_error_code() {
        Some(
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::DiskFull | ErrorCode::ReadOnly,
        ) => Fault::Transient,
        Some(ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory) => Fault::Ambiguous,
        _ => Fault::Permanent,
    };
    BackendError::new(Layer::Ledger, kind, what).caused_by(error)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rusqlite::StatementStatus;

    use super::*;

    fn insert(connection: &Connection, number: i64) -> rusqlite::Result<usize> {
        connection.execute("INSERT INTO it VALUES (?1)", [number])
    }

    #[test]
    fn the_log_is_folded_into_the_file_while_others_have_it_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger");
        let (writer, reader) = (Connection::open(&path).unwrap(), Connection::open(&path).unwrap());
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        writer.execute_batch("CREATE TABLE it (number); INSERT INTO it VALUES (1)").unwrap();
        reader.query_row("SELECT number FROM it", [], |row| row.get::<_, i64>(0)).unwrap();
        let log = || std::fs::metadata(folder.path().join("ledger-wal")).map_or(0, |it| it.len());
        assert!(log() > 0);
        fold_in(&writer).unwrap();
        assert_eq!(log(), 0);
    }

    #[tokio::test]
    async fn a_kept_statement_is_planned_once_whatever_is_bound_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(&folder.path().join("db"), |connection| {
            let table =
                "CREATE TABLE it (id INTEGER PRIMARY KEY, list); CREATE INDEX of_list ON it (list, id)";
            connection.execute_batch(table).map_err(SqliteError::from)
        });
        let db = db.unwrap();

        let planned_again = db.read("read", |tx| {
            for list in 0..3 {
                let mut rows = tx.prepare_cached("SELECT * FROM it WHERE list = ?1 ORDER BY id LIMIT ?2")?;
                rows.query_map((list, 10), |row| row.get::<_, i64>(0))?.count();
            }
            let rows = tx.prepare_cached("SELECT * FROM it WHERE list = ?1 ORDER BY id LIMIT ?2")?;
            Ok(rows.get_status(StatementStatus::RePrepare))
        });
        assert_eq!(planned_again.await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_call_and_undoes_it() {
        let folder = tempfile::tempdir().unwrap();
        let db = Db::open(&folder.path().join("db"), |connection| {
            connection.execute_batch("CREATE TABLE it (number INTEGER)").map_err(SqliteError::from)
        });
        let db = db.unwrap();

        let panicked = db.write("insert", |connection| {
            insert(connection, 1)?;
            panic!("on purpose")
        });
        let (panicked, other): (Result<(), _>, _) =
            tokio::join!(panicked, db.write("insert", |connection| insert(connection, 2)));
        let failed = panicked.unwrap_err();
        assert_eq!((failed.fault, failed.to_string().contains("on purpose")), (Fault::Transient, true));
        assert_eq!(other.unwrap(), 1);

        for _ in 0..2 * READERS {
            let read: Result<(), _> = db.read("read", |_| panic!("on purpose")).await;
            assert_eq!(read.unwrap_err().fault, Fault::Transient);
        }
        for file in folder.path().read_dir().unwrap() {
            let file = file.unwrap();
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{file:?}");
        }
        let numbers =
            db.read("read", |tx| tx.query_row("SELECT sum(number) FROM it", [], |row| row.get::<_, i64>(0)));
        assert_eq!(numbers.await.unwrap(), 2);
    }
}
