//! TLS of the two listeners: what each shows, how a connection begins, and how a new certificate is
//! taken while connections live on.

mod ourselves;
mod pair;
mod renew;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::Context;
use arc_swap::{ArcSwap, Guard};
use doorbuster_engine::clock::Timestamp;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use tokio::net::TcpStream;
use tokio_rustls::{Accept, TlsAcceptor};

use crate::config::Config;
pub(crate) use ourselves::client_of;
pub(crate) use pair::{Files, Pair};
pub(crate) use renew::{LOOK_PAUSE, Renewer};

/// The one provider of cryptography. Named rather than taken from the process, where a library may have
/// put another one.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// How the handshakes of a listener ended.
#[derive(Debug, Default)]
pub(crate) struct Handshakes {
    /// With an encrypted connection.
    pub(crate) done: AtomicU64,
    /// The client broke off, or sent what is no TLS, or none that both speak.
    pub(crate) failed: AtomicU64,
    /// Not within the time for a head.
    pub(crate) late: AtomicU64,
}

/// What a listener shows its clients, and how they take it.
pub(crate) struct Shown {
    /// `public` or `admin`, as in the metrics.
    pub(crate) listener: &'static str,
    pub(crate) handshakes: Handshakes,
    files: Files,
    pair: ArcSwap<Pair>,
    unusable: AtomicBool,
}

impl Shown {
    /// The certificate that new connections are shown.
    pub(crate) fn pair(&self) -> Guard<Arc<Pair>> {
        self.pair.load()
    }

    /// Whether the files cannot be used as they are now, so that an earlier pair is still shown.
    pub(crate) fn is_unusable(&self) -> bool {
        self.unusable.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shown").field("listener", &self.listener).finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(self.pair().key()))
    }
}

/// Begins the encrypted connections of one listener.
#[derive(Clone)]
pub(crate) struct Acceptor {
    tls: TlsAcceptor,
    shown: Arc<Shown>,
}

impl Acceptor {
    /// Reads a listener's files, which must be sound.
    fn open(listener: &'static str, files: Files, now: Timestamp) -> anyhow::Result<Self> {
        let pair = files.read()?;
        let ends = crate::views::time(pair.ends());
        if pair.ends() <= now {
            // Nobody is helped by a server that does not start: clients that pin, or do not look, go on.
            tracing::error!(
                listener,
                certificate.ends = ends,
                "the listener's certificate is over and clients will refuse it: put a renewed one in its place, \
                 which is taken without a restart"
            );
        } else {
            tracing::info!(listener, certificate.ends = ends, "the listener speaks TLS");
        }
        let shown = Arc::new(Shown {
            listener,
            handshakes: Handshakes::default(),
            files,
            pair: ArcSwap::from_pointee(pair),
            unusable: AtomicBool::new(false),
        });
        let tls = TlsAcceptor::from(Arc::new(server_config(Arc::clone(&shown))?));
        Ok(Self { tls, shown })
    }

    /// Begins a handshake. Whoever polls it sees to its end in time.
    pub(crate) fn shake(&self, stream: TcpStream) -> Accept<TcpStream> {
        self.tls.accept(stream)
    }

    pub(crate) fn shown(&self) -> &Arc<Shown> {
        &self.shown
    }
}

/// TLS 1.3 and 1.2, HTTP/1.1 alone, no early data: a click that can be replayed is none.
fn server_config(shown: Arc<Shown>) -> anyhow::Result<ServerConfig> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&TLS13, &TLS12])
        .context("TLS cannot be set up")?
        .with_no_client_auth()
        .with_cert_resolver(shown);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Whoever comes back is known by a ticket that the client keeps: no table of sessions grows, none is
    // locked by all cores, and a rush of clients that come back costs no signatures.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.ticketer = aws_lc_rs::Ticketer::new().context("tickets for TLS cannot be made")?;
    Ok(config)
}

/// What begins encrypted connections, for the listeners that have them.
#[derive(Default)]
pub(crate) struct Acceptors {
    pub(crate) public: Option<Acceptor>,
    pub(crate) admin: Option<Acceptor>,
}

impl Acceptors {
    /// Reads the certificates of the listeners that this process has.
    ///
    /// # Errors
    /// When a file cannot be read or used, or everybody can read a key; the message says what to do.
    pub(crate) fn open(config: &Config, now: Timestamp) -> anyhow::Result<Self> {
        let [public, admin] = Files::of_listeners(config);
        let open = |listener, files: Option<Files>| {
            files.map(|files| Acceptor::open(listener, files, now)).transpose()
        };
        Ok(Self { public: open("public", public)?, admin: open("admin", admin)? })
    }

    /// What the listeners with TLS show.
    pub(crate) fn shown(&self) -> Vec<Arc<Shown>> {
        let both = [&self.public, &self.admin];
        both.into_iter().flatten().map(|acceptor| Arc::clone(acceptor.shown())).collect()
    }
}
