//! One connection: HTTP/1.1 by hyper, within its bounds.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::server::conn::http1::{Builder, Connection};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::answering::Answering;
use super::core::Place;
use super::deadline::Told;
use super::stream::Watched;

/// Most bytes of a request's head.
const HEAD_MAX: usize = 8 * 1024;

/// Serves one connection until it ends, or is told to. A future written by hand: while the
/// connection idles, what it holds is what it costs.
pub(super) struct Serving<S> {
    connection: Connection<TokioIo<Watched<S>>, Answering>,
    finishing: bool,
    task: Option<Waker>,
    place: Place,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Serving<S> {
    pub(super) fn new(stream: S, place: Place) -> Self {
        let activity = place.activity();
        let (core, peer) = (Arc::clone(place.core()), place.peer());
        let answering = Answering { core, peer, activity: Arc::clone(activity) };
        let watched = Watched::new(stream, Arc::clone(place.core()), Arc::clone(activity));
        let connection = Builder::new()
            .max_buf_size(HEAD_MAX)
            // A buyer who hangs up right after the click has clicked all the same.
            .half_close(true)
            // Head and body are small: one piece costs less than a list of two.
            .writev(false)
            .serve_connection(watched, answering);
        Self { connection, finishing: false, task: None, place }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for Serving<S> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        if !this.task.as_ref().is_some_and(|task| task.will_wake(cx.waker())) {
            this.place.activity().wakes(cx.waker());
            this.task = Some(cx.waker().clone());
        }
        match this.place.activity().told() {
            Told::Serve => {}
            Told::Finish => {
                if !std::mem::replace(&mut this.finishing, true) {
                    Pin::new(&mut this.connection).graceful_shutdown();
                }
            }
            Told::End => return Poll::Ready(()),
        }
        Pin::new(&mut this.connection).poll(cx).map(|ended| {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
        })
    }
}
