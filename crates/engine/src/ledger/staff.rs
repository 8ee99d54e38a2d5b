//! What the staff turns while sales run, and the trail of what it changed.

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::switches::{SwitchChange, TurnedSwitch};

/// Something that a member of the staff is about to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaffAction {
    /// The name that stands beside the token.
    pub by: String,
    /// The token's role.
    pub role: String,
    /// The request's method.
    pub method: String,
    /// The request's path.
    pub path: String,
    /// The beginning of the request's body.
    pub body: String,
    /// The request's id.
    pub request: String,
    /// The Idempotency-Key that the request carries.
    pub key: Option<ActionKey>,
}

/// What a request that is sent again is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionKey {
    /// The text that whoever sent it chose.
    pub key: String,
    /// A hash of the request: another one under the same key is known by it.
    pub digest: String,
}

impl ActionKey {
    /// The key of a request for `target`, which is its path with the query.
    pub fn new(key: &str, method: &str, target: &str, body: &[u8]) -> Self {
        let mut hasher = blake3::Hasher::new();
        // Lengths stand before what has none of its own: no two requests are the same bytes.
        for part in [method.as_bytes(), target.as_bytes(), body] {
            hasher.update(&(part.len() as u64).to_be_bytes()).update(part);
        }
        Self { key: key.to_owned(), digest: hasher.finalize().to_hex().to_string() }
    }
}

/// How an action was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionAnswer {
    /// The answer's status.
    pub status: u16,
    /// The answer's body, where it may be given again.
    pub body: Option<String>,
}

/// What became of the wish to begin an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginActionOutcome {
    /// It is written down under this number: do it.
    Begun(i64),
    /// The same request came before under this key, and was answered so.
    Answered {
        /// The answer's status.
        status: u16,
        /// The answer's body.
        body: String,
    },
    /// The same request came before under this key. It is under way, or nobody knows how it ended, or its answer
    /// may not be given again.
    Unanswered {
        /// The id of the request that came before.
        request: String,
        /// Its answer's status, if it had one.
        status: Option<u16>,
    },
    /// The key belongs to another request.
    OtherRequest,
}

/// The action that has a key already, as it stands in the trail.
pub(super) struct BegunBefore {
    pub(super) digest: String,
    pub(super) request: String,
    pub(super) status: Option<u16>,
    pub(super) answer: Option<String>,
}

impl BegunBefore {
    /// What a request with this key hears.
    pub(super) fn outcome(self, key: &ActionKey) -> BeginActionOutcome {
        if self.digest != key.digest {
            return BeginActionOutcome::OtherRequest;
        }
        match (self.status, self.answer) {
            (Some(status), Some(body)) => BeginActionOutcome::Answered { status, body },
            (status, _) => BeginActionOutcome::Unanswered { request: self.request, status },
        }
    }
}

/// One line of the staff's trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrailEntry {
    /// Grows with each action.
    pub id: i64,
    /// When it was begun.
    pub at: Timestamp,
    /// What.
    pub action: StaffAction,
    /// The answer's status; `None` while it is under way, or when the process died.
    pub status: Option<u16>,
}

/// The staff's switches and trail.
#[async_trait]
pub trait Staff: Send + Sync + 'static {
    /// Turns a switch. Answers nothing when it names a sale that is not there.
    async fn turn_switch(&self, change: &SwitchChange) -> Result<Option<TurnedSwitch>, BackendError>;

    /// The switches that stand, by name and sale; those that were given back to the configuration do not.
    async fn switches(&self) -> Result<Vec<TurnedSwitch>, BackendError>;

    /// Every turn, newest first, from before `before`, at most `limit`.
    async fn switch_history(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<TurnedSwitch>, BackendError>;

    /// Writes an action down before it is done, unless its key has been used by the same member of the staff.
    async fn begin_action(&self, action: &StaffAction) -> Result<BeginActionOutcome, BackendError>;

    /// Notes how it ended.
    async fn end_action(&self, id: i64, answer: &ActionAnswer) -> Result<(), BackendError>;

    /// Every action, newest first, from before `before`, at most `limit`.
    async fn trail(&self, before: Option<i64>, limit: usize) -> Result<Vec<TrailEntry>, BackendError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_of_one_request_alone() {
        let digest = |method, target, body: &str| ActionKey::new("k", method, target, body.as_bytes()).digest;
        let one = digest("POST", "/a", "b");
        assert_eq!(one, digest("POST", "/a", "b"));
        for (method, target, body) in
            [("PUT", "/a", "b"), ("POST", "/ab", ""), ("POST", "/a?b", ""), ("POST", "/", "ab")]
        {
            assert_ne!(one, digest(method, target, body), "{method} {target} {body}");
        }
    }
}
