//! A small sale that never was: a model of the pipeline by the protocol's words, that leaves a history
//! and books as a sound product would. Nothing of the product is in it.

use std::collections::BTreeMap;

use doorbuster_chaos::books::{
    Barrier, Books, Bucket, Buyer, Hold, Item, Order, OrderStep, OutboxEntry, Payment, PaymentEvent, Phase,
    Position, Refund, Restock, Sale, Status,
};
use doorbuster_chaos::checker::{Circumstances, Finding, check};
use doorbuster_chaos::history::{Answer, Call, Ending, History, Wish};
use doorbuster_chaos::{ItemId, OrderId, SaleId};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use uuid::Uuid;

pub(crate) const SALE: SaleId = SaleId(1);
pub(crate) const PRICE: i64 = 1_990;
const START_MS: i64 = 1_795_766_400_000;
const PARTITIONS: u64 = 2;
const FLAG_LIFE_US: u64 = 200_000;

/// What becomes of a click on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is answered.
    Answered,
    /// Its order is placed and the answer is lost.
    AnswerLost,
    /// It is lost before anybody hears of it, and the client cannot know.
    RequestLost,
    /// The queue does not acknowledge: 503, and the outbox has the order.
    NotAcknowledged,
    /// Nobody takes orders: 503.
    Busy,
    /// No connection comes about.
    NotSent,
}

/// A history, books and circumstances that belong together.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) history: History,
    pub(crate) books: Books,
    pub(crate) circumstances: Circumstances,
}

impl Made {
    pub(crate) fn check(&self) -> Vec<Finding> {
        check(&self.history, &self.books, &self.circumstances)
    }
}

/// The sale while it runs.
pub(crate) struct Model {
    pub(crate) made: Made,
    random: StdRng,
    now_us: u64,
    made_ids: u128,
    keyed: BTreeMap<(String, String), OrderId>,
    queue: Vec<Vec<Order>>,
    flagged_until_us: BTreeMap<ItemId, u64>,
}

impl Model {
    /// An open sale of these items, in its first epoch.
    pub(crate) fn open(seed: u64, limit: u64, quantities: &[i64]) -> Self {
        let sale = Sale { id: SALE, state: "open".to_owned(), limit, epoch: 1, recorded_seq: 0, fence: None };
        let items = (1_i64..).zip(quantities).map(|(id, quantity)| Item {
            id: ItemId(id),
            sale: SALE,
            quantity: *quantity,
            sold: 0,
            paid: 0,
        });
        let positions = (0..PARTITIONS).map(|partition| position(partition, 0)).collect();
        let books = Books { sales: vec![sale], items: items.collect(), positions, ..Books::default() };
        let mut model = Self {
            made: Made { history: History::default(), books, circumstances: Circumstances::default() },
            random: StdRng::seed_from_u64(seed),
            now_us: 1_000_000,
            made_ids: 0,
            keyed: BTreeMap::new(),
            queue: (0..PARTITIONS).map(|_| Vec::new()).collect(),
            flagged_until_us: BTreeMap::new(),
        };
        model.load();
        model
    }

    fn bucket(&mut self) -> &mut Bucket {
        self.made.books.buckets.last_mut().unwrap()
    }

    pub(crate) fn advance(&mut self, us: u64) {
        self.now_us += us;
    }

    fn now_ms(&self) -> i64 {
        START_MS + i64::try_from(self.now_us / 1_000).unwrap()
    }

    /// Writes down a call whose effect is now; calls overlap, as those of many clients do.
    fn called(&mut self, user: &str, wish: Wish, ending: Option<Ending>) {
        self.now_us += self.random.random_range(1..4_000);
        let invoked_us = self.now_us - self.random.random_range(0..3_000);
        let ended_us = self.now_us + self.random.random_range(0..3_000);
        let end = ending.map(|ending| (ended_us, ending));
        self.made.history.calls.push(Call { user: user.to_owned(), wish, gateway: 0, invoked_us, end });
    }

