//! A client for calls of this process to its own listener.

use std::sync::Arc;

use anyhow::Context;
use reqwest::ClientBuilder;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use super::{Shown, provider};

/// What makes a client of the listener that shows this.
///
/// # Errors
/// When TLS cannot be set up.
pub(crate) fn client_of(shown: &Arc<Shown>) -> anyhow::Result<ClientBuilder> {
    let provider = provider();
    let ourselves = Ourselves { shown: Arc::clone(shown), provider: Arc::clone(&provider) };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("TLS cannot be set up")?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(ourselves))
        .with_no_client_auth();
    Ok(reqwest::Client::builder().tls_backend_preconfigured(config))
}

/// Takes the certificate that our own listener shows, and no other: its names are those that buyers use, not
/// the address by which we reach ourselves, and its authority need not be known on this machine.
#[derive(Debug)]
struct Ourselves {
    shown: Arc<Shown>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Ourselves {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.shown.pair().key().cert.first().is_some_and(|own| own == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
