//! Questions about the topic. Every call here blocks until the brokers answer or time is up.

use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{Offset, TopicPartitionList};

use super::native;
use super::options::KafkaOptions;
use super::words::{Complaint, Quiet, fault, unanswered};
use crate::delivery::TopicId;
use crate::fault::{BackendError, Fault};

/// Lines and events of the client library that are taken out with each question: nobody else looks
/// into this client, and what nobody takes out stays.
const EVENTS_PER_QUESTION: usize = 16;

/// The topic as the brokers describe it.
pub(super) struct Shape {
    /// How many partitions.
    pub(super) partitions: usize,
    /// Copies of the partition that has the fewest.
    pub(super) copies: usize,
    /// Whether every partition can be written to.
    pub(super) led: bool,
}

/// A client that asks about one topic.
pub(super) struct Asker {
    client: BaseConsumer<Quiet>,
    brokers: String,
    /// How we prove a password, for messages.
    mechanism: &'static str,
    topic: String,
    partitions: u32,
    timeout: Duration,
}

impl Asker {
    /// A client that is not connected yet.
    ///
    /// # Errors
    /// The client library refuses the options.
    pub(super) fn new(options: &KafkaOptions) -> Result<Self, BackendError> {
        let client = options.client().create_with_context(Quiet::default()).map_err(refused)?;
        Ok(Self {
            client,
            brokers: options.brokers.clone(),
            mechanism: options.security.sasl.as_ref().map_or("no password", |sasl| sasl.mechanism.as_str()),
            topic: options.topic.clone(),
            partitions: options.partitions,
            timeout: options.answer_timeout,
        })
    }

    /// How many brokers there are, and the topic's shape where there is one.
    pub(super) fn shape(&self) -> Result<(usize, Option<Shape>), BackendError> {
        self.clear();
        let metadata = self.client.fetch_metadata(Some(&self.topic), self.timeout);
        let metadata = metadata.map_err(|error| self.silent(error))?;
        let topic = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let shape = match topic.map(|topic| (topic, topic.error())) {
            None | Some((_, Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART))) => None,
            // While it is being made.
            Some((_, Some(RDKafkaRespErr::RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE))) => None,
            Some((_, Some(error))) => {
                let error = KafkaError::MetadataFetch(error.into());
                return Err(unanswered(format!("the topic {} cannot be described", self.topic), error));
            }
            Some((topic, None)) => {
                let partitions = topic.partitions();
                Some(Shape {
                    partitions: partitions.len(),
                    copies: partitions.iter().map(|it| it.replicas().len()).min().unwrap_or(0),
                    led: partitions.iter().all(|it| it.leader() >= 0),
                })
            }
        };
        Ok((metadata.brokers().len(), shape))
    }

    /// The topic's identity; `None` when there is no such topic.
    pub(super) fn identity(&self) -> Result<Option<TopicId>, BackendError> {
        self.clear();
        // The library waits for brokers with this question, and not with the next: until one is there, that
        // one connects again at once whenever a connection is refused, and takes a processor for it.
        let there = self.client.fetch_metadata(Some(&self.topic), self.timeout);
        there.map_err(|error| self.silent(error))?;
        let asked = native::topic_id(self.client.client(), &self.topic, self.timeout);
        asked.map(|id| id.map(TopicId)).map_err(|code| self.silent(KafkaError::MetadataFetch(code)))
    }

    /// Behind everything that was acknowledged, by partition.
    pub(super) fn ends(&self) -> Result<Vec<u64>, BackendError> {
        self.offsets(Offset::End)
    }

    /// The first record that is still there, by partition.
    pub(super) fn beginnings(&self) -> Result<Vec<u64>, BackendError> {
        self.offsets(Offset::Beginning)
    }

    /// One question to each broker. (The call takes times; -1 and -2 mean end and beginning there,
    /// as they do in the list's offsets.)
    fn offsets(&self, which: Offset) -> Result<Vec<u64>, BackendError> {
        self.clear();
        let wrong = |error| unanswered(format!("where the topic {} ends", self.topic), error);
        let mut list = TopicPartitionList::new();
        for partition in 0..signed(self.partitions) {
            list.add_partition_offset(&self.topic, partition, which).map_err(wrong)?;
        }
        let answer = self.client.offsets_for_times(list, self.timeout).map_err(|error| self.silent(error))?;
        let elements = answer.elements();
        let mut offsets = Vec::with_capacity(elements.len());
        for partition in 0..signed(self.partitions) {
            let element = elements.iter().find(|it| it.partition() == partition);
            let offset = match element.map(|it| it.error().map(|()| it.offset())) {
                Some(Ok(Offset::Offset(offset))) => u64::try_from(offset).ok(),
                Some(Ok(_)) | None => None,
                Some(Err(error)) => return Err(wrong(error)),
            };
            let Some(offset) = offset else {
                let what =
                    format!("the brokers do not say where partition {partition} of {} ends", self.topic);
                return Err(fault(Fault::Transient, what));
            };
            offsets.push(offset);
        }
        Ok(offsets)
    }

    fn clear(&self) {
        for _ in 0..EVENTS_PER_QUESTION {
            let _ = self.client.poll(Duration::ZERO);
        }
    }

    fn silent(&self, error: KafkaError) -> BackendError {
        self.clear();
        let complaint = self.client.context().complaint();
        let refusal = complaint.as_ref().and_then(|it| refusal((&self.brokers, self.mechanism), it));
        let reason = complaint.map_or(String::new(), |it| format!(" ({})", it.reason));
        let what = match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::BrokerTransportFailure
                | RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::Resolve,
            ) => refusal.unwrap_or_else(|| {
                format!(
                    "no Kafka broker of {} answered within {:?}{reason}: check that they run, and that this \
                     machine may reach them",
                    self.brokers, self.timeout
                )
            }),
            _ => format!("Kafka did not answer about the topic {}{reason}", self.topic),
        };
        unanswered(what, error)
    }
}

