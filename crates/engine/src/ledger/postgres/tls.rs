//! Encrypted connections to PostgreSQL.

use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres::config::SslMode;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{PostgresError, PostgresTls};

/// How to ask for encryption, and what a server must show.
pub(super) fn connector(tls: &PostgresTls) -> Result<(SslMode, MakeRustlsConnect), PostgresError> {
    // Named rather than taken from the process: other libraries may bring in a second provider.
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| PostgresError::Tls(error.to_string()))?;
    let mode = match tls {
        PostgresTls::Disable => SslMode::Disable,
        PostgresTls::Prefer => SslMode::Prefer,
        PostgresTls::Require | PostgresTls::VerifyFull { .. } => SslMode::Require,
    };
    let builder = match tls {
        PostgresTls::VerifyFull { ca_file } => {
            builder.with_root_certificates(authorities(ca_file.as_deref())?)
        }
        PostgresTls::Disable | PostgresTls::Prefer | PostgresTls::Require => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyServer(provider)))
        }
    };
    Ok((mode, MakeRustlsConnect::new(builder.with_no_client_auth())))
}

fn authorities(ca_file: Option<&Path>) -> Result<RootCertStore, PostgresError> {
    let mut roots = RootCertStore::empty();
    let Some(path) = ca_file else {
        let found = rustls_native_certs::load_native_certs();
        // One that cannot be read leaves the others: a server that needs it is refused by name.
        roots.add_parsable_certificates(found.certs);
        return if roots.is_empty() {
            Err(PostgresError::Tls(format!("this system has no authorities to trust {:?}", found.errors)))
        } else {
            Ok(roots)
        };
    };
    let unreadable = |error: &dyn std::fmt::Display| {
        PostgresError::Tls(format!("the authorities in {} cannot be read: {error}", path.display()))
    };
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))? {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        roots.add(certificate).map_err(|error| unreadable(&error))?;
    }
    if roots.is_empty() { Err(unreadable(&"there is no certificate in it")) } else { Ok(roots) }
}

/// Takes whatever certificate the server shows, as `require` means it; the handshake's own
/// signatures are checked all the same.
#[derive(Debug)]
struct AnyServer(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
