//! Restocks by difference: the intent first, then the stock, then the end.

use async_trait::async_trait;
use uuid::Uuid;

use crate::fault::BackendError;
use crate::order::{Epoch, ItemId, SaleId};

/// A restock that was begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RestockIntent {
    /// Chosen by the caller; once per operation.
    pub operation: Uuid,
    /// The item's sale.
    pub sale: SaleId,
    /// The item.
    pub item: ItemId,
    /// Units to add or, negative, to take away.
    pub units: i64,
    /// The epoch it was begun in.
    pub epoch: Epoch,
    /// Where it stands.
    pub state: RestockState,
}

/// Where a restock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestockState {
    /// Written down; for an addition the ledger's quantity has moved, the stock's not yet surely.
    Open,
    /// Ledger and stock have moved.
    Done,
    /// Refused or overtaken by a rebuild; nothing moved.
    Cancelled,
}

/// What [`Restocks::begin_restock`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestockOutcome {
    /// The intent, new or as it stands.
    Intent(RestockIntent),
    /// The operation id names another restock.
    OtherContent,
    /// There is no such item in this sale.
    NoItem,
    /// The sale has no loaded stock to adjust: draft, closed or fenced.
    NotNow,
    /// The quantity would leave 0..=1,000,000,000.
    OutOfRange,
}

/// Restocks by difference.
#[async_trait]
pub trait Restocks: Send + Sync + 'static {
    /// Writes the intent down; an addition moves the quantity in the same transaction.
    async fn begin_restock(
        &self,
        operation: Uuid,
        sale: SaleId,
        item: ItemId,
        units: i64,
    ) -> Result<RestockOutcome, BackendError>;

    /// Ends an open intent of the sale's present epoch, `applied` as the stock answered; a removal
    /// that was applied moves the quantity in the same transaction. Answers the intent as it
    /// stands: a rebuild may have ended it first.
    async fn end_restock(
        &self,
        operation: Uuid,
        applied: bool,
    ) -> Result<Option<RestockIntent>, BackendError>;

    /// Open intents, oldest first, for the worker that finishes them.
    async fn open_restocks(&self) -> Result<Vec<RestockIntent>, BackendError>;
}
