//! `doorbuster block …`.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand, ValueEnum};
use doorbuster_engine::block::Blocked;
use doorbuster_wire::{AddBlocks, BlockEntry, BlockRow, BlocksAdded};
use indicatif::{ProgressBar, ProgressStyle};

use super::client::AdminArgs;
use super::{Output, Verdict, output};
use crate::admin::BLOCK_ENTRIES_MAX;

/// Most blocks of one page.
const PAGE: usize = 1_000;

/// Users and networks that are kept out, of one sale or of all.
#[derive(Args)]
pub(crate) struct BlockArgs {
    #[command(subcommand)]
    command: BlockCommand,
    #[command(flatten)]
    admin: AdminArgs,
    /// How to print
    #[arg(long, value_enum, default_value_t, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum BlockCommand {
    /// Blocks, newest first
    #[command(
        after_help = "Examples:\n  doorbuster block list --limit 20\n  doorbuster block list --value 192.0.2.0/24 --lifted"
    )]
    List {
        /// Those that were lifted, too
        #[arg(long)]
        lifted: bool,
        /// Those of this user or network alone, as the list shows it
        #[arg(long, value_name = "TEXT")]
        value: Option<String>,
        /// Most blocks
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// Keep users and networks out, on every server within about a second
    #[command(
        after_help = "Examples:\n  doorbuster block add --user alice --sale 1 --reason \"resells\"\n  doorbuster block add --network 192.0.2.0/24 --reason \"bots\"\n  doorbuster block add --file datacentres.txt --kind network --reason \"datacentres\"\n\nA file has one value a line; empty lines and lines that begin with # do not count. All of it is checked before any\nof it is sent, by the thousand. Whoever is blocked already stays so, so that a file can be added again."
    )]
    Add(AddArgs),
    /// Let somebody in again; the block stays in the list, with who and why
    #[command(after_help = "Example:\n  doorbuster block lift 7 8 --reason \"a mistake\"")]
    Lift {
        /// The blocks' numbers
        #[arg(required = true)]
        blocks: Vec<String>,
        /// Why; kept with who you are
        #[arg(long, value_name = "TEXT")]
        reason: String,
    },
}

#[derive(Args)]
struct AddArgs {
    /// A user's id; may be given several times
    #[arg(long, value_name = "ID")]
    user: Vec<String>,
    /// A network such as 192.0.2.0/24, or an address; may be given several times
    #[arg(long, value_name = "CIDR")]
    network: Vec<String>,
    /// A file with one value a line
    #[arg(long, value_name = "FILE", requires = "kind")]
    file: Option<PathBuf>,
    /// What the lines of the file are
    #[arg(long, value_enum, requires = "file")]
    kind: Option<Kind>,
    /// Of this sale alone
    #[arg(long, value_name = "ID")]
    sale: Option<String>,
    /// Why; kept with who you are
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

/// What can be blocked.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// Users' ids
    User,
    /// Networks
    Network,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::User => Blocked::KINDS[0],
            Self::Network => Blocked::KINDS[1],
        }
    }
}

pub(crate) async fn run(args: BlockArgs) -> anyhow::Result<Verdict> {
    let client = args.admin.client()?;
    match args.command {
        BlockCommand::List { lifted, value, limit } => {
            let (mut rows, limit) = (Vec::<BlockRow>::new(), limit as usize);
            let mut cursor: Option<String> = None;
            loop {
                let wanted = (limit - rows.len()).min(PAGE);
                let page = client.blocks_page(lifted, value.as_deref(), cursor.as_deref(), wanted).await?;
                rows.extend(page.items);
                let Some(next) = page.next.filter(|_| rows.len() < limit) else { break };
                ensure!(
                    cursor.as_ref() != Some(&next),
                    "the server repeats a page: the list would never end"
                );
                cursor = Some(next);
            }
            args.output.print(&rows, |rows| list(rows))?;
        }
        BlockCommand::Add(add) => {
            let entries = entries(&add)?;
            let bar = progress(entries.len() as u64);
            let mut all = BlocksAdded { added: 0, known: 0 };
            for part in entries.chunks(BLOCK_ENTRIES_MAX) {
                let asked = AddBlocks {
                    entries: part.to_vec(),
                    sale_id: add.sale.clone(),
                    reason: add.reason.clone(),
                };
                let added = client.add_blocks(&asked).await.with_context(|| {
                    format!(
                        "{} of {} entries stand; run it again for the others",
                        all.added + all.known,
                        entries.len()
                    )
                })?;
                (all.added, all.known) = (all.added + added.added, all.known + added.known);
                bar.inc(part.len() as u64);
            }
            bar.finish_and_clear();
            args.output.print(&all, |all| format!("{} added, {} stood before", all.added, all.known))?;
        }
        BlockCommand::Lift { blocks, reason } => {
            let mut lifted = Vec::new();
            for block in &blocks {
                lifted
                    .push(client.lift_block(block, &reason).await.with_context(|| format!("block {block}"))?);
            }
            args.output.print(&lifted, |rows| list(rows))?;
        }
    }
    Ok(Verdict::Fine)
}

