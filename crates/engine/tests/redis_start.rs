//! What a start looks at in a Redis, and the ways to reach one: passwords, users with few rights, TLS.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod private_redis;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::conformance::room;
use doorbuster_engine::conformance::stock::{self, Bench};
use doorbuster_engine::fault::{BackendError, Fault};
use doorbuster_engine::order::{SaleId, UserId};
use doorbuster_engine::room::{Asking, Moment, Openings, Place, RedisRoom, Room};
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock, ReserveOutcome, Stock};
use doorbuster_engine::{room_promises, stock_promises};
use private_redis::sale;
use private_redis::{Cluster, Server, Watched, free_port};

async fn refused(options: RedisOptions) -> BackendError {
    match RedisStock::connect(options).await {
        Ok(_) => panic!("taken"),
        Err(error) => error,
    }
}

/// Names every word, whatever else it says.
#[track_caller]
fn assert_says(error: &BackendError, words: &[&str]) {
    for word in words {
        assert!(error.chain().contains(word), "{word} is not in: {}", error.chain());
    }
}

#[tokio::test]
async fn a_redis_that_may_evict_keys_is_refused_with_the_remedy() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let error = refused(RedisOptions::new(server.url())).await;
    assert_eq!(error.fault, Fault::Permanent);
    let address = server.address();
    assert_says(
        &error,
        &[&address, "may evict keys", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction"],
    );
    server.say(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]);
    assert!(RedisStock::connect(RedisOptions::new(server.url())).await.is_ok());
}

#[tokio::test]
async fn one_node_of_a_cluster_that_may_evict_keys_is_found() {
    let cluster = Cluster::start();
    assert!(RedisStock::connect(RedisOptions::new(cluster.url())).await.is_ok());
    cluster.nodes[2].say(&["CONFIG", "SET", "maxmemory-policy", "volatile-ttl"]);
    let error = refused(RedisOptions::new(cluster.url())).await;
    assert_says(&error, &["volatile-ttl", "noeviction"]);
}

#[tokio::test]
async fn a_redis_that_cannot_be_reached_is_named() {
    let address = format!("127.0.0.1:{}", free_port());
    for scheme in ["redis", "redis+cluster"] {
        let error = refused(RedisOptions::new(format!("{scheme}://{address}"))).await;
        assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
        assert_says(&error, &[&address, "cannot be reached", "redis.url"]);
    }
    let error = refused(RedisOptions::new(format!("redis+sentinel://{address}/shop"))).await;
    assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
    assert_says(&error, &[&address, "shop", "cannot be reached", "redis.url"]);
}

#[tokio::test]
async fn a_wrong_password_is_named_and_not_printed() {
    let mut server = Server::start(&[]);
    server.say(&["CONFIG", "SET", "requirepass", "right"]);
    server.log_in(&["AUTH", "right"]);
    for url in [format!("redis://:wrong@{}", server.address()), server.url()] {
        let error = refused(RedisOptions::new(url)).await;
        assert_says(&error, &[&server.address(), "refused the user or password", "redis.url"]);
        assert!(!error.chain().contains("wrong@"), "{}", error.chain());
    }
    assert!(
        RedisStock::connect(RedisOptions::new(format!("redis://:right@{}", server.address()))).await.is_ok()
    );
}

/// The rights that docs/running.md names, as it names them.
fn rights() -> Vec<String> {
    let page = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/running.md"));
    let page = page.unwrap();
    let mut lines = page.lines().skip_while(|line| !line.contains("redis-cli ACL SETUSER doorbuster"));
    let mut rights = Vec::new();
    // The command goes on where a line ends in a backslash.
    for line in &mut lines {
        rights.extend(line.trim_end_matches('\\').split_whitespace().map(str::to_owned));
        if !line.ends_with('\\') {
            break;
        }
    }
    assert!(rights.len() > 10, "docs/running.md has no ACL SETUSER doorbuster");
    for beside in ["+select", "+cluster|slots +ping +asking", "+role"] {
        assert!(page.contains(&format!("`{beside}`")), "{beside}");
    }
    rights.split_off(1)
}

