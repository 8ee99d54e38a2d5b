//! What a ledger decides about sales, payments, cancellations and restocks: pure, the same for
//! every backend, which loads the rows under its locks and writes what these answer.

use std::ops::ControlFlow;
use std::time::Duration;

use super::{
    CancelOutcome, ChangeOutcome, EventType, LoadSnapshot, PayOutcome, PaymentEvent, RestockOutcome,
    RestockState,
};
use crate::clock::Timestamp;
use crate::delivery::Decoded;
use crate::order::{ItemId, Money, Order, OrderPlaced, OrderStatus, RejectReason};
use crate::sale::{Fence, LoaderToken, Sale, SaleState};

/// Most units of one item.
const QUANTITY_MAX: u64 = 1_000_000_000;

/// Who cancels within this time of the reservation holds nobody up.
pub(super) const CANCEL_GRACE: Duration = Duration::from_secs(60);

/// Whether closing a live order counts against its user: it held units, and nobody paid for them.
pub(super) fn is_strike(order: &Order, to: OrderStatus, now: Timestamp) -> bool {
    let late = now > order.reservation.reserved_at.plus(CANCEL_GRACE);
    order.status == OrderStatus::Pending
        && (to == OrderStatus::Expired || to == OrderStatus::Cancelled && late)
}

/// A new row, whatever its status.
pub(super) fn row(
    placed: &OrderPlaced,
    status: OrderStatus,
    reason: Option<RejectReason>,
    total: Money,
    expires_at: Timestamp,
) -> Order {
    let reservation = placed.reservation.clone();
    Order { reservation, total, status, reason, expires_at, hold_until: expires_at }
}

/// A row that never was live: refused by the ledger, or cancelled before it was recorded.
pub(super) fn stillborn(
    placed: &OrderPlaced,
    status: OrderStatus,
    reason: Option<RejectReason>,
    now: Timestamp,
) -> Order {
    let mut order = row(placed, status, reason, placed.price.times(placed.reservation.units), now);
    if reason == Some(RejectReason::Unreadable) {
        // Free text may be the very thing that a database refuses; the dead letter has it.
        order.reservation.trace = None;
    }
    order
}

/// What is kept of a record that cannot be applied.
pub(super) fn parked_bytes(contents: &Decoded) -> Vec<u8> {
    match contents {
        Decoded::Order(order) | Decoded::Refused { order, .. } => {
            serde_json::to_vec(order.as_ref()).unwrap_or_default()
        }
        Decoded::Unreadable { bytes, .. } => bytes.clone(),
        Decoded::UnknownVersion(_) => Vec::new(),
    }
}

/// When the sale opens once its state is `to`; or the answer, when nothing is to be written.
pub(super) fn change_state(
    sale: Sale,
    to: SaleState,
    opens_at: Option<Timestamp>,
    now: Timestamp,
) -> ControlFlow<ChangeOutcome, Timestamp> {
    let begins_earlier = opens_at.is_some_and(|at| at < sale.terms.opens_at);
    if sale.terms.state == to && !begins_earlier {
        return ControlFlow::Break(ChangeOutcome::Done(sale));
    }
    let over = to == SaleState::Open && now >= sale.terms.closes_at;
    if sale.terms.state != to && !sale.terms.state.may_become(to) || over {
        return ControlFlow::Break(ChangeOutcome::NotFrom(sale.terms.state));
    }
    ControlFlow::Continue(opens_at.map_or(sale.terms.opens_at, |at| sale.terms.opens_at.min(at)))
}

/// What the shop is told when a sale goes from one state to another.
pub(super) fn told_of_state(from: SaleState, to: SaleState) -> Option<EventType> {
    match (from, to) {
        // Opening it again behind a pause is no news to the shop, nor is an earlier beginning.
        (SaleState::Preheated, SaleState::Open) => Some(EventType::SaleOpened),
        (SaleState::Closed, _) => None,
        (_, SaleState::Closed) => Some(EventType::SaleClosed),
        _ => None,
    }
}

