//! A private PostgreSQL 15. It refuses to run as the superuser: then it is the user `postgres`, which
//! its package makes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use super::Start;
use super::launch::{self, Launched, free_ports, or_remove};
use super::state::{Process, Server, seconds_since_1970};
use crate::bench::process::output_of;

/// The server program. Debian keeps it off the search path, with its tools beside it.
pub(super) const PROGRAM: &str = "/usr/lib/postgresql/15/bin/postgres";

/// The user and group to run as, where they are not ours.
type RunAs = Option<(u32, u32)>;

/// Starts it, waits for its first answer, and makes the database.
///
/// # Errors
/// It cannot be set up or started, or does not answer.
pub(super) fn start(_: &Start<'_>) -> Result<Server> {
    let folder = launch::folder("postgres")?;
    let [address] = free_ports()?;
    let process = or_remove(start_in(&folder, address), &folder)?;
    Ok(Server {
        service: "postgres".to_owned(),
        url: format!("postgres://postgres@{address}/doorbuster"),
        more: BTreeMap::new(),
        processes: vec![process],
        folders: vec![folder],
        since: seconds_since_1970(),
    })
}

fn start_in(folder: &Path, address: SocketAddr) -> Result<Process> {
    let run_as = run_as()?;
    if let Some((user, group)) = run_as {
        chown(folder, Some(user), Some(group)).with_context(|| folder.display().to_string())?;
    }
    let data = folder.join("data");
    let mut initdb = tool("initdb", folder, run_as);
    initdb.arg("-D").arg(&data);
    // Every client on the loopback may be any user: it is a server for tests.
    initdb.args(["-U", "postgres", "-A", "trust", "--encoding=UTF8", "--locale=C", "--no-instructions"]);
    output_of(&mut initdb)?;

    let port = address.port().to_string();
    let mut server = tool("postgres", folder, run_as);
    server.arg("-D").arg(&data).args(["-p", &port]);
    for setting in
        ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=on", "max_connections=200"]
    {
        server.args(["-c", setting]);
    }
    let mut server = Launched::start(&mut server, &folder.join("log"), true)?;
    let client = |name| {
        let mut command = tool(name, folder, run_as);
        command.args(["-h", "127.0.0.1", "-p", &port, "-U", "postgres"]);
        command
    };
    server.answers(|| {
        let asked = client("pg_isready").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.is_ok_and(|status| status.success())
    })?;
    output_of(client("createdb").arg("doorbuster"))?;
    Ok(server.keep())
}

/// One of PostgreSQL's programs, run in `folder` as the user that may run it.
fn tool(name: &str, folder: &Path, run_as: RunAs) -> Command {
    let mut command = Command::new(Path::new(PROGRAM).with_file_name(name));
    command.current_dir(folder);
    if let Some((user, group)) = run_as {
        command.uid(user).gid(group);
    }
    command
}

fn run_as() -> Result<RunAs> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let id = |what: &str| -> Result<u32> {
        let printed = output_of(Command::new("id").args([what, "postgres"]))
            .context("PostgreSQL refuses to run as root, and there is no user postgres to run it as")?;
        printed.trim().parse().context("a user's number")
    };
    Ok(Some((id("-u")?, id("-g")?)))
}
