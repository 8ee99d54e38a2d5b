//! Redis servers of a test's own: started on free ports of this machine, killed when they are dropped.
#![allow(dead_code, reason = "each test file uses its own part")]

pub(crate) mod sale;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// How often a condition is looked at before a test gives up, and the pause between two looks.
const LOOKS_MAX: u32 = 12_000;
const LOOK: Duration = Duration::from_millis(5);

/// Waits until `condition` holds; holds this thread up meanwhile.
#[track_caller]
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..LOOKS_MAX {
        if condition() {
            return;
        }
        std::thread::park_timeout(LOOK);
    }
    panic!("waited in vain until {what}");
}

/// Waits until `condition` gives something; other tasks go on meanwhile.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let mut looks = tokio::time::interval(LOOK);
    let looking = async {
        loop {
            looks.tick().await;
            if let Some(found) = condition().await {
                return found;
            }
        }
    };
    // By time: one look may take as long as a server that does not answer.
    let found = tokio::time::timeout(LOOK * LOOKS_MAX, looking).await;
    found.unwrap_or_else(|_| panic!("waited in vain until {what}"))
}

/// Lets a server have its way for a while; other tasks go on meanwhile.
pub(crate) async fn pause(time: Duration) {
    // Nothing ever arrives: the timeout is the pause.
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

/// A port that was free a moment ago, and that nobody else in this process gets.
pub(crate) fn free_port() -> u16 {
    let [address] = doorbuster_services::free_ports().unwrap();
    address.port()
}

/// One server.
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    folder: TempDir,
    arguments: Vec<String>,
    login: Vec<String>,
}

impl Server {
    /// A server with `arguments` beside those that every one has: no password, nothing kept on disk.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::start_with(|_, _| arguments.iter().map(|&it| it.to_owned()).collect())
    }

    /// A server whose arguments depend on its port and folder.
    pub(crate) fn start_with(arguments: impl Fn(u16, &Path) -> Vec<String>) -> Self {
        // A free port may be somebody else's by the time the server asks for it.
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let port = free_port();
            let arguments = arguments(port, folder.path());
            let process = spawn(port, folder.path(), &arguments);
            let mut server = Self { process, port, folder, arguments, login: Vec::new() };
            if server.is_up() {
                return server;
            }
        }
        panic!("redis-server does not start; install the package that brings it (Debian: redis-server)");
    }

    /// Whether it answers; false when it ended instead.
    fn is_up(&mut self) -> bool {
        let mut ended = false;
        let (port, process) = (self.port, &mut self.process);
        until("the server answers", || {
            ended = process.try_wait().unwrap().is_some();
            let answers = Connection::open(port).and_then(|mut it| it.ask(&["PING"]).ok());
            ended || matches!(answers, Some(Reply::Text(_) | Reply::Error(_)))
        });
        // Another process' server may answer at a port that ours did not get.
        until("the server has its port", || {
            ended = self.process.try_wait().unwrap().is_some();
            let log = std::fs::read_to_string(self.log()).unwrap_or_default();
            ended || log.contains("Ready to accept connections") || log.contains("Sentinel ID is")
        });
        !ended
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Logs in before each command from now on.
    pub(crate) fn log_in(&mut self, login: &[&str]) {
        self.login = login.iter().map(|&it| it.to_owned()).collect();
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A connection of the test's own.
    pub(crate) fn connection(&self) -> Connection {
        let mut connection = Connection::open(self.port).expect("the server is up");
        if !self.login.is_empty() {
            let login: Vec<&str> = self.login.iter().map(String::as_str).collect();
            connection.say(&login);
        }
        connection
    }

    /// Sends a command that must not fail.
    #[track_caller]
    pub(crate) fn say(&self, command: &[&str]) -> Reply {
        self.connection().say(command)
    }

    /// What INFO says of `name`.
    pub(crate) fn info(&self, name: &str) -> String {
        let info = self.say(&["INFO", "everything"]).text();
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("INFO has no {name}")).trim().to_owned()
    }

    /// How often a command was called.
    pub(crate) fn calls(&self, command: &str) -> u64 {
        let info = self.say(&["INFO", "commandstats"]).text();
        let start = format!("cmdstat_{command}:calls=");
        let calls = info.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next());
        calls.map_or(0, |calls| calls.parse().unwrap())
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Stops it without ending it: connections stand, nothing is answered.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Starts what was killed, on its port and folder.
    pub(crate) fn start_again(&mut self) {
        for _ in 0..20 {
            std::fs::write(self.log(), "").unwrap();
            self.process = spawn(self.port, self.folder.path(), &self.arguments);
            if self.is_up() {
                return;
            }
        }
        panic!("redis-server does not start again: {}", std::fs::read_to_string(self.log()).unwrap());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A sentinel is the same program by another name, which is a package of its own: `--sentinel` does as well.
fn spawn(port: u16, folder: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new("redis-server");
    if arguments.first().is_some_and(|it| it.ends_with(".conf")) {
        command.arg(&arguments[0]);
    }
    let own = arguments.iter().filter(|it| !it.ends_with(".conf"));
    command
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"])
        .arg("--dir")
        .arg(folder)
        .arg("--logfile")
        .arg(folder.join("log"))
        .args(own)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| {
        panic!("redis-server cannot be started ({error}): install it (apt-get install redis-server)")
    })
}

/// A reply to a command of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Text(String),
    Int(i64),
    Nil,
    List(Vec<Reply>),
    Error(String),
}

