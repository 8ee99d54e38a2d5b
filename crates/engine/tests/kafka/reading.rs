//! Reading: shares, positions, and records that are none.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::delivery::{Decoded, TopicId};
use doorbuster_engine::fault::Fault;
use doorbuster_engine::queue::encode;
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{Offset, TopicPartitionList};

use super::*;

#[tokio::test]
async fn orders_spread_over_all_partitions_and_each_users_stay_together() {
    let queue = connect(&options(5)).await;
    let mut orders = orders(0..200);
    for (number, order) in (0..).zip(&mut orders) {
        order.reservation.user = sample::user(number % 40);
    }
    publish(&queue, &orders).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let (mut partitions, mut seen) = (BTreeMap::<_, HashSet<u32>>::new(), 0);
    while seen < 200 {
        let batch = next(reader.as_mut(), &start).await.unwrap();
        seen += batch.records.len();
        for order in batch.records.iter().filter_map(|it| it.contents.order()) {
            partitions.entry(order.reservation.user.clone()).or_default().insert(batch.from.partition);
        }
    }
    assert_eq!(partitions.len(), 40);
    assert!(partitions.values().all(|of_user| of_user.len() == 1), "a user is in one partition");
    assert_eq!(partitions.values().flatten().collect::<HashSet<_>>().len(), 5, "all partitions are used");
}

/// What a reader has: the partitions of its batches and the numbers of records.
async fn read_for(reader: &mut dyn Reader, positions: &mut [Position], seen: &mut Vec<(u32, u64)>) {
    match reader.next(10, WAIT).await.unwrap() {
        NextOutcome::Batch(batch) => {
            let place = positions.iter_mut().find(|it| it.partition == batch.from.partition).unwrap();
            assert_eq!(batch.from.next, place.next, "batches join");
            place.next = batch.next;
            seen.extend(batch.records.iter().map(|record| (batch.from.partition, record.offset)));
        }
        NextOutcome::Idle => {}
        NextOutcome::Moved => reader.seek(positions).await.unwrap(),
    }
}

