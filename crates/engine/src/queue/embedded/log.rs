//! The segmented append log on disk: open, append, make durable.
//!
//! A segment is a file named by the offset of its first record. Only the last one is written.
//! Opening decides what a bad tail is: *torn* (the last write never finished and nobody was told
//! of it: cut off) or *corruption* (a later frame says it had been durable: refuse to start).

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::files::{Appender, Files, ReadAt};
use super::frame::{self, Frame};
use crate::clock::Timestamp;

/// A new segment begins when the last one has this many bytes.
pub(super) const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

const SUFFIX: &str = "log";

/// Why a log cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file system refused.
    #[error("the log in {path} cannot be opened: {source}")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A record that had been durable is damaged.
    #[error(
        "the log is damaged: record {offset} in {path} at byte {at} had been durable and cannot be read any more. \
         Orders answered with 202 may be in it, so nothing is cut off. Restore the file from a copy of the disk"
    )]
    Corrupt {
        /// The segment.
        path: PathBuf,
        /// Where in it.
        at: u64,
        /// The first offset that is lost.
        offset: u64,
    },
    /// Records that the ledger does not have are no longer in the log.
    #[error(
        "the log in {path} begins at record {first}, but the ledger has only recorded up to {recorded}: \
         the segments between are missing. Orders answered with 202 may be in them: restore the folder whole"
    )]
    Missing {
        /// The log's folder.
        path: PathBuf,
        /// Where the log begins.
        first: u64,
        /// Where the ledger is.
        recorded: u64,
    },
    /// The log ends before what the ledger has recorded from it.
    #[error(
        "the log in {path} ends at record {end}, but the ledger has recorded up to {recorded}: \
         the log was replaced or lost its end. Restore the log that belongs to this ledger"
    )]
    BehindLedger {
        /// The log's folder.
        path: PathBuf,
        /// Where the log ends.
        end: u64,
        /// Where the ledger is.
        recorded: u64,
    },
}

fn io_error(files: &dyn Files, name: &str) -> impl FnOnce(io::Error) -> OpenError {
    let path = files.path().join(name);
    |source| OpenError::Io { path, source }
}

/// Where one segment begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) name: String,
}

impl Segment {
    fn beginning_at(first: u64) -> Self {
        Self { first, name: format!("{first:020}.{SUFFIX}") }
    }
}

/// The writing side of the log; one per folder.
pub(super) struct Log {
    files: Arc<dyn Files>,
    segments: Vec<Segment>,
    file: Box<dyn Appender>,
    segment_bytes: u64,
    /// Bytes of the last segment that hold whole frames.
    good_bytes: u64,
    /// Offset of the next record.
    end: u64,
    /// Every smaller offset was made durable.
    durable_end: u64,
    buffer: Vec<u8>,
}

impl Log {
    /// Opens the log in this folder, making it if there is none, and cuts off a torn tail.
    /// Segments wholly below `recorded`, which the ledger has, are removed. A new segment begins
    /// when the last one has `segment_bytes`.
    pub(super) fn open(files: Arc<dyn Files>, recorded: u64, segment_bytes: u64) -> Result<Self, OpenError> {
        let io = |source| io_error(files.as_ref(), "")(source);
        let mut segments = list(files.as_ref()).map_err(io)?;
        while segments.len() > 1 && segments[1].first <= recorded {
            let old = segments.remove(0);
            files.remove(&old.name).map_err(io_error(files.as_ref(), &old.name))?;
        }
        if segments.is_empty() {
            segments.push(Segment::beginning_at(0));
        }
        let first = segments[0].first;
        if first > recorded {
            return Err(OpenError::Missing { path: files.path(), first, recorded });
        }
        let Recovered { good_bytes, end, torn } = recover(files.as_ref(), &segments)?;
        if end < recorded {
            return Err(OpenError::BehindLedger { path: files.path(), end, recorded });
        }
        if let Some(last) = torn {
            tracing::warn!(offset = end, "cut off a torn end of the log; nobody was told of it");
            for segment in segments.drain(last + 1..) {
                files.remove(&segment.name).map_err(io_error(files.as_ref(), &segment.name))?;
            }
        }
        let last = &segments[segments.len() - 1].name;
        let mut file = files.write_behind(last, good_bytes).map_err(io_error(files.as_ref(), last))?;
        // What was cut off must not come back, and the names must stay.
        file.sync().and_then(|()| files.sync_folder()).map_err(io)?;
        Ok(Self {
            files,
            segments,
            file,
            segment_bytes,
            good_bytes,
            end,
            durable_end: end,
            buffer: Vec::new(),
        })
    }

    pub(super) fn durable_end(&self) -> u64 {
        self.durable_end
    }

    pub(super) fn segments(&self) -> &[Segment] {
        &self.segments
    }

