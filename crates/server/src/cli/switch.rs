//! `doorbuster switch …`.

use clap::{Args, Subcommand};
use doorbuster_wire::{SetSwitch, SwitchRow, SwitchTurn};

use super::client::AdminArgs;
use super::{Output, Verdict, output};

/// What can be turned while sales run, on every server within a second: sale tokens, who may buy, limits, when to be
/// busy.
#[derive(Args)]
pub(crate) struct SwitchArgs {
    #[command(subcommand)]
    command: SwitchCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum SwitchCommand {
    /// Every switch with what it does and how it stands
    #[command(after_help = "Example:\n  doorbuster switch list")]
    List,
    /// One switch as it stands
    #[command(after_help = "Example:\n  doorbuster switch get user_rate")]
    Get {
        /// Its name
        name: String,
    },
    /// Turn a switch
    #[command(
        after_help = "Examples:\n  doorbuster switch set publish_pause on --reason \"the database is moved\"\n  doorbuster switch set token_required on --sale 1 --reason \"bots\"\n  doorbuster switch set regions DE,FR,AT --sale 1 --reason \"shipping\"\n  doorbuster switch set early_access gold=0s,silver=10m,*=30m --sale 1 --reason \"members first\"\n  doorbuster switch set user_rate 2 --reason \"bots\""
    )]
    Set {
        /// Its name
        name: String,
        /// To what: on or off, a whole number, a time such as 30s, regions, or waits, as `switch list` says
        value: String,
        /// The sale, for a switch that is turned for one at a time
        #[arg(long, value_name = "ID")]
        sale: Option<String>,
        /// Why; kept with who you are
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Let the configuration stand again
    #[command(after_help = "Example:\n  doorbuster switch reset user_rate --reason \"the bots are gone\"")]
    Reset {
        /// Its name
        name: String,
        /// The sale, for a switch that is turned for one at a time
        #[arg(long, value_name = "ID")]
        sale: Option<String>,
        /// Why; kept with who you are
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
    /// Who turned what when and why, newest first
    #[command(after_help = "Example:\n  doorbuster switch history --limit 20")]
    History {
        /// Most turns
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
        limit: u16,
    },
}

pub(crate) async fn run(args: SwitchArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        SwitchCommand::List => args.output.print(&client.switches().await?, |rows| list(rows))?,
        SwitchCommand::Get { name } => {
            let mut rows = client.switches().await?;
            rows.retain(|row| row.name == name);
            anyhow::ensure!(
                !rows.is_empty(),
                "there is no switch `{}`: `doorbuster switch list` has all",
                name.escape_default()
            );
            args.output.print(&rows, |rows| list(rows))?;
        }
        SwitchCommand::Set { name, value, sale, reason } => {
            let asked = SetSwitch { value: Some(value), sale_id: sale, reason };
            args.output.print(&client.set_switch(&name, &asked).await?, describe)?;
        }
        SwitchCommand::Reset { name, sale, reason } => {
            let asked = SetSwitch { value: None, sale_id: sale, reason };
            args.output.print(&client.set_switch(&name, &asked).await?, describe)?;
        }
        SwitchCommand::History { limit } => {
            let turns = client.switch_history(limit.into()).await?;
            args.output.print(&turns, |turns| history(turns))?;
        }
    }
    Ok(Verdict::Fine)
}

/// How a switch stands.
fn stands(row: &SwitchRow) -> String {
    match (&row.value, row.per_sale) {
        (Some(value), _) => value.clone(),
        (None, true) => "off".to_owned(),
        (None, false) => "as configured".to_owned(),
    }
}

fn list(rows: &[SwitchRow]) -> String {
    let row = |it: &SwitchRow| {
        vec![
            it.name.clone(),
            it.sale_id.clone().unwrap_or_else(|| if it.per_sale { "each".into() } else { "all".into() }),
            stands(it),
            it.by.clone().unwrap_or_default(),
            it.reason.as_deref().unwrap_or_default().escape_default().to_string(),
            format!("{} ({})", it.meaning, it.takes),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    output::table(&["switch", "sale", "value", "by", "reason", "what it does"], &rows)
}

fn history(turns: &[SwitchTurn]) -> String {
    if turns.is_empty() {
        return "no switch was ever turned".to_owned();
    }
    let row = |it: &SwitchTurn| {
        vec![
            it.at.clone(),
            it.name.clone(),
            it.sale_id.clone().unwrap_or_else(|| "all".to_owned()),
            it.value.clone().unwrap_or_else(|| "as configured".to_owned()),
            it.by.clone(),
            it.reason.escape_default().to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = turns.iter().map(row).collect();
    output::table(&["at", "switch", "sale", "value", "by", "reason"], &rows)
}

fn describe(row: &SwitchRow) -> String {
    let sale = row.sale_id.as_ref().map(|sale| format!(" of sale {sale}")).unwrap_or_default();
    format!("{}{sale}: {}", row.name, stands(row))
}
