//! The ledger: the only place that decides. Every final word about an order is one committed row.
//!
//! The rules that decide are pure functions in [`judge`]; a backend loads the facts under its
//! locks, asks them, and writes what they say in the same transaction. What every backend
//! promises, each with its test in [`conformance::ledger`](crate::conformance::ledger):
//!
//! 1. An order id has at most one row, whatever is delivered how often: `a_record_applied_twice_counts_once`.
//! 2. Positions move with the orders, by compare-and-set: `a_zombie_recorder_is_refused`.
//! 3. Never more live units than the quantity, never more per user than the limit, whatever the
//!    stock said: `the_ledger_refuses_what_the_stock_should_have`.
//! 4. Units return only with a release row of the same transaction: `an_expired_order_leaves_a_release_row`,
//!    `a_cancelled_order_leaves_a_release_row`.
//! 5. Terminal states are final: `terminal_states_are_final`.
//! 6. The deadline decides, not the sweeper: `a_payment_after_the_deadline_is_not_taken`.
//! 7. A payment is applied once, by payment id and by event id: `a_payment_counts_once`.
//! 8. A rebuild has one epoch and one owner, its barriers are stored once: `a_rebuild_is_taken_over_not_begun_twice`,
//!    `a_barrier_is_stored_once`.
//! 9. A record from before an epoch's barrier is taken, one from behind it is refused as stale:
//!    `a_record_behind_the_barrier_is_stale`.
//! 10. A cancelled queued order makes its late message a no-op: `a_queued_order_can_be_cancelled`.
//! 11. A restock counts once per operation: `a_restock_counts_once`.
//! 12. A dead letter is applied by the ordinary rules or closed with a name, once:
//!     `a_replayed_letter_is_applied_by_the_ordinary_rules`, `a_dropped_letter_keeps_who_and_why`; what was
//!     refused for good stays refused: `a_refused_order_is_not_brought_back_by_its_letter`.
//! 13. A payment attempt begins only while its order is payable, and stays that order's for ever:
//!     `an_attempt_begins_only_while_its_order_is_payable`, `an_attempt_is_one_orders_for_ever`.
//! 14. A provider's event counts only with an attempt of ours, and is kept in any case:
//!     `an_event_counts_only_with_its_attempt`, `an_event_that_contradicts_is_kept_and_changes_nothing`;
//!     what the provider gave back is refunded here too: `money_that_came_back_by_itself_refunds_its_order`.
//! 15. A late payment buys again or is given back, once: `a_late_payment_is_settled_by_its_retake`,
//!     `a_refused_retake_gives_the_money_back`.
//! 16. Money is given back at most once, and never forgotten: `a_refund_stays_due_until_it_is_done`,
//!     `a_refunded_order_gives_its_units_back`.
//! 17. An order whose buyer is paying is held once behind its deadline: `an_open_attempt_holds_its_order_once`.
//! 18. The payments of a sale are listed page by page: `each_payment_of_a_sale_is_listed_once`.
//! 19. Who holds units and does not pay gets a strike: `holding_without_paying_is_a_strike`.
//! 20. Of each switch the newest turn stands, and every turn is kept: `the_newest_turn_of_a_switch_stands`.
//! 21. What the staff does is written down before it is done: `an_action_is_in_the_trail_before_it_has_ended`.
//! 22. A key of a member of the staff is one request's, which is begun once: `a_key_begins_one_action_once`.
//! 23. Who is blocked stays so until that is lifted, and every change is told in its order, also to who reads from the
//!     start: `a_block_stands_until_it_is_lifted`; never too many stand: `blocks_are_added_all_or_none`.
//!
//! What the shop is told of has its own promises, in [`Events`].

mod attempts;
mod blocks;
mod dead_letters;
mod events;
pub mod judge;
mod payment_row;
#[cfg(feature = "distributed")]
mod postgres;
mod restocks;
mod rules;
mod settlement;
mod sqlite;
mod staff;

