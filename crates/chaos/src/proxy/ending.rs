//! How a connection ends.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncWriteExt as _, copy, sink};
use tokio::net::TcpStream;

use super::toxic::Ending;

/// Why a connection ends, and what both sides are to see of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Both sides have ended in order.
    Over,
    /// It cannot go on: both sides are reset.
    Reset,
    /// A cut at a request: the client sees it, the server may read to the end what was delivered.
    Cut(Ending),
    /// A cut of the whole connection: both sides see it.
    CutAtOnce(Ending),
}

/// Ends a connection.
pub(super) async fn end(end: End, client: TcpStream, server: Option<TcpStream>) {
    match end {
        End::Over => {}
        End::Reset | End::CutAtOnce(Ending::Reset) => {
            reset(client);
            server.into_iter().for_each(reset);
        }
        End::Cut(Ending::Reset) => {
            reset(client);
            if let Some(server) = server {
                close(server).await;
            }
        }
        End::Cut(Ending::Close) | End::CutAtOnce(Ending::Close) => {
            // Both at once: either may take its time to close.
            match server {
                Some(server) => drop(tokio::join!(close(client), close(server))),
                None => close(client).await,
            }
        }
    }
}

/// Sends RST, and drops what is still in the sockets.
fn reset(socket: TcpStream) {
    // Where it fails the other side is gone already.
    let _ = SockRef::from(&socket).set_linger(Some(Duration::ZERO));
}

/// Sends FIN and reads to the end: a socket that is dropped with unread bytes would send RST, and the
/// other side might lose what it has not read yet.
async fn close(mut socket: TcpStream) {
    let (mut reader, mut writer) = socket.split();
    // Where it fails the other side is gone already.
    let _ = writer.shutdown().await;
    let _ = copy(&mut reader, &mut sink()).await;
}
