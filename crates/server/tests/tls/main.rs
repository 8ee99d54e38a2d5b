//! Both listeners over TLS: as without it for whoever speaks it, closed in time for whoever does not, and
//! with a new certificate when there is one.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

mod certificates;
#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
#[path = "../shop/mod.rs"]
mod shop;

use std::net::SocketAddr;
use std::time::Duration;

use certificates::{Certificates, replace};
use doorbuster_loadtest::{AdminClient, AdminError};
use futures_util::future::join_all;
use rustls::version::{TLS12, TLS13};
use shop::http::{Line, request};
use shop::tls::encrypted;
use shop::{Shop, purchase_path, until};
use tokio::time::{Instant, interval, timeout};

/// How long a connection that should have been closed is listened to.
const SOON: Duration = Duration::from_secs(3);

/// A shop with TLS on both listeners.
async fn shop_of(certificates: &Certificates, more: &[(&str, &str)]) -> Shop {
    try_shop_of(certificates, more).await.unwrap()
}

async fn try_shop_of(certificates: &Certificates, more: &[(&str, &str)]) -> anyhow::Result<Shop> {
    let own = certificates.settings();
    let own = own.iter().map(|(key, value)| (*key, value.as_str()));
    Shop::try_open(&own.chain(more.iter().copied()).collect::<Vec<_>>()).await
}

