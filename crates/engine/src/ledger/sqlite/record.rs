//! Applying a batch of records in SQLite: facts, verdicts, rows, position, one transaction.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, Row};

use super::events;
use super::rows::{self, signed};
use crate::clock::Timestamp;
use crate::delivery::{Batch, Decoded, Delivered, Position, TopicId};
use crate::ledger::judge::{Facts, ItemFacts, KnownOrder, SaleFacts, Verdict, judge};
use crate::ledger::{EventType, RecordOutcome, Recorded, rules};
use crate::order::{Epoch, ItemId, Order, OrderPlaced, OrderStatus, RejectReason, SaleId, Units, UserId};

pub(super) fn position(row: &Row<'_>) -> rusqlite::Result<Position> {
    Ok(Position {
        topic: TopicId(row.get("topic")?),
        partition: row.get("part")?,
        next: rows::count(row, "next")?,
    })
}

pub(super) fn record(tx: &Connection, batch: &Batch, now: Timestamp) -> rusqlite::Result<RecordOutcome> {
    let place = (&batch.from.topic.0, batch.from.partition);
    let moved = tx
        .prepare_cached("UPDATE queue_offset SET next = ?4 WHERE topic = ?1 AND part = ?2 AND next = ?3")?
        .execute((place.0, place.1, signed(batch.from.next), signed(batch.next)))?;
    if moved == 0 {
        return Ok(RecordOutcome::Zombie);
    }
    let (mut facts, windows) = read_facts(tx, batch)?;
    let epochs: HashMap<SaleId, _> = facts.sales.iter().map(|(id, sale)| (*id, sale.epoch)).collect();
    let verdicts = judge(batch, &mut facts);

    let mut recorded = Recorded::default();
    let mut taken = Taken::default();
    let mut ahead = HashSet::new();
    for (record, verdict) in batch.records.iter().zip(verdicts) {
        if let (Verdict::Rejected(RejectReason::NoStock | RejectReason::Limit), Decoded::Order(order)) =
            (&verdict, &record.contents)
            && epochs.get(&order.reservation.sale) == Some(&order.reservation.epoch)
        {
            ahead.insert((order.reservation.sale, order.reservation.epoch));
        }
        write(tx, batch, record, verdict, &windows, now, (&mut recorded, &mut taken))?;
    }
    taken.write(tx, now)?;
    recorded.ahead = ahead.into_iter().collect();
    Ok(RecordOutcome::Recorded(recorded))
}

/// What the rules say of a batch of one record.
pub(super) fn judge_one(tx: &Connection, batch: &Batch) -> rusqlite::Result<Verdict> {
    let (mut facts, _) = read_facts(tx, batch)?;
    judge(batch, &mut facts).pop().ok_or(rusqlite::Error::QueryReturnedNoRows)
}

/// Writes the row of an order that did not come through the queue just now.
pub(super) fn write_one(
    tx: &Connection,
    placed: &OrderPlaced,
    verdict: Verdict,
    now: Timestamp,
) -> rusqlite::Result<Order> {
    let order = match verdict {
        Verdict::Pending { total } => {
            let sale = rows::sale(tx, placed.reservation.sale)?;
            let window = sale.map(|sale| sale.payment_window).unwrap_or_default();
            rules::row(placed, OrderStatus::Pending, None, total, now.plus(window))
        }
        Verdict::Rejected(reason) => rules::stillborn(placed, OrderStatus::Rejected, Some(reason), now),
        Verdict::Known { .. } | Verdict::Dead { .. } => return Err(rusqlite::Error::QueryReturnedNoRows),
    };
    rows::insert_order(tx, &order, None, now)?;
    if order.status == OrderStatus::Pending {
        let mut taken = Taken::default();
        taken.add(&order);
        taken.write(tx, now)?;
    } else {
        rows::note_release(tx, &order.reservation, now)?;
    }
    Ok(order)
}

/// Units taken by the new rows, summed before they are written.
#[derive(Default)]
struct Taken {
    items: HashMap<ItemId, i64>,
    buyers: HashMap<(SaleId, UserId), i64>,
    seqs: HashMap<(SaleId, Epoch), u64>,
}

impl Taken {
    fn add(&mut self, order: &Order) {
        let it = &order.reservation;
        *self.items.entry(it.item).or_default() += i64::from(it.units.0);
        *self.buyers.entry((it.sale, it.user.clone())).or_default() += i64::from(it.units.0);
        let seq = self.seqs.entry((it.sale, it.epoch)).or_default();
        *seq = it.seq.max(*seq);
    }

