//! A private Redis, set up as we recommend it: it evicts nothing and keeps an append-only file.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::Result;

use super::Start;
use super::launch::{self, Launched, free_ports, or_remove, says};
use super::state::{Server, seconds_since_1970};

/// Starts it and waits for its first answer.
///
/// # Errors
/// It cannot be started, or does not answer.
pub(super) fn start(_: &Start<'_>) -> Result<Server> {
    let folder = launch::folder("redis")?;
    let [address] = free_ports()?;
    let mut command = Command::new("redis-server");
    command.args(["--port", &address.port().to_string(), "--bind", "127.0.0.1"]);
    command.arg("--dir").arg(&folder);
    command.args(["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]);
    command.args(["--maxmemory-policy", "noeviction"]);
    let started = Launched::start(&mut command, &folder.join("log"), false).and_then(|mut server| {
        server.answers(|| says(address, b"PING\r\n", b"+PONG"))?;
        Ok(server.keep())
    });
    let process = or_remove(started, &folder)?;
    Ok(Server {
        service: "redis".to_owned(),
        url: format!("redis://{address}"),
        more: BTreeMap::new(),
        processes: vec![process],
        folders: vec![folder],
        since: seconds_since_1970(),
    })
}
