//! The real program, served on ports of its own, and raw HTTP to talk to it.
#![allow(dead_code, reason = "each test binary uses its part")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use doorbuster_engine::clock::{Clock, SystemClock};
use doorbuster_loadtest::TokenSigner;
use serde_json::{Value, json};
use tempfile::TempDir;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// The secret of access tokens; must never be seen in an output.
pub(crate) const SECRET: &str = "open-sesame-open-sesame-open-sesame-1";
/// The staff's tokens; must never be seen in an output.
pub(crate) const ADMIN: &str = "admin-token-admin-token-admin";
pub(crate) const VIEWER: &str = "viewer-token-viewer-token-viewer";

/// A running server.
pub(crate) struct Served {
    pub(crate) public: SocketAddr,
    pub(crate) admin: SocketAddr,
    pub(crate) folder: TempDir,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error word; empty when there is none.
    pub(crate) fn word(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_default();
        body["error"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Served {
    /// Starts the program with JSON logs at debug.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with these settings on top.
    pub(crate) fn start_with(settings: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_private(&folder.path().join("secret"), SECRET);
        write_private(&folder.path().join("tokens"), &format!("admin {ADMIN}\nviewer {VIEWER}\n"));
        let mut child = Command::new(env!("CARGO_BIN_EXE_doorbuster"))
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(["--set", "log.format=json", "--set", "log.level=debug", "--set", "server.cores=2"])
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .arg("--jwt-secret-file")
            .arg(folder.path().join("secret"))
            .arg("--set")
            .arg(format!("gate.sale_tokens.secret_file={}", folder.path().join("secret").display()))
            .arg("--set")
            .arg(format!("admin.token_file={}", folder.path().join("tokens").display()))
            .args(settings.iter().flat_map(|setting| ["--set", setting]))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).all(|line| sender.send(line).is_ok());
        });
        let mut seen = Vec::new();
        let serving = loop {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|_| panic!("not serving: {seen:#?}"));
            seen.push(line.clone());
            let event: Value = serde_json::from_str(&line).unwrap_or_default();
            if event["message"] == "serving" {
                break event;
            }
        };
        let address = |name: &str| serving[name].as_str().unwrap().parse().unwrap();
        Self { public: address("public"), admin: address("admin"), folder, child, lines, seen }
    }

    /// Its resident memory in kilobytes.
    pub(crate) fn resident_kb(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// An access token.
    pub(crate) fn token(&self, user: &str) -> String {
        let now = u64::try_from(SystemClock::new().now().as_ms() / 1_000).unwrap();
        TokenSigner::with_defaults(SECRET.as_bytes()).unwrap().sign(user, now, 3_600)
    }

    /// A request to the public listener.
    pub(crate) fn buyer(&self, method: &str, path: &str, token: Option<&str>, body: Option<&Value>) -> Reply {
        request(self.public, method, path, token, body, "")
    }

    /// A request to the staff's listener.
    pub(crate) fn staff(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        request(self.admin, method, path, Some(ADMIN), body, "")
    }

    /// Makes an open sale; answers its id and its item's.
    pub(crate) fn open_sale(&self, quantity: u64, limit: u32) -> (String, String) {
        let item =
            json!({ "productId": "DB-1", "quantity": quantity, "priceMinor": 1990, "currency": "EUR" });
        let draft = json!({ "name": "Contract", "opensAt": "2026-01-01T00:00:00Z", "closesAt": "2126-01-01T00:00:00Z",
            "maxUnitsPerUser": limit, "items": [item] });
        let sale = self.staff("POST", "/admin/api/sales", Some(&draft));
        assert_eq!(sale.status, 201, "{sale:?}");
        let id = sale.json()["saleId"].as_str().unwrap().to_owned();
        for step in ["preheat", "open"] {
            let reply = self.staff("POST", &format!("/admin/api/sales/{id}/{step}"), None);
            assert_eq!(reply.status, 200, "{reply:?}");
        }
        let item = sale.json()["items"][0]["itemId"].as_str().unwrap().to_owned();
        (id, item)
    }

    pub(crate) fn buy(&self, item: &str, user: &str) -> Reply {
        let path = format!("/api/flash-sales/items/{item}/purchase");
        self.buyer("POST", &path, Some(&self.token(user)), None)
    }

    /// Stops the server and answers every line it wrote.
    pub(crate) fn stop(mut self) -> Vec<String> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push(line);
        }
        assert!(self.child.wait().unwrap().success());
        std::mem::take(&mut self.seen)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // After `stop` there is nothing left to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a request and reads the answer.
pub(crate) fn request(
    to: SocketAddr,
    method: &str,
    path: &str,
    token: Option<&str>,
    body: Option<&Value>,
    more: &str,
) -> Reply {
    let body = body.map(ToString::to_string).unwrap_or_default();
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n{more}");
    if let Some(token) = token {
        head += &format!("Authorization: Bearer {token}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
    }
    send(to, format!("{head}\r\n{body}").as_bytes())
}

/// Sends bytes and reads what comes back until the other side closes.
pub(crate) fn send(to: SocketAddr, bytes: &[u8]) -> Reply {
    let mut stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

fn write_private(path: &Path, text: &str) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

/// A file of the repository.
pub(crate) fn in_repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}
