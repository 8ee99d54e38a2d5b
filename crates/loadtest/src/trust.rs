//! Whom a server at an `https://` address must prove to be.

use std::io;
use std::sync::Arc;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, Error, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The authorities that a client believes.
#[derive(Clone)]
pub(crate) struct Trust(TlsConnector);

impl Trust {
    /// Those of this system; `None` when it has none.
    pub(crate) fn system() -> Option<Self> {
        let mut roots = RootCertStore::empty();
        // One that cannot be read leaves the others: a server that needs it is refused.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Self::of(roots)
    }

    /// Those in a PEM text and no others; `None` when there is none in it.
    pub(crate) fn only(pem: &[u8]) -> Option<Self> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            roots.add(certificate.ok()?).ok()?;
        }
        Self::of(roots)
    }

    fn of(roots: RootCertStore) -> Option<Self> {
        if roots.is_empty() {
            return None;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().ok()?;
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Some(Self(TlsConnector::from(Arc::new(config))))
    }

    /// Encrypts a connection to the server of this name.
    pub(crate) async fn connect(
        &self,
        name: &ServerName<'static>,
        stream: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        self.0.connect(name.clone(), stream).await
    }
}

impl std::fmt::Debug for Trust {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Trust")
    }
}

fn cause(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

/// Why a server's certificate was not believed, if that is what went wrong.
pub(crate) fn untrusted(error: &io::Error) -> Option<String> {
    let Some(Error::InvalidCertificate(why)) = cause(error) else { return None };
    Some(match why {
        // The latter is another authority under the name of one that is trusted.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "no authority that is trusted here signed its certificate".to_owned()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name than that in the address".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate is over".to_owned()
        }
        other => format!("its certificate is not good: {other:?}"),
    })
}

/// Whether what answered a handshake does not speak TLS.
pub(crate) fn is_plain(error: &io::Error) -> bool {
    matches!(cause(error), Some(Error::InvalidMessage(_)))
}
