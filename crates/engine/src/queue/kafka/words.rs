//! Faults in our words, and the log lines of the client library.

use std::sync::{Mutex, PoisonError};

use rdkafka::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};

use crate::fault::{BackendError, Fault, Layer};

/// A fault of the queue.
pub(super) fn fault(fault: Fault, what: impl Into<String>) -> BackendError {
    BackendError::new(Layer::Queue, fault, what)
}

/// A call that asked for something and changed nothing.
pub(super) fn unanswered(what: impl Into<String>, cause: KafkaError) -> BackendError {
    fault(Fault::Transient, what).caused_by(cause)
}

/// The context of clients whose calls tell what went wrong; it remembers why.
#[derive(Default)]
pub(super) struct Quiet {
    complaint: Mutex<Option<Complaint>>,
}

/// What the client library complained of.
pub(super) struct Complaint {
    /// Of which kind it is, as far as the library tells.
    pub(super) code: Option<RDKafkaErrorCode>,
    /// In its own words.
    pub(super) reason: String,
}

impl Quiet {
    /// What the client library last complained of, once.
    pub(super) fn complaint(&self) -> Option<Complaint> {
        self.complaint.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for Quiet {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka client");
        // That all brokers are down follows from the others.
        let code = error.rdkafka_error_code();
        if code != Some(RDKafkaErrorCode::AllBrokersDown) {
            let complaint = Complaint { code, reason: reason.to_owned() };
            *self.complaint.lock().unwrap_or_else(PoisonError::into_inner) = Some(complaint);
        }
    }
}

impl rdkafka::consumer::ConsumerContext for Quiet {}

/// Facilities of the client library that nobody needs to hear. A connection failed, which the calls tell;
/// the group could not be told how far we are, which the ledger knows; a partition has no leader, once per
/// partition and connection, which the calls tell too; and, at every start, a setting of ours is for the
/// other kind of client.
const QUIET: [&str; 4] = ["FAIL", "COMMITFAIL", "METADATAUPDATE", "CONFWARN"];

/// A line of the client library. A broker that cannot be reached is told by the calls that fail
/// for it; here it would be told once more per connection and second.
pub(super) fn log(level: RDKafkaLogLevel, facility: &str, message: &str) {
    match level {
        RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => {
            tracing::error!(facility, message, "Kafka client");
        }
        RDKafkaLogLevel::Error | RDKafkaLogLevel::Warning if !QUIET.contains(&facility) => {
            tracing::warn!(facility, message, "Kafka client");
        }
        _ => tracing::debug!(facility, message, "Kafka client"),
    }
}
