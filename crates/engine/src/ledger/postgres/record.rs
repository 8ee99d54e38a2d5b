//! Applying a batch of records in PostgreSQL: facts, verdicts, rows, position, one transaction.
//!
//! Four round trips, whatever the batch's size: BEGIN; position, locks and facts; everything that
//! is written; COMMIT. (The pool's check of the connection is a fifth.)

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;

use tokio_postgres::Row;
use uuid::Uuid;

use super::db::{CLOCK, LOCK_SALES, Query, Tx};
use super::events;
use super::failure::Failure;
use super::rows::{self, signed};
use crate::clock::Timestamp;
use crate::delivery::{Batch, Decoded, Delivered};
use crate::ledger::judge::{Facts, ItemFacts, KnownOrder, SaleFacts, Verdict, judge};
use crate::ledger::{EventType, RecordOutcome, Recorded, rules};
use crate::order::{Epoch, ItemId, Order, OrderId, OrderPlaced, OrderStatus, RejectReason, SaleId, UserId};

const MOVE_POSITION: &str =
    "UPDATE queue_offset SET next = $4 WHERE topic = $1 AND part = $2 AND next = $3 RETURNING next";

const READ_SALES: &str = "SELECT id, unit_limit, epoch, payment_window_ms FROM sale WHERE id = ANY($1)";

const READ_BARRIERS: &str = "SELECT sale, epoch, barrier FROM epoch_barrier \
     WHERE sale = ANY($1) AND topic = $2 AND part = $3";

const LOCK_ITEMS: &str = "SELECT id, sale, quantity, sold, price_minor, currency FROM item \
     WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE";

const LOCK_BUYERS: &str = "SELECT b.sale, b.user_id, b.units \
     FROM unnest($1::bigint[], $2::bytea[]) AS wanted (sale, user_id) \
     JOIN buyer b ON b.sale = wanted.sale AND b.user_id = wanted.user_id \
     ORDER BY b.sale, b.user_id FOR NO KEY UPDATE OF b";

const READ_KNOWN: &str = "SELECT id, item, user_id, units, status FROM orders WHERE id = ANY($1)";

/// Inserts what is new; the counts, the history and the release rows follow from the rows that
/// were inserted, by construction. Sums per user and item come first: an upsert that meets a row
/// twice fails, an update from a list applies only one.
const INSERT: &str = "WITH new AS ( \
         INSERT INTO orders (id, sale, item, user_id, units, total_minor, currency, status, reason, \
             reserved_at, expires_at, hold_until, bucket, epoch, seq, trace, retake_of, part, part_offset) \
         SELECT id, sale, item, user_id, units, total_minor, currency, status, reason, \
             reserved_at, expires_at, expires_at, bucket, epoch, seq, trace, retake_of, $1, part_offset \
         FROM unnest($2::uuid[], $3::bigint[], $4::bigint[], $5::bytea[], $6::bigint[], $7::bigint[], $8::text[], \
             $9::text[], $10::text[], $11::bigint[], $12::bigint[], $13::bigint[], $14::bigint[], $15::bigint[], \
             $16::text[], $17::uuid[], $18::bigint[]) \
             AS t (id, sale, item, user_id, units, total_minor, currency, status, reason, reserved_at, \
             expires_at, bucket, epoch, seq, trace, retake_of, part_offset) \
         ON CONFLICT (id) DO NOTHING \
         RETURNING id, sale, item, user_id, units, status \
     ), history AS ( \
         INSERT INTO order_event (ord, from_status, to_status, at) SELECT id, NULL, status, $19 FROM new \
     ), release AS ( \
         INSERT INTO release_row (ord, sale, user_id) SELECT id, sale, user_id FROM new \
         WHERE status <> 'PENDING' ON CONFLICT (ord) DO NOTHING \
     ), sold AS ( \
         UPDATE item SET sold = sold + taken.units \
         FROM (SELECT item, sum(units)::bigint AS units FROM new WHERE status = 'PENDING' GROUP BY item) AS taken \
         WHERE item.id = taken.item \
     ), bought AS ( \
         INSERT INTO buyer (sale, user_id, units) \
         SELECT sale, user_id, sum(units)::bigint FROM new WHERE status = 'PENDING' \
         GROUP BY sale, user_id ORDER BY sale, user_id \
         ON CONFLICT (sale, user_id) DO UPDATE SET units = buyer.units + excluded.units \
         RETURNING units \
     ) SELECT id, (SELECT sum(units)::bigint FROM bought) AS bought FROM new";

