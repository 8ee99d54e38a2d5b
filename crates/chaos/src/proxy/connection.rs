//! One connection: reads from both sides, decides what becomes of each piece, writes to both sides.
//!
//! It is one task, so that requests and replies are matched without a lock. [`Connection::relay`] waits for
//! the next thing to happen; everything that follows from it is decided without waiting.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::watch;
use tokio::time::Instant;

use super::board::{Board, Installed};
use super::dialect::{Dialect, FRAME_BYTES_MAX, Trouble};
use super::ending::{self, End};
use super::lane::{Hears, Lane};
use super::open::Open;
use super::toxic::{Effect, Stream};

/// How many requests may be open before no more are read: Redis clients pipeline thousands.
const OPEN_REQUESTS_MAX: usize = 16_384;
/// How much is read at once, at the least.
const READ_BYTES: usize = 16 << 10;
/// How long the server may take to accept: it is on this machine, only a full backlog takes time.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// What happens next on a connection.
enum Event {
    Toxics,
    Read(Stream, io::Result<usize>),
    Wrote(Stream, io::Result<usize>),
    HeldUp(Stream),
    Due,
}

/// One connection of a client, and the one to the server that belongs to it.
pub(super) struct Connection {
    /// Connections are numbered as they are accepted, from one.
    pub(super) number: u64,
    pub(super) board: Arc<Board>,
    toxics: watch::Receiver<Vec<Arc<Installed>>>,
    /// The newest toxic that was considered for the whole connection.
    considered: u64,
    /// The lasting toxics that have fired: once for a connection, whichever stream met them.
    fired: Vec<u64>,
    pub(super) dialect: Dialect,
    pub(super) open: VecDeque<Open>,
    pub(super) up: Lane,
    pub(super) down: Lane,
}

impl Connection {
    pub(super) fn new(number: u64, board: Arc<Board>) -> Self {
        let (toxics, dialect) = (board.toxics.subscribe(), Dialect::new(board.protocol));
        let (open, up, down) = (VecDeque::new(), Lane::default(), Lane::default());
        Self { number, board, toxics, considered: 0, fired: Vec::new(), dialect, open, up, down }
    }

    /// Lives as long as the connection.
    pub(super) async fn run(mut self, client: TcpStream) {
        if let Some(end) = self.meet_toxics() {
            return ending::end(end, client, None).await;
        }
        if self.up.is_silent() && self.down.is_silent() {
            return self.hold(client).await;
        }
        let upstream = *self.board.upstream.borrow();
        let Some(upstream) = upstream else { return ending::end(End::Reset, client, None).await };
        let server = tokio::time::timeout(CONNECT_MAX, TcpStream::connect(upstream)).await;
        let Ok(Ok(mut server)) = server else { return ending::end(End::Reset, client, None).await };

        let mut client = client;
        let end = self.relay(&mut client, &mut server).await;
        ending::end(end, client, Some(server)).await;
    }

    /// Keeps a connection that the server never hears of, until its client goes or the toxic does.
    async fn hold(mut self, mut client: TcpStream) {
        self.note_lost(Stream::Upstream);
        while self.up.is_silent() && self.down.is_silent() {
            self.up.input.clear();
            self.up.input.reserve(READ_BYTES);
            tokio::select! {
                read = client.read_buf(&mut self.up.input) => {
                    if !read.is_ok_and(|count| count > 0) {
                        return;
                    }
                }
                _ = self.toxics.changed() => {
                    if let Some(end) = self.meet_toxics() {
                        return ending::end(end, client, None).await;
                    }
                }
            }
        }
        ending::end(End::Reset, client, None).await;
    }

    async fn relay(&mut self, client: &mut TcpStream, server: &mut TcpStream) -> End {
        for socket in [&*client, &*server] {
            if socket.set_nodelay(true).is_err() {
                return End::Reset;
            }
        }
        let (mut client, mut server) = (client.split(), server.split());
        loop {
            let event = self.next(&mut client, &mut server).await;
            if let Some(end) = self.decide(event) {
                return end;
            }
            for (lane, reader) in [(&mut self.up, &mut server.1), (&mut self.down, &mut client.1)] {
                // A reader that is gone already is noticed when it is read from.
                if lane.tells_end() && reader.shutdown().await.is_err() {
                    lane.break_off();
                }
            }
            if self.up.is_over() && self.down.is_over() {
                return End::Over;
            }
        }
    }

    /// Waits for what happens next.
    async fn next(
        &mut self,
        client: &mut (ReadHalf<'_>, WriteHalf<'_>),
        server: &mut (ReadHalf<'_>, WriteHalf<'_>),
    ) -> Event {
        let now = Instant::now();
        let (up, down) = (self.up.ready(now), self.down.ready(now));
        let due = self.up.due(now).into_iter().chain(self.down.due(now)).min();
        let hears_up = self.up.hears(self.open.len() < OPEN_REQUESTS_MAX);
        let hears_down = self.down.hears(true);
        tokio::select! {
            _ = self.toxics.changed() => Event::Toxics,
            it = server.1.write(up.as_deref().unwrap_or_default()), if up.is_some() => {
                Event::Wrote(Stream::Upstream, it)
            }
            it = client.1.write(down.as_deref().unwrap_or_default()), if down.is_some() => {
                Event::Wrote(Stream::Downstream, it)
            }
            it = hear(Stream::Upstream, hears_up, &mut client.0, &mut self.up.input) => it,
            it = hear(Stream::Downstream, hears_down, &mut server.0, &mut self.down.input) => it,
            () = tokio::time::sleep_until(due.unwrap_or(now)), if due.is_some() => Event::Due,
        }
    }

