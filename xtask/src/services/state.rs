//! What runs, kept in a file: so that a later command finds it, and ends nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use doorbuster_services::{Process, Server};
use serde::{Deserialize, Serialize};

use super::containers::Container;

/// Where the file is, from the repository's root.
const FILE: &str = "target/services/state.json";

/// Everything that was started and not ended.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct State {
    servers: Vec<Kept>,
}

/// One service that was started.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Kept {
    /// The service's name.
    pub(super) service: String,
    /// What tests are given to find it.
    pub(super) url: String,
    /// Further environment variables that tests are given, by name.
    #[serde(default)]
    pub(super) more: BTreeMap<String, String>,
    /// Its processes.
    pub(super) processes: Vec<Process>,
    /// Its containers, where it has some instead.
    #[serde(default)]
    pub(super) containers: Vec<Container>,
    /// Its folders, which go when it ends.
    pub(super) folders: Vec<PathBuf>,
    /// When it was started, in seconds since 1970.
    pub(super) since: u64,
}

impl State {
    /// What the file says; nothing where there is none.
    pub(super) fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => serde_json::from_str(&text).with_context(|| {
                format!("{} is damaged: end its processes by hand, then delete it", path.display())
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        }
    }

    /// Replaces the file in one step, so that no crash leaves half of it.
    pub(super) fn write(&self, root: &Path) -> Result<()> {
        let path = root.join(FILE);
        let folder = path.parent().context("the file has a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string_pretty(self)?)
            .with_context(|| format!("writing {}", new.display()))?;
        fs::rename(&new, &path).with_context(|| format!("writing {}", path.display()))
    }

    /// The service of this name, running or not.
    pub(super) fn server(&self, service: &str) -> Option<&Kept> {
        self.servers.iter().find(|server| server.service == service)
    }

    /// Whether the service of this name runs.
    pub(super) fn holds(&self, service: &str) -> bool {
        self.server(service).is_some_and(Kept::runs)
    }

    /// Forgets the service of this name and hands it over.
    pub(super) fn take(&mut self, service: &str) -> Option<Kept> {
        let at = self.servers.iter().position(|server| server.service == service)?;
        Some(self.servers.remove(at))
    }

    /// Remembers a service.
    pub(super) fn add(&mut self, server: Kept) {
        self.servers.push(server);
    }
}

impl Kept {
    /// What is kept of a server that stays when we end.
    pub(super) fn of(service: &str, server: Server) -> Self {
        let (url, more) = (server.url.clone(), server.more.clone());
        let (processes, folder) = server.keep();
        let since = seconds_since_1970();
        let (service, containers, folders) = (service.to_owned(), Vec::new(), vec![folder]);
        Self { service, url, more, processes, containers, folders, since }
    }

    /// The same of one that runs in a container.
    pub(super) fn contained(service: &str, (url, container): (String, Container)) -> Self {
        Self {
            service: service.to_owned(),
            url,
            more: BTreeMap::new(),
            processes: Vec::new(),
            containers: vec![container],
            folders: Vec::new(),
            since: seconds_since_1970(),
        }
    }

    /// How many servers it is made of.
    pub(super) fn nodes(&self) -> usize {
        self.processes.len() + self.containers.len()
    }

    /// Whether all its processes and containers still run.
    pub(super) fn runs(&self) -> bool {
        self.processes.iter().all(Process::runs) && self.containers.iter().all(Container::runs)
    }

    /// Ends exactly its processes and containers, and removes its folders. Repeated, it does nothing.
    pub(super) fn end(&self) -> Result<()> {
        for container in &self.containers {
            container.end()?;
        }
        for process in &self.processes {
            process.end()?;
        }
        for folder in &self.folders {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", folder.display()));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// One line for a person.
    pub(super) fn line(&self) -> String {
        let minutes = seconds_since_1970().saturating_sub(self.since) / 60;
        let pids = self.processes.iter().map(|process| format!(", pid {}", process.pid()));
        let containers = self.containers.iter().map(|container| format!(", container {}", container.id));
        let folders = self.folders.iter().map(|folder| format!(", in {}", folder.display()));
        let parts: String = pids.chain(containers).chain(folders).collect();
        format!("{}  for {minutes} min{parts}", self.url)
    }
}

/// The time for people.
#[expect(clippy::disallowed_methods, reason = "a person reads it; nothing decides by it")]
fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sleeper() -> std::process::Child {
        Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep is everywhere")
    }

    #[test]
    fn the_state_is_read_as_it_was_written_and_folders_go_with_the_server() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        let folder = root.path().join("data");
        fs::create_dir(&folder).expect("can be made");
        let mut child = sleeper();
        let server = Kept {
            service: "redis".to_owned(),
            url: "redis://127.0.0.1:1".to_owned(),
            more: BTreeMap::new(),
            processes: vec![Process::of(child.id(), false).expect("it runs")],
            containers: Vec::new(),
            folders: vec![folder.clone()],
            since: 0,
        };
        let mut state = State::read(root.path()).expect("no file is an empty state");
        state.add(server);
        state.write(root.path()).expect("can be written");

        let mut state = State::read(root.path()).expect("it was written");
        assert!(state.holds("redis") && !state.holds("kafka"));
        let server = state.take("redis").expect("it is there");
        server.end().expect("it ends");
        server.end().expect("a second time does nothing");
        assert!(!folder.exists() && !server.runs() && state.server("redis").is_none());
        child.wait().expect("it is our child");
    }

    #[test]
    fn a_damaged_state_is_an_error_that_names_the_file() {
        let root = tempfile::tempdir().expect("a temporary folder can be made");
        fs::create_dir_all(root.path().join("target/services")).expect("can be made");
        fs::write(root.path().join(FILE), "{").expect("can be written");
        let error = State::read(root.path()).expect_err("that is no state");
        assert!(error.to_string().contains("state.json is damaged"), "{error}");
    }
}