    /// A click; answers the order that a 202 named.
    pub(crate) fn click(
        &mut self,
        user: &str,
        item: i64,
        units: u64,
        key: Option<&str>,
        fate: Fate,
    ) -> Option<OrderId> {
        let item = ItemId(item);
        let wish = Wish::Purchase {
            sale: SALE,
            item,
            units: u32::try_from(units).unwrap(),
            key: key.map(str::to_owned),
        };
        let answer = match fate {
            Fate::RequestLost | Fate::NotSent | Fate::Busy => refusal(503, "BUSY"),
            Fate::Answered | Fate::AnswerLost | Fate::NotAcknowledged => {
                self.place(user, item, units, key, fate)
            }
        };
        let order = answer.order.filter(|_| answer.status == 202);
        let ending = match fate {
            Fate::Answered | Fate::NotAcknowledged | Fate::Busy => Ending::Answered(answer),
            Fate::AnswerLost | Fate::RequestLost => Ending::Unknown,
            Fate::NotSent => Ending::NotSent,
        };
        self.called(user, wish, Some(ending));
        order
    }

    /// Reserve and publish, by the order of protocol.md section 3.
    fn place(&mut self, user: &str, item: ItemId, units: u64, key: Option<&str>, fate: Fate) -> Answer {
        let limit = self.made.books.sales[0].limit;
        let id = self.order_id(user, key);
        let held: Vec<Hold> = self.bucket().holds.iter().filter(|hold| hold.user == user).cloned().collect();
        if held.is_empty() && self.flagged_until_us.get(&item).is_some_and(|until| self.now_us < *until) {
            return refusal(410, "SOLD_OUT");
        }
        let known = self.made.books.orders.iter().find(|order| order.id == id);
        let before = held.iter().find(|hold| hold.order == id).map(|hold| (hold.item, hold.units));
        let before = before.or_else(|| known.map(|order| (order.item, order.units)));
        if let Some(before) = before {
            if before != (item, units) {
                return refusal(422, "IDEMPOTENCY_MISMATCH");
            }
            let Some(status) = known.map(|order| order.status) else {
                return self.publish_again(id, fate);
            };
            return Answer { replayed: true, ..shown(202, id, status) };
        }
        if held.iter().map(|hold| hold.units).sum::<u64>() + units > limit && !held.is_empty() {
            let holding: Vec<OrderId> = held.iter().map(|hold| hold.order).collect();
            return if limit == 1 {
                Answer { order: holding.first().copied(), ..refusal(409, "ALREADY_PURCHASED") }
            } else {
                Answer { holding, ..refusal(409, "LIMIT_REACHED") }
            };
        }
        let free = self.bucket().free[&item];
        if free == 0 {
            self.flagged_until_us.insert(item, self.now_us + FLAG_LIFE_US);
            return refusal(410, "SOLD_OUT");
        }
        if free < signed(units) {
            return Answer { left: Some(free.unsigned_abs()), ..refusal(410, "SOLD_OUT") };
        }

        self.hold(id, user, item, units);
        if fate == Fate::NotAcknowledged {
            return Answer { order: Some(id), ..refusal(503, "OUTCOME_UNKNOWN") };
        }
        self.publish(id);
        shown(202, id, Status::Pending)
    }

    /// A hold with its outbox entry, met by its own key: published again, in case it never was.
    fn publish_again(&mut self, id: OrderId, fate: Fate) -> Answer {
        if fate == Fate::NotAcknowledged {
            return Answer { order: Some(id), ..refusal(503, "OUTCOME_UNKNOWN") };
        }
        if !self.queue.iter().flatten().any(|record| record.id == id) {
            self.publish(id);
        }
        Answer { replayed: true, ..shown(202, id, Status::Pending) }
    }

    fn hold(&mut self, order: OrderId, user: &str, item: ItemId, units: u64) {
        let reserved_at_ms = self.now_ms();
        let bucket = self.bucket();
        bucket.seq += 1;
        *bucket.free.get_mut(&item).unwrap() -= signed(units);
        let (user, seq, epoch) = (user.to_owned(), bucket.seq, bucket.epoch);
        bucket.outbox.push(OutboxEntry { order, user: user.clone(), seq });
        bucket.holds.push(Hold { order, user, item, units, seq, epoch, reserved_at_ms, retake_of: None });
        bucket.counted_holds += 1;
    }

