//! The command line.

mod audit;
mod block;
mod client;
mod compare;
mod completions;
mod config;
mod confirm;
mod csv;
mod dead_letter;
mod demo;
mod doctor;
mod draft;
mod event;
mod export;
mod failure;
mod limits;
mod migrate;
mod order;
mod output;
mod rebuild;
mod refund;
mod rehearse;
mod repair;
mod report_file;
mod sale;
mod serve;
mod shares;
mod switch;
mod token;
mod trail;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

pub(crate) use output::Output;

/// Sell out in a second, never oversell.
///
/// Data goes to standard output, messages to standard error. Exit codes: 0 all is well · 1 it
/// failed, the message says why and what to do · 2 wrong usage, nothing was done · 3 a balance, an
/// audit or a read-back found something wrong · 99 an `--assert` does
/// not hold, or a compared figure got worse.
#[derive(Parser)]
#[command(name = "doorbuster", version, propagate_version = true, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  doorbuster demo                      a whole sale on this machine, then stays up\n  doorbuster serve --data-dir ./data   the embedded engine\n  doorbuster sale create --file sale.toml && doorbuster sale preheat 1 && doorbuster sale open 1\n  doorbuster rehearse --url http://127.0.0.1:8080 --sale 1 --users 10000 --signing-key-file secret"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Everything on this machine: a server, a sale, the storm, the balance; then stays up for you
    Demo(demo::DemoArgs),
    /// Run a server: every role in one process, or some of them
    Serve(serve::ServeArgs),
    /// Create sales and run them
    Sale(sale::SaleArgs),
    /// Look at orders
    Order(order::OrderArgs),
    /// Look at records that could not be applied, apply them again or give them up
    DeadLetter(dead_letter::DeadLetterArgs),
    /// Look at money that is to be given back, and settle what a provider refuses
    Refund(refund::RefundArgs),
    /// Look at what the shop was told, and tell it again
    Event(event::EventArgs),
    /// Turn what can be turned while sales run, and see who turned it
    Switch(switch::SwitchArgs),
    /// Keep users and networks out, see who is, and let them in again
    Block(block::BlockArgs),
    /// See what the staff changed
    Trail(trail::TrailArgs),
    /// Make tokens: for try-outs, for one sale, for the staff
    Token(token::TokenArgs),
    /// Look at a PostgreSQL ledger's schema, and bring it up to date
    Migrate(migrate::MigrateArgs),
    /// Prove that the books are right
    Audit(audit::AuditArgs),
    /// Load a sale's stock anew from the ledger: the one repair
    Rebuild(rebuild::RebuildArgs),
    /// Compare a sale's stock with the ledger, and mend what differs
    Repair(repair::RepairArgs),
    /// Storm a sale with simulated users over real HTTP, then balance the books
    Rehearse(rehearse::RehearseArgs),
    /// Check, show or write configuration
    Config(config::ConfigArgs),
    /// Look whether this machine and its configuration can carry a sale
    Doctor(doctor::DoctorArgs),
    /// Print a shell's completion script
    Completions(completions::CompletionsArgs),
    /// Print the manual page, or write every command's page to a folder
    Man(completions::ManArgs),
}

/// Where the configuration comes from.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ConfigSource {
    /// Configuration file (TOML); `doorbuster config init` writes a commented one
    #[arg(long, value_name = "FILE", env = "DOORBUSTER_CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Set one key, such as `--set server.idle_timeout=60s`; may be given several times
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.trim().to_owned(), value.to_owned())),
        _ => Err("wanted KEY=VALUE, such as server.cores=2".to_owned()),
    }
}

impl ConfigSource {
    pub(crate) fn read(&self, flags: &[(String, String)]) -> anyhow::Result<crate::config::Config> {
        let flags: Vec<_> = self.set.iter().chain(flags).cloned().collect();
        // A variable that is not Unicode cannot be one of ours.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        crate::config::Config::read(self.config.as_deref(), environment, &flags)
    }
}