/// Makes the user and gives its URL.
fn user_with(server: &Server, rights: &[String]) -> String {
    let words: Vec<&str> = rights.iter().map(|it| it.trim_matches('\'')).collect();
    server.say(&words);
    format!("redis://doorbuster:SECRET@{}", server.address())
}

#[tokio::test]
async fn a_user_with_the_documented_rights_is_enough_for_every_promise() {
    let server = Server::start(&[]);
    let url = user_with(&server, &rights());
    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            let clock = Bench::clock();
            let options = RedisOptions {
                prefix: concat!("doorbuster:", stringify!($promise), ":").to_owned(),
                clock: RedisClock::Given(Arc::clone(&clock) as _),
                ..RedisOptions::new(url.clone())
            };
            let redis = RedisStock::connect(options).await.unwrap();
            stock::$promise(&Bench { stock: Arc::new(redis), clock }).await;
        )*};
    }
    stock_promises!(tests);
    macro_rules! room_tests {
        ($($promise:ident),* $(,)?) => {$(
            let name = |more: &str| format!("doorbuster:{}{more}:", stringify!($promise));
            let address = url.clone();
            let of = move |more: &str| -> Arc<dyn Room> {
                let clock = RedisClock::Given(Bench::clock());
                let options = RedisOptions { prefix: name(more), clock, ..RedisOptions::new(address.clone()) };
                Arc::new(RedisRoom::new(&options, room::RULES).unwrap())
            };
            let first = of("");
            room::$promise(&room::Bench { room: first, forget: Box::new(move || of("_anew")) }).await;
        )*};
    }
    room_promises!(room_tests);
    // With the server's own clock, which is another command, and keys that expire.
    let rooms = RedisRoom::new(&RedisOptions::new(url.clone()), room::RULES).unwrap();
    a_room_goes_by_the_servers_clock(&rooms).await;
    let redis = RedisStock::connect(RedisOptions::new(url.clone())).await.unwrap();
    sale::open(&redis, 3, 1).await;
    assert!(matches!(sale::reserve(&redis, 1).await, ReserveOutcome::Held { .. }));
    // Another database is one right more.
    let url_of_2 = format!("{url}/2");
    assert!(RedisStock::connect(RedisOptions::new(url_of_2.clone())).await.is_err());
    server.say(&["ACL", "SETUSER", "doorbuster", "+select"]);
    RedisStock::connect(RedisOptions::new(url_of_2)).await.unwrap();
    // And for nothing of anybody else.
    let other = RedisOptions { prefix: "another:".to_owned(), ..RedisOptions::new(url) };
    let other = RedisStock::connect(other).await.unwrap();
    let error = other.level(sale::BUCKET).await.unwrap_err();
    assert_eq!(error.fault, Fault::Permanent);
    assert_says(&error, &["lacks a right", "docs/running.md"]);
}

/// Whatever a gateway's clock says, nobody's turn ends and nobody has left.
async fn a_room_goes_by_the_servers_clock(rooms: &RedisRoom) {
    let moment = |ms| Moment { now: Timestamp::from_ms(ms), opens_at: Timestamp::from_ms(0) };
    let (sale, asking) =
        (SaleId(77), |name| Asking { user: UserId::new(name).unwrap(), rank: None, sealed_at: None });
    rooms.ask(sale, &[asking("a"), asking("b")], moment(0)).await.unwrap();
    let openings = Openings { inside: 1, most: 10, per_minute: None };
    for ms in [0, i64::from(u32::MAX) * 1_000, 5] {
        let crowd = rooms.admit(sale, openings, moment(ms)).await.unwrap();
        assert_eq!((crowd.waiting, crowd.inside), (1, 1), "{ms}");
    }
}

