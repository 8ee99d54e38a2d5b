//! The staff's connections: few, each within its bounds, so that whoever reaches the port cannot hold the
//! staff out.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use doorbuster_engine::told::Told;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use crate::accepting::accepted;

/// Most connections at once; one more is closed.
const CONNECTIONS_MAX: u32 = 256;

/// Most bytes of a request's head, and most headers.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

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
    let refused_told = Told::default();
    while let Some((stream, _)) = accepted(&listener, &mut stop).await {
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
            if let Some(connections) = refused_told.due(1) {
                tracing::warn!(
                    connections,
                    "the staff's listener has {CONNECTIONS_MAX} connections already, and closes more: look who opens \
                     them, and keep admin.listen off the public network"
                );
            }
            continue;
        };
        let connection = converse(stream, router.clone(), patience, stop.clone());
        tokio::spawn(async move {
            connection.await;
            drop(permit);
        });
    }
    // Closed before the wait: nobody is let in any more.
    drop(listener);
    let _ = permits.acquire_many(CONNECTIONS_MAX).await;
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
