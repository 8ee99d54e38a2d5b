//! One connection's bytes, watched on their way to hyper and back: when they come, how lines end,
//! and what hyper says by itself.

use std::io::BufRead;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::core::Core;
use super::deadline::{Activity, Trust};
use crate::problem::{self, Word};
use crate::purchase::Answer;
use crate::request_id::RequestId;

/// A connection's stream that tells when bytes come in, whether lines end as they must, and gives
/// hyper's own refusals a body.
pub(super) struct Watched<S> {
    stream: S,
    core: Arc<Core>,
    activity: Arc<Activity>,
    lines: Lines,
    /// What leaves instead of hyper's own refusal.
    instead: Option<Box<std::io::Cursor<Vec<u8>>>>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Watched<S> {
    pub(super) fn new(stream: S, core: Arc<Core>, activity: Arc<Activity>) -> TokioIo<Self> {
        TokioIo::new(Self { stream, core, activity, lines: Lines::default(), instead: None })
    }

    /// Writes what hyper wants to say of a head that it cannot read, with a problem as its body.
    /// `bytes` are hyper's, which it offers again until they count as written.
    fn refuse(&mut self, word: Word, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        let core = &self.core;
        let instead = self.instead.get_or_insert_with(|| {
            core.figures.requests.count_unrouted(word.status);
            Box::new(std::io::Cursor::new(refusal(word, core.request_ids.next(), bytes)))
        });
        while !instead.fill_buf()?.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, instead.fill_buf()?))?;
            if written == 0 {
                return Poll::Ready(Err(std::io::ErrorKind::WriteZero.into()));
            }
            instead.consume(written);
        }
        Poll::Ready(Ok(bytes.len()))
    }
}

/// The word for an answer that hyper made by itself: it has a head and no body, and no request id,
/// which every answer of ours has.
fn own_refusal(bytes: &[u8]) -> Option<Word> {
    let word = match bytes.get(..12)? {
        b"HTTP/1.1 400" => problem::INVALID_REQUEST,
        b"HTTP/1.1 431" => problem::HEAD_TOO_LARGE,
        _ => return None,
    };
    let has = |what: &[u8]| memmem::find(bytes, what).is_some();
    (has(b"\r\ncontent-length: 0\r\n") && !has(b"\r\nx-request-id: ")).then_some(word)
}

/// hyper's head with a body.
fn refusal(word: Word, id: RequestId, head: &[u8]) -> Vec<u8> {
    let answer = Answer::problem(word.problem(), id);
    let more = format!(
        "\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\nx-request-id: {id}\r\ncontent-length: {}\r\n",
        answer.body.len()
    );
    let head = String::from_utf8_lossy(head).replacen("\r\ncontent-length: 0\r\n", &more, 1);
    [head.as_bytes(), &answer.body].concat()
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
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
            let answering = self.activity.is_answering();
            match self.lines.look(came, answering) {
                LineEnds::Good => {}
                LineEnds::BadHead => self.activity.suspect(Trust::BadHead),
                LineEnds::BareBehindHead => self.activity.suspect(Trust::LastRequest),
            }
        }
        polled
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        match own_refusal(bytes) {
            None => Pin::new(&mut self.stream).poll_write(cx, bytes),
            Some(word) => self.refuse(word, cx, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// What the line ends of received bytes show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineEnds {
    Good,
    /// A line of a request's head ends in LF alone, or a second one begins as Content-Length: two
    /// parsers may see two different requests.
    BadHead,
    /// An LF alone stands in a body, or in whatever follows the head: what comes behind this
    /// request is not trusted.
    BareBehindHead,
}

/// Watches lines over the pieces in which a head may come.
#[derive(Debug)]
struct Lines {
    /// The last three bytes, for an end of head or a line end that is cut by a read.
    tail: [u8; 3],
    /// How much of [`LENGTH`] the line at hand begins with; [`NO_LENGTH`] when it is another.
    matched: usize,
    /// Lines of the head at hand that begin so. Hyper folds equal ones, so only the bytes tell.
    lengths: usize,
}

const LENGTH: &[u8] = b"content-length:";
const NO_LENGTH: usize = usize::MAX;

impl Default for Lines {
    fn default() -> Self {
        Self { tail: [0; 3], matched: NO_LENGTH, lengths: 0 }
    }
}

impl Lines {
    fn look(&mut self, came: &[u8], answering: bool) -> LineEnds {
        let tail = self.tail;
        let at = |index: usize, back: usize| match index.checked_sub(back) {
            Some(index) => came[index],
            None => tail[3 + index - back],
        };
        let mut behind_head = answering;
        let mut seen = LineEnds::Good;
        self.line_goes_on(came);
        for index in memchr::memchr_iter(b'\n', came) {
            if at(index, 1) != b'\r' {
                seen = if behind_head { LineEnds::BareBehindHead } else { LineEnds::BadHead };
                break;
            }
            if behind_head {
                continue;
            }
            if at(index, 2) == b'\n' && at(index, 3) == b'\r' {
                behind_head = true;
                self.lengths = 0;
                continue;
            }
            self.matched = 0;
            self.line_goes_on(&came[index + 1..]);
            if self.lengths > 1 {
                seen = LineEnds::BadHead;
                break;
            }
        }
        for byte in &came[came.len().saturating_sub(3)..] {
            self.tail = [self.tail[1], self.tail[2], *byte];
        }
        seen
    }

    /// The line at hand begins or goes on with these bytes.
    fn line_goes_on(&mut self, bytes: &[u8]) {
        let Some(wanted) = LENGTH.get(self.matched..) else { return };
        let count = wanted.len().min(bytes.len());
        if !bytes[..count].eq_ignore_ascii_case(&wanted[..count]) {
            self.matched = NO_LENGTH;
            return;
        }
        self.matched += count;
        if self.matched == LENGTH.len() {
            self.lengths += 1;
            self.matched = NO_LENGTH;
        }
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
        assert_eq!(look(&["GET / HTTP/1.1\nHost: a\n\n"]), LineEnds::BadHead);
        assert_eq!(look(&["GET / HTTP/1.1\r\nHost: a", "\n\r\n"]), LineEnds::BadHead);
        assert_eq!(look(&["POST / HTTP/1.1\r\nHost: a\r\n\r\n{\n}"]), LineEnds::BareBehindHead);
        assert_eq!(look(&["POST / HTTP/1.1\r\n\r", "\n{\n}"]), LineEnds::BareBehindHead);
    }

    #[test]
    fn a_second_length_is_seen_wherever_the_head_is_cut() {
        let head = "POST / HTTP/1.1\r\nContent-Length: 5\r\nx: content-length: 1\r\ncontent-lengths: 1\r\n";
        let good = format!("{head}\r\n");
        let bad = format!("{head}CONTENT-LENGTH: 5\r\n\r\n");
        for cut in 0..good.len() {
            let (first, second) = good.split_at(cut);
            assert_eq!(look(&[first, second, first, second]), LineEnds::Good, "{cut}");
            let (first, second) = bad.split_at(cut);
            assert_eq!(look(&[first, second]), LineEnds::BadHead, "{cut}");
        }
    }
}