pub use attempts::{
    Attempts, BeginOutcome, PaymentAttempt, PaymentAttemptId, PaymentEventKind, PaymentEvidence,
    ProviderEvent, ReceiveOutcome,
};
pub use blocks::{BlockChanges, BlockFilter, BlockOutcome, Blocks};
pub use dead_letters::{DeadLetter, DeadLetterClosing, DeadLetters, DropOutcome, ReplayOutcome};
pub use events::{
    About, Attempted, Delivery, DeliveryFilter, DeliveryState, DueDelivery, Event, EventType, Events, Then,
};
pub use payment_row::PaymentRow;
#[cfg(feature = "distributed")]
pub use postgres::{
    MigrationState, MigrationStatus, PostgresError, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl,
};
pub use restocks::{RestockIntent, RestockOutcome, RestockState, Restocks};
pub use settlement::{
    Aftermath, LatePayment, LateVerdict, PaymentKey, Refund, RefundOutcome, RefundReport, RefundState,
    SettleOutcome, Settlement,
};
pub use sqlite::{SqliteError, SqliteLedger};
pub use staff::{ActionAnswer, ActionKey, BeginActionOutcome, Staff, StaffAction, TrailEntry};

use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::delivery::{Batch, Position};
use crate::fault::BackendError;
use crate::order::{Currency, Epoch, Order, OrderId, OrderPlaced, OrderStatus, Reservation, SaleId, UserId};
use crate::sale::{Fence, LoaderToken, NewSale, Sale, SaleState};

/// The whole ledger: one object behind the small traits.
pub trait Ledger:
    Sales
    + Restocks
    + Orders
    + Payments
    + Attempts
    + Settlement
    + Releases
    + Positions
    + DeadLetters
    + Events
    + Staff
    + Blocks
    + Books
{
}

impl<
    T: Sales
        + Restocks
        + Orders
        + Payments
        + Attempts
        + Settlement
        + Releases
        + Positions
        + DeadLetters
        + Events
        + Staff
        + Blocks
        + Books,
> Ledger for T
{
}

/// What [`Sales::change_state`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The sale is in the wanted state, now or before.
    Done(Sale),
    /// The sale's present state does not allow it.
    NotFrom(SaleState),
    /// There is no such sale.
    NoSale,
}

/// What [`Sales::begin_rebuild`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RebuildOutcome {
    /// The caller owns the rebuild of this sale; its epoch and fence are in it.
    Owned(Sale),
    /// Another loader took the rebuild over a short while ago.
    OwnedByOther(Fence),
    /// The sale's epoch is no longer the one named: somebody rebuilt it meanwhile.
    Overtaken,
    /// There is no such sale.
    NoSale,
}

/// One page of what a bucket is loaded from. All pages of one rebuild are read while nothing is in
/// flight, so they are one state.
#[derive(Clone, Debug, Default)]
pub struct LoadSnapshot {
    /// Live orders, by id.
    pub live: Vec<Reservation>,
    /// Orders that are closed, by id.
    pub closed: Vec<OrderId>,
    /// Where to go on; `None` after the last page.
    pub next: Option<OrderId>,
}

/// Sales: their states, fences and epochs.
#[async_trait]
pub trait Sales: Send + Sync + 'static {
    /// Writes a new sale down as a draft.
    async fn create_sale(&self, sale: &NewSale) -> Result<Sale, BackendError>;

    /// Every sale, by id.
    async fn sales(&self) -> Result<Vec<Sale>, BackendError>;

    /// One sale.
    async fn sale(&self, id: SaleId) -> Result<Option<Sale>, BackendError>;

    /// Moves a sale to `to`. With `opens_at`, a window that begins later begins then.
    async fn change_state(
        &self,
        id: SaleId,
        to: SaleState,
        opens_at: Option<Timestamp>,
    ) -> Result<ChangeOutcome, BackendError>;

    /// Takes over the rebuild whose fence stands, if it is the caller's own or nobody's, or its
    /// owner has not been heard of for `lease`. Where none stands and the epoch is still `from`, begins one in
    /// the next epoch behind a new fence.
    async fn begin_rebuild(
        &self,
        id: SaleId,
        from: Epoch,
        reason: &str,
        token: LoaderToken,
        lease: Duration,
    ) -> Result<RebuildOutcome, BackendError>;

    /// Stores the barriers of an epoch unless they are stored; answers the stored ones. A barrier
    /// is at least the recorder's position; one that was stored is only ever lowered, to an end that
    /// the queue has lost. `None` when the rebuild has another owner.
    async fn put_barriers(
        &self,
        id: SaleId,
        token: LoaderToken,
        ends: &[Position],
    ) -> Result<Option<Vec<Position>>, BackendError>;

    /// One page of the orders to load, at most `limit` rows; its owner is heard of by this. `None` when the rebuild has another
    /// owner.
    async fn load_snapshot(
        &self,
        id: SaleId,
        token: LoaderToken,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Option<LoadSnapshot>, BackendError>;

    /// Lifts the fence; a draft becomes preheated. False when the rebuild has another owner.
    async fn finish_rebuild(&self, id: SaleId, token: LoaderToken) -> Result<bool, BackendError>;
}

