//! The public listener: one runtime per core, each with its own socket, batcher and gate. The
//! purchase path stands before any router; everything else goes to axum.

mod answering;
mod connection;
mod core;
mod deadline;
mod encrypted;
mod stream;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use doorbuster_engine::engine::Shared;
use doorbuster_engine::room::Room;
use hyper::header::HeaderName;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::watch;

use crate::config::Server;
use crate::metrics::CoreFigures;
use crate::tls::Acceptor;
pub(crate) use answering::{Peer, X_FORWARDED_FOR, forwarded, limit_headers, region};

/// Connections that may wait in the kernel to be accepted.
pub(crate) const BACKLOG: i32 = 4_096;

/// The running public listener.
pub struct PublicListener {
    /// Where it listens.
    pub address: SocketAddr,
    /// What each core counts.
    pub(crate) figures: Vec<Arc<CoreFigures>>,
    stop: watch::Sender<bool>,
    cores: Vec<JoinHandle<()>>,
}

/// What a core needs.
pub(crate) struct CoreContext {
    pub(crate) shared: Shared,
    pub(crate) room: Arc<dyn Room>,
    pub(crate) limits: Limits,
    pub(crate) site: Arc<crate::pages::Site>,
    pub(crate) readiness: Arc<crate::app::Readiness>,
    pub(crate) payments: Option<Arc<crate::payments::Payments>>,
    pub(crate) siteverify: Option<Arc<crate::siteverify::Siteverify>>,
    pub(crate) region_header: Option<HeaderName>,
    pub(crate) places: Arc<core::Places>,
    pub(crate) tls: Option<Acceptor>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) figures: Arc<CoreFigures>,
}

/// Bounds of the connections, over all cores.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) connections: usize,
    pub(crate) connections_per_address: usize,
    pub(crate) header: Duration,
    pub(crate) body: Duration,
    pub(crate) idle: Duration,
    pub(crate) drain: Duration,
}

/// The address, bound on every core: whoever connects waits until [`start`] serves.
pub(crate) struct Bound {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    sockets: Vec<StdListener>,
}

/// Binds the address on every core.
///
/// # Errors
/// When the address is taken or not ours.
pub(crate) fn bind(config: &Server) -> io::Result<Bound> {
    let cores = match config.cores {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        some => some,
    };
    let sockets = bind_cores(config.listen, cores)?;
    Ok(Bound { address: sockets[0].local_addr()?, sockets })
}

/// What every core of a gateway shares.
pub(crate) struct Front {
    pub(crate) shared: Shared,
    pub(crate) room: Arc<dyn Room>,
    pub(crate) site: Arc<crate::pages::Site>,
    pub(crate) readiness: Arc<crate::app::Readiness>,
    pub(crate) payments: Option<Arc<crate::payments::Payments>>,
    pub(crate) siteverify: Option<Arc<crate::siteverify::Siteverify>>,
    /// What begins its connections, where they are encrypted.
    pub(crate) tls: Option<Acceptor>,
    /// In which proxies say where a client is.
    pub(crate) region_header: Option<HeaderName>,
}

/// Starts to serve on a bound address.
///
/// # Errors
/// When a core's thread cannot be started.
pub(crate) fn start(bound: Bound, config: &Server, front: &Front) -> io::Result<PublicListener> {
    let Bound { address, sockets } = bound;
    let stop = watch::Sender::new(false);
    let limits = Limits {
        connections: config.connections_max,
        connections_per_address: config.connections_per_address_max,
        header: config.header_timeout,
        body: config.body_timeout,
        idle: config.idle_timeout,
        drain: config.drain_timeout,
    };
    let places: Arc<core::Places> = Arc::default();
    let figures: Vec<Arc<CoreFigures>> = sockets.iter().map(|_| Arc::new(CoreFigures::new())).collect();
    let mut threads = Vec::with_capacity(sockets.len());
    for (number, (socket, figures)) in sockets.into_iter().zip(&figures).enumerate() {
        let context = CoreContext {
            shared: front.shared.clone(),
            room: Arc::clone(&front.room),
            limits,
            site: Arc::clone(&front.site),
            readiness: Arc::clone(&front.readiness),
            payments: front.payments.clone(),
            siteverify: front.siteverify.clone(),
            region_header: front.region_header.clone(),
            places: Arc::clone(&places),
            tls: front.tls.clone(),
            stop: stop.subscribe(),
            figures: Arc::clone(figures),
        };
        let thread = std::thread::Builder::new().name(format!("gateway-{number}"));
        threads.push(thread.spawn(move || core::run(socket, context))?);
    }
    Ok(PublicListener { address, figures, stop, cores: threads })
}

/// One socket per core on the same address.
fn bind_cores(address: SocketAddr, cores: usize) -> io::Result<Vec<StdListener>> {
    // Sharing a port is asked for only between our own cores: another process, even another
    // doorbuster, must be noticed.
    let probe = StdListener::bind(address)?;
    let address = SocketAddr::new(address.ip(), probe.local_addr()?.port());
    drop(probe);
    (0..cores).map(|_| bind_shared(address)).collect()
}

fn bind_shared(address: SocketAddr) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

impl PublicListener {
    /// Stops accepting, lets running requests end, at most as long as the configuration says.
    /// Blocks until every core is done.
    pub fn stop(self) {
        self.stop.send_replace(true);
        for core in self.cores {
            if core.join().is_err() {
                tracing::error!("a core ended in a panic");
            }
        }
    }
}
