//! Why an admin request failed.

use std::io;

use thiserror::Error;

use crate::link::{Answer, Refusal, UrlError};
use crate::trust;

/// Why the admin listener did not do what was asked.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdminError {
    /// The base URL cannot be used.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// An argument cannot be sent: a token with control characters, an id that is not one.
    #[error("{0}")]
    Argument(&'static str),
    /// The server refused.
    #[error("{detail} ({status} {error})")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// The stable error word, such as `SALE_NOT_FOUND`; `INVALID` when the answer had none.
        error: String,
        /// The problem in words, or the beginning of what came instead.
        detail: String,
    },
    /// No connection, or it broke. `sent` says whether the server may have acted.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// The base URL.
        url: String,
        /// What went wrong, in words.
        reason: String,
        /// Whether the request may have arrived: then look before asking again.
        sent: bool,
    },
    /// The server does not prove who it is: nothing was sent.
    #[error("{url} is not trusted: {reason}")]
    Untrusted {
        /// The base URL.
        url: String,
        /// What is wrong with its certificate, in words.
        reason: String,
    },
    /// The answer was a success, but not of the promised shape.
    #[error("the answer to {path} cannot be read: {reason}")]
    Unreadable {
        /// What was asked for.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl AdminError {
    /// The HTTP status of a refusal; `None` when there was no answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            AdminError::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Why there is no connection to the server at `url`.
    pub(crate) fn of_opening(url: &str, error: &io::Error) -> Self {
        let url = url.to_owned();
        if let Some(reason) = trust::untrusted(error) {
            return AdminError::Untrusted { url, reason };
        }
        let reason = if trust::is_plain(error) {
            "what answers there does not speak TLS: a listener without it is reached by http://".to_owned()
        } else {
            error.to_string()
        };
        AdminError::Unreachable { url, reason, sent: false }
    }

    pub(crate) fn of_refusal(answer: &Answer) -> Self {
        let beginning = || String::from_utf8_lossy(&answer.body).chars().take(200).collect();
        match serde_json::from_slice::<Refusal>(&answer.body) {
            Ok(refusal) => AdminError::Refused {
                status: answer.status,
                error: refusal.error,
                detail: refusal.detail.unwrap_or_else(beginning),
            },
            Err(_) => AdminError::Refused {
                status: answer.status,
                error: "INVALID".to_owned(),
                detail: beginning(),
            },
        }
    }
}
