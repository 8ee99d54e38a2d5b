//! One connection's deadlines: the head of a request, the idle time between requests, and a
//! request that never ends. One timer per connection that looks a few times in a deadline's
//! length, instead of one armed and disarmed for every request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Limits;

/// Longest time from a request's head to the end of its answer: the longest `?wait=` and the rest.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// Shortest time between two looks at a connection.
const LOOK_MIN: Duration = Duration::from_millis(10);
/// How long an answer that is made gets to leave when the server stops.
const LEAVE: Duration = Duration::from_millis(30);

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const ANSWERING: u64 = 2;

/// What a connection is doing, and since when: milliseconds since it was accepted, times four,
/// plus the state. One word, so that it changes in one step.
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    word: AtomicU64,
    suspicion: AtomicU8,
}

const NONE: u8 = 0;
const LAST_REQUEST: u8 = 1;
const BAD_HEAD: u8 = 2;

/// What is to be done with the request that is being answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    /// Answer it.
    Full,
    /// Answer it, and close the connection behind it.
    LastRequest,
    /// Refuse it, and close the connection.
    BadHead,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        // The first head is awaited as long as any head.
        Arc::new(Self {
            accepted: Instant::now(),
            word: AtomicU64::new(HEAD),
            suspicion: AtomicU8::new(NONE),
        })
    }

    fn set(&self, state: u64) -> Duration {
        let now = self.accepted.elapsed();
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX >> 2);
        self.word.store(ms << 2 | state, Ordering::Relaxed);
        now
    }

    fn state(&self) -> u64 {
        self.word.load(Ordering::Relaxed) & 3
    }

    fn get(&self) -> (u64, Duration) {
        let word = self.word.load(Ordering::Relaxed);
        let since = Duration::from_millis(word >> 2);
        (word & 3, self.accepted.elapsed().saturating_sub(since))
    }

    /// Bytes came in: a head begins if nothing else was going on.
    fn received(&self) {
        if self.state() == IDLE {
            self.set(HEAD);
        }
    }

    /// A request's head is whole. Answers the connection's age.
    pub(super) fn answering(&self) -> Duration {
        self.set(ANSWERING)
    }

    /// The answer is made; the next request may come. Answers the connection's age.
    pub(super) fn idle(&self) -> Duration {
        self.set(IDLE)
    }

    /// What the bytes so far say about the request at hand.
    pub(super) fn trust(&self) -> Trust {
        match self.suspicion.load(Ordering::Relaxed) {
            NONE => Trust::Full,
            LAST_REQUEST => Trust::LastRequest,
            _ => Trust::BadHead,
        }
    }

    /// Returns when no request is being answered, and the last answer had its time to leave.
    pub(super) async fn quiet(&self) {
        let mut look = tokio::time::interval(LEAVE);
        let mut quiet = 0;
        while quiet < 2 {
            look.tick().await;
            quiet = if self.state() == ANSWERING { 0 } else { quiet + 1 };
        }
    }

    /// Returns when the connection has kept us waiting too long.
    pub(super) async fn overdue(&self, limits: Limits) {
        let mut look = tokio::time::interval((limits.header.min(limits.idle) / 2).max(LOOK_MIN));
        loop {
            look.tick().await;
            let (state, age) = self.get();
            let longest = match state {
                IDLE => limits.idle,
                HEAD => limits.header,
                _ => ANSWER_MAX + limits.body,
            };
            if age >= longest {
                return;
            }
        }
    }
}

/// A connection's stream that tells when bytes come in, and whether lines end as they must.
pub(super) struct Watched {
    stream: TcpStream,
    activity: Arc<Activity>,
    lines: Lines,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, activity: Arc<Activity>) -> TokioIo<Self> {
        TokioIo::new(Self { stream, activity, lines: Lines::default() })
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let came = &buffer.filled()[before..];
        if !came.is_empty() {
            self.activity.received();
            let answering = self.activity.state() == ANSWERING;
            match self.lines.look(came, answering) {
                LineEnds::Good => {}
                LineEnds::BareInHead => self.activity.suspicion.store(BAD_HEAD, Ordering::Relaxed),
                LineEnds::BareBehindHead => {
                    self.activity.suspicion.fetch_max(LAST_REQUEST, Ordering::Relaxed);
                }
            }
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
}

/// What the line ends of received bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    Good,
    /// A line of a request's head ends in LF alone: two parsers may see two different requests.
    BareInHead,
    /// An LF alone stands in a body, or in whatever follows the head: what comes behind this
    /// request is not trusted.
    BareBehindHead,
}

/// Watches line ends over the pieces in which a head may come.
#[derive(Debug, Default)]
struct Lines {
    /// The last three bytes, for an end of head or a line end that is cut by a read.
    tail: [u8; 3],
}

impl Lines {
    fn look(&mut self, came: &[u8], answering: bool) -> LineEnds {
        let at = |index: usize, back: usize| match index.checked_sub(back) {
            Some(index) => came[index],
            None => self.tail[3 + index - back],
        };
        let mut behind_head = answering;
        let mut seen = LineEnds::Good;
        for index in memchr::memchr_iter(b'\n', came) {
            if at(index, 1) != b'\r' {
                seen = if behind_head { LineEnds::BareBehindHead } else { LineEnds::BareInHead };
                break;
            }
            behind_head |= at(index, 2) == b'\n' && at(index, 3) == b'\r';
        }
        for byte in &came[came.len().saturating_sub(3)..] {
            self.tail = [self.tail[1], self.tail[2], *byte];
        }
        seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(pieces: &[&str]) -> LineEnds {
        let mut lines = Lines::default();
        let seen = pieces.iter().map(|piece| lines.look(piece.as_bytes(), false));
        seen.into_iter().find(|it| *it != LineEnds::Good).unwrap_or(LineEnds::Good)
    }

    #[test]
    fn a_bare_line_feed_is_told_apart_by_where_it_stands() {
        assert_eq!(look(&["GET / HTTP/1.1\r\nHost: a\r\n\r\n"]), LineEnds::Good);
        assert_eq!(look(&["GET / HTTP/1.1\r\nHost: a\r", "\n\r\n"]), LineEnds::Good);
        assert_eq!(look(&["GET / HTTP/1.1\nHost: a\n\n"]), LineEnds::BareInHead);
        assert_eq!(look(&["GET / HTTP/1.1\r\nHost: a", "\n\r\n"]), LineEnds::BareInHead);
        assert_eq!(look(&["POST / HTTP/1.1\r\nHost: a\r\n\r\n{\n}"]), LineEnds::BareBehindHead);
        assert_eq!(look(&["POST / HTTP/1.1\r\n\r", "\n{\n}"]), LineEnds::BareBehindHead);
    }
}
