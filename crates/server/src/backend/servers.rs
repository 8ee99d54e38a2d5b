//! Stock, queue and ledger on servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::ledger::{Ledger, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl};
use doorbuster_engine::queue::Queue;
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, Stock};

use super::ServerClocks;
use crate::config::{Config, PostgresTls as Tls};

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
    let keys = &config.postgres;
    let options = PostgresOptions {
        schema: keys.schema.clone(),
        pool_max: keys.pool_max,
        connect_timeout: keys.connect_timeout,
        statement_timeout: keys.statement_timeout,
        lock_timeout: keys.lock_timeout,
        tls: match keys.tls {
            Tls::Disable => PostgresTls::Disable,
            Tls::Prefer => PostgresTls::Prefer,
            Tls::Require => PostgresTls::Require,
            Tls::VerifyFull => PostgresTls::VerifyFull { ca_file: named(&keys.ca_file) },
        },
        migrate: keys.migrate,
        clock: match clocks {
            ServerClocks::Own => None,
            ServerClocks::Given => Some(Arc::clone(clock)),
        },
        ..PostgresOptions::new(PostgresUrl::new(config.postgres_url()?.reveal()))
    };
    Ok(Arc::new(PostgresLedger::connect(&options).await?))
}

/// A file that a key names; an empty key names none.
fn named(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}
