//! A folder that forgets what was not made durable.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use doorbuster_engine::queue::{Appender, Files, ReadAt};

use crate::random::Random;

/// One call that makes something durable; each can be left out, to see that a test notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sync {
    /// Of a log's records, before they are acknowledged.
    Records,
    /// Of a log's end, when it is opened.
    OpenedLog,
    /// Of the folder, for the first segment's name.
    FirstSegmentName,
    /// Of the folder, for a further segment's name.
    NextSegmentName,
    /// Of the topic's identity.
    Topic,
    /// Of the folder, for the topic's name.
    TopicName,
}

impl Sync {
    pub(crate) const ALL: [Self; 6] = [
        Self::Records,
        Self::OpenedLog,
        Self::FirstSegmentName,
        Self::NextSegmentName,
        Self::Topic,
        Self::TopicName,
    ];
}

/// Something written and not yet durable.
#[derive(Clone)]
enum Pending {
    Append(Vec<u8>),
    Cut(usize),
}

#[derive(Clone, Default)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<Pending>,
}

impl Contents {
    fn apply(bytes: &mut Vec<u8>, change: &Pending) {
        match change {
            Pending::Append(more) => bytes.extend(more),
            Pending::Cut(keep) => bytes.truncate(*keep),
        }
    }

    fn change(&mut self, change: Pending) {
        Self::apply(&mut self.now, &change);
        self.pending.push(change);
    }

    /// Some of what was pending reached the disk, the last of it perhaps in part.
    fn lose(&mut self, random: &mut Random) {
        let mut bytes = std::mem::take(&mut self.durable);
        let reached = random.below(self.pending.len() as u64 + 1);
        for (index, change) in (0..).zip(&self.pending) {
            if index < reached {
                Self::apply(&mut bytes, change);
            } else if let (true, Pending::Append(more)) = (index == reached && random.one_in(2), change) {
                let torn = usize::try_from(random.below(more.len() as u64 + 1)).unwrap();
                bytes.extend(&more[..torn]);
            }
        }
        *self = Self { now: bytes.clone(), durable: bytes, pending: Vec::new() };
    }
}

#[derive(Default)]
struct State {
    files: Vec<Contents>,
    names: BTreeMap<String, usize>,
    durable_names: BTreeMap<String, usize>,
    full: bool,
    /// Calls until the power goes; everything fails from then on.
    calls_left: Option<u64>,
    left_out: Option<Sync>,
    calls: u64,
    syncs: BTreeMap<Sync, u64>,
}

/// The folder. Copies are the same folder.
#[derive(Clone, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

impl Disk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A call about the file `name`. Calls about the space kept aside are made beside the main path
    /// and do not count, so that the power goes at the same call each time.
    fn call_about(&self, name: &str) -> io::Result<MutexGuard<'_, State>> {
        if name == "reserve" { Ok(self.state()) } else { self.call() }
    }

    fn call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        state.calls += 1;
        match &mut state.calls_left {
            Some(0) => return Err(io::Error::other("the power is off")),
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(state)
    }

    pub(crate) fn leave_out(&self, sync: Option<Sync>) {
        self.state().left_out = sync;
    }

    pub(crate) fn fill_up(&self, full: bool) {
        self.state().full = full;
    }

    /// The power goes after so many more calls.
    pub(crate) fn power_off_after(&self, calls: u64) {
        self.state().calls_left = Some(calls);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.state().full
    }

    pub(crate) fn is_off(&self) -> bool {
        self.state().calls_left == Some(0)
    }

    /// The power goes now, and comes back: what was not durable may be gone or torn.
    pub(crate) fn lose_power(&self, random: &mut Random) {
        let mut state = self.state();
        state.calls_left = None;
        for contents in &mut state.files {
            contents.lose(random);
        }
        let (now, durable) = (state.names.clone(), state.durable_names.clone());
        let mut left = BTreeMap::new();
        for name in now.keys().chain(durable.keys()) {
            match (now.get(name), durable.get(name)) {
                (Some(a), Some(b)) if a == b => drop(left.insert(name.clone(), *a)),
                (Some(a), None) | (None, Some(a)) if random.one_in(2) => drop(left.insert(name.clone(), *a)),
                (Some(a), Some(b)) => drop(left.insert(name.clone(), if random.one_in(2) { *a } else { *b })),
                _ => {}
            }
        }
        state.durable_names = left.clone();
        state.names = left;
    }

    /// The process is gone, the machine is not: nothing is lost, nothing is more durable.
    pub(crate) fn survive(&self) {
        self.state().calls_left = None;
    }

    /// How often each sync was asked for.
    pub(crate) fn syncs(&self) -> BTreeMap<Sync, u64> {
        self.state().syncs.clone()
    }
}

