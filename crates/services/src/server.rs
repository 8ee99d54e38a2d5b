//! One service, made of nodes that can be killed, frozen and started again where they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::launch::{Launched, Recipe};
use crate::process::Process;

/// How often a node that was killed is started once more when it ends at once, and the time between.
const STARTS_MAX: u32 = 10;
const BETWEEN_STARTS: Duration = Duration::from_millis(300);

/// A service that runs; it ends with this value, and its folder goes.
pub struct Server {
    /// Where clients find it.
    pub url: String,
    /// Further addresses and files, by the names of the environment variables that hand them to tests.
    pub more: BTreeMap<String, String>,
    nodes: Vec<Node>,
    folder: PathBuf,
    kept: bool,
}

struct Node {
    recipe: Recipe,
    launched: Launched,
}

impl Server {
    /// Starts every node, then waits for the first answer of each.
    ///
    /// # Errors
    /// One cannot be started or does not answer; those that were started end, and the folder goes.
    pub(crate) fn start(url: String, folder: PathBuf, recipes: Result<Vec<Recipe>>) -> Result<Self> {
        let mut server = Self { url, more: BTreeMap::new(), nodes: Vec::new(), folder, kept: false };
        for recipe in recipes? {
            let launched = recipe.start()?;
            server.nodes.push(Node { recipe, launched });
        }
        for node in &mut server.nodes {
            node.recipe.until_it_answers(&mut node.launched)?;
        }
        Ok(server)
    }

    /// Its folder: data and logs of all nodes.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// How many nodes it has.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The process of a node.
    pub fn process(&self, node: usize) -> &Process {
        &self.nodes[node].launched.process
    }

    /// `kill -9` for a node and what it started.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self, node: usize) -> Result<()> {
        let node = &mut self.nodes[node];
        node.launched.process.kill()?;
        node.launched.reap();
        Ok(())
    }

    /// Stops a node without ending it: connections stand, nothing answers.
    ///
    /// # Errors
    /// The system refuses.
    pub fn freeze(&self, node: usize) -> Result<()> {
        self.process(node).freeze()
    }

    /// Lets a frozen node go on.
    ///
    /// # Errors
    /// The system refuses.
    pub fn thaw(&self, node: usize) -> Result<()> {
        self.process(node).thaw()
    }

    /// Starts a node that was killed, with its ports and its data, and waits for its first answer.
    ///
    /// # Errors
    /// It cannot be started or does not answer.
    pub fn start_again(&mut self, node: usize) -> Result<()> {
        let mut tried = 0;
        loop {
            self.start_again_unanswered(node)?;
            let node = &mut self.nodes[node];
            match node.recipe.until_it_answers(&mut node.launched) {
                // What was killed may not have let go of everything yet: PostgreSQL's memory, a port.
                Err(_) if tried < STARTS_MAX && !node.launched.process.runs() => {
                    tried += 1;
                    node.launched.reap();
                    std::thread::sleep(BETWEEN_STARTS);
                }
                answered => return answered,
            }
        }
    }

    /// The same without waiting: a node of several answers only when the others are there.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start_again_unanswered(&mut self, node: usize) -> Result<()> {
        let node = &mut self.nodes[node];
        node.launched = node.recipe.start()?;
        Ok(())
    }

    /// Leaves it running, for a later command to end: its processes and its folder.
    pub fn keep(mut self) -> (Vec<Process>, PathBuf) {
        self.kept = true;
        let processes = self.nodes.iter().map(|node| node.launched.process.clone()).collect();
        (processes, self.folder.clone())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        for node in &mut self.nodes {
            let process = &node.launched.process;
            // A frozen process does not hear the interrupt.
            if let Err(error) = process.thaw().and_then(|()| process.end()) {
                eprintln!("services: {error:#}");
            } else {
                node.launched.reap();
            }
        }
        if let Err(error) =
            fs::remove_dir_all(&self.folder).with_context(|| format!("removing {}", self.folder.display()))
        {
            eprintln!("services: {error:#}");
        }
    }
}
