//! One connection's deadlines: the head of a request, the idle time between requests, and a
//! request that never ends. One timer per connection that looks a few times in a deadline's
//! length, instead of one armed and disarmed for every request.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::Limits;

/// Longest time from a request's head to the end of its answer: the longest `?wait=` and the rest.
const ANSWER_MAX: Duration = Duration::from_secs(60);

const IDLE: u64 = 0;
const HEAD: u64 = 1;
const ANSWERING: u64 = 2;

/// What a connection is doing, and since when: milliseconds since it was accepted, times four,
/// plus the state. One word, so that it changes in one step.
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    word: AtomicU64,
}

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        // The first head is awaited as long as any head.
        Arc::new(Self { accepted: Instant::now(), word: AtomicU64::new(HEAD) })
    }

    fn set(&self, state: u64) -> Duration {
        let now = self.accepted.elapsed();
        let ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX >> 2);
        self.word.store(ms << 2 | state, Ordering::Relaxed);
        now
    }

    fn get(&self) -> (u64, Duration) {
        let word = self.word.load(Ordering::Relaxed);
        let since = Duration::from_millis(word >> 2);
        (word & 3, self.accepted.elapsed().saturating_sub(since))
    }

    /// Bytes came in: a head begins if nothing else was going on.
    fn received(&self) {
        if self.word.load(Ordering::Relaxed) & 3 == IDLE {
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

    /// Returns when the connection has kept us waiting too long.
    pub(super) async fn overdue(&self, limits: Limits) {
        let mut look = tokio::time::interval(limits.header.min(limits.idle) / 2);
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

/// A connection's stream that tells when bytes come in.
pub(super) struct Watched {
    stream: TokioIo<TcpStream>,
    activity: Arc<Activity>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream: TokioIo::new(stream), activity }
    }
}

impl hyper::rt::Read for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<std::io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if let Poll::Ready(Ok(())) = polled {
            self.activity.received();
        }
        polled
    }
}

impl hyper::rt::Write for Watched {
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
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bytes)
    }
}
