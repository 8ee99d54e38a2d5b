//! The invariants of the protocol as code: [`check`] is pure and is itself tested by mutated
//! books; [`collect`] reads a live system.
//!
//! Checked here: I1 I2 I3 I5 I6 I7 I8 I10 I11 I13 I15 I16 I18. The others need what only clients
//! know (I4, I14, I17, I19, I20: the load test's balance and the HTTP stories) or a crash
//! (I9, I12, I21: the kill test).

mod money;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::clock::Timestamp;
use crate::delivery::Position;
use crate::fault::BackendError;
use crate::ledger::BookSnapshot;
use crate::order::{Epoch, ItemId, Order, OrderId, OrderStatus, RejectReason, Reservation, SaleId, UserId};
use crate::sale::{Sale, SaleState};
use crate::stock::{BucketId, Level, PAGE_MAX};
use crate::workers::Backends;

/// Most findings that are written out; the rest is counted.
const FINDINGS_MAX: usize = 100;

/// Oldest outbox entry in healthy operation.
const OUTBOX_AGE_MAX: Duration = Duration::from_secs(120);

/// One bucket as the auditor read it.
#[derive(Clone, Debug)]
pub struct BucketBooks {
    /// Its sale.
    pub sale: SaleId,
    /// Its figures.
    pub level: Level,
    /// Its holds.
    pub holds: Vec<Reservation>,
}

/// Everything an audit looks at.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The ledger, in one state.
    pub books: BookSnapshot,
    /// The open buckets of sales that are not fenced.
    pub buckets: Vec<BucketBooks>,
    /// The queue's ends.
    pub ends: Vec<Position>,
    /// Whether nothing was in flight while all of this was read.
    pub at_rest: bool,
}

/// One violated invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its number, such as `I1`.
    pub invariant: &'static str,
    /// What is wrong, with ids and figures.
    pub detail: String,
}

/// What an audit found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Whether the at-rest invariants were checked too.
    pub at_rest: bool,
    /// The invariants that were checked.
    pub checked: Vec<&'static str>,
    /// Orders looked at.
    pub orders: u64,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_ok(&self) -> bool {
        self.findings.is_empty()
    }
}

/// Reads a live system twice around its stock; it was at rest if nothing moved between.
///
/// # Errors
/// What a backend reports.
pub async fn collect(backends: &Backends) -> Result<Snapshot, BackendError> {
    let before = backends.ledger.books().await?;
    let mut buckets = Vec::new();
    for sale in &before.sales {
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        if sale.fence.is_none()
            && sale.epoch != Epoch(0)
            && let Some(level) = backends.stock.level(bucket).await?
        {
            let holds = holds(backends, bucket).await?;
            buckets.push(BucketBooks { sale: sale.id, level, holds });
        }
    }
    let ends = backends.queue.end_positions().await?;
    let books = backends.ledger.books().await?;
    let whole = books.sales.iter().all(|sale| {
        sale.fence.is_none() && (sale.epoch == Epoch(0) || buckets.iter().any(|it| it.sale == sale.id))
    });
    let mut at_rest = whole && same(&before, &books) && is_quiet(&books, &ends);
    for bucket in &buckets {
        let id = sale_of(&books, bucket.sale).map(|sale| BucketId { sale: sale.id, epoch: sale.epoch });
        let again = match id {
            Some(id) => backends.stock.level(id).await?,
            None => None,
        };
        // Also in the first look: an order that is published, recorded and confirmed behind the second look at
        // the books stands in none of them.
        at_rest &= bucket.level.unconfirmed == 0
            && again.is_some_and(|level| level.seq == bucket.level.seq && level.unconfirmed == 0);
    }
    Ok(Snapshot { books, buckets, ends, at_rest })
}

async fn holds(backends: &Backends, bucket: BucketId) -> Result<Vec<Reservation>, BackendError> {
    let (mut holds, mut cursor): (Vec<Reservation>, Option<String>) = (Vec::new(), None);
    loop {
        let page = backends.stock.holders(bucket, cursor.as_deref(), PAGE_MAX).await?;
        holds.extend(page.holds);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(holds);
        }
    }
}

fn same(a: &BookSnapshot, b: &BookSnapshot) -> bool {
    a.steps.len() == b.steps.len() && a.sales == b.sales && a.releases == b.releases
}

fn is_quiet(books: &BookSnapshot, ends: &[Position]) -> bool {
    let recorded = |end: &Position| {
        books
            .positions
            .iter()
            .any(|it| it.topic == end.topic && it.partition == end.partition && it.next == end.next)
    };
    books.releases.is_empty() && books.open_restocks == 0 && ends.iter().all(recorded)
}

