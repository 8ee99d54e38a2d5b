//! The stock: who may still reserve. A cache of the ledger plus the queue.
//!
//! It hands out *permits*; it decides nothing. It may vanish at any moment and is rebuilt from the
//! ledger in a new epoch. What every backend promises, each with its test in
//! [`conformance::stock`](crate::conformance::stock):
//!
//! 1. A bucket that was not loaded sells nothing and says so: `an_unloaded_bucket_sells_nothing`.
//! 2. Never more than was allocated, whoever asks at once: `exactly_the_allocated_units_are_held`.
//! 3. Per user at most the limit, over all items of the sale: `the_limit_counts_over_all_items`.
//! 4. The same order id takes its units once: `the_same_order_id_holds_once`, and other content
//!    under it is a mismatch: `other_content_under_a_held_id_is_a_mismatch`. (An id belongs to one
//!    user by its making: it is random, or derived from the user.)
//! 5. A released order id can never hold again: `a_released_order_id_is_gone`.
//! 6. A release gives units back once, by order id: `a_release_counts_once`.
//! 7. A hold stays in the outbox until it is confirmed or released: `a_hold_is_unconfirmed_until_confirmed`.
//! 8. A fence stops reserving and says so before the limit and after known ids: `a_fence_stops_new_holds_only`.
//! 9. The window and the state are checked by the stock's own clock: `the_window_is_checked_by_the_stocks_clock`.
//! 10. Loading is create-only per epoch: `loading_twice_changes_nothing`; a fenced bucket is never
//!     loaded again: `a_fenced_bucket_stays_fenced`; only the newest loader may write:
//!     `a_stalled_loader_is_refused`; the flip refuses what was not read back:
//!     `the_flip_refuses_other_contents`.
//! 11. An adjustment counts once per operation id and never takes held units:
//!     `an_adjustment_counts_once`.
//! 12. After every call, per item: free units + units in holds = units allocated. All checks come
//!     before the first write: `free_and_held_are_what_was_allocated`.

mod batch;
mod embedded;
#[cfg(feature = "distributed")]
mod redis;

#[cfg(feature = "distributed")]
pub use crate::redis_links::{RedisClock, RedisOptions};
pub use batch::{Batcher, BatcherLimits, BatcherWork, ReserveReply};
pub use embedded::EmbeddedStock;
#[cfg(feature = "distributed")]
pub use redis::RedisStock;

use async_trait::async_trait;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{Epoch, ItemId, OrderId, Reservation, SaleId, Units, UserId};
use crate::sale::{LoaderToken, Terms};

/// Most users in one [`Stock::reserve`] call: bounds how long one call keeps the stock busy.
pub const RESERVE_BATCH_MAX: usize = 256;

/// Most entries in one page of loading or listing.
pub const PAGE_MAX: usize = 1_000;

/// One generation of one share of a sale's stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketId {
    /// The sale.
    pub sale: SaleId,
    /// The generation.
    pub epoch: Epoch,
}

/// One user's wish, ready to be decided by the stock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReserveRequest {
    /// The order that shall hold the units; a repeated call carries the same one.
    pub order: OrderId,
    /// Who wants them.
    pub user: UserId,
    /// The item.
    pub item: ItemId,
    /// How many, 1 to the limit; anything else is refused as [`ReserveOutcome::NoItem`].
    pub units: Units,
    /// Trace context to travel with the order.
    pub trace: Option<String>,
    /// The expired order that this one buys again.
    pub retake_of: Option<OrderId>,
}

/// What the stock answered to one [`ReserveRequest`]. In the order in which the checks are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReserveOutcome {
    /// The bucket is missing or still loading.
    NotLoaded,
    /// This order id holds its units already, from an earlier call.
    HeldBefore {
        /// What it holds.
        reservation: Reservation,
        /// Whether it is still in the outbox, that is not yet known to be recorded.
        in_outbox: bool,
    },
    /// This order id was closed; it can never hold again.
    Gone,
    /// This order id holds another item or other units.
    Mismatch,
    /// The bucket is fenced: a rebuild or a newer epoch stands beside it.
    Fenced,
    /// The user holds too much for this wish.
    Limit {
        /// The user's live orders in this sale.
        orders: Vec<OrderId>,
    },
    /// The sale's state does not sell: preheated, paused or closed.
    NotOpen,
    /// The window has not begun.
    Early {
        /// Milliseconds until it does, by the stock's clock.
        starts_in_ms: u64,
    },
    /// The window is over.
    Ended,
    /// The bucket has no such item, or the units are not in 1..=limit.
    NoItem,
    /// Nothing is free.
    SoldOut {
        /// The bucket's last step, so that a probe sees whether anything moved.
        seq: u64,
    },
    /// Something is free, but less than wanted.
    NotEnough {
        /// Units free.
        left: u64,
    },
    /// The units are taken.
    Held {
        /// What was taken.
        reservation: Reservation,
        /// Units free afterwards.
        left: u64,
    },
}

/// What [`Stock::begin_load`] answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginLoadOutcome {
    /// The bucket is empty and loading, owned by the token.
    Started,
    /// The bucket is open already; nothing was changed.
    AlreadyOpen,
    /// The bucket is fenced, which is for good: its epoch is over.
    Fenced,
}

