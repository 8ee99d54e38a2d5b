//! The waiting rooms, whose faults are counted.

use std::sync::Arc;

use async_trait::async_trait;

use super::Seen;
use crate::fault::BackendError;
use crate::order::{SaleId, UserId};
use crate::room::{Asking, Crowd, Moment, Openings, Place, Room};

pub(super) struct ObservedRoom {
    pub(super) inner: Arc<dyn Room>,
    pub(super) seen: Seen,
}

#[async_trait]
impl Room for ObservedRoom {
    async fn ask(&self, sale: SaleId, asking: &[Asking], at: Moment) -> Result<Vec<Place>, BackendError> {
        self.seen.call(self.inner.ask(sale, asking, at)).await
    }

    async fn admit(&self, sale: SaleId, openings: Openings, at: Moment) -> Result<Crowd, BackendError> {
        self.seen.call(self.inner.admit(sale, openings, at)).await
    }

    async fn leave(&self, sale: SaleId, user: &UserId) -> Result<(), BackendError> {
        self.seen.call(self.inner.leave(sale, user)).await
    }

    async fn close(&self, sale: SaleId) -> Result<(), BackendError> {
        self.seen.call(self.inner.close(sale)).await
    }
}
