//! A private Redis, set up as we recommend it: it evicts nothing and keeps an append-only file.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;

use crate::launch::{self, Recipe, free_ports, says};
use crate::server::Server;

/// The server program.
pub const PROGRAM: &str = "redis-server";

/// Starts it and waits for its first answer.
///
/// # Errors
/// It cannot be started, or does not answer.
pub fn start() -> Result<Server> {
    start_with(&["--appendonly", "yes", "--appendfsync", "everysec"])
}

/// The same with other settings than the append-only file.
///
/// # Errors
/// As [`start`].
pub fn start_with(settings: &[&str]) -> Result<Server> {
    let folder = launch::folder("redis")?;
    let [address] = free_ports()?;
    let mut arguments: Vec<String> =
        ["--port", &address.port().to_string(), "--bind", "127.0.0.1", "--save", ""]
            .map(str::to_owned)
            .to_vec();
    arguments.extend(["--maxmemory-policy", "noeviction"].iter().chain(settings).map(|&it| it.to_owned()));
    let recipe = Recipe {
        program: PathBuf::from(PROGRAM),
        arguments,
        folder: folder.clone(),
        log: folder.join("log"),
        run_as: None,
        interrupt: false,
        answers: Box::new(move || answers(address)),
    };
    Server::start(format!("redis://{address}"), folder, Ok(vec![recipe]))
}

/// Whether a Redis at `address` takes commands.
pub fn answers(address: SocketAddr) -> bool {
    says(address, b"PING\r\n", b"+PONG")
}
