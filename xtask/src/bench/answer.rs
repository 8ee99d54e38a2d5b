//! One HTTP answer, asked for by hand: enough to copy it into a yardstick and to leave a
//! connection idle behind it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Asks for a purchase over a connection of its own.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) fn ask(address: SocketAddr, path: &str, token: &str) -> Result<Self> {
        Self::ask_over(&mut TcpStream::connect(address)?, path, token)
    }

    /// Asks for a purchase over an open connection, which stays open.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) fn ask_over(stream: &mut TcpStream, path: &str, token: &str) -> Result<Self> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut text = Vec::new();
        let mut piece = [0; 4_096];
        loop {
            let count = stream.read(&mut piece).context("waiting for an answer")?;
            if count == 0 {
                bail!("the server closed the connection after {} bytes", text.len());
            }
            text.extend_from_slice(&piece[..count]);
            let so_far = std::str::from_utf8(&text).context("the answer is not text")?;
            if let Some(answer) = Self::parse(so_far)
                && answer.is_whole()
            {
                return Ok(answer);
            }
        }
    }

    /// Reads an answer whose head is whole.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Self { status, headers, body: body.to_owned() })
    }

    /// The first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }

    fn is_whole(&self) -> bool {
        let length = self.header("content-length").and_then(|length| length.parse().ok());
        self.body.len() >= length.unwrap_or(0_usize)
    }
}
