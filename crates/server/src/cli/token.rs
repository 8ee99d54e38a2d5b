//! `doorbuster token mint`.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, Subcommand};
use doorbuster_engine::clock::{Clock, SystemClock, Timestamp};
use doorbuster_engine::gate::{JwtKey, SaleToken, SaleTokens};
use doorbuster_engine::member::{Level, Profile, Region};
use doorbuster_engine::order::{SaleId, UserId};
use doorbuster_loadtest::{DEFAULT_ISSUER_AND_AUDIENCE, TokenSigner};

use super::{Verdict, output};
use crate::admin::{Role, Tokens, is_name, made};

/// Access tokens for try-outs (in a shop, the shop signs them), sale tokens, and tokens for the staff.
#[derive(Args)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Subcommand)]
enum TokenCommand {
    /// Sign one access token, or with --sale one sale token, and print it
    #[command(
        after_help = "Examples:\n  doorbuster token mint --sub alice --sale 1 --signing-key-file sale.secret --lifetime 2h\n  curl -X POST -H \"Authorization: Bearer $(doorbuster token mint --sub alice --signing-key-file secret)\" \\\n      http://127.0.0.1:8080/api/flash-sales/items/1/purchase"
    )]
    Mint(MintArgs),
    /// Make a token for a member of the staff, and let the server know its hash
    #[command(
        after_help = "Example:\n  doorbuster token staff --role operator --name alice --lifetime 30days --file staff.tokens > alice.token\n\nThe token is printed once and stands nowhere else. A server reads the file (admin.token_file) when it starts."
    )]
    Staff(StaffArgs),
}

#[derive(Args)]
struct StaffArgs {
    /// What they may do: `viewer` reads, `operator` runs sales, `admin` everything
    #[arg(long, value_parser = role)]
    role: Role,
    /// Who they are, in the log
    #[arg(long)]
    name: String,
    /// How long it is good, such as 30days; without it, until its line is removed
    #[arg(long, value_parser = duration)]
    lifetime: Option<Duration>,
    /// The server's file of tokens, to which a line is added; made when it is missing
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
}

fn role(text: &str) -> Result<Role, String> {
    let known = [Role::Viewer, Role::Operator, Role::Admin];
    known
        .into_iter()
        .find(|it| it.as_str() == text)
        .ok_or_else(|| "wanted viewer, operator or admin".to_owned())
}

#[derive(Args)]
struct MintArgs {
    /// The user's id
    #[arg(long)]
    sub: String,
    /// Make a token for this sale, which stands beside or instead of an access token in a purchase
    #[arg(long, value_name = "ID", conflicts_with_all = ["issuer", "audience"])]
    sale: Option<SaleId>,
    /// Say in the sale token that its user has passed a captcha, such as one of the shop's own
    #[arg(long, requires = "sale")]
    captcha: bool,
    /// Say in the sale token that its user was let in from a waiting room, such as one of the shop's own
    #[arg(long, requires = "sale")]
    let_in: bool,
    /// The user's level in the sale token: 1 for the first name of gate.levels, and so on; 0 is no member
    #[arg(long, value_name = "NUMBER", requires = "sale", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=7))]
    level: u8,
    /// The user's region in the sale token, such as DE
    #[arg(long, requires = "sale")]
    region: Option<Region>,
    /// File with the HS256 secret that the server verifies with; with --sale, its gate.sale_tokens.secret_file
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
    match &args.command {
        TokenCommand::Mint(mint) => sign(mint),
        TokenCommand::Staff(staff) => make(staff),
    }
}

/// Adds a line before the token is shown: what was shown and is not known would be a riddle.
fn make(args: &StaffArgs) -> anyhow::Result<Verdict> {
    let file = args.file.display();
    ensure!(is_name(&args.name), "--name needs 1 to 64 of a-z, A-Z, 0-9, @ . _ and -");
    let is_empty = std::fs::metadata(&args.file).map_or(true, |it| it.len() == 0);
    if !is_empty {
        Tokens::read(&args.file).context("nothing was added to it")?;
    }
    let until = args.lifetime.map(|lifetime| SystemClock::new().now().plus(lifetime));
    let (token, line) = made(args.role, &args.name, until);
    let mut tokens = OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .mode(0o600)
        .open(&args.file)
        .with_context(|| format!("{file} cannot be written to"))?;
    let mut before = String::new();
    tokens.read_to_string(&mut before).with_context(|| format!("{file} cannot be read"))?;
    let gap = if before.is_empty() || before.ends_with('\n') { "" } else { "\n" };
    let added = tokens.write_all(format!("{gap}{line}\n").as_bytes()).and_then(|()| tokens.sync_all());
    added.with_context(|| format!("{file} cannot be written to"))?;
    output::line(&token);
    Ok(Verdict::Fine)
}

fn sign(mint: &MintArgs) -> anyhow::Result<Verdict> {
    let user = UserId::new(&mint.sub).context("--sub")?;
    let now = SystemClock::new().now();
    let token = match mint.sale {
        Some(sale) => sale_token(mint, sale, &user, now)?,
        None => {
            let signer = TokenSigner::new(&secret(&mint.signing_key_file)?, &mint.issuer, &mint.audience)?;
            let begins = u64::try_from(now.as_ms() / 1_000)?;
            signer.sign(&mint.sub, begins, mint.lifetime.as_secs())
        }
    };
    output::line(&token);
    Ok(Verdict::Fine)
}

/// Signed with the first secret of the file, as the server does it.
fn sale_token(mint: &MintArgs, sale: SaleId, user: &UserId, now: Timestamp) -> anyhow::Result<String> {
    let file = mint.signing_key_file.display();
    let text = std::fs::read_to_string(&mint.signing_key_file)
        .with_context(|| format!("the secrets in {file} cannot be read"))?;
    let first = text.split_whitespace().next().with_context(|| format!("{file} has no secret"))?;
    // When the server would give one out does not matter here.
    let tokens =
        SaleTokens::new([first.as_bytes()], SaleTokens::none().rules()).with_context(|| file.to_string())?;
    let token = SaleToken {
        sale,
        user,
        begins: now,
        ends: now.plus(mint.lifetime),
        captcha: mint.captcha,
        let_in: mint.let_in,
        profile: Profile { level: Level(mint.level), region: mint.region },
    };
    tokens.sign(&token).context("no secret")
}
