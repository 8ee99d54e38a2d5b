//! Stock, queue and ledger on servers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::bail;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::ledger::Ledger;
use doorbuster_engine::queue::Queue;
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, Stock};

use super::ServerClocks;
use crate::config::Config;

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
    _config: &Config,
    _clocks: ServerClocks,
    _clock: &Arc<dyn Clock>,
) -> anyhow::Result<Arc<dyn Ledger>> {
    bail!("not there yet")
}

/// A file that a key names; an empty key names none.
fn named(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}
