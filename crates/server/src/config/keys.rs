//! Every key with its default and its meaning, read from the commented defaults, so that there is
//! one place to write them down.

use std::net::SocketAddr;

use toml::{Table, Value};

use super::DEFAULTS;

/// One key of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Key {
    /// Section and key, such as `server.listen`.
    pub(crate) name: String,
    /// What holds when nobody says anything.
    pub(crate) default: Value,
    /// The comment above it.
    pub(crate) meaning: String,
}

/// What a key's text in the environment or a flag stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Address,
    Duration,
    Whole,
    Number,
    Switch,
    List,
}

impl Key {
    /// The kind of value it takes, which its default shows.
    pub(crate) fn kind(&self) -> Kind {
        match &self.default {
            Value::String(text) if text.parse::<SocketAddr>().is_ok() => Kind::Address,
            Value::String(text) if humantime::parse_duration(text).is_ok() => Kind::Duration,
            Value::String(_) | Value::Datetime(_) => Kind::Text,
            Value::Integer(_) => Kind::Whole,
            Value::Float(_) => Kind::Number,
            Value::Boolean(_) => Kind::Switch,
            Value::Array(_) | Value::Table(_) => Kind::List,
        }
    }

    /// The environment variable that sets it.
    pub(crate) fn variable(&self) -> String {
        format!("DOORBUSTER__{}", self.name.replace('.', "__").to_uppercase())
    }

    /// What a text in the environment or a flag means for this key.
    pub(super) fn value_of(&self, text: &str) -> Result<Value, String> {
        match self.kind() {
            Kind::Text | Kind::Address | Kind::Duration => Ok(Value::String(text.to_owned())),
            Kind::Whole => text
                .trim()
                .replace('_', "")
                .parse()
                .map(Value::Integer)
                .map_err(|_| format!("`{}` is not a whole number", text.escape_default())),
            Kind::Number => text
                .trim()
                .parse()
                .map(Value::Float)
                .map_err(|_| format!("`{}` is not a number", text.escape_default())),
            Kind::Switch => text
                .trim()
                .parse()
                .map(Value::Boolean)
                .map_err(|_| format!("`{}` is neither true nor false", text.escape_default())),
            Kind::List => list_of(text),
        }
    }
}

/// A list: in brackets as in a file, or its texts with commas between.
fn list_of(text: &str) -> Result<Value, String> {
    let text = text.trim();
    if text.starts_with(['[', '{']) {
        let table: Table = toml::from_str(&format!("it = {text}"))
            .map_err(|error| format!("the list cannot be read: {}", error.message()))?;
        return table.get("it").cloned().ok_or_else(|| "the list cannot be read".to_owned());
    }
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(Value::Array(parts.map(|part| Value::String(part.to_owned())).collect()))
}

/// The defaults as a table.
pub(crate) fn defaults() -> Table {
    toml::from_str(DEFAULTS).expect("the compiled-in defaults are TOML, which a test reads")
}

/// Every key, in the order of the commented defaults.
pub(crate) fn all() -> Vec<Key> {
    let defaults = defaults();
    let (mut keys, mut section, mut comment) = (Vec::new(), String::new(), Vec::new());
    for line in DEFAULTS.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix('#') {
            comment.push(text.trim());
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_owned();
        } else if let Some((name, _)) = line.split_once('=') {
            let name = format!("{section}.{}", name.trim());
            if let Some(default) = find(&defaults, &name) {
                keys.push(Key { name, default: default.clone(), meaning: comment.join(" ") });
            }
        }
        comment.clear();
    }
    keys
}

/// The value at a key's place.
pub(crate) fn find<'a>(table: &'a Table, name: &str) -> Option<&'a Value> {
    let mut parts = name.split('.');
    let mut value = table.get(parts.next()?)?;
    for part in parts {
        value = value.get(part)?;
    }
    Some(value)
}

/// Puts a value at a key's place.
pub(crate) fn put(table: &mut Table, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            table.insert(name.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Why a name is not a key, and which key may have been meant.
pub(super) fn not_a_key(name: &str, keys: &[Key]) -> String {
    /// Most letters that may be wrong, missing or too many.
    const TYPOS_MAX: usize = 3;
    if keys.iter().any(|key| key.name.starts_with(&format!("{name}."))) {
        return format!(
            "is a section with keys of its own, not a key: write `[{name}]` and the keys below it"
        );
    }
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let near = keys
        .iter()
        .map(|key| (strsim::osa_distance(name, &key.name), key.name.as_str()))
        .filter(|(typos, _)| *typos <= TYPOS_MAX)
        .min();
    let meant: Vec<&str> = match near {
        Some((_, near)) => vec![near],
        None => keys.iter().map(|key| key.name.as_str()).filter(|key| last(key) == last(name)).collect(),
    };
    match meant.as_slice() {
        [] => "there is no such key".to_owned(),
        meant => format!("there is no such key; did you mean `{}`?", meant.join("` or `")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_key_with_a_meaning() {
        fn leaves(value: &Value) -> usize {
            value.as_table().map_or(1, |table| table.values().map(leaves).sum())
        }
        let keys = all();
        assert_eq!(keys.len(), leaves(&Value::Table(defaults())));
        for key in &keys {
            assert!(key.meaning.ends_with('.'), "{}: {}", key.name, key.meaning);
        }
    }

    #[test]
    fn a_near_miss_names_what_was_meant() {
        let keys = all();
        for (name, says) in [
            ("server.cors", "did you mean `server.cores`?"),
            ("serve.lisen", "did you mean `server.listen`?"),
            ("queue_lag_max", "did you mean `gate.queue_lag_max`?"),
            ("listen", "did you mean `server.listen` or `admin.listen`?"),
            ("gate.jwt", "is a section"),
            ("shoes.are_red", "there is no such key"),
        ] {
            let text = not_a_key(name, &keys);
            assert!(text.contains(says), "{name}: {text}");
        }
    }

    #[test]
    fn a_list_may_be_written_with_commas_or_brackets() {
        for text in ["a, b", "[\"a\", \"b\"]"] {
            assert_eq!(list_of(text).unwrap().as_array().unwrap().len(), 2);
        }
        assert!(list_of("[\"a\"").is_err());
    }
}
