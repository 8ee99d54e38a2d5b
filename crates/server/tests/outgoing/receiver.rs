//! The shop's side: takes webhooks by plain HTTP and checks signatures in its own words.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::shop::until;

/// The secrets of the endpoint, an old one and a new one.
pub(crate) const SECRETS: [&str; 2] = [
    "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=",
    "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
];

/// What the receiver does with a webhook.
pub(crate) enum Answer {
    Status(u16),
    Redirect(String),
    /// It reads and says nothing.
    Silence,
    /// It says 200 and then talks without end.
    Endless,
}

/// One webhook as it came.
#[derive(Clone, Debug)]
pub(crate) struct Heard {
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) json: Value,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str()).unwrap_or_default()
    }
}

type Behaviour = dyn Fn(usize) -> Answer + Send + Sync;

#[derive(Default)]
struct Log {
    heard: Mutex<Vec<Heard>>,
    connections: AtomicUsize,
}

/// A receiver on the loopback; it ends when it is dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    log: Arc<Log>,
    task: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Receiver {
    /// Answers number `n`, from 0, as `behaviour` says.
    #[expect(clippy::disallowed_methods, reason = "the shop's server, beside ours")]
    pub(crate) async fn start(behaviour: impl Fn(usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let log = Arc::new(Log::default());
        let (behaviour, seen): (Arc<Behaviour>, _) = (Arc::new(behaviour), Arc::clone(&log));
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                seen.connections.fetch_add(1, Ordering::SeqCst);
                connections.spawn(serve(stream, Arc::clone(&behaviour), Arc::clone(&seen)));
            }
        });
        Self { url: format!("http://{address}/hooks/doorbuster"), log, task }
    }

    /// How many webhooks have come.
    pub(crate) fn count(&self) -> usize {
        self.log.heard.lock().unwrap().len()
    }

    /// How often somebody connected.
    pub(crate) fn connections(&self) -> usize {
        self.log.connections.load(Ordering::SeqCst)
    }

    /// Waits for so many webhooks and answers them in the order in which they came.
    pub(crate) async fn until(&self, count: usize) -> Vec<Heard> {
        until(&format!("{count} webhooks have come"), async || self.count() >= count).await;
        self.log.heard.lock().unwrap().clone()
    }
}

async fn serve(mut stream: TcpStream, behaviour: Arc<Behaviour>, log: Arc<Log>) {
    while let Some(heard) = read(&mut stream).await {
        let number = {
            let mut all = log.heard.lock().unwrap();
            all.push(heard);
            all.len() - 1
        };
        let reply = match behaviour(number) {
            Answer::Status(status) => format!("HTTP/1.1 {status} Said\r\ncontent-length: 2\r\n\r\nok"),
            Answer::Redirect(to) => {
                format!("HTTP/1.1 307 Elsewhere\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n")
            }
            Answer::Silence => std::future::pending().await,
            Answer::Endless => {
                let _ = stream.write_all(b"HTTP/1.1 200 Said\r\nconnection: close\r\n\r\n").await;
                while stream.write_all(&[b'x'; 1_024]).await.is_ok() {}
                return;
            }
        };
        // A 204 has no body.
        let reply = if reply.contains(" 204 ") { "HTTP/1.1 204 Said\r\n\r\n".to_owned() } else { reply };
        if stream.write_all(reply.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// One request, whose body's length stands in its head.
async fn read(stream: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    assert!(text.starts_with("POST /hooks/doorbuster HTTP/1.1\r\n"), "{text}");
    let headers: Vec<(String, String)> = text
        .lines()
        .skip(1)
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").unwrap().1.parse::<usize>().unwrap();
    while bytes.len() < head + 4 + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    let body = bytes[head + 4..].to_vec();
    let json = serde_json::from_slice(&body).unwrap();
    Some(Heard { headers, body, json })
}

/// Whether one of a webhook's signatures is that of `secret`, as a receiver computes it.
pub(crate) fn signed_by(heard: &Heard, secret: &str) -> bool {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{}.{}.", heard.header("webhook-id"), heard.header("webhook-timestamp")).as_bytes());
    mac.update(&heard.body);
    let wanted = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    heard.header("webhook-signature").split(' ').any(|it| it == wanted)
}
