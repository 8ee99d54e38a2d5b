//! Faults in our words, and the log lines of the client library.

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError;

use crate::fault::{BackendError, Fault, Layer};

/// A fault of the queue.
pub(super) fn fault(fault: Fault, what: impl Into<String>) -> BackendError {
    BackendError::new(Layer::Queue, fault, what)
}

/// A call that asked for something and changed nothing.
pub(super) fn unanswered(what: impl Into<String>, cause: KafkaError) -> BackendError {
    fault(Fault::Transient, what).caused_by(cause)
}

/// The context of clients whose events are nobody's business but the log's.
pub(super) struct Quiet;

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka client");
    }
}

impl rdkafka::consumer::ConsumerContext for Quiet {}

/// A line of the client library. A broker that cannot be reached is told by the calls that fail
/// for it; here it would be told once more per connection and second.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, message, "Kafka client");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning if facility != "FAIL" => {
            tracing::warn!(facility, message, "Kafka client");
        }
        _ => tracing::debug!(facility, message, "Kafka client"),
    }
}
