//! Records that could not be applied, and what becomes of them.

use async_trait::async_trait;

use super::judge::Verdict;
use crate::clock::Timestamp;
use crate::delivery::{Batch, Decoded, Delivered, Position};
use crate::fault::BackendError;
use crate::order::{Order, OrderPlaced, OrderStatus, RejectReason};

/// A parked record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its number, from 1.
    pub id: i64,
    /// Where the record stood; `next` is its own offset.
    pub place: Position,
    /// A message's bytes or, for one that could be read, the order as JSON; empty for a record that
    /// could not be kept.
    pub bytes: Vec<u8>,
    /// What was wrong with it.
    pub why: String,
    /// When it was parked.
    pub parked_at: Timestamp,
    /// How it was closed; `None` while it waits for somebody.
    pub closing: Option<DeadLetterClosing>,
}

/// How a dead letter was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterClosing {
    /// When.
    pub at: Timestamp,
    /// `replayed` or `dropped`.
    pub how: String,
    /// Who did it, in the staff's own words.
    pub by: String,
    /// Why, in the staff's own words; what a replay did is written by the ledger.
    pub reason: String,
}

/// What [`DeadLetters::replay_dead_letter`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplayOutcome {
    /// The order has its row now, by the ordinary rules PENDING or REJECTED; the letter is closed.
    Recorded(Order),
    /// The order had its row before, through another copy of the record; the letter is closed.
    Known(Order),
    /// The order was refused when its record was parked, and its units went back: a terminal row is
    /// final. The letter stays, to be dropped.
    Final(Order),
    /// It still cannot be applied, and why. The letter stays.
    StillDead(String),
    /// It was closed before.
    ClosedBefore(DeadLetter),
    /// There is no such letter.
    NoLetter,
}

/// What [`DeadLetters::drop_dead_letter`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DropOutcome {
    /// It is closed now; the row stays, with who and why.
    Dropped(DeadLetter),
    /// It was closed before.
    ClosedBefore(DeadLetter),
    /// There is no such letter.
    NoLetter,
}

/// Records that could not be applied.
#[async_trait]
pub trait DeadLetters: Send + Sync + 'static {
    /// Letters by number, from behind `after`, at most `limit`; closed ones only if `closed`.
    async fn dead_letters(
        &self,
        after: Option<i64>,
        limit: usize,
        closed: bool,
    ) -> Result<Vec<DeadLetter>, BackendError>;

    /// One letter.
    async fn dead_letter(&self, id: i64) -> Result<Option<DeadLetter>, BackendError>;

    /// Applies the `order` that an open letter's bytes say, by the ordinary rules and as if it
    /// arrived now, and closes the letter in the same transaction.
    async fn replay_dead_letter(
        &self,
        id: i64,
        order: &OrderPlaced,
        by: &str,
    ) -> Result<ReplayOutcome, BackendError>;

    /// Closes an open letter without applying it.
    async fn drop_dead_letter(&self, id: i64, by: &str, reason: &str) -> Result<DropOutcome, BackendError>;
}

/// The word for a letter whose record was applied after all.
pub(super) const REPLAYED: &str = "replayed";

/// The word for a letter that was given up.
pub(super) const DROPPED: &str = "dropped";

/// The record as it is judged again. It arrives now, behind every barrier: where it once stood, a
/// stock may have been loaded without it since.
pub(super) fn again(place: &Position, order: &OrderPlaced, now: Timestamp) -> Batch {
    let contents = Decoded::Order(Box::new(order.clone()));
    let record = Delivered { offset: u64::MAX, appended_at: now, contents };
    Batch { from: place.clone(), next: place.next, records: vec![record] }
}

/// What is to be done with a record that was judged again.
pub(super) enum Replay {
    /// A new row.
    Write(Verdict),
    /// Nothing: this row is there.
    Known(Order),
    /// Nothing, and why; the letter stays.
    Stays(ReplayOutcome),
}

/// Reads the verdict of a record that was judged again; `known` is the row of its order.
pub(super) fn replay(verdict: Verdict, known: Option<Order>) -> Replay {
    match (verdict, known) {
        (Verdict::Dead { why }, _) => Replay::Stays(ReplayOutcome::StillDead(why)),
        (Verdict::Known { .. }, Some(order)) => {
            let refused =
                order.status == OrderStatus::Rejected && order.reason == Some(RejectReason::Unreadable);
            if refused { Replay::Stays(ReplayOutcome::Final(order)) } else { Replay::Known(order) }
        }
        (verdict, _) => Replay::Write(verdict),
    }
}

/// What the ledger writes as the reason of a replay.
pub(super) fn replay_reason(order: &Order) -> String {
    match order.reason {
        Some(reason) => format!("{} ({})", order.status, reason.as_str()),
        None => order.status.to_string(),
    }
}
