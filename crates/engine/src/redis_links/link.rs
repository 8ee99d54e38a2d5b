//! Connections: one per thread that calls, made anew when it breaks. Nothing is repeated here that
//! may have happened; what surely did not (a redirection, an unknown script) is.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::ThreadId;
use std::time::Duration;

use futures_util::future::select_ok;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::sentinel::SentinelClient;
use redis::{AsyncConnectionConfig, Client, Cmd, ErrorKind, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;

use super::RedisOptions;
use super::script::Script;
use super::target::{Dialer, Target};
use crate::fault::{BackendError, Fault, Layer};

/// How often a command is sent again that a cluster surely did not run.
const REDIRECTS_MAX: usize = 8;

/// How long a slot that is being moved is given before the next try.
const MOVING_PAUSE: Duration = Duration::from_millis(10);

/// Timeouts that cost the connection to one server: it may hang or have vanished, which closes nothing,
/// while another master is named in its place.
const SERVER_TIMEOUTS_MAX: u32 = 1;

/// The same for a cluster, where the connection is to all nodes and dialling waits for the one that
/// hangs: sales on the others would suffer if every timeout cost it.
const CLUSTER_TIMEOUTS_MAX: u32 = 8;

/// Oldest server whose commands the scripts need (SMISMEMBER).
const VERSION_MIN: (u32, u32) = (6, 2);

/// The connections of one stage.
pub(crate) struct Links {
    /// Whose calls these are, for messages.
    layer: Layer,
    dialer: Dialer,
    /// What the server is called in messages; never with a password.
    name: String,
    config: AsyncConnectionConfig,
    connect_timeout: Duration,
    threads: RwLock<HashMap<ThreadId, Arc<Mutex<Slot>>>>,
}

/// One thread's place for its connection.
#[derive(Default)]
struct Slot {
    link: Option<Link>,
    /// How many connections stood here; tells this one from its successors.
    made: u64,
    /// Calls that timed out on this one.
    timeouts: u32,
}

#[derive(Clone)]
enum Link {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Links {
    /// Connections for the calls of `layer`; none is made yet.
    pub(crate) fn new(layer: Layer, options: &RedisOptions) -> Result<Self, BackendError> {
        let target = Target::parse(&options.url)?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect_timeout))
            .set_response_timeout(Some(options.response_timeout));
        Ok(Self {
            layer,
            name: target.name(),
            dialer: target.dialer(options)?,
            config,
            connect_timeout: options.connect_timeout,
            threads: RwLock::default(),
        })
    }

    /// Runs a script by its hash; a server that does not have it is sent its text, in this one call.
    pub(crate) async fn run(
        &self,
        script: &'static Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<Value, BackendError> {
        let command = |name: &str, body: &str| {
            let mut command = redis::cmd(name);
            command.arg(body).arg(keys.len()).arg(keys);
            for argument in arguments {
                command.arg(&argument[..]);
            }
            command
        };
        let what = script.what;
        match self.send(&command("EVALSHA", script.hash())).await {
            Err(Failed::Sent(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.send(&command("EVAL", script.text)).await.map_err(|error| self.fault(what, error))
            }
            result => result.map_err(|error| self.fault(what, error)),
        }
    }

    /// Sends one command.
    pub(crate) async fn query(&self, what: &str, command: &Cmd) -> Result<Value, BackendError> {
        self.send(command).await.map_err(|error| self.fault(what, error))
    }

    /// Whether this is a server that keeps what it is given.
    pub(crate) async fn check(&self) -> Result<(), BackendError> {
        let info = match self.info().await {
            Ok(info) => info,
            Err(Failed::Sent(error)) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
                tracing::warn!(
                    redis = self.name,
                    "this user may not ask INFO: that the server evicts nothing (maxmemory-policy noeviction) could not be checked"
                );
                return Ok(());
            }
            Err(error) => return Err(self.fault("connect", error)),
        };
        if let Some(what) = unfit(&self.name, &info) {
            return Err(BackendError::new(self.layer, Fault::Permanent, what));
        }
        if values_of(&info, "aof_enabled").any(|enabled| enabled == "0") {
            tracing::warn!(
                redis = self.name,
                "the server does not keep an append-only file: after its restart every sale is rebuilt from the ledger, and orders that were on their way may be rejected; set appendonly yes"
            );
        }
        Ok(())
    }

    async fn info(&self) -> Result<String, Failed> {
        let mut command = redis::cmd("INFO");
        command.arg("everything");
        let reply = match self.link(&self.of_this_thread()).await?.0 {
            Link::Server(_) => self.send(&command).await?,
            Link::Cluster(mut cluster) => {
                let masters = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                cluster.route_command(command, masters).await.map_err(Failed::Sent)?
            }
        };
        Ok(text_of(&reply))
    }

    async fn send(&self, command: &Cmd) -> Result<Value, Failed> {
        // Kept for the whole call, which another thread may finish.
        let mine = self.of_this_thread();
        let (link, made) = self.link(&mine).await?;
        let result = match link {
            Link::Server(mut server) => command.query_async::<Value>(&mut server).await,
            Link::Cluster(cluster) => follow(cluster, command).await,
        };
        if let Err(error) = &result {
            note_failure(&mine, made, error);
        }
        result.map_err(Failed::Sent)
    }

    /// A thread's connection and its number; made if there is none.
    async fn link(&self, mine: &Mutex<Slot>) -> Result<(Link, u64), Failed> {
        let mut slot = mine.lock().await;
        if let Some(link) = &slot.link {
            return Ok((link.clone(), slot.made));
        }
        // A little more than one connection may take: a cluster is asked for its slots when the nodes
        // that hang have been given up.
        let longest = self.connect_timeout + self.connect_timeout / 5;
        let dialled = tokio::time::timeout(longest, self.dial()).await;
        let link = dialled.map_err(|_| Failed::TooLate)?.map_err(Failed::Unsent)?;
        *slot = Slot { link: Some(link.clone()), made: slot.made + 1, timeouts: 0 };
        Ok((link, slot.made))
    }

    async fn dial(&self) -> RedisResult<Link> {
        Ok(match &self.dialer {
            Dialer::Server(client) => Link::Server(self.dial_server(client).await?),
            Dialer::Sentinels(sentinels) => Link::Server(self.dial_master(sentinels).await?),
            Dialer::Cluster(client) => Link::Cluster(dial_cluster(client).await?),
        })
    }

    async fn dial_server(&self, client: &Client) -> RedisResult<MultiplexedConnection> {
        client.get_multiplexed_async_connection_with_config(&self.config).await
    }

    /// The first sentinel that answers names the master. Asked one after the other, one that died with
    /// the master's machine would use up the time of all.
    async fn dial_master(&self, sentinels: &[Mutex<SentinelClient>]) -> RedisResult<MultiplexedConnection> {
        let ask = async |sentinel: &Mutex<SentinelClient>| {
            sentinel.lock().await.get_async_connection_with_config(&self.config).await
        };
        let (connection, _) = select_ok(sentinels.iter().map(|it| Box::pin(ask(it)))).await?;
        Ok(connection)
    }

    fn of_this_thread(&self) -> Arc<Mutex<Slot>> {
        let id = std::thread::current().id();
        if let Some(mine) = self.threads.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Arc::clone(mine);
        }
        let mut threads = self.threads.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(threads.entry(id).or_default())
    }

    fn fault(&self, what: &str, failed: Failed) -> BackendError {
        let name = &self.name;
        let (fault, text, error) = match failed {
            Failed::TooLate => (Fault::Transient, unreachable(what, name), None),
            Failed::Unsent(error) | Failed::Sent(error) if is_login(&error) => {
                let text = format!("{what}: {name} refused the user or password of redis.url");
                (Fault::Transient, text, Some(error))
            }
            Failed::Unsent(error) => (Fault::Transient, unreachable(what, name), Some(error)),
            Failed::Sent(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoPerm) => {
                let text = format!(
                    "{what}: the user of redis.url lacks a right at {name}: docs/running.md lists all it needs"
                );
                (Fault::Permanent, text, Some(error))
            }
            Failed::Sent(error) => (fault_of(&error), format!("{what} at {name}"), Some(error)),
        };
        let fault = BackendError::new(self.layer, fault, text);
        match error {
            Some(error) => fault.caused_by(error),
            None => fault,
        }
    }
}