/// What a command that ran to its end found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Fine,
    SomethingWrong,
    /// Nothing is wrong, but something that was asserted or compared is not as it should be.
    ExpectationMissed,
}

impl Verdict {
    pub(crate) fn of(fine: bool) -> Self {
        if fine { Self::Fine } else { Self::SomethingWrong }
    }

    /// A broken promise outranks an assert that does not hold.
    pub(crate) fn of_report(report: &doorbuster_loadtest::Report) -> Self {
        match Self::of(report.verdict()) {
            Self::Fine if !report.asserts_hold() => Self::ExpectationMissed,
            verdict => verdict,
        }
    }
}

/// Runs the program.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    limits::raise_open_files();
    limits::avoid_huge_pages();
    match run(cli.command) {
        Ok(Verdict::Fine) => ExitCode::SUCCESS,
        Ok(Verdict::SomethingWrong) => ExitCode::from(3),
        Ok(Verdict::ExpectationMissed) => ExitCode::from(99),
        Err(error) => failure::end(&error),
    }
}

fn run(command: Command) -> anyhow::Result<Verdict> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        match command {
            Command::Demo(args) => demo::run(args).await,
            Command::Serve(args) => serve::run(args).await,
            Command::Sale(args) => sale::run(args).await,
            Command::Order(args) => order::run(args).await,
            Command::DeadLetter(args) => dead_letter::run(args).await,
            Command::Refund(args) => refund::run(args).await,
            Command::Event(args) => event::run(args).await,
            Command::Switch(args) => switch::run(args).await,
            Command::Block(args) => block::run(args).await,
            Command::Trail(args) => trail::run(args).await,
            Command::Token(args) => token::run(&args),
            Command::Migrate(args) => migrate::run(args).await,
            Command::Audit(args) => audit::run(args).await,
            Command::Rebuild(args) => rebuild::run(args).await,
            Command::Repair(args) => repair::run(args).await,
            Command::Rehearse(args) => rehearse::run(args).await,
            Command::Config(args) => config::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Completions(args) => completions::completions(&args),
            Command::Man(args) => completions::man(&args),
        }
    })
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Cli;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn arguments_are_read_or_refused_before_anything_runs() {
        for (line, refusal) in [
            (
                "rehearse --url http://h:1 --sale 1 --signing-key-file s --assert 202.p99<100ms --assert sold==1",
                None,
            ),
            ("rehearse --sale 1 --signing-key-file s", Some("--url <URL>")),
            ("rehearse", Some("--sale <SALE>")),
            ("rehearse compare a.json b.json", None),
            ("rehearse compare a.json b.json --noise 5% --output csv", None),
            ("rehearse compare a.json b.json --noise 5", Some("wanted a percentage")),
            ("rehearse compare a.json", Some("<B>")),
            ("rehearse --url http://h:1 compare a.json b.json", Some("cannot be used with")),
            ("demo --assert oversolt==0", Some("nothing is called \"oversolt\"; names:")),
            ("demo --assert 202.p99<100", Some("a duration with its unit")),
            ("sale list --output text", None),
            ("sale list --output table", None),
            ("sale list --output yaml", Some("invalid value")),
            ("event list --state dead --endpoint shop --limit 10 --output csv", None),
            ("event list --state late", Some("invalid value")),
            ("event replay 17", None),
            ("event replay --dead shop", None),
            ("event replay", Some("<DELIVERY>")),
            ("event replay 17 --dead shop", Some("cannot be used with")),
        ] {
            let words = std::iter::once("doorbuster").chain(line.split(' '));
            let found = Cli::try_parse_from(words).err().map(|error| error.to_string());
            match (refusal, found) {
                (None, None) => {}
                (Some(refusal), Some(found)) if found.contains(refusal) => {}
                (_, found) => panic!("{line}: {found:?}"),
            }
        }
    }
}
