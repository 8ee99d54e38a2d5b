//! Logs: to standard error, for people or as JSON.

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
    // Libraries' own chatter only when it is a warning.
    let filter = EnvFilter::new(format!("warn,doorbuster_engine={level},doorbuster_server={level}"));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let _ = match log.format {
        LogFormat::Text => lines.try_init(),
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
}
