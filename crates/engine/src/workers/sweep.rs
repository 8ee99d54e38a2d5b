//! Sweep: what is reserved and not known to be recorded is settled against the ledger.
//!
//! The sweeper publishes again, for ever; it never gives an order up. Only an order whose message
//! is surely not in the queue any more is published again: republishing on age alone buries a
//! recorder that paused for seconds under copies.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Step, Worker};
use crate::clock::Timestamp;
use crate::delivery::{Position, reached};
use crate::fault::BackendError;
use crate::fault_points::FaultPoint;
use crate::order::{Epoch, Money, OrderId, OrderPlaced, Reservation};
use crate::queue::partition_of;
use crate::sale::Sale;
use crate::stock::{BucketId, PAGE_MAX};
use crate::told::Told;

/// Outbox entries younger than this are left to their gateway and recorder.
const AGE: Duration = Duration::from_secs(2);

/// First gap between two publishes of one order; doubled each time.
const FIRST_GAP: Duration = Duration::from_secs(2);

/// Longest gap between two publishes of one order.
const GAP_MAX: Duration = Duration::from_secs(300);

/// Entries looked at in one step.
const STEP_MAX: usize = PAGE_MAX;

/// What is remembered of an order that nobody has seen for this long is forgotten: another keeper has
/// settled it.
const FORGET_AFTER: Duration = Duration::from_secs(900);

/// What is remembered of an order that the ledger does not know.
struct Unknown {
    /// The end of its partition as read after its last publish; nothing until it was read.
    behind: Option<Position>,
    /// How often it was published from here.
    publishes: u32,
    /// Not to be published again before this, by the monotonic clock.
    not_before: Duration,
    /// When it was last found in an outbox, by the monotonic clock.
    seen: Duration,
}

/// Settles outbox entries.
pub struct Sweeper {
    backends: Backends,
    unknown: HashMap<OrderId, Unknown>,
    rounds: Rounds,
    again_told: Told,
    failed_told: Told,
}

impl Sweeper {
    /// A sweeper that has seen nothing yet.
    pub fn new(backends: Backends) -> Self {
        Self {
            backends,
            unknown: HashMap::new(),
            rounds: Rounds::default(),
            again_told: Told::default(),
            failed_told: Told::default(),
        }
    }

    /// Settles what is old in the sale's present bucket; answers how much.
    async fn sweep_sale(&mut self, sale: &Sale) -> Result<u64, BackendError> {
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        // "Old" is judged by the stock's own clock, which stamped the entries.
        match self.backends.stock.level(bucket).await? {
            Some(level) if level.unconfirmed > 0 && !level.fenced => {
                let (seen, unknown) = self.sweep(bucket, sale, level.now.minus(AGE)).await?;
                Ok(seen - unknown)
            }
            _ => Ok(0),
        }
    }

    /// Settles the bucket's entries reserved before `before`; answers how many were looked at and
    /// how many of them the ledger still does not know.
    ///
    /// # Errors
    /// What a backend reports; everything is done again next time.
    pub async fn sweep(
        &mut self,
        bucket: BucketId,
        sale: &Sale,
        before: Timestamp,
    ) -> Result<(u64, u64), BackendError> {
        let Backends { stock, ledger, .. } = self.backends.clone();
        let entries = stock.unconfirmed(bucket, before, STEP_MAX).await?;
        if entries.is_empty() {
            return Ok((0, 0));
        }
        // Positions first: an order unknown to a ledger that had come this far is not in the
        // queue before this place.
        let positions = ledger.positions().await?;
        let ids: Vec<OrderId> = entries.iter().map(|entry| entry.order).collect();
        let statuses = ledger.statuses(&ids).await?;
        let (mut live, mut closed, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
        for (entry, status) in entries.iter().zip(statuses) {
            match status {
                Some(status) if status.is_live() => live.push((entry.order, entry.user.clone())),
                Some(_) => closed.push((entry.order, entry.user.clone())),
                None => unknown.push(entry),
            }
        }
        self.chase(&unknown, sale, &positions).await?;
        let terminal: Vec<OrderId> = closed.iter().map(|(order, _)| *order).collect();
        ledger.ensure_releases(&terminal).await?;
        // A fenced bucket releases nothing; its closed entries are settled by being confirmed.
        stock.confirm(bucket, &live).await?;
        stock.confirm(bucket, &closed).await?;
        for (order, _) in live.iter().chain(&closed) {
            self.unknown.remove(order);
        }
        Ok((entries.len() as u64, unknown.len() as u64))
    }

    /// Publishes again, in one call, those orders whose message is surely not waiting in the queue.
    async fn chase(
        &mut self,
        entries: &[&Reservation],
        sale: &Sale,
        positions: &[Position],
    ) -> Result<(), BackendError> {
        let now = self.backends.clock.monotonic();
        for entry in entries {
            let new = || Unknown { behind: None, publishes: 0, not_before: now, seen: now };
            self.unknown.entry(entry.order).or_insert_with(new).seen = now;
        }
        let due: Vec<OrderPlaced> = entries
            .iter()
            .filter(|entry| self.unknown.get(&entry.order).is_some_and(|it| it.is_due(now, positions)))
            .filter_map(|entry| placed(entry, sale))
            .collect();
        self.publish_again(&due, now).await;
        self.note_places(entries).await?;
        self.unknown.retain(|_, it| now.saturating_sub(it.seen) < FORGET_AFTER);
        Ok(())
    }

    async fn publish_again(&mut self, due: &[OrderPlaced], now: Duration) {
        if due.is_empty() {
            return;
        }
        // From here on nobody knows where they stand until the ends were read again.
        for placed in due {
            if let Some(it) = self.unknown.get_mut(&placed.reservation.order) {
                it.publishes = it.publishes.saturating_add(1);
                let gap = FIRST_GAP.saturating_mul(1 << it.publishes.min(7)).min(GAP_MAX);
                (it.behind, it.not_before) = (None, now + gap);
            }
        }
        let results = self.backends.queue.publish(due).await;
        if results.iter().any(Result::is_ok) {
            FaultPoint::Swept.reached();
        }
        let failed: Vec<BackendError> = results.into_iter().filter_map(Result::err).collect();
        if let Some(error) = failed.first()
            && let Some(orders) = self.failed_told.due(failed.len() as u64)
        {
            tracing::warn!(
                orders,
                error = error.chain(),
                "orders could not be published again; they stay in the outbox"
            );
        }
        let again = due.len() - failed.len();
        if again > 0
            && let Some(orders) = self.again_told.due(again as u64)
        {
            tracing::warn!(orders, "published orders again that the ledger did not know");
        }
    }

    /// Notes for every order how far its partition goes: whatever was published of it, here or by a
    /// gateway, stands before that.
    async fn note_places(&mut self, entries: &[&Reservation]) -> Result<(), BackendError> {
        if entries.is_empty() {
            return Ok(());
        }
        let ends = self.backends.queue.end_positions().await?;
        for entry in entries {
            if let (Some(it), Some(end)) = (self.unknown.get_mut(&entry.order), end_of(entry, &ends)) {
                it.note_end(end);
            }
        }
        Ok(())
    }
}

impl Unknown {
    /// Notes the partition's end as read now. The first one after a publish stands; but a queue that ends
    /// before it has lost what stood between, and one of another topic all of it: nobody will ever come
    /// past the place that was noted.
    fn note_end(&mut self, end: &Position) {
        let stands = self.behind.as_ref().is_some_and(|it| it.topic == end.topic && it.next <= end.next);
        if !stands {
            self.behind = Some(end.clone());
        }
    }

