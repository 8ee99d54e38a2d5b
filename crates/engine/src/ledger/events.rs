//! What the shop is told of: events, written in the transaction that decides, and their deliveries.
//!
//! Every step of an order is an event already, by the history that is written with it; beside it
//! stands a small list of what happens to a sale. A delivery is one event on its way to one endpoint.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{InvalidValue, ItemId, Order, OrderId, OrderStatus, SaleId};

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// The order is recorded; its buyer may pay.
    OrderPayable,
    /// The order is paid.
    OrderPaid,
    /// The order was not paid in time.
    OrderExpired,
    /// The order was cancelled by its user.
    OrderCancelled,
    /// The order was refused by the ledger.
    OrderRejected,
    /// The order was paid and the money given back.
    OrderRefunded,
    /// The sale may sell from its `opens_at` on; told once, and not again behind a pause.
    SaleOpened,
    /// An item's last unit is in a live order. It may happen again once units have returned.
    SaleSoldOut,
    /// The sale is over.
    SaleClosed,
    /// Units of closed orders are back in the stock and can be bought.
    StockReturned,
}

impl EventType {
    /// Every type.
    pub const ALL: [Self; 10] = [
        Self::OrderPayable,
        Self::OrderPaid,
        Self::OrderExpired,
        Self::OrderCancelled,
        Self::OrderRejected,
        Self::OrderRefunded,
        Self::SaleOpened,
        Self::SaleSoldOut,
        Self::SaleClosed,
        Self::StockReturned,
    ];

    /// The word for it, in SQL, JSON, the configuration and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OrderPayable => "order.payable",
            Self::OrderPaid => "order.paid",
            Self::OrderExpired => "order.expired",
            Self::OrderCancelled => "order.cancelled",
            Self::OrderRejected => "order.rejected",
            Self::OrderRefunded => "order.refunded",
            Self::SaleOpened => "sale.opened",
            Self::SaleSoldOut => "sale.sold_out",
            Self::SaleClosed => "sale.closed",
            Self::StockReturned => "stock.returned",
        }
    }

    /// What the step of an order into `status` is told as.
    pub const fn of_step(status: OrderStatus) -> Self {
        match status {
            OrderStatus::Pending => Self::OrderPayable,
            OrderStatus::Paid => Self::OrderPaid,
            OrderStatus::Expired => Self::OrderExpired,
            OrderStatus::Cancelled => Self::OrderCancelled,
            OrderStatus::Rejected => Self::OrderRejected,
            OrderStatus::Refunded => Self::OrderRefunded,
        }
    }

    /// The id of an order's step into the status of this type. An order takes each step at most once,
    /// so it names the event for ever, also on a ledger that was brought back from a copy.
    pub(super) fn id_of_step(self, order: OrderId) -> String {
        format!("{}_{order}", self.as_str().replace('.', "_"))
    }

    /// The id of number `number` in the list of what happens to sales. The time keeps ids apart that a
    /// ledger which was brought back from a copy gives out again.
    pub(super) fn id_of_number(self, number: i64, at: Timestamp) -> String {
        format!("{}_{number}_{}", self.as_str().replace('.', "_"), at.as_ms())
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EventType {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or(InvalidValue("not a type of events"))
    }
}

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Names it for ever; at most 80 plain characters.
    pub id: String,
    /// What happened.
    pub kind: EventType,
    /// When, by the ledger's clock.
    pub at: Timestamp,
    /// To whom.
    pub about: About,
}

/// What an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    /// An order, with the status that this very step gave it.
    Order(Box<Order>),
    /// A sale, or one of its items.
    Sale {
        /// The sale.
        sale: SaleId,
        /// The item, for [`EventType::SaleSoldOut`] and [`EventType::StockReturned`].
        item: Option<ItemId>,
        /// How many: the item's quantity when it sold out, or what returned.
        units: Option<u64>,
    },
}

/// Where a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryState {
    /// It will be sent, or sent again.
    Waiting,
    /// The endpoint took it.
    Delivered,
    /// It was given up; the staff may replay it.
    Dead,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Waiting, Self::Delivered, Self::Dead];

    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

