//! The staff's tokens, from a file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::config::Config;

/// Shortest token, in bytes.
const TOKEN_MIN: usize = 24;

/// What a member of the staff may do; each may what the ones before may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads everything.
    Viewer,
    /// Runs sales.
    Operator,
    /// Everything.
    Admin,
}

impl Role {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// Known tokens, kept as hashes: comparing hashes tells nothing about the tokens by its duration.
pub struct Tokens(Vec<([u8; 32], Role)>);

impl Tokens {
    /// Reads lines of `role token`; empty lines and lines that begin with `#` do not count.
    ///
    /// # Errors
    /// When the file cannot be read, others may read it, or a line is wrong; the line is named,
    /// the token is not.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let file = path.display();
        let text = fs::read_to_string(path)
            .with_context(|| format!("the staff's tokens cannot be read from {file}"))?;
        let mode = fs::metadata(path)?.permissions().mode();
        if mode & 0o007 != 0 {
            bail!(
                "{file} can be read by everybody: run `chmod 600 {file}` and, since others may have read them, make new tokens"
            );
        }
        let mut tokens = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (role, token) = match line.split_once(char::is_whitespace) {
                Some(("viewer", token)) => (Role::Viewer, token),
                Some(("operator", token)) => (Role::Operator, token),
                Some(("admin", token)) => (Role::Admin, token),
                _ => bail!("{file}, line {number}: wanted `viewer TOKEN`, `operator TOKEN` or `admin TOKEN`"),
            };
            if token.trim().len() < TOKEN_MIN {
                bail!(
                    "{file}, line {number}: a token needs at least {TOKEN_MIN} characters, such as from `openssl rand -hex 24`"
                );
            }
            tokens.push((Sha256::digest(token.trim()).into(), role));
        }
        if tokens.is_empty() {
            bail!("{file} has no token: add a line such as `admin TOKEN`");
        }
        Ok(Self(tokens))
    }

    /// The role of whoever has this token.
    pub fn role_of(&self, token: &[u8]) -> Option<Role> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        self.0.iter().find(|(known, _)| *known == hash).map(|(_, role)| *role)
    }
}

/// The file with the staff's tokens; where the configuration names none, one is made in the data
/// directory, readable by its owner only.
///
/// # Errors
/// When the file cannot be made.
pub fn token_file(config: &Config) -> anyhow::Result<PathBuf> {
    if !config.admin.token_file.as_os_str().is_empty() {
        return Ok(config.admin.token_file.clone());
    }
    let path = config.data.dir.join("admin.token");
    if !path.exists() {
        let line = format!("admin {:032x}{:032x}\n", rand::random::<u128>(), rand::random::<u128>());
        // Written whole under another name first: a crash leaves no half token.
        let half = config.data.dir.join("admin.token.new");
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&half)
            .and_then(|mut file| file.write_all(line.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| fs::rename(&half, &path))
            .with_context(|| format!("the staff's token cannot be written to {}", path.display()))?;
        tracing::info!(file = %path.display(), "made a token for the staff");
    }
    Ok(path)
}

/// The first token of a file, for the command line's own requests.
///
/// # Errors
/// When the file cannot be read or has none.
pub(crate) fn first_token(path: &Path) -> anyhow::Result<String> {
    let text = fs::read_to_string(path).map_err(|error| {
        anyhow::anyhow!(
            "the staff's token cannot be read from {}: {error}; name the file with --admin-token-file (`serve` \
             logs where it is)",
            path.display()
        )
    })?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let token = lines.map(|line| line.split_whitespace().last().unwrap_or(line).to_owned()).next();
    token.with_context(|| format!("{} has no token", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str, mode: u32) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        (folder, path)
    }

    #[test]
    fn a_token_has_the_role_of_its_line() {
        let (_folder, path) =
            file("# staff\nviewer aaaaaaaaaaaaaaaaaaaaaaaa\n\nadmin  bbbbbbbbbbbbbbbbbbbbbbbb\n", 0o600);
        let tokens = Tokens::read(&path).unwrap();
        assert_eq!(tokens.role_of(b"aaaaaaaaaaaaaaaaaaaaaaaa"), Some(Role::Viewer));
        assert_eq!(tokens.role_of(b"bbbbbbbbbbbbbbbbbbbbbbbb"), Some(Role::Admin));
        assert_eq!(tokens.role_of(b"viewer"), None);
        assert_eq!(first_token(&path).unwrap(), "aaaaaaaaaaaaaaaaaaaaaaaa");
    }

    #[test]
    fn short_open_and_malformed_files_are_refused() {
        for (text, mode) in [
            ("", 0o600),
            ("admin short", 0o600),
            ("root bbbbbbbbbbbbbbbbbbbbbbbb", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb", 0o604),
        ] {
            let (_folder, path) = file(text, mode);
            let error = Tokens::read(&path).err().unwrap().to_string();
            assert!(!error.contains("bbbb"), "{error}");
        }
    }
}
