//! The only place that names the backends.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use doorbuster_engine::clock::Clock;
use doorbuster_engine::delivery::Position;
use doorbuster_engine::ledger::{Positions, SqliteLedger};
use doorbuster_engine::queue::{EmbeddedQueue, QueueOptions};
use doorbuster_engine::stock::EmbeddedStock;
use doorbuster_engine::workers::Backends;

use crate::directory::DirectoryLock;

/// Exit code when the log's disk failed and its state is unknown (EX_SOFTWARE of sysexits).
const FATAL_DISK: i32 = 70;

/// Open backends and what must live as long as they are used.
pub struct Opened {
    /// The stages.
    pub backends: Backends,
    _lock: DirectoryLock,
}

/// Opens the embedded engine in `folder`: stock in memory, queue and ledger in files.
///
/// # Errors
/// When the folder is in use, cannot be written, is damaged, or its queue and ledger do not
/// belong together; the message says what to do.
pub async fn open_embedded(folder: &Path, clock: Arc<dyn Clock>) -> anyhow::Result<Opened> {
    let lock = DirectoryLock::take(folder)?;
    let ledger = SqliteLedger::open(&folder.join("ledger.sqlite"), Arc::clone(&clock))
        .with_context(|| format!("the ledger in {} cannot be opened", folder.display()))?;
    let positions = ledger.positions().await?;
    let recorded = |topic: &_| next_of(&positions, topic);
    let options =
        QueueOptions { on_fatal: Box::new(|_| std::process::exit(FATAL_DISK)), ..QueueOptions::default() };
    let queue = EmbeddedQueue::open(&folder.join("queue"), recorded, Arc::clone(&clock), options)?;
    let stock = EmbeddedStock::new(Arc::clone(&clock));
    let backends =
        Backends { stock: Arc::new(stock), queue: Arc::new(queue), ledger: Arc::new(ledger), clock };
    let ends = backends.queue.end_positions().await?;
    if let Some(end) =
        ends.iter().find(|end| end.next > 0 && !positions.iter().any(|it| it.topic == end.topic))
    {
        bail!(
            "the queue in {} has {} orders, and the ledger beside it knows nothing of them: ledger.sqlite is missing \
             or is another one. Orders answered with 202 are in the queue, so nothing is started anew: restore the \
             folder as it was, whole",
            folder.display(),
            end.next
        );
    }
    if let Some(stranger) =
        positions.iter().find(|it| it.next > 0 && !ends.iter().any(|end| end.topic == it.topic))
    {
        bail!(
            "the queue in {} is not the one that the ledger beside it was written from (it has recorded {} orders \
             from {}): restore the folder as it was, whole",
            folder.display(),
            stranger.next,
            stranger.topic
        );
    }
    Ok(Opened { backends, _lock: lock })
}

fn next_of(positions: &[Position], topic: &doorbuster_engine::delivery::TopicId) -> u64 {
    positions.iter().find(|it| it.topic == *topic).map_or(0, |it| it.next)
}
