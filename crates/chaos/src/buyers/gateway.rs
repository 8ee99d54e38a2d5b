//! One connection to one gateway: a request, and how it ended.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use doorbuster_wire::{JsonScalar, Problem};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::OrderId;
use crate::history::{Answer, Ending};

/// Longest body of an answer; real ones have a few hundred bytes.
const MAX_BODY: usize = 64 * 1024;

/// What is asked.
pub(super) struct Ask<'a> {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) token: String,
    pub(super) key: Option<&'a str>,
    pub(super) body: Option<String>,
}

/// A connection that is kept open between two asks.
pub(super) struct Line {
    pub(super) address: SocketAddr,
    sender: Option<SendRequest<Full<Bytes>>>,
}

impl Line {
    pub(super) fn to(address: SocketAddr) -> Self {
        Self { address, sender: None }
    }

    /// Asks and waits for the answer, at most `limit` in all.
    pub(super) async fn ask(&mut self, ask: &Ask<'_>, limit: Duration) -> Ending {
        let deadline = Instant::now() + limit;
        let ready = timeout_at(deadline, self.ready()).await;
        let (Ok(Some(mut sender)), Some(request)) = (ready, self.request(ask)) else {
            return Ending::NotSent;
        };
        // From here on the server may have heard of it.
        let answered = timeout_at(deadline, async {
            let (head, body) = sender.send_request(request).await.ok()?.into_parts();
            let body = Limited::new(body, MAX_BODY).collect().await.ok()?.to_bytes();
            Some(answer(head.status.as_u16(), &head.headers, &body))
        });
        match answered.await {
            Ok(Some(answer)) => {
                self.sender = Some(sender);
                Ending::Answered(answer)
            }
            // A connection that is in the middle of something is not used again.
            Ok(None) | Err(_) => Ending::Unknown,
        }
    }

    /// The kept connection if it is still open, else a new one.
    async fn ready(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        if let Some(mut sender) = self.sender.take()
            && sender.ready().await.is_ok()
        {
            return Some(sender);
        }
        let stream = TcpStream::connect(self.address).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.ok()?;
        // It ends when its sender is dropped, and its end tells the sender.
        #[expect(
            clippy::disallowed_methods,
            reason = "hyper's half of a connection, which ends with the line"
        )]
        tokio::spawn(connection);
        sender.ready().await.ok()?;
        Some(sender)
    }

    fn request(&self, ask: &Ask<'_>) -> Option<Request<Full<Bytes>>> {
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(&ask.path)
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", ask.token));
        if let Some(key) = ask.key {
            request = request.header("idempotency-key", key);
        }
        if ask.body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let body = ask.body.clone().unwrap_or_default();
        request.body(Full::new(Bytes::from(body))).ok()
    }
}

/// What a success says of an order.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Success {
    order_id: String,
    status: String,
}

fn answer(status: u16, headers: &HeaderMap, body: &[u8]) -> Answer {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let mut answer = Answer {
        status,
        replayed: header("idempotent-replayed") == Some("true"),
        retry_after_s: header(RETRY_AFTER.as_str()).and_then(|text| text.parse().ok()),
        ..Answer::default()
    };
    if let Ok(success) = serde_json::from_slice::<Success>(body)
        && (200..300).contains(&status)
    {
        answer.order = OrderId::read(&success.order_id);
        answer.order_status = Some(success.status);
    } else if let Ok(problem) = serde_json::from_slice::<Problem>(body) {
        answer.order = problem.order_id.as_deref().and_then(OrderId::read);
        if let Some(JsonScalar::Texts(orders)) = problem.more.get("orderIds") {
            answer.holding = orders.iter().filter_map(|order| OrderId::read(order)).collect();
        }
        if let Some(JsonScalar::Integer(left)) = problem.more.get("left") {
            answer.left = u64::try_from(*left).ok();
        }
        answer.error = Some(problem.error);
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: &str = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";

    fn said(status: u16, body: &str) -> Answer {
        answer(status, &HeaderMap::new(), body.as_bytes())
    }

    #[test]
    fn an_accepted_order_is_understood_and_so_is_a_replay() {
        let body = format!(r#"{{"orderId":"{ORDER}","status":"PENDING","payable":false}}"#);
        let mut headers = HeaderMap::new();
        headers.insert("idempotent-replayed", "true".parse().unwrap());
        headers.insert("retry-after", "1".parse().unwrap());
        let answer = answer(202, &headers, body.as_bytes());
        assert_eq!(answer.order, OrderId::read(ORDER));
        assert_eq!((answer.replayed, answer.retry_after_s), (true, Some(1)));
        assert!(!said(202, &body).replayed);
    }

    #[test]
    fn a_refusal_is_understood_with_what_it_names() {
        let problem = |more: &str| {
            format!(r#"{{"type":"t","title":"t","status":409,"detail":"d","error":"WORD"{more}}}"#)
        };
        let held = said(409, &problem(&format!(r#","orderId":"{ORDER}""#)));
        assert_eq!((held.error.as_deref(), held.order), (Some("WORD"), OrderId::read(ORDER)));
        let limit = said(409, &problem(&format!(r#","orderIds":["{ORDER}"]"#)));
        assert_eq!(limit.holding, [OrderId::read(ORDER).unwrap()]);
        assert_eq!(said(410, &problem(r#","left":2,"mayReturn":true"#)).left, Some(2));
        assert_eq!(said(502, "<html>"), Answer { status: 502, ..Answer::default() });
    }

    #[tokio::test]
    async fn nobody_at_the_address_is_not_sent() {
        // Bound, so that nobody else gets the port, and not listening.
        let nobody = tokio::net::TcpSocket::new_v4().unwrap();
        nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let ask =
            Ask { method: Method::GET, path: "/".to_owned(), token: "t".to_owned(), key: None, body: None };
        let ending = Line::to(nobody.local_addr().unwrap()).ask(&ask, Duration::from_secs(5)).await;
        assert_eq!(ending, Ending::NotSent);
    }

    #[tokio::test]
    async fn a_connection_that_breaks_before_the_answer_is_unknown() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let ask = Ask {
            method: Method::POST,
            path: "/x".to_owned(),
            token: "t".to_owned(),
            key: Some("k"),
            body: Some("{}".to_owned()),
        };
        let mut line = Line::to(address);
        let reading = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut bytes = vec![0; 64];
            tokio::io::AsyncReadExt::read(&mut stream, &mut bytes).await.unwrap();
            // The stream is dropped here: the request was read, and nobody answers it.
        };
        let (ending, ()) = tokio::join!(line.ask(&ask, Duration::from_secs(5)), reading);
        assert_eq!(ending, Ending::Unknown);
    }
}
