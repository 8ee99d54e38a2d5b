//! One direction of one connection: what was read of it, and what is still to be written.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::board::Installed;
use super::toxic::Ending;

/// How much may wait to be written before no more is read: what is behind it is held up in the sockets.
const WAITING_BYTES_MAX: usize = 1 << 20;

/// For how long something is held back, and by which toxic.
#[derive(Clone)]
pub(super) struct Delay {
    by: Duration,
    toxic: Arc<Installed>,
}

impl Delay {
    /// The longer one of a delay and another.
    pub(super) fn longer(delay: Option<Self>, by: Duration, toxic: &Arc<Installed>) -> Option<Self> {
        let other = Self { by, toxic: toxic.clone() };
        Some(delay.filter(|it| it.by >= by).unwrap_or(other))
    }
}

/// What waits to be written.
struct Waiting {
    /// Not before this time, while the toxic is in force.
    due: Option<(Instant, Arc<Installed>)>,
    bytes: Bytes,
    /// The cut that follows when the bytes are written.
    cut: Option<(Ending, Arc<Installed>)>,
}

/// An effect that lasts.
struct Lasting {
    toxic: Arc<Installed>,
    /// Whether bytes have met it: they are lost by a silence, and held up by a clog.
    met: bool,
}

/// What is to be heard of a writer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hears {
    /// Its bytes.
    Bytes,
    /// Only that there are some, which are held up.
    FirstHeldUp,
    /// Nothing.
    Nothing,
}

/// One direction of one connection.
#[derive(Default)]
pub(super) struct Lane {
    /// Read and not yet divided.
    pub(super) input: BytesMut,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    silence: Option<Lasting>,
    clog: Option<Lasting>,
    /// Nothing more is read, since the connection is about to be cut.
    sealed: bool,
    /// The writer has said its last word.
    ended: bool,
    /// The reader has been told so.
    told: bool,
    /// The reader is gone.
    broken: bool,
}

impl Lane {
    /// What is to be heard of the writer now, where `room` says that more requests may come.
    pub(super) fn hears(&self, room: bool) -> Hears {
        match &self.clog {
            Some(clog) if !clog.met => Hears::FirstHeldUp,
            Some(_) => Hears::Nothing,
            None if self.ended || self.sealed => Hears::Nothing,
            None if room && self.waiting_bytes < WAITING_BYTES_MAX => Hears::Bytes,
            None => Hears::Nothing,
        }
    }

    /// Whether what was read should be divided and passed on now.
    pub(super) fn divides(&self) -> bool {
        !self.sealed && self.clog.is_none()
    }

    pub(super) fn is_silent(&self) -> bool {
        self.silence.is_some()
    }

    /// Puts `bytes` behind what waits already, to be written after `delay` at the earliest.
    pub(super) fn push(&mut self, bytes: Bytes, delay: Option<Delay>) {
        if self.broken {
            return;
        }
        let due = delay.map(|delay| (Instant::now() + delay.by, delay.toxic));
        self.waiting_bytes += bytes.len();
        self.waiting.push_back(Waiting { due, bytes, cut: None });
    }

    /// Cuts the connection when all that waits is written; what comes later is not read.
    pub(super) fn cut(&mut self, ending: Ending, toxic: Arc<Installed>) {
        self.sealed = true;
        self.waiting.push_back(Waiting { due: None, bytes: Bytes::new(), cut: Some((ending, toxic)) });
    }

    /// What is to be written now.
    pub(super) fn ready(&self, now: Instant) -> Option<Bytes> {
        let first = self.waiting.front()?;
        (!first.bytes.is_empty() && first.due.as_ref().is_none_or(|(due, _)| *due <= now))
            .then(|| first.bytes.clone())
    }

    /// When what waits first may be written, when that is later.
    pub(super) fn due(&self, now: Instant) -> Option<Instant> {
        let (due, _) = self.waiting.front()?.due.as_ref()?;
        (*due > now).then_some(*due)
    }

    /// Takes off what was written.
    pub(super) fn written(&mut self, count: usize) {
        if let Some(first) = self.waiting.front_mut() {
            first.bytes = first.bytes.slice(count..);
            self.waiting_bytes -= count;
        }
        while self.waiting.front().is_some_and(|it| it.bytes.is_empty() && it.cut.is_none()) {
            self.waiting.pop_front();
        }
    }

    /// The cut that is due, now that all before it is written.
    pub(super) fn due_cut(&mut self) -> Option<(Ending, Arc<Installed>)> {
        self.waiting.front_mut().filter(|it| it.bytes.is_empty())?.cut.take()
    }

    /// From now on nothing is passed on. `met` says that bytes are lost already.
    pub(super) fn silence(&mut self, toxic: Arc<Installed>, met: bool) {
        if self.silence.is_none() {
            self.silence = Some(Lasting { toxic, met });
        }
    }

    /// From now on nothing is read.
    pub(super) fn clog(&mut self, toxic: Arc<Installed>) {
        if self.clog.is_none() {
            self.clog = Some(Lasting { toxic, met: false });
        }
    }

    /// Notes that something was lost, and by which toxic; `None` when that was known.
    pub(super) fn lose(&mut self) -> Option<Arc<Installed>> {
        meet(self.silence.as_mut())
    }

    /// Notes that bytes wait unread, and by which toxic; `None` when that was known.
    pub(super) fn hold_up(&mut self) -> Option<Arc<Installed>> {
        meet(self.clog.as_mut())
    }

    /// The same where bytes had been read before the clog.
    pub(super) fn hold_up_read(&mut self) -> Option<Arc<Installed>> {
        if self.input.is_empty() { None } else { self.hold_up() }
    }

    /// Ends the effects that are no longer in force. False when bytes were lost: a stream with a hole in
    /// it cannot go on.
    pub(super) fn lift(&mut self, in_force: impl Fn(&Installed) -> bool) -> bool {
        for waiting in &mut self.waiting {
            waiting.due = waiting.due.take().filter(|(_, toxic)| in_force(toxic));
        }
        self.clog = self.clog.take().filter(|clog| in_force(&clog.toxic));
        match self.silence.take() {
            Some(silence) if !in_force(&silence.toxic) => !silence.met,
            still => {
                self.silence = still;
                true
            }
        }
    }

    /// The writer has ended: nothing more will be read.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// The reader is gone, and the writer must not learn it: what is still to come is dropped.
    pub(super) fn break_off(&mut self) {
        self.broken = true;
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Whether the reader is to be told that the writer has ended.
    pub(super) fn tells_end(&mut self) -> bool {
        let tells = self.ended && self.waiting.is_empty() && !self.is_silent() && !self.broken && !self.told;
        self.told |= tells;
        tells
    }

    /// Whether nothing will happen any more.
    pub(super) fn is_over(&self) -> bool {
        self.ended && self.waiting.is_empty()
    }
}

fn meet(lasting: Option<&mut Lasting>) -> Option<Arc<Installed>> {
    let lasting = lasting.filter(|it| !it.met)?;
    lasting.met = true;
    Some(lasting.toxic.clone())
}
