//! One connection: HTTP/1.1 by hyper, within its bounds.

use std::convert::Infallible;
use std::sync::Arc;

use hyper::service::service_fn;
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::answering::respond;
use super::core::Core;
use super::deadline::Activity;
use super::stream::Watched;

/// Most headers of one request.
const HEADERS_MAX: usize = 64;
/// Most bytes of a request's head.
const HEAD_MAX: usize = 8 * 1024;

/// Serves one connection until it ends, is overdue, or the server stops.
pub(super) async fn serve(stream: TcpStream, core: Arc<Core>, mut stop: watch::Receiver<bool>) {
    // Answers are small and whole: waiting to fill a packet would only delay them.
    let _ = stream.set_nodelay(true);
    let activity = Activity::new();
    let limits = core.limits;
    let answering = Arc::clone(&activity);
    let service = service_fn(move |request| {
        let (core, activity) = (Arc::clone(&core), Arc::clone(&answering));
        async move {
            let began = activity.answering();
            let trust = activity.trust();
            let (response, purchase) = respond(&core, request, trust).await;
            let ended = activity.idle();
            if let Some(said) = purchase {
                core.figures.purchase(said, ended.saturating_sub(began));
            }
            Ok::<_, Infallible>(response)
        }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .max_buf_size(HEAD_MAX)
        // A buyer who hangs up right after the click has clicked all the same.
        .half_close(true)
        // Head and body are small: one piece costs less than a list of two.
        .writev(false)
        .serve_connection(Watched::new(stream, Arc::clone(&activity)), service);
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        biased;
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended");
            }
            return;
        }
        () = activity.overdue(limits) => return,
        _ = stop.wait_for(|stopped| *stopped) => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = connection.as_mut() => {
            if let Err(error) = ended {
                tracing::debug!(%error, "a connection ended while the server stopped");
            }
        }
        // A line without a request is not waited for.
        () = activity.quiet() => {}
    }
}
