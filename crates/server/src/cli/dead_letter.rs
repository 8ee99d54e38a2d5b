//! `doorbuster dead-letter …`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Subcommand};
use doorbuster_wire::{DeadLetter, DropDeadLetter, ReplayDeadLetter, Replayed};

use super::client::AdminArgs;
use super::confirm::Consent;
use super::{Output, Verdict, output};

/// Records that could not be applied: look at them, apply them again, give them up.
#[derive(Args)]
pub(crate) struct DeadLetterArgs {
    #[command(subcommand)]
    command: DeadLetterCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum DeadLetterCommand {
    /// Letters that wait, by number
    #[command(after_help = "Example:\n  doorbuster dead-letter list --output csv")]
    List {
        /// Those that were closed, too
        #[arg(long)]
        closed: bool,
    },
    /// One letter with its record
    #[command(after_help = "Example:\n  doorbuster dead-letter show 3")]
    Show {
        /// The letter's number
        letter: String,
    },
    /// Apply a letter's record again, by the ledger's ordinary rules
    #[command(after_help = "Example:\n  doorbuster dead-letter replay 3 --by ada")]
    Replay {
        /// The letter's number
        letter: String,
        /// Who does it; kept with the letter
        #[arg(long, value_name = "NAME", env = "USER")]
        by: String,
    },
    /// Give a letter up; it stays, with who and why
    #[command(
        after_help = "Example:\n  doorbuster dead-letter drop 3 --by ada --reason \"a test message\" --yes"
    )]
    Drop {
        /// The letter's number
        letter: String,
        /// Who does it; kept with the letter
        #[arg(long, value_name = "NAME", env = "USER")]
        by: String,
        /// Why; kept with the letter
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        consent: Consent,
    },
}

pub(crate) async fn run(args: DeadLetterArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        DeadLetterCommand::List { closed } => {
            args.output.print(&client.dead_letters(closed).await?, |letters| list(letters))?;
        }
        DeadLetterCommand::Show { letter } => {
            args.output.print(&client.dead_letter(&letter).await?, describe)?;
        }
        DeadLetterCommand::Replay { letter, by } => {
            let replayed = client.replay_dead_letter(&letter, &ReplayDeadLetter { by }).await?;
            args.output.print(&replayed, describe_replay)?;
        }
        DeadLetterCommand::Drop { letter, by, reason, consent } => {
            consent.ask(&format!("Dead letter {letter} will be closed without being applied."))?;
            let dropped = client.drop_dead_letter(&letter, &DropDeadLetter { by, reason }).await?;
            args.output.print(&dropped, describe)?;
        }
    }
    Ok(Verdict::Fine)
}

fn list(letters: &[DeadLetter]) -> String {
    if letters.is_empty() {
        return "no dead letters".to_owned();
    }
    let rows: Vec<Vec<String>> = letters
        .iter()
        .map(|it| {
            vec![
                it.id.clone(),
                it.parked_at.clone(),
                place(it),
                state(it),
                it.why.escape_default().to_string(),
            ]
        })
        .collect();
    output::table(&["id", "parked", "record", "state", "why"], &rows)
}

fn place(letter: &DeadLetter) -> String {
    format!("{}/{}@{}", letter.topic, letter.partition, letter.offset)
}

fn state(letter: &DeadLetter) -> String {
    match &letter.closing {
        None => "waits".to_owned(),
        Some(closing) => format!("{} by {}", closing.how, closing.by.escape_default()),
    }
}

fn describe(letter: &DeadLetter) -> String {
    let bytes = letter.bytes.as_ref().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let mut rows = vec![
        ("letter", letter.id.clone()),
        ("record", place(letter)),
        ("parked", letter.parked_at.clone()),
        ("why", letter.why.escape_default().to_string()),
        ("state", state(letter)),
    ];
    if let Some(closing) = &letter.closing {
        rows.push(("closed", closing.at.clone()));
        rows.push(("reason", closing.reason.escape_default().to_string()));
    }
    rows.push(("bytes", bytes.escape_ascii().to_string()));
    output::table(
        &[],
        &rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect::<Vec<_>>(),
    )
}

fn describe_replay(replayed: &Replayed) -> String {
    let order = &replayed.order;
    let before = if replayed.outcome == "KNOWN" { "was known before" } else { "is recorded" };
    let reason = order.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("letter {}: order {} {before}, {}{reason}", replayed.id, order.order_id, order.status)
}
