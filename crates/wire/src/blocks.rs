//! Whom the staff keeps out.

use serde::{Deserialize, Serialize};

/// Users and networks that are to be kept out, all of them or none: at most 1,000.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddBlocks {
    /// Whom.
    pub entries: Vec<BlockEntry>,
    /// The sale they are kept out of; all sales without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale_id: Option<String>,
    /// Why.
    pub reason: String,
}

/// Somebody who is to be kept out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BlockEntry {
    /// `user` or `network`.
    pub kind: String,
    /// A user's id, or a network such as `192.0.2.0/24`.
    pub value: String,
}

/// What became of blocks that were to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlocksAdded {
    /// How many are new.
    pub added: u64,
    /// How many stood before, and stay as they were.
    pub known: u64,
}

/// Why a block is lifted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LiftBlock {
    /// Why.
    pub reason: String,
}

/// One block, as it stands or stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BlockRow {
    /// Grows with each block.
    pub block_id: String,
    /// `user` or `network`.
    pub kind: String,
    /// A user's id, or a network.
    pub value: String,
    /// The sale it is of, when it is of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sale_id: Option<String>,
    /// Why.
    pub reason: String,
    /// Who: the name beside the token.
    pub by: String,
    /// When.
    pub at: String,
    /// Why it was lifted; absent, as the two behind it, while it stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_reason: Option<String>,
    /// Who lifted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_by: Option<String>,
    /// When it was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted_at: Option<String>,
}