    fn order_id(&mut self, user: &str, key: Option<&str>) -> OrderId {
        self.made_ids += 1;
        let fresh = OrderId(Uuid::from_u128(0x0198_c5a4_7b1e_7c3a_9d2f_0000_0000_0000 + self.made_ids));
        match key {
            None => fresh,
            Some(key) => *self.keyed.entry((user.to_owned(), key.to_owned())).or_insert(fresh),
        }
    }

    fn publish(&mut self, order: OrderId) {
        let hold = self.bucket().holds.iter().find(|hold| hold.order == order).unwrap().clone();
        let partition = hold.user.bytes().map(u64::from).sum::<u64>() % PARTITIONS;
        let log = &mut self.queue[usize::try_from(partition).unwrap()];
        let place = Some((partition, log.len() as u64));
        log.push(Order {
            id: order,
            sale: SALE,
            item: hold.item,
            user: hold.user,
            units: hold.units,
            total_minor: PRICE * signed(hold.units),
            currency: "EUR".to_owned(),
            status: Status::Pending,
            reason: None,
            reserved_at_ms: hold.reserved_at_ms,
            bucket: 0,
            epoch: hold.epoch,
            seq: hold.seq,
            retake_of: None,
            place,
        });
    }

    /// The recorder reads everything, and confirms.
    pub(crate) fn record(&mut self) {
        for partition in 0..self.queue.len() {
            let next = usize::try_from(self.made.books.positions[partition].next).unwrap();
            let orders: Vec<Order> = self.queue[partition][next..].to_vec();
            self.made.books.positions[partition].next += orders.len() as u64;
            for order in orders {
                if self.made.books.orders.iter().any(|it| it.id == order.id) {
                    continue;
                }
                self.insert(order);
            }
        }
        let known: Vec<OrderId> = self.made.books.orders.iter().map(|order| order.id).collect();
        self.bucket().outbox.retain(|entry| !known.contains(&entry.order));
    }

    fn insert(&mut self, order: Order) {
        let at_ms = self.now_ms();
        let books = &mut self.made.books;
        books.steps.push(OrderStep { order: order.id, from: None, to: order.status, at_ms });
        if order.status.is_live() {
            let sale = &mut books.sales[0];
            if sale.epoch == order.epoch {
                sale.recorded_seq = sale.recorded_seq.max(order.seq);
            }
            self.count(&order, signed(order.units));
        }
        self.made.books.orders.push(order);
    }

    fn count(&mut self, order: &Order, units: i64) {
        let books = &mut self.made.books;
        books.items.iter_mut().find(|item| item.id == order.item).unwrap().sold += units;
        match books.buyers.iter_mut().find(|buyer| buyer.user == order.user) {
            Some(buyer) => buyer.units += units,
            None => books.buyers.push(Buyer { sale: SALE, user: order.user.clone(), units }),
        }
    }

    /// The sweeper publishes what only the outbox has.
    pub(crate) fn sweep(&mut self) {
        let waiting: Vec<OrderId> = self.bucket().outbox.iter().map(|entry| entry.order).collect();
        for order in waiting {
            if !self.queue.iter().flatten().any(|record| record.id == order) {
                self.publish(order);
            }
        }
    }

    fn close(&mut self, id: OrderId, to: Status) {
        let at_ms = self.now_ms();
        let order = self.made.books.orders.iter_mut().find(|order| order.id == id).unwrap();
        let from = Some(order.status);
        order.status = to;
        let order = order.clone();
        self.made.books.steps.push(OrderStep { order: id, from, to, at_ms });
        if !to.is_live() {
            self.count(&order, -signed(order.units));
            self.made.books.releases.push(id);
        }
    }

    fn status(&self, id: OrderId) -> Option<Status> {
        self.made.books.orders.iter().find(|order| order.id == id).map(|order| order.status)
    }

