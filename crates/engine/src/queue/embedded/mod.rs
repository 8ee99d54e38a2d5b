//! The queue in this process: a log on disk with one writer thread.
//!
//! Everything that arrives while the disk is busy is written and fsynced together (group commit).
//! Readers see only what was fsynced; a publisher hears "acknowledged" only after the fsync.

mod frame;
mod log;

pub use log::OpenError;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot, watch};

use super::{Queue, Reader, message};
use crate::clock::Clock;
use crate::delivery::{Batch, Delivered, Position, TopicId};
use crate::fault::{BackendError, Fault, Layer};
use crate::order::OrderPlaced;
use log::{Log, Segment, SegmentReader};

/// Records that may wait for the writer; more are refused at once.
const WAITING_MAX: usize = 65_536;

/// Most records made durable together.
const GROUP_MAX: usize = 4_096;

/// Bytes kept aside, so that on a full disk the ledger can still write payments.
const RESERVE_BYTES: usize = 8 * 1024 * 1024;

struct Append {
    payload: Vec<u8>,
    done: oneshot::Sender<Result<(), BackendError>>,
}

/// What the writer shares with publishers and readers.
struct Shared {
    topic: TopicId,
    durable_end: watch::Sender<u64>,
    segments: Mutex<Vec<Segment>>,
    full: AtomicBool,
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
    ) -> Result<Self, OpenError> {
        let io = |source| OpenError::Io { path: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(io)?;
        let topic = topic_of(folder).map_err(io)?;
        let log = Log::open(folder, recorded(&topic))?;
        let shared = Arc::new(Shared {
            topic,
            durable_end: watch::Sender::new(log.durable_end()),
            segments: Mutex::new(log.segments().to_vec()),
            full: AtomicBool::new(false),
        });
        let (appends, waiting) = mpsc::channel(WAITING_MAX);
        let reserve = Reserve { path: folder.join("reserve") };
        if let Err(error) = reserve.take() {
            tracing::warn!(%error, "no space could be kept aside for a full disk");
        }
        let writer = Writer { log, shared: Arc::clone(&shared), clock, reserve };
        std::thread::Builder::new()
            .name("queue-writer".to_owned())
            .spawn(move || writer.run(waiting))
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
        self.appends.try_send(Append { payload, done }).map_err(|_| crowded())?;
        acknowledged.await.unwrap_or_else(|_| Err(writer_stopped()))
    }
}

fn crowded() -> BackendError {
    BackendError::new(Layer::Queue, Fault::Transient, "too many orders wait for the disk")
}

fn writer_stopped() -> BackendError {
    BackendError::new(Layer::Queue, Fault::Ambiguous, "the log's writer stopped")
}

/// The log's own identity, made once.
fn topic_of(folder: &Path) -> io::Result<TopicId> {
    let path = folder.join("topic");
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => Ok(TopicId(text.trim().to_owned())),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => {
            let topic = format!("embedded-{:032x}", rand::random::<u128>());
            let mut file = File::create(&path)?;
            file.write_all(topic.as_bytes())?;
            file.sync_all()?;
            log::sync_folder(folder)?;
            Ok(TopicId(topic))
        }
    }
}

/// A file that is only there to be removed when the disk is full.
struct Reserve {
    path: PathBuf,
}

impl Reserve {
    /// Makes the file if it is not there whole.
    fn take(&self) -> io::Result<()> {
        if fs::metadata(&self.path).is_ok_and(|it| it.len() == RESERVE_BYTES as u64) {
            return Ok(());
        }
        let written = File::create(&self.path)
            .and_then(|mut file| file.write_all(&vec![0; RESERVE_BYTES]).and_then(|()| file.sync_all()));
        if written.is_err() {
            self.give_up();
        }
        written
    }

