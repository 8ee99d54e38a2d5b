//! `cargo xtask services`: private servers of other makers for tests and for trying things out.
//!
//! The package `doorbuster-services` knows how each is started. `state.rs` keeps what runs in `target/services/state.json`, written after each start, so
//! that whoever comes next finds the servers again and can end them, also after a crash.

mod containers;
mod state;

use std::path::Path;

use anyhow::{Context as _, Result, bail};
use doorbuster_services::{Server, kafka, postgres, redis_server};

use crate::requirements::{self, Absence, Requirement, Source};
use containers::Engine;
use state::{Kept, State};

const fn fatal(program: &'static str, why: &'static str, package: &'static str) -> Requirement {
    Requirement { program, why, source: Source::Debian(package), absence: Absence::Fatal }
}

const REDIS_SERVER: &Requirement =
    &fatal(redis_server::PROGRAM, "is the stock that several processes share", "redis-server");
const POSTGRES_SERVER: &Requirement =
    &fatal(postgres::PROGRAM, "is the ledger that several processes share", "postgresql-15");
const JAVA: &Requirement =
    &fatal("java", "runs Kafka, the queue that several processes share", "openjdk-17-jre-headless");
const MAVEN: &Requirement = &fatal("mvn", "fetches Kafka's libraries", "maven");

const OPENSSL: &Requirement =
    &fatal("openssl", "makes certificates for the servers that speak TLS", "openssl");

/// What tests need that start servers of their own.
pub(crate) const PROGRAMS: &[&Requirement] = &[REDIS_SERVER, POSTGRES_SERVER, JAVA, MAVEN, OPENSSL];

/// The Redis that tests run against.
pub(crate) const REDIS: Service = Service {
    name: "redis",
    variable: "DOORBUSTER_TEST_REDIS_URL",
    requirements: &[REDIS_SERVER],
    start: |_| redis_server::start(),
};

/// The PostgreSQL that tests run against.
pub(crate) const POSTGRES: Service = Service {
    name: "postgres",
    variable: "DOORBUSTER_TEST_POSTGRES_URL",
    requirements: &[POSTGRES_SERVER, OPENSSL],
    start: |_| postgres::start(),
};

/// The Kafka that tests run against.
pub(crate) const KAFKA: Service = Service {
    name: "kafka",
    variable: "DOORBUSTER_TEST_KAFKA_URL",
    requirements: &[JAVA, MAVEN, OPENSSL],
    start: |start| kafka::start(start.root, &kafka::Plan::of(start.brokers)),
};

/// Every service.
pub(crate) const ALL: &[&Service] = &[&REDIS, &POSTGRES, &KAFKA];

/// A server of another maker that tests need.
pub(crate) struct Service {
    /// Its word in the state file and in messages.
    name: &'static str,
    /// The environment variable that hands its address to tests. Set from outside, it names a
    /// running server, and none is started.
    variable: &'static str,
    /// The programs it needs.
    requirements: &'static [&'static Requirement],
    /// Starts it and waits until it answers.
    start: fn(&Start<'_>) -> Result<Server>,
}

impl Service {
    /// Whether the environment names a running one.
    fn is_named_outside(&self) -> bool {
        std::env::var_os(self.variable).is_some_and(|url| !url.is_empty())
    }
}

/// How services are wanted.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    /// Whether missing programs are installed.
    pub(crate) install: bool,
    /// How many Kafka brokers.
    pub(crate) brokers: usize,
    /// In containers, also where the programs are there.
    pub(crate) containers: bool,
}

/// What a start is told.
struct Start<'a> {
    /// The repository's root.
    root: &'a Path,
    /// How many Kafka brokers.
    brokers: usize,
}

/// The services that one run of the tests needs. Those that this run started end when it is
/// dropped; those that ran before stay.
pub(crate) struct Lent<'a> {
    /// The repository's root.
    pub(crate) root: &'a Path,
    /// Whether missing programs are installed.
    pub(crate) install: bool,
    started: Vec<&'static str>,
    variables: Vec<(String, String)>,
}

impl<'a> Lent<'a> {
    /// Nothing yet; missing programs are installed if `install`.
    pub(crate) fn new(root: &'a Path, install: bool) -> Self {
        Self { root, install, started: Vec::new(), variables: Vec::new() }
    }

