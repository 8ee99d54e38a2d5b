//! How holds, wishes and answers stand in arguments and replies.

use redis::Value;

use super::super::{BucketId, HolderPage, ItemLevel, Level, ReserveOutcome, ReserveRequest};
use super::text;
use crate::clock::Timestamp;
use crate::order::{Epoch, ItemId, OrderId, Reservation, SaleId, Units, UserId};
use crate::sale::{SaleState, Terms};

/// An order id as 32 hexadecimal digits.
pub(super) fn order_text(order: OrderId) -> String {
    order.0.simple().to_string()
}

fn order_id(text: &str) -> Option<OrderId> {
    uuid::Uuid::try_parse(text).ok().map(OrderId)
}

/// A trace as a field; one that would end the field is left out, since an order is worth more.
fn trace_text(trace: Option<&str>) -> &str {
    trace.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())).unwrap_or("-")
}

fn retake_text(order: Option<OrderId>) -> String {
    order.map_or_else(|| "-".to_owned(), order_text)
}

/// A hold as its line.
pub(super) fn hold_text(hold: &Reservation) -> String {
    format!(
        "{} {} {} {} {} {} {} {}",
        order_text(hold.order),
        hold.item,
        hold.units.0,
        hold.seq,
        hold.epoch.0,
        hold.reserved_at.as_ms(),
        retake_text(hold.retake_of),
        trace_text(hold.trace.as_deref()),
    )
}

/// A hold by its line and its user.
pub(super) fn hold_of(sale: SaleId, user: UserId, line: &str) -> Option<Reservation> {
    let mut fields = line.split(' ');
    let mut next = || fields.next();
    Some(Reservation {
        order: order_id(next()?)?,
        sale,
        bucket: 0,
        item: ItemId(next()?.parse().ok()?),
        user,
        units: Units(next()?.parse().ok()?),
        seq: next()?.parse().ok()?,
        epoch: Epoch(next()?.parse().ok()?),
        reserved_at: Timestamp::from_ms(next()?.parse().ok()?),
        retake_of: match next()? {
            "-" => None,
            order => Some(order_id(order)?),
        },
        trace: match next()? {
            "-" => None,
            trace => Some(trace.to_owned()),
        },
    })
}

/// A hold by its user and its line, as replies carry them.
pub(super) fn hold(sale: SaleId, user: &Value, line: &Value) -> Option<Reservation> {
    hold_of(sale, UserId::new(word(user)).ok()?, word(line))
}

/// A reply's text; empty when it is none.
pub(super) fn word(value: &Value) -> &str {
    match value {
        Value::BulkString(bytes) => std::str::from_utf8(bytes).unwrap_or(""),
        Value::SimpleString(text) => text,
        _ => "",
    }
}

/// A count, as an integer or as text.
pub(super) fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => word(value).parse().ok(),
    }
}

/// A reply's first value and the rest.
pub(super) fn split(value: &Value) -> Option<(&Value, &[Value])> {
    match value {
        Value::Array(values) => values.split_first(),
        _ => None,
    }
}

/// What most wishes of a batch have in common, said once: only what differs is sent per user.
pub(super) struct Shape {
    item: ItemId,
    units: Units,
}

impl Shape {
    pub(super) fn of(requests: &[ReserveRequest]) -> Self {
        let first = requests.first();
        Self { item: first.map_or(ItemId(0), |it| it.item), units: first.map_or(Units(1), |it| it.units) }
    }

    pub(super) fn arguments(
        &self,
        now: Vec<u8>,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Vec<Vec<u8>> {
        let mut arguments = Vec::with_capacity(4 + 3 * requests.len());
        arguments.extend([now, text(bucket.epoch.0), text(self.item), text(self.units.0)]);
        for request in requests {
            arguments.push(order_text(request.order).into_bytes());
            arguments.push(request.user.as_bytes().to_vec());
            arguments.push(self.extras(request));
        }
        arguments
    }

    fn extras(&self, request: &ReserveRequest) -> Vec<u8> {
        let trace = trace_text(request.trace.as_deref());
        let common = request.item == self.item && request.units == self.units;
        if common && request.retake_of.is_none() && trace == "-" {
            return Vec::new();
        }
        let retake = retake_text(request.retake_of);
        format!("{} {} {retake} {trace}", request.item, request.units.0).into_bytes()
    }
}

/// A reply of the reserve script.
pub(super) struct ReserveReplies<'a> {
    /// The last step that the call found; nothing when all were answered alike, or when the bucket is
    /// fenced.
    pub(super) found: Option<u64>,
    /// The last step that the call left.
    pub(super) seq: u64,
    now: Timestamp,
    answers: &'a [Value],
    all: Option<ReserveOutcome>,
}

impl<'a> ReserveReplies<'a> {
    pub(super) fn read(reply: &'a Value) -> Option<Self> {
        let (first, rest) = split(reply)?;
        let all = match word(first) {
            "NOT_LOADED" => Some(ReserveOutcome::NotLoaded),
            "FENCED" => Some(ReserveOutcome::Fenced),
            _ => None,
        };
        if all.is_some() {
            return Some(Self { found: None, seq: 0, now: Timestamp::from_ms(0), answers: &[], all });
        }
        let Value::Int(now) = first else { return None };
        let (found, rest) = rest.split_first()?;
        let (seq, answers) = rest.split_first()?;
        let found = if found == &Value::Int(-1) { None } else { Some(number(found)?) };
        Some(Self { found, seq: number(seq)?, now: Timestamp::from_ms(*now), answers, all: None })
    }

