//! The segmented append log on disk: open, append, make durable.
//!
//! A segment is a file named by the offset of its first record. Only the last one is written.
//! Opening decides what a bad tail is: *torn* (the last write never finished and nobody was told
//! of it: cut off) or *corruption* (a later frame says it had been durable: refuse to start).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

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

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> OpenError + '_ {
    |source| OpenError::Io { path: path.to_owned(), source }
}

/// Where one segment begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) first: u64,
    pub(super) path: PathBuf,
}

/// The writing side of the log; one per folder.
pub(super) struct Log {
    folder: PathBuf,
    segments: Vec<Segment>,
    file: File,
    /// Bytes of the last segment that hold whole frames.
    good_bytes: u64,
    /// Offset of the next record.
    end: u64,
    /// Every smaller offset was fsynced.
    durable_end: u64,
    buffer: Vec<u8>,
}

impl Log {
    /// Opens the log in `folder`, making it if there is none, and cuts off a torn tail. Segments
    /// wholly below `recorded`, which the ledger has, are removed.
    pub(super) fn open(folder: &Path, recorded: u64) -> Result<Self, OpenError> {
        fs::create_dir_all(folder).map_err(io_error(folder))?;
        let mut segments = list(folder).map_err(io_error(folder))?;
        while segments.len() > 1 && segments[1].first <= recorded {
            let old = segments.remove(0);
            fs::remove_file(&old.path).map_err(io_error(&old.path))?;
        }
        if segments.is_empty() {
            segments.push(create(folder, 0).map_err(io_error(folder))?);
        }
        let first = segments[0].first;
        if first > recorded {
            return Err(OpenError::Missing { path: folder.to_owned(), first, recorded });
        }
        let (good_bytes, end) = recover(&mut segments)?;
        if end < recorded {
            return Err(OpenError::BehindLedger { path: folder.to_owned(), end, recorded });
        }
        let last = &segments[segments.len() - 1].path;
        let file = open_to_append(last, good_bytes).map_err(io_error(last))?;
        sync_folder(folder).map_err(io_error(folder))?;
        Ok(Self {
            folder: folder.to_owned(),
            segments,
            file,
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

    /// Writes records behind the end. After an error nothing of them is in the log.
    ///
    /// # Errors
    /// `Ok(Err(_))`: not written, the log is as before. `Err(_)`: the log could not be put back
    /// either; it must not be used any more.
    pub(super) fn append(&mut self, payloads: &[Vec<u8>], now: Timestamp) -> io::Result<io::Result<()>> {
        if self.good_bytes >= SEGMENT_BYTES
            && let Err(error) = self.begin_segment()
        {
            return Ok(Err(error));
        }
        self.buffer.clear();
        for (payload, offset) in payloads.iter().zip(self.end..) {
            let frame = Frame { offset, durable_end: self.durable_end, appended_at: now, payload };
            frame.write_to(&mut self.buffer);
        }
        if let Err(error) = self.file.write_all(&self.buffer) {
            // Whole frames of it may be in the file: they must not be read after a restart as if
            // they had been meant, nor stand between here and the next good frame.
            self.file.set_len(self.good_bytes)?;
            self.file.seek(SeekFrom::Start(self.good_bytes))?;
            return Ok(Err(error));
        }
        self.good_bytes += self.buffer.len() as u64;
        self.end += payloads.len() as u64;
        Ok(Ok(()))
    }

    /// Makes everything written durable. After an error the state of the disk is unknown: the
    /// process must end.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        rustix::fs::fdatasync(&self.file)?;
        self.durable_end = self.end;
        Ok(())
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let segment = create(&self.folder, self.end)?;
        self.file = open_to_append(&segment.path, 0)?;
        self.good_bytes = 0;
        self.segments.push(segment);
        Ok(())
    }
}

fn list(folder: &Path) -> io::Result<Vec<Segment>> {
    let mut segments = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|extension| extension == SUFFIX);
        let first = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok());
        if let (true, Some(first)) = (is_log, first) {
            segments.push(Segment { first, path });
        }
    }
    segments.sort_by_key(|segment| segment.first);
    Ok(segments)
}

fn create(folder: &Path, first: u64) -> io::Result<Segment> {
    let path = folder.join(format!("{first:020}.{SUFFIX}"));
    File::create(&path)?;
    sync_folder(folder)?;
    Ok(Segment { first, path })
}

/// A new file's name is durable only once its folder is.
pub(super) fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn open_to_append(path: &Path, good_bytes: u64) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() != good_bytes {
        file.set_len(good_bytes)?;
        file.sync_all()?;
    }
    file.seek(SeekFrom::Start(good_bytes))?;
    Ok(file)
}

/// Reads every segment and answers how many bytes of the last one are good and where the log
/// ends. Segments behind a torn place are removed.
fn recover(segments: &mut Vec<Segment>) -> Result<(u64, u64), OpenError> {
    let mut end = segments[0].first;
    for index in 0..segments.len() {
        let segment = segments[index].clone();
        if segment.first != end {
            let offset = end;
            return Err(OpenError::Corrupt { path: segment.path, at: 0, offset });
        }
        let bytes = fs::read(&segment.path).map_err(io_error(&segment.path))?;
        let good = good_prefix(&bytes, &mut end);
        let is_last = index + 1 == segments.len();
        if is_last && good == bytes.len() {
            return Ok((good as u64, end));
        }
        if good < bytes.len() || !is_last && segments[index + 1].first != end {
            let mut tail = vec![bytes[good..].to_vec()];
            for later in &segments[index + 1..] {
                tail.push(fs::read(&later.path).map_err(io_error(&later.path))?);
            }
            if tail.iter().any(|bytes| frame::any_calls_durable(bytes, end)) {
                return Err(OpenError::Corrupt { path: segment.path, at: good as u64, offset: end });
            }
            for torn in segments.drain(index + 1..) {
                fs::remove_file(&torn.path).map_err(io_error(&torn.path))?;
            }
            tracing::warn!(
                offset = end,
                bytes = bytes.len() - good,
                "cut off a torn end of the log; nobody was told of it"
            );
            return Ok((good as u64, end));
        }
    }
    Ok((0, end))
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
    file: File,
    /// Where in the file the next frame begins.
    at: u64,
    next: u64,
}

/// Bytes read from the file at a time.
const READ_BYTES: usize = 256 * 1024;

impl SegmentReader {
    pub(super) fn open(segment: &Segment) -> io::Result<Self> {
        Ok(Self { file: File::open(&segment.path)?, at: 0, next: segment.first })
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
        self.file.seek(SeekFrom::Start(self.at))?;
        while self.next < durable_end {
            let Some(frame) = frame::read(&buffer[used..]) else {
                buffer.drain(..used);
                used = 0;
                if self.fill(&mut buffer)? == 0 {
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

    fn fill(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let kept = buffer.len();
        buffer.resize(kept + READ_BYTES, 0);
        let count = self.file.read(&mut buffer[kept..])?;
        buffer.truncate(kept + count);
        Ok(count)
    }
}
