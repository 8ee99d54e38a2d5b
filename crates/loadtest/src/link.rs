//! One kept-alive HTTP/1.1 connection, driven by whoever uses it: no task beside it.
//!
//! hyper splits a client connection into a sender and a future that must be polled for anything to
//! move. Both are polled here from the same task, so an exchange needs no spawn and no wake-up of
//! another task.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::header::{HeaderMap, HeaderValue, RETRY_AFTER};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde::Deserialize;
use thiserror::Error;
use tokio::net::TcpSocket;
use tokio::time::{Instant, Sleep};

use crate::stream::Stream;
use crate::trust::Trust;

/// A server's base URL, resolved once: where to connect and what to send as `Host` and path.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) host: HeaderValue,
    /// What stands before `/api` in the path; empty or `/something` without a slash at its end.
    pub(crate) prefix: String,
    /// Who is believed, and what name the server must prove; `None` for plain HTTP.
    tls: Option<(Trust, ServerName<'static>)>,
}

impl Target {
    /// The address that connection `index` comes from: one of its own when the server is on loopback,
    /// so that neither ports nor limits per address run out.
    pub(crate) fn source(&self, index: usize) -> Option<Ipv4Addr> {
        match self.address.ip() {
            IpAddr::V4(address) if address.is_loopback() => {
                let n = u32::try_from(index).unwrap_or(0) + 1;
                Some(Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 1, 0, 0)) + n))
            }
            _ => None,
        }
    }
}

/// Why a base URL cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// The text is not a URL of HTTP with a host.
    #[error("{url:?} is not a base URL such as http://127.0.0.1:8080")]
    Invalid {
        /// What was given.
        url: String,
    },
    /// The URL asks for TLS, which storms go without.
    #[error(
        "{url:?}: only plain http:// is supported; put a proxy that ends TLS beside this \
         program, or use the server's plain listener"
    )]
    NotPlainHttp {
        /// What was given.
        url: String,
    },
    /// The URL asks for TLS, and nobody is trusted to say who a server is.
    #[error("{url:?}: this system has no authorities to trust: name the server's own")]
    NoAuthorities {
        /// What was given.
        url: String,
    },
    /// The host name has no address.
    #[error("{url:?}: the host cannot be resolved")]
    Unresolved {
        /// What was given.
        url: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
}

/// A base URL taken apart, before its host was resolved.
#[derive(Clone, Debug)]
pub(crate) struct BaseUrl {
    url: String,
    host: String,
    port: u16,
    host_header: HeaderValue,
    prefix: String,
    is_encrypted: bool,
    /// Who is believed; those of the system when nobody was named.
    trust: Option<Trust>,
}

impl BaseUrl {
    /// A storm's: plain HTTP.
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        let base = Self::parse_any(url)?;
        if base.is_encrypted {
            return Err(UrlError::NotPlainHttp { url: url.to_owned() });
        }
        Ok(base)
    }

    /// Encrypted or not.
    pub(crate) fn parse_any(url: &str) -> Result<Self, UrlError> {
        let invalid = || UrlError::Invalid { url: url.to_owned() };
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority = uri.authority().ok_or_else(invalid)?;
        let is_encrypted = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            Some(_) | None => return Err(invalid()),
        };
        if uri.query().is_some() || authority.as_str().contains('@') || authority.host().is_empty() {
            return Err(invalid());
        }

        Ok(Self {
            url: url.to_owned(),
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(if is_encrypted { 443 } else { 80 }),
            host_header: HeaderValue::from_str(authority.as_str()).map_err(|_| invalid())?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            is_encrypted,
            trust: None,
        })
    }

    /// The same, believing nobody else.
    pub(crate) fn trusting(self, trust: Trust) -> Self {
        Self { trust: Some(trust), ..self }
    }

    fn tls(&self) -> Result<Option<(Trust, ServerName<'static>)>, UrlError> {
        if !self.is_encrypted {
            return Ok(None);
        }
        let trust = self.trust.clone().or_else(Trust::system);
        let trust = trust.ok_or_else(|| UrlError::NoAuthorities { url: self.url.clone() })?;
        let name = ServerName::try_from(self.host.clone());
        let name = name.map_err(|_| UrlError::Invalid { url: self.url.clone() })?;
        Ok(Some((trust, name)))
    }

    pub(crate) async fn resolve(&self) -> Result<Target, UrlError> {
        let unresolved = |source| UrlError::Unresolved { url: self.url.clone(), source };
        let addresses: Vec<_> =
            tokio::net::lookup_host((self.host.as_str(), self.port)).await.map_err(unresolved)?.collect();
        // `localhost` often comes as ::1 first, while servers listen on 127.0.0.1.
        let address = addresses
            .iter()
            .find(|address| address.is_ipv4())
            .or(addresses.first())
            .copied()
            .ok_or_else(|| unresolved(io::Error::other("the name has no address")))?;
        let (host, prefix) = (self.host_header.clone(), self.prefix.clone());
        Ok(Target { address, host, prefix, tls: self.tls()? })
    }
}

/// A whole answer, read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Whole seconds of `Retry-After`; `None` when absent or a date.
    pub(crate) retry_after_s: Option<u64>,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// What is read of a refusal. Less than [`Problem`](doorbuster_wire::Problem) asks for, because a
