//! A private Kafka (KRaft): every node is broker and controller. Its libraries come from Maven, once.
//!
//! Clients come in without encryption, by TLS with a user and a password, or by TLS with a
//! certificate of their own: tests try all three.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::certificates::Certificates;
use crate::command::{line_of, output_of};
use crate::launch::{self, Recipe, free_ports, says};
use crate::server::Server;

/// What Maven is told to fetch.
const POM: &str = include_str!("kafka.xml");

/// Where the libraries are kept, from the repository's root.
const LIBRARIES: &str = "target/services/kafka";

/// The cluster's own id: 22 characters that are 16 bytes in base64.
const CLUSTER: &str = "doorbuster-services-0A";

/// Most brokers.
pub const BROKERS_MAX: usize = 3;

/// What names the way in by TLS: `sasl-ssl://user:password@host:port/file of the authority`.
const SECURE: &str = "DOORBUSTER_TEST_KAFKA_SECURE_URL";

/// What names the way in for clients with a certificate: `ssl://host:port/folder of certificates`.
const MUTUAL: &str = "DOORBUSTER_TEST_KAFKA_MUTUAL_URL";

/// The ways to prove a password that the brokers take.
const SCRAM: [&str; 2] = ["SCRAM-SHA-256", "SCRAM-SHA-512"];

/// Who may come in by TLS; it guards nothing.
const USER: &str = "shop";
const PASSWORD: &str = "open-sesame";

/// What a start is told.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many brokers, at most [`BROKERS_MAX`].
    pub brokers: usize,
    /// Where clients of the third way in are sent, one address a broker: proxies in between. Such a proxy
    /// passes on to the broker's own address of that way, see [`behind`].
    pub through: Vec<SocketAddr>,
    /// Where the first broker keeps its log, such as on a small disk; without, in its own folder.
    pub data: Option<PathBuf>,
}

impl Plan {
    /// So many brokers, and no proxies.
    pub fn of(brokers: usize) -> Self {
        Self { brokers, through: Vec::new(), data: None }
    }
}

/// What names the addresses that proxies pass on to, with commas between them.
const BEHIND: &str = "DOORBUSTER_TEST_KAFKA_BEHIND_URL";

/// The addresses that proxies pass on to, in the order of [`Plan::through`].
pub fn behind(server: &Server) -> Vec<SocketAddr> {
    let addresses = server.more.get(BEHIND).map_or("", String::as_str);
    addresses.split(',').filter_map(|address| address.parse().ok()).collect()
}

/// Listening ports of one node.
const PORTS: usize = 5;

/// One node's addresses: for clients, for clients by TLS with a password, for those with a certificate,
/// for the other nodes' controllers, and for a proxy.
#[derive(Clone, Copy)]
struct Node {
    clients: SocketAddr,
    secure: SocketAddr,
    mutual: SocketAddr,
    controllers: SocketAddr,
    behind: SocketAddr,
    /// The proxy, where there is one.
    through: Option<SocketAddr>,
}

/// Where a node keeps what: its settings and what it prints, and its log.
struct Place {
    home: PathBuf,
    data: PathBuf,
}

/// Starts the brokers and waits for the first answer of each. `root` is the repository's: Kafka's
/// libraries are kept in its `target`.
///
/// # Errors
/// The libraries cannot be fetched, or a broker cannot be started or does not answer.
pub fn start(root: &Path, plan: &Plan) -> Result<Server> {
    let libraries = libraries(root)?;
    let ports = free_ports::<{ PORTS * BROKERS_MAX }>()?;
    let node = |(number, ports): (usize, &[SocketAddr])| Node {
        clients: ports[0],
        secure: ports[1],
        mutual: ports[2],
        controllers: ports[3],
        behind: ports[4],
        through: plan.through.get(number).copied(),
    };
    let nodes: Vec<Node> = ports.chunks(PORTS).take(plan.brokers).enumerate().map(node).collect();
    let folder = launch::folder("kafka")?;
    let shown = folder.join("certificates");
    let recipes = Certificates::make(&shown, "DNS:localhost,IP:127.0.0.1").and_then(|certificates| {
        let secured = secure_properties(&certificates)?;
        let place = |index: usize| {
            let home = folder.join(format!("node-{}", index + 1));
            let data = plan.data.clone().filter(|_| index == 0);
            Place { data: data.unwrap_or_else(|| home.join("data")), home }
        };
        (0..nodes.len()).map(|index| recipe(place(index), &libraries, &nodes, index, &secured)).collect()
    });
    let secure = format!("sasl-ssl://{USER}:{PASSWORD}@{}{}/ca.pem", nodes[0].secure, shown.display());
    let mutual = format!("ssl://{}{}", nodes[0].mutual, shown.display());
    let listed = |address: fn(&Node) -> SocketAddr| {
        nodes.iter().map(|node| address(node).to_string()).collect::<Vec<_>>().join(",")
    };
    let mut server = Server::start(listed(|node| node.clients), folder, recipes)?;
    server.more.insert(SECURE.to_owned(), secure);
    server.more.insert(MUTUAL.to_owned(), mutual);
    if !plan.through.is_empty() {
        server.more.insert(BEHIND.to_owned(), listed(|node| node.behind));
    }
    Ok(server)
}

