//! The same servers in containers, where their packages are not to be had.
//!
//! `docker` or `podman` starts the images of `deploy/compose.yaml` with the settings that the packages
//! get. Ports are chosen here and not by the engine: Kafka must tell its clients where it is. There is
//! one broker, and no way in by TLS.

use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use doorbuster_services::command::output_of;
use doorbuster_services::{await_true, free_ports, kafka, postgres, redis_server};
use serde::{Deserialize, Serialize};

/// Longest wait for a server's first answer. Its image is there by then.
const FIRST_ANSWER: Duration = Duration::from_secs(120);

/// How often a server is asked before its container is looked at: every half second.
const LOOKS_PER_QUESTION: u32 = 25;

/// A program that runs containers, with words of its own before each command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Engine(Vec<String>);

/// A container that was started; its engine removes it when it ends.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Container {
    engine: Engine,
    pub(super) id: String,
}

/// How one service is put into a container.
struct Image {
    service: &'static str,
    name: &'static str,
    /// Where it listens inside.
    port: u16,
    /// `KEY=VALUE` for its environment.
    environment: fn(SocketAddr) -> Vec<String>,
    command: &'static [&'static str],
    url: fn(SocketAddr) -> String,
    answers: fn(SocketAddr) -> bool,
}

const IMAGES: [Image; 3] = [
    Image {
        service: "redis",
        name: "redis:7",
        port: 6379,
        environment: |_| Vec::new(),
        command: &[
            "redis-server",
            "--maxmemory-policy",
            "noeviction",
            "--appendonly",
            "yes",
            "--appendfsync",
            "everysec",
            "--save",
            "",
        ],
        url: |address| format!("redis://{address}"),
        answers: redis_server::answers,
    },
    Image {
        service: "postgres",
        name: "postgres:15",
        port: 5432,
        environment: |_| {
            ["POSTGRES_DB=doorbuster", "POSTGRES_HOST_AUTH_METHOD=trust"].map(str::to_owned).to_vec()
        },
        command: &["-c", "max_connections=200"],
        url: |address| format!("postgres://postgres@{address}/doorbuster"),
        answers: postgres::answers,
    },
    Image {
        service: "kafka",
        name: "apache/kafka:4.1.0",
        port: 9092,
        environment: kafka_environment,
        command: &[],
        url: |address| address.to_string(),
        answers: kafka::answers,
    },
];

fn kafka_environment(address: SocketAddr) -> Vec<String> {
    // Inside the container, the address for clients is nobody's: the broker has a way of its own.
    let advertised = format!("KAFKA_ADVERTISED_LISTENERS=CLIENTS://{address},INSIDE://127.0.0.1:19092");
    let settings = [
        &advertised,
        "KAFKA_NODE_ID=1",
        "KAFKA_PROCESS_ROLES=broker,controller",
        "KAFKA_CONTROLLER_QUORUM_VOTERS=1@127.0.0.1:9093",
        "KAFKA_CONTROLLER_LISTENER_NAMES=CONTROLLER",
        "KAFKA_LISTENERS=CLIENTS://:9092,INSIDE://127.0.0.1:19092,CONTROLLER://127.0.0.1:9093",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP=CLIENTS:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME=INSIDE",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE=false",
        "KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS=3",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR=1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR=1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR=1",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS=0",
    ];
    settings.map(str::to_owned).to_vec()
}

impl Engine {
    /// The first of docker and podman whose service answers.
    pub(super) fn find() -> Option<Self> {
        let engines = ["docker", "podman"].map(|program| Self(vec![program.to_owned()]));
        engines.into_iter().find(|engine| {
            let asked = engine.command("info").stdout(Stdio::null()).stderr(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        })
    }

    /// Its name.
    pub(super) fn name(&self) -> String {
        self.0.join(" ")
    }

    /// Starts a service and waits for its first answer; answers its URL too.
    ///
    /// # Errors
    /// The image cannot be had, or the server does not answer; then its container is removed.
    pub(super) fn start(&self, service: &str) -> Result<(String, Container)> {
        let image = IMAGES.iter().find(|image| image.service == service);
        let image = image.with_context(|| format!("there is no image of {service}"))?;
        let [address] = free_ports()?;
        let mut run = self.command("run");
        run.args(["-d", "--rm", "-p", &format!("{address}:{}", image.port)]);
        for setting in (image.environment)(address) {
            run.args(["-e", &setting]);
        }
        let printed = output_of(run.arg(image.name).args(image.command))?;
        let container = Container { engine: self.clone(), id: printed.trim().to_owned() };
        let mut looks = 0_u32;
        let answered = await_true(FIRST_ANSWER, || {
            looks += 1;
            // The engine is a program to start: it is not asked with every look.
            if looks.is_multiple_of(LOOKS_PER_QUESTION) && !container.runs() {
                bail!("the container of {} ended by itself", image.name);
            }
            Ok((image.answers)(address))
        });
        if matches!(answered, Ok(true)) {
            return Ok(((image.url)(address), container));
        }
        let said = output_of(self.command("logs").args(["--tail", "20", &container.id]));
        container.end()?;
        answered?;
        bail!("{} does not answer and has said:\n{}", image.name, said.unwrap_or_default())
    }

    fn command(&self, what: &str) -> Command {
        let mut command = Command::new(&self.0[0]);
        command.args(&self.0[1..]).arg(what);
        command
    }
}

impl Container {
    /// Whether it still runs.
    pub(super) fn runs(&self) -> bool {
        let mut asked = self.engine.command("inspect");
        let answer = output_of(asked.args(["--format", "{{.State.Running}}", &self.id]));
        answer.is_ok_and(|answer| answer.trim() == "true")
    }

