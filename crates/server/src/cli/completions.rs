//! `doorbuster completions` and `doorbuster man`: the command line described for other programs.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::{Cli, Verdict, output};

/// Print a shell's completion script.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster completions bash > ~/.local/share/bash-completion/completions/doorbuster\n  doorbuster completions zsh > ~/.zfunc/_doorbuster   (with ~/.zfunc in $fpath)\n  doorbuster completions fish > ~/.config/fish/completions/doorbuster.fish"
)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Print the manual page, or write the pages of every command to a folder.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster man | man -l -\n  doorbuster man --dir /usr/local/share/man/man1"
)]
pub(crate) struct ManArgs {
    /// Folder for one page per command; made if it is missing
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> anyhow::Result<Verdict> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "doorbuster", &mut script);
    to_stdout(&script)?;
    Ok(Verdict::Fine)
}

pub(crate) fn man(args: &ManArgs) -> anyhow::Result<Verdict> {
    match &args.dir {
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut page)?;
            to_stdout(&page)?;
        }
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .and_then(|()| clap_mangen::generate_to(Cli::command(), folder))
                .with_context(|| format!("the manual pages cannot be written to {}", folder.display()))?;
            output::say(&format!("wrote the manual pages to {}", folder.display()));
        }
    }
    Ok(Verdict::Fine)
}

/// Writes bytes as they are. A reader that has seen enough, such as `head`, is no failure.
pub(super) fn to_stdout(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("standard output"),
        _ => Ok(()),
    }
}