#[tokio::test]
async fn a_waiting_room_loses_nobody_when_redis_is_killed_with_all_it_had() {
    let mut server = Server::start(&[]);
    let clock = RedisClock::Given(Bench::clock());
    let options = RedisOptions { clock, ..RedisOptions::new(server.url()) };
    let rooms = RedisRoom::new(&options, room::RULES).unwrap();
    let opens_at = Timestamp::from_ms(1_800_000_000_000);
    let moment = |s: i64| Moment { now: Timestamp::from_ms(opens_at.as_ms() + s * 1_000), opens_at };
    let asks = |number: u64| {
        let user = UserId::new(&format!("user {number}")).unwrap();
        Asking { user, rank: None, sealed_at: None }
    };
    let everybody: Vec<Asking> = (0..200).map(asks).collect();
    let before = rooms.ask(SaleId(1), &everybody, moment(1)).await.unwrap();
    server.kill();
    assert!(rooms.ask(SaleId(1), &everybody, moment(2)).await.is_err());
    server.start_again();

    // They come back in any order, after somebody new; what they hold says which place they had.
    rooms.ask(SaleId(1), &[asks(1_000)], moment(3)).await.unwrap();
    let mut back = Vec::new();
    for (asking, place) in everybody.iter().zip(&before).rev() {
        let Place::Waiting { rank, .. } = place else { panic!("{place:?}") };
        back.push(Asking { rank: Some(*rank), sealed_at: Some(moment(1).now), ..asking.clone() });
    }
    rooms.ask(SaleId(1), &back, moment(4)).await.unwrap();
    let openings = Openings { inside: 1_000, most: 1_000, per_minute: None };
    assert_eq!(rooms.admit(SaleId(1), openings, moment(5)).await.unwrap().admitted_now, 0);
    assert_eq!(rooms.ask(SaleId(1), &everybody, moment(6)).await.unwrap(), before);
    let crowd = rooms.admit(SaleId(1), openings, moment(30)).await.unwrap();
    assert_eq!((crowd.admitted_now, crowd.waiting), (201, 0));
}

/// What somebody who took over a gateway could say to Redis.
#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_no_harm() {
    let server = Server::start(&[]);
    server.say(&["HSET", "shop:secrets", "key", "value"]);
    let url = user_with(&server, &rights());
    let client = redis::Client::open(url).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    for command in [
        "FLUSHALL",
        "FLUSHDB",
        "CONFIG GET *",
        "CONFIG SET maxmemory 1",
        "KEYS *",
        "SCAN 0",
        "DEBUG SLEEP 1",
        "SHUTDOWN NOSAVE",
        "REPLICAOF 127.0.0.1 1",
        "SCRIPT FLUSH",
        "ACL LIST",
        "MONITOR",
        "DEL doorbuster:1",
        "SET doorbuster:1 x",
        "HGET shop:secrets key",
        "UNLINK shop:secrets",
        "EVAL return{redis.call('HGET','shop:secrets','key')} 0",
        "EVAL return{redis.call('FLUSHALL')} 0",
        "EVAL return{redis.call('HGET',KEYS[1],'key')} 1 shop:secrets",
    ] {
        let mut words = command.split(' ');
        let mut asked = redis::cmd(words.next().unwrap());
        asked.arg(words.collect::<Vec<_>>());
        let said = asked.query_async::<redis::Value>(&mut connection).await;
        let refused = said.expect_err(command).to_string();
        let right = ["NOPERM", "NoPerm", "permission", "not allowed", "can't access", "can't run"]
            .iter()
            .any(|it| refused.contains(it));
        assert!(right, "{command}: {refused}");
    }
    assert_eq!(server.say(&["HGET", "shop:secrets", "key"]).text(), "value");
}

#[tokio::test]
async fn a_cluster_needs_the_rights_that_are_named_beside_them() {
    let cluster = Cluster::start();
    let rights = [rights(), ["+cluster|slots", "+ping", "+asking"].map(str::to_owned).to_vec()].concat();
    for node in &cluster.nodes {
        user_with(node, &rights);
    }
    let url = cluster.url().replace("://", "://doorbuster:SECRET@");
    let redis = RedisStock::connect(RedisOptions::new(url)).await.unwrap();
    sale::open(&redis, 3, 1).await;
    assert!(matches!(sale::reserve(&redis, 1).await, ReserveOutcome::Held { .. }));
    assert_eq!(sale::lawful(&redis, sale::BUCKET).await.len(), 1);
}

#[tokio::test]
async fn a_master_behind_sentinel_needs_the_right_that_is_named_beside_them() {
    let watched = Watched::start();
    user_with(&watched.master, &[rights(), vec!["+role".to_owned()]].concat());
    let url = watched.url().replace("://", "://doorbuster:SECRET@");
    let redis = RedisStock::connect(RedisOptions::new(url)).await.unwrap();
    sale::open(&redis, 3, 1).await;
    assert!(matches!(sale::reserve(&redis, 1).await, ReserveOutcome::Held { .. }));
}

