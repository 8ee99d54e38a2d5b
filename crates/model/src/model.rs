//! The protocol as stateright sees it: first states, steps, properties.

use stateright::{Model, Property};

use crate::actions::Action;
use crate::planted::Planted;
use crate::properties;
use crate::scopes::{Buyer, Scope};
use crate::state::{Bucket, FIRST_RETAKE, Orders, Phase, State};

/// The protocol, in one scope, with at most one planted fault.
#[derive(Clone, Debug)]
pub struct Protocol {
    /// What there is, and what may happen.
    pub scope: Scope,
    /// The fault that is planted.
    pub planted: Option<Planted>,
}

impl Protocol {
    /// The protocol as it should be.
    pub fn sound(scope: Scope) -> Self {
        Self { scope, planted: None }
    }

    /// The protocol with a fault.
    pub fn with(planted: Planted, scope: Scope) -> Self {
        Self { scope, planted: Some(planted) }
    }

    /// Whether this fault is planted.
    pub(crate) fn has(&self, planted: Planted) -> bool {
        self.planted == Some(planted)
    }

    /// User and units of an order. A retake has those of the order that it replaces.
    pub(crate) fn buyer(&self, order: u8) -> Buyer {
        match order.checked_sub(FIRST_RETAKE) {
            None => self.scope.buyers[usize::from(order)],
            Some(payment) => self.scope.buyers[usize::from(self.scope.payments[usize::from(payment)])],
        }
    }

    /// All orders of this scope.
    pub(crate) fn orders(&self) -> impl Iterator<Item = u8> {
        let mut orders = Orders::default();
        for (order, _) in (0..).zip(self.scope.buyers) {
            orders.add(order);
        }
        for (payment, _) in (0..).zip(self.scope.payments) {
            orders.add(FIRST_RETAKE + payment);
        }
        orders.each()
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let quantity = self.scope.quantity;
        let mut state = State { budget: self.scope.faults, ..State::default() };
        state.buckets[0] =
            Bucket { phase: Phase::Open, pages: 2, allocated: quantity, free: quantity, ..Bucket::default() };
        state.witness.opened[0] = 1;
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        self.gateway_actions(state, actions);
        self.recorder_actions(state, actions);
        self.sweeper_actions(state, actions);
        self.closer_actions(state, actions);
        self.payer_actions(state, actions);
        self.releaser_actions(state, actions);
        self.loader_actions(state, actions);
        self.fault_actions(state, actions);
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = *before;
        self.take(&mut state, action);
        (state != *before).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::of(&self.scope)
    }
}

impl Protocol {
    fn take(&self, state: &mut State, action: Action) {
        match action {
            Action::Reserve { order, epoch } => self.reserve(state, order, epoch),
            Action::Repeat { order } => self.repeat(state, order),
            Action::Publish { order, epoch, acknowledged } => {
                self.publish(state, order, epoch, acknowledged);
            }
            Action::Read { recorder } => self.read(state, recorder),
            Action::Commit { recorder } => self.commit(state, recorder),
            Action::DeadLetter { recorder } => self.dead_letter(state, recorder),
            Action::Park { recorder } => self.park(state, recorder),
            Action::Confirm { order, epoch } => self.confirm(state, order, epoch),
            Action::EnsureRelease { order } => self.ensure_release(state, order),
            Action::NoteEnd { sweeper, order } => self.note_end(state, sweeper, order),
            Action::PublishAgain { sweeper, order } => self.publish_again(state, sweeper, order),
            Action::Expire { order } => self.expire(state, order),
            Action::Cancel { order } => self.cancel(state, order),
            Action::Pay { payment, late } => self.pay(state, payment, late),
            Action::Settle { payment } => self.settle(state, payment),
            Action::DecideRefused { payment } => self.decide_refused(state, payment),
            Action::ReadRelease { releaser, order, epoch } => {
                self.read_release(state, releaser, order, epoch);
            }
            Action::Release { releaser } => self.release(state, releaser),
            Action::DeleteRelease { releaser } => self.delete_release(state, releaser),
            Action::Begin { loader } => self.begin(state, loader),
            Action::Load { loader, step } => self.load(state, loader, step),
            Action::PublishOutbox { loader, order, epoch } => {
                self.publish_outbox(state, loader, order, epoch);
            }
            Action::Flush => self.flush(state),
            Action::Save => self.save(state),
            Action::GoBack => self.go_back(state),
            Action::LoseRecord => self.lose_record(state),
            Action::Duplicate => self.duplicate(state),
            Action::GiveUp { order, .. } => self.give_up(state, order),
            Action::ReleaseEarly { order } => self.release_early(state, order),
        }
    }
}