    /// Its user cancels, whether it is recorded or still queued.
    pub(crate) fn cancel(&mut self, user: &str, order: OrderId) {
        let answer = match self.status(order) {
            None => {
                let queued = self.queue.iter().flatten().find(|record| record.id == order).unwrap();
                let row = Order { status: Status::Cancelled, place: None, ..queued.clone() };
                self.insert(row);
                self.made.books.releases.push(order);
                shown(200, order, Status::Cancelled)
            }
            Some(Status::Pending) => {
                self.close(order, Status::Cancelled);
                shown(200, order, Status::Cancelled)
            }
            Some(Status::Cancelled) => shown(200, order, Status::Cancelled),
            Some(Status::Paid) => refusal(409, "ALREADY_PAID"),
            Some(_) => refusal(409, "ORDER_CLOSED"),
        };
        self.called(user, Wish::Cancel { order }, Some(Ending::Answered(answer)));
    }

    /// A payment is entered; `lost` loses its answer.
    pub(crate) fn pay(&mut self, user: &str, order: OrderId, payment: &str, in_time: bool, lost: bool) {
        let Some(status) = self.status(order) else { return };
        let row = self.made.books.orders.iter().find(|it| it.id == order).unwrap();
        let amount_minor = row.total_minor;
        let repeated = self.made.books.payments.iter().any(|it| it.payment == payment);
        let outcome = match status {
            _ if repeated => "DUPLICATE",
            Status::Pending if in_time => "PAID",
            _ => "REFUND_DUE",
        };
        if !repeated {
            if outcome == "PAID" {
                let (item, units) = (row.item, signed(row.units));
                self.close(order, Status::Paid);
                self.made.books.items.iter_mut().find(|it| it.id == item).unwrap().paid += units;
            } else if status == Status::Pending {
                self.close(order, Status::Expired);
            }
            let (provider, payment) = ("manual".to_owned(), payment.to_owned());
            if outcome == "REFUND_DUE" {
                let (provider, payment) = (provider.clone(), payment.clone());
                self.made.books.refunds.push(Refund { provider, payment, amount_minor });
            }
            self.made.books.payments.push(Payment {
                provider: provider.clone(),
                payment: payment.clone(),
                order,
                amount_minor,
                currency: "EUR".to_owned(),
                outcome: outcome.to_owned(),
            });
            self.made.books.payment_events.push(PaymentEvent { provider, event: payment.clone(), payment });
        }
        let wish = Wish::Pay {
            order,
            event: payment.to_owned(),
            payment: payment.to_owned(),
            amount_minor,
            currency: "EUR".to_owned(),
        };
        let status = self.status(order).unwrap();
        let answer = Answer { outcome: Some(outcome.to_owned()), ..shown(200, order, status) };
        self.called(user, wish, Some(if lost { Ending::Unknown } else { Ending::Answered(answer) }));
    }

    /// A paid order is given back.
    pub(crate) fn refund(&mut self, order: OrderId) {
        if self.status(order) == Some(Status::Paid) {
            let row = self.made.books.orders.iter().find(|it| it.id == order).unwrap();
            let (item, units) = (row.item, signed(row.units));
            self.made.books.items.iter_mut().find(|it| it.id == item).unwrap().paid -= units;
            let mut payments = self.made.books.payments.iter_mut();
            let paid_by = payments.find(|it| it.order == order && it.outcome == "PAID").unwrap();
            paid_by.outcome = "REFUND_DUE".to_owned();
            let Payment { provider, payment, amount_minor, .. } = paid_by.clone();
            self.made.books.refunds.push(Refund { provider, payment, amount_minor });
            self.close(order, Status::Refunded);
        }
    }

    /// Nobody paid in time.
    pub(crate) fn expire(&mut self, order: OrderId) {
        if self.status(order) == Some(Status::Pending) {
            self.close(order, Status::Expired);
        }
    }

    pub(crate) fn look(&mut self, user: &str, order: OrderId) {
        let status = self.status(order).unwrap_or(Status::Pending);
        self.called(user, Wish::Look { order }, Some(Ending::Answered(shown(200, order, status))));
    }

