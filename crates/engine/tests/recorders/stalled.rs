//! A recorder that hangs in the middle of a step, and the watchdog that says so.

use std::net::SocketAddr;

use doorbuster_engine::clock::SystemClock;
use doorbuster_engine::ledger::{PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl};
use doorbuster_engine::workers::{Watchdog, start};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_postgres::NoTls;

use super::*;

/// The shortest that brokers allow.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(6);

/// Longer than the test takes: whoever hangs is not freed by a time-out.
const FOR_EVER: Duration = Duration::from_secs(600);

/// A way to a server on which nothing moves while it is stopped.
struct Line {
    address: SocketAddr,
    flows: watch::Sender<bool>,
}

impl Line {
    async fn to(server: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let flows = watch::Sender::new(true);
        let flowing = flows.subscribe();
        spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                spawn(carry(from_client, to_server, flowing.clone()));
                spawn(carry(from_server, to_client, flowing.clone()));
            }
        });
        Self { address, flows }
    }
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut flows: watch::Receiver<bool>) {
    let mut bytes = vec![0; 65_536];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if flows.wait_for(|flows| *flows).await.is_err() || to.write_all(&bytes[..read]).await.is_err() {
            return;
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a server beside the test, for as long as it runs")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(task);
}

/// Waits until `condition` holds; the workers go on meanwhile.
async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let came = async {
        while !condition().await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, came).await.unwrap_or_else(|_| panic!("waited in vain until {what}"));
}

/// Options for a schema of this test's own, and the server's address.
fn postgres() -> (PostgresOptions, tokio_postgres::Config) {
    let url = services::address_of("POSTGRES");
    let server: tokio_postgres::Config = url.parse().unwrap();
    let mut options = PostgresOptions::new(PostgresUrl::new(url));
    options.schema = services::own_name("stalled");
    (options, server)
}

/// The same by another way, on which nobody runs out of patience.
fn by(options: &PostgresOptions, server: &tokio_postgres::Config, address: SocketAddr) -> PostgresOptions {
    let password = server.get_password().map(|it| format!(":{}", String::from_utf8_lossy(it)));
    let user = format!("{}{}", server.get_user().unwrap(), password.unwrap_or_default());
    PostgresOptions {
        url: PostgresUrl::new(format!("postgres://{user}@{address}/{}", server.get_dbname().unwrap())),
        tls: PostgresTls::Disable,
        connect_timeout: FOR_EVER,
        statement_timeout: FOR_EVER,
        lock_timeout: FOR_EVER,
        ..options.clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recorder_that_stalls_is_seen_and_replaced_and_takes_part_again_when_it_wakes() {
    let (mut options, server) = postgres();
    let clock = stock::Bench::clock();
    options.clock = Some(Arc::clone(&clock) as _);
    let mut shop = Shop::on(Arc::new(PostgresLedger::connect(&options).await.unwrap()), clock).await;
    shop.options.poll_interval_max = POLL_INTERVAL_MAX;
    let tokio_postgres::config::Host::Tcp(host) = &server.get_hosts()[0] else { panic!("not a TCP server") };
    let line = Line::to(format!("{host}:{}", server.get_ports().first().unwrap_or(&5432))).await;

    // One process: a recorder whose way to the ledger can hang, and a watch that counts what waits.
    let slow = PostgresLedger::connect(&by(&options, &server, line.address)).await.unwrap();
    let watchdog = Arc::new(Watchdog::new(Duration::from_secs(1), Arc::new(SystemClock::new())));
    let recorder = Recorder::new(shop.backends_on(Arc::new(slow)).await, WAIT);
    let counts = Watch::new(shop.backends().await, Arc::default(), Arc::default(), WatchLimits::default());
    let running = start(vec![
        (watchdog.over(Box::new(recorder)), Duration::ZERO),
        (Box::new(counts.telling(Some(Arc::clone(&watchdog)))), Duration::from_millis(50)),
    ]);
    shop.publish(0..100).await;
    until("the first orders are recorded", async || shop.is_level().await).await;
    until("all is well", async || watchdog.complaint().is_none()).await;

    line.flows.send_replace(false);
    shop.publish(100..400).await;
    let stuck = || watchdog.complaint().is_some_and(|it| it.contains("stuck in one step"));
    until("the stall is seen", async || stuck()).await;
    assert!(!shop.is_level().await, "nobody else reads its partitions yet");

    // Another process: the group gives it everything once the first has not asked for too long.
    let other = start(vec![(Box::new(shop.recorder().await), Duration::ZERO)]);
    until("the other one has recorded everything", async || shop.is_level().await).await;
    assert!(stuck(), "the process that hangs is red, whatever others do");

    line.flows.send_replace(true);
    until("it goes on by itself", async || watchdog.complaint().is_none()).await;
    other.stop().await;
    shop.publish(400..700).await;
    until("it records again, alone", async || shop.is_level().await).await;
    until("all is well again", async || watchdog.complaint().is_none()).await;
    running.stop().await;
    shop.finish(0..700).await;

    let (client, connection) = server.connect(NoTls).await.unwrap();
    spawn(async move { drop(connection.await) });
    client.batch_execute(&format!("DROP SCHEMA {} CASCADE", options.schema)).await.unwrap();
}
