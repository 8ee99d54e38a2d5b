//! Switches, and the trail of what the staff changed.

use bytes::Bytes;
use doorbuster_wire::{Page, SetSwitch, SwitchRow, SwitchTurn, TrailRow};
use hyper::Method;

use super::{AdminClient, AdminError, checked, page_path};

impl AdminClient {
    /// Every switch that holds for all sales, and those of one sale that are turned.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn switches(&self) -> Result<Vec<SwitchRow>, AdminError> {
        self.all_pages("/admin/api/switches").await
    }

    /// Turns a switch.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown switch or sale is a refusal with status 404.
    pub async fn set_switch(&self, name: &str, asked: &SetSwitch) -> Result<SwitchRow, AdminError> {
        let body = serde_json::to_vec(asked)
            .map_err(|_| AdminError::Argument("the request cannot be written as JSON"))?;
        self.call(Method::PUT, &format!("/admin/api/switches/{}", checked(name)?), Bytes::from(body)).await
    }

    /// The newest turns of all switches, newest first, at most `limit` (1 to 1,000).
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn switch_history(&self, limit: usize) -> Result<Vec<SwitchTurn>, AdminError> {
        let page: Page<SwitchTurn> = self.get(&page_path("/admin/api/switch-history", None, limit)).await?;
        Ok(page.items)
    }

    /// The staff's newest changes, newest first, at most `limit` (1 to 1,000).
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn trail(&self, limit: usize) -> Result<Vec<TrailRow>, AdminError> {
        let page: Page<TrailRow> = self.get(&page_path("/admin/api/trail", None, limit)).await?;
        Ok(page.items)
    }
}
