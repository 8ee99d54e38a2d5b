//! Logs: to standard error, for people or as JSON.
//!
//! As JSON, every event is one line whatever is in it: values are escaped, and a panic is an event
//! too. What users send goes into fields only, never into the message.

use std::ffi::OsString;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat, LogLevel};

/// Starts logging; a second start in one process is ignored, which tests rely on.
pub(crate) fn start(log: &Log) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
    };
    // Libraries' own chatter only when it is a warning. The pool warns once per connection when
    // PostgreSQL restarts, which the calls that fail for it tell once.
    let filter = format!("warn,deadpool=error,doorbuster_engine={level},doorbuster_server={level}");
    let filter = EnvFilter::new(filter);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(in_color(std::io::stderr().is_terminal(), std::env::var_os("NO_COLOR")))
        .with_target(false);
    match log.format {
        LogFormat::Text => {
            let _ = lines.try_init();
        }
        LogFormat::Json => {
            if lines.json().flatten_event(true).try_init().is_ok() {
                std::panic::set_hook(Box::new(log_panic));
            }
        }
    }
}

/// The default hook writes several lines that are no JSON.
fn log_panic(panic: &std::panic::PanicHookInfo<'_>) {
    let thread = std::thread::current();
    tracing::error!(
        panic.message = panic.payload_as_str().unwrap_or("not a text"),
        panic.location = panic.location().map(ToString::to_string),
        thread.name = thread.name(),
        "a thread panicked"
    );
}

/// Colour is for people at a terminal who did not set `NO_COLOR` (<https://no-color.org>).
fn in_color(terminal: bool, no_color: Option<OsString>) -> bool {
    terminal && no_color.is_none_or(|it| it.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn color_is_for_terminals_without_no_color() {
        assert!(in_color(true, None));
        assert!(in_color(true, Some(OsString::new())));
        assert!(!in_color(true, Some(OsString::from("1"))));
        assert!(!in_color(false, None));
    }
}
