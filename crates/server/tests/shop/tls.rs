//! Connections to listeners that may have TLS: whoever is believed stands in `authority.pem` beside the
//! listener's certificate.

use std::net::SocketAddr;
use std::sync::Arc;

use doorbuster_loadtest::{AdminClient, AdminError};
use doorbuster_server::app::App;
use doorbuster_server::config::{Config, Tls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::Line;

/// The file of the authority that signed a listener's certificate.
pub(crate) const AUTHORITY: &str = "authority.pem";

fn authority(tls: &Tls) -> Vec<u8> {
    std::fs::read(tls.certificate_file.with_file_name(AUTHORITY)).unwrap()
}

/// A client of the staff's listener.
pub(super) fn staff_client(config: &Config, app: &App, token: &str) -> Result<AdminClient, AdminError> {
    let tls = &config.admin.tls;
    let client = AdminClient::new(&format!("{}://{}", tls.scheme(), app.admin_address), token)?;
    if tls.is_on() { client.trusting(&authority(tls)) } else { Ok(client) }
}

/// A connection to a listener, as it speaks.
pub(super) async fn line(address: SocketAddr, tls: &Tls) -> std::io::Result<Line> {
    if tls.is_on() {
        Ok(Line::over(encrypted(address, tls, rustls::ALL_VERSIONS, &["http/1.1"]).await?))
    } else {
        Line::connect(address).await
    }
}

/// An encrypted connection by one of these versions, for one of these protocols.
pub(crate) async fn encrypted(
    address: SocketAddr,
    tls: &Tls,
    versions: &[&'static SupportedProtocolVersion],
    protocols: &[&str],
) -> std::io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&authority(tls)).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let mut config = config.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    TlsConnector::from(Arc::new(config)).connect(address.ip().into(), stream).await
}
