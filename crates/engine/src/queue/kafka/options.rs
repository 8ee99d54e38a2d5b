//! How to reach Kafka, and what the topic should be like.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

/// How to reach Kafka, and what the topic should be like.
#[derive(Clone, Debug)]
pub struct KafkaOptions {
    /// Some of the brokers, as `host:port` with commas between; the others are learned from them.
    pub brokers: String,
    /// The topic's name. It is made where it is missing.
    pub topic: String,
    /// How many partitions the topic has. Never changed later: a user's orders would change place.
    pub partitions: u32,
    /// How many brokers keep each record. With three and more, two must have it before it is
    /// acknowledged.
    pub replication: u16,
    /// How long a topic that is made here keeps its records, recorded or not.
    pub retention: Duration,
    /// How the connection is secured.
    pub security: KafkaSecurity,
    /// Longest wait for a record's acknowledgement, 3 to 5 s; afterwards nobody knows.
    pub message_timeout: Duration,
    /// Longest wait for any other answer.
    pub answer_timeout: Duration,
    /// A recorder that asks for no records for this long loses its partitions to the others; at least
    /// 6 s, which is the shortest silence that brokers let a member of a group have.
    pub poll_interval_max: Duration,
    /// Most orders that may wait for their acknowledgement in this process; more are refused at once.
    pub waiting_max: u32,
    /// What the brokers' logs and quotas know this process by.
    pub client_id: String,
    /// The consumer group in which the recorders share the partitions.
    pub group: String,
}

impl KafkaOptions {
    /// The usual ones over these brokers: topic `flash-sale-orders` with 16 partitions on three
    /// brokers each, no encryption, 5 s.
    pub fn new(brokers: impl Into<String>) -> Self {
        Self {
            brokers: brokers.into(),
            topic: "flash-sale-orders".to_owned(),
            partitions: 16,
            replication: 3,
            retention: Duration::from_secs(7 * 24 * 3_600),
            security: KafkaSecurity::default(),
            message_timeout: Duration::from_secs(5),
            answer_timeout: Duration::from_secs(5),
            poll_interval_max: Duration::from_secs(60),
            waiting_max: 65_536,
            client_id: "doorbuster".to_owned(),
            group: "doorbuster-recorders".to_owned(),
        }
    }

    /// Brokers that must have a record before it is acknowledged.
    pub(super) fn in_sync_min(&self) -> u16 {
        if self.replication >= 3 { 2 } else { 1 }
    }

    /// What every client of ours is told.
    pub(super) fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.brokers)
            .set("client.id", &self.client_id)
            .set("allow.auto.create.topics", "false")
            // A broker that comes back is found within a second, not within ten.
            .set("reconnect.backoff.max.ms", "1000")
            .set("socket.timeout.ms", ms(self.answer_timeout.max(self.message_timeout)))
            .set("socket.nagle.disable", "true")
            // Ours are no transactions, and somebody else's open one must hold back neither the records
            // nor what the brokers call the end.
            .set("isolation.level", "read_uncommitted")
            .set_log_level(RDKafkaLogLevel::Warning);
        self.security.set(&mut config);
        config
    }

    /// What the client that publishes is told besides.
    pub(super) fn producer(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("acks", "all")
            .set("enable.idempotence", "true")
            // Who comes within a millisecond shares a request.
            .set("linger.ms", "1")
            .set("message.timeout.ms", ms(self.message_timeout))
            .set("request.timeout.ms", ms(self.message_timeout))
            .set("queue.buffering.max.messages", self.waiting_max.to_string())
            .set("queue.buffering.max.kbytes", QUEUE_KBYTES);
        config
    }

    /// What a client that reads is told besides.
    pub(super) fn consumer(&self) -> ClientConfig {
        let mut config = self.client();
        config
            .set("group.id", &self.group)
            .set("partition.assignment.strategy", "cooperative-sticky")
            // A recorder that was killed is missed after the first, one that hangs after the last. (The
            // library beats the heart by itself, so the first says nothing about a step that hangs.)
            .set("session.timeout.ms", ms(self.poll_interval_max.min(SESSION)))
            .set("heartbeat.interval.ms", "1000")
            .set("max.poll.interval.ms", ms(self.poll_interval_max))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // Positions are the ledger's; one that is not in the log is told, never replaced.
            .set("auto.offset.reset", "error")
            .set("check.crcs", "true")
            .set("fetch.wait.max.ms", "100")
            .set("queued.min.messages", "10000")
            .set("queued.max.messages.kbytes", FETCHED_KBYTES);
        config
    }
}

