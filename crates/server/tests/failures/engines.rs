//! The servers of others that all lines of the matrix share; each line has a Redis of its own beside them.

use std::path::Path;

use anyhow::Result;
use doorbuster_services::kafka::Plan;
use doorbuster_services::{Server, kafka, postgres};

/// One PostgreSQL and one Kafka. They can be hurt: [`mend`](Self::mend) brings back what a line left.
pub(crate) struct Engines {
    pub(crate) postgres: Server,
    pub(crate) kafka: Server,
}

impl Engines {
    /// Starts both.
    pub(crate) fn start() -> Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        Ok(Self { postgres: postgres::start()?, kafka: kafka::start(&root, &Plan::of(1))? })
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