const NOTE_SEQS: &str = "UPDATE sale SET recorded_seq = greatest(recorded_seq, t.seq) \
     FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS t (sale, epoch, seq) \
     WHERE sale.id = t.sale AND sale.epoch = t.epoch";

const PARK: &str = "INSERT INTO dead_letter (topic, part, part_offset, bytes, why, at) \
     SELECT $1, $2, part_offset, bytes, why, $3 \
     FROM unnest($4::bigint[], $5::bytea[], $6::text[]) AS t (part_offset, bytes, why) \
     ON CONFLICT DO NOTHING";

pub(super) async fn record(tx: &Tx, batch: &Batch) -> Result<RecordOutcome, Failure> {
    let (topic, part) = (&batch.from.topic.0, i64::from(batch.from.partition));
    let (from, next) = (signed(batch.from.next), signed(batch.next));
    let (moved, loaded) = load(tx, (MOVE_POSITION, &[topic, &part, &from, &next]), batch).await?;
    if moved.is_empty() {
        return Ok(RecordOutcome::Zombie);
    }
    let Loaded { mut facts, windows, now } = loaded;
    let before = facts.buyers.clone();
    let epochs: HashMap<SaleId, Epoch> = facts.sales.iter().map(|(id, sale)| (*id, sale.epoch)).collect();
    let verdicts = judge(batch, &mut facts);

    let mut writes = Writes::default();
    let mut ahead = HashSet::new();
    for (record, verdict) in batch.records.iter().zip(verdicts) {
        if let (Verdict::Rejected(RejectReason::NoStock | RejectReason::Limit), Decoded::Order(order)) =
            (&verdict, &record.contents)
            && epochs.get(&order.reservation.sale) == Some(&order.reservation.epoch)
        {
            ahead.insert((order.reservation.sale, order.reservation.epoch));
        }
        writes.add(record, verdict, &facts, &windows, now);
    }
    let sold_out = writes.sold_out(&facts);
    let mut recorded = writes.send(tx, batch, &before, now).await?;
    note_sold_out(tx, &sold_out, now).await?;
    recorded.ahead = ahead.into_iter().collect();
    Ok(RecordOutcome::Recorded(recorded))
}

/// What the rules say of a batch of one record, behind the locks; with the rows of `first` and the time.
pub(super) async fn judge_one(
    tx: &Tx,
    first: Query<'_>,
    batch: &Batch,
) -> Result<(Vec<Row>, Option<Judged>), Failure> {
    let (first, Loaded { mut facts, windows, now }) = load(tx, first, batch).await?;
    let before = facts.buyers.clone();
    let verdict = judge(batch, &mut facts).pop();
    Ok((first, verdict.map(|verdict| Judged { verdict, facts, windows, before, now })))
}

/// A record that was judged and is not written yet.
pub(super) struct Judged {
    pub(super) verdict: Verdict,
    pub(super) now: Timestamp,
    facts: Facts,
    windows: HashMap<SaleId, Duration>,
    before: HashMap<(SaleId, UserId), u64>,
}

impl Judged {
    /// Writes the row that the verdict asks for, without a place in the queue; answers it.
    pub(super) async fn write(self, tx: &Tx, batch: &Batch) -> Result<Option<Order>, Failure> {
        let Some(record) = batch.records.first() else { return Ok(None) };
        let mut writes = Writes { placeless: true, ..Writes::default() };
        writes.add(record, self.verdict, &self.facts, &self.windows, self.now);
        let order = writes.orders.first().map(|(_, order)| order.clone());
        let sold_out = writes.sold_out(&self.facts);
        writes.send(tx, batch, &self.before, self.now).await?;
        note_sold_out(tx, &sold_out, self.now).await?;
        Ok(order)
    }
}

/// Tells the shop of items whose last unit was taken.
async fn note_sold_out(tx: &Tx, items: &[(SaleId, ItemId, u64)], now: Timestamp) -> Result<(), Failure> {
    for (sale, item, quantity) in items {
        events::note_shop_event(tx, EventType::SaleSoldOut, *sale, Some((*item, *quantity)), now).await?;
    }
    Ok(())
}

