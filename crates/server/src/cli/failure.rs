//! How a command that failed ends: the cause once, what to do, and the exit code.

use std::process::ExitCode;

use doorbuster_loadtest::{AdminError, UrlError};

use super::output;

/// What was asked for does not fit together; the command did nothing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct WrongUsage(pub(crate) String);

const WRONG_LISTENER: &str =
    "--admin-url must name the staff's listener of a server of this version, not the buyers' listener";

/// Says why on standard error, and what to do where the cause alone does not say it.
pub(super) fn end(error: &anyhow::Error) -> ExitCode {
    output::complain(error);
    if let Some(remedy) = remedy(error) {
        output::say(&format!("what to do: {remedy}"));
    }
    if error.is::<WrongUsage>() { ExitCode::from(2) } else { ExitCode::FAILURE }
}

fn remedy(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref::<AdminError>()? {
        AdminError::Unreachable { sent: false, .. } => Some(
            "start the server with `doorbuster serve`, or name its staff's listener with --admin-url (a demo prints its own)",
        ),
        AdminError::Unreachable { sent: true, .. } => Some(
            "the request may have arrived before the connection broke: look (`sale show`, `order get`) before repeating it",
        ),
        AdminError::Untrusted { .. } | AdminError::Url(UrlError::NoAuthorities { .. }) => Some(
            "name the PEM file of the authority that signed the server's certificate with --admin-ca, and the server in --admin-url by a name that its certificate has",
        ),
        AdminError::Refused { status: 401, .. } => Some(
            "name the file with this server's staff token with --admin-token-file; `serve` logs where it is",
        ),
        AdminError::Refused { status: 403, .. } => {
            Some("this needs the token of an operator or an admin: name its file with --admin-token-file")
        }
        AdminError::Refused { error, .. } if error == "SALE_NOT_FOUND" => {
            Some("`doorbuster sale list` shows every sale with its id")
        }
        AdminError::Refused { error, .. } if error == "REFUND_NOT_FOUND" => {
            Some("`doorbuster refund list` shows every refund with its provider and its payment")
        }
        AdminError::Refused { error, .. } if error == "DEAD_LETTER_NOT_FOUND" => {
            Some("`doorbuster dead-letter list --closed` shows every letter with its number")
        }
        AdminError::Refused { error, .. } if error == "EVENT_NOT_FOUND" => {
            Some("`doorbuster event list` shows the newest deliveries with their numbers")
        }
        // A wrong path on the right listener cannot come from here: each has a word of its own.
        AdminError::Refused { status: 404, error, .. } if error == "NOT_FOUND" => Some(WRONG_LISTENER),
        AdminError::Unreadable { .. } => Some(WRONG_LISTENER),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    #[test]
    fn a_remedy_is_found_beneath_the_context() {
        let refused = |status, error: &str| AdminError::Refused {
            status,
            error: error.to_owned(),
            detail: "no".to_owned(),
        };
        let unreachable =
            AdminError::Unreachable { url: "http://x".to_owned(), reason: "refused".to_owned(), sent: false };
        let untrusted = AdminError::Untrusted { url: "https://x".to_owned(), reason: "unknown".to_owned() };
        for (error, says) in [
            (untrusted, "--admin-ca"),
            (refused(401, "UNAUTHENTICATED"), "--admin-token-file"),
            (refused(404, "SALE_NOT_FOUND"), "sale list"),
            (refused(404, "REFUND_NOT_FOUND"), "refund list"),
            (refused(404, "DEAD_LETTER_NOT_FOUND"), "dead-letter list"),
            (refused(404, "EVENT_NOT_FOUND"), "event list"),
            (refused(404, "NOT_FOUND"), "not the buyers' listener"),
            (unreachable, "doorbuster serve"),
        ] {
            let error: anyhow::Error = Err::<(), _>(error).context("the sale cannot be read").unwrap_err();
            assert!(remedy(&error).unwrap().contains(says), "{error:#}");
        }
        assert_eq!(remedy(&anyhow::anyhow!("something else")), None);
    }
}
