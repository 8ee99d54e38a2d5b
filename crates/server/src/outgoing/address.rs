//! Where events may be sent. Whoever can choose an address could otherwise reach what only this
//! machine reaches: other servers of its network, or the cloud's own services.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Longest address of an endpoint, in bytes.
const URL_MAX: usize = 2_000;

/// An address that is not called, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is at {address}, {why}: not called")]
pub(crate) struct NotCalled {
    host: String,
    address: IpAddr,
    why: &'static str,
}

/// Hosts that may be private, and may be reached without encryption.
#[derive(Clone, Debug)]
pub(crate) struct Allowed(Arc<[String]>);

impl Allowed {
    /// The hosts of `events.allow_private`.
    pub(crate) fn new(hosts: &[String]) -> Self {
        Self(hosts.iter().map(|host| bare(host).to_ascii_lowercase()).collect())
    }

    pub(crate) fn has(&self, host: &str) -> bool {
        self.0.iter().any(|it| *it == bare(host).to_ascii_lowercase())
    }

    /// An endpoint's address, or what is wrong with it, in words. Names are looked up later, each time.
    pub(crate) fn checked(&self, text: &str) -> Result<Url, String> {
        if text.len() > URL_MAX {
            return Err(format!("is longer than {URL_MAX} bytes"));
        }
        let url = Url::parse(text).map_err(|error| format!("is not a URL ({error})"))?;
        let Some(host) = url.host_str().filter(|host| !host.is_empty()) else {
            return Err("names no host".to_owned());
        };
        let allowed = self.has(host);
        match url.scheme() {
            "https" => {}
            "http" if allowed => {}
            "http" => {
                return Err(format!(
                    "is not https; only hosts in events.allow_private may do without: {host}"
                ));
            }
            _ => return Err("does not begin with https://".to_owned()),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("has a user or a password in it: events are signed instead".to_owned());
        }
        if url.fragment().is_some() {
            return Err("has a fragment (#), which is never sent".to_owned());
        }
        if let Ok(address) = bare(host).parse::<IpAddr>()
            && !allowed
            && let Some(why) = why_not(address)
        {
            return Err(format!(
                "is at {address}, {why}: if it is meant, add the host to events.allow_private"
            ));
        }
        Ok(url)
    }

    /// The addresses of a host, all of them public unless the host is allowed. One that is not spoils
    /// them all: an honest name has none.
    fn callable(&self, host: &str, addresses: Vec<IpAddr>) -> Result<Vec<SocketAddr>, NotCalled> {
        if !self.has(host) {
            for address in &addresses {
                if let Some(why) = why_not(*address) {
                    return Err(NotCalled { host: host.to_owned(), address: *address, why });
                }
            }
        }
        // The port is the URL's.
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, 0)).collect())
    }
}

/// A host without the brackets that stand around an IPv6 address in a URL, and without the dot that may
/// end a name.
fn bare(host: &str) -> &str {
    let inside = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    inside.unwrap_or(host).trim_end_matches('.')
}

/// What a name stands for.
type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Looks names up and hands out only what may be called. The connection goes to exactly the addresses
/// that were checked: nobody looks the name up a second time, so it cannot stand for something else then.
#[derive(Clone)]
pub(crate) struct CheckedNames {
    allowed: Allowed,
    lookup: Lookup,
}

impl CheckedNames {
    /// By the system's way to look names up.
    pub(crate) fn new(allowed: Allowed) -> Self {
        Self::by(allowed, Arc::new(|name| Box::pin(system_lookup(name))))
    }

    fn by(allowed: Allowed, lookup: Lookup) -> Self {
        Self { allowed, lookup }
    }

    async fn addresses(self, host: String) -> Result<Addrs, Box<dyn std::error::Error + Send + Sync>> {
        let found = (self.lookup)(host.clone()).await?;
        let callable = self.allowed.callable(&host, found)?;
        Ok(Box::new(callable.into_iter()))
    }
}

async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.map(|address| address.ip()).collect())
}

impl Resolve for CheckedNames {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(self.clone().addresses(name.as_str().to_owned()))
    }
}

/// What speaks against an address; `None` for one on the public network.
pub(super) fn why_not(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => why_not_v4(address),
        IpAddr::V6(address) => why_not_v6(address),
    }
}

fn why_not_v4(address: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, d] = address.octets();
    let why = match (a, b, c, d) {
        (0, ..) => "an address of this host",
        (127, ..) => "a loopback address",
        (10, ..) | (172, 16..=31, ..) | (192, 168, ..) => "a private address",
        (100, 64..=127, ..) => "an address that carriers share",
        (169, 254, 169, 254) => "the cloud's metadata service",
        (169, 254, ..) => "a link-local address",
        (168, 63, 129, 16) => "the cloud's own service",
        (192, 0, 0, _) | (192, 88, 99, _) => "a reserved address",
        (192, 0, 2, _) | (198, 51, 100, _) | (203, 0, 113, _) => "an address for documentation",
        (198, 18..=19, ..) => "an address for measurements",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    };
    Some(why)
}

