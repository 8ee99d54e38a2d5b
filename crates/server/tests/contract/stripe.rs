//! Others' accounts of Stripe's API: stripe-mock, of Stripe's own making, refuses what its description of the API
//! does not have; localstripe keeps payments and refunds, and signs its webhooks. Neither is Stripe, and neither
//! has a buyer: what a session becomes is told by hand.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use doorbuster_engine::clock::{Clock as _, SystemClock};
use doorbuster_engine::ledger::PaymentAttemptId;
use doorbuster_services::{await_true, free_ports};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tempfile::TempDir;

use crate::served::{Reply, Served, request, send};
use crate::tool;

const KEY: &str = "sk_test_123";
const WEBHOOK_SECRET: &str = "whsec_a_secret_between_shop_and_provider";
const WEBHOOK: &str = "/api/flash-sales/payments/stripe/webhook";
const PATIENCE: Duration = Duration::from_secs(60);

/// One of them, on a port of its own.
struct Account {
    at: SocketAddr,
    child: Child,
    folder: TempDir,
}

impl Account {
    fn start(command: impl FnOnce(SocketAddr) -> Command) -> Self {
        let [at] = free_ports().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let mut command = command(at);
        command.current_dir(folder.path()).stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn().unwrap();
        let account = Self { at, child, folder };
        let listens = await_true(PATIENCE, || Ok(std::net::TcpStream::connect(at).is_ok())).unwrap();
        assert!(listens, "it does not listen: {}", account.log());
        account
    }

    fn stripe_mock() -> Self {
        let [tls] = free_ports().unwrap();
        Self::start(|at| {
            let mut command = Command::new(tool("stripe-mock"));
            command.args(["-http-addr", &at.to_string(), "-https-addr", &tls.to_string()]);
            command
        })
    }

    /// Its own program listens on every address of the machine.
    fn localstripe() -> Self {
        let program = "import logging, sys; from aiohttp import web; from localstripe.server import app; \
             logger = logging.getLogger('aiohttp.access'); logger.setLevel(logging.DEBUG); \
             logger.addHandler(logging.StreamHandler()); \
             web.run_app(app, host='127.0.0.1', port=int(sys.argv[1]))";
        Self::start(|at| {
            let mut command = Command::new(tool("python"));
            command.args(["-c", program, &at.port().to_string()]);
            command
        })
    }

    /// A server that asks it.
    fn shop(&self) -> Served {
        Served::start_with(&[
            "payments.provider=stripe",
            &format!("payments.webhook_secret={WEBHOOK_SECRET}"),
            &format!("payments.stripe.api_key={KEY}"),
            &format!("payments.stripe.api_url=http://{}", self.at),
            "payments.public_url=https://sale.example",
        ])
    }

    /// A form, as Stripe's clients send it.
    fn form(&self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
        let body = fields.collect::<Vec<_>>().join("&");
        let (at, length) = (self.at, body.len());
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n"
        );
        send(at, format!("{head}{body}").as_bytes())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    assert!(await_true(PATIENCE, || Ok(holds())).unwrap(), "not in time: {what}");
}

/// An order that its buyer has begun to pay; `begun` says whether the provider has made a page.
fn order_to_pay(shop: &Served, item: &str, user: &str, begun: impl Fn(&Reply) -> bool) -> String {
    let order = shop.buy(item, user).json()["orderId"].as_str().unwrap().to_owned();
    let path = format!("/api/flash-sales/orders/{order}/payment");
    until("the payment begins", || begun(&shop.buyer("POST", &path, Some(&shop.token(user)), None)));
    order
}

/// What a session says of an order, once it was paid by this payment.
fn tell_of_payment(shop: &Served, order: &str, intent: &str) {
    let attempt = PaymentAttemptId::derived("stripe", order.parse().unwrap()).to_string();
    let session = json!({
        "id": "cs_test_1", "object": "checkout.session", "amount_total": 1990, "currency": "eur",
        "metadata": {"doorbuster_order": order, "doorbuster_attempt": attempt},
        "payment_intent": intent, "payment_status": "paid", "status": "complete",
    });
    let event = json!({
        "id": "evt_1", "object": "event", "type": "checkout.session.completed", "data": {"object": session},
    });
    let at = SystemClock::new().now().as_ms() / 1_000;
    let mut mac = Hmac::<Sha256>::new_from_slice(WEBHOOK_SECRET.as_bytes()).unwrap();
    mac.update(format!("{at}.{event}").as_bytes());
    let signature: String = mac.finalize().into_bytes().iter().map(|it| format!("{it:02x}")).collect();
    let signed = format!("Stripe-Signature: t={at},v1={signature}\r\n");
    let reply = request(shop.public, "POST", WEBHOOK, None, Some(&event), &signed);
    assert_eq!((reply.status, &reply.json()["outcome"]), (200, &json!("PAID")), "{reply:?}");
}

