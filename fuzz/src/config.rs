//! The configuration: whatever a file, variables or flags say, an error names its key or its line,
//! and no secret.
//!
//! The bytes are a file. Each of its lines `key = value` is also a flag and a variable.

use doorbuster_server::config::{Config, InvalidConfig};

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let path = folder.path().join("doorbuster.toml");
    std::fs::write(&path, text).expect("a temporary file can be written");
    judge(Config::read(Some(&path), [], &[]), text, |error| {
        error.contains(", line ") && error.contains("is not TOML")
    });

    let lines = text.lines().filter_map(|line| line.split_once('='));
    let settings: Vec<(String, String)> =
        lines.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).take(16).collect();
    judge(Config::read(None, [], &settings), text, |_| false);
    let variables = settings
        .into_iter()
        .map(|(key, value)| (format!("DOORBUSTER__{}", key.replace('.', "__").to_uppercase()), value));
    judge(Config::read(None, variables, &[]), text, |_| false);
}

fn judge(read: anyhow::Result<Config>, text: &str, is_syntax: impl Fn(&str) -> bool) {
    let Err(error) = read else { return };
    let said = format!("{error:#}");
    match error.downcast_ref::<InvalidConfig>() {
        Some(invalid) => {
            assert!(!invalid.wrong.is_empty(), "an error without a reason");
            for wrong in &invalid.wrong {
                assert!(wrong.contains('`') || wrong.contains('.'), "which key? {wrong}");
            }
        }
        None => assert!(is_syntax(&said), "neither a key nor a line: {said}"),
    }
    for secret in secrets(text) {
        assert!(!said.contains(&secret), "a secret is shown: {said}");
    }
}

/// The values of keys that hold a secret, where a TOML reader finds some.
fn secrets(text: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(text).unwrap_or_default();
    let secret = table.get("gate").and_then(|it| it.get("jwt")).and_then(|it| it.get("secret"));
    // A short one may stand in the text by chance.
    secret.and_then(|it| it.as_str()).filter(|it| it.len() >= 12).map(str::to_owned).into_iter().collect()
}
