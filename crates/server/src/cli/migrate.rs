//! `doorbuster migrate`.

use clap::{Args, Subcommand};

use super::{ConfigSource, Output, Verdict, output};
use crate::backend::{self, Migration};

/// Look at the PostgreSQL ledger's schema, and bring it up to date.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster migrate status --config shop.toml\n  doorbuster migrate up --config shop.toml\n  doorbuster migrate roles --config shop.toml      least-privilege roles for serve, run as the tables' owner\n\nSteps only add to what older programs use, so that they go on working while they are replaced.\nA schema that a newer program made is refused."
)]
pub(crate) struct MigrateArgs {
    #[command(subcommand)]
    command: MigrateCommand,
    #[command(flatten)]
    source: ConfigSource,
    /// How to print
    #[arg(long, global = true, value_enum, default_value_t)]
    output: Output,
}

#[derive(Subcommand)]
enum MigrateCommand {
    /// Every step, and whether it was applied
    #[command(after_help = "Example:\n  doorbuster migrate status --config shop.toml")]
    Status,
    /// Apply the missing steps; several programs at once wait for each other
    #[command(after_help = "Example:\n  doorbuster migrate up --config shop.toml")]
    Up,
    /// Make database roles with just the rights that gateways, recorders and keepers need
    #[command(after_help = "Example:\n  doorbuster migrate roles --config shop.toml")]
    Roles,
}

pub(crate) async fn run(args: MigrateArgs) -> anyhow::Result<Verdict> {
    let config = args.source.read(&[])?;
    let steps = match args.command {
        MigrateCommand::Status => backend::migrate_status(&config).await?,
        MigrateCommand::Up => backend::migrate_up(&config).await?,
        MigrateCommand::Roles => {
            backend::create_roles(&config).await?;
            output::say("The roles are there; give each to the login of its process (GRANT role TO login).");
            return Ok(Verdict::Fine);
        }
    };
    args.output.print(&steps, |steps| describe(steps))?;
    Ok(Verdict::Fine)
}

fn describe(steps: &[Migration]) -> String {
    let row = |step: &Migration| vec![step.version.to_string(), step.state.to_owned(), step.name.clone()];
    output::table(&["version", "state", "name"], &steps.iter().map(row).collect::<Vec<_>>())
}