    /// One outcome per request; nothing when the reply cannot be understood.
    pub(super) fn outcomes(
        &self,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Option<Vec<ReserveOutcome>> {
        if let Some(all) = &self.all {
            return Some(vec![all.clone(); requests.len()]);
        }
        if self.answers.len() != requests.len() {
            return None;
        }
        self.answers.iter().zip(requests).map(|(answer, it)| self.outcome(bucket, it, answer)).collect()
    }

    fn outcome(&self, bucket: BucketId, request: &ReserveRequest, answer: &Value) -> Option<ReserveOutcome> {
        // The commonest answer is the shortest.
        if answer == &Value::Int(0) {
            return Some(ReserveOutcome::SoldOut { seq: self.seq });
        }
        let text = word(answer);
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match name {
            "HELD" => {
                let (seq, left) = rest.split_once(' ')?;
                ReserveOutcome::Held {
                    reservation: self.reservation(bucket, request, seq.parse().ok()?),
                    left: left.parse().ok()?,
                }
            }
            "BEFORE" => {
                let (waiting, line) = rest.split_once(' ')?;
                let reservation = hold_of(bucket.sale, request.user.clone(), line)?;
                ReserveOutcome::HeldBefore { reservation, in_outbox: waiting == "1" }
            }
            "LIMIT" => {
                ReserveOutcome::Limit { orders: rest.split(' ').map(order_id).collect::<Option<_>>()? }
            }
            "LEFT" => ReserveOutcome::NotEnough { left: rest.parse().ok()? },
            "EARLY" => ReserveOutcome::Early { starts_in_ms: rest.parse().ok()? },
            "GONE" => ReserveOutcome::Gone,
            "MISMATCH" => ReserveOutcome::Mismatch,
            "FENCED" => ReserveOutcome::Fenced,
            "NOT_OPEN" => ReserveOutcome::NotOpen,
            "ENDED" => ReserveOutcome::Ended,
            "NO_ITEM" => ReserveOutcome::NoItem,
            _ => return None,
        })
    }

    fn reservation(&self, bucket: BucketId, request: &ReserveRequest, seq: u64) -> Reservation {
        let trace = trace_text(request.trace.as_deref());
        Reservation {
            order: request.order,
            sale: bucket.sale,
            bucket: 0,
            item: request.item,
            user: request.user.clone(),
            units: request.units,
            epoch: bucket.epoch,
            seq,
            reserved_at: self.now,
            trace: (trace != "-").then(|| trace.to_owned()),
            retake_of: request.retake_of,
        }
    }
}

/// A page of HSCAN over `buy`.
pub(super) fn holder_page(sale: SaleId, reply: &Value) -> Option<HolderPage> {
    let (cursor, rest) = split(reply)?;
    let Value::Array(fields) = rest.first()? else { return None };
    let mut page = HolderPage { holds: Vec::new(), next: Some(word(cursor).to_owned()) };
    if word(cursor) == "0" {
        page.next = None;
    }
    for pair in fields.chunks(2) {
        let user = word(pair.first()?);
        if user.is_empty() {
            continue;
        }
        let user = UserId::new(user).ok()?;
        for line in word(pair.get(1)?).split('\n') {
            page.holds.push(hold_of(sale, user.clone(), line)?);
        }
    }
    Some(page)
}

/// A reply of the level script.
pub(super) fn level(reply: &Value) -> Option<Level> {
    let Value::Array(fields) = reply else { return None };
    let (head, items) = fields.split_at_checked(11)?;
    let time = |index: usize| word(&head[index]).parse().ok().map(Timestamp::from_ms);
    let item = |fields: &[Value]| {
        Some(ItemLevel {
            item: ItemId(word(fields.first()?).parse().ok()?),
            free: number(fields.get(1)?)?,
            allocated: number(fields.get(2)?)?,
        })
    };
    let mut items: Vec<ItemLevel> = items.chunks(3).map(item).collect::<Option<_>>()?;
    items.sort_unstable_by_key(|it| it.item);
    Some(Level {
        loading: word(&head[0]) == "loading",
        fenced: word(&head[0]) == "fenced",
        terms: Terms {
            state: word(&head[1]).parse::<SaleState>().ok()?,
            opens_at: time(2)?,
            closes_at: time(3)?,
            limit: Units(word(&head[4]).parse().ok()?),
        },
        seq: number(&head[5])?,
        pages: u32::try_from(number(&head[6])?).ok()?,
        now: time(7)?,
        holds: number(&head[8])?,
        unconfirmed: number(&head[9])?,
        oldest_unconfirmed: time(10),
        items,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;

    #[test]
    fn a_hold_reads_back_as_it_was_written() {
        let mut hold = sample::order_placed(7).reservation;
        assert_eq!(hold_of(hold.sale, hold.user.clone(), &hold_text(&hold)), Some(hold.clone()));
        hold.trace = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01".to_owned());
        hold.retake_of = Some(sample::order_id(3));
        assert_eq!(hold_of(hold.sale, hold.user.clone(), &hold_text(&hold)), Some(hold));
    }

    #[test]
    fn a_trace_that_would_end_its_field_is_left_out() {
        for trace in ["", "a b", "a\nb 1 1 1 1 1 - -", "ä"] {
            assert_eq!(trace_text(Some(trace)), "-", "{trace:?}");
        }
    }
}
