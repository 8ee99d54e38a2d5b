//! The staff's connections: few, each within its bounds, so that whoever reaches the port cannot hold the
//! staff out.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Most connections at once; one more is closed.
const CONNECTIONS_MAX: u32 = 256;

/// Most bytes of a request's head, and most headers.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// Longest pause after the system refused a connection, such as for want of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a connection may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// For a request's head, the wait for its first byte included.
    pub(crate) head: Duration,
    /// For a request's body.
    pub(crate) body: Duration,
}

/// Serves connections until `stop` turns true, then until running requests have ended.
#[expect(
    clippy::disallowed_methods,
    reason = "each connection is a task with one of a fixed number of permits"
)]
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    patience: Patience,
    mut stop: watch::Receiver<bool>,
) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX as usize));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => match Arc::clone(&permits).try_acquire_owned() {
                Ok(permit) => {
                    let connection = converse(stream, router.clone(), patience, stop.clone());
                    tokio::spawn(async move {
                        connection.await;
                        drop(permit);
                    });
                }
                Err(_) => refused(peer),
            },
            Err(error) => {
                tracing::warn!(%error, "a connection of the staff could not be accepted");
                let _ = tokio::time::timeout(ACCEPT_PAUSE, stop.wait_for(|stopped| *stopped)).await;
            }
        }
    }
    // Closed before the wait: nobody is let in any more.
    drop(listener);
    let _ = permits.acquire_many(CONNECTIONS_MAX).await;
}

fn refused(peer: SocketAddr) {
    tracing::debug!(%peer, "the staff's listener has {CONNECTIONS_MAX} connections: one more was closed");
}

/// One connection, until it ends or, told to stop, has answered.
async fn converse(stream: TcpStream, router: Router, patience: Patience, mut stop: watch::Receiver<bool>) {
    let _ = stream.set_nodelay(true);
    let mut builder = Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(patience.head);
    builder.max_buf_size(HEAD_MAX).max_headers(HEADERS_MAX);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = std::pin::pin!(connection);
    let stopped = async { drop(stop.wait_for(|stopped| *stopped).await) };
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = stopped => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection of the staff ended early");
    }
}
