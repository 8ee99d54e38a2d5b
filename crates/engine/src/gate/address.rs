//! Where a request comes from: the peer, or who stands behind a proxy of ours.

use std::net::IpAddr;

use ipnet::IpNet;

/// The last hop of a request, and what it says of the hops before.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The address at the other end of the connection.
    pub peer: IpAddr,
    /// All `X-Forwarded-For` headers in their order, with commas between.
    pub forwarded: Option<&'a [u8]>,
    /// The header in which a proxy says where the client is.
    pub region: Option<&'a [u8]>,
}

/// The client's address: the peer, unless it is a proxy of ours; then the last hop of `X-Forwarded-For` that
/// is none. What stands before that hop is the client's own word, and is not read. A list that cannot be read
/// up to there is the proxy's fault, so that its address stands for all.
pub(super) fn client_of(caller: Caller<'_>, proxies: &[IpNet]) -> IpAddr {
    let peer = caller.peer.to_canonical();
    let is_ours = |address: IpAddr| proxies.iter().any(|net| net.contains(&address));
    let Some(forwarded) = caller.forwarded.filter(|_| is_ours(peer)) else { return peer };
    let mut client = peer;
    for hop in forwarded.rsplit(|byte| *byte == b',') {
        let Some(address) = address(hop) else { return peer };
        client = address;
        if !is_ours(address) {
            break;
        }
    }
    client
}

/// One hop: an address, perhaps with a port or a zone.
fn address(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop.trim_ascii()).ok()?;
    let bare = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, port) = rest.split_once(']')?;
            port.is_empty().then_some(()).or_else(|| is_port(port.strip_prefix(':')?))?;
            inside
        }
        None => match text.rsplit_once(':') {
            // One colon stands before a port; more are an IPv6 address.
            Some((before, port)) if !before.contains(':') => {
                is_port(port)?;
                before
            }
            _ => text,
        },
    };
    let (bare, _zone) = bare.split_once('%').unwrap_or((bare, ""));
    bare.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn is_port(text: &str) -> Option<()> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse::<u16>().ok().filter(|_| digits).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(peer: &str, forwarded: Option<&str>) -> String {
        let proxies: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].iter().map(|net| net.parse().unwrap()).collect();
        let caller =
            Caller { peer: peer.parse().unwrap(), forwarded: forwarded.map(str::as_bytes), region: None };
        client_of(caller, &proxies).to_string()
    }

    #[test]
    fn a_stranger_is_not_asked_where_he_comes_from() {
        assert_eq!(client("203.0.113.9", None), "203.0.113.9");
        assert_eq!(client("203.0.113.9", Some("198.51.100.1")), "203.0.113.9");
        assert_eq!(client("::ffff:203.0.113.9", Some("198.51.100.1")), "203.0.113.9");
        assert_eq!(client("10.0.0.1", None), "10.0.0.1");
    }

    #[test]
    fn behind_our_proxies_the_last_foreign_hop_counts() {
        for (forwarded, expected) in [
            ("198.51.100.1", "198.51.100.1"),
            ("6.6.6.6, 198.51.100.1", "198.51.100.1"),
            ("6.6.6.6,garbage,198.51.100.1 , 10.9.9.9", "198.51.100.1"),
            ("198.51.100.1:4711", "198.51.100.1"),
            ("[2001:db8::1]:4711", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("2001:db8::1", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("::ffff:198.51.100.1", "198.51.100.1"),
            ("10.1.1.1, fd00::7", "10.1.1.1"),
        ] {
            assert_eq!(client("10.0.0.1", Some(forwarded)), expected, "{forwarded}");
        }
    }

    #[test]
    fn what_a_proxy_wrote_and_nobody_can_read_counts_as_the_proxy() {
        for forwarded in [
            "",
            ",",
            "unknown",
            "198.51.100.1, ",
            "198.51.100.1:x",
            "[2001:db8::1",
            "[2001:db8::1]x",
            "1.2.3",
            "198.51.100.1, \u{1}",
            "198.51.100.1:99999",
            "198.51.100.1:+80",
        ] {
            assert_eq!(client("10.0.0.1", Some(forwarded)), "10.0.0.1", "{forwarded}");
        }
    }
}
