//! One writer thread and a few reader threads around SQLite connections.
//!
//! Calls that wait for the writer share one commit: each runs in a savepoint of its own, and
//! nobody is answered before the commit they share is on the disk.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

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
            let worked = in_savepoint(connection, work).map_err(|error| fault(what, error));
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
            let read = connection.transaction().and_then(|transaction| work(&transaction));
            let _ = answer.send(read.map_err(|error| fault(what, error)));
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
    // The file alone is whole then, for whoever copies it.
    if let Err(error) = connection.pragma_query(None, "wal_checkpoint(TRUNCATE)", |_| Ok(())) {
        tracing::warn!(%error, "the ledger's write-ahead log could not be folded in; the next start will");
    }
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
    connection: &Connection,
    work: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    connection.prepare_cached("SAVEPOINT job")?.execute([])?;
    let worked = work(connection);
    if worked.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("ROLLBACK TO job")?.execute([])?;
    }
    if !connection.is_autocommit() {
        connection.prepare_cached("RELEASE job")?.execute([])?;
    }
    worked
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