    fn write(self, tx: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        for (item, units) in self.items {
            let mut take = tx.prepare_cached(
                "UPDATE item SET sold = sold + ?2 WHERE id = ?1 RETURNING sale, quantity, sold >= quantity",
            )?;
            let (sale, quantity, sold_out): (SaleId, i64, bool) =
                take.query_row((item, units), |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            if sold_out {
                let quantity = u64::try_from(quantity).unwrap_or(0);
                events::note_shop_event(tx, EventType::SaleSoldOut, sale, Some((item, quantity)), now)?;
            }
        }
        for ((sale, epoch), seq) in self.seqs {
            tx.prepare_cached(
                "UPDATE sale SET recorded_seq = max(recorded_seq, ?3) WHERE id = ?1 AND epoch = ?2",
            )?
            .execute((sale, epoch, signed(seq)))?;
        }
        for ((sale, user), units) in self.buyers {
            tx.prepare_cached(
                "INSERT INTO buyer (sale, user, units) VALUES (?1, ?2, ?3) \
                 ON CONFLICT (sale, user) DO UPDATE SET units = units + excluded.units",
            )?
            .execute((sale, &user, units))?;
        }
        Ok(())
    }
}

type Windows = HashMap<SaleId, Duration>;

fn read_facts(tx: &Connection, batch: &Batch) -> rusqlite::Result<(Facts, Windows)> {
    let (mut facts, mut windows) = (Facts::default(), Windows::new());
    let orders = batch.records.iter().filter_map(|record| record.contents.order());
    let mut asked = HashSet::new();
    for OrderPlaced { reservation: it, .. } in orders {
        if asked.insert(it.sale)
            && let Some(sale) = rows::sale(tx, it.sale)?
        {
            windows.insert(sale.id, sale.payment_window);
            let items = sale.items.iter().map(|item| {
                (item.id, ItemFacts { quantity: item.quantity, sold: item.sold, price: item.price })
            });
            let sale_facts = SaleFacts {
                limit: sale.terms.limit,
                epoch: sale.epoch,
                items: items.collect(),
                barriers: barriers(tx, it.sale, &batch.from)?,
            };
            facts.sales.insert(sale.id, sale_facts);
        }
        if let Some(known) = known(tx, it.order)? {
            facts.known.insert(it.order, known);
        }
        let units: Option<i64> = tx
            .prepare_cached("SELECT units FROM buyer WHERE sale = ?1 AND user = ?2")?
            .query_row((it.sale, &it.user), |row| row.get(0))
            .optional()?;
        if let Some(units) = units {
            facts.buyers.insert((it.sale, it.user.clone()), u64::try_from(units).unwrap_or(0));
        }
    }
    Ok((facts, windows))
}

fn barriers(tx: &Connection, sale: SaleId, at: &Position) -> rusqlite::Result<Vec<(Epoch, u64)>> {
    let mut statement = tx.prepare_cached(
        "SELECT epoch, barrier FROM epoch_barrier WHERE sale = ?1 AND topic = ?2 AND part = ?3",
    )?;
    let found = statement.query_map((sale, &at.topic.0, at.partition), |row| {
        Ok((row.get("epoch")?, rows::count(row, "barrier")?))
    })?;
    found.collect()
}

fn known(tx: &Connection, id: crate::order::OrderId) -> rusqlite::Result<Option<KnownOrder>> {
    tx.prepare_cached("SELECT item, user, units, status FROM orders WHERE id = ?1")?
        .query_row([id], |row| {
            Ok(KnownOrder {
                item: row.get("item")?,
                user: row.get("user")?,
                units: row.get("units")?,
                status: rows::word(row, "status")?,
            })
        })
        .optional()
}

fn write(
    tx: &Connection,
    batch: &Batch,
    record: &Delivered,
    verdict: Verdict,
    windows: &Windows,
    now: Timestamp,
    (recorded, taken): (&mut Recorded, &mut Taken),
) -> rusqlite::Result<()> {
    let place = Some((batch.from.partition, record.offset));
    match (verdict, record.contents.order()) {
        (Verdict::Known { live }, Some(placed)) => {
            recorded.known += 1;
            if live {
                note_live(recorded, placed);
            }
        }
        (Verdict::Pending { total }, Some(placed)) => {
            let window = windows.get(&placed.reservation.sale).copied().unwrap_or_default();
            let order = rules::row(placed, OrderStatus::Pending, None, total, now.plus(window));
            if rows::insert_order(tx, &order, place, now)? {
                taken.add(&order);
                recorded.pending += 1;
                note_live(recorded, placed);
            }
        }
        (Verdict::Rejected(reason), Some(placed)) => {
            reject(tx, placed, reason, place, now)?;
            recorded.rejected += 1;
        }
        (Verdict::Dead { why }, placed) => {
            park(tx, batch, record, &why, now)?;
            recorded.dead += 1;
            if let Some(placed) = placed
                && known_item(tx, placed)?
            {
                reject(tx, placed, RejectReason::Unreadable, place, now)?;
            }
        }
        (Verdict::Known { .. } | Verdict::Pending { .. } | Verdict::Rejected(_), None) => {}
    }
    Ok(())
}

fn note_live(recorded: &mut Recorded, placed: &OrderPlaced) {
    let it = &placed.reservation;
    recorded.live.push((it.sale, it.epoch, it.order));
}

/// A row that says no; its release row only if it is new.
fn reject(
    tx: &Connection,
    placed: &OrderPlaced,
    reason: RejectReason,
    place: Option<(u32, u64)>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let order = rules::stillborn(placed, OrderStatus::Rejected, Some(reason), now);
    if rows::insert_order(tx, &order, place, now)? {
        rows::note_release(tx, &order.reservation, now)?;
    }
    Ok(())
}

/// Whether a row for this order could stand beside its sale and item at all.
fn known_item(tx: &Connection, placed: &OrderPlaced) -> rusqlite::Result<bool> {
    let it = &placed.reservation;
    let sane = it.units != Units(0);
    let sale = rows::sale(tx, it.sale)?;
    Ok(sane && sale.is_some_and(|sale| sale.item(it.item).is_some()))
}

fn park(
    tx: &Connection,
    batch: &Batch,
    record: &Delivered,
    why: &str,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let bytes = rules::parked_bytes(&record.contents);
    tx.prepare_cached(
        "INSERT INTO dead_letter (topic, part, part_offset, bytes, why, at) VALUES (?1, ?2, ?3, ?4, ?5, ?6) \
         ON CONFLICT DO NOTHING",
    )?
    .execute((&batch.from.topic.0, batch.from.partition, signed(record.offset), bytes, why, now))?;
    Ok(())
}
