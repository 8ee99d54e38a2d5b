//! The only place that names the backends.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use doorbuster_engine::clock::Clock;
use doorbuster_engine::delivery::{Position, TopicId};
use doorbuster_engine::ledger::{Ledger, SqliteLedger};
use doorbuster_engine::queue::{EmbeddedQueue, Queue, QueueOptions};
use doorbuster_engine::room::{EmbeddedRoom, Room};
use doorbuster_engine::stock::{EmbeddedStock, Stock};
use doorbuster_engine::workers::Backends;

use crate::config::{Config, LedgerBackend, QueueBackend, StockBackend};
use crate::directory::DirectoryLock;

#[cfg(feature = "distributed")]
mod servers;

/// Without the feature, a configuration that names a server is told why it cannot be had.
#[cfg(not(feature = "distributed"))]
mod servers {
    use super::{Arc, Clock, Config, Ledger, Migration, Queue, Room, ServerClocks, Stock, bail};

    fn not_built_in<T>(what: &str) -> anyhow::Result<T> {
        bail!(
            "{what} is not built into this program: build it with `cargo build --release --features distributed`, \
             or choose the embedded backends"
        )
    }

    pub(super) async fn redis(
        _: &Config,
        _: ServerClocks,
        _: &Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<dyn Stock>> {
        not_built_in("stock.backend = redis")
    }

    pub(super) fn redis_room(
        _: &Config,
        _: ServerClocks,
        _: &Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<dyn Room>> {
        not_built_in("stock.backend = redis")
    }

    pub(super) async fn kafka(_: &Config) -> anyhow::Result<Arc<dyn Queue>> {
        not_built_in("queue.backend = kafka")
    }

    pub(super) async fn migrate_up(_: &Config) -> anyhow::Result<Vec<Migration>> {
        not_built_in("a PostgreSQL ledger")
    }

    pub(super) async fn migrate_status(_: &Config) -> anyhow::Result<Vec<Migration>> {
        not_built_in("a PostgreSQL ledger")
    }

    pub(super) async fn create_roles(_: &Config) -> anyhow::Result<()> {
        not_built_in("a PostgreSQL ledger")
    }

    pub(super) async fn postgres(
        _: &Config,
        _: ServerClocks,
        _: &Arc<dyn Clock>,
    ) -> anyhow::Result<Arc<dyn Ledger>> {
        not_built_in("ledger.backend = postgres")
    }
}

/// Exit code when the log's disk failed and its state is unknown (EX_SOFTWARE of sysexits).
const FATAL_DISK: i32 = 70;

/// Whose clock a server decides by: windows in a stock, deadlines in a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerClocks {
    /// Its own, which is the same for all processes.
    Own,
    /// Ours; for tests that move it.
    Given,
}

/// Open backends and what must live as long as they are used.
pub struct Opened {
    /// The stages.
    pub backends: Backends,
    /// The waiting rooms, which are where the stock is.
    pub room: Arc<dyn Room>,
    _lock: Option<DirectoryLock>,
}

/// Opens the stages that the configuration names.
///
/// # Errors
/// When a server cannot be reached or used, the data directory is in use, cannot be written or is
/// damaged, or queue and ledger do not belong together; the message says what to do.
pub async fn open(config: &Config, clock: Arc<dyn Clock>, clocks: ServerClocks) -> anyhow::Result<Opened> {
    let folder = config.data.dir.as_path();
    let lock = if config.uses_data_dir() { Some(DirectoryLock::take(folder)?) } else { None };
    let ledger = match config.ledger.backend {
        LedgerBackend::Sqlite => sqlite(folder, config, &clock)?,
        LedgerBackend::Postgres => servers::postgres(config, clocks, &clock).await?,
    };
    let positions = ledger.positions().await?;
    let queue = match config.queue.backend {
        QueueBackend::Embedded => log(folder, &positions, &clock)?,
        QueueBackend::Kafka => servers::kafka(config).await?,
    };
    let stock: Arc<dyn Stock> = match config.stock.backend {
        StockBackend::Embedded => Arc::new(EmbeddedStock::new(Arc::clone(&clock))),
        StockBackend::Redis => servers::redis(config, clocks, &clock).await?,
    };
    let room: Arc<dyn Room> = match config.stock.backend {
        StockBackend::Embedded => Arc::new(EmbeddedRoom::new(config.room_rules())),
        StockBackend::Redis => servers::redis_room(config, clocks, &clock)?,
    };
    let name = match config.queue.backend {
        QueueBackend::Embedded => format!("the queue in {}", folder.display()),
        QueueBackend::Kafka => {
            format!("the topic {} at {}", config.kafka.topic, config.kafka.brokers.join(","))
        }
    };
    belong_together(&name, &positions, &queue.end_positions().await?)?;
    Ok(Opened { backends: Backends { stock, queue, ledger, clock }, room, _lock: lock })
}

/// One step of a ledger's schema.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Migration {
    /// Its place in the order of steps, from 1.
    pub version: u32,
    /// What it does, in a word or two.
    pub name: String,
    /// `applied`, `missing`, `changed` (applied with another text) or `unknown` (a newer program's).
    pub state: &'static str,
}