/// In our words, what a broker said who is there and does not let us in, or is not believed. The library calls a
/// certificate that it does not believe a matter of TLS, or a connection that failed.
fn refusal((brokers, mechanism): (&str, &str), complaint: &Complaint) -> Option<String> {
    let reason = &complaint.reason;
    match complaint.code {
        Some(RDKafkaErrorCode::Authentication) => Some(format!(
            "Kafka at {brokers} refused this user ({reason}): check user and password, and that the brokers know the \
             user by {mechanism}"
        )),
        _ if reason.contains("certificate verify failed") => Some(format!(
            "Kafka at {brokers} does not prove who it is ({reason}): check the authorities' file, and that the \
             brokers' names are in their certificates"
        )),
        // A broker that does not like our certificate says so only when the handshake is over for us.
        _ if reason.contains("alert") && reason.contains("certificate") => Some(format!(
            "Kafka at {brokers} refused this client ({reason}): check the files of this client's certificate and \
             key, and that the brokers believe who signed it"
        )),
        Some(RDKafkaErrorCode::SSL) => Some(format!(
            "no encrypted connection to Kafka at {brokers} came about ({reason}): check that this port speaks TLS, \
             and this client's certificate and key, if the brokers ask for one"
        )),
        _ => None,
    }
}

/// The client library refuses what it was configured with.
pub(super) fn refused(error: KafkaError) -> BackendError {
    let files = if error.to_string().contains("ssl.") {
        ": check the files of the authorities, of this client's certificate and of its key, that the two belong \
         together, and the key's password"
    } else {
        ""
    };
    fault(Fault::Permanent, format!("the options for Kafka cannot be used{files}")).caused_by(error)
}

/// A partition as the client library counts it.
pub(super) fn signed(partition: u32) -> i32 {
    i32::try_from(partition).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_that_is_not_believed_is_told_whatever_the_library_calls_it() {
        let reason =
            "ssl://a:1/bootstrap: error:0A000086:SSL routines::certificate verify failed (after 3ms)";
        for code in [RDKafkaErrorCode::SSL, RDKafkaErrorCode::BrokerTransportFailure] {
            let complaint = Complaint { code: Some(code), reason: reason.to_owned() };
            let said = refusal(("a:1", "PLAIN"), &complaint).unwrap_or_default();
            assert!(said.contains("check the authorities' file"), "{code:?}: {said}");
        }
        let gone = Complaint {
            code: Some(RDKafkaErrorCode::BrokerTransportFailure),
            reason: "Connect to a:1 failed: Connection refused".to_owned(),
        };
        assert_eq!(refusal(("a:1", "PLAIN"), &gone), None);
    }
}
