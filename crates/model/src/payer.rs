//! Payments: decided once each, under the lock of their row. One that comes late places a new order,
//! and waits for it.

use crate::actions::Action;
use crate::model::Protocol;
use crate::planted::Planted;
use crate::state::{Calls, FIRST_RETAKE, Payment, State, Status};

impl Protocol {
    pub(crate) fn payer_actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (payment, order) in (0..).zip(self.scope.payments) {
            let seen = state.ledger.payments[usize::from(payment)];
            let known = state.status(*order) != Status::Unknown;
            let decidable = seen == Payment::Unseen || self.has(Planted::PaymentsByEventOnly);
            if known && decidable {
                actions.push(Action::Pay { payment, late: false });
                actions.push(Action::Pay { payment, late: true });
            }
            if let Payment::Waiting { refused } = seen {
                if state.status(FIRST_RETAKE + payment) != Status::Unknown {
                    actions.push(Action::Settle { payment });
                }
                if refused {
                    actions.push(Action::DecideRefused { payment });
                }
            }
        }
    }

    pub(crate) fn pay(&self, state: &mut State, payment: u8, late: bool) {
        let order = self.scope.payments[usize::from(payment)];
        let outcome = match state.status(order) {
            Status::Pending if !late => {
                self.set_status(state, order, Status::Paid);
                Payment::PaidOrder
            }
            Status::Pending => {
                if !self.has(Planted::LatePaymentLeavesPending) {
                    self.expire(state, order);
                }
                Payment::Waiting { refused: false }
            }
            Status::Expired => Payment::Waiting { refused: false },
            Status::Unknown | Status::Paid | Status::Cancelled | Status::Rejected | Status::Unreadable => {
                Payment::Refunded
            }
        };
        state.ledger.payments[usize::from(payment)] = outcome;
        if matches!(outcome, Payment::Waiting { .. }) {
            if self.has(Planted::RetakeWithSameId) && state.bucket().holds.has(order) {
                self.set_status(state, order, Status::Paid);
                state.ledger.payments[usize::from(payment)] = Payment::PaidOrder;
                return;
            }
            // The payer repeats the call until it is answered.
            state.calls[usize::from(FIRST_RETAKE + payment)] = Calls::Many;
        }
    }

    /// A worker settles a waiting payment by the row of its new order.
    pub(crate) fn settle(&self, state: &mut State, payment: u8) {
        let order = FIRST_RETAKE + payment;
        let outcome = match state.status(order) {
            Status::Pending => {
                self.set_status(state, order, Status::Paid);
                Payment::PaidRetake
            }
            Status::Unknown => return,
            Status::Paid | Status::Expired | Status::Cancelled | Status::Rejected | Status::Unreadable => {
                Payment::Refunded
            }
        };
        state.ledger.payments[usize::from(payment)] = outcome;
    }

    /// A payment whose new order the stock has refused: the order's row decides, and is written
    /// where there is none, so that no late copy of the call can make it live.
    pub(crate) fn decide_refused(&self, state: &mut State, payment: u8) {
        let order = FIRST_RETAKE + payment;
        if self.has(Planted::RefundWithoutRow) {
            state.ledger.payments[usize::from(payment)] = Payment::Refunded;
            return;
        }
        self.close_unknown(state, order, Status::Rejected);
        self.settle(state, payment);
    }

    /// The recorder marks a new order as paid while its payment still waits.
    pub(crate) fn settle_recorded(&self, state: &mut State, order: u8) {
        if let Some(payment) = self.retake_of(order)
            && matches!(state.ledger.payments[usize::from(payment)], Payment::Waiting { .. })
        {
            self.settle(state, payment);
        }
    }

    /// The payment that places this order, if it is such a one.
    pub(crate) fn retake_of(&self, order: u8) -> Option<u8> {
        order.checked_sub(FIRST_RETAKE)
    }
}