#[tokio::test]
async fn two_readers_share_the_partitions_and_one_takes_over_from_the_other() {
    let options = options(4);
    let queue = connect(&options).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let (mut one, mut other) = (queue.reader().await.unwrap(), queue.reader().await.unwrap());
    let (mut of_one, mut of_other) = (Vec::new(), Vec::new());
    let (mut at_one, mut at_other) = (start.clone(), start.clone());
    one.seek(&start).await.unwrap();
    other.seek(&start).await.unwrap();

    // Until both have a share, what moves between them is read twice: only the ledger knows better.
    let mut published = 0;
    let both = async {
        loop {
            of_one.clear();
            of_other.clear();
            let ends = queue.end_positions().await.unwrap();
            (at_one, at_other) = (ends.clone(), ends);
            one.seek(&at_one).await.unwrap();
            other.seek(&at_other).await.unwrap();
            publish(&queue, &orders(published..published + 80)).await;
            published += 80;
            for _ in 0..20 {
                read_for(one.as_mut(), &mut at_one, &mut of_one).await;
                read_for(other.as_mut(), &mut at_other, &mut of_other).await;
            }
            if !of_one.is_empty() && !of_other.is_empty() && of_one.len() + of_other.len() == 80 {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, both).await.expect("the partitions are shared in time");
    let partitions = |seen: &[(u32, u64)]| seen.iter().map(|it| it.0).collect::<BTreeSet<u32>>();
    assert!(partitions(&of_one).is_disjoint(&partitions(&of_other)), "{of_one:?} {of_other:?}");

    drop(other);
    of_one.clear();
    at_one = queue.end_positions().await.unwrap();
    one.seek(&at_one).await.unwrap();
    publish(&queue, &orders(published..published + 80)).await;
    let alone = async {
        while of_one.len() < 80 {
            read_for(one.as_mut(), &mut at_one, &mut of_one).await;
        }
    };
    tokio::time::timeout(PATIENCE, alone).await.expect("the other's partitions come over");
    assert_eq!(partitions(&of_one).len(), 4);
    assert_eq!(of_one.iter().collect::<HashSet<_>>().len(), 80);
}

#[tokio::test]
async fn positions_of_another_topic_and_partitions_without_one_are_not_read() {
    let queue = connect(&options(2)).await;
    publish(&queue, &orders(0..40)).await;
    let mut start = beginning(&queue.end_positions().await.unwrap());
    start[1].topic = TopicId("another".to_owned());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let batch = next(reader.as_mut(), &start).await.unwrap();
    assert_eq!((batch.from.partition, batch.from.topic), (0, queue.topic_id().clone()));
    assert!(matches!(reader.next(500, WAIT).await.unwrap(), NextOutcome::Idle), "the other is not read");
}

#[tokio::test]
async fn a_position_that_is_not_in_the_log_is_an_error_and_nothing_is_skipped() {
    let options = options(1);
    let queue = connect(&options).await;
    publish(&queue, &orders(0..10)).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let place = |next| vec![Position { next, ..start[0].clone() }];
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&place(10)).await.unwrap();
    let joined = async { while !matches!(reader.next(500, WAIT).await.unwrap(), NextOutcome::Moved) {} };
    tokio::time::timeout(PATIENCE, joined).await.unwrap();

    let behind = reader.seek(&place(11)).await.unwrap_err();
    assert_eq!(behind.fault, Fault::Permanent);
    assert!(behind.to_string().contains("ends at record 10"), "{behind}");
    reader.seek(&place(10)).await.unwrap();

    let mut kept = TopicPartitionList::new();
    kept.add_partition_offset(&options.topic, 0, Offset::Offset(4)).unwrap();
    admin().delete_records(&kept, &AdminOptions::new()).await.unwrap();
    let deleted = reader.seek(&place(3)).await.unwrap_err();
    assert_eq!(deleted.fault, Fault::Permanent);
    assert!(deleted.to_string().contains("begins at record 4"), "{deleted}");
    reader.seek(&place(4)).await.unwrap();
    let batch = next(reader.as_mut(), &place(4)).await.unwrap();
    assert_eq!((batch.from.next, batch.next, batch.records.len()), (4, 10, 6));
}

#[tokio::test]
async fn strange_records_are_delivered_for_what_they_are_and_stop_nothing() {
    let options = options(1);
    let queue = connect(&options).await;
    let huge = vec![b'x'; 1_000_000];
    let strange: [&[u8]; 6] =
        [b"\xff\xfe", b"", b"{\"hello\":\"world\"}", &huge, b"{\"v\":2,\"order\":{}}", b"[1,2,3]"];
    for (number, payload) in (0..).zip(strange) {
        publish(&queue, &orders(number..number + 1)).await;
        append(&options.topic, 0, payload).await;
    }
    publish(&queue, &orders(6..7)).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let mut records = Vec::new();
    while records.len() < 13 {
        records.extend(next(reader.as_mut(), &start).await.unwrap().records);
    }
    for (offset, record) in (0..).zip(&records) {
        assert_eq!(record.offset, offset);
        match &record.contents {
            Decoded::Order(order) => assert_eq!(**order, sample::order_placed(offset / 2)),
            Decoded::UnknownVersion(version) => assert_eq!((offset, *version), (9, 2)),
            Decoded::Unreadable { .. } => assert!(offset % 2 == 1 && offset != 9),
            Decoded::Refused { .. } => panic!("nobody refused it"),
        }
    }
}

#[tokio::test]
async fn a_record_has_its_user_as_key_its_trace_as_header_and_the_queues_own_time() {
    let options = options(1);
    let queue = connect(&options).await;
    let mut order = sample::order_placed(1);
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    order.reservation.trace = Some(trace.to_owned());
    publish(&queue, std::slice::from_ref(&order)).await;

    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    let record = next(reader.as_mut(), &start).await.unwrap().records.remove(0);
    assert!(record.appended_at > Timestamp::from_ms(1_700_000_000_000), "{:?}", record.appended_at);

    let foreign: BaseConsumer = client().set("group.id", "foreign").create().unwrap();
    let mut place = TopicPartitionList::new();
    place.add_partition_offset(&options.topic, 0, Offset::Beginning).unwrap();
    foreign.assign(&place).unwrap();
    let message = foreign.poll(PATIENCE).unwrap().unwrap().detach();
    assert_eq!(message.key(), Some(&b"user-1"[..]));
    assert_eq!(message.payload(), Some(encode(&order).as_slice()));
    let headers: Vec<_> = message.headers().unwrap().iter().map(|it| (it.key.to_owned(), it.value)).collect();
    let expected =
        [("version".to_owned(), Some(&b"1"[..])), ("traceparent".to_owned(), Some(trace.as_bytes()))];
    assert_eq!(headers, expected);
}

#[tokio::test]
async fn the_group_is_told_what_was_applied_for_those_who_watch_its_lag() {
    let options = options(1);
    let queue = connect(&options).await;
    publish(&queue, &orders(0..10)).await;
    let start = beginning(&queue.end_positions().await.unwrap());
    let mut reader = queue.reader().await.unwrap();
    reader.seek(&start).await.unwrap();
    next(reader.as_mut(), &start).await.unwrap();

    let watcher: BaseConsumer = client().set("group.id", &options.group).create().unwrap();
    let mut list = TopicPartitionList::new();
    list.add_partition(&options.topic, 0);
    let told = async {
        loop {
            reader.next(500, WAIT).await.unwrap();
            let committed = watcher.committed_offsets(list.clone(), PATIENCE).unwrap();
            if committed.elements()[0].offset() == Offset::Offset(10) {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, told).await.expect("the group is told");
}