    /// Decides what follows from an event; says when that is the end.
    fn decide(&mut self, event: Event) -> Option<End> {
        // What was added before these bytes were sent must meet them.
        if matches!(event, Event::Toxics) || self.toxics.has_changed().unwrap_or(true) {
            let end = self.meet_toxics();
            if end.is_some() {
                return end;
            }
        }
        match event {
            Event::Toxics | Event::Due => {}
            Event::HeldUp(stream) => {
                let toxic = self.lane(stream).hold_up();
                self.fire_once(toxic);
            }
            Event::Wrote(stream, Ok(count)) => self.lane(stream).written(count),
            Event::Read(stream, Ok(0)) => self.ended(stream),
            Event::Read(_, Ok(_)) => {}
            Event::Wrote(Stream::Downstream, Err(_)) | Event::Read(Stream::Upstream, Err(_)) => {
                return self.gone(Stream::Upstream);
            }
            Event::Wrote(Stream::Upstream, Err(_)) | Event::Read(Stream::Downstream, Err(_)) => {
                return self.gone(Stream::Downstream);
            }
        }
        self.divide_and_cut()
    }

    /// Passes on what can be, and cuts what is due to be cut.
    fn divide_and_cut(&mut self) -> Option<End> {
        for trouble in [self.divide_up(), self.divide_down()].into_iter().filter_map(Result::err) {
            match trouble {
                Trouble::Unparsed => self.read_no_more(),
                Trouble::TooLarge => {
                    tracing::warn!(
                        connection = self.number,
                        frame.bytes.max = FRAME_BYTES_MAX,
                        "a frame is too large: its connection ends"
                    );
                    self.board.count(|counts| counts.too_large += 1);
                    return Some(End::Reset);
                }
            }
        }
        for held_up in [self.up.hold_up_read(), self.down.hold_up_read()] {
            self.fire_once(held_up);
        }
        let (ending, toxic) = self.up.due_cut().or_else(|| self.down.due_cut())?;
        self.board.fire(&toxic);
        Some(End::Cut(ending))
    }

    pub(super) fn lane(&mut self, stream: Stream) -> &mut Lane {
        match stream {
            Stream::Upstream => &mut self.up,
            Stream::Downstream => &mut self.down,
        }
    }

    /// The writer of a stream has ended in order: what is not a whole frame is passed on as it is.
    fn ended(&mut self, stream: Stream) {
        let lane = self.lane(stream);
        lane.end();
        if lane.is_silent() {
            // That it has ended is lost too.
            return self.note_lost(stream);
        }
        let rest = lane.input.split().freeze();
        if !rest.is_empty() {
            lane.push(rest, None);
        }
    }

    /// The writer of a stream is gone. The other side learns it at once, unless nothing passes that way.
    fn gone(&mut self, stream: Stream) -> Option<End> {
        if stream == Stream::Downstream && self.down.has_ended() {
            // It had said its last word before: that is still on its way to the client.
            self.up.break_off();
            return None;
        }
        if !self.lane(stream).is_silent() {
            return Some(End::Reset);
        }
        self.lane(stream).end();
        self.note_lost(stream);
        match stream {
            Stream::Upstream => self.down.break_off(),
            Stream::Downstream => self.up.break_off(),
        }
        None
    }

    /// Bytes of a silent stream were lost.
    pub(super) fn note_lost(&mut self, stream: Stream) {
        let toxic = self.lane(stream).lose();
        self.fire_once(toxic);
    }

    fn fire_once(&mut self, toxic: Option<Arc<Installed>>) {
        if let Some(toxic) = toxic.filter(|it| !self.fired.contains(&it.id)) {
            self.fired.push(toxic.id);
            self.board.fire(&toxic);
        }
    }

    /// Lifts what is no longer in force, and begins what is for the whole connection.
    fn meet_toxics(&mut self) -> Option<End> {
        let toxics = self.toxics.borrow_and_update().clone();
        let in_force = |toxic: &Installed| toxics.iter().any(|it| it.id == toxic.id);
        let whole = [self.up.lift(in_force), self.down.lift(in_force)];
        if whole.contains(&false) {
            return Some(End::Reset);
        }
        let considered = self.considered;
        self.considered = toxics.last().map_or(considered, |newest| newest.id);
        for toxic in toxics.iter().filter(|it| it.is_for_whole_connections() && it.id > considered) {
            if !toxic.is_for(self.number) || !toxic.take() {
                continue;
            }
            match toxic.effect() {
                Effect::Cut(_, ending) => {
                    self.board.fire(toxic);
                    return Some(End::CutAtOnce(ending));
                }
                effect => self.begin(effect, toxic),
            }
        }
        None
    }

    /// Begins an effect that lasts.
    pub(super) fn begin(&mut self, effect: Effect, toxic: &Arc<Installed>) {
        match effect {
            Effect::HalfOpen => {
                self.up.silence(toxic.clone(), false);
                self.down.silence(toxic.clone(), false);
            }
            Effect::OneWay(stream) => self.lane(stream).silence(toxic.clone(), false),
            Effect::Clog(stream) => self.lane(stream).clog(toxic.clone()),
            Effect::Delay(..)
            | Effect::Cut(..)
            | Effect::Refuse
            | Effect::SwallowReply(_)
            | Effect::Duplicate => {}
        }
    }
}

/// Waits for the writer of a stream.
async fn hear(stream: Stream, hears: Hears, reader: &mut ReadHalf<'_>, input: &mut BytesMut) -> Event {
    match hears {
        Hears::Bytes => {
            input.reserve(READ_BYTES);
            Event::Read(stream, reader.read_buf(input).await)
        }
        Hears::FirstHeldUp => {
            // It is looked at, not taken. Where that fails, the next reading says so.
            let _ = reader.peek(&mut [0]).await;
            Event::HeldUp(stream)
        }
        Hears::Nothing => std::future::pending().await,
    }
}