    /// Whether the recorder has come past every place where the order's message could stand.
    fn is_due(&self, now: Duration, positions: &[Position]) -> bool {
        let passed = self.behind.as_ref().is_some_and(|end| reached(positions, std::slice::from_ref(end)));
        passed && now >= self.not_before
    }
}

/// The end of the partition that the order's user is in.
fn end_of<'a>(entry: &Reservation, ends: &'a [Position]) -> Option<&'a Position> {
    let partition = partition_of(&entry.user, u32::try_from(ends.len()).ok()?);
    ends.iter().find(|end| end.partition == partition)
}

fn placed(entry: &Reservation, sale: &Sale) -> Option<OrderPlaced> {
    let Some(price) = price_of(entry, sale) else {
        tracing::error!(order.id = %entry.order, item.id = %entry.item, "a hold names an item that its sale does not have");
        return None;
    };
    Some(OrderPlaced { reservation: entry.clone(), price })
}

fn price_of(entry: &Reservation, sale: &Sale) -> Option<Money> {
    sale.item(entry.item).map(|item| item.price)
}

#[async_trait]
impl Worker for Sweeper {
    fn name(&self) -> &'static str {
        "sweep"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let now = self.backends.clock.now();
        let mut round = Round::default();
        for sale in self.backends.ledger.sales().await? {
            if sale.epoch == Epoch(0) || sale.is_settled(now) {
                continue;
            }
            round.note(self.sweep_sale(&sale).await);
        }
        self.rounds.end(round, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    #[test]
    fn a_noted_end_stands_until_the_queue_has_lost_it() {
        let mut unknown =
            Unknown { behind: None, publishes: 1, not_before: Duration::ZERO, seen: Duration::ZERO };
        let mut note = |end: Position| {
            unknown.note_end(&end);
            unknown.behind.clone()
        };
        let end = sample::position;
        assert_eq!(note(end(5)), Some(end(5)));
        assert_eq!(note(end(9)), Some(end(5)), "what came later is somebody else's");
        assert_eq!(note(end(3)), Some(end(3)), "the queue lost its last records");
        let anew = Position { topic: crate::delivery::TopicId("made anew".to_owned()), ..end(7) };
        assert_eq!(note(anew.clone()), Some(anew));
    }

    #[test]
    fn an_order_waits_for_its_own_partition_alone() {
        let ends: Vec<Position> =
            (0..4).map(|partition| Position { partition, ..sample::position(10) }).collect();
        let entry = sample::order_placed(7).reservation;
        let own = end_of(&entry, &ends).map(|end| end.partition);
        assert_eq!(own, Some(partition_of(&entry.user, 4)));
        let unknown = Unknown {
            behind: end_of(&entry, &ends).cloned(),
            publishes: 0,
            not_before: Duration::ZERO,
            seen: Duration::ZERO,
        };
        let at = |mine, others| -> Vec<Position> {
            let next = |partition| if Some(partition) == own { mine } else { others };
            (0..4).map(|partition| Position { partition, ..sample::position(next(partition)) }).collect()
        };
        assert!(unknown.is_due(Duration::ZERO, &at(10, 0)));
        assert!(!unknown.is_due(Duration::ZERO, &at(9, 10)));
    }
}
