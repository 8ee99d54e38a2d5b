//! The staff's connections: few, each within its bounds, so that whoever reaches the port cannot hold the
//! staff out.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Router;
use doorbuster_engine::told::Told;
use hyper::server::conn::http1::Builder;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio_rustls::server::TlsStream;

use crate::accepting::accepted;
use crate::tls::Acceptor;

/// Most connections at once; one more is closed.
const CONNECTIONS_MAX: u32 = 256;

/// Most bytes of a request's head, and most headers.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// Most changes at once.
const CHANGES_MAX: u32 = 64;

/// The changes that are under way: each is a task of its own, which its connection's end does not end.
#[derive(Clone)]
pub(super) struct Changes(Arc<Semaphore>);

impl Default for Changes {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CHANGES_MAX as usize)))
    }
}

impl Changes {
    /// Begins one, unless too many are under way.
    #[expect(
        clippy::disallowed_methods,
        reason = "each change is a task with one of a fixed number of permits"
    )]
    pub(super) fn begin<T: Send + 'static>(
        &self,
        change: impl Future<Output = T> + Send + 'static,
    ) -> Option<JoinHandle<T>> {
        let permit = Arc::clone(&self.0).try_acquire_owned().ok()?;
        Some(tokio::spawn(async move {
            let done = change.await;
            drop(permit);
            done
        }))
    }

    /// Waits until all have ended.
    pub(super) async fn ended(&self) {
        let _ = self.0.acquire_many(CHANGES_MAX).await;
    }
}

/// How long a connection may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// For the handshake, where the listener has TLS: a client that speaks it does not wait to be asked.
    pub(crate) handshake: Duration,
    /// For a request's head, the wait for its first byte included.
    pub(crate) head: Duration,
    /// For a request's body.
    pub(crate) body: Duration,
}

/// Where the staff comes in.
pub(super) struct WayIn {
    pub(super) listener: TcpListener,
    /// What begins its connections, where they are encrypted.
    pub(super) tls: Option<Acceptor>,
    pub(super) patience: Patience,
}

/// Serves connections until `stop` turns true, then until running requests have ended.
#[expect(
    clippy::disallowed_methods,
    reason = "each connection is a task with one of a fixed number of permits"
)]
pub(super) async fn serve(way_in: WayIn, router: Router, mut stop: watch::Receiver<bool>) {
    let WayIn { listener, tls, patience } = way_in;
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
        let _ = stream.set_nodelay(true);
        let (tls, router, mut stop) = (tls.clone(), router.clone(), stop.clone());
        tokio::spawn(async move {
            match tls {
                None => converse(stream, router, patience, stop).await,
                Some(acceptor) => {
                    if let Some(stream) = shaken(&acceptor, stream, patience.handshake, &mut stop).await {
                        converse(stream, router, patience, stop).await;
                    }
                }
            }
            drop(permit);
        });
    }
    // Closed before the wait: nobody is let in any more.
    drop(listener);
    let _ = permits.acquire_many(CONNECTIONS_MAX).await;
}

/// An encrypted connection, if its handshake ends in time and well.
async fn shaken(
    acceptor: &Acceptor,
    stream: TcpStream,
    patience: Duration,
    stop: &mut watch::Receiver<bool>,
) -> Option<TlsStream<TcpStream>> {
    let handshakes = &acceptor.shown().handshakes;
    let shaking = tokio::time::timeout(patience, acceptor.shake(stream));
    let ended = tokio::select! {
        biased;
        // Nothing was asked yet, so nothing is left to be answered.
        _ = stop.wait_for(|stopped| *stopped) => return None,
        ended = shaking => ended,
    };
    match ended {
        Ok(Ok(stream)) => {
            handshakes.done.fetch_add(1, Ordering::Relaxed);
            Some(stream)
        }
        Ok(Err(error)) => {
            handshakes.failed.fetch_add(1, Ordering::Relaxed);
            tracing::debug!(%error, "a handshake with the staff's listener failed");
            None
        }
        Err(_) => {
            handshakes.late.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

/// One connection, until it ends or, told to stop, has answered.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    router: Router,
    patience: Patience,
    mut stop: watch::Receiver<bool>,
) {
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