/// The staff gives an order's money back; answers the refund once it is done.
fn refund(shop: &Served, order: &str) -> Value {
    let why = json!({"by": "ada", "reason": "it broke"});
    let reply = shop.staff("POST", &format!("/admin/api/orders/{order}/refund"), Some(&why));
    assert_eq!(reply.status, 200, "{reply:?}");
    let done = || shop.staff("GET", "/admin/api/refunds?state=DONE", None).json()["items"][0].clone();
    until("the money is given back", || !done().is_null());
    done()
}

#[test]
fn stripes_own_check_finds_every_request_to_be_of_its_api() {
    let account = Account::stripe_mock();
    let shop = account.shop();
    let (_, item) = shop.open_sale(5, 1);
    let has_page = |reply: &Reply| {
        // Until it is recorded there is nothing to pay.
        reply.status < 400
            && reply.json()["paymentUrl"].as_str().unwrap().starts_with("https://checkout.stripe.com/")
    };
    let order = order_to_pay(&shop, &item, "alice", has_page);
    tell_of_payment(&shop, &order, "pi_1");
    assert!(refund(&shop, &order)["reference"].as_str().unwrap().starts_with("re_"));

    // Behind a cancellation the page is ended.
    let order = order_to_pay(&shop, &item, "bob", has_page);
    let path = format!("/api/flash-sales/orders/{order}");
    assert_eq!(shop.buyer("DELETE", &path, Some(&shop.token("bob")), None).status, 200);

    let asked = |line: &str| account.log().lines().any(|it| it.starts_with(line));
    for line in ["POST /v1/checkout/sessions", "POST /v1/refunds", "GET /v1/events"] {
        until(line, || asked(&format!("Request: {line}")));
    }
    until("the page is ended", || account.log().contains("/expire"));
    // A request is in the log before its answer is.
    let count = |word: &str| account.log().lines().filter(|it| it.starts_with(word)).count();
    until("every request is answered", || count("Response:") == count("Request:"));
    let log = account.log();
    let refused = log.lines().find(|it| it.contains("status=") && !it.contains("status=200"));
    assert_eq!(refused, None, "{log}");
    shop.stop();
}

#[test]
fn localstripe_gives_money_back_and_its_webhooks_are_believed() {
    let account = Account::localstripe();
    let shop = account.shop();
    let hook = [
        ("url", format!("http://{}{WEBHOOK}", shop.public)),
        ("secret", WEBHOOK_SECRET.to_owned()),
        ("events[]", "payment_intent.payment_failed".to_owned()),
    ];
    let hook = hook.each_ref().map(|(name, value)| (*name, value.as_str()));
    assert_eq!(account.form("/_config/webhooks/shop", &hook).status, 200);
    let (_, item) = shop.open_sale(5, 1);
    // It knows of no session.
    let order = order_to_pay(&shop, &item, "alice", |reply| reply.word() == "PAYMENT_UNAVAILABLE");

    let attempt = PaymentAttemptId::derived("stripe", order.parse().unwrap()).to_string();
    let pay = |card: &str| {
        let card = [
            ("type", "card"),
            ("card[number]", card),
            ("card[exp_month]", "12"),
            ("card[exp_year]", "2099"),
            ("card[cvc]", "123"),
        ];
        let method = account.form("/v1/payment_methods", &card).json()["id"].as_str().unwrap().to_owned();
        account.form(
            "/v1/payment_intents",
            &[
                ("amount", "1990"),
                ("currency", "eur"),
                ("payment_method", &method),
                ("confirm", "true"),
                ("metadata[doorbuster_order]", &order),
                ("metadata[doorbuster_attempt]", &attempt),
            ],
        )
    };
    assert_eq!(pay("4000000000000341").status, 402, "a card that is declined");
    let paid = pay("4242424242424242");
    assert_eq!(paid.json()["status"], "succeeded", "{paid:?}");
    let intent = paid.json()["id"].as_str().unwrap().to_owned();
    tell_of_payment(&shop, &order, &intent);

    let refund = refund(&shop, &order);
    let listed =
        request(account.at, "GET", &format!("/v1/refunds?payment_intent={intent}"), Some(KEY), None, "");
    let listed = listed.json()["data"].clone();
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["id"], &listed[0]["amount"]), (&refund["reference"], &json!(1990)), "{listed}");

    until("its webhook is answered", || account.log().contains("webhook \"payment_intent."));
    let log = account.log();
    assert!(log.contains("webhook \"payment_intent.payment_failed\" successfully delivered"), "{log}");
    let lines = shop.stop();
    assert!(lines.iter().any(|line| line.contains("\"outcome\":\"FAILED\"")), "{lines:#?}");
}
