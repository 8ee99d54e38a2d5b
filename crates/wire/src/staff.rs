//! Switches that the staff turns, and the trail of what it changed.

use serde::{Deserialize, Serialize};

/// What a switch is to be set to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetSwitch {
    /// As [`SwitchRow::takes`] says; null lets the configuration stand again.
    #[serde(default)]
    pub value: Option<String>,
    /// The sale, for a switch that is turned for one at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale_id: Option<String>,
    /// Why. 1 to 500 bytes.
    pub reason: String,
}

/// A switch as it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchRow {
    /// Its name.
    pub name: String,
    /// The sale it is turned for, when it is turned for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale_id: Option<String>,
    /// Whether it is turned for one sale at a time.
    pub per_sale: bool,
    /// What it can be set to, in words.
    pub takes: String,
    /// What it does.
    pub meaning: String,
    /// What it is set to; absent while the configuration stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why it was turned last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who turned it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was turned last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

/// One turn of a switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SwitchTurn {
    /// Grows with each turn.
    pub turn_id: String,
    /// The switch.
    pub name: String,
    /// The sale it was turned for, when it was turned for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale_id: Option<String>,
    /// To what; absent when it was given back to the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Why.
    pub reason: String,
    /// Who: the name beside the token.
    pub by: String,
    /// When.
    pub at: String,
}

/// Something that the staff changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TrailRow {
    /// Grows with each change.
    pub action_id: String,
    /// When it was begun.
    pub at: String,
    /// Who: the name beside the token.
    pub by: String,
    /// The token's role.
    pub role: String,
    /// The request's method.
    pub method: String,
    /// The request's path.
    pub path: String,
    /// The first 4,096 bytes of the request's body.
    pub body: String,
    /// The request's id, as in the log and the answer.
    pub request_id: String,
    /// The Idempotency-Key that the request carried, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// The answer's status; absent while it is under way, or when the process died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
}
