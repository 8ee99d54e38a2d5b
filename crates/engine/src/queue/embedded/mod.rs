//! The queue in this process: a log on disk with one writer thread.
//!
//! Everything that arrives while the disk is busy is written and fsynced together (group commit).
//! Readers see only what was fsynced; a publisher hears "acknowledged" only after the fsync.

mod files;
mod frame;
mod log;

pub use files::{Appender, Files, ReadAt, SystemFiles};
pub use log::OpenError;

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot, watch};

use super::{NextOutcome, Queue, Reader, message};
use crate::clock::Clock;
use crate::delivery::{Batch, Delivered, Position, TopicId};
use crate::fault::{BackendError, Fault, Layer};
use crate::order::OrderPlaced;
use log::{Log, SEGMENT_BYTES, Segment, SegmentReader};

/// Records that may wait for the writer; more are refused at once.
const WAITING_MAX: usize = 65_536;

/// Most records made durable together.
const GROUP_MAX: usize = 4_096;

/// Bytes kept aside unless said otherwise.
const RESERVE_BYTES: usize = 8 * 1024 * 1024;

struct Append {
    /// `None` only asks whether the disk has room again.
    payload: Option<Vec<u8>>,
    done: oneshot::Sender<Result<(), BackendError>>,
}

/// What the writer shares with publishers and readers.
struct Shared {
    files: Arc<dyn Files>,
    topic: TopicId,
    durable_end: watch::Sender<u64>,
    segments: Mutex<Vec<Segment>>,
    full: AtomicBool,
}

/// Called when the disk failed in a way that leaves its state unknown. The process must end: the
/// next start reads what is really there.
pub type OnFatal = Box<dyn FnOnce(&io::Error) + Send>;

/// How an [`EmbeddedQueue`] is kept.
pub struct QueueOptions {
    /// A new segment begins when the last one has this many bytes.
    pub segment_bytes: u64,
    /// Bytes kept aside, so that on a full disk the ledger can still write payments.
    pub reserve_bytes: usize,
    /// Ends the process.
    pub on_fatal: OnFatal,
}

impl Default for QueueOptions {
    /// Segments of 64 MiB, 8 MiB aside; a failed disk only stops the writer.
    fn default() -> Self {
        Self { segment_bytes: SEGMENT_BYTES, reserve_bytes: RESERVE_BYTES, on_fatal: Box::new(|_| ()) }
    }
}

/// The embedded queue: one partition, one log. The log's folder belongs to one process at a time.
pub struct EmbeddedQueue {
    shared: Arc<Shared>,
    appends: mpsc::Sender<Append>,
}

impl EmbeddedQueue {
    /// Opens the log in `folder`, recovers it and starts its writer. `recorded` is the offset up
    /// to which the ledger has the log's records, by topic; older segments are removed.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(
        folder: &Path,
        recorded: impl FnOnce(&TopicId) -> u64,
        clock: Arc<dyn Clock>,
        options: QueueOptions,
    ) -> Result<Self, OpenError> {
        let files =
            SystemFiles::at(folder).map_err(|source| OpenError::Io { path: folder.to_owned(), source })?;
        Self::open_on(files, recorded, clock, options)
    }

    /// The same on any file layer.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open_on(
        files: Arc<dyn Files>,
        recorded: impl FnOnce(&TopicId) -> u64,
        clock: Arc<dyn Clock>,
        options: QueueOptions,
    ) -> Result<Self, OpenError> {
        let path = files.path();
        let io = |source| OpenError::Io { path: path.clone(), source };
        let topic = topic_of(files.as_ref()).map_err(io)?;
        let log = Log::open(Arc::clone(&files), recorded(&topic), options.segment_bytes)?;
        let shared = Arc::new(Shared {
            files: Arc::clone(&files),
            topic,
            durable_end: watch::Sender::new(log.durable_end()),
            segments: Mutex::new(log.segments().to_vec()),
            full: AtomicBool::new(false),
        });
        let (appends, waiting) = mpsc::channel(WAITING_MAX);
        let reserve = Reserve { files, bytes: options.reserve_bytes };
        if let Err(error) = reserve.take() {
            tracing::warn!(%error, "no space could be kept aside for a full disk");
        }
        let writer = Writer { log, shared: Arc::clone(&shared), clock, reserve };
        std::thread::Builder::new()
            .name("queue-writer".to_owned())
            .spawn(move || writer.run(waiting, options.on_fatal))
            .map_err(io)?;
        Ok(Self { shared, appends })
    }
}

impl EmbeddedQueue {
    /// Appends a record as it stands, for tests of what a reader does with strange ones.
    ///
    /// # Errors
    /// What [`Queue::publish`] reports.
    pub async fn append_bytes(&self, payload: Vec<u8>) -> Result<(), BackendError> {
        let (done, acknowledged) = oneshot::channel();
        self.appends
            .try_send(Append { payload: Some(payload), done })
            .map_err(|not_sent| refused(&not_sent))?;
        acknowledged.await.unwrap_or_else(|_| Err(writer_stopped()))
    }
}

