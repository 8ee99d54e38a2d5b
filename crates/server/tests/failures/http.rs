//! Just enough HTTP to ask a probe, and to buy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longest wait for an answer.
const ANSWER: Duration = Duration::from_secs(3);

/// The status and body of a GET without a token; `None` when there is no answer.
pub(crate) async fn get(address: SocketAddr, path: &str) -> Option<(u16, String)> {
    ask(address, path, "").await
}

/// The same with a token.
pub(crate) async fn get_as(address: SocketAddr, path: &str, token: &str) -> Option<(u16, String)> {
    ask(address, path, &format!("Authorization: Bearer {token}\r\n")).await
}

/// The answer to one purchase of one unit.
pub(crate) async fn buy(address: SocketAddr, item: &str, token: &str) -> Option<(u16, String)> {
    let body = r#"{"quantity":1}"#;
    let path = format!("/api/flash-sales/items/{item}/purchase");
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    send(address, head).await
}

async fn ask(address: SocketAddr, path: &str, more: &str) -> Option<(u16, String)> {
    send(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{more}Connection: close\r\n\r\n")).await
}

async fn send(address: SocketAddr, head: String) -> Option<(u16, String)> {
    let asking = async {
        let mut stream = TcpStream::connect(address).await.ok()?;
        stream.write_all(head.as_bytes()).await.ok()?;
        let mut text = Vec::new();
        stream.read_to_end(&mut text).await.ok()?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    };
    tokio::time::timeout(ANSWER, asking).await.ok()?
}

/// The status alone.
pub(crate) async fn status_of(address: SocketAddr, path: &str) -> Option<u16> {
    get(address, path).await.map(|(status, _)| status)
}
