//! Certificates for servers that speak TLS, and for the clients that tests let come to them.
//!
//! In a folder: `ca.pem` is who signed `server.pem` and `client.pem`; `other.pem` is an authority that
//! no server believes, and signed `stranger.pem`. Each has its key beside it (`server.key`), and
//! `client-locked.key` is the client's under [`PASSWORD`].

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::command::output_of;

/// What opens `client-locked.key`; it guards nothing.
const PASSWORD: &str = "open-sesame";

/// How every key is made: small and fast.
const KEY: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"];

/// The files in one folder.
pub(crate) struct Certificates {
    folder: PathBuf,
}

impl Certificates {
    /// Makes all of them; the server's is good for `names`, such as `DNS:localhost,IP:127.0.0.1`.
    ///
    /// # Errors
    /// The folder cannot be made, or `openssl` is missing or fails.
    pub(crate) fn make(folder: &Path, names: &str) -> Result<Self> {
        fs::create_dir(folder).with_context(|| format!("making {}", folder.display()))?;
        let it = Self { folder: folder.to_owned() };
        let extensions = it.file("names");
        fs::write(&extensions, format!("subjectAltName={names}\n"))
            .with_context(|| extensions.display().to_string())?;
        it.authority("ca")?;
        it.authority("other")?;
        it.signed("server", "ca")?;
        it.signed("client", "ca")?;
        it.signed("stranger", "other")?;
        let lock = format!("pass:{PASSWORD}");
        let locked = ["-in", "client.key", "-aes256", "-passout", &lock, "-out", "client-locked.key"];
        it.openssl("pkey", &locked)?;
        Ok(it)
    }

    /// One of the files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn authority(&self, name: &str) -> Result<()> {
        let (subject, key, out) = (format!("/CN={name}"), format!("{name}.key"), format!("{name}.pem"));
        let own = ["-x509", "-days", "30", "-subj", &subject, "-keyout", &key, "-out", &out];
        self.openssl("req", &[&KEY[..], &own].concat())
    }

    fn signed(&self, name: &str, authority: &str) -> Result<()> {
        let file = |of: &str, kind: &str| format!("{of}.{kind}");
        let (subject, key, request) = (format!("/CN={name}"), file(name, "key"), file(name, "csr"));
        let own = ["-subj", &subject, "-keyout", &key, "-out", &request];
        self.openssl("req", &[&KEY[..], &own].concat())?;
        let (signer, signer_key, out) = (file(authority, "pem"), file(authority, "key"), file(name, "pem"));
        let by = ["-req", "-in", &request, "-CA", &signer, "-CAkey", &signer_key, "-CAcreateserial"];
        self.openssl("x509", &[&by[..], &["-days", "30", "-extfile", "names", "-out", &out]].concat())
    }

    fn openssl(&self, what: &str, arguments: &[&str]) -> Result<()> {
        output_of(Command::new("openssl").arg(what).args(arguments).current_dir(&self.folder)).map(drop)
    }
}
