//! `doorbuster doctor`: whether this machine and its configuration can carry a sale.

mod certificate;
mod disk;
mod machine;

use clap::Args;
use doorbuster_engine::clock::{Clock, SystemClock};
use serde::Serialize;

use super::{ConfigSource, Output, Verdict};
use crate::admin::Tokens;
use crate::config::{Config, InvalidConfig};
use crate::identity::KeySet;
pub(super) use certificate::certificates;

/// Look whether this machine and its configuration can carry a sale.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster doctor --config shop.toml\n  doorbuster doctor --set data.dir=./data --output json\n\nRun it where and as whom the server will run, before it is started. Exit code 1 when a check FAILs."
)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    source: ConfigSource,
    /// How to print
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

/// How a check came out, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Ok,
    Warn,
    Fail,
}

/// One line of the examination.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Check {
    name: &'static str,
    pub(super) level: Level,
    /// What was found, with its figures.
    pub(super) found: String,
    /// What to do about it; absent when all is well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Check {
    fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, level: Level::Ok, found: found.into(), remedy: None }
    }

    fn warn(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, level: Level::Warn, found: found.into(), remedy: Some(remedy.into()) }
    }

    fn fail(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, level: Level::Fail, found: found.into(), remedy: Some(remedy.into()) }
    }
}

#[derive(Serialize)]
struct Examination {
    ok: bool,
    checks: Vec<Check>,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Verdict> {
    let checks = examine(&args.source)?;
    let failed = checks.iter().filter(|check| check.level == Level::Fail).count();
    args.output.print(&Examination { ok: failed == 0, checks }, describe)?;
    anyhow::ensure!(failed == 0, "{failed} of the checks FAILed; each says what to do");
    Ok(Verdict::Fine)
}

fn examine(source: &ConfigSource) -> anyhow::Result<Vec<Check>> {
    let clock = SystemClock::new();
    let began = clock.now();
    let config = match source.read(&[]) {
        Ok(config) => config,
        Err(error) => {
            // Without a configuration there is nothing to compare the machine with.
            let Some(invalid) = error.downcast_ref::<InvalidConfig>() else { return Err(error) };
            let remedy = "`doorbuster config init -` prints every key with its meaning";
            return Ok(invalid
                .wrong
                .iter()
                .map(|wrong| Check::fail("configuration", wrong, remedy))
                .collect());
        }
    };
    let mut checks = configuration(&config);
    checks.push(token_keys(&config));
    checks.extend(staff_tokens(&config));
    checks.extend(certificates(&config, began));
    checks.extend(disk::checks(&config.data.dir));
    checks.extend(machine::ports(&config));
    checks.extend([
        machine::open_files(config.server.connections_max),
        machine::accept_queue(),
        machine::memory(config.server.connections_max),
        machine::cores(config.server.cores),
        machine::clock(&clock, began, &config.data.dir),
    ]);
    Ok(checks)
}

fn configuration(config: &Config) -> Vec<Check> {
    let warnings = config.warnings();
    if warnings.is_empty() {
        return vec![Check::ok("configuration", "valid")];
    }
    let check = |warning: String| {
        let (found, remedy) = match warning.split_once(": ") {
            Some((found, why)) => (found.to_owned(), why.to_owned()),
            None => (warning, "change it, or leave it knowingly".to_owned()),
        };
        Check::warn("configuration", found, remedy)
    };
    warnings.into_iter().map(check).collect()
}

fn token_keys(config: &Config) -> Check {
    const NAME: &str = "token keys";
    let remedy = "docs/security.md shows how a secret, public keys or a key set are made known";
    let set = match KeySet::of(config) {
        Ok(set) => set,
        Err(error) => return Check::fail(NAME, format!("{error:#}"), remedy),
    };
    if let Some(set) = set {
        return key_set(NAME, &set);
    }
    match config.jwt_keys() {
        Ok(keys) if keys.len() == 1 => Check::ok(NAME, "one, strong enough"),
        Ok(keys) => Check::ok(NAME, format!("{}, strong enough", keys.len())),
        Err(error) => {
            let found = format!("{error:#}");
            match found.split_once(": set ") {
                Some((found, keys)) => Check::fail(NAME, found, format!("set {keys}")),
                None => Check::fail(NAME, found, remedy),
            }
        }
    }
}

/// Asks for the set, as the server will.
fn key_set(name: &'static str, set: &KeySet) -> Check {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looked = match runtime {
        Ok(runtime) => runtime.block_on(set.look()),
        Err(error) => return Check::fail(name, format!("no runtime: {error}"), "free some memory"),
    };
    match looked {
        Ok((keys, passed_over)) if passed_over.is_empty() => Check::ok(name, format!("{keys} in the set")),
        Ok((keys, passed_over)) => {
            Check::ok(name, format!("{keys} in the set; not used: {}", passed_over.join("; ")))
        }
        Err(error) => {
            let found = anyhow::Error::new(error).context("gate.jwt.jwks_url cannot be read");
            let remedy = "compare the address with the provider's `jwks_uri`, and gate.jwt.jwks_algorithms with its keys";
            Check::fail(name, format!("{found:#}"), remedy)
        }
    }
}

fn staff_tokens(config: &Config) -> Option<Check> {
    let file = &config.admin.token_file;
    if file.as_os_str().is_empty() {
        return None;
    }
    let remedy = "mend the file; one line is `admin TOKEN`, `operator TOKEN` or `viewer TOKEN`";
    Some(match Tokens::read(file) {
        Ok(_) => Check::ok("staff tokens", file.display().to_string()),
        Err(error) => Check::fail("staff tokens", format!("{error:#}"), remedy),
    })
}

fn describe(examination: &Examination) -> String {
    let mut lines = Vec::new();
    for check in &examination.checks {
        let level = match check.level {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Fail => "FAIL",
        };
        lines.push(format!("{level:4}  {:16}  {}", check.name, check.found));
        if let Some(remedy) = &check.remedy {
            lines.push(format!("{:24}→ {remedy}", ""));
        }
    }
    let worst = examination.checks.iter().map(|check| check.level).max().unwrap_or(Level::Ok);
    lines.push(match worst {
        Level::Ok => "all is well".to_owned(),
        Level::Warn => "it would run; look at the warnings".to_owned(),
        Level::Fail => "a server would not start or not last: mend what FAILs".to_owned(),
    });
    lines.join("\n")
}

/// Bytes as a person reads them.
fn human(bytes: u64) -> String {
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;
    if bytes >= 10 * GIB { format!("{} GiB", bytes / GIB) } else { format!("{} MiB", bytes / MIB) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_that_is_not_well_says_what_to_do() {
        let checks =
            vec![Check::ok("a", "1"), Check::warn("b", "2", "do this"), Check::fail("c", "3", "do that")];
        let text = describe(&Examination { ok: false, checks });
        for says in ["ok    a", "warn  b", "→ do this", "FAIL  c", "→ do that", "mend what FAILs"] {
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!(human(3 << 20), "3 MiB");
        assert_eq!(human(12 << 30), "12 GiB");
    }
}
