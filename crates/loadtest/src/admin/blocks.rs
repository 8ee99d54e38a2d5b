//! Whom the staff keeps out.

use bytes::Bytes;
use doorbuster_wire::{AddBlocks, BlockRow, BlocksAdded, LiftBlock, Page};
use hyper::Method;

use super::{AdminClient, AdminError, checked, encoded, page_path};

impl AdminClient {
    /// One page of blocks, newest first, at most `limit` (1 to 1,000); with `lifted`, those that ended, too; with
    /// `value`, those of this user or network alone.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn blocks_page(
        &self,
        lifted: bool,
        value: Option<&str>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<BlockRow>, AdminError> {
        let path = page_path("/admin/api/blocks", cursor, limit);
        let value = value.map(|value| format!("&value={}", encoded(value))).unwrap_or_default();
        self.get(&format!("{path}&lifted={lifted}{value}")).await
    }

    /// Keeps users and networks out, all of them or none.
    ///
    /// # Errors
    /// See [`AdminError`]; too many blocks are a refusal with status 409, an entry that is none with status 422.
    pub async fn add_blocks(&self, asked: &AddBlocks) -> Result<BlocksAdded, AdminError> {
        let body = serde_json::to_vec(asked)
            .map_err(|_| AdminError::Argument("the request cannot be written as JSON"))?;
        self.call(Method::POST, "/admin/api/blocks", Bytes::from(body)).await
    }

    /// Lifts a block.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown block is a refusal with status 404.
    pub async fn lift_block(&self, block: &str, reason: &str) -> Result<BlockRow, AdminError> {
        let body = serde_json::to_vec(&LiftBlock { reason: reason.to_owned() })
            .map_err(|_| AdminError::Argument("the request cannot be written as JSON"))?;
        let path = format!("/admin/api/blocks/{}/lift", checked(block)?);
        self.call(Method::POST, &path, Bytes::from(body)).await
    }
}