fn unreachable(what: &str, name: &str) -> String {
    format!("{what}: {name} cannot be reached: see that it runs and that redis.url is right")
}

/// Why a command has no reply.
enum Failed {
    /// No connection in time.
    TooLate,
    /// No connection.
    Unsent(RedisError),
    /// An error after the command was sent, or in its reply.
    Sent(RedisError),
}

async fn dial_cluster(client: &ClusterClient) -> RedisResult<ClusterConnection> {
    client.get_async_connection().await
}

/// Sends a command to the node that has its slot. What a node answers instead of running it is
/// followed here, since the library would repeat what may have run, too.
async fn follow(mut cluster: ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    let mut result = command.query_async::<Value>(&mut cluster).await;
    for _ in 0..REDIRECTS_MAX {
        let Err(error) = &result else { break };
        let node = error.redirect_node().and_then(|(node, _)| node.rsplit_once(':'));
        let node = node.and_then(|(host, port)| {
            Some(SingleNodeRoutingInfo::ByAddress { host: host.to_owned(), port: port.parse().ok()? })
        });
        result = match (error.kind(), node) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some(node)) => {
                let routed = cluster.route_command(command.clone(), RoutingInfo::SingleNode(node)).await;
                routed.and_then(Value::extract_error)
            }
            (ErrorKind::Server(ServerErrorKind::Ask), Some(node)) => ask(&mut cluster, command, node).await,
            (ErrorKind::Server(ServerErrorKind::TryAgain), _) => {
                // The timeout is the pause: nothing ever arrives.
                let _ = tokio::time::timeout(MOVING_PAUSE, std::future::pending::<()>()).await;
                command.query_async::<Value>(&mut cluster).await
            }
            _ => break,
        };
    }
    result
}

