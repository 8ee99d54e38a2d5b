//! The staff's client over a connection that breaks.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

use doorbuster_loadtest::{AdminClient, AdminError};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The next request on this connection, which has no body: its first line, and its key.
async fn heard(stream: &mut TcpStream) -> (String, Option<String>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let key = head.lines().find_map(|line| line.strip_prefix("idempotency-key: "));
    (head.lines().next().unwrap().to_owned(), key.map(str::to_owned))
}

async fn say(stream: &mut TcpStream, body: &Value) {
    let body = body.to_string();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_change_whose_connection_broke_is_sent_again_under_the_same_key() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = AdminClient::new(&format!("http://{}", listener.local_addr().unwrap()), "token").unwrap();
    let server = async {
        let (mut first, _) = listener.accept().await.unwrap();
        assert_eq!(heard(&mut first).await.1, None, "who only looks needs no key");
        say(&mut first, &json!({})).await;
        let (sent, key) = heard(&mut first).await;
        drop(first);

        let (mut second, _) = listener.accept().await.unwrap();
        assert_eq!(heard(&mut second).await, (sent, key.clone()));
        say(&mut second, &json!({"again": true})).await;
        let (_, other) = heard(&mut second).await;
        assert!(key.is_some() && other.is_some() && key != other, "each change has a key of its own");
        drop(second);

        // On a new connection nobody knows how far it came: it is told.
        let (mut third, _) = listener.accept().await.unwrap();
        assert_eq!(heard(&mut third).await.1, other);
        drop(third);
    };
    let staff = async {
        client.get::<Value>("/admin/api/switches").await.unwrap();
        let again: Value = client.post("/admin/api/sales/1/pause", &()).await.unwrap();
        assert_eq!(again["again"], true);
        let lost = client.post::<_, Value>("/admin/api/sales/1/pause", &()).await;
        assert!(matches!(lost, Err(AdminError::Unreachable { sent: true, .. })), "{lost:?}");
    };
    tokio::join!(server, staff);
}