impl FromStr for DeliveryState {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|it| it.as_str() == text).ok_or(InvalidValue("not a state of deliveries"))
    }
}

/// One event on its way to one endpoint, as the log has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Its number, from 1.
    pub id: i64,
    /// The endpoint's name.
    pub endpoint: String,
    /// The event's id.
    pub event: String,
    /// What happened.
    pub kind: EventType,
    /// The order's id or the sale's number: events of one subject are told one after the other.
    pub subject: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// How often it was sent, also before it was replayed.
    pub attempts: u64,
    /// When it is due, while it waits.
    pub next_at: Timestamp,
    /// When the last attempt ended; `None` before the first.
    pub attempted_at: Option<Timestamp>,
    /// The status of its answer, where there was one.
    pub status: Option<u16>,
    /// What became of it, in words.
    pub answer: Option<String>,
}

/// A delivery that the caller is to send now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueDelivery {
    /// Its number.
    pub id: i64,
    /// Which attempt this is, of all; it names the claim.
    pub attempt: u64,
    /// Which attempt this is since it was planned or replayed, from 1.
    pub tries: u32,
    /// What to tell.
    pub event: Event,
}

/// What became of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempted {
    /// The delivery.
    pub id: i64,
    /// The claim that it was sent under.
    pub attempt: u64,
    /// How it goes on.
    pub then: Then,
    /// The status of the answer, where there was one.
    pub status: Option<u16>,
    /// What became of it, in words; at most 300 bytes are kept.
    pub answer: String,
}

/// How a delivery goes on after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The endpoint took it.
    Delivered,
    /// It is due again after this time.
    Again(Duration),
    /// It is given up.
    Dead,
}

/// Which deliveries a listing has.
#[derive(Clone, Debug, Default)]
pub struct DeliveryFilter {
    /// Of this endpoint.
    pub endpoint: Option<String>,
    /// In this state.
    pub state: Option<DeliveryState>,
    /// About this order or sale.
    pub subject: Option<String>,
}

/// Events for the shop. What every backend promises, each with its test:
///
/// 1. What is decided is told: every step of an order and of a sale is an event of the same
///    transaction, and an endpoint gets one delivery of each: `every_step_is_told_once`,
///    `what_happens_to_a_sale_is_told`. Nothing is told before its commit, and nothing is skipped
///    because it committed late (PostgreSQL's own test: `an_event_that_commits_late_is_not_skipped`).
/// 2. Events of one order are told one after the other: `an_event_waits_for_the_one_before_it`.
/// 3. A delivery is one claimant's while its lease lasts:
///    `a_claim_is_one_keepers_until_its_lease_ends`.
/// 4. A dead delivery stays until it is replayed, under the same id:
///    `a_dead_delivery_is_replayed_under_its_id`.
/// 5. One endpoint's deliveries are none of another's: `an_endpoint_that_fails_stops_no_other`.
/// 6. Every answer is bounded by its caller: `deliveries_come_in_bounded_pages`.
#[async_trait]
pub trait Events: Send + Sync + 'static {
    /// Makes an endpoint known, unless it is. It will be told of what is decided from now on.
    async fn register_endpoint(&self, endpoint: &str) -> Result<(), BackendError>;

    /// Writes deliveries down for what was decided since the last call, at most `limit` events of each
    /// list, those of `types` only; answers how much was done, 0 when there is nothing to do now. An
    /// event whose transaction may still be followed by one with a lower number waits.
    async fn plan_deliveries(
        &self,
        endpoint: &str,
        types: &[EventType],
        limit: usize,
    ) -> Result<u64, BackendError>;

    /// Takes at most `limit` deliveries that are due; nobody else gets them for `lease`. One whose
    /// subject has an earlier delivery that waits is not due.
    async fn claim_deliveries(
        &self,
        endpoint: &str,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<DueDelivery>, BackendError>;

    /// Writes down what became of claimed deliveries. A claim that somebody else has taken over counts
    /// no more.
    async fn note_deliveries(&self, attempted: &[Attempted]) -> Result<(), BackendError>;

    /// Deliveries, newest first, those with numbers below `before`, at most `limit`.
    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<Delivery>, BackendError>;

    /// One delivery with its event.
    async fn delivery(&self, id: i64) -> Result<Option<(Delivery, Event)>, BackendError>;

    /// Makes a delivery due now, whatever its state; the event keeps its id.
    async fn replay_delivery(&self, id: i64) -> Result<Option<Delivery>, BackendError>;

    /// The same for at most `limit` dead deliveries of an endpoint, oldest first; answers how many.
    async fn replay_dead(&self, endpoint: &str, limit: usize) -> Result<u64, BackendError>;

    /// Drops at most `limit` deliveries of an endpoint that ended before `before`.
    async fn forget_deliveries(
        &self,
        endpoint: &str,
        before: Timestamp,
        limit: usize,
    ) -> Result<u64, BackendError>;
}

