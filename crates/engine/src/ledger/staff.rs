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
    /// The answer's status; `None` while it is under way, or when its client hung up or the process died.
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

    /// Writes an action down before it is done; answers its number.
    async fn begin_action(&self, action: &StaffAction) -> Result<i64, BackendError>;

    /// Notes how it ended.
    async fn end_action(&self, id: i64, status: u16) -> Result<(), BackendError>;

    /// Every action, newest first, from before `before`, at most `limit`.
    async fn trail(&self, before: Option<i64>, limit: usize) -> Result<Vec<TrailEntry>, BackendError>;
}
