//! Reads the layers one over the other and says everything that is wrong at once.

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::Deserialize;
use toml::{Table, Value};

use super::keys::{self, Key, Kind};
use super::{Config, schema};

/// What an environment variable of ours begins with when it sets a key.
const PREFIX: &str = "DOORBUSTER__";
/// Variables of the command line itself, which set no key.
const COMMAND_LINE: [&str; 4] =
    ["DOORBUSTER_CONFIG", "DOORBUSTER_ADMIN_URL", "DOORBUSTER_ADMIN_TOKEN_FILE", "DOORBUSTER_ADMIN_CA"];

/// Everything that is wrong with a configuration.
#[derive(Debug, thiserror::Error)]
pub struct InvalidConfig {
    /// One line each, with the key, its place and what would be right.
    pub wrong: Vec<String>,
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid:")?;
        for line in &self.wrong {
            write!(f, "\n  - {line}")?;
        }
        f.write_str("\n`doorbuster config init -` prints every key with its meaning")
    }
}

/// Where a value was set.
enum Place {
    File(PathBuf),
    Variable(String),
    CommandLine,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Variable(name) => write!(f, "by the environment variable {name}"),
            Self::CommandLine => f.write_str("on the command line"),
        }
    }
}

/// One value of one layer.
struct Setting {
    name: String,
    given: Given,
    place: Place,
}

/// A value as its layer has it.
enum Given {
    /// From a file, of some type.
    Value(Value),
    /// From the environment or a flag; its key says what it stands for.
    Text(String),
}

/// Flags over environment over file over defaults.
pub(super) fn read(
    file: Option<&Path>,
    environment: impl IntoIterator<Item = (String, String)>,
    flags: &[(String, String)],
) -> anyhow::Result<Config> {
    let keys = keys::all();
    let mut wrong = Vec::new();
    let mut table = keys::defaults();
    let from_file = match file {
        Some(path) => file_layer(path, &keys)?,
        None => Vec::new(),
    };
    let flags = flags.iter().map(|(name, value)| Setting {
        name: name.clone(),
        given: Given::Text(value.clone()),
        place: Place::CommandLine,
    });
    for layer in [from_file, environment_layer(environment, &keys, &mut wrong), flags.collect()] {
        apply(layer, &keys, &mut table, &mut wrong);
    }
    // With every value sound by itself, only a key that the defaults lack can fail here.
    let config =
        Config::deserialize(Value::Table(table)).context("the compiled-in defaults are not whole")?;
    wrong.extend(config.contradictions());
    if wrong.is_empty() { Ok(config) } else { Err(InvalidConfig { wrong }.into()) }
}

fn file_layer(path: &Path, keys: &[Key]) -> anyhow::Result<Vec<Setting>> {
    if !path.is_file() {
        bail!("there is no configuration file {}; `doorbuster config init` writes one", path.display());
    }
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("the configuration file {} cannot be read", path.display()))?;
    let table: Table = match toml::from_str(&text) {
        Ok(table) => table,
        // The error's own text would quote the line, and the line may be a secret.
        Err(error) => {
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            bail!("{}, line {line}, is not TOML: {}", path.display(), error.message());
        }
    };
    let mut settings = Vec::new();
    flatten("", table, keys, &mut |name, value| {
        settings.push(Setting { name, given: Given::Value(value), place: Place::File(path.to_owned()) });
    });
    Ok(settings)
}

fn flatten(prefix: &str, table: Table, keys: &[Key], found: &mut impl FnMut(String, Value)) {
    for (name, value) in table {
        let name = if prefix.is_empty() { name } else { format!("{prefix}.{name}") };
        match value {
            Value::Table(inner) if !keys.iter().any(|key| key.name == name) => {
                flatten(&name, inner, keys, found);
            }
            value => found(name, value),
        }
    }
}

