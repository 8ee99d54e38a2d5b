//! The topic at the start: made where it is missing, refused where it does not fit.

use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::error::RDKafkaErrorCode;

use super::ask::{Asker, Shape, refused, signed};
use super::blocking;
use super::options::{KafkaOptions, ms};
use super::words::{Quiet, fault, unanswered};
use crate::delivery::TopicId;
use crate::fault::{BackendError, Fault};

/// How often a topic that is being made is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Records that are deleted sooner may go before a ledger that was away for a night has them.
const RETENTION_SHORT: Duration = Duration::from_secs(24 * 3_600);

/// Makes sure of the topic and answers its identity.
///
/// # Errors
/// No broker answers, the topic cannot be made, or one of another number of partitions is there.
pub(super) async fn prepare(options: &KafkaOptions, asker: &Arc<Asker>) -> Result<TopicId, BackendError> {
    let admin: AdminClient<Quiet> =
        options.client().create_with_context(Quiet::default()).map_err(refused)?;
    let prepared = prepare_by(options, asker, &admin).await;
    // It waits for its thread.
    blocking(move || {
        drop(admin);
        Ok(())
    })
    .await?;
    prepared
}

async fn prepare_by(
    options: &KafkaOptions,
    asker: &Arc<Asker>,
    admin: &AdminClient<Quiet>,
) -> Result<TopicId, BackendError> {
    let (brokers, shape) = shape(asker).await?;
    let shape = match shape {
        Some(shape) => shape,
        None => {
            make(options, admin, brokers).await?;
            made(options, asker).await?
        }
    };
    check(options, brokers, &shape)?;
    warn_of_settings(options, admin).await;
    let asker = Arc::clone(asker);
    let identity = blocking(move || asker.identity()).await?;
    identity.ok_or_else(|| {
        fault(Fault::Transient, format!("the topic {} was deleted at this moment", options.topic))
    })
}

async fn shape(asker: &Arc<Asker>) -> Result<(usize, Option<Shape>), BackendError> {
    let asker = Arc::clone(asker);
    blocking(move || asker.shape()).await
}

/// Makes the topic. Another process may do so at the same time.
async fn make(
    options: &KafkaOptions,
    admin: &AdminClient<Quiet>,
    brokers: usize,
) -> Result<(), BackendError> {
    let copies = usize::from(options.replication.max(1)).min(brokers.max(1));
    if copies < usize::from(options.replication) {
        tracing::warn!(
            topic = options.topic,
            wanted = options.replication,
            brokers,
            "there are fewer brokers than copies wanted: the topic is made with one copy per broker"
        );
    }
    let in_sync = if copies >= 3 { options.in_sync_min() } else { 1 };
    let in_sync = in_sync.to_string();
    let retention = ms(options.retention);
    let replication = TopicReplication::Fixed(i32::try_from(copies).unwrap_or(1));
    let topic = NewTopic::new(&options.topic, signed(options.partitions), replication)
        .set("min.insync.replicas", &in_sync)
        // The time at which the queue took a record, by one clock and not by each gateway's.
        .set("message.timestamp.type", "LogAppendTime")
        .set("cleanup.policy", "delete")
        // Said here, since the brokers' own default may be anything; and by time alone, since a limit in
        // bytes would delete soonest when a sale brings most.
        .set("retention.ms", &retention)
        .set("retention.bytes", "-1")
        .set("unclean.leader.election.enable", "false");
    let patience = AdminOptions::new()
        .request_timeout(Some(options.answer_timeout))
        .operation_timeout(Some(options.answer_timeout));
    let what = || format!("the topic {} is missing and cannot be made", options.topic);
    let results =
        admin.create_topics([&topic], &patience).await.map_err(|error| unanswered(what(), error))?;
    for result in results {
        match result {
            Ok(_) => tracing::info!(topic = options.topic, options.partitions, copies, "made the topic"),
            Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
            Err((_, code)) => return Err(fault(Fault::Permanent, what()).caused_by(code)),
        }
    }
    Ok(())
}

