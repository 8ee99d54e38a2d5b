//! Certificates for a Redis behind TLS.

use std::path::Path;

use redis::{ClientTlsConfig, TlsCertificates};

use super::RedisOptions;
use crate::fault::{BackendError, Fault, Layer};

/// The files that the options name, read; nothing when they name none.
pub(super) fn certificates(options: &RedisOptions) -> Result<Option<TlsCertificates>, BackendError> {
    // The process' default is set by whoever comes first; all of us bring the same.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    if options.ca_file.is_none() && options.certificate.is_none() {
        return Ok(None);
    }
    let root_cert = options.ca_file.as_deref().map(read).transpose()?;
    let client_tls = match &options.certificate {
        Some((certificate, key)) => {
            Some(ClientTlsConfig { client_cert: read(certificate)?, client_key: read(key)? })
        }
        None => None,
    };
    Ok(Some(TlsCertificates { client_tls, root_cert }))
}

fn read(path: &Path) -> Result<Vec<u8>, BackendError> {
    std::fs::read(path).map_err(|error| {
        let what = format!("the certificate file {} cannot be read", path.display());
        BackendError::new(Layer::Stock, Fault::Permanent, what).caused_by(error)
    })
}
