//! One connection of a listener with TLS: the handshake, then as any other.

use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use tokio::net::TcpStream;
use tokio_rustls::Accept;
use tokio_rustls::server::TlsStream;

use super::connection::Serving;
use super::core::Place;
use super::deadline::Told;
use crate::tls::Acceptor;

/// Serves one connection until it ends, or is told to. It has its place from its first byte on, and the
/// handshake and the first head share the time for a head.
#[expect(clippy::large_enum_variant, reason = "every connection that lives on comes to the large one")]
pub(super) enum Encrypted {
    /// Apart from what follows: it goes when the handshake ends, so an idle connection does not hold it.
    Shaking(Box<Shaking>),
    /// As behind a plain connection.
    Serving(Serving<TlsStream<TcpStream>>),
}

/// A handshake that goes on.
pub(super) struct Shaking {
    accept: Accept<TcpStream>,
    acceptor: Acceptor,
    /// Taken when the handshake is done.
    place: Option<Place>,
}

impl Encrypted {
    pub(super) fn new(stream: TcpStream, acceptor: &Acceptor, place: Place) -> Self {
        let (accept, acceptor) = (acceptor.shake(stream), acceptor.clone());
        Self::Shaking(Box::new(Shaking { accept, acceptor, place: Some(place) }))
    }
}

impl Shaking {
    /// `None` when there will be no encrypted connection.
    fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Option<Serving<TlsStream<TcpStream>>>> {
        let Some(place) = &self.place else { return Poll::Ready(None) };
        let handshakes = &self.acceptor.shown().handshakes;
        // Woken by few bytes, so the lock that this takes is of no weight.
        place.activity().wakes(cx.waker());
        match place.activity().told() {
            Told::Serve => {}
            // Nothing was asked yet, so nothing is left to be answered.
            Told::Finish => return Poll::Ready(None),
            Told::End => {
                handshakes.late.fetch_add(1, Ordering::Relaxed);
                return Poll::Ready(None);
            }
        }
        match ready!(Pin::new(&mut self.accept).poll(cx)) {
            Ok(stream) => {
                handshakes.done.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(self.place.take().map(|place| Serving::new(stream, place)))
            }
            Err(error) => {
                handshakes.failed.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%error, "a handshake failed");
                Poll::Ready(None)
            }
        }
    }
}

impl Future for Encrypted {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if let Self::Shaking(shaking) = this {
            match ready!(shaking.poll_done(cx)) {
                Some(serving) => *this = Self::Serving(serving),
                None => return Poll::Ready(()),
            }
        }
        match this {
            Self::Serving(serving) => Pin::new(serving).poll(cx),
            Self::Shaking(_) => Poll::Ready(()),
        }
    }
}
