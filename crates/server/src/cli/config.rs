//! `doorbuster config …`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};

use super::{ConfigSource, Verdict, output};
use crate::config::DEFAULTS;

/// Check, show or write configuration.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Read every layer and say whether it is valid
    Check(ConfigSource),
    /// Print what is in force; secrets are not printed
    Show(ConfigSource),
    /// Write a commented file with every key and its default
    Init {
        /// Where to; `-` prints it
        #[arg(default_value = "doorbuster.toml")]
        file: PathBuf,
    },
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<Verdict> {
    match &args.command {
        ConfigCommand::Check(source) => {
            source.read(&[])?;
            output::line("the configuration is valid");
        }
        ConfigCommand::Show(source) => output::line(toml::to_string(&source.read(&[])?)?.trim_end()),
        ConfigCommand::Init { file } if file.as_os_str() == "-" => output::line(DEFAULTS.trim_end()),
        ConfigCommand::Init { file } => {
            // Never over a file that somebody has edited.
            std::fs::File::create_new(file)
                .and_then(|mut made| made.write_all(DEFAULTS.as_bytes()))
                .with_context(|| {
                    format!("{} cannot be written; an existing file is never overwritten", file.display())
                })?;
            output::say(&format!("wrote {}", file.display()));
        }
    }
    Ok(Verdict::Fine)
}
