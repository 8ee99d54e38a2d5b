//! The servers of others that all lines of the matrix share; each line has a Redis of its own beside them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use doorbuster_services::kafka::Plan;
use doorbuster_services::{Server, kafka, postgres};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// One PostgreSQL and one Kafka. They can be hurt: [`mend`](Self::mend) brings back what a line left.
pub(crate) struct Engines {
    pub(crate) postgres: Server,
    pub(crate) kafka: Server,
    /// Decides every choice of the present line.
    pub(crate) seed: u64,
    /// What the present line has counted, such as how often it killed whom.
    pub(crate) counted: BTreeMap<&'static str, u32>,
}

impl Engines {
    /// Starts both.
    pub(crate) fn start() -> Result<Self> {
        let (postgres, kafka) = (postgres::start()?, kafka::start(&root(), &Plan::of(1))?);
        Ok(Self { postgres, kafka, seed: 0, counted: BTreeMap::new() })
    }

    /// Begins a line.
    pub(crate) fn begin(&mut self, seed: u64) {
        (self.seed, self.counted) = (seed, BTreeMap::new());
    }

    /// Random numbers of the present line, the same for the same seed.
    pub(crate) fn random(&self) -> StdRng {
        StdRng::seed_from_u64(self.seed)
    }

    /// Lets go on what is frozen and starts what is dead.
    pub(crate) fn mend(&mut self) -> Result<()> {
        for server in [&mut self.postgres, &mut self.kafka] {
            for node in 0..server.nodes() {
                if server.process(node).runs() {
                    server.thaw(node)?;
                } else {
                    server.start_again(node)?;
                }
            }
        }
        Ok(())
    }
}

/// The repository's root, below which Kafka's libraries are kept.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