impl State {
    /// Whether this sync is to be done.
    fn does(&mut self, sync: Sync) -> bool {
        *self.syncs.entry(sync).or_default() += 1;
        self.left_out != Some(sync)
    }
}

impl Files for Disk {
    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.call()?.names.keys().cloned().collect())
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        let state = self.call_about(name)?;
        let file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(state.files[*file].now.clone())
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn ReadAt>> {
        let file = *self.call()?.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(Handle { disk: self.clone(), file, name: name.to_owned(), appended: false }))
    }

    fn write_behind(&self, name: &str, keep: u64) -> io::Result<Box<dyn Appender>> {
        let mut state = self.call_about(name)?;
        let file = match state.names.get(name).copied() {
            Some(file) => file,
            None if keep > 0 => return Err(io::ErrorKind::NotFound.into()),
            None => {
                state.files.push(Contents::default());
                let file = state.files.len() - 1;
                state.names.insert(name.to_owned(), file);
                file
            }
        };
        drop(state);
        let mut handle = Handle { disk: self.clone(), file, name: name.to_owned(), appended: false };
        handle.cut(keep)?;
        Ok(Box::new(handle))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.call_about(name)?.names.remove(name).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self) -> io::Result<()> {
        let mut state = self.call()?;
        let new = |state: &State, wanted: fn(&str) -> bool| {
            state.names.keys().any(|name| !state.durable_names.contains_key(name) && wanted(name))
        };
        let first = |name: &str| name.ends_with(".log") && name.starts_with("00000000000000000000.");
        let sync = if new(&state, |name| name == "topic") {
            Some(Sync::TopicName)
        } else if new(&state, first) {
            Some(Sync::FirstSegmentName)
        } else if new(&state, |name| name.ends_with(".log")) {
            Some(Sync::NextSegmentName)
        } else {
            None
        };
        if sync.is_none_or(|sync| state.does(sync)) {
            state.durable_names = state.names.clone();
        }
        Ok(())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("simulated")
    }
}

struct Handle {
    disk: Disk,
    file: usize,
    name: String,
    appended: bool,
}

impl ReadAt for Handle {
    fn read_at(&mut self, at: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.call()?;
        let rest = state.files[self.file].now.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

impl Appender for Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.disk.call_about(&self.name)?;
        self.appended = true;
        if state.full && self.name != "topic" {
            // Half of it still fitted.
            state.files[self.file].change(Pending::Append(bytes[..bytes.len() / 2].to_vec()));
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.files[self.file].change(Pending::Append(bytes.to_vec()));
        Ok(())
    }

    fn cut(&mut self, keep: u64) -> io::Result<()> {
        self.disk.call_about(&self.name)?.files[self.file]
            .change(Pending::Cut(usize::try_from(keep).unwrap()));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.disk.call_about(&self.name)?;
        let sync = match self.name.as_str() {
            "topic" => Some(Sync::Topic),
            "reserve" => None,
            _ if self.appended => Some(Sync::Records),
            _ => Some(Sync::OpenedLog),
        };
        if sync.is_none_or(|sync| state.does(sync)) {
            let contents = &mut state.files[self.file];
            contents.durable = contents.now.clone();
            contents.pending.clear();
        }
        Ok(())
    }
}
