//! Refunds.

use doorbuster_wire::{CloseRefund, OrderRow, RefundOrder, RefundRow, RetryRefund};

use super::{AdminClient, AdminError, checked};

impl AdminClient {
    /// Refunds a paid order.
    ///
    /// # Errors
    /// See [`AdminError`]; an order that is not paid is a refusal with status 409.
    pub async fn refund_order(&self, order_id: &str, asked: &RefundOrder) -> Result<OrderRow, AdminError> {
        self.post(&format!("/admin/api/orders/{}/refund", checked(order_id)?), asked).await
    }

    /// Every refund, by payment; only those in `state`, if it is named.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn refunds(&self, state: Option<&str>) -> Result<Vec<RefundRow>, AdminError> {
        let state = state.map(checked).transpose()?;
        let only = state.map(|state| format!("?state={state}")).unwrap_or_default();
        self.all_pages(&format!("/admin/api/refunds{only}")).await
    }

    /// Notes that the staff has given money back itself.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown payment is a refusal with status 404.
    pub async fn close_refund(&self, asked: &CloseRefund) -> Result<RefundRow, AdminError> {
        self.post("/admin/api/refunds/close", asked).await
    }

    /// Lets the provider be asked again to give money back.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown payment is a refusal with status 404.
    pub async fn retry_refund(&self, asked: &RetryRefund) -> Result<RefundRow, AdminError> {
        self.post("/admin/api/refunds/retry", asked).await
    }
}