/// A recorder that was killed is missed after this time.
const SESSION: Duration = Duration::from_secs(10);

/// Most kilobytes of orders that wait for their acknowledgement; one needs about half a kilobyte.
const QUEUE_KBYTES: &str = "65536";

/// Most kilobytes that are fetched ahead, over all partitions.
const FETCHED_KBYTES: &str = "8192";

pub(super) fn ms(time: Duration) -> String {
    time.as_millis().to_string()
}

/// How connections to Kafka are secured: not at all by default.
#[derive(Clone, Debug, Default)]
pub struct KafkaSecurity {
    /// Encryption; none on a network that is trusted.
    pub tls: Option<KafkaTls>,
    /// Who we are, by a user's name and password.
    pub sasl: Option<KafkaSasl>,
}

/// Encryption, and who is believed.
#[derive(Clone, Default)]
pub struct KafkaTls {
    /// File with the certificates of the authorities that are believed, in PEM; the system's own
    /// when none is named.
    pub ca_file: Option<PathBuf>,
    /// File with our certificate, in PEM, where the brokers ask for one.
    pub certificate_file: Option<PathBuf>,
    /// File with the key of that certificate, in PEM.
    pub key_file: Option<PathBuf>,
    /// What the key's file is encrypted with; `None` for one that is not. Never printed.
    pub key_password: Option<String>,
}

impl fmt::Debug for KafkaTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTls")
            .field("ca_file", &self.ca_file)
            .field("certificate_file", &self.certificate_file)
            .field("key_file", &self.key_file)
            .finish_non_exhaustive()
    }
}

/// A user's name and password.
#[derive(Clone)]
pub struct KafkaSasl {
    /// How the password is proved.
    pub mechanism: SaslMechanism,
    /// The user's name.
    pub user: String,
    /// The password; never printed.
    pub password: String,
}

/// How a password is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslMechanism {
    /// It is sent as it is: over TLS only.
    Plain,
    /// SCRAM with SHA-256.
    ScramSha256,
    /// SCRAM with SHA-512.
    ScramSha512,
}

impl SaslMechanism {
    /// Its name, as brokers and their operators know it.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Plain => "PLAIN",
            Self::ScramSha256 => "SCRAM-SHA-256",
            Self::ScramSha512 => "SCRAM-SHA-512",
        }
    }
}

impl fmt::Debug for KafkaSasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaSasl")
            .field("mechanism", &self.mechanism)
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl KafkaSecurity {
    fn set(&self, config: &mut ClientConfig) {
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => "plaintext",
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        config.set("security.protocol", protocol);
        if let Some(tls) = &self.tls {
            let ca = tls.ca_file.as_ref().map_or("probe".to_owned(), |file| file.display().to_string());
            config.set("ssl.ca.location", ca);
            let files =
                [("ssl.certificate.location", &tls.certificate_file), ("ssl.key.location", &tls.key_file)];
            for (key, file) in files {
                if let Some(file) = file {
                    config.set(key, file.display().to_string());
                }
            }
            if let Some(password) = &tls.key_password {
                config.set("ssl.key.password", password);
            }
        }
        if let Some(sasl) = &self.sasl {
            config.set("sasl.mechanism", sasl.mechanism.as_str());
            config.set("sasl.username", &sasl.user).set("sasl.password", &sasl.password);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_protocol_follows_from_what_is_configured() {
        let sasl = KafkaSasl {
            mechanism: SaslMechanism::ScramSha512,
            user: "shop".to_owned(),
            password: "hunter2".to_owned(),
        };
        let tls = KafkaTls {
            ca_file: Some("ca.pem".into()),
            key_password: Some("hunter2".to_owned()),
            ..KafkaTls::default()
        };
        let cases = [
            (None, None, "plaintext"),
            (Some(tls.clone()), None, "ssl"),
            (None, Some(sasl.clone()), "sasl_plaintext"),
            (Some(tls), Some(sasl), "sasl_ssl"),
        ];
        for (tls, sasl, protocol) in cases {
            let mut options = KafkaOptions::new("127.0.0.1:1");
            options.security = KafkaSecurity { tls, sasl };
            for config in [options.producer(), options.consumer()] {
                assert_eq!(config.get("security.protocol"), Some(protocol));
                config.create_native_config().expect("the library knows every key and value");
            }
            assert!(!format!("{options:?}").contains("hunter2"), "a password is not printed");
        }
    }
}
