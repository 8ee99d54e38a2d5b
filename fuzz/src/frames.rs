//! The log's files: recovery reads exactly the whole frames at the beginning, and refuses where a
//! later frame says that more was durable.
//!
//! The first byte chooses: the rest is a segment's file, or the rest says how a good file is
//! changed. What is right is told by a second reader of frames, written from their description.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use doorbuster_engine::clock::{ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Decoded, Position};
use doorbuster_engine::queue::{
    Appender, EmbeddedQueue, Files, NextOutcome, OpenError, Queue, QueueOptions, ReadAt, decode, encode,
};

const SEGMENT: &str = "00000000000000000000.log";
const HEADER: usize = 32;
const MESSAGE_MAX: usize = 16 * 1024;
/// Frames of a good file.
const GOOD: u64 = 5;
/// Bytes that say one change.
const CHANGE: usize = 4;

pub(crate) fn run(bytes: &[u8]) {
    let Some((mode, rest)) = bytes.split_first() else { return };
    let file = if *mode % 2 == 0 { rest.to_vec() } else { changed(good(), rest) };
    let (expected, tail) = whole_frames(&file);
    let refused = calls_durable(tail, expected.len() as u64);

    let disk = Disk::default();
    disk.put(SEGMENT, &file);
    match open(&disk) {
        Err(OpenError::Io { source, .. }) => panic!("the disk has no faults: {source}"),
        Err(_) => assert!(refused, "{} frames are whole and nothing speaks of more", expected.len()),
        Ok(queue) => {
            assert!(!refused, "a durable record was lost silently");
            assert_eq!(records(&queue, expected.len() as u64), expected);
        }
    }
}

fn open(disk: &Disk) -> Result<EmbeddedQueue, OpenError> {
    let clock = Arc::new(ManualClock::at(Timestamp::from_ms(0)));
    let options = QueueOptions { reserve_bytes: 0, ..QueueOptions::default() };
    EmbeddedQueue::open_on(Arc::new(disk.clone()), |_| 0, clock, options)
}

/// Every record that the queue delivers.
fn records(queue: &EmbeddedQueue, expected: u64) -> Vec<Decoded> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime can be made").block_on(async {
        let end = queue.end_positions().await.expect("there is one partition").remove(0);
        assert_eq!(end.next, expected, "the log's end");
        let mut reader = queue.reader().await.expect("a reader can be made");
        reader.seek(&[Position { next: 0, ..end.clone() }]).await.expect("the log begins at 0");
        let mut read = Vec::new();
        while (read.len() as u64) < end.next {
            match reader.next(500, Duration::from_secs(10)).await.expect("the disk has no faults") {
                NextOutcome::Batch(batch) => read.extend(batch.records.into_iter().map(|it| it.contents)),
                other => panic!("records wait, and the reader says {other:?}"),
            }
        }
        read
    })
}

/// A file with frames that were made durable one after the other.
fn good() -> Vec<u8> {
    let mut file = Vec::new();
    for offset in 0..GOOD {
        let payload = encode(&sample::order_placed(offset));
        let mut frame = u32::try_from(payload.len()).expect("an order is short").to_le_bytes().to_vec();
        frame.extend([0; 4]);
        frame.extend(offset.to_le_bytes());
        frame.extend(offset.to_le_bytes());
        frame.extend(0_i64.to_le_bytes());
        frame.extend(payload);
        let crc = checksum(&frame);
        frame[4..8].copy_from_slice(&crc.to_le_bytes());
        file.extend(frame);
    }
    file
}

/// The file after changes of four bytes each: what, where (two bytes), and with which byte.
fn changed(mut file: Vec<u8>, changes: &[u8]) -> Vec<u8> {
    for change in changes.chunks_exact(CHANGE).take(8) {
        let at = usize::from(u16::from_le_bytes([change[1], change[2]])) % (file.len() + 1);
        let byte = change[3];
        match change[0] % 5 {
            0 => file.truncate(at),
            1 => file.insert(at, byte),
            2 => file.extend([byte].repeat(at % 100)),
            3 => drop(file.drain(at..(at + usize::from(byte)).min(file.len()))),
            _ => file.iter_mut().skip(at).take(1).for_each(|it| *it ^= byte),
        }
    }
    file
}

fn checksum(frame: &[u8]) -> u32 {
    crc32c::crc32c(&[&frame[..4], &frame[8..]].concat())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The frame at the start of `bytes`, if it is whole.
fn frame(bytes: &[u8]) -> Option<&[u8]> {
    let length = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let frame = bytes.get(..HEADER + length).filter(|_| length <= MESSAGE_MAX)?;
    (frame[4..8] == checksum(frame).to_le_bytes()).then_some(frame)
}

/// What the whole frames at the beginning say, up to the first that is none or out of order; and
/// what stands behind them.
fn whole_frames(mut file: &[u8]) -> (Vec<Decoded>, &[u8]) {
    let mut found = Vec::new();
    while let Some(frame) = frame(file).filter(|it| u64_at(it, 8) == found.len() as u64) {
        found.push(decode(&frame[HEADER..]));
        file = &file[frame.len()..];
    }
    (found, file)
}

/// Whether a whole frame anywhere in `tail` says that `offset` was durable before it was written.
fn calls_durable(tail: &[u8], offset: u64) -> bool {
    (0..tail.len()).filter_map(|at| frame(&tail[at..])).any(|it| {
        let (own, durable_end) = (u64_at(it, 8), u64_at(it, 16));
        durable_end > offset && durable_end <= own
    })
}

/// A folder in memory, without faults.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<BTreeMap<String, Vec<u8>>>>);

impl Disk {
    fn put(&self, name: &str, bytes: &[u8]) {
        self.with(|files| files.insert(name.to_owned(), bytes.to_vec()));
    }

    fn with<T>(&self, work: impl FnOnce(&mut BTreeMap<String, Vec<u8>>) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// One file of the folder.
struct Open {
    disk: Disk,
    name: String,
}

impl Open {
    fn with<T>(&self, work: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        self.disk.with(|files| work(files.entry(self.name.clone()).or_default()))
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.with(|files| files.keys().cloned().collect()))
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.with(|files| files.get(name).cloned()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        Ok(Box::new(Open { disk: self.clone(), name: name.to_owned() }))
    }

    fn write_behind(&self, name: &str, keep: u64) -> io::Result<Box<dyn Appender>> {
        let mut file = Open { disk: self.clone(), name: name.to_owned() };
        file.cut(keep)?;
        Ok(Box::new(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.with(|files| files.remove(name)).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        Ok(())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("memory")
    }
}

impl ReadAt for Open {
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.with(|file| {
            let rest = usize::try_from(at).ok().and_then(|at| file.get(at..)).unwrap_or_default();
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            count
        }))
    }
}

impl Appender for Open {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.with(|file| file.extend(bytes));
        Ok(())
    }

    fn cut(&mut self, keep: u64) -> io::Result<()> {
        self.with(|file| file.resize(usize::try_from(keep).unwrap_or(usize::MAX).min(file.len()), 0));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }
}
