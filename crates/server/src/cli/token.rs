//! `doorbuster token mint`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_engine::gate::JwtKey;
use doorbuster_loadtest::{DEFAULT_ISSUER_AND_AUDIENCE, TokenSigner};

use super::{Verdict, output};

/// Access tokens for try-outs; in a shop, the shop signs them.
#[derive(Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Sign one access token and print it
    #[command(
        after_help = "Example:\n  curl -X POST -H \"Authorization: Bearer $(doorbuster token mint --sub alice --signing-key-file secret)\" \\\n      http://127.0.0.1:8080/api/flash-sales/items/1/purchase"
    )]
    Mint(MintArgs),
}

#[derive(Args)]
struct MintArgs {
    /// The user's id
    #[arg(long)]
    sub: String,
    /// File with the HS256 secret that the server verifies with
    #[arg(long, value_name = "FILE")]
    signing_key_file: PathBuf,
    /// What `iss` says
    #[arg(long, default_value = DEFAULT_ISSUER_AND_AUDIENCE)]
    issuer: String,
    /// What `aud` says
    #[arg(long, default_value = DEFAULT_ISSUER_AND_AUDIENCE)]
    audience: String,
    /// How long it is good, such as 15m
    #[arg(long, default_value = "1h", value_parser = duration)]
    lifetime: Duration,
}

/// A duration with its unit.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match config_duration(text) {
        Some(duration) if !text.trim().bytes().all(|byte| byte.is_ascii_digit()) => Ok(duration),
        _ => Err("wanted a duration with its unit, such as 500ms, 2s or 10m".to_owned()),
    }
}

fn config_duration(text: &str) -> Option<Duration> {
    let text = serde_json::to_string(text).ok()?;
    let mut reader = serde_json::Deserializer::from_str(&text);
    humantime_serde::deserialize(&mut reader).ok()
}

/// The secret in a file, without the line break at its end.
pub(super) fn secret(path: &std::path::Path) -> anyhow::Result<Vec<u8>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the secret in {} cannot be read", path.display()))?;
    let secret = text.trim_end_matches(['\r', '\n']).as_bytes().to_vec();
    JwtKey::hs256(&secret).with_context(|| path.display().to_string())?;
    Ok(secret)
}

pub(crate) fn run(args: &TokenArgs) -> anyhow::Result<Verdict> {
    let TokenCommand::Mint(mint) = &args.command;
    doorbuster_engine::order::UserId::new(&mint.sub).context("--sub")?;
    let signer = TokenSigner::new(&secret(&mint.signing_key_file)?, &mint.issuer, &mint.audience)?;
    let now = u64::try_from(SystemClock::new().now().as_ms() / 1_000)?;
    output::line(&signer.sign(&mint.sub, now, mint.lifetime.as_secs()));
    Ok(Verdict::Fine)
}
