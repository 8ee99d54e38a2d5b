//! Whom the staff keeps out, with who said so and why.

use async_trait::async_trait;

use crate::block::{Block, BlockChange, NewBlocks};
use crate::fault::BackendError;

/// What became of blocks that were to be added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockOutcome {
    /// All of them stand now; so many stood before.
    Stand {
        /// The others.
        added: u64,
    },
    /// They name a sale that is not there.
    NoSale,
    /// There would be too many, so that none was added.
    Full {
        /// How many stand.
        standing: u64,
    },
}

/// Which blocks are looked at.
#[derive(Clone, Debug, Default)]
pub struct BlockFilter {
    /// Also those that were lifted.
    pub lifted: bool,
    /// Of this value alone: a user's id, or a network as it was normalised.
    pub value: Option<String>,
}

/// What happened to the list of blocks behind some number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChanges {
    /// The newest number of all; lower than one that was seen before, when the ledger has gone back.
    pub newest: i64,
    /// The next changes, in their order. Whoever reads from the start is not told of blocks that were lifted.
    pub changes: Vec<BlockChange>,
}

/// The staff's list of those who are kept out. Rows are never deleted.
#[async_trait]
pub trait Blocks: Send + Sync + 'static {
    /// Adds blocks, all or none, so that at most about `most` stand; who is blocked already stays so by the block that
    /// is there.
    async fn block(&self, new: &NewBlocks, most: u64) -> Result<BlockOutcome, BackendError>;

    /// Lifts a block and answers it, as it ended first if it had; nothing when there is none.
    async fn lift_block(&self, id: i64, reason: &str, by: &str) -> Result<Option<Block>, BackendError>;

    /// Blocks, newest first, from before `before`, at most `limit`.
    async fn blocks(
        &self,
        filter: &BlockFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Block>, BackendError>;

    /// What happened behind number `seen`, at most `limit` changes.
    async fn block_changes(&self, seen: i64, limit: usize) -> Result<BlockChanges, BackendError>;
}