/// Waits until every partition of the topic has a leader, and each leader knows that it is one: for a
/// moment brokers name leaders that still refuse.
async fn made(options: &KafkaOptions, asker: &Arc<Asker>) -> Result<Shape, BackendError> {
    let mut look = tokio::time::interval(LOOK);
    let there = async {
        loop {
            look.tick().await;
            match shape(asker).await? {
                (_, Some(shape)) if shape.led => {
                    let asker = Arc::clone(asker);
                    match blocking(move || asker.ends()).await {
                        Ok(_) => return Ok(shape),
                        Err(error) if error.fault == Fault::Permanent => return Err(error),
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
    };
    tokio::time::timeout(options.answer_timeout, there).await.unwrap_or_else(|_| {
        let what = format!(
            "the topic {} was made and is not ready within {:?}",
            options.topic, options.answer_timeout
        );
        Err(fault(Fault::Transient, what))
    })
}

fn check(options: &KafkaOptions, brokers: usize, shape: &Shape) -> Result<(), BackendError> {
    if u32::try_from(shape.partitions) != Ok(options.partitions) {
        let what = format!(
            "the topic {} has {} partitions, and {} are configured: with another number, a user's orders would go \
             to another partition. Configure {}, or name another topic",
            options.topic, shape.partitions, options.partitions, shape.partitions
        );
        return Err(fault(Fault::Permanent, what));
    }
    if shape.copies < usize::from(options.replication) {
        tracing::warn!(
            topic = options.topic,
            wanted = options.replication,
            copies = shape.copies,
            brokers,
            "the topic keeps fewer copies than wanted: an order that was answered 202 may be lost with a broker, \
             unless the stock still has it"
        );
    }
    Ok(())
}

/// Settings of the topic that are legal and not what we want are told, no more: they may be meant.
async fn warn_of_settings(options: &KafkaOptions, admin: &AdminClient<Quiet>) {
    let patience = AdminOptions::new().request_timeout(Some(options.answer_timeout));
    let described = admin.describe_configs([&ResourceSpecifier::Topic(&options.topic)], &patience).await;
    let settings = match described.map(|mut results| results.pop()) {
        Ok(Some(Ok(settings))) => settings,
        Ok(Some(Err(code))) => {
            return tracing::warn!(topic = options.topic, %code, "the topic's settings cannot be read");
        }
        Ok(None) => return,
        Err(error) => {
            return tracing::warn!(topic = options.topic, %error, "the topic's settings cannot be read");
        }
    };
    let value = |name: &str| settings.get(name).and_then(|entry| entry.value.as_deref()).unwrap_or_default();
    for complaint in complaints(options, value) {
        tracing::warn!(topic = options.topic, complaint);
    }
}

/// What is dangerous about the topic's settings, which `value` gives by their names.
fn complaints<'a>(options: &KafkaOptions, value: impl Fn(&str) -> &'a str) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut complain = |what: &str| complaints.push(what.to_owned());
    if value("min.insync.replicas").parse().unwrap_or(1) < options.in_sync_min() {
        complain(
            "min.insync.replicas is below 2: a record is acknowledged while only one broker has it; set it to 2",
        );
    }
    if value("message.timestamp.type") != "LogAppendTime" {
        complain(
            "message.timestamp.type is not LogAppendTime: a record's age is judged by the gateways' clocks",
        );
    }
    if value("cleanup.policy") != "delete" {
        complain(
            "cleanup.policy is not delete: a compacted topic drops a user's earlier orders; set it to delete",
        );
    }
    // Without a limit it is -1, which is no time.
    if let Ok(kept) = value("retention.ms").parse().map(Duration::from_millis)
        && kept < RETENTION_SHORT
    {
        complain(&format!(
            "retention.ms keeps records for {} min only: orders are deleted before they are recorded when the \
             ledger is away for longer; set it to {} (seven days)",
            kept.as_secs() / 60,
            ms(Duration::from_secs(7 * 24 * 3_600))
        ));
    }
    if value("retention.bytes").parse().is_ok_and(|limit: u64| limit > 0) {
        complain(
            "retention.bytes limits the topic's size: a rush deletes orders before they are recorded; set it to -1",
        );
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dangerous_settings_are_told_and_good_ones_are_not() {
        let good = [
            ("min.insync.replicas", "2"),
            ("message.timestamp.type", "LogAppendTime"),
            ("cleanup.policy", "delete"),
            ("retention.ms", "604800000"),
            ("retention.bytes", "-1"),
        ];
        let with = |changed: &'static str, to: &'static str| {
            move |name: &str| {
                let kept = good.iter().find(|(it, _)| *it == name).map_or("", |(_, value)| value);
                if name == changed { to } else { kept }
            }
        };
        let options = KafkaOptions::new("127.0.0.1:1");
        assert_eq!(complaints(&options, with("", "")), Vec::<String>::new());
        assert_eq!(complaints(&options, with("retention.ms", "-1")), Vec::<String>::new(), "for ever");
        for (name, value) in [
            ("min.insync.replicas", "1"),
            ("message.timestamp.type", "CreateTime"),
            ("cleanup.policy", "compact"),
            ("retention.ms", "3600000"),
            ("retention.bytes", "1073741824"),
        ] {
            let told = complaints(&options, with(name, value));
            assert!(told.len() == 1 && told[0].starts_with(name), "{name}: {told:?}");
        }
        let alone = KafkaOptions { replication: 1, ..options };
        assert!(complaints(&alone, with("min.insync.replicas", "1")).is_empty(), "one copy, one in sync");
    }
}
