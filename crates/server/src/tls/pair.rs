//! A certificate with its key, from two files.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use doorbuster_engine::clock::Timestamp;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};
use sha2::{Digest, Sha256};
use x509_cert::Certificate;
use x509_cert::der::Decode;

use super::provider;
use crate::config::{Config, Role, Secret, Tls};

/// Where a listener's certificate and key are.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The configuration's section that names them.
    pub(crate) section: &'static str,
    cert: PathBuf,
    key: PathBuf,
}

/// A certificate that can be shown, with its key.
pub(crate) struct Pair {
    key: Arc<CertifiedKey>,
    ends: Timestamp,
    own_end: Timestamp,
    print: [u8; 32],
}

impl Pair {
    /// What signs handshakes, with the certificate and those between it and its authority.
    pub(crate) fn key(&self) -> &Arc<CertifiedKey> {
        &self.key
    }

    /// When the server's own certificate ends. One behind it may be over without harm: clients find another way.
    pub(crate) fn own_end(&self) -> Timestamp {
        self.own_end
    }

    /// When the first of its certificates ends.
    pub(crate) fn ends(&self) -> Timestamp {
        self.ends
    }

    /// Whether the other one was read from the same bytes.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Files {
    /// Those of the public listener and of the staff's, as far as this process has the listener and it has TLS.
    pub(crate) fn of_listeners(config: &Config) -> [Option<Self>; 2] {
        let public = config.server.roles.contains(&Role::Gateway).then_some(&config.server.tls);
        [public.and_then(|tls| Self::of("server.tls", tls)), Self::of("admin.tls", &config.admin.tls)]
    }

    /// The files that a section names; `None` when it names none.
    fn of(section: &'static str, tls: &Tls) -> Option<Self> {
        let files = || Self { section, cert: tls.certificate_file.clone(), key: tls.key_file.clone() };
        tls.is_on().then(files)
    }

    /// Reads both files, which blocks.
    ///
    /// # Errors
    /// When one cannot be read or used, they do not belong together, or everybody can read the key; the
    /// message names the key of the configuration and says what to do, and never shows what is in the files.
    pub(crate) fn read(&self) -> anyhow::Result<Pair> {
        let (cert_key, key_key) =
            (format!("{}.certificate_file", self.section), format!("{}.key_file", self.section));
        let (cert, key) = (self.cert.display(), self.key.display());
        let text = std::fs::read(&self.cert)
            .with_context(|| format!("the certificate in {cert} ({cert_key}) cannot be read"))?;
        let secret = Secret::from_file(&self.key, &key_key)?;
        let no_certificate = || {
            anyhow!(
                "{cert_key} = {cert} is no certificate in PEM: name the file with the server's certificate and, \
                 behind it, those between it and the authority, such as certbot's fullchain.pem"
            )
        };
        let chain: Vec<CertificateDer<'static>> =
            CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(|_| no_certificate())?;
        let ends = first_end(&chain).ok_or_else(no_certificate)?;
        let own_end = first_end(&chain[..1]).ok_or_else(no_certificate)?;
        // The library's own error may quote the file, and the file is a secret.
        let private = PrivateKeyDer::from_pem_slice(secret.reveal().as_bytes()).map_err(|_| {
            anyhow!(
                "{key_key} = {key} is no private key in PEM without a password: `openssl pkey -in {key} -out NEW` \
                 writes one"
            )
        })?;
        let print = Sha256::new()
            .chain_update((text.len() as u64).to_be_bytes())
            .chain_update(&text)
            .chain_update(secret.reveal())
            .finalize()
            .into();
        match CertifiedKey::from_der(chain, private, &provider()) {
            Ok(key) => Ok(Pair { key: Arc::new(key), ends, own_end, print }),
            Err(Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => bail!(
                "the key in {key} ({key_key}) is not that of the first certificate in {cert} ({cert_key}): name two \
                 files of one pair, such as certbot's fullchain.pem and privkey.pem, with the server's own \
                 certificate first"
            ),
            Err(error) => Err(anyhow::Error::new(error).context(format!(
                "the certificate in {cert} ({cert_key}) and the key in {key} ({key_key}) cannot be used: RSA of 2,048 \
                 bits or more, ECDSA and Ed25519 can"
            ))),
        }
    }
}

/// When the first of these certificates ends; `None` when there is none, or one is no certificate.
fn first_end(chain: &[CertificateDer<'_>]) -> Option<Timestamp> {
    let end = |der: &CertificateDer<'_>| {
        let certificate = Certificate::from_der(der).ok()?;
        let end = certificate.tbs_certificate.validity.not_after.to_unix_duration();
        Some(Timestamp::from_ms(i64::try_from(end.as_millis()).unwrap_or(i64::MAX)))
    };
    chain.iter().map(end).collect::<Option<Vec<_>>>()?.into_iter().min()
}
