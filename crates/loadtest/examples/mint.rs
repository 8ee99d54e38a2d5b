//! Mints access tokens in bulk, one a line: other load generators can then send them.
//!
//! `mint SECRET_FILE PREFIX COUNT`: tokens of the users `PREFIX0`, `PREFIX1` and so on, good for a
//! day, as the server's default configuration wants them. `mint SECRET_FILE PREFIX COUNT unknown-keys`: tokens that
//! each name another key (`kid`), which nobody has.

use std::io::{BufWriter, Write};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use doorbuster_loadtest::TokenSigner;

const LIFETIME_SECS: u64 = 24 * 3_600;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (secret, prefix, count, unknown_keys) = match arguments.as_slice() {
        [secret, prefix, count] => (secret, prefix, count, false),
        [secret, prefix, count, what] if what == "unknown-keys" => (secret, prefix, count, true),
        _ => return Err("usage: mint SECRET_FILE PREFIX COUNT [unknown-keys]".into()),
    };
    let secret = std::fs::read_to_string(secret)?;
    let signer = TokenSigner::with_defaults(secret.trim_end().as_bytes())?;
    let now = now_secs()?;
    let mut out = BufWriter::new(std::io::stdout().lock());
    for number in 0..count.parse::<u64>()? {
        let token = signer.sign(&format!("{prefix}{number}"), now, LIFETIME_SECS);
        match token.split_once('.').filter(|_| unknown_keys) {
            // The signature is not good behind another head, and nobody gets as far as that.
            Some((_, rest)) => {
                let head = format!(r#"{{"typ":"JWT","alg":"HS256","kid":"key-{number}"}}"#);
                writeln!(out, "{}.{rest}", URL_SAFE_NO_PAD.encode(head))?;
            }
            None => writeln!(out, "{token}")?,
        }
    }
    Ok(out.flush()?)
}

#[expect(clippy::disallowed_methods, reason = "tokens are checked against the server's real clock")]
fn now_secs() -> Result<u64, std::time::SystemTimeError> {
    Ok(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs())
}
