//! Stock, queue and ledger on servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use doorbuster_engine::clock::Clock;
use doorbuster_engine::ledger::{
    Ledger, MigrationState, MigrationStatus, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl,
};
use doorbuster_engine::queue::{
    KafkaOptions, KafkaQueue, KafkaSasl, KafkaSecurity, KafkaTls, Queue, SaslMechanism,
};
use doorbuster_engine::room::{RedisRoom, Room};
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, Stock};

use super::{Migration, ServerClocks};
use crate::config::{self, Config};

pub(super) async fn redis(
    config: &Config,
    clocks: ServerClocks,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Stock>> {
    let stock = RedisStock::connect(redis_options(config, clocks, clock)?).await;
    Ok(Arc::new(
        stock.context("the stock cannot be used (keys redis.url, redis.url_file and those beside them)")?,
    ))
}

/// The waiting rooms in the same Redis, by the same clock.
pub(super) fn redis_room(
    config: &Config,
    clocks: ServerClocks,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Room>> {
    Ok(Arc::new(RedisRoom::new(&redis_options(config, clocks, clock)?, config.room_rules())?))
}

fn redis_options(
    config: &Config,
    clocks: ServerClocks,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<RedisOptions> {
    let keys = &config.redis;
    Ok(RedisOptions {
        clock: match clocks {
            ServerClocks::Own => RedisClock::Server,
            ServerClocks::Given => RedisClock::Given(Arc::clone(clock)),
        },
        prefix: keys.prefix.clone(),
        ca_file: named(&keys.ca_file),
        certificate: both("redis", &keys.certificate_file, &keys.key_file)?,
        connect_timeout: keys.connect_timeout,
        response_timeout: keys.response_timeout,
        ..RedisOptions::new(config.redis_url()?.reveal())
    })
}

pub(super) async fn kafka(config: &Config) -> anyhow::Result<Arc<dyn Queue>> {
    let keys = &config.kafka;
    let key_password = config.kafka_key_password()?.reveal().to_owned();
    let (certificate_file, key_file) = both("kafka", &keys.certificate_file, &keys.key_file)?.unzip();
    let tls = KafkaTls {
        ca_file: named(&keys.ca_file),
        certificate_file,
        key_file,
        key_password: Some(key_password).filter(|password| !password.is_empty()),
    };
    let sasl = KafkaSasl {
        mechanism: match keys.sasl_mechanism {
            config::SaslMechanism::Plain => SaslMechanism::Plain,
            config::SaslMechanism::ScramSha256 => SaslMechanism::ScramSha256,
            config::SaslMechanism::ScramSha512 => SaslMechanism::ScramSha512,
        },
        user: keys.user.clone(),
        password: config.kafka_password()?.reveal().to_owned(),
    };
    let (tls, sasl) = match keys.security {
        config::KafkaSecurity::Plaintext => (None, None),
        config::KafkaSecurity::Ssl => (Some(tls), None),
        config::KafkaSecurity::SaslPlaintext => (None, Some(sasl)),
        config::KafkaSecurity::SaslSsl => (Some(tls), Some(sasl)),
    };
    let options = KafkaOptions {
        topic: keys.topic.clone(),
        partitions: keys.partitions,
        replication: keys.replication,
        group: keys.group.clone(),
        message_timeout: keys.message_timeout,
        poll_interval_max: keys.poll_interval_max,
        retention: keys.retention,
        security: KafkaSecurity { tls, sasl },
        ..KafkaOptions::new(keys.brokers.join(","))
    };
    let queue = KafkaQueue::connect(options).await;
    Ok(Arc::new(queue.context(
        "the queue cannot be used (keys kafka.brokers, kafka.topic, kafka.partitions and those beside them)",
    )?))
}

pub(super) async fn postgres(
    config: &Config,
    clocks: ServerClocks,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Ledger>> {
    let clock = match clocks {
        ServerClocks::Own => None,
        ServerClocks::Given => Some(Arc::clone(clock)),
    };
    let options = PostgresOptions { clock, ..postgres_options(config)? };
    let ledger = PostgresLedger::connect(&options).await;
    Ok(Arc::new(
        ledger.context(
            "the ledger cannot be used (keys postgres.url, postgres.url_file and those beside them)",
        )?,
    ))
}

/// Applies the missing steps of the schema; answers every step.
pub(super) async fn migrate_up(config: &Config) -> anyhow::Result<Vec<Migration>> {
    Ok(PostgresLedger::migrate_up(&postgres_options(config)?).await?.into_iter().map(migration).collect())
}

/// Every step of the schema, applied or not.
pub(super) async fn migrate_status(config: &Config) -> anyhow::Result<Vec<Migration>> {
    Ok(PostgresLedger::migrate_status(&postgres_options(config)?).await?.into_iter().map(migration).collect())
}

/// Makes the database's roles with the least rights.
pub(super) async fn create_roles(config: &Config) -> anyhow::Result<()> {
    Ok(PostgresLedger::create_roles(&postgres_options(config)?).await?)
}

fn migration(status: MigrationStatus) -> Migration {
    let state = match status.state {
        MigrationState::Applied(_) => "applied",
        MigrationState::Missing => "missing",
        MigrationState::Changed => "changed",
        MigrationState::Unknown => "unknown",
    };
    Migration { version: status.version, name: status.name, state }
}

fn postgres_options(config: &Config) -> anyhow::Result<PostgresOptions> {
    let keys = &config.postgres;
    let url = PostgresUrl::new(config.postgres_url()?.reveal());
    Ok(PostgresOptions {
        schema: keys.schema.clone(),
        pool_max: keys.pool_max,
        connect_timeout: keys.connect_timeout,
        statement_timeout: keys.statement_timeout,
        lock_timeout: keys.lock_timeout,
        tls: match keys.tls {
            config::PostgresTls::Disable => PostgresTls::Disable,
            config::PostgresTls::Prefer => PostgresTls::Prefer,
            config::PostgresTls::Require => PostgresTls::Require,
            config::PostgresTls::VerifyFull => PostgresTls::VerifyFull { ca_file: named(&keys.ca_file) },
        },
        migrate: keys.migrate,
        release_spread: config.sale.release_spread,
        ..PostgresOptions::new(url)
    })
}

/// A client's certificate and its key; one of them alone is a mistake that the server on the other side
/// would only tell as "no certificate".
fn both(section: &str, certificate: &Path, key: &Path) -> anyhow::Result<Option<(PathBuf, PathBuf)>> {
    let (has, lacks) = match (named(certificate), named(key)) {
        (Some(certificate), Some(key)) => return Ok(Some((certificate, key))),
        (None, None) => return Ok(None),
        (Some(_), None) => ("certificate_file", "key_file"),
        (None, Some(_)) => ("key_file", "certificate_file"),
    };
    bail!(
        "{section}.{has} is set and {section}.{lacks} is not: a certificate needs its key, set both or none"
    )
}

/// A file that a key names; an empty key names none.
fn named(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}