impl Reply {
    #[track_caller]
    pub(crate) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Int(number) => number.to_string(),
            other => panic!("not a text: {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn int(self) -> i64 {
        self.text().parse().unwrap()
    }

    #[track_caller]
    pub(crate) fn list(self) -> Vec<Reply> {
        match self {
            Self::List(list) => list,
            other => panic!("not a list: {other:?}"),
        }
    }
}

/// A plain connection that speaks just enough of the protocol.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> Option<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.set_nodelay(true).unwrap();
        Some(Self { stream: BufReader::new(stream) })
    }

    pub(crate) fn ask(&mut self, command: &[&str]) -> std::io::Result<Reply> {
        let mut text = format!("*{}\r\n", command.len());
        for word in command {
            text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.stream.get_mut().write_all(text.as_bytes())?;
        self.reply()
    }

    #[track_caller]
    pub(crate) fn say(&mut self, command: &[&str]) -> Reply {
        match self.ask(command) {
            Ok(Reply::Error(error)) => panic!("{command:?}: {error}"),
            Ok(reply) => reply,
            Err(error) => panic!("{command:?}: {error}"),
        }
    }

    fn reply(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let (kind, rest) = line.trim_end().split_at(1);
        Ok(match kind {
            "+" => Reply::Text(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(rest.parse().unwrap()),
            "$" if rest == "-1" => Reply::Nil,
            "$" => {
                let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
                self.stream.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            "*" if rest == "-1" => Reply::Nil,
            "*" => {
                let count: usize = rest.parse().unwrap();
                Reply::List((0..count).map(|_| self.reply()).collect::<std::io::Result<_>>()?)
            }
            other => panic!("not a reply: {other}{rest}"),
        })
    }
}

/// Three masters that share all slots. Their append-only file has every answer in it.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Server>,
}

/// A node that belongs to no cluster yet.
fn node() -> Server {
    Server::start_with(|_, _| {
        let bus = free_port().to_string();
        let cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus, "--cluster-node-timeout", "1000"];
        let kept = ["--appendonly", "yes", "--appendfsync", "always", "--repl-diskless-sync-delay", "0"];
        cluster.iter().chain(&kept).map(|&it| it.to_owned()).collect()
    })
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let nodes: Vec<Server> = (0..3).map(|_| node()).collect();
        for (number, node) in nodes.iter().enumerate() {
            let (first, last) = (number * 5_461, if number == 2 { 16_383 } else { number * 5_461 + 5_460 });
            node.say(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
            node.say(&["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        nodes[1..].iter().for_each(|node| meet(&nodes[0], node));
        let cluster = Self { nodes };
        until("the cluster is formed", || cluster.nodes.iter().all(knows_all));
        cluster
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.nodes.iter().map(Server::address).collect();
        format!("redis+cluster://{}", hosts.join(","))
    }

    /// A replica of one of the masters, which has all that its master has.
    pub(crate) fn replica_of(&self, master: &Server) -> Server {
        let replica = node();
        meet(master, &replica);
        let id = master.say(&["CLUSTER", "MYID"]).text();
        until("the replica knows its master", || {
            replica
                .connection()
                .ask(&["CLUSTER", "REPLICATE", &id])
                .is_ok_and(|it| it == Reply::Text("OK".into()))
        });
        until("the replica follows", || replica.info("master_link_status") == "up");
        until("everybody knows the replica", || {
            let id = replica.say(&["CLUSTER", "MYID"]).text();
            let slave = |nodes: &str| nodes.lines().any(|line| line.contains(&id) && line.contains("slave"));
            self.nodes.iter().all(|it| slave(&it.say(&["CLUSTER", "NODES"]).text()))
        });
        // It is elected by the others: one that knows its master alone would never take its place.
        until("the replica knows everybody", || {
            let nodes = replica.say(&["CLUSTER", "NODES"]).text();
            nodes.lines().filter(|line| line.contains("master") && line.contains(" connected")).count() == 3
        });
        replica
    }

    /// The node that has a slot, and one that has not.
    pub(crate) fn owner_and_other(&self, slot: u16) -> (&Server, &Server) {
        let owner = usize::from(slot / 5_461).min(2);
        (&self.nodes[owner], &self.nodes[(owner + 1) % 3])
    }
}

fn meet(one: &Server, other: &Server) {
    one.say(&["CLUSTER", "MEET", "127.0.0.1", &other.port.to_string(), &other.arguments[3]]);
}

fn knows_all(node: &Server) -> bool {
    let info = node.say(&["CLUSTER", "INFO"]).text();
    let slots = node.say(&["CLUSTER", "SLOTS"]).list();
    info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3") && slots.len() == 3
}

/// A master, a replica, and three sentinels that watch them.
pub(crate) struct Watched {
    pub(crate) master: Server,
    pub(crate) replica: Server,
    pub(crate) sentinels: Vec<Server>,
}

impl Watched {
    pub(crate) fn start() -> Self {
        let quick = ["--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"];
        let master = Server::start(&quick);
        let port = master.port.to_string();
        let replica = Server::start(&[&quick[..], &["--replicaof", "127.0.0.1", &port]].concat());
        until("the replica follows", || replica.info("master_link_status") == "up");
        let sentinels = (0..3).map(|_| Server::start_with(|_, folder| sentinel(folder, &port)));
        let watched = Self { master, replica, sentinels: sentinels.collect() };
        until("the sentinels know each other and the replica", || {
            watched.sentinels.iter().all(|it| {
                let knows = it.info("master0");
                knows.contains("slaves=1") && knows.contains("sentinels=3") && knows.contains("status=ok")
            })
        });
        watched
    }

    pub(crate) fn url(&self) -> String {
        let hosts: Vec<String> = self.sentinels.iter().map(Server::address).collect();
        format!("redis+sentinel://{}/shop", hosts.join(","))
    }

    /// Waits until the sentinels name the server at `port`; the first of them may hang.
    pub(crate) fn until_master_is(&self, port: u16) {
        until("the sentinels name the other server", || {
            self.sentinels[1..].iter().all(|it| it.info("master0").contains(&format!("127.0.0.1:{port},")))
        });
    }
}

fn sentinel(folder: &Path, master: &str) -> Vec<String> {
    let file = folder.join("sentinel.conf");
    let text = format!(
        "sentinel monitor shop 127.0.0.1 {master} 2\nsentinel down-after-milliseconds shop 500\n\
         sentinel failover-timeout shop 2000\n"
    );
    std::fs::write(&file, text).unwrap();
    vec![file.to_string_lossy().into_owned(), "--sentinel".to_owned()]
}
