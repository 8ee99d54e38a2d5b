//! A small HTTP server on a port of the loopback, for stand-ins of other people's services: one request a
//! connection, answered as the stand-in wants, also badly.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// Longest wait for a request's bytes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest request that is read.
const REQUEST_MAX: usize = 64 * 1024;

/// A request as it came.
pub(crate) struct Request {
    /// Method, path and headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

/// What a stand-in answers.
pub(crate) enum Reply {
    /// A whole answer; `more` are headers beside the usual ones, each with its line's end.
    Whole { status: u16, kind: &'static str, more: String, body: Vec<u8> },
    /// Nothing, and the connection stays open.
    Silence,
    /// The connection ends.
    End,
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::Whole { status, kind: "application/json", more: String::new(), body: body.into() }
    }

    pub(crate) fn redirect(to: &str) -> Self {
        Self::Whole { status: 302, kind: "text/plain", more: format!("Location: {to}\r\n"), body: Vec::new() }
    }
}

/// The server. It ends with its value.
pub(crate) struct Http {
    pub(crate) address: SocketAddr,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Http {
    pub(crate) fn start(answer: impl Fn(&Request) -> Reply + Send + 'static) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("a port for a stand-in")?;
        let address = listener.local_addr()?;
        let over = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            // Those who hear nothing are kept, or they would hear that the connection ended.
            let mut silent = Vec::new();
            for connection in listener.incoming() {
                if ended.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(mut connection) = connection else { continue };
                // Whoever sends no whole request hears that the connection ends.
                if let Ok(true) = serve(&mut connection, &answer) {
                    silent.push(connection);
                }
            }
        });
        Ok(Self { address, over, thread: Some(thread) })
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        // Wakes the thread, which then sees that it is over.
        drop(TcpStream::connect(self.address));
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Answers one request; whether the connection is to stay open without an answer.
fn serve(connection: &mut TcpStream, answer: &impl Fn(&Request) -> Reply) -> std::io::Result<bool> {
    connection.set_read_timeout(Some(PATIENCE))?;
    let Some(request) = read(connection)? else { return Ok(false) };
    match answer(&request) {
        Reply::Silence => return Ok(true),
        Reply::End => {}
        Reply::Whole { status, kind, more, body } => {
            let length = body.len();
            write!(
                connection,
                "HTTP/1.1 {status} Said\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}Connection: close\r\n\r\n"
            )?;
            connection.write_all(&body)?;
        }
    }
    Ok(false)
}

/// A whole request; nothing when the connection ended before it did.
fn read(connection: &mut TcpStream) -> std::io::Result<Option<Request>> {
    let (mut bytes, mut part) = (Vec::new(), [0; 1024]);
    let mut more = |bytes: &mut Vec<u8>| -> std::io::Result<bool> {
        let read = connection.read(&mut part)?;
        bytes.extend_from_slice(&part[..read]);
        Ok(read > 0 && bytes.len() <= REQUEST_MAX)
    };
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end + 4;
        }
        if !more(&mut bytes)? {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let length = head.lines().filter_map(|line| line.split_once(':'));
    let mut length = length.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length: usize = length.next().and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0);
    while bytes.len() < head_end + length {
        if !more(&mut bytes)? {
            return Ok(None);
        }
    }
    Ok(Some(Request { head, body: bytes[head_end..].to_vec() }))
}
