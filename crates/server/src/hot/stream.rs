//! One connection's bytes, watched on their way to hyper: when they come, and how lines end.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::deadline::{Activity, Trust};

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
            let answering = self.activity.is_answering();
            match self.lines.look(came, answering) {
                LineEnds::Good => {}
                LineEnds::BareInHead => self.activity.suspect(Trust::BadHead),
                LineEnds::BareBehindHead => self.activity.suspect(Trust::LastRequest),
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