    /// What the release rows ask for is done.
    pub(crate) fn release(&mut self) {
        for order in std::mem::take(&mut self.made.books.releases) {
            let bucket = self.bucket();
            bucket.gone.insert(order);
            bucket.outbox.retain(|entry| entry.order != order);
            if let Some(at) = bucket.holds.iter().position(|hold| hold.order == order) {
                let hold = bucket.holds.remove(at);
                *bucket.free.get_mut(&hold.item).unwrap() += signed(hold.units);
                bucket.seq += 1;
                bucket.counted_holds -= 1;
            }
        }
    }

    pub(crate) fn restock(&mut self, item: i64, units: i64) {
        let item = ItemId(item);
        self.made_ids += 1;
        let operation = Uuid::from_u128(self.made_ids).to_string();
        let epoch = self.made.books.sales[0].epoch;
        let state = "done".to_owned();
        let done = Restock { operation: operation.clone(), sale: SALE, item, units, epoch, state };
        self.made.books.restocks.push(done);
        self.made.books.items.iter_mut().find(|it| it.id == item).unwrap().quantity += units;
        let bucket = self.bucket();
        *bucket.free.get_mut(&item).unwrap() += units;
        *bucket.allocated.get_mut(&item).unwrap() += units;
        bucket.operations.insert(operation, units.to_string());
        bucket.seq += 1;
    }

    /// Fence, let everything land, load anew in the next epoch.
    pub(crate) fn rebuild(&mut self) {
        self.sweep();
        self.record();
        let sale = &mut self.made.books.sales[0];
        sale.epoch += 1;
        sale.recorded_seq = 0;
        let epoch = sale.epoch;
        for (partition, log) in (0_u64..).zip(&self.queue) {
            let at = position(partition, log.len() as u64);
            self.made.books.barriers.push(Barrier { sale: SALE, epoch, at });
        }
        *self.bucket() = Bucket {
            phase: Some(Phase::Fenced),
            loaded: false,
            limit: 0,
            seq: 0,
            counted_holds: 0,
            free: BTreeMap::new(),
            allocated: BTreeMap::new(),
            holds: Vec::new(),
            outbox: Vec::new(),
            gone: Default::default(),
            operations: BTreeMap::new(),
            unmarked: vec!["stk", "alc", "buy", "out", "gone", "ops"],
            ..self.bucket().clone()
        };
        self.load();
    }

    fn load(&mut self) {
        let books = &mut self.made.books;
        let sale = &books.sales[0];
        let live = books.orders.iter().filter(|order| order.status.is_live());
        let holds: Vec<Hold> = live
            .map(|order| Hold {
                order: order.id,
                user: order.user.clone(),
                item: order.item,
                units: order.units,
                seq: order.seq,
                epoch: order.epoch,
                reserved_at_ms: order.reserved_at_ms,
                retake_of: None,
            })
            .collect();
        let closed = books.orders.iter().filter(|order| !order.status.is_live());
        books.buckets.push(Bucket {
            sale: SALE,
            bucket: 0,
            epoch: sale.epoch,
            phase: Some(Phase::Open),
            loaded: true,
            limit: sale.limit,
            seq: 0,
            counted_holds: holds.len() as u64,
            free: books.items.iter().map(|item| (item.id, item.quantity - item.sold)).collect(),
            allocated: books.items.iter().map(|item| (item.id, item.quantity)).collect(),
            holds,
            outbox: Vec::new(),
            gone: closed.map(|order| order.id).collect(),
            operations: BTreeMap::new(),
            unmarked: Vec::new(),
        });
    }

    /// Everything lands.
    pub(crate) fn settle(mut self) -> Made {
        self.sweep();
        self.record();
        self.release();
        self.made.circumstances.at_rest = true;
        self.made.books.read_at_ms = self.now_ms();
        self.made.books.ends = (0_u64..)
            .zip(&self.queue)
            .map(|(partition, log)| position(partition, log.len() as u64))
            .collect();
        self.made
    }

