//! Servers of the stage's own, which it may kill.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use doorbuster_services::{Server, kafka, postgres, redis_server};

use super::roles::Stage;
use crate::bench::process::{now, pause};
use crate::services;

/// Time before the first kill, and between two.
const BETWEEN_KILLS: Duration = Duration::from_millis(700);

/// Redis, PostgreSQL and one broker, which end with this.
pub(super) struct Servers {
    redis: Server,
    postgres: Server,
    kafka: Server,
}

impl Servers {
    /// Starts them; nothing when a program is missing.
    pub(super) fn start(root: &Path, install: bool) -> Result<Option<Self>> {
        if !services::are_installed(services::ALL, install)? {
            return Ok(None);
        }
        // Every answer is on the disk before it is given: a Redis that is killed loses nothing then, so
        // nobody's order may be rejected.
        let redis = redis_server::start_with(&["--appendonly", "yes", "--appendfsync", "always"])?;
        Ok(Some(Self {
            redis,
            postgres: postgres::start()?,
            kafka: kafka::start(root, &kafka::Plan::of(1))?,
        }))
    }

    /// Where they are, as the tests' environment would say it.
    pub(super) fn addresses(&self) -> Vec<(String, String)> {
        let named = [("REDIS", &self.redis), ("POSTGRES", &self.postgres), ("KAFKA", &self.kafka)];
        let address =
            |(name, server): (&str, &Server)| (format!("DOORBUSTER_TEST_{name}_URL"), server.url.clone());
        named.map(address).to_vec()
    }

    /// `kill -9` for one process of every role, for Redis and for the broker, one after the other; each is
    /// started again at once.
    pub(super) fn kill_everything_once(&mut self, stage: &mut Stage) -> Result<()> {
        pause(BETWEEN_KILLS);
        stage.kill_one("gateway")?;
        pause(BETWEEN_KILLS);
        kill("Redis", &mut self.redis)?;
        pause(BETWEEN_KILLS);
        stage.kill_one("recorder")?;
        pause(BETWEEN_KILLS);
        kill("the broker", &mut self.kafka)?;
        pause(BETWEEN_KILLS);
        stage.kill_one("keeper")
    }
}

fn kill(name: &str, server: &mut Server) -> Result<()> {
    server.kill(0)?;
    let killed = now();
    eprintln!("stage: {name} was killed");
    server.start_again(0).with_context(|| format!("starting {name} again"))?;
    eprintln!("stage: {name} answers again, after {:.1} s", killed.elapsed().as_secs_f64());
    Ok(())
}
