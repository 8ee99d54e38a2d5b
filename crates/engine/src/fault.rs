//! What went wrong behind a trait, and whether it may have happened all the same.

use std::fmt;

/// What a failed call may have done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It did not happen, and may work when tried again: a refused connection, a full disk.
    Transient,
    /// It may have happened: a timeout after sending, a lost reply. The only safe reaction is to
    /// repeat the same step with the same id.
    Ambiguous,
    /// It did not happen and never will as asked: corruption, a wrong type, a bug.
    Permanent,
}

/// The layer a fault came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// The store of permits.
    Stock,
    /// The durable log of orders placed.
    Queue,
    /// The store that decides.
    Ledger,
    /// Who waits for a sale.
    Room,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stock => "stock",
            Self::Queue => "queue",
            Self::Ledger => "ledger",
            Self::Room => "room",
        })
    }
}

/// A call to a backend that failed. Expected answers are outcomes, never this.
#[derive(Debug, thiserror::Error)]
#[error("{layer}: {what}")]
pub struct BackendError {
    /// Whether the call may have taken effect.
    pub fault: Fault,
    /// Where it failed.
    pub layer: Layer,
    /// What was being done, and what to do about it.
    pub what: String,
    /// The client library's own error.
    #[source]
    pub source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl BackendError {
    /// A fault of `layer` in the words of `what`.
    pub fn new(layer: Layer, fault: Fault, what: impl Into<String>) -> Self {
        Self { fault, layer, what: what.into(), source: None }
    }

    /// The same fault with the client library's error as its cause.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The message with every cause behind it, for the one place that logs it.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