fn why_not_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [a, b, c, ..] = address.segments();
    let why = match (a, b, c) {
        _ if address.is_loopback() => "a loopback address",
        _ if address.is_unspecified() => "an address of this host",
        _ if address.to_ipv4_mapped().is_some() => "an IPv4 address in IPv6's clothes",
        (0x64, 0xff9b, _) => "an IPv4 address behind NAT64",
        (0xfe80..=0xfebf, ..) => "a link-local address",
        (0xfc00..=0xfdff, ..) => "a private address",
        (0xff00..=0xffff, ..) => "a multicast address",
        // Teredo and 6to4 carry an IPv4 address that nobody checks.
        (0x2001, 0, _) | (0x2002, ..) => "a tunnel to an IPv4 address",
        (0x2001, 0x0db8, _) | (0x3fff, 0..=0x0fff, _) => "an address for documentation",
        // Benchmarking, ORCHID and the other special purposes.
        (0x2001, 1..=0x1ff, _) => "a reserved address",
        (0x2000..=0x3fff, ..) => return None,
        _ => "a reserved address",
    };
    Some(why)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn hostile_addresses_are_refused_in_words() {
        let allowed = Allowed::new(&["10.1.2.3".to_owned(), "shop.internal".to_owned(), "::1".to_owned()]);
        for (url, refusal) in [
            ("https://shop.example/hooks?from=doorbuster", None),
            ("https://93.184.216.34/", None),
            ("https://[2606:2800:220:1::1]:8443/", None),
            ("http://10.1.2.3/hook", None),
            ("http://SHOP.internal./hook", None),
            ("http://[::1]:9/hook", None),
            ("http://shop.example/", Some("not https")),
            ("ftp://shop.example/", Some("does not begin with https")),
            ("file:///etc/passwd", Some("names no host")),
            ("gopher://shop.example/", Some("does not begin with https")),
            ("//shop.example/", Some("not a URL")),
            ("shop.example", Some("not a URL")),
            ("https://", Some("not a URL")),
            ("https://shop.example@127.0.0.1/", Some("a user or a password")),
            ("https://:secret@shop.example/", Some("a user or a password")),
            ("https://shop.example/#at", Some("fragment")),
            ("https://127.0.0.1/", Some("a loopback address")),
            ("https://127.1/", Some("a loopback address")),
            ("https://2130706433/", Some("a loopback address")),
            ("https://0x7f.0.0.1/", Some("a loopback address")),
            ("https://0177.0.0.1/", Some("a loopback address")),
            ("https://0/", Some("this host")),
            ("https://①②⑦.0.0.1/", Some("a loopback address")),
            ("https://10.1.2.4/", Some("a private address")),
            ("https://172.31.255.255/", Some("a private address")),
            ("https://192.168.0.1/", Some("a private address")),
            ("https://100.64.0.1/", Some("carriers share")),
            ("https://100.100.100.200/", Some("carriers share")),
            ("https://169.254.169.254/latest/meta-data/", Some("metadata")),
            ("https://169.254.1.1/", Some("link-local")),
            ("https://168.63.129.16/", Some("the cloud's own")),
            ("https://192.0.0.192/", Some("reserved")),
            ("https://224.0.0.1/", Some("multicast")),
            ("https://255.255.255.255/", Some("reserved")),
            ("https://[::]/", Some("this host")),
            ("https://[0:0:0:0:0:0:0:2]/", Some("reserved")),
            ("https://[::ffff:127.0.0.1]/", Some("IPv4 address in IPv6")),
            ("https://[::127.0.0.1]/", Some("reserved")),
            ("https://[64:ff9b::7f00:1]/", Some("NAT64")),
            ("https://[64:ff9b:1::1]/", Some("NAT64")),
            ("https://[fe80::1]/", Some("link-local")),
            ("https://[fd00:ec2::254]/", Some("a private address")),
            ("https://[ff02::1]/", Some("multicast")),
            ("https://[2001:0:1::1]/", Some("tunnel")),
            ("https://[2002:7f00:1::]/", Some("tunnel")),
            ("https://[2001:db8::1]/", Some("documentation")),
        ] {
            match (allowed.checked(url), refusal) {
                (Ok(_), None) => {}
                (Err(why), Some(says)) if why.contains(says) => {}
                (found, _) => panic!("{url}: {found:?}"),
            }
        }
        assert!(allowed.checked(&format!("https://shop.example/{}", "x".repeat(2_000))).is_err());
    }

    fn names(answers: &'static [&'static [&'static str]]) -> (CheckedNames, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let lookup: Lookup = Arc::new(move |_| {
            let answer = answers[count.fetch_add(1, Ordering::Relaxed) % answers.len()];
            let addresses = answer.iter().map(|text| text.parse().unwrap()).collect();
            Box::pin(async move { Ok(addresses) })
        });
        (CheckedNames::by(Allowed::new(&["intranet".to_owned()]), lookup), asked)
    }

    #[tokio::test]
    async fn one_bad_address_spoils_a_name_unless_it_is_allowed() {
        let (names, _) = names(&[&["93.184.216.34", "10.0.0.1"]]);
        let refused = names.clone().addresses("shop.example".to_owned()).await.err().unwrap();
        assert_eq!(refused.to_string(), "shop.example is at 10.0.0.1, a private address: not called");
        let allowed = names.addresses("intranet".to_owned()).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(allowed.count(), 2);
    }

    #[tokio::test]
    async fn a_name_that_stands_for_something_else_later_is_checked_each_time() {
        let (names, asked) = names(&[&["93.184.216.34"], &["127.0.0.1"]]);
        let first: Vec<SocketAddr> =
            names.clone().addresses("rebinding.example".to_owned()).await.unwrap().collect();
        assert_eq!(
            first,
            ["93.184.216.34:0".parse().unwrap()],
            "the connection takes these, and asks no more"
        );
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        assert!(names.addresses("rebinding.example".to_owned()).await.is_err());
    }
}
