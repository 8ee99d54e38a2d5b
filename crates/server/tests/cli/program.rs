//! Runs the program in a folder of its own, without the environment of whoever runs the tests.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A token of the staff, long enough.
pub(crate) const STAFF: &str = "an-openly-known-staff-token-of-a-test";
/// Longest wait for a server to be there.
const START: Duration = Duration::from_secs(60);

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The data of a run that must succeed.
#[track_caller]
pub(crate) fn stdout_of(ran: Ran) -> String {
    assert_eq!(ran.code, 0, "{ran:?}");
    ran.stdout
}

/// A working directory.
pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a temporary folder can be made"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt;
        fs::write(self.path(name), text).expect("a file can be written");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(0o600)).expect("it is ours");
    }

    #[track_caller]
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_doorbuster"));
        command.args(args).env_clear().current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        self.run_with(args, &[])
    }

    pub(crate) fn run_with(&self, args: &[&str], environment: &[(&str, &str)]) -> Ran {
        let output = self.command(args).envs(environment.iter().copied()).output().expect("the program runs");
        Ran {
            code: output.status.code().expect("it ends by itself"),
            stdout: String::from_utf8(output.stdout).expect("text"),
            stderr: String::from_utf8(output.stderr).expect("text"),
        }
    }

    /// A server on ports of its own, once it serves.
    pub(crate) fn serve(&self) -> Server {
        self.serve_with(&[])
    }

    /// The same with more flags.
    pub(crate) fn serve_with(&self, more: &[&str]) -> Server {
        self.write("secret", "an-openly-known-secret-of-a-test-with-40-bytes");
        let args = [
            "serve",
            "--data-dir",
            "data",
            "--jwt-secret-file",
            "secret",
            "--listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            "--set",
            "server.cores=1",
            "--set",
            "log.format=json",
        ];
        let mut child =
            self.command(&[&args, more].concat()).stderr(Stdio::piped()).spawn().expect("the server starts");
        let lines = BufReader::new(child.stderr.take().expect("it is piped")).lines();
        let (found, wanted) = mpsc::channel();
        // Reads to the end, so that the server never waits for a full pipe.
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
                if line["message"] == "serving" {
                    let _ = found.send((line["public"].clone(), line["admin"].clone()));
                }
            }
        });
        let mut server = Server { child, public: String::new(), admin: String::new() };
        let (public, admin) = wanted.recv_timeout(START).expect("the server says that it serves");
        let text = |address: serde_json::Value| address.as_str().expect("an address").to_owned();
        (server.public, server.admin) = (text(public), format!("http://{}", text(admin)));
        server
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    /// Where buyers come in.
    pub(crate) public: String,
    /// The staff's URL.
    pub(crate) admin: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
