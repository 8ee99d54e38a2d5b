//! Request heads, over real sockets to a whole server: every answer is a documented one, and what
//! is no request never hears a 2xx.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use doorbuster_engine::clock::{ManualClock, Timestamp};
use doorbuster_server::app::App;
use doorbuster_server::config::Config;
use serde_json::Value;

/// Longest wait for the end of a connection; the server has been told that nothing more comes.
const HANG: Duration = Duration::from_secs(5);
/// What a request may hear of a server without sales, beside a 2xx.
const DOCUMENTED: [u16; 12] = [304, 400, 401, 403, 404, 405, 408, 413, 415, 422, 431, 503];

pub(crate) fn run(bytes: &[u8]) {
    let heard = ask(bytes);
    let mut rest = heard.as_slice();
    let mut answers = 0;
    while !rest.is_empty() {
        let (status, head, body, behind) = answer(rest).expect("an answer is HTTP/1.1 and whole");
        rest = behind;
        if status < 200 {
            continue;
        }
        assert!(status < 300 || DOCUMENTED.contains(&status), "{status} is not documented");
        if status >= 400 && !body.is_empty() {
            is_problem(status, &head, &body);
        }
        if answers == 0 && status < 300 {
            assert!(is_request(bytes), "{status} for what is no request");
        }
        answers += 1;
        if bytes.windows(5).any(|it| it == b"HEAD ") {
            // What answers HEAD has a length and no body: where the next begins cannot be told.
            break;
        }
    }
    let heads = bytes.windows(4).filter(|it| *it == b"\r\n\r\n").count();
    assert!(answers <= heads + 1, "{answers} answers to {heads} heads");
}

/// Sends the bytes and hears everything until the connection ends.
fn ask(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server()).expect("the server listens");
    stream.set_read_timeout(Some(HANG)).expect("a time is set");
    // A server that has refused may close before everything is sent.
    let _ = stream.write_all(bytes).and_then(|()| stream.shutdown(Shutdown::Write));
    let mut heard = Vec::new();
    if let Err(error) = stream.read_to_end(&mut heard) {
        assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the connection hangs");
    }
    heard
}

/// The first answer: status, head, body, and what follows.
fn answer(heard: &[u8]) -> Option<(u16, String, Vec<u8>, &[u8])> {
    let end = heard.windows(4).position(|it| it == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&heard[..end]).ok()?.to_ascii_lowercase();
    let status = head.strip_prefix("http/1.").and_then(|rest| rest.get(2..5)?.parse().ok())?;
    let length =
        head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse::<usize>().ok());
    let rest = &heard[end..];
    let length = length.unwrap_or(0).min(rest.len());
    Some((status, head, rest[..length].to_vec(), &rest[length..]))
}

fn is_problem(status: u16, head: &str, body: &[u8]) {
    let problem: Value = serde_json::from_slice(body).expect("a refusal is JSON");
    assert_eq!(problem["status"], status);
    assert!(problem["error"].is_string() && head.contains("application/problem+json"), "{problem}");
    assert!(head.contains("\r\nx-request-id: "), "{head}");
}

/// Whether the bytes begin with a request, by the plainest reading: a request line, one Host, every
/// line ended by CR LF. Empty lines before it are allowed.
fn is_request(bytes: &[u8]) -> bool {
    let mut bytes = bytes;
    while let Some(rest) = bytes.strip_prefix(b"\r\n") {
        bytes = rest;
    }
    let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { return false };
    let head = &bytes[..end];
    let lines: Vec<&[u8]> = head.split(|byte| *byte == b'\n').collect();
    let whole = lines.iter().rev().skip(1).all(|line| line.ends_with(b"\r"));
    let words: Vec<&[u8]> = lines[0].trim_ascii_end().split(|byte| *byte == b' ').collect();
    let line_is_good = matches!(words[..], [method, _, b"HTTP/1.1" | b"HTTP/1.0"] if !method.is_empty());
    let hosts = lines[1..].iter().filter(|line| line.to_ascii_lowercase().starts_with(b"host:")).count();
    whole && line_is_good && hosts == 1
}

/// One server for all inputs: starting one takes longer than thousands of inputs.
fn server() -> SocketAddr {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    *SERVER.get_or_init(|| {
        let (address, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
            runtime.expect("a runtime can be made").block_on(async {
                let folder = tempfile::tempdir().expect("a temporary folder can be made");
                let settings = [
                    ("server.listen", "127.0.0.1:0".to_owned()),
                    ("server.cores", "1".to_owned()),
                    ("admin.listen", "127.0.0.1:0".to_owned()),
                    ("data.dir", folder.path().join("data").display().to_string()),
                    ("gate.jwt.secret", "a-secret-of-the-fuzzer-0123456789-and-no-other".to_owned()),
                ];
                let settings = settings.map(|(key, value)| (key.to_owned(), value));
                let config = Config::read(None, [], &settings).expect("the settings are sound");
                let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_800_000_000_000)));
                let app = App::start(&config, clock, Default::default()).await.expect("a server starts");
                address.send(app.public_address()).expect("somebody waits for it");
                std::future::pending::<()>().await;
            });
        });
        told.recv().expect("the server starts")
    })
}
