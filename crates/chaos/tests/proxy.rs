//! The proxy between a client and a server of the test's own, byte by byte.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use doorbuster_chaos::proxy::{
    Counts, Effect, Ending, FRAME_BYTES_MAX, Matching, Moment, Protocol, Proxy, Stream, Then, Toxic,
    ToxicError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// After this a test has waited in vain.
const DEADLINE: Duration = Duration::from_secs(30);
/// Longer than any test: what is held back for so long comes when the proxy is healed, or never.
const FOR_EVER: Duration = Duration::from_secs(3_600);

async fn soon<T>(what: impl Future<Output = T>) -> T {
    timeout(DEADLINE, what).await.expect("waited in vain")
}

/// A server of the test's own, and the proxy before it.
struct Way {
    listener: TcpListener,
    proxy: Proxy,
}

impl Way {
    async fn of(protocol: Protocol) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let proxy = Proxy::start(protocol, listener.local_addr().unwrap()).await.unwrap();
        Self { listener, proxy }
    }

    async fn client(&self) -> TcpStream {
        soon(TcpStream::connect(self.proxy.address())).await.unwrap()
    }

    /// The server's end of the next connection.
    async fn server(&self) -> TcpStream {
        soon(self.listener.accept()).await.unwrap().0
    }

    /// Both ends of a new connection.
    async fn ends(&self) -> (TcpStream, TcpStream) {
        tokio::join!(self.client(), self.server())
    }
}

async fn say(socket: &mut TcpStream, text: &str) {
    soon(socket.write_all(text.as_bytes())).await.unwrap();
}

/// The next bytes must be these.
async fn hear(socket: &mut TcpStream, text: &str) {
    let mut bytes = vec![0; text.len()];
    soon(socket.read_exact(&mut bytes)).await.unwrap();
    assert_eq!(String::from_utf8_lossy(&bytes), text);
}

/// How the connection ends, when nothing more is said on it.
async fn end(socket: &mut TcpStream) -> Result<(), ErrorKind> {
    let mut rest = Vec::new();
    let read = soon(socket.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    read.map(drop).map_err(|error| error.kind())
}

const PING: &str = "*1\r\n$4\r\nPING\r\n";
const INCR: &str = "*2\r\n$4\r\nINCR\r\n$1\r\nk\r\n";

#[tokio::test]
async fn bytes_and_their_end_pass_both_ways() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    say(&mut client, "to the server").await;
    hear(&mut server, "to the server").await;
    // Half of the connection ends, the other half goes on.
    client.shutdown().await.unwrap();
    assert_eq!(end(&mut server).await, Ok(()));
    say(&mut server, "to the client").await;
    drop(server);
    hear(&mut client, "to the client").await;
    assert_eq!(end(&mut client).await, Ok(()));
    assert_eq!(way.proxy.counts(), Counts { connections: 1, ..Counts::default() });
}

#[tokio::test]
async fn a_server_may_come_after_its_proxy() {
    let proxy = Proxy::bind_first(Protocol::Bytes).await.unwrap();
    let mut early = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(end(&mut early).await, Err(ErrorKind::ConnectionReset));

    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    proxy.set_upstream(listener.local_addr().unwrap());
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = soon(listener.accept()).await.unwrap();
    say(&mut server, "hello").await;
    hear(&mut client, "hello").await;
}

#[tokio::test]
async fn a_dropped_proxy_ends_its_connections() {
    let Way { listener, proxy } = Way::of(Protocol::Bytes).await;
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    let (mut server, _) = soon(listener.accept()).await.unwrap();
    drop(proxy);
    assert_eq!(end(&mut client).await, Ok(()));
    assert_eq!(end(&mut server).await, Ok(()));
}

#[tokio::test]
async fn a_cut_now_ends_what_stands_and_spares_what_comes() {
    let way = Way::of(Protocol::Bytes).await;
    for (ending, seen) in [(Ending::Reset, Err(ErrorKind::ConnectionReset)), (Ending::Close, Ok(()))] {
        let (mut client, mut server) = way.ends().await;
        say(&mut client, "x").await;
        hear(&mut server, "x").await;
        let cut = way.proxy.add(Effect::Cut(Moment::Now, ending)).unwrap();
        assert_eq!(end(&mut client).await, seen);
        assert_eq!(end(&mut server).await, seen);
        soon(cut.until_fired(1)).await;
        let (mut client, mut server) = way.ends().await;
        say(&mut client, "y").await;
        hear(&mut server, "y").await;
        assert_eq!(cut.fired(), 1);
        way.proxy.remove(&cut);
    }
    assert_eq!(way.proxy.fired(), 2);
}

