//! The invariants, by their names in the protocol's section 7, and what must be possible at all.

use stateright::Property;

use crate::model::Protocol;
use crate::scopes::Scope;
use crate::state::{Payment, Phase, State, Status, USERS};
use crate::witness::Invariant;

/// What is checked in a scope.
pub fn of(scope: &Scope) -> Vec<Property<Protocol>> {
    let mut properties = vec![
        Property::always("I1 never oversold", not_oversold),
        Property::always("I2 sold is the sum over live orders", sold_is_counted),
        Property::always("I3 no user is over the limit", users_are_within_the_limit),
        Property::always("I4b no live order after a final no", no_live_order_was_refused),
        Property::always("I5 orders follow the arrows", |_, state| kept(state, Invariant::I5)),
        Property::always("I6 paid stays paid, one outcome per payment", payments_balance),
        Property::always("I7 free and held are what was allocated", buckets_balance),
        Property::always("I9 an order takes units once per epoch", |_, state| kept(state, Invariant::I9)),
        Property::always("I10 units go back after the row", |_, state| kept(state, Invariant::I10)),
        Property::always("I13 the position never goes back", |_, state| kept(state, Invariant::I13)),
        Property::always("I14 sold out only when it was", |_, state| kept(state, Invariant::I14)),
        Property::always("I15 an epoch opens once", |_, state| kept(state, Invariant::I15)),
        Property::always("I16 no old order beside a newer stock", |_, state| kept(state, Invariant::I16)),
        Property::always("I17 the stock is never ahead of the ledger", stock_is_not_ahead),
        Property::always("I18 copies do not pile up", copies_do_not_pile_up),
        Property::always("I4 I6 I8 I12 I17 I18 hold at rest", in_order_at_rest),
        Property::sometimes("an order is recorded", an_order_is_recorded),
    ];
    let possible = [
        (!scope.payments.is_empty(), Property::sometimes("an order is paid", an_order_is_paid)),
        (scope.rebuilds > 0, Property::sometimes("a rebuild completes", a_rebuild_completes)),
        (
            scope.closes() && scope.releasers > 0,
            Property::sometimes("an order is released", an_order_is_released),
        ),
        (
            scope.expires && scope.releasers > 0 && scope.buyers.len() > 1,
            Property::sometimes("a unit is sold again after an expiry", a_unit_is_sold_again),
        ),
    ];
    properties.extend(possible.into_iter().filter(|(here, _)| *here).map(|(_, property)| property));
    properties
}

fn kept(state: &State, invariant: Invariant) -> bool {
    !state.witness.noted(invariant)
}

fn live_units(protocol: &Protocol, state: &State) -> u8 {
    protocol.units_of(state.orders_where(Status::is_live))
}

fn not_oversold(protocol: &Protocol, state: &State) -> bool {
    live_units(protocol, state) <= protocol.scope.quantity
}

fn sold_is_counted(protocol: &Protocol, state: &State) -> bool {
    u8::try_from(state.ledger.sold) == Ok(live_units(protocol, state))
}

fn users_are_within_the_limit(protocol: &Protocol, state: &State) -> bool {
    let mut units = [0; USERS];
    for order in state.orders_where(Status::is_live).each() {
        let buyer = protocol.buyer(order);
        units[usize::from(buyer.user)] += buyer.units;
    }
    let counted = state.ledger.buyers;
    let pairs = units.iter().zip(counted);
    pairs.clone().all(|(units, counted)| u8::try_from(counted) == Ok(*units))
        && units.iter().all(|units| *units <= protocol.scope.limit)
}

/// Neither for a buyer's click, nor for a payment that was given back.
fn no_live_order_was_refused(protocol: &Protocol, state: &State) -> bool {
    let refunded = |payment: u8| state.ledger.payments[usize::from(payment)] == Payment::Refunded;
    let was_refused = |order: u8| state.refused.has(order) || protocol.retake_of(order).is_some_and(refunded);
    !state.orders_where(Status::is_live).each().any(was_refused)
}

/// Every paid order has the one payment that paid it, and every payment that paid has its order.
fn payments_balance(protocol: &Protocol, state: &State) -> bool {
    let mut paid = [0; crate::state::ORDERS];
    for (payment, order) in (0..).zip(protocol.scope.payments) {
        match state.ledger.payments[usize::from(payment)] {
            Payment::PaidOrder => paid[usize::from(*order)] += 1,
            Payment::PaidRetake => paid[usize::from(crate::state::FIRST_RETAKE + payment)] += 1,
            // What is placed anew was closed before: else its buyer has both.
            Payment::Waiting { .. } if state.status(*order).is_live() => return false,
            Payment::Unseen | Payment::Waiting { .. } | Payment::Refunded => {}
        }
    }
    let balanced =
        paid.iter().zip(state.ledger.orders).all(|(paid, status)| *paid == u8::from(status == Status::Paid));
    balanced && kept(state, Invariant::I6)
}

fn buckets_balance(protocol: &Protocol, state: &State) -> bool {
    state.buckets.iter().all(|bucket| {
        let held = protocol.units_of(bucket.holds);
        let outbox_is_held = bucket.outbox.0 & !bucket.holds.0 == 0;
        bucket.free + held == bucket.allocated && outbox_is_held
    })
}

fn stock_is_not_ahead(_: &Protocol, state: &State) -> bool {
    kept(state, Invariant::I17)
}

fn in_order_at_rest(protocol: &Protocol, state: &State) -> bool {
    protocol.broken_at_rest(state).is_empty()
}

/// A sweeper, or a loader in its stead, has at most one copy of an order under way.
fn copies_do_not_pile_up(protocol: &Protocol, state: &State) -> bool {
    let most = usize::from(protocol.scope.sweepers.max(1) + protocol.scope.loaders);
    let unread = &state.queue.records[..usize::from(state.queue.len)];
    let copies = |order| unread.iter().filter(|record| record.swept && record.order == order).count();
    state.budget.duplicates < protocol.scope.faults.duplicates
        || protocol.orders().all(|order| copies(order) <= most)
}

fn an_order_is_recorded(_: &Protocol, state: &State) -> bool {
    state.ledger.orders.contains(&Status::Pending)
}

fn an_order_is_paid(_: &Protocol, state: &State) -> bool {
    state.ledger.orders.contains(&Status::Paid)
}

fn a_rebuild_completes(_: &Protocol, state: &State) -> bool {
    state.ledger.epoch > 0 && state.ledger.fence.is_none() && state.bucket().phase == Phase::Open
}

fn an_order_is_released(_: &Protocol, state: &State) -> bool {
    state.buckets.iter().any(|bucket| bucket.taken.0 & !bucket.holds.0 != 0)
}

fn a_unit_is_sold_again(protocol: &Protocol, state: &State) -> bool {
    let expired = state.orders_where(|status| status == Status::Expired);
    protocol.units_of(expired) + live_units(protocol, state) > protocol.scope.quantity
}