    /// Makes sure that `wanted` run, and says whether they do: false when a program is missing.
    ///
    /// # Errors
    /// One does not start; the message has the end of its log.
    pub(crate) fn ensure(&mut self, wanted: &[&'static Service]) -> Result<bool> {
        let before = State::read(self.root)?;
        let outcome =
            bring_up(self.root, wanted, Wish { install: self.install, brokers: 1, containers: false });
        // Also after an error: what started before it must end.
        let state = State::read(self.root)?;
        let new = |service: &&&Service| !before.holds(service.name) && state.holds(service.name);
        self.started.extend(wanted.iter().filter(new).map(|service| service.name));
        let up = outcome?;
        for service in wanted {
            if let Some(server) = state.server(service.name) {
                self.variables.extend(variables(service, server));
            }
        }
        Ok(up)
    }

    /// What tests need in their environment to find the services.
    pub(crate) fn variables(&self) -> impl Iterator<Item = (String, String)> {
        self.variables.iter().cloned()
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        if let Err(error) = take_down(self.root, |server| self.started.contains(&server.service.as_str())) {
            eprintln!("services: {error:#}; end them by `cargo xtask services down`");
        }
    }
}

/// Whether the programs of `wanted` are there, after installing them where that is asked for.
///
/// # Errors
/// An installation fails.
pub(crate) fn are_installed(wanted: &[&Service], install: bool) -> Result<bool> {
    let requirements: Vec<_> = wanted.iter().flat_map(|service| service.requirements).copied().collect();
    requirements::ensure(&requirements, install)
}

/// Starts what does not run yet and prints how to hand it to tests. False when a program is missing.
///
/// # Errors
/// One does not start; the message has the end of its log.
pub(crate) fn up(root: &Path, wish: Wish) -> Result<bool> {
    if !bring_up(root, ALL, wish)? {
        return Ok(false);
    }
    let state = State::read(root)?;
    for service in ALL {
        match state.server(service.name) {
            Some(server) => {
                for (name, value) in variables(service, server) {
                    // In quotes: an address may have an `&` in it.
                    println!("export {name}='{value}'");
                }
            }
            None => eprintln!("{}: the one that {} names is used", service.name, service.variable),
        }
    }
    Ok(true)
}

/// Ends what `up` started, and removes its folders.
///
/// # Errors
/// A process does not end, or a folder cannot be removed.
pub(crate) fn down(root: &Path) -> Result<()> {
    take_down(root, |_| true)
}

/// Prints what runs, where, and for how long.
///
/// # Errors
/// The state file cannot be read.
pub(crate) fn status(root: &Path) -> Result<()> {
    let state = State::read(root)?;
    for service in ALL {
        let line = match state.server(service.name) {
            _ if service.is_named_outside() => format!("not ours: {} names it", service.variable),
            Some(server) if server.runs() => server.line(),
            Some(_) => "has ended by itself; `cargo xtask services down` clears it away".to_owned(),
            None => "not started".to_owned(),
        };
        println!("{:<10}{line}", service.name);
    }
    Ok(())
}

/// What tests need in their environment to find a server.
fn variables(service: &Service, server: &Kept) -> impl Iterator<Item = (String, String)> {
    let more = server.more.iter().map(|(name, value)| (name.clone(), value.clone()));
    std::iter::once((service.variable.to_owned(), server.url.clone())).chain(more)
}

/// Where servers are started.
enum Way {
    /// As processes of this machine.
    Here,
    /// In containers.
    In(Engine),
}

/// Where `wanted` can be started; nothing when their programs are missing and no engine answers.
fn way_of(wanted: &[&Service], wish: Wish) -> Result<Option<Way>> {
    let way = if wish.containers {
        Way::In(Engine::find().context("no container engine answers: start docker or podman")?)
    } else {
        if are_installed(wanted, wish.install)? {
            return Ok(Some(Way::Here));
        }
        let Some(engine) = Engine::find() else { return Ok(None) };
        eprintln!("services: {} answers, so containers take their place", engine.name());
        Way::In(engine)
    };
    if wish.brokers > 1 {
        bail!("containers have one broker: three need Kafka's own libraries, without --containers");
    }
    Ok(Some(way))
}

fn bring_up(root: &Path, wanted: &[&Service], wish: Wish) -> Result<bool> {
    let wanted: Vec<&Service> =
        wanted.iter().copied().filter(|service| !service.is_named_outside()).collect();
    let Some(way) = way_of(&wanted, wish)? else { return Ok(false) };

    for service in wanted {
        let mut state = State::read(root)?;
        if let Some(server) = state.server(service.name) {
            if server.runs() {
                if service.name == KAFKA.name && server.nodes() < wish.brokers {
                    bail!("Kafka runs with fewer brokers: `cargo xtask services down` first");
                }
                eprintln!("services: {} runs already at {}", service.name, server.url);
                continue;
            }
            eprintln!("services: {} has ended by itself; starting it anew", service.name);
            state.take(service.name).map_or(Ok(()), |server| server.end())?;
            state.write(root)?;
        }
        eprintln!("services: starting {}", service.name);
        let started = match &way {
            Way::Here => {
                let started = (service.start)(&Start { root, brokers: wish.brokers });
                started.map(|server| Kept::of(service.name, server))
            }
            Way::In(engine) => engine.start(service.name).map(|it| Kept::contained(service.name, it)),
        };
        let server = started.with_context(|| format!("{} does not start", service.name))?;
        eprintln!("services: {} answers at {}", service.name, server.url);
        state.add(server);
        state.write(root)?;
    }
    Ok(true)
}

fn take_down(root: &Path, chosen: impl Fn(&Kept) -> bool) -> Result<()> {
    let mut state = State::read(root)?;
    let mut result = Ok(());
    for service in ALL {
        if !state.server(service.name).is_some_and(&chosen) {
            continue;
        }
        if let Some(server) = state.take(service.name) {
            match server.end() {
                Ok(()) => eprintln!("services: {} ended", service.name),
                Err(error) => {
                    // It is kept, so that it can be tried again; the others end all the same.
                    state.add(server);
                    result = Err(error);
                }
            }
        }
    }
    state.write(root)?;
    result
}
