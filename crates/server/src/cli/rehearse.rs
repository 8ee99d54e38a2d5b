//! `doorbuster rehearse`.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use doorbuster_loadtest::{
    AdminClient, Aftermath, Audit, DEFAULT_ISSUER_AND_AUDIENCE, Lived, Plan, Progress, Report, Shares, Storm,
    TokenSigner, balance, count_till, find_sandbox, live_on, settle, storm,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::client::AdminArgs;
use super::compare::{self, CompareArgs};
use super::report_file::ReportArgs;
use super::shares::SharesArgs;
use super::token::{duration, secret};
use super::{Output, Verdict, csv};

/// Longest wait for the ledger to catch up with what the clients saw.
const SETTLE: Duration = Duration::from_secs(120);
/// Longest wait for the system to come to rest before the audit.
const REST: Duration = Duration::from_secs(10);

/// Storm a sale with simulated users over real HTTP, then balance the books.
#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  doorbuster rehearse --url http://127.0.0.1:8080 --sale 1 --users 500000 --signing-key-file secret\n  doorbuster rehearse … --report storm.html --assert '202.p99<100ms' --assert 'answers.503==0'\n  doorbuster rehearse … --pay 70 --fail-then-pay 10 --cancel 10 --abandon 10\n  doorbuster rehearse compare before.json after.json --noise 10%\n\nWith shares of winners who pay, the server needs payments.provider = sandbox. From another machine, put\nits address into the server's gate.limits.exempt: all users come from it.\n\nExit code 3 when something was oversold, lost or sold twice, money or units are not where the clients'\nlists say, or the audit found something; 99 when only an assert does not hold."
)]
pub(crate) struct RehearseArgs {
    #[command(subcommand)]
    command: Option<RehearseCommand>,
    /// Public address of the server; several are used in turn
    #[arg(long = "url", value_name = "URL", required = true)]
    urls: Vec<String>,
    /// The sale's id; it must be open
    #[arg(long, required = true)]
    sale: Option<String>,
    /// Distinct users, each with a token of its own, each clicking once
    #[arg(long, default_value_t = 10_000)]
    users: u64,
    /// Time over which the clicks are spread
    #[arg(long, default_value = "2s", value_parser = duration)]
    window: Duration,
    /// Share of users who click a second time at once, 0 to 1
    #[arg(long, default_value_t = 0.05)]
    retries: f64,
    /// How long a user goes on after 429, 503 and broken connections
    #[arg(long, default_value = "120s", value_parser = duration)]
    patience: Duration,
    /// Decides every moment and choice
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Connections that the users share
    #[arg(long, default_value_t = 256)]
    connections: usize,
    /// File with the HS256 secret that the server verifies with
    #[arg(long, value_name = "FILE", required = true)]
    signing_key_file: Option<PathBuf>,
    /// What the tokens' `iss` says
    #[arg(long, default_value = DEFAULT_ISSUER_AND_AUDIENCE)]
    issuer: String,
    /// What the tokens' `aud` says
    #[arg(long, default_value = DEFAULT_ISSUER_AND_AUDIENCE)]
    audience: String,
    /// What the users' ids begin with; runs with the same ones are the same users
    #[arg(long, default_value = "user-")]
    user_prefix: String,
    #[command(flatten)]
    shares: SharesArgs,
    #[command(flatten)]
    admin: AdminArgs,
    #[command(flatten)]
    report: ReportArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

#[derive(Subcommand)]
enum RehearseCommand {
    /// Compare two reports, and mark what changed by more than the noise
    Compare(CompareArgs),
}

pub(crate) async fn run(args: RehearseArgs) -> anyhow::Result<Verdict> {
    if let Some(RehearseCommand::Compare(args)) = &args.command {
        return compare::run(args);
    }
    // Optional only because `compare` goes without them.
    let (Some(sale), Some(key)) = (args.sale, args.signing_key_file) else {
        bail!("--sale and --signing-key-file are needed");
    };
    let shares = args.shares.shares()?;
    args.report.check()?;
    let admin = args.admin.client()?;
    let signer = TokenSigner::new(&secret(&key)?, &args.issuer, &args.audience)?;
    let mut plan = Plan::new(args.urls, &sale, args.users, signer);
    plan.window = args.window;
    plan.impatient = args.retries;
    plan.patience = args.patience;
    plan.seed = args.seed;
    plan.connections = args.connections;
    plan.user_prefix = args.user_prefix;
    if shares.is_some() {
        find_sandbox(&plan).await?;
    }
    let mut seen = storm_with_progress(plan.clone(), "clicking").await?;
    let lived = match shares {
        Some(shares) => Some(winners_live_on(&admin, &plan, shares, &mut seen).await?),
        None => None,
    };
    let mut report = balance_books(&admin, &sale, &seen, lived.as_ref()).await?;
    args.report.judge(&mut report);
    print(args.output, &report)?;
    args.report.write(&report)?;
    Ok(Verdict::of_report(&report))
}

/// Prints a report; as CSV, its table of answers.
pub(super) fn print(output: Output, report: &Report) -> anyhow::Result<()> {
    output.print_or(report, Report::render, |report| {
        let (head, rows) = report.answers_table();
        csv::table(&head, &rows)
    })
}

/// Runs a storm with a progress bar on a terminal.
pub(super) async fn storm_with_progress(plan: Plan, what: &'static str) -> anyhow::Result<Storm> {
    let bar =
        if std::io::stderr().is_terminal() { ProgressBar::new(plan.users) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {pos}/{len} {per_sec} {wide_msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    let shown = Mutex::new(bar.clone());
    let seen = storm(plan, move |progress: Progress| {
        if let Ok(bar) = shown.lock() {
            if progress.clicked == 0 && progress.tokens > 0 {
                bar.set_position(progress.tokens);
                return bar.set_message(format!("{what}: users get their sale tokens"));
            }
            bar.set_length(progress.total);
            bar.set_position(progress.clicked);
            bar.set_message(format!(
                "{what}: {} got one, {} sold out, {} waiting to retry",
                progress.accepted, progress.gone, progress.retries_waiting
            ));
        }
    })
    .await;
    bar.finish_and_clear();
    seen.context("the storm could not be run")
}

/// Lets the winners of a storm pay, cancel and abandon once all are recorded, with a progress bar on a
/// terminal.
pub(super) async fn winners_live_on(
    admin: &AdminClient,
    plan: &Plan,
    shares: Shares,
    seen: &mut Storm,
) -> anyhow::Result<Aftermath> {
    settle(admin, &plan.sale_id, seen, SETTLE).await.context("the order list could not be read")?;
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{msg:12} [{bar:40}] {pos}/{len} {per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message("winners");
    let shown = Mutex::new(bar.clone());
    let lived = live_on(plan, shares, seen, move |lived: Lived| {
        if let Ok(bar) = shown.lock() {
            bar.set_length(lived.winners);
            bar.set_position(lived.over);
        }
    })
    .await;
    bar.finish_and_clear();
    lived.context("the winners could not pay")
}

/// What the clients saw against the ledger's own list, and the server's audit.
pub(super) async fn balance_books(
    admin: &AdminClient,
    sale: &str,
    seen: &Storm,
    lived: Option<&Aftermath>,
) -> anyhow::Result<Report> {
    settle(admin, sale, seen, SETTLE).await.context("the order list could not be read")?;
    let till = match lived {
        Some(lived) => {
            let till = count_till(admin, sale, lived, REST).await;
            Some(till.context("the payments could not be read")?)
        }
        None => None,
    };
    let audit = audit_at_rest(admin).await?;
    let detail = admin.sale(sale).await?;
    let rows = admin.all_orders(sale).await?;
    let quantities = detail.items.iter().map(|item| (item.item_id.clone(), item.quantity)).collect();
    let books = balance(&quantities, u64::from(detail.max_units_per_user), seen, &rows);
    let report = Report::new(seen, &books, audit);
    Ok(match till {
        Some(till) => report.with_till(till),
        None => report,
    })
}

/// The server's audit, at rest if it comes to rest in time.
async fn audit_at_rest(admin: &AdminClient) -> anyhow::Result<Audit> {
    let mut look = tokio::time::interval(Duration::from_millis(200));
    let until = tokio::time::Instant::now() + REST;
    loop {
        let report = admin.audit().await.context("the audit could not be run")?;
        if report.at_rest || !report.ok || tokio::time::Instant::now() >= until {
            return Ok(Audit::from(&report));
        }
        look.tick().await;
    }
}
