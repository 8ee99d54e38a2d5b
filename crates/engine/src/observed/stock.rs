//! The stock, measured.

use std::sync::Arc;

use async_trait::async_trait;
use uuid::Uuid;

use super::{RESERVED, Seen};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{ItemId, OrderId, Reservation, UserId};
use crate::sale::{LoaderToken, Terms};
use crate::stock::{
    AdjustOutcome, BeginLoadOutcome, BucketId, FinishOutcome, HolderPage, Level, LoadOutcome, LoadPage,
    ReadBack, ReleaseOutcome, ReserveOutcome, ReserveRequest, Stock,
};

pub(super) struct ObservedStock {
    pub(super) inner: Arc<dyn Stock>,
    pub(super) seen: Seen,
}

/// The place of an outcome's word in [`RESERVED`].
fn word_of(outcome: &ReserveOutcome) -> usize {
    match outcome {
        ReserveOutcome::NotLoaded => 0,
        ReserveOutcome::HeldBefore { .. } => 1,
        ReserveOutcome::Gone => 2,
        ReserveOutcome::Mismatch => 3,
        ReserveOutcome::Fenced => 4,
        ReserveOutcome::Limit { .. } => 5,
        ReserveOutcome::NotOpen => 6,
        ReserveOutcome::Early { .. } => 7,
        ReserveOutcome::Ended => 8,
        ReserveOutcome::NoItem => 9,
        ReserveOutcome::SoldOut { .. } => 10,
        ReserveOutcome::NotEnough { .. } => 11,
        ReserveOutcome::Held { .. } => 12,
    }
}

#[async_trait]
impl Stock for ObservedStock {
    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Result<BeginLoadOutcome, BackendError> {
        self.seen.call(self.inner.begin_load(bucket, terms, token)).await
    }

    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Result<LoadOutcome, BackendError> {
        self.seen.call(self.inner.load(bucket, token, page, contents)).await
    }

    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Result<FinishOutcome, BackendError> {
        self.seen.call(self.inner.finish_load(bucket, token, read_back)).await
    }

    async fn fence(&self, bucket: BucketId) -> Result<(), BackendError> {
        self.seen.call(self.inner.fence(bucket)).await
    }

    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Result<bool, BackendError> {
        self.seen.call(self.inner.set_terms(bucket, terms)).await
    }

    async fn reserve(
        &self,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Result<Vec<ReserveOutcome>, BackendError> {
        let figures = &self.seen.figures;
        let call = self.seen.call(self.inner.reserve(bucket, requests));
        let outcomes = self.seen.timed(&figures.reserve, call).await?;
        // Added up first: one locked instruction per word of a batch, not per request.
        let mut counts = [0; RESERVED.len()];
        outcomes.iter().for_each(|outcome| counts[word_of(outcome)] += 1);
        let some = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
        some.for_each(|(word, count)| figures.reserved.add(word, count));
        Ok(outcomes)
    }

    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Result<(), BackendError> {
        self.seen.call(self.inner.confirm(bucket, orders)).await
    }

    async fn release(
        &self,
        bucket: BucketId,
        orders: &[(OrderId, UserId)],
    ) -> Result<Vec<ReleaseOutcome>, BackendError> {
        self.seen.call(self.inner.release(bucket, orders)).await
    }

    async fn adjust(
        &self,
        bucket: BucketId,
        operation: Uuid,
        item: ItemId,
        units: i64,
    ) -> Result<AdjustOutcome, BackendError> {
        self.seen.call(self.inner.adjust(bucket, operation, item, units)).await
    }

    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Reservation>, BackendError> {
        self.seen.call(self.inner.unconfirmed(bucket, before, limit)).await
    }

    async fn holds_of(
        &self,
        bucket: BucketId,
        user: &UserId,
    ) -> Result<Option<Vec<(Reservation, bool)>>, BackendError> {
        self.seen.call(self.inner.holds_of(bucket, user)).await
    }

    async fn holders(
        &self,
        bucket: BucketId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<HolderPage, BackendError> {
        self.seen.call(self.inner.holders(bucket, cursor, limit)).await
    }

    async fn level(&self, bucket: BucketId) -> Result<Option<Level>, BackendError> {
        self.seen.call(self.inner.level(bucket)).await
    }
}