/// One page of what a bucket is loaded with. Items come before holds.
#[derive(Clone, Debug)]
pub enum LoadPage {
    /// Items with the units allocated to the bucket.
    Items(Vec<(ItemId, u64)>),
    /// Live orders; each takes its units from what is free.
    Holds(Vec<Reservation>),
    /// Orders that are closed and can never hold again.
    Closed(Vec<OrderId>),
}

/// What [`Stock::load`] answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The page is in, now or since an earlier call.
    Loaded,
    /// Another loader took over, or the bucket is not loading: stop.
    NotLoader,
    /// The page does not fit what is loaded: unknown item, too many units, a page skipped.
    Refused,
}

/// What was read back from a loading bucket; the flip names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadBack {
    /// The bucket's last step.
    pub seq: u64,
    /// Pages loaded.
    pub pages: u32,
}

/// What [`Stock::finish_load`] answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishOutcome {
    /// The bucket is open, now or since an earlier call of this loader.
    Open,
    /// Another loader took over, or the bucket is missing: stop.
    NotLoader,
    /// The contents are not what was read back: read again.
    Changed,
}

/// What [`Stock::release`] answered for one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The hold is gone and its units are free.
    Released,
    /// There was no hold under this order id; it can never hold again.
    NotHeld,
    /// The bucket is missing, loading or fenced: keep the release row and try later.
    NotNow,
}

/// What [`Stock::adjust`] answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdjustOutcome {
    /// Free and allocated units moved by the difference, now or by an earlier call of this operation.
    Applied,
    /// Fewer units are free than shall be taken away.
    NotEnough {
        /// Units free.
        left: u64,
    },
    /// The bucket is missing, loading or fenced, or has no such item.
    NotNow,
}

/// One item's figures in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ItemLevel {
    /// The item.
    pub item: ItemId,
    /// Units nobody holds.
    pub free: u64,
    /// Units allocated to the bucket.
    pub allocated: u64,
}

/// One bucket's figures, read in one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Level {
    /// Whether it still loads.
    pub loading: bool,
    /// Whether it is fenced.
    pub fenced: bool,
    /// The terms it sells by.
    pub terms: Terms,
    /// The last step that moved units.
    pub seq: u64,
    /// Pages loaded.
    pub pages: u32,
    /// The stock's clock.
    pub now: Timestamp,
    /// Users' holds.
    pub holds: u64,
    /// Outbox entries.
    pub unconfirmed: u64,
    /// When the oldest outbox entry was reserved.
    pub oldest_unconfirmed: Option<Timestamp>,
    /// The items, by id.
    pub items: Vec<ItemLevel>,
}

/// One page of [`Stock::holders`].
#[derive(Clone, Debug, Default)]
pub struct HolderPage {
    /// Holds, in no promised order. While the bucket changes, a hold that stood throughout the
    /// listing is listed at least once.
    pub holds: Vec<Reservation>,
    /// Where to go on; `None` after the last page.
    pub next: Option<String>,
}

/// The store of permits. See the module's promises.
///
/// Every method may fail with a [`BackendError`]; after an ambiguous one the caller repeats the
/// same call with the same ids.
#[async_trait]
pub trait Stock: Send + Sync + 'static {
    /// Takes a missing or loading bucket for this loader and empties it.
    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Result<BeginLoadOutcome, BackendError>;

    /// Writes page number `page` (from 0, without gaps) of at most [`PAGE_MAX`] entries.
    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Result<LoadOutcome, BackendError>;

    /// Opens a loaded bucket if it is still what was read back.
    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Result<FinishOutcome, BackendError>;

    /// Stops the bucket for good, creating the mark where it is missing. Its outbox stays readable.
    async fn fence(&self, bucket: BucketId) -> Result<(), BackendError>;

    /// Gives an open bucket these terms; false when it is missing, loading or fenced.
    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Result<bool, BackendError>;

    /// Decides up to [`RESERVE_BATCH_MAX`] requests in one atomic step, in order;
    /// `outcomes[i]` answers `requests[i]`.
    async fn reserve(
        &self,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Result<Vec<ReserveOutcome>, BackendError>;

    /// Drops outbox entries of orders that the ledger has.
    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Result<(), BackendError>;

    /// Ends orders whose terminal ledger row is committed; `outcomes[i]` answers `orders[i]`.
    async fn release(
        &self,
        bucket: BucketId,
        orders: &[(OrderId, UserId)],
    ) -> Result<Vec<ReleaseOutcome>, BackendError>;

    /// Moves an item's free and allocated units by `units`, once per operation id. Whether it was
    /// applied or there was not enough: the first answer stands for good.
    async fn adjust(
        &self,
        bucket: BucketId,
        operation: Uuid,
        item: ItemId,
        units: i64,
    ) -> Result<AdjustOutcome, BackendError>;

    /// Outbox entries reserved before `before` by the stock's clock, oldest first, at most `limit`.
    /// Answers for fenced buckets too.
    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Reservation>, BackendError>;

    /// What one user holds, each with whether it is still in the outbox; `None` when the bucket is
    /// missing or loading.
    async fn holds_of(
        &self,
        bucket: BucketId,
        user: &UserId,
    ) -> Result<Option<Vec<(Reservation, bool)>>, BackendError>;

    /// Every hold, page by page. Answers for loading buckets too, for the read-back.
    async fn holders(
        &self,
        bucket: BucketId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<HolderPage, BackendError>;

    /// The bucket's figures; `None` when it is missing.
    async fn level(&self, bucket: BucketId) -> Result<Option<Level>, BackendError>;
}
