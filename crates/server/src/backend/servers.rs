//! Stock, queue and ledger on servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::ledger::{
    Ledger, MigrationState, MigrationStatus, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl,
};
use doorbuster_engine::queue::Queue;
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, Stock};

use super::{Migration, ServerClocks};
use crate::config::{self, Config};

pub(super) async fn redis(
    config: &Config,
    clocks: ServerClocks,
    clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Stock>> {
    let keys = &config.redis;
    let options = RedisOptions {
        url: config.redis_url()?.reveal().to_owned(),
        prefix: keys.prefix.clone(),
        ca_file: named(&keys.ca_file),
        certificate: named(&keys.certificate_file).zip(named(&keys.key_file)),
        connect_timeout: keys.connect_timeout,
        response_timeout: keys.response_timeout,
        clock: match clocks {
            ServerClocks::Own => RedisClock::Server,
            ServerClocks::Given => RedisClock::Given(Arc::clone(clock)),
        },
    };
    Ok(Arc::new(RedisStock::connect(options).await?))
}

pub(super) async fn kafka(_config: &Config) -> anyhow::Result<Arc<dyn Queue>> {
    bail!("not there yet")
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
    Ok(Arc::new(PostgresLedger::connect(&options).await?))
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
        ..PostgresOptions::new(url)
    })
}

/// A file that a key names; an empty key names none.
fn named(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}