struct Loaded {
    facts: Facts,
    windows: HashMap<SaleId, Duration>,
    now: Timestamp,
}

/// Runs `first`, takes the locks and reads the facts behind them, all in one round trip.
async fn load(tx: &Tx, first: Query<'_>, batch: &Batch) -> Result<(Vec<Row>, Loaded), Failure> {
    let orders = || batch.records.iter().filter_map(|it| it.contents.order()).map(|it| &it.reservation);
    let sales: Vec<SaleId> = orders().map(|it| it.sale).collect::<BTreeSet<_>>().into_iter().collect();
    let items: Vec<ItemId> = orders().map(|it| it.item).collect::<BTreeSet<_>>().into_iter().collect();
    let ids: Vec<OrderId> = orders().map(|it| it.order).collect();
    let buyers: BTreeSet<(SaleId, &UserId)> = orders().map(|it| (it.sale, &it.user)).collect();
    let (buyer_sales, buyer_users): (Vec<SaleId>, Vec<&UserId>) = buyers.into_iter().unzip();
    let (topic, part) = (&batch.from.topic.0, i64::from(batch.from.partition));

    let [first, _, sale_rows, barriers, items, buyers, known, now] = tx
        .pipeline([
            first,
            (LOCK_SALES, &[&tx.lock_keys(sales.iter().copied())]),
            (READ_SALES, &[&sales]),
            (READ_BARRIERS, &[&sales, topic, &part]),
            (LOCK_ITEMS, &[&items]),
            (LOCK_BUYERS, &[&buyer_sales, &buyer_users]),
            (READ_KNOWN, &[&ids]),
            (CLOCK, &[&tx.clock()]),
        ])
        .await?;

    let (mut facts, mut windows) = (Facts::default(), HashMap::new());
    for row in &sale_rows {
        let id: SaleId = row.try_get("id")?;
        windows.insert(id, Duration::from_millis(rows::count(row, "payment_window_ms")?));
        let (limit, epoch) = (row.try_get("unit_limit")?, row.try_get("epoch")?);
        facts.sales.insert(id, SaleFacts { limit, epoch, items: HashMap::new(), barriers: Vec::new() });
    }
    for row in &barriers {
        if let Some(sale) = facts.sales.get_mut(&row.try_get("sale")?) {
            sale.barriers.push((row.try_get("epoch")?, rows::count(row, "barrier")?));
        }
    }
    for row in &items {
        if let Some(sale) = facts.sales.get_mut(&row.try_get("sale")?) {
            sale.items.insert(row.try_get("id")?, item_facts(row)?);
        }
    }
    for row in &buyers {
        facts.buyers.insert((row.try_get("sale")?, row.try_get("user_id")?), rows::count(row, "units")?);
    }
    for row in &known {
        facts.known.insert(row.try_get("id")?, known_order(row)?);
    }
    Ok((first, Loaded { facts, windows, now: rows::time(&now)? }))
}

fn item_facts(row: &Row) -> Result<ItemFacts, Failure> {
    let price = rows::money(row, "price_minor")?;
    Ok(ItemFacts { quantity: rows::count(row, "quantity")?, sold: rows::count(row, "sold")?, price })
}

fn known_order(row: &Row) -> Result<KnownOrder, Failure> {
    Ok(KnownOrder {
        item: row.try_get("item")?,
        user: row.try_get("user_id")?,
        units: row.try_get("units")?,
        status: rows::word(row, "status")?,
    })
}

