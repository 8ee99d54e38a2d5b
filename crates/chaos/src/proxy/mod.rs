//! A TCP proxy that knows the protocol it passes on, so that it can break a connection at a chosen request:
//! hold it back, cut it before or after the delivery, deliver it and swallow the reply, deliver it twice.
//!
//! Its words are toxiproxy's where that has one: a *toxic* is what is done to connections, *upstream* is
//! towards the server and *downstream* towards the client.
//!
//! A stream that has lost bytes cannot go on, as TCP never shows a gap: when a toxic that made bytes vanish
//! is removed, the connections that lost some are reset, and those that did not go on.
//!
//! Bounds: per connection two buffers of 1 MiB, beside the one frame ([`FRAME_BYTES_MAX`]) that is being
//! read in each direction; what is more waits in the sockets. Bytes that are not understood are passed on
//! unread and counted in [`Counts::unparsed`]: a scenario asserts that there are none.
//!
//! Kafka's brokers say where they are. Clients stay on the proxy since it puts its own port into these
//! replies; that needs a broker which is advertised by the address that is given as upstream. A private
//! broker can be started with the proxy's port as its advertised listener instead: [`Proxy::bind_first`].
//!
//! ```no_run
//! # async fn story() -> Result<(), Box<dyn std::error::Error>> {
//! use doorbuster_chaos::proxy::{Effect, Matching, Protocol, Proxy, Then, Toxic};
//!
//! let proxy = Proxy::start(Protocol::Postgres, "127.0.0.1:5432".parse()?).await?;
//! let lost = Toxic::new(Effect::SwallowReply(Then::Hang)).on(Matching::sql("COMMIT")).first(1);
//! let lost = proxy.add(lost)?;
//! // … let the system work through proxy.address() …
//! lost.until_fired(1).await;
//! proxy.heal();
//! # Ok(()) }
//! ```

mod board;
mod connection;
mod dialect;
mod ending;
mod kafka;
mod lane;
mod open;
mod passing;
mod postgres;
mod resp;
#[cfg(test)]
mod tests;
mod toxic;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use board::Board;
use connection::Connection;

pub use board::{Counts, Installed};
pub use dialect::{FRAME_BYTES_MAX, Protocol};
pub use toxic::{Effect, Ending, Matching, Moment, Stream, Then, Toxic, ToxicError};

/// Connections at once; more wait to be accepted.
const CONNECTIONS_MAX: usize = 4_096;
/// Connections that the system keeps until they are accepted.
const BACKLOG: u16 = 1_024;

/// A proxy on the loopback, which ends with all its connections when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    board: Arc<Board>,
    /// The socket itself; who accepts has a copy of it.
    listener: Arc<std::net::TcpListener>,
    /// Accepts, and owns the connections.
    _accepting: JoinSet<()>,
}