/// Brings the PostgreSQL ledger's schema up to date; answers every step.
///
/// # Errors
/// When the database cannot be reached, or its schema is a newer program's; the message says what to do.
pub async fn migrate_up(config: &Config) -> anyhow::Result<Vec<Migration>> {
    servers::migrate_up(config).await
}

/// Every step of the PostgreSQL ledger's schema.
///
/// # Errors
/// As [`migrate_up`].
pub async fn migrate_status(config: &Config) -> anyhow::Result<Vec<Migration>> {
    servers::migrate_status(config).await
}

/// Makes database roles with just the rights that each of our roles needs.
///
/// # Errors
/// As [`migrate_up`], and when the user may not make roles.
pub async fn create_roles(config: &Config) -> anyhow::Result<()> {
    servers::create_roles(config).await
}

/// Opens the embedded engine in `folder`: stock in memory, queue and ledger in files.
///
/// # Errors
/// When the folder is in use, cannot be written, is damaged, or its queue and ledger do not
/// belong together; the message says what to do.
pub async fn open_embedded(folder: &Path, clock: Arc<dyn Clock>) -> anyhow::Result<Opened> {
    let flags = [("data.dir".to_owned(), folder.display().to_string())];
    open(&Config::read(None, [], &flags)?, clock, ServerClocks::Own).await
}

fn sqlite(folder: &Path, config: &Config, clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Ledger>> {
    let ledger = SqliteLedger::open(&folder.join("ledger.sqlite"), Arc::clone(clock));
    let ledger = ledger.with_context(|| format!("the ledger in {} cannot be opened", folder.display()))?;
    Ok(Arc::new(ledger.with_release_spread(config.sale.release_spread)))
}

fn log(folder: &Path, positions: &[Position], clock: &Arc<dyn Clock>) -> anyhow::Result<Arc<dyn Queue>> {
    let recorded = |topic: &TopicId| positions.iter().find(|it| it.topic == *topic).map_or(0, |it| it.next);
    let options =
        QueueOptions { on_fatal: Box::new(|_| std::process::exit(FATAL_DISK)), ..QueueOptions::default() };
    Ok(Arc::new(EmbeddedQueue::open(&folder.join("queue"), recorded, Arc::clone(clock), options)?))
}

/// A queue and a ledger that were not written from each other are never put together: orders that
/// were answered with 202 would be lost, or recorded twice.
fn belong_together(queue: &str, positions: &[Position], ends: &[Position]) -> anyhow::Result<()> {
    if let Some(end) =
        ends.iter().find(|end| end.next > 0 && !positions.iter().any(|it| it.topic == end.topic))
    {
        bail!(
            "{queue} has {} orders, and the ledger knows nothing of them: the ledger was emptied, or another one is \
             named. Orders answered with 202 are in the queue, so nothing is started anew: restore the ledger that \
             belongs to it. For a new start without those orders, name a new topic, or a new data directory",
            end.next
        );
    }
    if let Some(stranger) =
        positions.iter().find(|it| it.next > 0 && !ends.iter().any(|end| end.topic == it.topic))
    {
        bail!(
            "{queue} is not the one that the ledger was written from (it has recorded {} orders from {}): it was made \
             anew, or another one is named. Restore it whole, or name the right one",
            stranger.next,
            stranger.topic
        );
    }
    Ok(())
}