/// What the verdicts ask to be written.
#[derive(Default)]
struct Writes<'a> {
    recorded: Recorded,
    orders: Vec<(&'a Delivered, Order)>,
    live: Vec<&'a OrderPlaced>,
    dead: Vec<(&'a Delivered, String)>,
    /// The rows do not come from where the batch says.
    placeless: bool,
}

impl<'a> Writes<'a> {
    fn add(
        &mut self,
        record: &'a Delivered,
        verdict: Verdict,
        facts: &Facts,
        windows: &HashMap<SaleId, Duration>,
        now: Timestamp,
    ) {
        match (verdict, record.contents.order()) {
            (Verdict::Known { live }, Some(placed)) => {
                self.recorded.known += 1;
                if live {
                    self.live.push(placed);
                }
            }
            (Verdict::Pending { total }, Some(placed)) => {
                let window = windows.get(&placed.reservation.sale).copied().unwrap_or_default();
                let order = rules::row(placed, OrderStatus::Pending, None, total, now.plus(window));
                self.orders.push((record, order));
                self.live.push(placed);
            }
            (Verdict::Rejected(reason), Some(placed)) => {
                self.recorded.rejected += 1;
                self.reject(record, placed, reason, now);
            }
            (Verdict::Dead { why }, placed) => {
                self.recorded.dead += 1;
                self.dead.push((record, why));
                if let Some(placed) = placed.filter(|placed| has_place(placed, facts)) {
                    self.reject(record, placed, RejectReason::Unreadable, now);
                }
            }
            (Verdict::Known { .. } | Verdict::Pending { .. } | Verdict::Rejected(_), None) => {}
        }
    }

    fn reject(&mut self, record: &'a Delivered, placed: &OrderPlaced, reason: RejectReason, now: Timestamp) {
        let order = rules::stillborn(placed, OrderStatus::Rejected, Some(reason), now);
        self.orders.push((record, order));
    }

    /// Items of which these rows take the last unit, with their quantities. The facts are those behind
    /// the verdicts, and the items are locked; rows that turn out to be known end the transaction.
    fn sold_out(&self, facts: &Facts) -> Vec<(SaleId, ItemId, u64)> {
        let pending =
            self.orders.iter().map(|(_, order)| order).filter(|it| it.status == OrderStatus::Pending);
        let items: BTreeSet<(SaleId, ItemId)> =
            pending.map(|order| (order.reservation.sale, order.reservation.item)).collect();
        let quantity = |(sale, item): (SaleId, ItemId)| {
            let item_facts = facts.sales.get(&sale)?.items.get(&item)?;
            (item_facts.sold >= item_facts.quantity).then_some((sale, item, item_facts.quantity))
        };
        items.into_iter().filter_map(quantity).collect()
    }

    /// One row per id: a later record about an id whose row is written here meets that row.
    fn drop_copies(&mut self) {
        let mut seen = HashSet::new();
        self.orders.retain(|(_, order)| seen.insert(order.reservation.order));
    }

    async fn send(
        mut self,
        tx: &Tx,
        batch: &Batch,
        before: &HashMap<(SaleId, UserId), u64>,
        now: Timestamp,
    ) -> Result<Recorded, Failure> {
        self.drop_copies();
        let inserted = self.insert(tx, batch, now).await?;
        let new: HashSet<OrderId> = inserted.iter().map(|row| row.try_get("id")).collect::<Result<_, _>>()?;
        let pending =
            self.orders.iter().map(|(_, order)| order).filter(|it| it.status == OrderStatus::Pending);
        let (mut buyers, mut units) = (HashSet::new(), 0);
        for order in pending.clone() {
            if !new.contains(&order.reservation.order) {
                // Somebody without this item's lock wrote the same id: it is known now.
                return Err(Failure::Overtaken);
            }
            buyers.insert((order.reservation.sale, order.reservation.user.clone()));
            units += u64::from(order.reservation.units.0);
        }
        let held: u64 = buyers.iter().filter_map(|buyer| before.get(buyer)).sum();
        let bought: Option<i64> = inserted.first().map(|row| row.try_get("bought")).transpose()?.flatten();
        if bought.unwrap_or(0) != signed(held + units) {
            // A user had no row to lock, and another partition's recorder has just made it.
            return Err(Failure::Overtaken);
        }

        let pending = pending.count() as u64;
        let mut recorded = self.recorded;
        recorded.pending = pending;
        recorded.live = self
            .live
            .iter()
            .map(|placed| &placed.reservation)
            .map(|it| (it.sale, it.epoch, it.order))
            .collect();
        Ok(recorded)
    }

    /// Sends everything that is to be written in one round trip; answers the rows of [`INSERT`].
    async fn insert(&self, tx: &Tx, batch: &Batch, now: Timestamp) -> Result<Vec<Row>, Failure> {
        let part = i64::from(batch.from.partition);
        let placed_in = (!self.placeless).then_some(part);
        let table = Table::new(&self.orders, placed_in.is_some());
        let mut seqs: BTreeMap<(SaleId, Epoch), u64> = BTreeMap::new();
        for (_, order) in self.orders.iter().filter(|(_, order)| order.status == OrderStatus::Pending) {
            let it = &order.reservation;
            let seq = seqs.entry((it.sale, it.epoch)).or_default();
            *seq = it.seq.max(*seq);
        }
        let seq_sales: Vec<SaleId> = seqs.keys().map(|(sale, _)| *sale).collect();
        let seq_epochs: Vec<Epoch> = seqs.keys().map(|(_, epoch)| *epoch).collect();
        let seqs: Vec<i64> = seqs.into_values().map(signed).collect();
        let offsets: Vec<i64> = self.dead.iter().map(|(record, _)| signed(record.offset)).collect();
        let bytes: Vec<Vec<u8>> =
            self.dead.iter().map(|(record, _)| rules::parked_bytes(&record.contents)).collect();
        // Text of PostgreSQL has no NUL.
        let why: Vec<String> = self.dead.iter().map(|(_, why)| why.replace('\0', "\u{fffd}")).collect();

        let [inserted, _] = tx
            .pipeline([
                (
                    INSERT,
                    &[
                        &placed_in,
                        &table.ids,
                        &table.sales,
                        &table.items,
                        &table.users,
                        &table.units,
                        &table.totals,
                        &table.currencies,
                        &table.statuses,
                        &table.reasons,
                        &table.reserved_at,
                        &table.expires_at,
                        &table.buckets,
                        &table.epochs,
                        &table.seqs,
                        &table.traces,
                        &table.retakes,
                        &table.offsets,
                        &now,
                    ],
                ),
                // Behind the items' and the buyers' rows: who waits here holds all that it needs.
                (NOTE_SEQS, &[&seq_sales, &seq_epochs, &seqs]),
            ])
            .await?;
        // By itself, and only when there is something: who replays a letter may not write new ones.
        if !offsets.is_empty() {
            tx.rows((PARK, &[&batch.from.topic.0, &part, &now, &offsets, &bytes, &why])).await?;
        }
        Ok(inserted)
    }
}

/// Whether a row for this order could stand beside its sale and item at all.
fn has_place(placed: &OrderPlaced, facts: &Facts) -> bool {
    let it = &placed.reservation;
    it.units.0 != 0 && facts.sales.get(&it.sale).is_some_and(|sale| sale.items.contains_key(&it.item))
}

/// New orders by column, as UNNEST takes them.
#[derive(Default)]
struct Table<'a> {
    ids: Vec<OrderId>,
    sales: Vec<SaleId>,
    items: Vec<ItemId>,
    users: Vec<&'a UserId>,
    units: Vec<i64>,
    totals: Vec<i64>,
    currencies: Vec<&'a str>,
    statuses: Vec<&'static str>,
    reasons: Vec<Option<&'static str>>,
    reserved_at: Vec<Timestamp>,
    expires_at: Vec<Timestamp>,
    buckets: Vec<i64>,
    epochs: Vec<Epoch>,
    seqs: Vec<i64>,
    traces: Vec<Option<&'a str>>,
    retakes: Vec<Option<Uuid>>,
    offsets: Vec<Option<i64>>,
}

impl<'a> Table<'a> {
    fn new(orders: &'a [(&Delivered, Order)], placed: bool) -> Self {
        let mut table = Self::default();
        for (record, order) in orders {
            table.push(order);
            table.offsets.push(placed.then(|| signed(record.offset)));
        }
        table
    }

    fn push(&mut self, order: &'a Order) {
        let it = &order.reservation;
        self.ids.push(it.order);
        self.sales.push(it.sale);
        self.items.push(it.item);
        self.users.push(&it.user);
        self.units.push(i64::from(it.units.0));
        self.totals.push(order.total.minor);
        self.currencies.push(order.total.currency.as_str());
        self.statuses.push(order.status.as_str());
        self.reasons.push(order.reason.map(RejectReason::as_str));
        self.reserved_at.push(it.reserved_at);
        self.expires_at.push(order.expires_at);
        self.buckets.push(i64::from(it.bucket));
        self.epochs.push(it.epoch);
        self.seqs.push(signed(it.seq));
        self.traces.push(it.trace.as_deref());
        self.retakes.push(it.retake_of.map(|id| id.0));
    }
}
