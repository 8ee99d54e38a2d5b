//! An authority of a test's own, and what it signs.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};

use crate::shop::tls::AUTHORITY;
use crate::shop::write_private;

/// A folder with a listener's certificate, its key, and the authority that signed it.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub(crate) struct Made {
    pub(crate) cert: String,
    pub(crate) key: String,
}

impl Certificates {
    /// With a pair that is good until 2100.
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(AUTHORITY), authority.pem()).unwrap();
        let it = Self { folder, authority };
        it.put(&it.made(2100));
        it
    }

    pub(crate) fn cert(&self) -> PathBuf {
        self.folder.path().join("cert.pem")
    }

    pub(crate) fn key(&self) -> PathBuf {
        self.folder.path().join("key.pem")
    }

    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join(AUTHORITY)
    }

    /// A pair for this machine that ends with `year`'s first day.
    pub(crate) fn made(&self, year: i32) -> Made {
        let key = KeyPair::generate().unwrap();
        let mut params =
            CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        params.not_after = date_time_ymd(year, 1, 1);
        Made { cert: params.signed_by(&key, &self.authority).unwrap().pem(), key: key.serialize_pem() }
    }

    /// Puts a pair where the listeners look, as a renewal does: one file after the other.
    pub(crate) fn put(&self, made: &Made) {
        replace(&self.cert(), &made.cert);
        replace(&self.key(), &made.key);
    }

    /// Settings for both listeners.
    pub(crate) fn settings(&self) -> [(&'static str, String); 4] {
        let (cert, key) = (self.cert().display().to_string(), self.key().display().to_string());
        [
            ("server.tls.certificate_file", cert.clone()),
            ("server.tls.key_file", key.clone()),
            ("admin.tls.certificate_file", cert),
            ("admin.tls.key_file", key),
        ]
    }
}

/// No reader finds half of it.
pub(crate) fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    write_private(&new, text);
    std::fs::rename(&new, path).unwrap();
}