#[tokio::test]
async fn a_cut_when_accepted_is_counted_for_each() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut standing, mut server) = way.ends().await;
    let cut = Toxic::new(Effect::Cut(Moment::Accepted, Ending::Reset)).first(2);
    let cut = way.proxy.add(cut).unwrap();
    for _ in 0..2 {
        assert_eq!(end(&mut way.client().await).await, Err(ErrorKind::ConnectionReset));
    }
    assert_eq!(cut.fired(), 2);
    let (mut third, mut its_server) = way.ends().await;
    for (client, server) in [(&mut standing, &mut server), (&mut third, &mut its_server)] {
        say(client, "goes on").await;
        hear(server, "goes on").await;
    }
}

#[tokio::test]
async fn refused_connections_are_refused_by_the_system_and_others_go_on() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    for round in 1..=3 {
        let refuse = way.proxy.add(Effect::Refuse).unwrap();
        assert_eq!(refuse.fired(), 1);
        let refused = TcpStream::connect(way.proxy.address()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "round {round}");
        say(&mut client, "still here").await;
        hear(&mut server, "still here").await;
        way.proxy.heal();
        let (mut client, mut server) = way.ends().await;
        say(&mut server, "again").await;
        hear(&mut client, "again").await;
    }
}

#[tokio::test]
async fn a_half_open_connection_stands_and_says_nothing_until_it_is_reset() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut standing, _its_server) = way.ends().await;
    let half_open = way.proxy.add(Effect::HalfOpen).unwrap();
    let mut client = way.client().await;
    for client in [&mut client, &mut standing] {
        say(client, "is anybody there?").await;
    }
    soon(half_open.until_fired(2)).await;
    let silence = timeout(Duration::from_millis(50), client.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");
    way.proxy.heal();
    for client in [&mut client, &mut standing] {
        assert_eq!(end(client).await, Err(ErrorKind::ConnectionReset));
    }
    // No connection reached the server but the one that stood before.
    let (mut client, mut server) = way.ends().await;
    say(&mut client, "here").await;
    hear(&mut server, "here").await;
}

#[tokio::test]
async fn on_a_one_way_connection_one_direction_is_lost() {
    for (lost, other) in [(Stream::Upstream, Stream::Downstream), (Stream::Downstream, Stream::Upstream)] {
        let way = Way::of(Protocol::Bytes).await;
        let (mut client, mut server) = way.ends().await;
        let (mut idle, mut idle_server) = way.ends().await;
        let one_way = way.proxy.add(Effect::OneWay(lost)).unwrap();
        let (writer, reader) = match lost {
            Stream::Upstream => (&mut client, &mut server),
            Stream::Downstream => (&mut server, &mut client),
        };
        say(writer, "lost").await;
        soon(one_way.until_fired(1)).await;
        say(reader, "comes through").await;
        hear(writer, "comes through").await;
        way.proxy.heal();
        assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset), "{lost:?}");
        assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset), "{lost:?}");
        // A connection that lost nothing goes on.
        say(&mut idle, "whole").await;
        hear(&mut idle_server, "whole").await;
        assert_eq!(one_way.fired(), 1, "{other:?}");
    }
}

#[tokio::test]
async fn what_hangs_behind_a_one_way_connection_does_not_hear_that_the_client_is_gone() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    let one_way = way.proxy.add(Effect::OneWay(Stream::Upstream)).unwrap();
    say(&mut client, "lost").await;
    drop(client);
    soon(one_way.until_fired(1)).await;
    // The server goes on talking to nobody, as behind a real partition.
    for _ in 0..3 {
        say(&mut server, "into the void").await;
    }
    way.proxy.heal();
    assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset));
}