    /// New users buy what is left of every item, and one more of each hears that it is sold out.
    pub(crate) fn sell_out(mut self) -> Made {
        self.release();
        self.advance(FLAG_LIFE_US + 1);
        for item in self.made.books.items.clone() {
            for number in 0..=item.quantity {
                let user = format!("last-{}-{number}", item.id);
                self.click(&user, item.id.0, 1, Some("last"), Fate::Answered);
            }
        }
        let mut made = self.settle();
        made.circumstances.demand_above_stock = true;
        made
    }
}

pub(crate) fn position(partition: u64, next: u64) -> Position {
    Position { topic: "orders".to_owned(), partition, next }
}

fn refusal(status: u16, error: &str) -> Answer {
    Answer { status, error: Some(error.to_owned()), ..Answer::default() }
}

fn shown(status: u16, order: OrderId, standing: Status) -> Answer {
    let word = format!("{standing:?}").to_uppercase();
    Answer { status, order: Some(order), order_status: Some(word), ..Answer::default() }
}

fn signed(units: u64) -> i64 {
    i64::try_from(units).unwrap()
}

/// One unit per user, clicks without keys: an order of every kind, a rebuild, a restock, a sell-out.
pub(crate) fn plain() -> Made {
    let mut sale = Model::open(7, 1, &[6, 4]);
    let a = sale.click("ann", 1, 1, None, Fate::Answered).unwrap();
    let b = sale.click("bob", 1, 1, None, Fate::Answered).unwrap();
    sale.click("cid", 1, 1, None, Fate::AnswerLost);
    sale.click("cid", 1, 1, None, Fate::Answered);
    sale.click("dan", 2, 1, None, Fate::NotAcknowledged);
    let e = sale.click("eve", 2, 1, None, Fate::Answered).unwrap();
    let f = sale.click("fay", 2, 1, None, Fate::Answered).unwrap();
    sale.cancel("fay", f);
    sale.click("gus", 2, 1, None, Fate::Busy);
    sale.click("gus", 2, 1, None, Fate::RequestLost);
    sale.click("gus", 2, 1, None, Fate::NotSent);
    sale.sweep();
    sale.record();
    sale.pay("ann", a, "pay-a", true, false);
    sale.cancel("bob", b);
    sale.release();
    sale.advance(50_000);
    let b2 = sale.click("bob", 1, 1, None, Fate::Answered).unwrap();
    sale.record();
    sale.expire(e);
    sale.pay("eve", e, "pay-e", false, false);
    sale.look("eve", e);
    sale.pay("bob", b2, "pay-b", true, true);
    sale.pay("bob", b2, "pay-b", true, false);
    sale.rebuild();
    sale.release();
    let h = sale.click("hal", 1, 1, None, Fate::Answered).unwrap();
    sale.record();
    sale.pay("hal", h, "pay-h", true, false);
    sale.refund(h);
    sale.release();
    sale.restock(2, 2);
    sale.advance(3_000_000);
    sale.sell_out()
}

/// Two units per user, with keys: replays, mismatches, a limit that is reached, less left than wanted.
pub(crate) fn keyed() -> Made {
    let mut sale = Model::open(8, 2, &[7, 3]);
    let a = sale.click("ann", 1, 2, Some("a1"), Fate::Answered).unwrap();
    sale.click("ann", 1, 2, Some("a1"), Fate::Answered);
    sale.click("ann", 1, 1, Some("a1"), Fate::Answered);
    sale.click("ann", 2, 1, Some("a2"), Fate::Answered);
    sale.click("bob", 1, 1, Some("b1"), Fate::AnswerLost);
    let b = sale.click("bob", 1, 1, Some("b1"), Fate::Answered).unwrap();
    let b2 = sale.click("bob", 1, 1, Some("b2"), Fate::Answered).unwrap();
    sale.click("cid", 2, 2, Some("c1"), Fate::Answered);
    sale.click("dan", 2, 2, Some("d1"), Fate::Answered);
    sale.record();
    sale.pay("ann", a, "pay-a", true, false);
    sale.cancel("bob", b2);
    sale.release();
    sale.click("bob", 1, 1, Some("b2"), Fate::Answered);
    sale.expire(b);
    sale.rebuild();
    sale.release();
    sale.advance(2_000_000);
    sale.sell_out()
}