/// Everybody who is to be blocked, each checked.
fn entries(add: &AddArgs) -> anyhow::Result<Vec<BlockEntry>> {
    let mut entries = Vec::new();
    let given = [(Kind::User, &add.user), (Kind::Network, &add.network)];
    for (kind, value) in given.iter().flat_map(|(kind, values)| values.iter().map(|it| (*kind, it))) {
        let blocked = Blocked::of(kind.as_str(), value).with_context(|| format!("--{}", kind.as_str()))?;
        entries.push(entry(&blocked));
    }
    if let (Some(file), Some(kind)) = (&add.file, add.kind) {
        entries.extend(read(file, kind)?);
    }
    if entries.is_empty() {
        bail!("nobody is named: --user, --network, or --file with --kind");
    }
    Ok(entries)
}

fn entry(blocked: &Blocked) -> BlockEntry {
    BlockEntry { kind: blocked.kind().to_owned(), value: blocked.value() }
}

/// The lines of a file. A user's id may have blanks within, and none around it.
fn read(file: &Path, kind: Kind) -> anyhow::Result<Vec<BlockEntry>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{} cannot be read", file.display()))?;
    let lines = (1..).zip(text.lines().map(str::trim));
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let blocked = lines.map(|(number, line)| {
        let blocked = Blocked::of(kind.as_str(), line);
        blocked
            .map(|it| entry(&it))
            .with_context(|| format!("{}, line {number}; nothing was added", file.display()))
    });
    blocked.collect()
}

fn progress(entries: u64) -> ProgressBar {
    let long = entries > BLOCK_ENTRIES_MAX as u64 && std::io::stderr().is_terminal();
    let bar = if long { ProgressBar::new(entries) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("blocks [{bar:40}] {pos}/{len} {per_sec}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn list(rows: &[BlockRow]) -> String {
    if rows.is_empty() {
        return "nobody is blocked".to_owned();
    }
    let row = |it: &BlockRow| {
        vec![
            it.block_id.clone(),
            it.at.clone(),
            it.kind.clone(),
            it.value.escape_default().to_string(),
            it.sale_id.clone().unwrap_or_else(|| "all".to_owned()),
            it.by.clone(),
            it.reason.escape_default().to_string(),
            ended(it),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(row).collect();
    output::table(&["block", "at", "kind", "value", "sale", "by", "reason", "lifted"], &rows)
}

fn ended(row: &BlockRow) -> String {
    match (&row.lifted_at, &row.lifted_by, &row.lifted_reason) {
        (Some(at), Some(by), Some(reason)) => format!("{at} by {by}: {}", reason.escape_default()),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_whole_or_refused_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("list.txt");
        std::fs::write(&file, "# datacentres\r\n192.0.2.7/24\r\n\n  ::ffff:198.51.100.1\n2001:db8::/32")
            .unwrap();
        let read_as =
            |kind| read(&file, kind).map(|it| it.into_iter().map(|it| it.value).collect::<Vec<_>>());
        let networks = read_as(Kind::Network).unwrap();
        assert_eq!(networks, ["192.0.2.0/24", "198.51.100.1/32", "2001:db8::/32"]);
        assert_eq!(read_as(Kind::User).unwrap()[0], "192.0.2.7/24", "what a line is, the kind says");
        std::fs::write(&file, "192.0.2.0/24\nalice\n").unwrap();
        let error = format!("{:#}", read_as(Kind::Network).unwrap_err());
        assert!(error.contains("list.txt, line 2") && !error.contains("alice"), "{error}");
    }
}