#[tokio::test]
async fn a_clogged_stream_holds_up_its_writer_and_loses_nothing() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    let clog = way.proxy.add(Effect::Clog(Stream::Upstream)).unwrap();
    // More than the sockets of both sides can hold.
    let bytes = vec![7; 32 << 20];
    let (mut reader, mut writer) = client.split();
    let mut writing = std::pin::pin!(writer.write_all(&bytes));
    let held_up = tokio::select! {
        _ = &mut writing => false,
        () = soon(clog.until_fired(1)) => true,
    };
    assert!(held_up && timeout(Duration::from_millis(50), &mut writing).await.is_err());
    // The other direction is free.
    say(&mut server, "free").await;
    let mut free = [0; 4];
    soon(reader.read_exact(&mut free)).await.unwrap();
    assert_eq!(&free, b"free");

    way.proxy.heal();
    let mut received = vec![0; bytes.len()];
    let (written, read) = soon(async { tokio::join!(writing, server.read_exact(&mut received)) }).await;
    written.unwrap();
    read.unwrap();
    assert!(received == bytes);
}

#[tokio::test]
async fn what_is_held_back_comes_in_its_order_when_the_proxy_is_healed() {
    let way = Way::of(Protocol::Resp).await;
    let (mut slow, mut its_server) = way.ends().await;
    let delay = Effect::Delay(Stream::Upstream, FOR_EVER);
    let delay = way.proxy.add(Toxic::new(delay).on(Matching::command("incr")).first(1)).unwrap();
    say(&mut slow, &[PING, INCR, PING].concat()).await;
    soon(delay.until_fired(1)).await;
    hear(&mut its_server, PING).await;
    // Another connection is not held up, nor is the other direction.
    let (mut quick, mut other_server) = way.ends().await;
    say(&mut quick, INCR).await;
    hear(&mut other_server, INCR).await;
    say(&mut its_server, "+PONG\r\n").await;
    hear(&mut slow, "+PONG\r\n").await;
    let silence = timeout(Duration::from_millis(50), its_server.read_u8()).await;
    assert!(silence.is_err(), "{silence:?}");

    way.proxy.heal();
    hear(&mut its_server, &[INCR, PING].concat()).await;
    assert_eq!(way.proxy.counts().requests, 4);
    assert_eq!(way.proxy.counts().matched, 1);
}

#[tokio::test]
async fn the_last_word_of_a_server_that_is_gone_still_comes() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    let delay = way.proxy.add(Effect::Delay(Stream::Downstream, FOR_EVER)).unwrap();
    say(&mut server, "the last word").await;
    soon(delay.until_fired(1)).await;
    drop(server);
    // The first of these is answered by a reset, so another one cannot be written.
    for _ in 0..5 {
        say(&mut client, "to nobody").await;
        let silence = timeout(Duration::from_millis(5), client.read_u8()).await;
        assert!(silence.is_err(), "{silence:?}");
    }
    way.proxy.heal();
    hear(&mut client, "the last word").await;
}

#[tokio::test]
async fn a_delay_ends_by_itself() {
    let way = Way::of(Protocol::Bytes).await;
    let (mut client, mut server) = way.ends().await;
    let (begun, by) = (tokio::time::Instant::now(), Duration::from_millis(40));
    way.proxy.add(Effect::Delay(Stream::Downstream, by)).unwrap();
    say(&mut server, "late").await;
    hear(&mut client, "late").await;
    assert!(begun.elapsed() >= by);
    say(&mut client, "at once").await;
    hear(&mut server, "at once").await;
    assert_eq!(way.proxy.fired(), 1);
}

#[tokio::test]
async fn a_request_is_cut_before_the_server_sees_it_or_after() {
    let cases = [(Moment::BeforeDelivery, PING.to_owned()), (Moment::AfterDelivery, [PING, INCR].concat())];
    for (moment, delivered) in cases {
        let way = Way::of(Protocol::Resp).await;
        let (mut client, mut server) = way.ends().await;
        let cut = Toxic::new(Effect::Cut(moment, Ending::Reset)).on(Matching::command("INCR"));
        let cut = way.proxy.add(cut).unwrap();
        say(&mut client, &[PING, INCR, PING].concat()).await;
        assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset), "{moment:?}");
        hear(&mut server, &delivered).await;
        assert_eq!(end(&mut server).await, Ok(()), "{moment:?}");
        assert_eq!(cut.fired(), 1);
    }
}

