//! I13, I16: records are applied once and in their time.

use std::collections::{HashMap, HashSet};

use super::{Circumstances, Evidence, Findings};
use crate::books::{Books, Position, Status};

/// I13: no two orders come from one record, none from a record that is still to be read, and at rest
/// everything is read.
pub(super) fn each_record_is_applied_once(evidence: &Evidence<'_>, found: &mut Findings) {
    let books = evidence.books;
    // Rows do not say the topic; a ledger has one, and after a change of it the later one is behind.
    let mut next: HashMap<u64, u64> = HashMap::new();
    for position in &books.positions {
        let next = next.entry(position.partition).or_default();
        *next = position.next.max(*next);
    }
    let parked: HashSet<(u64, u64)> =
        books.dead_letters.iter().map(|it| (it.at.partition, it.at.next)).collect();
    if parked.len() != books.dead_letters.len() {
        found.add("a record is parked twice".to_owned());
    }
    let mut places = HashSet::new();
    for order in &books.orders {
        let Some(place) = order.place else { continue };
        // A queue that was cut short gives its offsets a second time.
        if !places.insert(place) && !evidence.circumstances.queue_lost {
            found.add(format!("order {} comes from record {place:?}, and so does another", order.id));
        }
        if parked.contains(&place) && order.status != Status::Rejected {
            found.add(format!("order {} comes from record {place:?}, which is parked", order.id));
        }
    }
    for (partition, offset) in places.iter().chain(&parked) {
        let next = next.get(partition);
        if next.is_none_or(|next| offset >= next) && !evidence.circumstances.queue_lost {
            found.add(format!(
                "record {offset} of partition {partition} was applied, the position is {next:?}"
            ));
        }
    }
    for end in books.ends.iter().filter(|_| evidence.circumstances.at_rest) {
        let next = position_of(books, end);
        if next != Some(end.next) {
            found.add(format!(
                "partition {} of {} ends at {}, recorded is up to {next:?}",
                end.partition, end.topic, end.next
            ));
        }
    }
}

fn position_of(books: &Books, place: &Position) -> Option<u64> {
    let same = |it: &&Position| (&it.topic, it.partition) == (&place.topic, place.partition);
    books.positions.iter().find(same).map(|it| it.next)
}

/// I16: no order of an older epoch was taken from a record at or behind a later epoch's barrier, and a
/// sale is open only once every barrier is passed.
pub(super) fn no_stale_record_is_live(evidence: &Evidence<'_>, found: &mut Findings) {
    // Barriers of a queue that was cut short are lowered to its end.
    if evidence.circumstances.queue_lost {
        return;
    }
    let books = evidence.books;
    for order in books.orders.iter().filter(|order| evidence.index.was_live(order.id)) {
        let Some((partition, offset)) = order.place else { continue };
        let behind = books.barriers.iter().find(|barrier| {
            barrier.sale == order.sale
                && barrier.epoch > order.epoch
                && barrier.at.partition == partition
                && offset >= barrier.at.next
        });
        if let Some(barrier) = behind {
            found.add(format!(
                "order {} of epoch {} was taken from record {offset} of partition {partition}; epoch {}'s barrier is {}",
                order.id, order.epoch, barrier.epoch, barrier.at.next
            ));
        }
    }
    for barrier in &books.barriers {
        let opened = evidence.index.sales.get(&barrier.sale).is_some_and(|sale| sale.fence.is_none());
        let next = position_of(books, &barrier.at);
        if opened && next.is_none_or(|next| next < barrier.at.next) {
            found.add(format!(
                "sale {} is open in epoch {}, and partition {} is at {next:?}, before the barrier {}",
                barrier.sale, barrier.epoch, barrier.at.partition, barrier.at.next
            ));
        }
    }
}

/// I13 between two looks at the ledger: no position goes back.
pub(super) fn positions_never_go_back(
    earlier: &Books,
    later: &Books,
    circumstances: &Circumstances,
    found: &mut Findings,
) {
    if circumstances.queue_lost || circumstances.ledger_lost {
        return;
    }
    for position in &earlier.positions {
        let next = position_of(later, position);
        if next.is_none_or(|next| next < position.next) {
            found.add(format!(
                "partition {} of {} was at {} and is at {next:?} now",
                position.partition, position.topic, position.next
            ));
        }
    }
}