    /// Writes records behind the end. After an inner error nothing of them is in the log; after an
    /// outer one the log could not be put back either and must not be used any more.
    pub(super) fn append(&mut self, payloads: &[Vec<u8>], now: Timestamp) -> io::Result<io::Result<()>> {
        if self.good_bytes >= self.segment_bytes
            && let Err(error) = self.begin_segment()
        {
            return Ok(Err(error));
        }
        self.buffer.clear();
        for (payload, offset) in payloads.iter().zip(self.end..) {
            let frame = Frame { offset, durable_end: self.durable_end, appended_at: now, payload };
            frame.write_to(&mut self.buffer);
        }
        if let Err(error) = self.file.append(&self.buffer) {
            // Whole frames of it may be in the file: they must not be read after a restart as if
            // they had been meant, nor stand between here and the next good frame.
            self.file.cut(self.good_bytes)?;
            return Ok(Err(error));
        }
        self.good_bytes += self.buffer.len() as u64;
        self.end += payloads.len() as u64;
        Ok(Ok(()))
    }

    /// Makes everything written durable. After an error the state of the disk is unknown: the
    /// process must end.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.file.sync()?;
        self.durable_end = self.end;
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let segment = Segment::beginning_at(self.end);
        let file = self.files.write_behind(&segment.name, 0)?;
        self.files.sync_folder()?;
        self.file = file;
        self.good_bytes = 0;
        self.segments.push(segment);
        Ok(())
    }
}

fn list(files: &dyn Files) -> io::Result<Vec<Segment>> {
    let parse = |name: String| {
        let first = name.strip_suffix(SUFFIX)?.strip_suffix('.')?.parse().ok()?;
        Some(Segment { first, name })
    };
    let mut segments: Vec<Segment> = files.list()?.into_iter().filter_map(parse).collect();
    segments.sort_by_key(|segment| segment.first);
    Ok(segments)
}

/// What a log's segments hold.
struct Recovered {
    /// Bytes of whole frames in the last segment that counts.
    good_bytes: u64,
    /// Where the log ends.
    end: u64,
    /// The index of the segment with a torn end; later ones hold nothing.
    torn: Option<usize>,
}

/// Reads every segment; changes nothing.
fn recover(files: &dyn Files, segments: &[Segment]) -> Result<Recovered, OpenError> {
    let mut end = segments[0].first;
    let read = |segment: &Segment| match files.read(&segment.name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(io_error(files, &segment.name)),
    };
    for (index, segment) in segments.iter().enumerate() {
        let bytes = read(segment)?;
        let good = good_prefix(&bytes, &mut end);
        let joins = segments.get(index + 1).is_none_or(|next| next.first == end);
        let whole = good == bytes.len() && joins;
        if whole && index + 1 == segments.len() {
            return Ok(Recovered { good_bytes: good as u64, end, torn: None });
        }
        if whole {
            continue;
        }
        let mut tail = vec![bytes[good..].to_vec()];
        for later in &segments[index + 1..] {
            tail.push(read(later)?);
        }
        if tail.iter().any(|bytes| frame::any_calls_durable(bytes, end)) {
            let path = files.path().join(&segment.name);
            return Err(OpenError::Corrupt { path, at: good as u64, offset: end });
        }
        return Ok(Recovered { good_bytes: good as u64, end, torn: Some(index) });
    }
    Ok(Recovered { good_bytes: 0, end, torn: None })
}

/// Bytes of whole frames at the start that go on from `end`, which moves behind them.
fn good_prefix(bytes: &[u8], end: &mut u64) -> usize {
    let mut at = 0;
    while let Some(frame) = frame::read(&bytes[at..]) {
        if frame.offset != *end {
            break;
        }
        *end += 1;
        at += frame.size();
    }
    at
}

/// Reads frames from one segment on; remembers the place in the file.
pub(super) struct SegmentReader {
    file: Box<dyn ReadAt>,
    /// Where in the file the next frame begins.
    at: u64,
    next: u64,
}

/// Bytes read from the file at a time.
const READ_BYTES: usize = 256 * 1024;

impl SegmentReader {
    pub(super) fn open(files: &dyn Files, segment: &Segment) -> io::Result<Self> {
        Ok(Self { file: files.open(&segment.name)?, at: 0, next: segment.first })
    }

    /// Calls `take` with each frame from here up to the offset `durable_end`, until it answers
    /// false or the segment ends.
    ///
    /// Nothing read is kept for the next call: bytes behind the durable end may be cut off and
    /// written anew by then.
    pub(super) fn read_to(
        &mut self,
        durable_end: u64,
        mut take: impl FnMut(&Frame<'_>) -> bool,
    ) -> io::Result<()> {
        let mut buffer = Vec::new();
        let mut used = 0;
        while self.next < durable_end {
            let Some(frame) = frame::read(&buffer[used..]) else {
                buffer.drain(..used);
                used = 0;
                let kept = buffer.len();
                buffer.resize(kept + READ_BYTES, 0);
                let count = self.file.read_at(self.at + kept as u64, &mut buffer[kept..])?;
                buffer.truncate(kept + count);
                if count == 0 {
                    return Ok(());
                }
                continue;
            };
            used += frame.size();
            self.at += frame.size() as u64;
            self.next += 1;
            if !take(&frame) {
                return Ok(());
            }
        }
        Ok(())
    }
}
