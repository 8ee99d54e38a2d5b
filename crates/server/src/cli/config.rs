//! `doorbuster config …`.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use doorbuster_engine::clock::{Clock, SystemClock};

use super::completions::to_stdout;
use super::doctor::{Level, certificates};
use super::{ConfigSource, Output, Verdict, output};
use crate::config::{Config, DEFAULTS, schema};

/// Check, show or write configuration.
#[derive(Args)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Read every layer and say everything that is wrong or dangerous
    #[command(
        after_help = "Examples:\n  doorbuster config check --config shop.toml\n  DOORBUSTER__SERVER__LISTEN=0.0.0.0:80 doorbuster config check\n\nExit code 1 when something is wrong. What is legal but dangerous is said on standard error."
    )]
    Check(ConfigSource),
    /// Print what is in force; secrets are not printed
    #[command(
        after_help = "Example:\n  doorbuster config show --config shop.toml --set server.cores=2 --output json"
    )]
    Show {
        #[command(flatten)]
        source: ConfigSource,
        /// How to print: TOML, or JSON for programs
        #[arg(long, value_enum, default_value_t)]
        output: Output,
    },
    /// Write a commented file with every key and its default
    #[command(after_help = "Examples:\n  doorbuster config init\n  doorbuster config init - | less")]
    Init {
        /// Where to; `-` prints it
        #[arg(default_value = "doorbuster.toml")]
        file: PathBuf,
    },
    /// Print the JSON schema of a configuration file, for editors and pipelines
    #[command(
        after_help = "Example:\n  doorbuster config schema > doorbuster.schema.json\n  (and `#:schema ./doorbuster.schema.json` as the first line of doorbuster.toml, for editors with taplo)"
    )]
    Schema,
}

/// What a value alone does not show: whether a listener's files fit, and until when.
fn look_at_certificates(config: &Config) -> anyhow::Result<()> {
    for check in certificates(config, SystemClock::new().now()) {
        let remedy = check.remedy.unwrap_or_default();
        match check.level {
            Level::Ok => output::say(&format!("certificate: {}", check.found)),
            Level::Warn => output::say(&format!("warning: certificate: {}: {remedy}", check.found)),
            Level::Fail => bail!("{}: {remedy}", check.found),
        }
    }
    Ok(())
}

pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<Verdict> {
    match &args.command {
        ConfigCommand::Check(source) => {
            let config = source.read(&[])?;
            for warning in config.warnings() {
                output::say(&format!("warning: {warning}"));
            }
            look_at_certificates(&config)?;
            output::line("the configuration is valid");
        }
        ConfigCommand::Show { source, output } => {
            let config = source.read(&[])?;
            let text = toml::to_string(&config)?;
            output.print(&config, |_| text)?;
        }
        ConfigCommand::Init { file } if file.as_os_str() == "-" => to_stdout(DEFAULTS.as_bytes())?,
        ConfigCommand::Init { file } => {
            // Never over a file that somebody has edited.
            std::fs::File::create_new(file)
                .and_then(|mut made| made.write_all(DEFAULTS.as_bytes()))
                .with_context(|| match file.exists() {
                    true => format!("{} is there already and is never overwritten", file.display()),
                    false => format!("{} cannot be written", file.display()),
                })?;
            output::say(&format!("wrote {}", file.display()));
        }
        ConfigCommand::Schema => {
            to_stdout(format!("{}\n", serde_json::to_string_pretty(&schema())?).as_bytes())?;
        }
    }
    Ok(Verdict::Fine)
}