#[tokio::test]
async fn a_matching_request_begins_what_lasts() {
    let cases = [
        (Effect::OneWay(Stream::Upstream), PING.to_owned()),
        (Effect::HalfOpen, PING.to_owned()),
        (Effect::OneWay(Stream::Downstream), [PING, INCR, PING].concat()),
        (Effect::Clog(Stream::Upstream), [PING, INCR].concat()),
    ];
    for (effect, delivered) in cases {
        let way = Way::of(Protocol::Resp).await;
        let (mut client, mut server) = way.ends().await;
        let toxic = way.proxy.add(Toxic::new(effect).on(Matching::command("INCR"))).unwrap();
        say(&mut client, PING).await;
        hear(&mut server, PING).await;
        say(&mut server, "+PONG\r\n").await;
        hear(&mut client, "+PONG\r\n").await;
        say(&mut client, &[INCR, PING].concat()).await;
        hear(&mut server, &delivered[PING.len()..]).await;
        if effect == Effect::OneWay(Stream::Downstream) {
            say(&mut server, ":1\r\n").await;
        } else if effect == Effect::Clog(Stream::Upstream) {
            say(&mut client, PING).await;
        }
        soon(toxic.until_fired(1)).await;
        let silence = timeout(Duration::from_millis(20), server.read_u8()).await;
        assert!(silence.is_err(), "{effect:?}: {silence:?}");
    }
}

#[tokio::test]
async fn toxics_for_those_to_come_spare_those_that_stand() {
    let way = Way::of(Protocol::Resp).await;
    let (mut standing, mut its_server) = way.ends().await;
    way.proxy.add(Toxic::new(Effect::OneWay(Stream::Upstream)).to_come()).unwrap();
    let mut later = way.client().await;
    say(&mut later, PING).await;
    soon(way.proxy.until_fired(1)).await;
    say(&mut standing, PING).await;
    hear(&mut its_server, PING).await;
}

#[tokio::test]
async fn what_is_not_understood_is_passed_on_unread_and_counted() {
    for (protocol, text) in [
        (Protocol::Resp, "PING\r\n"),
        (Protocol::Postgres, "GET / HTTP/1.1\r\n"),
        (Protocol::Kafka, "\0\0\0\u{c}no api key..."),
    ] {
        let way = Way::of(protocol).await;
        let (mut client, mut server) = way.ends().await;
        for _ in 0..2 {
            say(&mut client, text).await;
            hear(&mut server, text).await;
            say(&mut server, "hm?").await;
            hear(&mut client, "hm?").await;
        }
        assert_eq!(way.proxy.counts(), Counts { connections: 1, unparsed: 1, ..Counts::default() });
    }
}

#[tokio::test]
async fn a_frame_that_is_too_large_ends_its_connection_before_it_is_read() {
    let way = Way::of(Protocol::Resp).await;
    let (mut client, mut server) = way.ends().await;
    say(&mut client, &format!("*2\r\n$3\r\nGET\r\n${FRAME_BYTES_MAX}\r\n")).await;
    assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(end(&mut server).await, Err(ErrorKind::ConnectionReset));
    assert_eq!(way.proxy.counts().too_large, 1);
}

#[tokio::test]
async fn a_toxic_that_could_never_fire_is_refused() {
    let (bytes, resp) = (Way::of(Protocol::Bytes).await, Way::of(Protocol::Resp).await);
    let swallow = Effect::SwallowReply(Then::Hang);
    let now = Effect::Cut(Moment::Now, Ending::Close);
    let on = |effect| Toxic::new(effect).on(Matching::command("INCR"));
    let cases = [
        (&bytes, swallow.into(), ToxicError::NoRequests),
        (&bytes, on(Effect::OneWay(Stream::Upstream)), ToxicError::NoRequests),
        (&resp, on(Effect::Refuse), ToxicError::NoRequestYet),
        (&resp, on(now), ToxicError::NoRequestYet),
        (&resp, Toxic::new(now).to_come(), ToxicError::NothingToCome),
    ];
    for (way, toxic, error) in cases {
        assert_eq!(way.proxy.add(toxic.clone()).unwrap_err(), error, "{toxic:?}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_there_resets_its_clients() {
    let free: SocketAddr = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let proxy = Proxy::start(Protocol::Bytes, free).await.unwrap();
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(end(&mut client).await, Err(ErrorKind::ConnectionReset));
}
