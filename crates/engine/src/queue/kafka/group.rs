//! Which partitions are ours: a member of the consumer group that reads nothing.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use super::words;

/// What the group gave us.
#[derive(Default)]
pub(super) struct Membership {
    share: Mutex<Share>,
}

#[derive(Default)]
struct Share {
    partitions: BTreeSet<u32>,
    moved: bool,
}

impl Membership {
    /// Whether the share changed since it was last [taken](Self::take).
    pub(super) fn moved(&self) -> bool {
        self.share.lock().unwrap_or_else(PoisonError::into_inner).moved
    }

    /// The share as it is.
    pub(super) fn take(&self) -> BTreeSet<u32> {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        share.moved = false;
        share.partitions.clone()
    }

    fn change(&self, list: &TopicPartitionList, change: impl Fn(&mut BTreeSet<u32>, u32)) {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        for element in list.elements() {
            if let Ok(partition) = u32::try_from(element.partition()) {
                change(&mut share.partitions, partition);
                share.moved = true;
            }
        }
    }
}

impl ClientContext for Membership {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        words::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(%error, reason, "Kafka group");
    }
}

impl ConsumerContext for Membership {
    /// Takes what the group gives, and pauses it: another client reads, from the ledger's positions.
    /// (The place named here is the end, so that nobody asks for the group's own positions.)
    fn rebalance(&self, group: &BaseConsumer<Self>, event: RDKafkaRespErr, list: &mut TopicPartitionList) {
        let done = if event == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS {
            let taken = list.set_all_offsets(Offset::End).and_then(|()| group.incremental_assign(list));
            self.change(list, |share, partition| {
                share.insert(partition);
            });
            if list.count() > 0 { taken.and_then(|()| group.pause(list)) } else { taken }
        } else {
            self.change(list, |share, partition| {
                share.remove(&partition);
            });
            group.incremental_unassign(list)
        };
        if let Err(error) = done {
            tracing::error!(%error, "the recorder's share of the partitions could not be changed");
        }
    }
}