/// What became of a batch of records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Applied, with the position moved behind it.
    Recorded(Recorded),
    /// The position is not where the batch was read from: another recorder was faster. Read it
    /// again and go on there.
    Zombie,
}

/// What applying a batch did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Rows written PENDING.
    pub pending: u64,
    /// Records that were known.
    pub known: u64,
    /// Rows written REJECTED.
    pub rejected: u64,
    /// Records parked as dead letters.
    pub dead: u64,
    /// Orders in the batch that are live now, by bucket: their outbox entries may go.
    pub live: Vec<(SaleId, Epoch, OrderId)>,
    /// Sales whose stock of this epoch was proved to be ahead of the ledger: fence and rebuild them.
    pub ahead: Vec<(SaleId, Epoch)>,
}

/// What [`Orders::expire`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expired {
    /// Orders closed.
    pub closed: u64,
    /// Orders held until their provider has been asked.
    pub held: u64,
    /// As many were due as are taken at once, so there may be more.
    pub more: bool,
}

/// What [`Orders::cancel`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CancelOutcome {
    /// Cancelled, now or before.
    Cancelled(Order),
    /// Paid already.
    Paid(Order),
    /// Closed in another way.
    Closed(Order),
    /// The ledger does not know it, and no hold was named that it could be written from.
    Unknown,
}

/// Orders.
#[async_trait]
pub trait Orders: Send + Sync + 'static {
    /// Applies a batch of one partition and moves its position, in one transaction.
    async fn record(&self, batch: &Batch) -> Result<RecordOutcome, BackendError>;

    /// Closes at most `limit` orders whose deadline is over. One with an open attempt to pay is held
    /// for `hold` behind its deadline, once, so that its provider can be asked.
    async fn expire(&self, limit: usize, hold: Duration) -> Result<Expired, BackendError>;

    /// Cancels a user's order. `queued` is what the stock holds under this id, for an order that
    /// the ledger does not know yet.
    async fn cancel(
        &self,
        id: OrderId,
        user: &UserId,
        queued: Option<&OrderPlaced>,
    ) -> Result<CancelOutcome, BackendError>;

    /// One order.
    async fn order(&self, id: OrderId) -> Result<Option<Order>, BackendError>;

    /// Users with at least so many strikes in one sale: orders that expired, or were cancelled more than a minute
    /// after they were reserved, and that nobody paid, not even too late.
    async fn struck(&self, sale: SaleId, strikes: u32) -> Result<Vec<UserId>, BackendError>;

    /// One user's orders in one sale, newest first, at most `limit`.
    async fn orders_of(&self, sale: SaleId, user: &UserId, limit: usize) -> Result<Vec<Order>, BackendError>;

    /// A sale's orders by id, from behind `after`, at most `limit`.
    async fn orders(
        &self,
        sale: SaleId,
        after: Option<OrderId>,
        limit: usize,
    ) -> Result<Vec<Order>, BackendError>;

    /// Each id with its order's status, `None` where the ledger does not know it.
    async fn statuses(&self, ids: &[OrderId]) -> Result<Vec<Option<OrderStatus>>, BackendError>;
}

/// A payment event that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaymentEvent {
    /// Who says so, such as `manual`.
    pub provider: String,
    /// Names the event at the provider.
    pub event_id: String,
    /// Names the payment at the provider.
    pub payment_id: String,
    /// The order it is for.
    pub order: OrderId,
    /// What was paid, in minor units.
    pub amount_minor: i64,
    /// In which currency.
    pub currency: Currency,
}

/// What became of a payment event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayOutcome {
    /// The order is paid by it.
    Paid,
    /// The event or the payment was decided before; nothing changed.
    Duplicate,
    /// The order has expired: the payment waits until it is bought again, or the money is given back.
    Late,
    /// The order cannot take it: the money is to be given back.
    RefundDue,
    /// The provider has given the money back already; the order stays as it was.
    Refunded,
    /// Amount or currency are not the order's; stored, nothing else.
    AmountMismatch,
    /// The ledger does not know the order; stored for later.
    NoOrder,
}

