//! The next connection of a listener, for both of them.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Longest pause after the system refused a connection, such as for want of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Waits for a connection; `None` once `stop` is true. A refusal of the system ends nothing.
pub(crate) async fn accepted(
    listener: &TcpListener,
    stop: &mut watch::Receiver<bool>,
) -> Option<(TcpStream, SocketAddr)> {
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopped| *stopped) => return None,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok(connection) => return Some(connection),
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                let _ = tokio::time::timeout(PAUSE, stop.wait_for(|stopped| *stopped)).await;
            }
        }
    }
}