/// Asks the node that a slot is moving to; the permission and the command go in one piece.
async fn ask(
    cluster: &mut ClusterConnection,
    command: &Cmd,
    node: SingleNodeRoutingInfo,
) -> RedisResult<Value> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("ASKING").add_command(command.clone());
    let mut replies = cluster.route_pipeline(pipeline, 0, 2, node).await?;
    replies.pop().map_or(Ok(Value::Nil), Value::extract_error)
}

/// What a server says before the first write: no memory, a script that runs too long, too few replicas,
/// a disk that cannot be written, no master.
fn is_refusal(code: &str) -> bool {
    matches!(code, "OOM" | "BUSY" | "NOREPLICAS" | "MISCONF" | "NOAUTH" | "READONLY")
}

/// Redis 6 says ERR when a command within a script is refused, and the reason in the text:
/// `Error running script (call to f_1): @user_script:9: @user_script: 9: -OOM command not allowed`.
fn code_within(detail: &str) -> Option<&str> {
    let code = detail.split_once(": -")?.1.split(' ').next()?;
    code.bytes().all(|byte| byte.is_ascii_uppercase()).then_some(code)
}

/// Gives a connection up when it is of no more use.
fn note_failure(mine: &Mutex<Slot>, made: u64, error: &RedisError) {
    // A slot that is locked is getting another connection already.
    let Ok(mut slot) = mine.try_lock() else { return };
    if slot.made != made {
        return;
    }
    slot.timeouts += u32::from(error.is_timeout());
    let most = match &slot.link {
        Some(Link::Cluster(_)) => CLUSTER_TIMEOUTS_MAX,
        Some(Link::Server(_)) | None => SERVER_TIMEOUTS_MAX,
    };
    if is_broken(error) || slot.timeouts >= most {
        slot.link = None;
    }
}

/// Whether the connection is of no more use: gone, or to a server that is no master any more.
fn is_broken(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_connection_dropped()
        || error.kind() == ErrorKind::Server(ServerErrorKind::ReadOnly)
        || error.detail().and_then(code_within) == Some("READONLY")
}

/// Whether the server does not take us for whom we say we are.
fn is_login(error: &RedisError) -> bool {
    error.kind() == ErrorKind::AuthenticationFailed || matches!(error.code(), Some("WRONGPASS" | "NOAUTH"))
}

