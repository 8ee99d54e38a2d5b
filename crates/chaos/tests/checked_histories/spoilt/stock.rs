//! What is spoilt in the stock.

use doorbuster_chaos::books::{Bucket, Hold, OutboxEntry, Phase, Status};

use super::{Spoiling, one_epoch, row, unknown};
use crate::made::{Made, plain};

pub(super) const SPOILINGS: &[Spoiling] = &[
    ("one user holds what two may", "I3", plain, |made| {
        let user = bucket(made).holds[0].user.clone();
        bucket(made).holds[1].user = user;
    }),
    ("one unit too many is free", "I7", plain, |made| *free(made) += 1),
    ("free and allocated are both one less than held", "I7", plain, |made| *free(made) -= 1),
    ("a hold is lost", "I7", plain, |made| drop(bucket(made).holds.pop())),
    ("a hold is not counted", "I7", plain, |made| bucket(made).counted_holds -= 1),
    ("a key has lost its mark", "I7", plain, |made| bucket(made).unmarked.push("gone")),
    ("the outbox has an order that holds nothing", "I7", plain, |made| {
        let entry = OutboxEntry { order: unknown(3), user: "ann".to_owned(), seq: 1 };
        bucket(made).outbox.push(entry);
    }),
    ("an item is allocated and not known to be free", "I7", plain, |made| {
        let item = made.books.items[0].id;
        bucket(made).free.remove(&item);
    }),
    ("a live order was released", "I8", plain, |made| {
        let hold = bucket(made).holds.pop().unwrap();
        give_back(made, &hold);
    }),
    ("a closed order holds", "I8", one_epoch, |made| {
        let closed = row(made, Status::Cancelled).clone();
        let hold = Hold {
            order: closed.id,
            user: closed.user,
            item: closed.item,
            units: closed.units,
            seq: closed.seq,
            epoch: closed.epoch,
            reserved_at_ms: 0,
            retake_of: None,
        };
        *free(made) -= 1;
        bucket(made).counted_holds += 1;
        bucket(made).holds.push(hold);
    }),
    ("a hold is somebody else's than the order", "I8", plain, |made| {
        bucket(made).holds[0].user = "eve".to_owned();
    }),
    ("the stock has less than the ledger", "I8", plain, |made| {
        let item = made.books.items[1].id;
        *bucket(made).free.get_mut(&item).unwrap() -= 1;
        *bucket(made).allocated.get_mut(&item).unwrap() -= 1;
    }),
    ("the stock is not there", "I8", plain, |made| drop(made.books.buckets.pop())),
    ("the stock is still loading", "I8", plain, |made| bucket(made).phase = Some(Phase::Loading)),
    ("the fence was never lifted", "I8", plain, |made| {
        made.books.sales[0].fence = Some("rebuild".to_owned())
    }),
    ("a release was done twice", "I9", one_epoch, |made| bucket(made).seq += 1),
    ("a release left no step", "I9", one_epoch, |made| bucket(made).seq -= 1),
    ("an order that is gone holds", "I9", plain, |made| {
        let order = bucket(made).holds[0].order;
        bucket(made).gone.insert(order);
    }),
    ("an order holds twice", "I9", plain, |made| {
        let hold = bucket(made).holds[0].clone();
        bucket(made).holds.push(hold);
    }),
    ("an order was reserved a second time", "I9", plain, |made| bucket(made).holds[0].seq += 100),
    ("what is gone is live", "I10", plain, |made| {
        let order = row(made, Status::Paid).id;
        bucket(made).gone.insert(order);
    }),
    ("what is to be released is live", "I10", plain, |made| {
        let order = row(made, Status::Pending).id;
        made.books.releases.push(order);
    }),
    ("what is gone was never recorded", "I10", plain, |made| {
        bucket(made).gone.insert(unknown(4));
    }),
    ("one unit is stranded", "I12", plain, |made| {
        made.books.items[0].quantity += 1;
        let item = made.books.items[0].id;
        *free(made) += 1;
        *bucket(made).allocated.get_mut(&item).unwrap() += 1;
    }),
    ("an order has a step that the stock never made", "I15", plain, |made| {
        bucket(made).seq = 1;
    }),
    ("two epochs sell", "I15", plain, |made| made.books.buckets[0].phase = Some(Phase::Open)),
    ("an outbox entry waits at rest", "I18", plain, wait_in_the_outbox),
    ("an outbox entry waits too long", "I18", plain, |made| {
        wait_in_the_outbox(made);
        made.circumstances.at_rest = false;
        made.books.read_at_ms += 121_000;
    }),
];

/// The bucket of the present epoch.
fn bucket(made: &mut Made) -> &mut Bucket {
    made.books.buckets.last_mut().unwrap()
}

/// The free units of the first item.
fn free(made: &mut Made) -> &mut i64 {
    let item = made.books.items[0].id;
    bucket(made).free.get_mut(&item).unwrap()
}

fn give_back(made: &mut Made, hold: &Hold) {
    let bucket = bucket(made);
    *bucket.free.get_mut(&hold.item).unwrap() += i64::try_from(hold.units).unwrap();
    bucket.counted_holds -= 1;
    bucket.seq += 1;
}

fn wait_in_the_outbox(made: &mut Made) {
    let hold = bucket(made).holds[0].clone();
    bucket(made).outbox.push(OutboxEntry { order: hold.order, user: hold.user, seq: hold.seq });
}