/// Whether the loader of `mine` may work on behind a standing `fence`.
pub(super) fn may_take_over(fence: &Fence, mine: &Fence, lease: Duration) -> bool {
    let free = fence.token == mine.token || fence.token == LoaderToken::NOBODY;
    free || mine.since.since(fence.since) >= lease
}

/// A page of what a stock is loaded from, of the `orders` read for at most `limit` rows.
pub(super) fn load_page(orders: Vec<Order>, limit: usize) -> LoadSnapshot {
    let mut page = LoadSnapshot::default();
    if orders.len() == limit {
        page.next = orders.last().map(|order| order.reservation.order);
    }
    for order in orders {
        match order.status {
            OrderStatus::Pending | OrderStatus::Paid => page.live.push(order.reservation),
            OrderStatus::Expired | OrderStatus::Cancelled | OrderStatus::Rejected | OrderStatus::Refunded => {
                page.closed.push(order.reservation.order);
            }
        }
    }
    page
}

/// What a cancellation answers for an order that is not PENDING; else the order, to be closed.
pub(super) fn cancel(order: Order) -> ControlFlow<CancelOutcome, Order> {
    match order.status {
        OrderStatus::Cancelled => ControlFlow::Break(CancelOutcome::Cancelled(order)),
        OrderStatus::Paid => ControlFlow::Break(CancelOutcome::Paid(order)),
        OrderStatus::Expired | OrderStatus::Rejected | OrderStatus::Refunded => {
            ControlFlow::Break(CancelOutcome::Closed(order))
        }
        OrderStatus::Pending => ControlFlow::Continue(order),
    }
}

/// What becomes of a payment that has no outcome yet. `rival`: another payment of this order waits to
/// buy again, or has.
pub(super) fn pay(event: &PaymentEvent, order: Option<&Order>, rival: bool, now: Timestamp) -> PayOutcome {
    match order {
        None => PayOutcome::NoOrder,
        Some(order) if (order.total.minor, order.total.currency) != (event.amount_minor, event.currency) => {
            PayOutcome::AmountMismatch
        }
        Some(order) if order.status == OrderStatus::Pending && now <= order.hold_until => PayOutcome::Paid,
        Some(order) if matches!(order.status, OrderStatus::Pending | OrderStatus::Expired) && !rival => {
            PayOutcome::Late
        }
        Some(_) => PayOutcome::RefundDue,
    }
}

/// Whether an order's time to be paid is over and nobody has closed it yet.
pub(super) fn is_due(order: &Order, now: Timestamp) -> bool {
    order.status == OrderStatus::Pending && order.hold_until < now
}

/// Until when an order that is due is held, for `hold` behind its deadline: once, and only while
/// somebody is paying.
pub(super) fn held_until(order: &Order, paying: bool, hold: Duration, now: Timestamp) -> Option<Timestamp> {
    let until = order.expires_at.plus(hold);
    (paying && order.hold_until <= order.expires_at && until > now).then_some(until)
}

/// Why a restock cannot begin in this sale.
pub(super) fn restock_refused(sale: &Sale, item: ItemId, units: i64) -> Option<RestockOutcome> {
    let Some(before) = sale.item(item) else { return Some(RestockOutcome::NoItem) };
    if sale.fence.is_some() || matches!(sale.terms.state, SaleState::Draft | SaleState::Closed) {
        return Some(RestockOutcome::NotNow);
    }
    let out_of_range = before.quantity.checked_add_signed(units).is_none_or(|after| after > QUANTITY_MAX);
    out_of_range.then_some(RestockOutcome::OutOfRange)
}

/// The word for where a restock stands.
pub(super) const fn restock_word(state: RestockState) -> &'static str {
    match state {
        RestockState::Open => "open",
        RestockState::Done => "done",
        RestockState::Cancelled => "cancelled",
    }
}

/// Where a restock stands, by its word.
pub(super) fn restock_state(word: &str) -> RestockState {
    [RestockState::Open, RestockState::Done]
        .into_iter()
        .find(|state| restock_word(*state) == word)
        .unwrap_or(RestockState::Cancelled)
}
