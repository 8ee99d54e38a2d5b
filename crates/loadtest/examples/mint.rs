//! Mints access tokens in bulk, one a line: other load generators can then send them.
//!
//! `mint SECRET_FILE PREFIX COUNT`: tokens of the users `PREFIX0`, `PREFIX1` and so on, good for a
//! day, as the server's default configuration wants them.

use std::io::{BufWriter, Write};
use std::time::SystemTime;

use doorbuster_loadtest::TokenSigner;

const LIFETIME_SECS: u64 = 24 * 3_600;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [secret, prefix, count] = arguments.as_slice() else {
        return Err("usage: mint SECRET_FILE PREFIX COUNT".into());
    };
    let secret = std::fs::read_to_string(secret)?;
    let signer = TokenSigner::with_defaults(secret.trim_end().as_bytes())?;
    let now = now_secs()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for number in 0..count.parse::<u64>()? {
        writeln!(out, "{}", signer.sign(&format!("{prefix}{number}"), now, LIFETIME_SECS))?;
    }
    Ok(out.flush()?)
}

#[expect(clippy::disallowed_methods, reason = "tokens are checked against the server's real clock")]
fn now_secs() -> Result<u64, std::time::SystemTimeError> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}