fn sale_of(books: &BookSnapshot, id: SaleId) -> Option<&Sale> {
    books.sales.iter().find(|sale| sale.id == id)
}

type Check = (&'static str, fn(&Snapshot, &mut Findings));

/// Checked in every state.
const ALWAYS: [Check; 12] = [
    ("I1", i1_never_oversold),
    ("I2", i2_sold_is_the_live_units),
    ("I3", i3_buyers_are_within_the_limit),
    ("I5", i5_only_allowed_steps),
    ("I6", money::i6_paid_is_paid_once),
    ("I7", i7_free_and_held_are_allocated),
    ("I10", i10_a_release_has_a_terminal_row),
    ("I11", i11_one_row_one_birth),
    ("I13", i13_each_record_is_applied_once),
    ("I15", i15_steps_are_distinct),
    ("I16", i16_no_live_row_from_behind_a_barrier),
    ("I18", i18_nothing_is_old),
];

/// Checked when nothing is in flight.
const AT_REST: [Check; 1] = [("I8", i8_stock_is_ledger)];

struct Findings {
    invariant: &'static str,
    list: Vec<Finding>,
    more: usize,
}

impl Findings {
    fn add(&mut self, detail: String) {
        if self.list.len() < FINDINGS_MAX {
            self.list.push(Finding { invariant: self.invariant, detail });
        } else {
            self.more += 1;
        }
    }
}

/// Every invariant against one snapshot.
pub fn check(snapshot: &Snapshot) -> Report {
    let mut found = Findings { invariant: "", list: Vec::new(), more: 0 };
    let at_rest = if snapshot.at_rest { &AT_REST[..] } else { &[] };
    let mut checked = Vec::new();
    for (invariant, look) in ALWAYS.iter().chain(at_rest) {
        found.invariant = invariant;
        look(snapshot, &mut found);
        checked.push(*invariant);
    }
    if found.more > 0 {
        let detail = format!("and {} more findings, left out here", found.more);
        found.list.push(Finding { invariant: "…", detail });
    }
    Report {
        at_rest: snapshot.at_rest,
        checked,
        orders: snapshot.books.orders.len() as u64,
        findings: found.list,
    }
}

fn live(snapshot: &Snapshot) -> impl Iterator<Item = &Order> {
    snapshot.books.orders.iter().filter(|order| order.status.is_live())
}

fn live_units_by_item(snapshot: &Snapshot) -> HashMap<ItemId, u64> {
    let mut units = HashMap::new();
    for order in live(snapshot) {
        *units.entry(order.reservation.item).or_default() += u64::from(order.reservation.units.0);
    }
    units
}

fn i1_never_oversold(snapshot: &Snapshot, found: &mut Findings) {
    let units = live_units_by_item(snapshot);
    for item in snapshot.books.sales.iter().flat_map(|sale| &sale.items) {
        let live = units.get(&item.id).copied().unwrap_or(0);
        if live > item.quantity {
            found.add(format!("item {}: {live} live units of {}", item.id, item.quantity));
        }
    }
}

fn i2_sold_is_the_live_units(snapshot: &Snapshot, found: &mut Findings) {
    let units = live_units_by_item(snapshot);
    let mut paid: HashMap<ItemId, u64> = HashMap::new();
    for it in live(snapshot).filter(|it| it.status == OrderStatus::Paid).map(|it| &it.reservation) {
        *paid.entry(it.item).or_default() += u64::from(it.units.0);
    }
    for item in snapshot.books.sales.iter().flat_map(|sale| &sale.items) {
        let live = units.get(&item.id).copied().unwrap_or(0);
        let paid = paid.get(&item.id).copied().unwrap_or(0);
        if (item.sold, item.paid) != (live, paid) || item.sold > item.quantity {
            found.add(format!(
                "item {}: sold {}, paid {}, live units {live}, paid units {paid}, quantity {}",
                item.id, item.sold, item.paid, item.quantity
            ));
        }
    }
}

fn i3_buyers_are_within_the_limit(snapshot: &Snapshot, found: &mut Findings) {
    let mut units: HashMap<(SaleId, &UserId), i64> = HashMap::new();
    for order in live(snapshot) {
        let it = &order.reservation;
        *units.entry((it.sale, &it.user)).or_default() += i64::from(it.units.0);
    }
    let limits: HashMap<SaleId, i64> =
        snapshot.books.sales.iter().map(|sale| (sale.id, i64::from(sale.terms.limit.0))).collect();
    for (sale, user, counted) in &snapshot.books.buyers {
        let live = units.remove(&(*sale, user)).unwrap_or(0);
        let limit = limits.get(sale).copied().unwrap_or(0);
        if *counted != live || live > limit {
            found.add(format!("sale {sale}, one user: counted {counted}, live units {live}, limit {limit}"));
        }
    }
    for ((sale, _), live) in units {
        found.add(format!("sale {sale}, one user: {live} live units and no count"));
    }
}

fn i5_only_allowed_steps(snapshot: &Snapshot, found: &mut Findings) {
    let mut at: HashMap<OrderId, OrderStatus> = HashMap::new();
    for (order, from, to) in &snapshot.books.steps {
        let before = at.insert(*order, *to);
        let allowed = match from {
            None => matches!(to, OrderStatus::Pending | OrderStatus::Rejected | OrderStatus::Cancelled),
            Some(from) => from.may_become(*to),
        };
        if before != *from || !allowed {
            found.add(format!("order {order}: was {before:?}, step from {from:?} to {to}"));
        }
    }
    for order in &snapshot.books.orders {
        let id = order.reservation.order;
        if at.get(&id) != Some(&order.status) {
            found.add(format!("order {id}: is {}, its last step says {:?}", order.status, at.get(&id)));
        }
    }
}

fn i7_free_and_held_are_allocated(snapshot: &Snapshot, found: &mut Findings) {
    for bucket in &snapshot.buckets {
        // Figures and holds are read one after the other; they belong together only at rest.
        if bucket.level.holds != bucket.holds.len() as u64 {
            if snapshot.at_rest {
                found.add(format!(
                    "sale {}: {} holds counted, {} listed",
                    bucket.sale,
                    bucket.level.holds,
                    bucket.holds.len()
                ));
            }
            continue;
        }
        if bucket.level.unconfirmed > bucket.level.holds {
            found.add(format!(
                "sale {}: {} outbox entries for {} holds",
                bucket.sale, bucket.level.unconfirmed, bucket.level.holds
            ));
        }
        for item in &bucket.level.items {
            let held: u64 = bucket
                .holds
                .iter()
                .filter(|hold| hold.item == item.item)
                .map(|hold| u64::from(hold.units.0))
                .sum();
            if snapshot.at_rest && item.free + held != item.allocated {
                found.add(format!(
                    "item {}: {} free and {held} held of {} allocated",
                    item.item, item.free, item.allocated
                ));
            }
            if item.free > item.allocated {
                found.add(format!("item {}: {} free of {} allocated", item.item, item.free, item.allocated));
            }
        }
    }
}

fn i8_stock_is_ledger(snapshot: &Snapshot, found: &mut Findings) {
    for bucket in &snapshot.buckets {
        let Some(sale) = sale_of(&snapshot.books, bucket.sale) else { continue };
        let held: HashSet<OrderId> = bucket.holds.iter().map(|hold| hold.order).collect();
        let live: HashSet<OrderId> = live(snapshot)
            .filter(|it| it.reservation.sale == sale.id)
            .map(|it| it.reservation.order)
            .collect();
        for order in live.difference(&held) {
            found.add(format!("order {order} is live in the ledger and not held in the stock"));
        }
        for order in held.difference(&live) {
            found.add(format!("order {order} is held in the stock and not live in the ledger"));
        }
        for item in &sale.items {
            let free = bucket.level.items.iter().find(|it| it.item == item.id).map(|it| it.free);
            if free != item.quantity.checked_sub(item.sold) {
                found.add(format!(
                    "item {}: {free:?} free in the stock, {} of {} sold in the ledger",
                    item.id, item.sold, item.quantity
                ));
            }
        }
    }
}

fn i10_a_release_has_a_terminal_row(snapshot: &Snapshot, found: &mut Findings) {
    let status: HashMap<OrderId, OrderStatus> =
        snapshot.books.orders.iter().map(|order| (order.reservation.order, order.status)).collect();
    for order in &snapshot.books.releases {
        if status.get(order).is_none_or(|status| status.is_live()) {
            found.add(format!("order {order} has a release row and is {:?}", status.get(order)));
        }
    }
}

fn i11_one_row_one_birth(snapshot: &Snapshot, found: &mut Findings) {
    let mut rows = HashSet::new();
    for order in &snapshot.books.orders {
        if !rows.insert(order.reservation.order) {
            found.add(format!("order {} has two rows", order.reservation.order));
        }
    }
    let (mut births, mut ends) = (HashSet::new(), HashSet::new());
    for (order, from, to) in &snapshot.books.steps {
        if from.is_none() && !births.insert(*order) {
            found.add(format!("order {order} was recorded twice"));
        }
        // Paid is live; refunded, expired and the like give units back, once.
        if !to.is_live() && !ends.insert(*order) {
            found.add(format!("order {order} ended twice"));
        }
        if !rows.contains(order) {
            found.add(format!("order {order} has a history and no row"));
        }
    }
}

fn i13_each_record_is_applied_once(snapshot: &Snapshot, found: &mut Findings) {
    let mut places = HashSet::new();
    for (order, partition, offset) in &snapshot.books.recorded_at {
        if !places.insert((*partition, *offset)) {
            found.add(format!(
                "two orders, one of them {order}, come from record {offset} of partition {partition}"
            ));
        }
        let next =
            snapshot.books.positions.iter().filter(|it| it.partition == *partition).map(|it| it.next).max();
        if next.is_none_or(|next| *offset >= next) {
            found.add(format!("order {order} comes from record {offset} of partition {partition}, whose position is {next:?}"));
        }
    }
    for position in &snapshot.books.positions {
        let end =
            snapshot.ends.iter().find(|it| it.topic == position.topic && it.partition == position.partition);
        // The ends are read before the books: a position may run ahead of them while records come in.
        if snapshot.at_rest && end.is_some_and(|end| position.next > end.next) {
            found.add(format!(
                "partition {} is recorded up to {} and ends before",
                position.partition, position.next
            ));
        }
    }
}

fn i15_steps_are_distinct(snapshot: &Snapshot, found: &mut Findings) {
    let mut steps: HashMap<(SaleId, Epoch, u64), OrderId> = HashMap::new();
    // Only after a stock loss does the ledger refuse for these reasons; then steps repeat.
    let lost: HashSet<(SaleId, Epoch)> = snapshot
        .books
        .orders
        .iter()
        .filter(|order| matches!(order.reason, Some(RejectReason::NoStock | RejectReason::Limit)))
        .map(|order| (order.reservation.sale, order.reservation.epoch))
        .collect();
    for order in &snapshot.books.orders {
        let it = &order.reservation;
        if it.has_step()
            && !lost.contains(&(it.sale, it.epoch))
            && let Some(other) = steps.insert((it.sale, it.epoch, it.seq), it.order)
        {
            found.add(format!(
                "orders {other} and {} both have step {} of sale {}, epoch {}",
                it.order, it.seq, it.sale, it.epoch.0
            ));
        }
    }
}

fn i16_no_live_row_from_behind_a_barrier(snapshot: &Snapshot, found: &mut Findings) {
    let place: HashMap<OrderId, (u32, u64)> = snapshot
        .books
        .recorded_at
        .iter()
        .map(|(order, partition, offset)| (*order, (*partition, *offset)))
        .collect();
    let pending_at_birth: HashSet<OrderId> = snapshot
        .books
        .steps
        .iter()
        .filter(|(_, from, to)| from.is_none() && to.is_live())
        .map(|(order, _, _)| *order)
        .collect();
    for order in snapshot.books.orders.iter().map(|order| &order.reservation) {
        let Some((partition, offset)) = place.get(&order.order) else { continue };
        let stale = snapshot.books.barriers.iter().any(|(sale, epoch, barrier)| {
            *sale == order.sale
                && *epoch > order.epoch
                && barrier.partition == *partition
                && *offset >= barrier.next
        });
        if stale && pending_at_birth.contains(&order.order) {
            found.add(format!(
                "order {} of epoch {} was taken from record {offset}, behind a later epoch's barrier",
                order.order, order.epoch.0
            ));
        }
    }
}

fn i18_nothing_is_old(snapshot: &Snapshot, found: &mut Findings) {
    for bucket in &snapshot.buckets {
        let closed =
            sale_of(&snapshot.books, bucket.sale).is_some_and(|sale| sale.terms.state == SaleState::Closed);
        let age = |at: Timestamp| bucket.level.now.since(at);
        if let Some(at) = bucket.level.oldest_unconfirmed
            && age(at) > OUTBOX_AGE_MAX
        {
            found.add(format!(
                "sale {}{}: an outbox entry is {} s old",
                bucket.sale,
                if closed { " (closed)" } else { "" },
                age(at).as_secs()
            ));
        }
    }
}
