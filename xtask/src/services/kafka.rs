//! A private Kafka (KRaft): every node is broker and controller. Its libraries come from Maven, once.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::Start;
use super::launch::{self, Launched, free_ports, or_remove, says};
use super::state::{Process, Server, seconds_since_1970};
use crate::bench::process::output_of;
use crate::run::reported;

/// What Maven is told to fetch.
const POM: &str = include_str!("kafka.xml");

/// Where the libraries are kept, from the repository's root.
const LIBRARIES: &str = "target/services/kafka";

/// The cluster's own id: 22 characters that are 16 bytes in base64.
const CLUSTER: &str = "doorbuster-services-0A";

/// Most brokers.
pub(super) const BROKERS_MAX: usize = 3;

/// One node's addresses: for clients, and for the other nodes' controllers.
#[derive(Clone, Copy)]
struct Node {
    clients: SocketAddr,
    controllers: SocketAddr,
}

/// Starts the brokers and waits for the first answer of each.
///
/// # Errors
/// The libraries cannot be fetched, or a broker cannot be started or does not answer.
pub(super) fn start(start: &Start<'_>) -> Result<Server> {
    let libraries = libraries(start.root)?;
    let ports = free_ports::<{ 2 * BROKERS_MAX }>()?;
    let nodes: Vec<Node> = ports
        .chunks(2)
        .take(start.brokers)
        .map(|pair| Node { clients: pair[0], controllers: pair[1] })
        .collect();
    let folder = launch::folder("kafka")?;
    let processes = or_remove(start_nodes(&folder, &libraries, &nodes), &folder)?;
    let addresses: Vec<String> = nodes.iter().map(|node| node.clients.to_string()).collect();
    Ok(Server {
        service: "kafka".to_owned(),
        url: addresses.join(","),
        processes,
        folders: vec![folder],
        since: seconds_since_1970(),
    })
}

fn start_nodes(folder: &Path, libraries: &Path, nodes: &[Node]) -> Result<Vec<Process>> {
    let mut launched = Vec::new();
    for (index, _) in nodes.iter().enumerate() {
        let home = folder.join(format!("node-{}", index + 1));
        fs::create_dir(&home).with_context(|| home.display().to_string())?;
        let properties = home.join("server.properties");
        fs::write(&properties, properties_of(index, nodes, &home))?;
        let mut format = java(libraries, "64m");
        format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(&properties);
        output_of(&mut format)?;
        let mut server = java(libraries, if nodes.len() == 1 { "512m" } else { "384m" });
        server.arg("kafka.Kafka").arg(&properties).current_dir(&home);
        launched.push(Launched::start(&mut server, &home.join("log"), false)?);
    }
    for (server, node) in launched.iter_mut().zip(nodes) {
        server.answers(|| says(node.clients, &API_VERSIONS, &QUESTION_ID))?;
    }
    Ok(launched.into_iter().map(Launched::keep).collect())
}

/// What a question is told from others by.
const QUESTION_ID: [u8; 4] = *b"door";

/// The question which calls a broker understands: length, call 18, version 0, the question's id, no
/// name of a client. A broker answers once it takes part in its cluster.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, b'd', b'o', b'o', b'r', 0xff, 0xff];

fn java(libraries: &Path, heap: &str) -> Command {
    let mut command = Command::new("java");
    command.args(["-Xms64m", &format!("-Xmx{heap}"), "-Dorg.slf4j.simpleLogger.showDateTime=true", "-cp"]);
    command.arg(libraries.join("*"));
    command
}

/// The settings of one node.
fn properties_of(index: usize, nodes: &[Node], home: &Path) -> String {
    let Node { clients, controllers } = nodes[index];
    let voters: Vec<String> =
        nodes.iter().enumerate().map(|(index, node)| format!("{}@{}", index + 1, node.controllers)).collect();
    let replication = nodes.len();
    let in_sync = replication.div_ceil(2);
    let mut text = format!(
        "process.roles=broker,controller\nnode.id={}\ncontroller.quorum.voters={}\n\
         listeners=PLAINTEXT://{clients},CONTROLLER://{controllers}\nadvertised.listeners=PLAINTEXT://{clients}\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n",
        index + 1,
        voters.join(","),
        home.join("data").display(),
    );
    for setting in [
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.replication.factor",
    ] {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{setting}={replication}");
    }
    for setting in ["min.insync.replicas", "transaction.state.log.min.isr"] {
        let _ = writeln!(text, "{setting}={in_sync}");
    }
    text + "auto.create.topics.enable=false\noffsets.topic.num.partitions=3\ngroup.initial.rebalance.delay.ms=0\n"
}

/// The folder of Kafka's libraries, fetched where they are not there.
fn libraries(root: &Path) -> Result<PathBuf> {
    let folder = root.join(LIBRARIES);
    let libraries = folder.join("libraries");
    // Written last: a fetching that broke off is begun again.
    let fetched = folder.join("fetched.xml");
    if fs::read_to_string(&fetched).is_ok_and(|text| text == POM) {
        return Ok(libraries);
    }

    if libraries.exists() {
        fs::remove_dir_all(&libraries).with_context(|| format!("removing {}", libraries.display()))?;
    }
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    fs::write(folder.join("pom.xml"), POM)?;
    let mut maven = Command::new("mvn");
    maven.args(["--quiet", "--batch-mode", "dependency:copy-dependencies", "-DincludeScope=runtime"]);
    maven.arg("-DoutputDirectory=libraries").current_dir(&folder);
    if !reported(&mut maven)? {
        bail!("Maven could not fetch Kafka's libraries; its messages stand above");
    }
    fs::write(&fetched, POM)?;
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Node {
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Node { clients: address(port), controllers: address(port + 1) }
    }

    #[test]
    fn one_broker_keeps_one_copy_and_three_keep_three_of_which_two_must_be_written() {
        let home = Path::new("/tmp/home");
        let one = properties_of(0, &[node(10)], home);
        assert!(
            one.contains("\ndefault.replication.factor=1\n") && one.contains("\nmin.insync.replicas=1\n")
        );
        let nodes = [node(10), node(20), node(30)];
        let second = properties_of(1, &nodes, home);
        for line in [
            "node.id=2",
            "controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:21,3@127.0.0.1:31",
            "advertised.listeners=PLAINTEXT://127.0.0.1:20",
            "offsets.topic.replication.factor=3",
            "min.insync.replicas=2",
            "auto.create.topics.enable=false",
        ] {
            assert!(second.lines().any(|it| it == line), "{line} is missing in {second}");
        }
    }
}
