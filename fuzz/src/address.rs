//! Where a request comes from, by its peer and what stands in `X-Forwarded-For`: nobody but a proxy of ours is
//! believed, and what a client writes itself changes nothing.
//!
//! The bytes are the header.

use std::net::{IpAddr, Ipv4Addr};

use doorbuster_engine::gate::{Caller, Gate};

use crate::door::{PROXIES, PROXY, access_token, gate};

const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 9));
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

thread_local! {
    static GATE: Gate = gate();
}

pub(crate) fn run(header: &[u8]) {
    assert_eq!(client(STRANGER, header), STRANGER, "a stranger was believed");

    let found = client(PROXY, header);
    assert_eq!(found, found.to_canonical(), "one client under two names");
    assert_eq!(client(PROXY, &[header, b", 198.51.100.7"].concat()), CLIENT, "the last foreign hop counts");
    assert_eq!(client(PROXY, &[header, b",10.9.9.9"].concat()), found, "a proxy before a proxy");
    // Behind our proxies alone, the whole header is theirs.
    if !PROXIES.iter().any(|net| net.contains(&found)) {
        for spoofed in ["6.6.6.6,", ",", "unknown, ", "\u{0},", "10.0.0.1,6.6.6.6,"] {
            let told = client(PROXY, &[spoofed.as_bytes(), header].concat());
            assert_eq!(told, found, "the client's own word was read: {spoofed:?}");
        }
    }
}

fn client(peer: IpAddr, header: &[u8]) -> IpAddr {
    let caller = Caller { peer, forwarded: Some(header), region: None };
    let visitor = GATE.with(|gate| gate.authenticate(&access_token("user-1"), caller, false));
    visitor.expect("a good access token").address
}
