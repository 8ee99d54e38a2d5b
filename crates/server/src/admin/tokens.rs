//! The staff's tokens, from a file.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use doorbuster_engine::clock::Timestamp;
use sha2::{Digest, Sha256};

use crate::config::Config;
use crate::views;

/// Shortest token, in bytes.
const TOKEN_MIN: usize = 24;

/// Longest name, in bytes.
const NAME_MAX: usize = 64;

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

/// How a line begins that has a token's hash instead of the token.
const HASHED: &str = "sha256:";

/// A member of the staff, as a line of the file names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    hash: [u8; 32],
    /// What they may do.
    pub role: Role,
    /// Who they are, in the log; `-` when the line does not say.
    pub name: String,
    /// Their token's last moment, if it has one.
    pub until: Option<Timestamp>,
}

/// Known tokens, kept as hashes: comparing hashes tells nothing about the tokens by its duration.
pub struct Tokens(Vec<Member>);

impl Tokens {
    /// Reads lines of a role, a token or its hash, and what else is known of it, such as
    /// `operator sha256:… name=alice until=2026-12-31T00:00:00Z`; empty lines and lines that begin with `#`
    /// do not count.
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
        let mut members: Vec<Member> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let member = member(line).map_err(|why| anyhow::anyhow!("{file}, line {number}: {why}"))?;
            if members.iter().any(|it| it.hash == member.hash) {
                bail!("{file}, line {number}: its token stands in an earlier line too");
            }
            members.push(member);
        }
        if members.is_empty() {
            bail!("{file} has no token: add a line such as `admin TOKEN`");
        }
        Ok(Self(members))
    }

    /// Whose token it is, if it counts at `now`.
    pub fn member(&self, token: &[u8], now: Timestamp) -> Option<&Member> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let known = self.0.iter().find(|member| member.hash == hash)?;
        known.until.is_none_or(|until| now <= until).then_some(known)
    }
}

fn member(line: &str) -> Result<Member, String> {
    let mut words = line.split_whitespace();
    let role = match words.next() {
        Some("viewer") => Role::Viewer,
        Some("operator") => Role::Operator,
        Some("admin") => Role::Admin,
        _ => return Err("wanted `viewer TOKEN`, `operator TOKEN` or `admin TOKEN`".to_owned()),
    };
    let token = words.next().ok_or("there is no token behind the role")?;
    let hash = match token.strip_prefix(HASHED) {
        Some(hex) => from_hex(hex).ok_or("what follows sha256: is not 64 hexadecimal digits")?,
        None if token.len() < TOKEN_MIN => {
            return Err(format!(
                "a token needs at least {TOKEN_MIN} characters, such as from `openssl rand -hex 24`"
            ));
        }
        None => Sha256::digest(token).into(),
    };
    let (mut name, mut until) = ("-".to_owned(), None);
    for word in words {
        match word.split_once('=') {
            Some(("name", it)) if is_name(it) => name = it.to_owned(),
            Some(("until", time)) => {
                let time: jiff::Timestamp = time.parse().map_err(|_| {
                    "until= needs a time with its offset, such as until=2026-12-31T00:00:00Z".to_owned()
                })?;
                until = Some(Timestamp::from_ms(time.as_millisecond()));
            }
            _ => {
                return Err(format!(
                    "behind the token stand name= (1 to {NAME_MAX} of a-z, A-Z, 0-9, @ . _ -) and until= alone"
                ));
            }
        }
    }
    Ok(Member { hash, role, name, until })
}

/// Whether this can be the name of a member of the staff.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"@._-".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(plain)
}

fn from_hex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    let digits = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    for (byte, at) in bytes.iter_mut().zip((0..64).step_by(2)) {
        *byte = u8::from_str_radix(digits.then(|| &text[at..at + 2])?, 16).ok()?;
    }
    Some(bytes)
}

/// A new token and the line by which a server knows it: its hash, so that whoever reads the file cannot
/// use it.
pub(crate) fn made(role: Role, name: &str, until: Option<Timestamp>) -> (String, String) {
    let token = format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>());
    let hash: String = Sha256::digest(&token).iter().map(|byte| format!("{byte:02x}")).collect();
    let mut line = format!("{} {HASHED}{hash} name={name}", role.as_str());
    if let Some(until) = until {
        line.push_str(" until=");
        line.push_str(&views::time(until));
    }
    (token, line)
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
    // A file of one's own may have the token alone.
    let words = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        if ["viewer", "operator", "admin"].contains(&first) { words.next() } else { Some(first) }
    });
    let token = words.filter(|word| !word.starts_with(HASHED)).map(str::to_owned).next();
    token.with_context(|| {
        format!("{} has no token that could be shown to the server; a hash is none", path.display())
    })
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
        let role = |token: &[u8]| tokens.member(token, Timestamp::from_ms(0)).map(|it| it.role);
        assert_eq!(role(b"aaaaaaaaaaaaaaaaaaaaaaaa"), Some(Role::Viewer));
        assert_eq!(role(b"bbbbbbbbbbbbbbbbbbbbbbbb"), Some(Role::Admin));
        assert_eq!(role(b"viewer"), None);
        assert_eq!(first_token(&path).unwrap(), "aaaaaaaaaaaaaaaaaaaaaaaa");
    }

    #[test]
    fn short_open_and_malformed_files_are_refused() {
        for (text, mode) in [
            ("", 0o600),
            ("admin short", 0o600),
            ("root bbbbbbbbbbbbbbbbbbbbbbbb", 0o600),
            ("admin", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb\nviewer bbbbbbbbbbbbbbbbbbbbbbbb", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb until=tomorrow", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb until=2026-12-31", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb name=a\u{1b}b", 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb bbbbbbbb", 0o600),
            ("admin sha256:bbbb", 0o600),
            (&format!("admin sha256:{}", "ä".repeat(32)), 0o600),
            ("admin bbbbbbbbbbbbbbbbbbbbbbbb", 0o604),
        ] {
            let (_folder, path) = file(text, mode);
            let error = Tokens::read(&path).err().unwrap().to_string();
            assert!(!error.contains("bbbb"), "{error}");
        }
    }

    #[test]
    fn a_hashed_token_is_known_by_itself_until_its_time_is_over() {
        let ends = Timestamp::from_ms(1_800_000_000_000);
        let (token, line) = made(Role::Operator, "alice@shop", Some(ends));
        assert!(!line.contains(&token));
        let (_folder, path) = file(&line, 0o600);
        let tokens = Tokens::read(&path).unwrap();
        let member = |token: &str, at: Timestamp| tokens.member(token.as_bytes(), at);
        let alice = member(&token, ends).unwrap();
        assert_eq!(
            (alice.role, alice.name.as_str(), alice.until),
            (Role::Operator, "alice@shop", Some(ends))
        );
        assert!(member(&token, Timestamp::from_ms(ends.as_ms() + 1)).is_none());
        // What stands in the file opens nothing.
        let hash = line.split_whitespace().nth(1).unwrap();
        assert!(member(hash, ends).is_none() && member(&hash[HASHED.len()..], ends).is_none());
        assert!(first_token(&path).unwrap_err().to_string().contains("a hash is none"));
    }
}