    /// Ends and removes it. Repeated, it does nothing.
    ///
    /// # Errors
    /// The engine does not do it.
    pub(super) fn end(&self) -> Result<()> {
        let removed = output_of(self.engine.command("rm").args(["-f", &self.id]));
        // Some engines call it an error that there is no such container.
        if removed.is_err() && !self.runs() { Ok(()) } else { removed.map(drop) }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::path::Path;

    use super::*;

    #[test]
    fn the_images_are_those_of_the_compose_file() {
        let compose = include_str!("../../../deploy/compose.yaml");
        let named: Vec<&str> =
            compose.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
        assert_eq!(
            named,
            ["redis", "postgres", "kafka"].map(|service| {
                IMAGES.iter().find(|image| image.service == service).map_or("", |image| image.name)
            })
        );
    }

    /// An engine that notes what it is told, and has one container while the file `runs` is there.
    fn stand_in(folder: &Path) -> Engine {
        let script = folder.join("engine");
        let text = "cd \"$(dirname \"$0\")\"\necho \"$@\" >> said\ncase $1 in\n\
                    run) touch runs; echo 0123abcd;;\ninspect) test -e runs && echo true;;\n\
                    rm) test -e runs && rm runs;;\nesac\n";
        fs::write(&script, text).expect("can be written");
        Engine(vec!["sh".to_owned(), script.display().to_string()])
    }

    /// The address that the container's port was tied to.
    fn tied(folder: &Path) -> Option<SocketAddr> {
        let said = fs::read_to_string(folder.join("said")).ok()?;
        let port = said.split_once("-p ")?.1.split_once(":6379 ")?.0;
        port.parse().ok()
    }

    #[test]
    fn a_container_is_started_on_the_loopback_awaited_and_removed() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let engine = stand_in(folder.path());
        let home = folder.path().to_owned();
        // What the container would do: it answers a while after it was started.
        let server = std::thread::spawn(move || {
            await_true(FIRST_ANSWER, || Ok(tied(&home).is_some())).expect("nothing fails");
            let listener = TcpListener::bind(tied(&home).expect("it was told")).expect("the port is free");
            let (mut stream, _) = listener.accept().expect("somebody asks");
            let mut question = [0; 6];
            stream.read_exact(&mut question).expect("it asks");
            stream.write_all(b"+PONG\r\n").expect("it listens");
        });
        let (url, container) = engine.start("redis").expect("it starts");
        server.join().expect("it was asked");
        let address = tied(folder.path()).expect("it was told");
        assert!(address.ip().is_loopback());
        assert_eq!((url, container.id.as_str()), (format!("redis://{address}"), "0123abcd"));
        assert!(container.runs());
        container.end().expect("it ends");
        container.end().expect("a second time does nothing");
        assert!(!container.runs());
        let said = fs::read_to_string(folder.path().join("said")).expect("it was told");
        let run = format!("run -d --rm -p {address}:6379 redis:7 redis-server --maxmemory-policy noeviction");
        assert!(said.starts_with(&run), "{said}");
        assert!(said.contains("\nrm -f 0123abcd\n"), "{said}");
    }

    #[test]
    fn a_container_that_ends_by_itself_is_an_error_at_once() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let engine = stand_in(folder.path());
        let script = folder.path().join("engine");
        let text = fs::read_to_string(&script).expect("it was written").replace("touch runs; ", "");
        fs::write(&script, text).expect("can be written");
        let error = engine.start("redis").expect_err("it does not run").to_string();
        assert!(error.contains("the container of redis:7 ended by itself"), "{error}");
    }
}
