//! Nine thousand buyers who wait for a sale with an open connection.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

mod served;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use served::Served;
use socket2::{Domain, Socket, Type};

const CONNECTIONS: u32 = 9_000;
/// Loopback addresses that they come from: neither ports nor the limit per address shall run out.
const ADDRESSES: u32 = 100;
/// Files that this process needs beside its connections.
const BESIDE: u64 = 200;
/// Most memory of the server for one of them.
const KB_EACH: u64 = 16;

/// Lets this process and the server, which inherits it, have so many files open.
fn raise_open_files() {
    let needed = u64::from(CONNECTIONS) + BESIDE;
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    assert!(
        maximum.is_none_or(|maximum| maximum >= needed),
        "this test opens {CONNECTIONS} connections and needs {needed} files; the hard limit is {maximum:?}: \
         raise it, such as with `ulimit -Hn {needed}` as root"
    );
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum }).unwrap();
}

/// A connection that has had one answer.
fn connect(number: u32, server: SocketAddr) -> TcpStream {
    let source = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 1, 1)) + number % ADDRESSES);
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap_or_else(|error| panic!("connection {number}: {error}"));
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: shop.test\r\n\r\n").unwrap();
    let mut answer = [0; 1_024];
    let length = stream.read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "connection {number}");
    stream
}

#[test]
fn nine_thousand_idle_connections_cost_little_and_hold_nobody_up() {
    raise_open_files();
    let shop = Served::start_with(&["server.idle_timeout=10m", "server.connections_max=20000"]);
    let (_, item) = shop.open_sale(20, 1);
    // What a first purchase makes once is no connection's.
    assert_eq!(shop.buy(&item, "first").status, 202);

    let before = shop.resident_kb();
    let mut waiting: Vec<TcpStream> = (0..CONNECTIONS).map(|number| connect(number, shop.public)).collect();
    let each = shop.resident_kb().saturating_sub(before) / u64::from(CONNECTIONS);
    assert!(each <= KB_EACH, "an idle connection takes {each} KB");

    for number in 0..10 {
        assert_eq!(shop.buy(&item, &format!("buyer-{number}")).status, 202);
    }
    // And one who waited is still served.
    let request = format!(
        "POST /api/flash-sales/items/{item}/purchase HTTP/1.1\r\nhost: shop.test\r\nauthorization: Bearer {}\r\n\r\n",
        shop.token("patient")
    );
    waiting[4_500].write_all(request.as_bytes()).unwrap();
    let mut answer = [0; 1_024];
    let length = waiting[4_500].read(&mut answer).unwrap();
    assert!(answer[..length].starts_with(b"HTTP/1.1 202"), "{}", String::from_utf8_lossy(&answer[..length]));

    shop.stop();
    for (number, mut stream) in waiting.into_iter().enumerate() {
        assert_eq!(stream.read(&mut answer).unwrap(), 0, "connection {number} was not closed");
    }
}
