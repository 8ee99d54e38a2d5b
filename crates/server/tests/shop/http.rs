//! HTTP/1.1 by hand over a real socket: a client that hides nothing of what the server wrote.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest wait for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// The value of a header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }

    /// A member of the body that is text.
    pub(crate) fn text(&self, member: &str) -> String {
        let json = self.json();
        json[member].as_str().unwrap_or_else(|| panic!("no text {member}: {json}")).to_owned()
    }

    /// The order's id in a 202.
    pub(crate) fn accepted(&self) -> String {
        assert_eq!(self.status, 202, "{}", self.said());
        self.text("orderId")
    }

    /// Asserts an error of the API's one form and answers its body.
    pub(crate) fn refused(&self, status: u16, error: &str) -> Value {
        assert_eq!((self.status, self.error().as_str()), (status, error), "{}", self.said());
        assert_eq!(self.header("content-type"), Some("application/problem+json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        let id = self.header("x-request-id").unwrap_or_default();
        assert!(id.len() == 24 && id.bytes().all(|digit| digit.is_ascii_hexdigit()), "request id {id:?}");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        for member in ["type", "title", "detail"] {
            assert!(problem[member].as_str().is_some_and(|text| !text.is_empty()), "no {member}: {problem}");
        }
        // The static refusals say the same bytes to everybody: their id is in the header alone.
        if let Some(said) = problem.get("requestId") {
            assert_eq!(said, id);
        } else {
            assert!(["SOLD_OUT", "ENDED", "UNAUTHENTICATED"].contains(&error), "no requestId: {problem}");
        }
        problem
    }

    /// The error's word, empty when there is none.
    pub(crate) fn error(&self) -> String {
        let json: Value = serde_json::from_slice(&self.body).unwrap_or_default();
        json["error"].as_str().unwrap_or_default().to_owned()
    }

    /// Status and body for a failed assertion.
    pub(crate) fn said(&self) -> String {
        format!("{} {}", self.status, String::from_utf8_lossy(&self.body))
    }
}

/// Everything that came back on a connection until it closed or nothing came any more.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) bytes: Vec<u8>,
    /// Whether the server closed it.
    pub(crate) closed: bool,
}

impl Heard {
    /// How many answers began.
    pub(crate) fn answers(&self) -> usize {
        let begin = b"HTTP/1.1 ";
        self.bytes.windows(begin.len()).filter(|window| window == begin).count()
    }

    /// The first answer's status; 0 without one.
    pub(crate) fn status(&self) -> u16 {
        let digits = self.bytes.get(9..12).and_then(|digits| std::str::from_utf8(digits).ok());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// What carries a connection's bytes.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Carrier for T {}

/// One connection.
pub(crate) struct Line {
    stream: Box<dyn Carrier>,
    buffer: Vec<u8>,
}

impl Line {
    pub(crate) async fn connect(address: SocketAddr) -> std::io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self::over(stream))
    }

    /// Over a connection that was made elsewhere.
    pub(crate) fn over(stream: impl Carrier + 'static) -> Self {
        Self { stream: Box::new(stream), buffer: Vec::new() }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes).await?;
        // What is encrypted may wait for more.
        self.stream.flush().await
    }

    /// The next answer; `head_only` for the answer to a HEAD.
    ///
    /// # Errors
    /// When the connection ends before the answer does, or none comes in time.
    pub(crate) async fn reply(&mut self, head_only: bool) -> std::io::Result<Reply> {
        timeout(PATIENCE, self.read_reply(head_only)).await.map_err(|_| std::io::ErrorKind::TimedOut)?
    }

    async fn read_reply(&mut self, head_only: bool) -> std::io::Result<Reply> {
        loop {
            let head = loop {
                let end = self.buffer.windows(4).position(|window| window == b"\r\n\r\n");
                if let Some(end) = end {
                    break self.buffer.drain(..end + 4).collect::<Vec<u8>>();
                }
                self.fill().await?;
            };
            let mut reply = parse_head(&head);
            if reply.status < 200 {
                continue;
            }
            assert!(reply.header("transfer-encoding").is_none(), "answers have a length: {reply:?}");
            let bodiless = head_only || reply.status == 304 || reply.status == 204;
            let length = reply.header("content-length").map_or(0, |length| length.parse().unwrap());
            let length: usize = if bodiless { 0 } else { length };
            while self.buffer.len() < length {
                self.fill().await?;
            }
            reply.body = self.buffer.drain(..length).collect();
            return Ok(reply);
        }
    }

    async fn fill(&mut self) -> std::io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Reads until the server closes, at most `patience`.
    pub(crate) async fn rest(mut self, patience: Duration) -> Heard {
        let closed = async { while let Ok(1..) = self.stream.read_buf(&mut self.buffer).await {} };
        let closed = timeout(patience, closed).await.is_ok();
        Heard { bytes: self.buffer, closed }
    }
}

fn parse_head(head: &[u8]) -> Reply {
    let text = std::str::from_utf8(head).unwrap();
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|status| status.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    Reply { status: status.unwrap_or_else(|| panic!("no status line: {text}")), headers, body: Vec::new() }
}

/// A whole request; `headers` stand as they are given.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: shop.test\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("content-length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    [text.as_bytes(), body].concat()
}