/// Why the writer was not given an order. One that has stopped may take it or not at the very moment it
/// does: both are the same fault.
fn refused(not_sent: &TrySendError<Append>) -> BackendError {
    match not_sent {
        TrySendError::Full(_) => crowded(),
        TrySendError::Closed(_) => writer_stopped(),
    }
}

fn crowded() -> BackendError {
    BackendError::new(Layer::Queue, Fault::Transient, "too many orders wait for the disk")
}

fn writer_stopped() -> BackendError {
    BackendError::new(Layer::Queue, Fault::Ambiguous, "the log's writer stopped")
}

const TOPIC: &str = "topic";
const RESERVE: &str = "reserve";

/// The log's own identity, made once. A name that was only half written before a crash was never
/// used: the log beside it is empty.
fn topic_of(files: &dyn Files) -> io::Result<TopicId> {
    match files.read(TOPIC) {
        Ok(bytes) if bytes.len() == TOPIC_BYTES => Ok(TopicId(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let topic = format!("embedded-{:032x}", rand::random::<u128>());
            let mut file = files.write_behind(TOPIC, 0)?;
            file.append(topic.as_bytes())?;
            file.sync()?;
            files.sync_folder()?;
            Ok(TopicId(topic))
        }
    }
}

const TOPIC_BYTES: usize = "embedded-".len() + 32;

/// A file that is only there to be removed when the disk is full.
struct Reserve {
    files: Arc<dyn Files>,
    bytes: usize,
}

impl Reserve {
    /// Makes the file if it is not there whole.
    fn take(&self) -> io::Result<()> {
        if self.files.read(RESERVE).is_ok_and(|bytes| bytes.len() == self.bytes) {
            return Ok(());
        }
        let written = self.files.write_behind(RESERVE, 0).and_then(|mut file| {
            file.append(&vec![0; self.bytes])?;
            file.sync()
        });
        if written.is_err() {
            self.give_up();
        }
        written
    }

    fn give_up(&self) {
        if let Err(error) = self.files.remove(RESERVE)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "the space kept aside could not be freed");
        }
    }
}

struct Writer {
    log: Log,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    reserve: Reserve,
}

impl Writer {
    fn run(mut self, mut waiting: mpsc::Receiver<Append>, on_fatal: OnFatal) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        while waiting.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
            if let Err(error) = self.write(&mut group) {
                tracing::error!(
                    %error,
                    "the log's disk failed and its state is unknown: stopping; check the disk, then start again"
                );
                on_fatal(&error);
                return;
            }
        }
    }

    /// Writes a group, makes it durable, and tells its publishers. An outer error is fatal.
    fn write(&mut self, group: &mut Vec<Append>) -> io::Result<()> {
        group.retain(|it| it.payload.is_some() || self.shared.full.load(Ordering::Relaxed));
        let (payloads, done): (Vec<_>, Vec<_>) = group.drain(..).map(|it| (it.payload, it.done)).unzip();
        let payloads: Vec<Vec<u8>> = payloads.into_iter().flatten().collect();
        match self.append_and_sync(&payloads)? {
            Ok(()) => {
                self.shared.full.store(false, Ordering::Relaxed);
                self.shared.durable_end.send_replace(self.log.durable_end());
                for waiter in done {
                    // A publisher that is gone belongs to a stopping server; its record stays.
                    let _ = waiter.send(Ok(()));
                }
            }
            Err(error) => {
                let what = error.to_string();
                for waiter in done {
                    let _ = waiter.send(Err(BackendError::new(Layer::Queue, Fault::Ambiguous, what.clone())));
                }
            }
        }
        Ok(())
    }

    /// After an inner error nothing stands in the log now, though a crash might bring it back: the
    /// cut is not made durable.
    fn append_and_sync(&mut self, payloads: &[Vec<u8>]) -> io::Result<io::Result<()>> {
        if self.shared.full.load(Ordering::Relaxed)
            && let Err(error) = self.reserve.take()
        {
            return Ok(Err(error));
        }
        if let Err(error) = self.log.append(payloads, self.clock.now())? {
            if error.kind() == io::ErrorKind::StorageFull {
                tracing::error!("the disk is full: no new orders until space is freed; payments go on");
                self.shared.full.store(true, Ordering::Relaxed);
                self.reserve.give_up();
            }
            return Ok(Err(error));
        }
        self.log.sync()?;
        let mut segments = self.shared.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if segments.len() != self.log.segments().len() {
            *segments = self.log.segments().to_vec();
        }
        Ok(Ok(()))
    }
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>> {
        let mut acknowledgements = Vec::with_capacity(orders.len());
        for order in orders {
            let (done, acknowledged) = oneshot::channel();
            let append = Append { payload: Some(message::encode(order)), done };
            acknowledgements.push(self.appends.try_send(append).map(|()| acknowledged));
        }
        let mut results = Vec::with_capacity(orders.len());
        for acknowledgement in acknowledgements {
            results.push(match acknowledgement {
                Ok(acknowledged) => acknowledged.await.unwrap_or_else(|_| Err(writer_stopped())),
                Err(not_sent) => Err(refused(&not_sent)),
            });
        }
        results
    }

    fn accepting(&self) -> Result<(), BackendError> {
        if self.shared.full.load(Ordering::Relaxed) {
            // Whoever asks lets the writer look again; an answer is not waited for.
            let (done, _) = oneshot::channel();
            let _ = self.appends.try_send(Append { payload: None, done });
            return Err(BackendError::new(Layer::Queue, Fault::Transient, "the disk is full"));
        }
        if self.appends.is_closed() {
            return Err(writer_stopped());
        }
        if self.appends.capacity() < WAITING_MAX / 8 {
            return Err(crowded());
        }
        Ok(())
    }

    async fn end_positions(&self) -> Result<Vec<Position>, BackendError> {
        let next = *self.shared.durable_end.borrow();
        Ok(vec![Position { topic: self.shared.topic.clone(), partition: 0, next }])
    }

    async fn reader(&self) -> Result<Box<dyn Reader>, BackendError> {
        Ok(Box::new(EmbeddedReader {
            shared: Arc::clone(&self.shared),
            durable_end: self.shared.durable_end.subscribe(),
            next: None,
            segment: None,
        }))
    }
}