/// refusal may come from another program in between.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Refusal {
    pub(crate) error: String,
    #[serde(default)]
    pub(crate) detail: Option<String>,
    #[serde(default)]
    pub(crate) order_id: Option<String>,
}

/// Why an exchange brought no answer. The connection is of no use afterwards.
#[derive(Debug)]
pub(crate) enum Broken {
    /// The connection was found closed before anything was sent: opening a new one is safe.
    BeforeSending,
    /// The connection ended, or what came back was not HTTP; the server may have acted.
    Lost(hyper::Error),
    /// Nothing complete came within the time limit; the server may have acted.
    TimedOut,
    /// The body was longer than the caller's bound.
    TooLong,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::BeforeSending => f.write_str("the connection was closed"),
            Broken::Lost(error) if error.is_parse() => {
                write!(
                    f,
                    "what answers there is not HTTP ({error}): a listener with TLS is reached by https://"
                )
            }
            Broken::Lost(error) => write!(f, "the connection broke: {error}"),
            Broken::TimedOut => f.write_str("no answer within the time limit"),
            Broken::TooLong => f.write_str("the answer is too long"),
        }
    }
}

/// An open connection to one [`Target`].
pub(crate) struct Link {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended: it must not be polled again.
    connection: Option<Connection<TokioIo<Stream>, Full<Bytes>>>,
    /// Fires at or before `deadline`. Moving a timer costs more than reading a clock, so it is
    /// only set anew when it fires too early, once per time limit instead of once per request.
    timer: Pin<Box<Sleep>>,
    deadline: Instant,
}

impl Link {
    /// Connects within `limit`; `source` is the client's own address, any when `None`.
    pub(crate) async fn open(target: &Target, source: Option<Ipv4Addr>, limit: Duration) -> io::Result<Self> {
        let socket = if target.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        if let Some(source) = source {
            socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
        }
        let stream = tokio::time::timeout(limit, socket.connect(target.address))
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        stream.set_nodelay(true)?;
        let stream = match &target.tls {
            None => Stream::Plain(stream),
            Some((trust, name)) => {
                let shaken = tokio::time::timeout(limit, trust.connect(name, stream)).await;
                Stream::Encrypted(Box::new(shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??))
            }
        };
        let (sender, connection) = Builder::new()
            // A request is one small buffer, so there is nothing to gather.
            .writev(false)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let deadline = now();
        Ok(Self {
            sender,
            connection: Some(connection),
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            deadline,
        })
    }

    /// Sends one request and reads its answer, whose body may have `max_body` bytes, within `limit`.
    pub(crate) async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        limit: Duration,
        max_body: usize,
    ) -> Result<Answer, Broken> {
        self.deadline = now() + limit;
        poll_fn(|cx| {
            self.poll_connection(cx);
            match self.sender.poll_ready(cx) {
                Poll::Pending => self.poll_timer(cx).map(Err),
                Poll::Ready(ready) => Poll::Ready(ready.map_err(|_| Broken::BeforeSending)),
            }
        })
        .await?;

        let mut response = pin!(self.sender.send_request(request));
        let response = poll_fn(|cx| {
            self.poll_connection(cx);
            match response.as_mut().poll(cx) {
                Poll::Pending => self.poll_timer(cx).map(Err),
                Poll::Ready(response) => Poll::Ready(response.map_err(Broken::Lost)),
            }
        })
        .await?;
        let (head, body) = response.into_parts();
        let retry_after_s = head
            .headers
            .get(RETRY_AFTER)
            .and_then(|value| value.to_str().ok())
            .and_then(|text| text.trim().parse().ok());
        Ok(Answer {
            status: head.status.as_u16(),
            retry_after_s,
            headers: head.headers,
            body: self.read_body(body, max_body).await?,
        })
    }

    async fn read_body(&mut self, mut body: Incoming, max_body: usize) -> Result<Bytes, Broken> {
        let mut first = Bytes::new();
        let mut more = BytesMut::new();
        while !body.is_end_stream() {
            let frame = poll_fn(|cx| {
                self.poll_connection(cx);
                match Pin::new(&mut body).poll_frame(cx) {
                    Poll::Pending => self.poll_timer(cx).map(Err),
                    Poll::Ready(frame) => Poll::Ready(frame.transpose().map_err(Broken::Lost)),
                }
            })
            .await?;
            let Some(frame) = frame else { break };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if first.len() + more.len() + data.len() > max_body {
                return Err(Broken::TooLong);
            }
            if first.is_empty() {
                first = data;
            } else {
                more.extend_from_slice(&data);
            }
        }
        if more.is_empty() {
            return Ok(first);
        }
        let mut whole = BytesMut::with_capacity(first.len() + more.len());
        whole.extend_from_slice(&first);
        whole.extend_from_slice(&more);
        Ok(whole.freeze())
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) {
        let ended = match &mut self.connection {
            Some(connection) => Pin::new(connection).poll(cx).is_ready(),
            None => false,
        };
        if ended {
            self.connection = None;
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<Broken> {
        while self.timer.as_mut().poll(cx).is_ready() {
            if now() >= self.deadline {
                return Poll::Ready(Broken::TimedOut);
            }
            self.timer.as_mut().reset(self.deadline);
        }
        Poll::Pending
    }
}

fn now() -> Instant {
    Instant::now()
}