#[tokio::test]
async fn a_user_who_may_not_ask_info_is_taken() {
    let server = Server::start(&["--maxmemory-policy", "allkeys-lru"]);
    let rights: Vec<String> = rights().into_iter().filter(|it| it != "+info").collect();
    let url = user_with(&server, &rights);
    let redis = RedisStock::connect(RedisOptions::new(url)).await.unwrap();
    assert_eq!(redis.level(sale::BUCKET).await.unwrap(), None);
}

/// Two authorities; a server and a client certificate of the first.
struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    fn make() -> Self {
        let it = Self { folder: tempfile::tempdir().unwrap() };
        std::fs::write(it.file("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
        for name in ["ca", "other"] {
            let (key, certificate) = (format!("{name}.key"), format!("{name}.pem"));
            it.openssl(&format!(
                "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} -keyout {key} -out {certificate}"
            ));
        }
        for name in ["server", "client"] {
            it.openssl(&format!(
                "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={name} -keyout {name}.key -out {name}.csr"
            ));
            it.openssl(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile names -out {name}.pem"
            ));
        }
        it
    }

    fn openssl(&self, arguments: &str) {
        let output =
            Command::new("openssl").args(arguments.split(' ')).current_dir(self.folder.path()).output();
        let output = output.expect("openssl makes the certificates: install it (apt-get install openssl)");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A server that speaks TLS at one port and in clear at another, for the test itself.
    fn server(&self, clients: &str) -> (Server, String) {
        let path = |name: &str| self.file(name).to_string_lossy().into_owned();
        let tls_port = free_port().to_string();
        let server = Server::start(&[
            "--tls-port",
            &tls_port,
            "--tls-cert-file",
            &path("server.pem"),
            "--tls-key-file",
            &path("server.key"),
            "--tls-ca-cert-file",
            &path("ca.pem"),
            "--tls-auth-clients",
            clients,
        ]);
        (server, format!("127.0.0.1:{tls_port}"))
    }

    fn options(&self, url: String, ca: &str) -> RedisOptions {
        RedisOptions { ca_file: Some(self.file(ca)), ..RedisOptions::new(url) }
    }
}

#[tokio::test]
async fn a_redis_behind_tls_is_used_when_its_authority_is_trusted() {
    let certificates = Certificates::make();
    let (server, address) = certificates.server("no");
    server.say(&["CONFIG", "SET", "requirepass", "secret"]);
    let url = format!("rediss://:secret@{address}");
    let redis = RedisStock::connect(certificates.options(url.clone(), "ca.pem")).await.unwrap();
    sale::open(&redis, 3, 1).await;
    assert!(matches!(sale::reserve(&redis, 1).await, ReserveOutcome::Held { .. }));
    assert_eq!(sale::lawful(&redis, sale::BUCKET).await.len(), 1);

    // Another authority, or only the system's.
    for options in [certificates.options(url.clone(), "other.pem"), RedisOptions::new(url.clone())] {
        let error = refused(options).await;
        assert_says(&error, &[&address, "ertificate"]);
    }
    let wrong = certificates.options(format!("rediss://:wrong@{address}"), "ca.pem");
    assert_says(&refused(wrong).await, &["refused the user or password"]);
    let missing = certificates.options(url, "nowhere.pem");
    assert_says(&refused(missing).await, &["nowhere.pem", "cannot be read"]);
}

#[tokio::test]
async fn a_redis_that_asks_clients_for_a_certificate_gets_it() {
    let certificates = Certificates::make();
    let (_server, address) = certificates.server("yes");
    let without = certificates.options(format!("rediss://{address}"), "ca.pem");
    let own = (certificates.file("client.pem"), certificates.file("client.key"));
    let with = RedisOptions { certificate: Some(own), ..without.clone() };
    let redis = RedisStock::connect(with).await.unwrap();
    sale::open(&redis, 3, 1).await;
    assert!(matches!(sale::reserve(&redis, 1).await, ReserveOutcome::Held { .. }));
    refused(without).await;
}