struct EmbeddedReader {
    shared: Arc<Shared>,
    durable_end: watch::Receiver<u64>,
    next: Option<u64>,
    segment: Option<SegmentReader>,
}

impl EmbeddedReader {
    /// Records from `next` on, from one segment.
    fn read(&mut self, next: u64, end: u64, max: usize) -> io::Result<Vec<Delivered>> {
        let mut records = Vec::new();
        if self.segment.is_none() {
            let segments = self.shared.segments.lock().unwrap_or_else(PoisonError::into_inner);
            let holding = segments.iter().rfind(|segment| segment.first <= next).cloned();
            drop(segments);
            let Some(holding) = holding else {
                return Err(io::Error::other(format!("record {next} is no longer in the log")));
            };
            self.segment = Some(SegmentReader::open(self.shared.files.as_ref(), &holding)?);
        }
        let Some(reader) = &mut self.segment else { return Ok(records) };
        reader.read_to(end, |frame| {
            if frame.offset >= next {
                records.push(Delivered {
                    offset: frame.offset,
                    appended_at: frame.appended_at,
                    contents: message::decode(frame.payload),
                });
            }
            records.len() < max
        })?;
        if records.is_empty() {
            // This segment is read to its end: the next call opens the one behind it.
            self.segment = None;
        }
        Ok(records)
    }
}

#[async_trait]
impl Reader for EmbeddedReader {
    async fn seek(&mut self, positions: &[Position]) -> Result<(), BackendError> {
        self.segment = None;
        self.next =
            positions.iter().find(|it| it.topic == self.shared.topic && it.partition == 0).map(|it| it.next);
        Ok(())
    }

    async fn next(&mut self, max: usize, wait: Duration) -> Result<NextOutcome, BackendError> {
        let Some(next) = self.next else { return Ok(NextOutcome::Idle) };
        let end = match tokio::time::timeout(wait, self.durable_end.wait_for(|end| *end > next)).await {
            Ok(Ok(end)) => *end,
            Ok(Err(_)) | Err(_) => return Ok(NextOutcome::Idle),
        };
        let failed = |error| {
            BackendError::new(Layer::Queue, Fault::Transient, "the log cannot be read").caused_by(error)
        };
        let mut records = self.read(next, end, max).map_err(failed)?;
        if records.is_empty() {
            records = self.read(next, end, max).map_err(failed)?;
        }
        let Some(last) = records.last() else { return Ok(NextOutcome::Idle) };
        let behind = last.offset + 1;
        let from = Position { topic: self.shared.topic.clone(), partition: 0, next };
        self.next = Some(behind);
        Ok(NextOutcome::Batch(Batch { from, next: behind, records }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append() -> Append {
        Append { payload: None, done: oneshot::channel().0 }
    }

    #[test]
    fn a_writer_that_stopped_is_not_called_busy() {
        let (appends, waiting) = mpsc::channel(1);
        assert!(appends.try_send(append()).is_ok());
        let full = refused(&appends.try_send(append()).err().unwrap());
        assert_eq!((full.fault, full.to_string().contains("too many")), (Fault::Transient, true), "{full}");
        drop(waiting);
        let stopped = refused(&appends.try_send(append()).err().unwrap());
        let expected = (Fault::Ambiguous, true);
        assert_eq!((stopped.fault, stopped.to_string().contains("writer stopped")), expected, "{stopped}");
    }
}