impl PayOutcome {
    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Paid => "PAID",
            Self::Duplicate => "DUPLICATE",
            Self::Late => "LATE",
            Self::RefundDue => "REFUND_DUE",
            Self::Refunded => "REFUNDED",
            Self::AmountMismatch => "AMOUNT_MISMATCH",
            Self::NoOrder => "NO_ORDER",
        }
    }
}

/// Payments.
#[async_trait]
pub trait Payments: Send + Sync + 'static {
    /// Stores an event and decides it in one transaction.
    async fn pay(&self, event: &PaymentEvent) -> Result<PayOutcome, BackendError>;
}

/// One order whose units the stock must get back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRow {
    /// The order.
    pub order: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// Its user.
    pub user: UserId,
    /// The sale's epoch, read in the same statement.
    pub epoch: Epoch,
}

/// Units on their way back to the stock.
#[async_trait]
pub trait Releases: Send + Sync + 'static {
    /// At most `limit` rows whose moment has come, oldest first, leaving out those of `skip`. A moment that
    /// lies further ahead than any is set was set by a clock that has gone back: it has come.
    async fn releases_due(&self, skip: &[SaleId], limit: usize) -> Result<Vec<ReleaseRow>, BackendError>;

    /// At most `limit` orders whose units are on their way, whether their moment has come or not.
    async fn releases_waiting(&self, limit: usize) -> Result<Vec<OrderId>, BackendError>;

    /// Drops the rows of these orders.
    async fn releases_done(&self, orders: &[OrderId]) -> Result<(), BackendError>;

    /// Makes sure that these orders have a release row if they are terminal.
    async fn ensure_releases(&self, orders: &[OrderId]) -> Result<(), BackendError>;
}

/// How far the queue is recorded.
#[async_trait]
pub trait Positions: Send + Sync + 'static {
    /// Makes a row at 0 for each partition that has none.
    async fn register(&self, partitions: &[Position]) -> Result<(), BackendError>;

    /// Takes a position back to the queue's end, which lies below it: the records between are lost.
    /// False when `from` is not the position any more.
    async fn cut_back(&self, from: &Position, end: u64) -> Result<bool, BackendError>;

    /// The stored positions.
    async fn positions(&self) -> Result<Vec<Position>, BackendError>;
}

/// The books as the auditor reads them, all in one state.
#[async_trait]
pub trait Books: Send + Sync + 'static {
    /// Everything that the invariants are about. Its size is that of the sales' orders (about
    /// 300 bytes each).
    async fn books(&self) -> Result<BookSnapshot, BackendError>;

    /// A sale's payments by provider and id, from behind `after`, at most `limit`.
    async fn payments(
        &self,
        sale: SaleId,
        after: Option<&PaymentKey>,
        limit: usize,
    ) -> Result<Vec<PaymentRow>, BackendError>;

    /// What waits in the ledger for a worker or for the staff.
    async fn backlog(&self) -> Result<Backlog, BackendError>;
}

/// What waits in the ledger.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    /// Closed orders whose units are not back in the stock.
    pub release_rows: u64,
    /// Dead letters that nobody has replayed or dropped.
    pub open_dead_letters: u64,
    /// Payments that came too late and wait to buy again.
    pub late_payments: u64,
    /// Money that a provider, or the staff, has still to give back.
    pub refunds_due: u64,
    /// Money that a provider refuses to give back.
    pub refunds_refused: u64,
    /// Deliveries of events that are still to be sent.
    pub waiting_deliveries: u64,
    /// Deliveries of events that were given up.
    pub dead_deliveries: u64,
}

/// One state of the whole ledger.
#[derive(Clone, Debug, Default)]
pub struct BookSnapshot {
    /// The sales.
    pub sales: Vec<Sale>,
    /// Every order.
    pub orders: Vec<Order>,
    /// Units per sale and user.
    pub buyers: Vec<(SaleId, UserId, i64)>,
    /// Every step of every order, in the order they were made: from, to.
    pub steps: Vec<(OrderId, Option<OrderStatus>, OrderStatus)>,
    /// Every payment with its order, its outcome and its amount.
    pub payments: Vec<PaymentRow>,
    /// Orders with a release row.
    pub releases: Vec<OrderId>,
    /// The stored positions.
    pub positions: Vec<Position>,
    /// Barriers by sale and the epoch they begin.
    pub barriers: Vec<(SaleId, Epoch, Position)>,
    /// Offsets at which each order was recorded, for orders that came through the queue.
    pub recorded_at: Vec<(OrderId, u32, u64)>,
    /// Restocks that are not finished.
    pub open_restocks: u64,
}
