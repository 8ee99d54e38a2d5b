//! Bad servers and bad lines, on this machine: a link that can lose the answer to a COMMIT, a
//! server that says no, and one that says nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A way to a server that swallows the reply to the next COMMIT, once told to, and breaks.
pub(crate) struct LossyLink {
    /// Where it listens.
    pub(crate) address: String,
    armed: Arc<AtomicBool>,
}

impl LossyLink {
    pub(crate) async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let armed = Arc::new(AtomicBool::new(false));
        let lossy = Arc::clone(&armed);
        spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                spawn(carry(client, server, Arc::clone(&lossy)));
            }
        });
        Self { address, armed }
    }

    /// From now on the next COMMIT reaches the server, and its reply reaches nobody.
    pub(crate) fn lose_the_next_commit(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }
}

async fn carry(client: TcpStream, server: TcpStream, armed: Arc<AtomicBool>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let losing = Arc::new(AtomicBool::new(false));
    let lost = Arc::clone(&losing);
    spawn(async move {
        let mut bytes = vec![0; 65_536];
        while let Ok(read @ 1..) = from_client.read(&mut bytes).await {
            let commits = bytes[..read].windows(7).any(|it| it == b"COMMIT\0");
            if commits && armed.swap(false, Ordering::SeqCst) {
                lost.store(true, Ordering::SeqCst);
            }
            if to_server.write_all(&bytes[..read]).await.is_err() {
                break;
            }
        }
    });
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from_server.read(&mut bytes).await {
        // What the server sends now is the reply, so it has committed.
        if losing.load(Ordering::SeqCst) || to_client.write_all(&bytes[..read]).await.is_err() {
            break;
        }
    }
}

/// The address of a server that answers every connection with this error.
pub(crate) async fn server_that_refuses(code: &'static str, message: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut startup = vec![0; 4_096];
            let _ = client.read(&mut startup).await;
            let fields = format!("SFATAL\0VFATAL\0C{code}\0M{message}\0\0");
            let length = u32::try_from(fields.len() + 4).unwrap();
            let _ = client.write_all(&[b"E", &length.to_be_bytes()[..], fields.as_bytes()].concat()).await;
        }
    });
    address
}

/// The address of a server that takes connections and never says a word.
pub(crate) async fn silent_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    spawn(async move {
        let mut clients = Vec::new();
        while let Ok((client, _)) = listener.accept().await {
            clients.push(client);
        }
    });
    address
}

#[expect(clippy::disallowed_methods, reason = "a server beside the test, for as long as it runs")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}