impl Proxy {
    /// A proxy for the server at `upstream`.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn start(protocol: Protocol, upstream: SocketAddr) -> io::Result<Self> {
        let proxy = Self::bind_first(protocol).await?;
        proxy.set_upstream(upstream);
        Ok(proxy)
    }

    /// A proxy whose server is not known yet, such as a broker that must be told the proxy's address at its
    /// start. It resets connections until [`Proxy::set_upstream`]. It is `async` since it needs a runtime.
    ///
    /// # Errors
    /// When no port can be had.
    pub async fn bind_first(protocol: Protocol) -> io::Result<Self> {
        let found = bound(0)?;
        // Bound once more by its number: a port that the system chose would be given back whenever new
        // connections are refused.
        let socket = bound(found.local_addr()?.port())?;
        drop(found);
        let listener = Arc::new(socket.listen(BACKLOG.into())?.into_std()?);
        let board = Arc::new(Board::new(protocol, listener.local_addr()?));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener.clone(), board.clone()));
        Ok(Self { board, listener, _accepting: accepting })
    }

    /// Where clients connect to.
    pub fn address(&self) -> SocketAddr {
        self.board.address
    }

    /// Leads connections that are accepted from now on to another server.
    pub fn set_upstream(&self, upstream: SocketAddr) {
        self.board.upstream.send_replace(Some(upstream));
    }

    /// Names `other` in place of its broker too: for each broker of a Kafka cluster there is a proxy, and
    /// each of them may be asked where the others are.
    pub fn name_broker_of(&self, other: &Proxy) {
        let broker = *other.board.upstream.borrow();
        if let Some(broker) = broker {
            self.board.brokers.send_modify(|brokers| brokers.push((broker, other.address())));
        }
    }

    /// Adds a toxic to those in force. Bytes that a client sends after this has returned meet it.
    ///
    /// # Errors
    /// When it could never fire as it is written.
    pub fn add(&self, toxic: impl Into<Toxic>) -> Result<Arc<Installed>, ToxicError> {
        let toxic = toxic.into();
        if let Some(contradiction) = toxic.contradiction(self.board.protocol != Protocol::Bytes) {
            return Err(contradiction);
        }

        let installed = self.board.install(toxic);
        if installed.effect() == Effect::Refuse && installed.take() {
            SockRef::from(&*self.listener).shutdown(Shutdown::Both).expect("a bound socket can be shut");
            self.board.fire(&installed);
        }
        Ok(installed)
    }

    /// Removes one toxic. Connections that lost bytes by it are reset.
    pub fn remove(&self, toxic: &Installed) {
        self.keep(|it| it.id != toxic.id);
    }

    /// Removes all toxics: what is held back goes on its way. Connections that lost bytes by them are reset, all others go on.
    pub fn heal(&self) {
        self.keep(|_| false);
    }

    fn keep(&self, stays: impl Fn(&Installed) -> bool) {
        let refuses = |it: &&Arc<Installed>| it.effect() == Effect::Refuse;
        let toxics = self.board.toxics.borrow().clone();
        let listens_again = toxics.iter().any(|it| refuses(&it) && !stays(it))
            && !toxics.iter().any(|it| refuses(&it) && stays(it));
        if listens_again {
            let listener = SockRef::from(&*self.listener);
            listener.listen(BACKLOG.into()).expect("a socket that keeps its port can listen again");
        }
        self.board.toxics.send_modify(|toxics| toxics.retain(|it| stays(it)));
    }

    /// What was seen and done so far.
    pub fn counts(&self) -> Counts {
        *self.board.counts.borrow()
    }

    /// Waits until the counts are as `reached` wants them. They may never be: give it a deadline.
    pub async fn until(&self, reached: impl FnMut(&Counts) -> bool) -> Counts {
        let mut counts = self.board.counts.subscribe();
        *counts.wait_for(reached).await.expect("the sender is in self")
    }

    /// How often the effects of all toxics have happened.
    pub fn fired(&self) -> u64 {
        self.counts().fired
    }

    /// Waits until effects have happened `times` times since the proxy was started.
    pub async fn until_fired(&self, times: u64) {
        self.until(|counts| counts.fired >= times).await;
    }
}

/// A socket that has a port of the loopback; two may have it until one listens.
fn bound(port: u16) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind((Ipv4Addr::LOCALHOST, port).into())?;
    Ok(socket)
}

/// Accepts connections, and ends them when it is ended itself.
async fn accept(socket: Arc<std::net::TcpListener>, board: Arc<Board>) {
    let mut toxics = board.toxics.subscribe();
    let mut connections = JoinSet::new();
    let mut listener = listening(&socket);
    loop {
        tokio::select! {
            accepted = accepted(listener.as_ref()), if connections.len() < CONNECTIONS_MAX => {
                // A client that is gone already, or a port that was shut: the next one may do.
                if let Ok((client, _)) = accepted {
                    start(client, &board, &mut connections);
                }
            }
            _ = toxics.changed() => {
                let refused = toxics.borrow_and_update().iter().any(|it| it.effect() == Effect::Refuse);
                // Always a new copy: one that was shut for a moment looks shut to the runtime for ever.
                listener = if refused { None } else { listening(&socket) };
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A copy of the socket that this runtime listens on.
fn listening(socket: &std::net::TcpListener) -> Option<TcpListener> {
    let listener = socket.try_clone().and_then(TcpListener::from_std);
    if let Err(error) = &listener {
        tracing::error!(error = %error, "the proxy cannot listen");
    }
    listener.ok()
}

async fn accepted(listener: Option<&TcpListener>) -> io::Result<(TcpStream, SocketAddr)> {
    match listener {
        Some(listener) => listener.accept().await,
        None => std::future::pending().await,
    }
}

fn start(client: TcpStream, board: &Arc<Board>, connections: &mut JoinSet<()>) {
    board.count(|counts| counts.connections += 1);
    let number = board.counts.borrow().connections;
    connections.spawn(Connection::new(number, board.clone()).run(client));
}