/// The certificate that a listener shows a new connection.
async fn shown(shop: &Shop, address: SocketAddr) -> Vec<u8> {
    let stream = encrypted(address, &shop.config.server.tls, &[&TLS13], &[]).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

async fn until_metric(shop: &Shop, line: &str) {
    until(&format!("the metrics say {line}"), async || shop.metrics().await.contains(line)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buyers_and_staff_are_served_by_both_versions_and_by_http_1_alone() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[]).await;
    // The staff's client spoke TLS already.
    let sale = shop.sale(10).await;
    let (tls, public) = (shop.config.server.tls.clone(), shop.address());
    for (number, version) in [&TLS12, &TLS13].into_iter().enumerate() {
        for (offered, agreed) in [
            (&["http/1.1"][..], Some(&b"http/1.1"[..])),
            (&["h2", "http/1.1"], Some(b"http/1.1")),
            (&[], None),
        ] {
            let stream = encrypted(public, &tls, &[version], offered).await.unwrap();
            let session = stream.get_ref().1;
            assert_eq!(session.protocol_version(), Some(version.version));
            assert_eq!(session.alpn_protocol(), agreed);
            let mut line = Line::over(stream);
            let bearer = shop.buyer(&format!("user-{number}")).bearer();
            let click = request("POST", &purchase_path(&sale.item), &[("authorization", &bearer)], b"");
            // Two requests on one connection.
            line.send(&click).await.unwrap();
            let order = line.reply(false).await.unwrap().text("orderId");
            line.send(&click).await.unwrap();
            assert_eq!(line.reply(false).await.unwrap().refused(409, "ALREADY_PURCHASED")["orderId"], order);
        }
        assert!(encrypted(public, &tls, &[version], &["h2"]).await.is_err(), "HTTP/2 is not spoken");
    }
    // What is too large for one record, and what is refused by hyper itself.
    let heard = shop.raw(&[b"GET / HTTP/1.1\r\nx: ", [b'a'; 20_000].as_slice()].concat(), SOON).await;
    assert_eq!((heard.status(), heard.closed), (431, true), "{}", heard.text());
    let page = shop.ask("GET", "/docs", &[], b"").await;
    assert!(page.status == 200 && page.body.len() > 1_000);
    assert_eq!(shop.free(&sale, &sale.item).await, 8);

    let metrics = shop.metrics().await;
    for listener in ["public", "admin"] {
        let ends = format!(
            "doorbuster_tls_certificate_expiry_timestamp_seconds{{listener=\"{listener}\"}} 4102444800\n"
        );
        assert!(metrics.contains(&ends), "{metrics}");
        assert!(metrics.contains(&format!("doorbuster_tls_files_unusable{{listener=\"{listener}\"}} 0\n")));
    }
    let refused = "doorbuster_tls_handshakes_total{listener=\"public\",outcome=\"failed\"} 2\n";
    assert!(metrics.contains(refused), "{metrics}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buyer_who_hangs_up_without_a_word_has_clicked_all_the_same() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[]).await;
    let sale = shop.sale(10).await;
    for (number, body) in [&b""[..], b"{\"quantity\":1}"].into_iter().enumerate() {
        let buyer = shop.buyer(&format!("user-{number}"));
        let bearer = buyer.bearer();
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        let mut line = shop.line().await;
        line.send(&request("POST", &purchase_path(&sale.item), &headers, body)).await.unwrap();
        // Without the closing word of TLS, as a telephone does that goes into a tunnel.
        drop(line);
        until("the click is an order", async || buyer.my_orders(&sale).await.len() == 1).await;
    }
    shop.finish().await;
}

/// Sends byte by byte until the server has enough of it.
async fn trickle(mut line: Line, bytes: &[u8]) -> shop::http::Heard {
    let mut pace = interval(Duration::from_millis(50));
    let sending = async {
        for byte in bytes {
            pace.tick().await;
            if line.send(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(2), sending).await;
    line.rest(SOON).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_handshake_is_closed_within_the_time_for_a_head() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[("server.header_timeout", "300ms")]).await;
    let sale = shop.sale(10).await;
    let plain = request("GET", "/livez", &[], b"");
    // The head of a record with a greeting of 512 bytes, and the first of them.
    let half = [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[7; 100]].concat();
    // The same record by record: each is whole, and the greeting never is.
    let pieces = b"\x16\x03\x01\x00\x01\x01".repeat(20);

    for address in [shop.address(), shop.app().admin_address] {
        let (late, failed) = (&b""[..], &b"\x00\xff\x17garbage that is no record at all"[..]);
        let begin = Instant::now();
        let heard = join_all([late, failed, &plain, &half].map(async |bytes| {
            let mut line = Line::connect(address).await.unwrap();
            // The server may close before it has read everything.
            let _ = line.send(bytes).await;
            line.rest(SOON).await
        }));
        let slow = async { trickle(Line::connect(address).await.unwrap(), &half).await };
        let pieces = async { trickle(Line::connect(address).await.unwrap(), &pieces).await };
        let honest = async { shop.buyer("alice").buy(&sale.item).await.status };
        let (heard, slow, pieces, bought) = tokio::join!(heard, slow, pieces, honest);

        assert!([202, 409].contains(&bought));
        for heard in heard.iter().chain([&slow, &pieces]) {
            assert!(heard.closed && heard.answers() == 0, "{}", heard.text());
        }
        assert!(begin.elapsed() < SOON, "{:?}", begin.elapsed());
    }
    for listener in ["public", "admin"] {
        let row = |outcome: &str, count: u64| {
            format!(
                "doorbuster_tls_handshakes_total{{listener=\"{listener}\",outcome=\"{outcome}\"}} {count}\n"
            )
        };
        until_metric(&shop, &row("failed", 2)).await;
        until_metric(&shop, &row("late", 4)).await;
    }
    // Who has shaken hands has the rest of that time for his head.
    let line = shop.line().await;
    let heard = trickle(line, &plain).await;
    assert!(heard.closed && heard.answers() == 0, "{}", heard.text());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handshake_takes_a_place_from_its_first_moment() {
    for cap in ["server.connections_max", "server.connections_per_address_max"] {
        let certificates = Certificates::new();
        // Nobody is closed for being late.
        let settings = [(cap, "4"), ("server.cores", "1"), ("server.header_timeout", "10m")];
        let shop = shop_of(&certificates, &settings).await;
        let mut silent = Vec::new();
        for _ in 0..4 {
            let mut line = Line::connect(shop.address()).await.unwrap();
            line.send(b"\x16\x03\x01").await.unwrap();
            silent.push(line);
        }
        until_metric(&shop, "doorbuster_connections 4\n").await;

        let (tls, address) = (shop.config.server.tls.clone(), shop.address());
        let refused = timeout(SOON, encrypted(address, &tls, &[&TLS13], &[])).await;
        assert!(refused.is_ok_and(|refused| refused.is_err()), "{cap}: it was not closed");
        // A place is free as soon as one leaves.
        silent.pop();
        until("a new connection is served", async || encrypted(address, &tls, &[&TLS13], &[]).await.is_ok())
            .await;
        shop.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_does_not_wait_for_handshakes() {
    let certificates = Certificates::new();
    let settings = [("server.header_timeout", "10m"), ("server.drain_timeout", "10m")];
    let shop = shop_of(&certificates, &settings).await;
    let mut silent = Vec::new();
    for address in [shop.address(), shop.app().admin_address] {
        silent.push(Line::connect(address).await.unwrap());
    }
    until_metric(&shop, "doorbuster_connections 1\n").await;
    timeout(SOON, shop.finish()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_shown_to_new_connections_and_old_ones_live_on() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[]).await;
    let listeners = [shop.address(), shop.app().admin_address];
    let ask = request("GET", "/livez", &[], b"");
    let mut old = [shop.line().await, shop.staff_line().await];
    for line in &mut old {
        line.send(&ask).await.unwrap();
        assert_eq!(line.reply(false).await.unwrap().status, 200);
    }
    let before = shown(&shop, listeners[0]).await;

    certificates.put(&certificates.made(2050));
    for address in listeners {
        until("a new certificate is shown", async || shown(&shop, address).await != before).await;
    }
    for listener in ["public", "admin"] {
        let ends = format!(
            "doorbuster_tls_certificate_expiry_timestamp_seconds{{listener=\"{listener}\"}} 2524608000\n"
        );
        until_metric(&shop, &ends).await;
    }
    for line in &mut old {
        line.send(&ask).await.unwrap();
        assert_eq!(line.reply(false).await.unwrap().status, 200, "a connection from before lives on");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pair_that_cannot_be_used_leaves_the_last_good_one_until_it_is_mended() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[]).await;
    let listeners = [shop.address(), shop.app().admin_address];
    let before = shown(&shop, listeners[0]).await;
    let next = certificates.made(2050);

    // Half a renewal: the certificate came, its key did not.
    replace(&certificates.cert(), &next.cert);
    for listener in ["public", "admin"] {
        until_metric(&shop, &format!("doorbuster_tls_files_unusable{{listener=\"{listener}\"}} 1\n")).await;
    }
    for address in listeners {
        assert_eq!(shown(&shop, address).await, before, "the last good one is still shown");
    }
    assert_eq!(shop.ask("GET", "/livez", &[], b"").await.status, 200);

    replace(&certificates.key(), &next.key);
    for listener in ["public", "admin"] {
        until_metric(&shop, &format!("doorbuster_tls_files_unusable{{listener=\"{listener}\"}} 0\n")).await;
    }
    for address in listeners {
        assert_ne!(shown(&shop, address).await, before);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_does_not_start_with_a_key_that_does_not_fit_or_that_everybody_can_read() {
    let certificates = Certificates::new();
    let refusal = async || format!("{:#}", try_shop_of(&certificates, &[]).await.err().unwrap());
    let (good, other) = (certificates.made(2100), certificates.made(2100));
    certificates.put(&good);
    replace(&certificates.key(), &other.key);
    let error = refusal().await;
    assert!(
        error.contains("is not that of the first certificate") && error.contains("server.tls"),
        "{error}"
    );

    use std::os::unix::fs::PermissionsExt;
    certificates.put(&good);
    std::fs::set_permissions(certificates.key(), std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = refusal().await;
    assert!(error.contains("server.tls.key_file") && error.contains("chmod 600"), "{error}");

    certificates.put(&good);
    shop_of(&certificates, &[]).await.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sandboxs_pages_are_at_https_and_its_webhooks_arrive() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[("payments.provider", "sandbox")]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = alice.buy(&sale.item).await.accepted();
    alice.until_payable(&order).await;
    let started = alice.ask("POST", &format!("/api/flash-sales/orders/{order}/payment"), &[], "").await;
    let url = started.text("paymentUrl");
    let page = url.strip_prefix(&format!("https://{}", shop.address())).unwrap_or_else(|| panic!("{url}"));
    let pressed = shop.ask("POST", &format!("{page}?do=pay&lang=en"), &[], b"").await;
    assert_eq!(pressed.status, 303, "{}", pressed.said());
    alice.until_status(&order, "PAID").await;
    shop.finish().await;
}

/// Runs the program with these arguments alone; its exit code, and all that it said.
async fn run(args: Vec<String>) -> (Option<i32>, String) {
    let command = move || {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_doorbuster"));
        command.args(&args).env_clear().output().unwrap()
    };
    let output = tokio::task::spawn_blocking(command).await.unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_commands_reach_the_staff_and_look_at_certificates() {
    let certificates = Certificates::new();
    let shop = shop_of(&certificates, &[]).await;
    shop.draft(Default::default()).await;
    let words = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let (url, tokens) =
        (format!("https://{}", shop.app().admin_address), shop.config.admin.token_file.display().to_string());
    let list = words(&["sale", "list", "--admin-url", &url, "--admin-token-file", &tokens]);
    let authority = certificates.authority().display().to_string();

    let (code, said) = run([list.clone(), words(&["--admin-ca", &authority])].concat()).await;
    assert!(code == Some(0) && said.contains("Drop"), "{code:?} {said}");
    // The system's authorities did not sign it, or there are none.
    let (code, said) = run(list.clone()).await;
    assert!(code == Some(1) && said.contains("trust") && said.contains("--admin-ca"), "{code:?} {said}");
    let (code, said) = run([list, words(&["--admin-ca", "/not/there"])].concat()).await;
    assert!(code == Some(1) && said.contains("--admin-ca /not/there"), "{code:?} {said}");

    let set = |value: String| words(&["--set", &value]);
    let settings = certificates.settings();
    let settings: Vec<String> =
        settings.iter().flat_map(|(key, value)| set(format!("{key}={value}"))).collect();
    let check = [words(&["config", "check"]), settings].concat();
    let (code, said) = run(check.clone()).await;
    assert_eq!(code, Some(0), "{said}");
    for says in ["server.tls ends in", "admin.tls ends in", "at 2100-01-01", "is valid"] {
        assert!(said.contains(says), "{says}: {said}");
    }
    replace(&certificates.key(), &certificates.made(2100).key);
    let (code, said) = run(check).await;
    assert!(code == Some(1) && said.contains("is not that of the first certificate"), "{code:?} {said}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_staffs_client_says_why_it_does_not_trust_or_understand_a_listener() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let shop = shop_of(&certificates, &[]).await;
    let (authority, other) =
        (std::fs::read(certificates.authority()).unwrap(), std::fs::read(others.authority()).unwrap());
    let address = shop.app().admin_address;
    let client =
        |url: &str, authority: &[u8]| AdminClient::new(url, "a-token").unwrap().trusting(authority).unwrap();

    let unknown = client(&format!("https://{address}"), &other).sales().await.unwrap_err();
    assert!(matches!(unknown, AdminError::Untrusted { .. }), "{unknown}");
    assert!(unknown.to_string().contains("no authority that is trusted here"), "{unknown}");
    let elsewhere = format!("https://127.0.0.2:{}", address.port());
    let named = client(&elsewhere, &authority).sales().await.unwrap_err();
    assert!(!matches!(named, AdminError::Untrusted { .. }), "nobody listens there: {named}");
    let plain = client(&format!("http://{address}"), &authority).sales().await.unwrap_err();
    assert!(plain.to_string().contains("https://"), "{plain}");
    let reached =
        client(&format!("https://localhost:{}", address.port()), &authority).sales().await.unwrap_err();
    assert_eq!(reached.status(), Some(401), "{reached}");

    let bare = Shop::open().await;
    let url = format!("https://{}", bare.app().admin_address);
    let encrypted = client(&url, &authority).sales().await.unwrap_err();
    assert!(encrypted.to_string().contains("http://"), "{encrypted}");
    assert!(AdminClient::new(&url, "a-token").unwrap().trusting(b"no PEM").is_err());
    shop.finish().await;
    bare.finish().await;
}