/// Most bytes of an answer that are kept.
const ANSWER_MAX: usize = 300;

/// An answer as it is kept: without what a database or a terminal chokes on, and not too long.
pub(super) fn kept(answer: &str) -> String {
    let clean = answer.chars().map(|it| if it.is_control() { ' ' } else { it });
    let mut text = String::new();
    for letter in clean {
        if text.len() + letter.len_utf8() > ANSWER_MAX {
            break;
        }
        text.push(letter);
    }
    text
}

/// An event that was read from one of the two lists and is not planned yet.
pub(super) struct Seen {
    pub(super) number: i64,
    pub(super) list: &'static str,
    pub(super) kind: EventType,
    pub(super) subject: String,
    pub(super) id: String,
}

/// The list of every order's steps.
pub(super) const ORDER_LIST: &str = "order";

/// The list of what happens to sales.
pub(super) const SHOP_LIST: &str = "shop";

impl Seen {
    /// A step of an order.
    pub(super) fn step(number: i64, order: OrderId, to: OrderStatus) -> Self {
        let kind = EventType::of_step(to);
        Self { number, list: ORDER_LIST, kind, subject: order.to_string(), id: kind.id_of_step(order) }
    }

    /// Something that happened to a sale.
    pub(super) fn of_sale(number: i64, kind: EventType, sale: SaleId, at: Timestamp) -> Self {
        Self { number, list: SHOP_LIST, kind, subject: sale.to_string(), id: kind.id_of_number(number, at) }
    }
}

/// The event of an order's step, from the order's row as it stands now: the status is the step's.
pub(super) fn event_of_step(order: Order, to: OrderStatus, at: Timestamp) -> Event {
    let kind = EventType::of_step(to);
    let reason = order.reason.filter(|_| to == OrderStatus::Rejected);
    let id = kind.id_of_step(order.reservation.order);
    Event { id, kind, at, about: About::Order(Box::new(Order { status: to, reason, ..order })) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_they_are_written() {
        for kind in EventType::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
        }
        for state in DeliveryState::ALL {
            assert_eq!(state.as_str().parse(), Ok(state));
        }
        assert!("order.payed".parse::<EventType>().is_err());
    }

    #[test]
    fn every_step_is_told_under_a_name_of_its_own() {
        let order: OrderId = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e".parse().unwrap();
        let mut ids: Vec<String> = OrderStatus::ALL.map(|it| EventType::of_step(it).id_of_step(order)).into();
        assert_eq!(ids[1], "order_paid_0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e");
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), OrderStatus::ALL.len());
        let at = |ms| EventType::SaleClosed.id_of_number(7, Timestamp::from_ms(ms));
        assert_ne!(at(1), at(2), "a number that is given out twice");
    }

    #[test]
    fn an_answer_is_kept_without_controls_and_not_too_long() {
        assert_eq!(kept("a\u{1b}[31m\0b"), "a [31m b");
        assert_eq!(kept(&"é".repeat(400)).len(), ANSWER_MAX);
    }
}