fn environment_layer(
    environment: impl IntoIterator<Item = (String, String)>,
    keys: &[Key],
    wrong: &mut Vec<String>,
) -> Vec<Setting> {
    let mut settings = Vec::new();
    for (variable, text) in environment {
        if let Some(name) = variable.strip_prefix(PREFIX) {
            let name = name.to_lowercase().replace("__", ".");
            settings.push(Setting { name, given: Given::Text(text), place: Place::Variable(variable) });
        } else if let Some(key) = single_underscores(&variable, keys) {
            let right = key.variable();
            wrong.push(format!("{variable} is not read: two underscores stand between, write {right}"));
        }
    }
    settings
}

/// The key that a variable would set if it had two underscores where it has one.
fn single_underscores<'a>(variable: &str, keys: &'a [Key]) -> Option<&'a Key> {
    if COMMAND_LINE.contains(&variable) || !variable.starts_with("DOORBUSTER_") {
        return None;
    }
    let flat = |name: &str| name.replace("__", "_");
    keys.iter().find(|key| flat(&key.variable()) == flat(variable))
}

/// Puts a layer's values over the table; what is wrong is said and left out.
fn apply(layer: Vec<Setting>, keys: &[Key], table: &mut Table, wrong: &mut Vec<String>) {
    let names: Vec<String> = layer.iter().map(|setting| setting.name.clone()).collect();
    for Setting { name, given, place } in layer {
        let Some(key) = keys.iter().find(|key| key.name == name) else {
            wrong.push(format!("`{name}`, set {place}: {}", keys::not_a_key(&name, keys)));
            continue;
        };
        let value = match given {
            Given::Value(value) => Ok(value),
            Given::Text(text) => key.value_of(&text),
        };
        let value = match value.and_then(|value| alone(key, &value).map(|()| value)) {
            Ok(value) => value,
            Err(why) => {
                wrong.push(format!("`{name}`, set {place}: {why}"));
                continue;
            }
        };
        // A file named in a higher layer beats a secret that stands in a lower one.
        if let Some(secret) = name.strip_suffix("_file").filter(|it| schema::is_secret(it))
            && !names.iter().any(|name| name == secret)
            && value.as_str().is_some_and(|path| !path.is_empty())
        {
            keys::put(table, secret, Value::String(String::new()));
        }
        keys::put(table, &name, value);
    }
}

/// Whether a value is sound, tried alone over the defaults.
fn alone(key: &Key, value: &Value) -> Result<(), String> {
    let shown =
        || if schema::is_secret(&key.name) { "the value (not shown)".to_owned() } else { value.to_string() };
    let bare = match value {
        Value::Integer(number @ 0..) => Some(number.to_string()),
        Value::String(text) if text.trim().parse::<u64>().is_ok() => Some(text.trim().to_owned()),
        _ => None,
    };
    if let (Kind::Duration, Some(number)) = (key.kind(), bare) {
        return Err(format!(
            "a duration carries its unit: write \"{number}s\" if seconds are meant, or use ms, m or h"
        ));
    }
    let mut table = keys::defaults();
    keys::put(&mut table, &key.name, value.clone());
    let Err(error) = Config::deserialize(Value::Table(table)) else { return Ok(()) };
    Err(match (key.kind(), value) {
        (Kind::Duration, _) => format!("{} is not a duration, such as \"500ms\", \"5s\" or \"10m\"", shown()),
        (Kind::Address, _) => {
            format!("{} is not an address with a port, such as \"127.0.0.1:8080\" or \"[::1]:8080\"", shown())
        }
        (Kind::Whole, Value::Integer(0..)) => error.message().to_owned(),
        (Kind::Whole, _) => format!("{} is not a whole number of 0 or more", shown()),
        (Kind::Switch, _) => format!("{} is neither true nor false", shown()),
        _ if schema::is_secret(&key.name) => format!("{} is not text in quotes", shown()),
        _ => error.message().to_owned(),
    })
}
