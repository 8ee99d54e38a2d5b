//! The list of those who are kept out, counted.

use async_trait::async_trait;

use super::ledger::ObservedLedger;
use crate::block::{Block, NewBlocks};
use crate::fault::BackendError;
use crate::ledger::{BlockChanges, BlockFilter, BlockOutcome, Blocks};

#[async_trait]
impl Blocks for ObservedLedger {
    async fn block(&self, new: &NewBlocks, most: u64) -> Result<BlockOutcome, BackendError> {
        self.seen.call(self.inner.block(new, most)).await
    }

    async fn lift_block(&self, id: i64, reason: &str, by: &str) -> Result<Option<Block>, BackendError> {
        self.seen.call(self.inner.lift_block(id, reason, by)).await
    }

    async fn blocks(
        &self,
        filter: &BlockFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Block>, BackendError> {
        self.seen.call(self.inner.blocks(filter, before, limit)).await
    }

    async fn block_changes(&self, seen: i64, limit: usize) -> Result<BlockChanges, BackendError> {
        self.seen.call(self.inner.block_changes(seen, limit)).await
    }
}