    fn give_up(&self) {
        if let Err(error) = fs::remove_file(&self.path)
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
    fn run(mut self, mut waiting: mpsc::Receiver<Append>) {
        let mut group = Vec::with_capacity(GROUP_MAX);
        while waiting.blocking_recv_many(&mut group, GROUP_MAX) > 0 {
            self.write(&mut group);
        }
    }

    fn write(&mut self, group: &mut Vec<Append>) {
        let (payloads, done): (Vec<_>, Vec<_>) = group.drain(..).map(|it| (it.payload, it.done)).unzip();
        if let Err(error) = self.append_and_sync(&payloads) {
            let what = error.to_string();
            for waiter in done {
                let _ = waiter.send(Err(BackendError::new(Layer::Queue, Fault::Ambiguous, what.clone())));
            }
            return;
        }
        self.shared.full.store(false, Ordering::Relaxed);
        self.shared.durable_end.send_replace(self.log.durable_end());
        for waiter in done {
            // A publisher that is gone belongs to a stopping server; its record stays.
            let _ = waiter.send(Ok(()));
        }
    }

    /// After an error nothing stands in the log now, though a crash might bring it back: the cut is
    /// not fsynced. A disk whose state is unknown ends the process: the next start reads what is
    /// really there.
    fn append_and_sync(&mut self, payloads: &[Vec<u8>]) -> io::Result<()> {
        if self.shared.full.load(Ordering::Relaxed) {
            self.reserve.take()?;
        }
        let appended = self.log.append(payloads, self.clock.now()).unwrap_or_else(|error| fatal(&error));
        if let Err(error) = appended {
            if error.kind() == io::ErrorKind::StorageFull {
                tracing::error!("the disk is full: no new orders until space is freed; payments go on");
                self.shared.full.store(true, Ordering::Relaxed);
                self.reserve.give_up();
            }
            return Err(error);
        }
        self.log.sync().unwrap_or_else(|error| fatal(&error));
        let mut segments = self.shared.segments.lock().unwrap_or_else(PoisonError::into_inner);
        if segments.len() != self.log.segments().len() {
            *segments = self.log.segments().to_vec();
        }
        Ok(())
    }
}

fn fatal(error: &io::Error) -> ! {
    tracing::error!(%error, "the log's disk failed and its state is unknown: stopping; check the disk, then start again");
    std::process::exit(70)
}

#[async_trait]
impl Queue for EmbeddedQueue {
    async fn publish(&self, orders: &[OrderPlaced]) -> Vec<Result<(), BackendError>> {
        let mut acknowledgements = Vec::with_capacity(orders.len());
        for order in orders {
            let (done, acknowledged) = oneshot::channel();
            let append = Append { payload: message::encode(order), done };
            acknowledgements.push(self.appends.try_send(append).map(|()| acknowledged));
        }
        let mut results = Vec::with_capacity(orders.len());
        for acknowledgement in acknowledgements {
            results.push(match acknowledgement {
                Ok(acknowledged) => acknowledged.await.unwrap_or_else(|_| Err(writer_stopped())),
                Err(_) => Err(crowded()),
            });
        }
        results
    }

    fn accepting(&self) -> Result<(), BackendError> {
        if self.shared.full.load(Ordering::Relaxed) {
            return Err(BackendError::new(Layer::Queue, Fault::Transient, "the disk is full"));
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
            self.segment = Some(SegmentReader::open(&holding)?);
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

    async fn next(&mut self, max: usize, wait: Duration) -> Result<Option<Batch>, BackendError> {
        let Some(next) = self.next else { return Ok(None) };
        let end = match tokio::time::timeout(wait, self.durable_end.wait_for(|end| *end > next)).await {
            Ok(Ok(end)) => *end,
            Ok(Err(_)) | Err(_) => return Ok(None),
        };
        let failed = |error| {
            BackendError::new(Layer::Queue, Fault::Transient, "the log cannot be read").caused_by(error)
        };
        let mut records = self.read(next, end, max).map_err(failed)?;
        if records.is_empty() {
            records = self.read(next, end, max).map_err(failed)?;
        }
        let Some(last) = records.last() else { return Ok(None) };
        let behind = last.offset + 1;
        let from = Position { topic: self.shared.topic.clone(), partition: 0, next };
        self.next = Some(behind);
        Ok(Some(Batch { from, next: behind, records }))
    }
}
