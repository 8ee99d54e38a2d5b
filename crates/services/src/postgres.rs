//! A private PostgreSQL 15. It refuses to run as the superuser: then it is the user `postgres`, which
//! its package makes.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result};

use crate::certificates::Certificates;
use crate::command::output_of;
use crate::launch::{self, Recipe, free_ports, says};
use crate::server::Server;

/// The server program. Debian keeps it off the search path, with its tools beside it.
pub const PROGRAM: &str = "/usr/lib/postgresql/15/bin/postgres";

/// The user and group to run as, where they are not ours.
type RunAs = Option<(u32, u32)>;

/// What names the second server as libpq would be told, with the file of its authority.
const TLS: &str = "DOORBUSTER_TEST_POSTGRES_TLS_URL";

/// The password at the server that speaks TLS; it guards nothing.
const PASSWORD: &str = "open-sesame";

/// Starts two servers, waits for their first answers, and makes a database in each: one in the clear
/// for most tests, and one that speaks TLS and asks for a password. (One server for both was refused:
/// whoever prefers TLS would get it, and every figure of the benchmarks would be another.)
///
/// # Errors
/// One cannot be set up or started, or does not answer.
pub fn start() -> Result<Server> {
    start_in(None)
}

/// The same with the data of the server in the clear in `data`, such as on a small disk, where it keeps little:
/// the files of its write-ahead log have 1 MB. [`copy`] and [`go_back`] are not for it.
///
/// # Errors
/// As [`start`].
pub fn start_at(data: &Path) -> Result<Server> {
    start_in(Some(data))
}

fn start_in(data: Option<&Path>) -> Result<Server> {
    let folder = launch::folder("postgres")?;
    let [clear, secure] = free_ports()?;
    let run_as = run_as()?;
    let url = format!("postgres://postgres@{clear}/doorbuster");
    let shown = folder.join("certificates");
    // The certificate is good for this name, and not for the address.
    let tls = format!(
        "postgres://postgres:{PASSWORD}@localhost:{}/doorbuster?sslmode=verify-full&sslrootcert={}",
        secure.port(),
        shown.join("ca.pem").display()
    );
    let recipes = recipes(&folder, (&shown, data), [clear, secure], run_as);
    let mut server = Server::start(url, folder, recipes)?;
    for address in [clear, secure] {
        let mut createdb = tool("createdb", server.folder(), run_as);
        output_of(login(&mut createdb, address).arg("doorbuster"))?;
    }
    server.more.insert(TLS.to_owned(), tls);
    Ok(server)
}

/// Copies the data of a server that runs, as a standby would have them now.
///
/// # Errors
/// The copy cannot be made.
pub fn copy(server: &Server) -> Result<PathBuf> {
    let copy = tempfile::Builder::new().prefix("copy-").tempdir_in(server.folder())?.keep();
    // The server starts on no folder that others may read.
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o700))?;
    let run_as = run_as()?;
    if let Some((user, group)) = run_as {
        chown(&copy, Some(user), Some(group)).with_context(|| copy.display().to_string())?;
    }
    let mut basebackup = tool("pg_basebackup", server.folder(), run_as);
    basebackup.args(["--checkpoint=fast", "--wal-method=stream", "-d", &server.url, "-D"]).arg(&copy);
    output_of(&mut basebackup)?;
    Ok(copy)
}

/// Kills a server and starts it on a copy of its data: a standby takes over that was behind.
///
/// # Errors
/// It cannot be killed or does not start.
pub fn go_back(server: &mut Server, copy: &Path) -> Result<()> {
    server.kill(0)?;
    let data = server.folder().join("data");
    // A name of its own: it may go back more than once.
    let before = tempfile::Builder::new().prefix("before-").tempdir_in(server.folder())?.keep();
    fs::rename(&data, before.join("data"))?;
    fs::rename(copy, &data)?;
    server.start_again(0)
}

fn recipes(
    folder: &Path,
    (shown, data): (&Path, Option<&Path>),
    ports: [SocketAddr; 2],
    run_as: RunAs,
) -> Result<Vec<Recipe>> {
    let [clear, secure] = ports;
    let certificates = Certificates::make(shown, "DNS:localhost")?;
    let [certificate, key] = ["server.pem", "server.key"].map(|name| certificates.file(name));
    let password = folder.join("password");
    fs::write(&password, PASSWORD).with_context(|| password.display().to_string())?;
    if let Some((user, group)) = run_as {
        let elsewhere = data.and_then(Path::parent);
        for path in [folder, &key].into_iter().chain(elsewhere) {
            chown(path, Some(user), Some(group)).with_context(|| path.display().to_string())?;
        }
    }
    // Every client on the loopback may be any user: it is a server for tests.
    let first = match data {
        None => recipe((folder, &folder.join("data")), clear, run_as, (&["-A", "trust"], &[]))?,
        Some(data) => {
            let little = ["min_wal_size=2MB", "max_wal_size=8MB"].map(str::to_owned);
            recipe((folder, data), clear, run_as, (&["-A", "trust", "--wal-segsize=1"], &little))?
        }
    };
    let words = format!("--pwfile={}", password.display());
    let settings = [
        "ssl=on".to_owned(),
        format!("ssl_cert_file={}", certificate.display()),
        format!("ssl_key_file={}", key.display()),
    ];
    let second = recipe(
        (folder, &folder.join("secure")),
        secure,
        run_as,
        (&["-A", "scram-sha-256", &words], &settings),
    )?;
    Ok(vec![first, second])
}

/// Sets up a server in `data`; `(who may come in, further settings)`.
fn recipe(
    (folder, data): (&Path, &Path),
    address: SocketAddr,
    run_as: RunAs,
    (authentication, settings): (&[&str], &[String]),
) -> Result<Recipe> {
    let mut initdb = tool("initdb", folder, run_as);
    initdb.arg("-D").arg(data).args(["-U", "postgres"]).args(authentication);
    initdb.args(["--encoding=UTF8", "--locale=C", "--no-instructions"]);
    output_of(&mut initdb)?;

    let mut arguments =
        vec!["-D".to_owned(), data.display().to_string(), "-p".to_owned(), address.port().to_string()];
    let usual = ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=on", "max_connections=200"];
    for setting in usual.into_iter().chain(settings.iter().map(String::as_str)) {
        arguments.extend(["-c".to_owned(), setting.to_owned()]);
    }
    let home = folder.to_owned();
    let answers = move || {
        let mut asked = tool("pg_isready", &home, run_as);
        login(&mut asked, address).stdout(Stdio::null()).stderr(Stdio::null());
        asked.status().is_ok_and(|status| status.success())
    };
    Ok(Recipe {
        program: PathBuf::from(PROGRAM),
        arguments,
        folder: folder.to_owned(),
        log: folder.join(data.with_extension("log").file_name().context("a folder has a name")?),
        run_as,
        interrupt: true,
        answers: Box::new(answers),
    })
}

/// Whether a PostgreSQL at `address` lets the user `postgres` into the database `doorbuster` without a
/// password: length and version 3.0 of the protocol, the parameters, and its "authentication is done".
pub fn answers(address: SocketAddr) -> bool {
    const STARTUP: &[u8; 43] = b"\0\0\0\x2b\0\x03\0\0user\0postgres\0database\0doorbuster\0\0";
    says(address, STARTUP, b"R\0\0\0\x08\0\0\0\0")
}

fn login(command: &mut Command, address: SocketAddr) -> &mut Command {
    command
        .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-U", "postgres"])
        .env("PGPASSWORD", PASSWORD)
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
