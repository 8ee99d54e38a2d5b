//! What a URL names: one server, the master that sentinels name, or a cluster.

use redis::cluster::ClusterClient;
use redis::io::tcp::TcpSettings;
use redis::sentinel::{SentinelClient, SentinelClientBuilder, SentinelServerType};
use redis::{Client, ConnectionAddr, ConnectionInfo, IntoConnectionInfo, TlsMode};
use tokio::sync::Mutex;

use super::RedisOptions;
use super::tls;
use crate::fault::{BackendError, Fault, Layer};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Server,
    Cluster,
    Sentinel,
}

/// A URL, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    kind: Kind,
    tls: bool,
    /// User and password as the URL has them, with the `@`.
    login: String,
    hosts: Vec<String>,
    /// The database's number, or the master's name.
    path: String,
}

/// Makes connections.
pub(super) enum Dialer {
    Server(Box<Client>),
    /// One for each sentinel, so that all can be asked at once.
    Sentinels(Vec<Mutex<SentinelClient>>),
    Cluster(Box<ClusterClient>),
}

impl Target {
    pub(super) fn parse(url: &str) -> Result<Self, BackendError> {
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it has no scheme"))?;
        let (kind, tls) = match scheme {
            "redis" => (Kind::Server, false),
            "rediss" => (Kind::Server, true),
            "redis+cluster" => (Kind::Cluster, false),
            "rediss+cluster" => (Kind::Cluster, true),
            "redis+sentinel" => (Kind::Sentinel, false),
            "rediss+sentinel" => (Kind::Sentinel, true),
            _ => return Err(wrong("its scheme is not known")),
        };
        let (login, rest) = match rest.rfind('@') {
            Some(at) => rest.split_at(at + 1),
            None => ("", rest),
        };
        let (hosts, path) = rest.split_once('/').unwrap_or((rest, ""));
        let hosts: Vec<String> =
            hosts.split(',').filter(|host| !host.is_empty()).map(str::to_owned).collect();
        if hosts.is_empty() {
            return Err(wrong("it names no host"));
        }
        if kind == Kind::Server && hosts.len() > 1 {
            return Err(wrong("it names several hosts: use redis+cluster:// or redis+sentinel://"));
        }
        if kind == Kind::Sentinel && path.is_empty() {
            return Err(wrong("it does not name the master: end it with /mymaster"));
        }
        Ok(Self { kind, tls, login: login.to_owned(), hosts, path: path.to_owned() })
    }

    /// For messages: without the password.
    pub(super) fn name(&self) -> String {
        let hosts = self.hosts.join(",");
        match self.kind {
            Kind::Server => format!("the Redis at {hosts}"),
            Kind::Cluster => format!("the Redis cluster at {hosts}"),
            Kind::Sentinel => format!("the Redis master {} that the sentinels at {hosts} name", self.path),
        }
    }

    pub(super) fn dialer(&self, options: &RedisOptions) -> Result<Dialer, BackendError> {
        let unusable = |error| wrong("it cannot be used").caused_by(error);
        let certificates = tls::certificates(options)?;
        let infos = self.infos()?;
        match self.kind {
            Kind::Server => {
                let info = infos.into_iter().next().ok_or_else(|| wrong("it names no host"))?;
                let client = match certificates {
                    Some(certificates) => Client::build_with_tls(info, certificates),
                    None => Client::open(info),
                };
                client.map(|it| Dialer::Server(Box::new(it))).map_err(unusable)
            }
            Kind::Cluster => {
                let mut builder = ClusterClient::builder(infos)
                    // What may have run is repeated by the caller, who knows its ids.
                    .retries(0)
                    .connection_timeout(options.connect_timeout)
                    .response_timeout(options.response_timeout)
                    .tcp_settings(TcpSettings::default().set_nodelay(true));
                if let Some(certificates) = certificates {
                    builder = builder.certs(certificates);
                }
                builder.build().map(|it| Dialer::Cluster(Box::new(it))).map_err(unusable)
            }
            Kind::Sentinel => {
                let client = |info| self.sentinel_client(info, certificates.clone()).map(Mutex::new);
                infos
                    .into_iter()
                    .map(client)
                    .collect::<Result<_, _>>()
                    .map(Dialer::Sentinels)
                    .map_err(unusable)
            }
        }
    }

    fn sentinel_client(
        &self,
        info: ConnectionInfo,
        certificates: Option<redis::TlsCertificates>,
    ) -> redis::RedisResult<SentinelClient> {
        let login = info.redis_settings();
        let sentinel = match info.addr() {
            // The sentinels' own connections are plain unless they are told otherwise.
            ConnectionAddr::TcpTls { host, port, .. } if !self.tls => {
                ConnectionAddr::Tcp(host.clone(), *port)
            }
            address => address.clone(),
        };
        let nodelay = TcpSettings::default().set_nodelay(true);
        let mut builder = SentinelClientBuilder::new([sentinel], &self.path, SentinelServerType::Master)?
            .set_client_to_redis_tcp_settings(nodelay.clone())
            .set_client_to_sentinel_tcp_settings(nodelay);
        if let Some(user) = login.username() {
            builder = builder.set_client_to_redis_username(user);
        }
        if let Some(password) = login.password() {
            builder = builder.set_client_to_redis_password(password);
        }
        if self.tls {
            builder = builder
                .set_client_to_redis_tls_mode(TlsMode::Secure)
                .set_client_to_sentinel_tls_mode(TlsMode::Secure);
        }
        if let Some(certificates) = certificates {
            builder = builder
                .set_client_to_redis_certificates(certificates.clone())
                .set_client_to_sentinel_certificates(certificates);
        }
        builder.build()
    }

    /// What the client library needs to know of each host.
    fn infos(&self) -> Result<Vec<ConnectionInfo>, BackendError> {
        let scheme = if self.tls { "rediss" } else { "redis" };
        let database = if self.kind == Kind::Server { self.path.as_str() } else { "" };
        let info = |host: &String| {
            let url = format!("{scheme}://{}{host}/{database}", self.login);
            let info = url
                .into_connection_info()
                .map_err(|_| wrong("a host, a port or the database is malformed"))?;
            Ok(info.set_tcp_settings(TcpSettings::default().set_nodelay(true)))
        };
        self.hosts.iter().map(info).collect()
    }
}

/// The URL itself is not printed: it may carry a password.
fn wrong(why: &str) -> BackendError {
    let what = format!(
        "redis.url cannot be used: {why}. Forms: redis://host:6379, rediss:// for TLS, \
         redis+cluster://host:7000,host:7001, redis+sentinel://host:26379,host:26380/mymaster"
    );
    BackendError::new(Layer::Stock, Fault::Permanent, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let target = Target::parse("rediss+cluster://shop:p@ss@one:7000,two:7001").unwrap();
        assert_eq!((target.kind, target.tls), (Kind::Cluster, true));
        assert_eq!((target.login.as_str(), target.hosts.len()), ("shop:p@ss@", 2));
        assert_eq!(Target::parse("redis://localhost/3").unwrap().path, "3");
        assert_eq!(Target::parse("redis+sentinel://a:1,b:2/mymaster").unwrap().path, "mymaster");
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_naming_the_password() {
        for url in
            ["", "localhost:6379", "http://x", "redis://", "redis://a,b", "redis+sentinel://u:secret@a"]
        {
            let error = Target::parse(url).unwrap_err().to_string();
            assert!(error.contains("redis.url") && !error.contains("secret"), "{url}: {error}");
        }
    }
}