fn recipe(place: Place, libraries: &Path, nodes: &[Node], index: usize, secured: &str) -> Result<Recipe> {
    let Place { home, data } = place;
    fs::create_dir(&home).with_context(|| home.display().to_string())?;
    let properties = home.join("server.properties");
    fs::write(&properties, properties_of(index, nodes, &data) + secured)?;
    let mut format = Command::new("java");
    format.args(java(libraries, "64m"));
    format.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(&properties);
    for mechanism in SCRAM {
        format.arg("--add-scram").arg(format!("{mechanism}=[name={USER},password={PASSWORD}]"));
    }
    output_of(&mut format)?;
    let mut arguments = java(libraries, if nodes.len() == 1 { "512m" } else { "384m" });
    arguments.extend(["kafka.Kafka".to_owned(), properties.display().to_string()]);
    let clients = nodes[index].clients;
    Ok(Recipe {
        program: PathBuf::from("java"),
        arguments,
        log: home.join("log"),
        folder: home,
        run_as: None,
        interrupt: false,
        answers: Box::new(move || answers(clients)),
    })
}

/// Whether a broker at `address` takes part in its cluster.
pub fn answers(address: SocketAddr) -> bool {
    says(address, &API_VERSIONS, &QUESTION_ID)
}

/// What a question is told from others by.
const QUESTION_ID: [u8; 4] = *b"door";

/// The question which calls a broker understands: length, call 18, version 0, the question's id, no
/// name of a client. A broker answers once it takes part in its cluster.
const API_VERSIONS: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, b'd', b'o', b'o', b'r', 0xff, 0xff];

/// The arguments of Java before the name of a class.
fn java(libraries: &Path, heap: &str) -> Vec<String> {
    let libraries = libraries.join("*").display().to_string();
    let show = "-Dorg.slf4j.simpleLogger.showDateTime=true";
    // It lives for a test. The second compiler works for long runs: without it a broker starts in 6.4 s of two
    // busy processors instead of 10 s, and the tool before it in 2.3 s instead of 3.5 s.
    let quick = "-XX:TieredStopAtLevel=1";
    let words = ["-Xms64m", &format!("-Xmx{heap}"), quick, show, "-cp", &libraries];
    words.map(str::to_owned).to_vec()
}

/// The settings of one node.
fn properties_of(index: usize, nodes: &[Node], data: &Path) -> String {
    let Node { clients, secure, mutual, controllers, behind, through } = nodes[index];
    let voters: Vec<String> =
        nodes.iter().enumerate().map(|(index, node)| format!("{}@{}", index + 1, node.controllers)).collect();
    let replication = nodes.len();
    let in_sync = replication.div_ceil(2);
    let (listener, advertised) = through.map_or_else(Default::default, |through| {
        (format!(",THROUGH://{behind}"), format!(",THROUGH://{through}"))
    });
    let mut text = format!(
        "process.roles=broker,controller\nnode.id={}\ncontroller.quorum.voters={}\n\
         listeners=PLAINTEXT://{clients},SECURE://{secure},MUTUAL://{mutual},CONTROLLER://{controllers}{listener}\n\
         advertised.listeners=PLAINTEXT://{clients},SECURE://{secure},MUTUAL://{mutual}{advertised}\n\
         inter.broker.listener.name=PLAINTEXT\n\
         listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,MUTUAL:SSL,\
         CONTROLLER:PLAINTEXT,THROUGH:PLAINTEXT\n\
         controller.listener.names=CONTROLLER\nlog.dirs={}\n",
        index + 1,
        voters.join(","),
        data.display(),
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

/// The settings of both ways in by TLS: who the brokers are, and whom they let in.
fn secure_properties(certificates: &Certificates) -> Result<String> {
    // A store in PEM is the key and its certificate in one file.
    let store = certificates.file("store.pem");
    let [key, certificate] =
        ["server.key", "server.pem"].map(|name| fs::read_to_string(certificates.file(name)));
    fs::write(&store, key? + &certificate?).with_context(|| store.display().to_string())?;
    let mut text = format!(
        "listener.name.secure.sasl.enabled.mechanisms={}\n\
         ssl.keystore.type=PEM\nssl.keystore.location={}\n\
         listener.name.mutual.ssl.client.auth=required\n\
         ssl.truststore.type=PEM\nssl.truststore.location={}\n",
        SCRAM.join(","),
        store.display(),
        certificates.file("ca.pem").display()
    );
    for mechanism in SCRAM {
        let mechanism = mechanism.to_lowercase();
        let module = "org.apache.kafka.common.security.scram.ScramLoginModule";
        // Writing to a string cannot fail.
        let _ = writeln!(text, "listener.name.secure.{mechanism}.sasl.jaas.config={module} required;");
    }
    Ok(text)
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
    eprintln!("$ {}", line_of(&maven));
    // What it prints is for people.
    let status = maven.stdout(std::io::stderr()).status();
    if !status.with_context(|| format!("starting {}", line_of(&maven)))?.success() {
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
        Node {
            clients: address(port),
            secure: address(port + 2),
            controllers: address(port + 1),
            behind: address(port + 3),
            mutual: address(port + 4),
            through: None,
        }
    }

    #[test]
    fn one_broker_keeps_one_copy_and_three_keep_three_of_which_two_must_be_written() {
        let data = Path::new("/tmp/data");
        let one = properties_of(0, &[node(10)], data);
        assert!(
            one.contains("\ndefault.replication.factor=1\n") && one.contains("\nmin.insync.replicas=1\n")
        );
        let nodes = [node(10), node(20), node(30)];
        let second = properties_of(1, &nodes, data);
        for line in [
            "node.id=2",
            "controller.quorum.voters=1@127.0.0.1:11,2@127.0.0.1:21,3@127.0.0.1:31",
            "advertised.listeners=PLAINTEXT://127.0.0.1:20,SECURE://127.0.0.1:22,MUTUAL://127.0.0.1:24",
            "offsets.topic.replication.factor=3",
            "min.insync.replicas=2",
            "auto.create.topics.enable=false",
        ] {
            assert!(second.lines().any(|it| it == line), "{line} is missing in {second}");
        }
    }
}