fn fault_of(error: &RedisError) -> Fault {
    let code = error.code().filter(|code| *code != "ERR").or_else(|| code_within(error.detail()?));
    match error.kind() {
        ErrorKind::Server(
            ServerErrorKind::BusyLoading
            | ServerErrorKind::NoScript
            | ServerErrorKind::Moved
            | ServerErrorKind::Ask
            | ServerErrorKind::TryAgain
            | ServerErrorKind::ClusterDown
            | ServerErrorKind::MasterDown
            | ServerErrorKind::ReadOnly,
        )
        | ErrorKind::ClusterConnectionNotFound
        | ErrorKind::AuthenticationFailed => Fault::Transient,
        _ if code.is_some_and(is_refusal) => Fault::Transient,
        ErrorKind::Io if error.is_connection_refusal() => Fault::Transient,
        ErrorKind::Io | ErrorKind::Parse | ErrorKind::UnexpectedReturnType => Fault::Ambiguous,
        _ => Fault::Permanent,
    }
}

/// Why a server of which INFO says this cannot be used.
fn unfit(name: &str, info: &str) -> Option<String> {
    for version in values_of(info, "redis_version") {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        let found = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        if found < VERSION_MIN {
            return Some(format!("{name} is version {version}; version 6.2 or newer is needed"));
        }
    }
    let policy = values_of(info, "maxmemory_policy").find(|policy| *policy != "noeviction")?;
    Some(format!(
        "{name} may evict keys (maxmemory-policy {policy}), which would sell units twice: set maxmemory-policy \
         to noeviction (CONFIG SET maxmemory-policy noeviction, and in its configuration file), or use a \
         server of its own"
    ))
}

/// The text of a reply to INFO, of one server or of several.
fn text_of(value: &Value) -> String {
    match value {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::VerbatimString { text, .. } => text.clone(),
        Value::Map(nodes) => nodes.iter().map(|(_, info)| text_of(info)).collect(),
        Value::Array(nodes) => nodes.iter().map(text_of).collect(),
        _ => String::new(),
    }
}

/// What a reply to INFO says of `name`, once for each server.
fn values_of<'a>(info: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    info.lines().filter_map(move |line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "the Redis at one:6379";

    #[test]
    fn a_server_that_is_too_old_or_may_evict_keys_is_unfit() {
        let info = |version: &str, policy: &str| {
            format!(
                "# Server\r\nredis_version:{version}\r\nredis_mode:standalone\r\nmaxmemory_policy:{policy}\r\n"
            )
        };
        for version in ["6.2.0", "6.2.14", "7.0.15", "8.4.1", "10.0.0"] {
            assert_eq!(unfit(NAME, &info(version, "noeviction")), None, "{version}");
        }
        for version in ["6.1.9", "6.0.16", "5.0.14", "2.8.19"] {
            let why = unfit(NAME, &info(version, "noeviction")).unwrap();
            assert!(why.contains(NAME) && why.contains(version) && why.contains("6.2"), "{why}");
        }
        assert!(unfit(NAME, &info("7.0.15", "allkeys-lru")).unwrap().contains("noeviction"));
        // The nodes of a cluster, of which one is too old.
        assert!(unfit(NAME, &(info("7.0.15", "noeviction") + &info("6.0.16", "noeviction"))).is_some());
    }

    #[test]
    fn what_a_server_refused_before_it_wrote_did_not_happen() {
        let said = |code: &'static str, text: &str| {
            let line = format!("-{code} {text}\r\n");
            redis::parse_redis_value(line.as_bytes()).unwrap().extract_error().unwrap_err()
        };
        let script = "Error running script (call to f_1): @user_script:9: @user_script: 9: ";
        for (code, text) in [
            (
                "OOM",
                "command not allowed when used memory > 'maxmemory'. script: 1, on @user_script:9."
                    .to_owned(),
            ),
            ("READONLY", "You can't write against a read only replica.".to_owned()),
            ("ERR", format!("{script}-OOM command not allowed when used memory > 'maxmemory'.")),
            ("ERR", format!("{script}-READONLY You can't write against a read only replica.")),
            ("ERR", format!("{script}-MISCONF Redis is configured to save RDB snapshots")),
        ] {
            assert_eq!(fault_of(&said(code, &text)), Fault::Transient, "{code} {text}");
        }
        assert!(is_broken(&said("ERR", &format!("{script}-READONLY You can't write"))));
        assert!(!is_broken(&said("ERR", &format!("{script}-OOM command not allowed"))));
        assert_eq!(fault_of(&said("ERR", "unknown command")), Fault::Permanent);
    }
}
