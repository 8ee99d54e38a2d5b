//! The staff's book, counted.

use async_trait::async_trait;

use super::ledger::ObservedLedger;
use crate::fault::BackendError;
use crate::ledger::{ActionAnswer, BeginActionOutcome, Staff, StaffAction, TrailEntry};
use crate::switches::{SwitchChange, TurnedSwitch};

#[async_trait]
impl Staff for ObservedLedger {
    async fn turn_switch(&self, change: &SwitchChange) -> Result<Option<TurnedSwitch>, BackendError> {
        self.seen.call(self.inner.turn_switch(change)).await
    }

    async fn switches(&self) -> Result<Vec<TurnedSwitch>, BackendError> {
        self.seen.call(self.inner.switches()).await
    }

    async fn switch_history(
        &self,
        before: Option<i64>,
        limit: usize,
    ) -> Result<Vec<TurnedSwitch>, BackendError> {
        self.seen.call(self.inner.switch_history(before, limit)).await
    }

    async fn begin_action(&self, action: &StaffAction) -> Result<BeginActionOutcome, BackendError> {
        self.seen.call(self.inner.begin_action(action)).await
    }

    async fn end_action(&self, id: i64, answer: &ActionAnswer) -> Result<(), BackendError> {
        self.seen.call(self.inner.end_action(id, answer)).await
    }

    async fn trail(&self, before: Option<i64>, limit: usize) -> Result<Vec<TrailEntry>, BackendError> {
        self.seen.call(self.inner.trail(before, limit)).await
    }
}
