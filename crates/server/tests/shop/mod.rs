//! A whole server in this process, with a clock that the test moves and people who talk to it over
//! real sockets.

pub(crate) mod http;
pub(crate) mod tls;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_loadtest::{AdminClient, AdminError, TokenSigner};
use doorbuster_server::app::App;
use doorbuster_server::backend::{self, ServerClocks};
use doorbuster_server::config::{Config, Role};
use doorbuster_wire::{AuditReport, ItemDraft, MarkPaid, OrderRow, Paid, Restock, SaleDetail, SaleDraft};
use serde_json::Value;
use tokio::time::{interval, timeout};

use http::{Heard, Line, PATIENCE, Reply, request};

/// 2026-11-27T08:00:00Z, when every story begins.
pub(crate) const START_MS: i64 = 1_795_766_400_000;

/// What every sale's payment window is, unless a test says otherwise.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// The releaser's first wait after a fault.
const RETRY: Duration = Duration::from_millis(50);

/// How long the gate repeats a "sold out" of the stock.
pub(crate) const FLAG_LIFE: Duration = Duration::from_millis(200);

/// The price of every item, in cents.
pub(crate) const PRICE: i64 = 1_990;

pub(crate) struct Shop {
    app: Option<App>,
    pub(crate) config: Config,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) admin: AdminClient,
    signer: TokenSigner,
    staff: Staff,
    folder: tempfile::TempDir,
}

/// The staff's tokens, by role.
pub(crate) struct Staff {
    pub(crate) admin: String,
    pub(crate) operator: String,
    pub(crate) viewer: String,
}

/// A sale to be made.
#[derive(Clone, Debug)]
pub(crate) struct Offer {
    /// Units of each item.
    pub(crate) quantities: Vec<u64>,
    pub(crate) limit: u32,
    pub(crate) opens_in: Duration,
    pub(crate) lasts: Duration,
}

impl Default for Offer {
    /// Ten units of one item, one per user. It would open in an hour: the staff opens it earlier.
    fn default() -> Self {
        let hour = Duration::from_secs(3_600);
        Self { quantities: vec![10], limit: 1, opens_in: hour, lasts: 24 * hour }
    }
}

/// A sale that was made.
#[derive(Clone, Debug)]
pub(crate) struct Sale {
    pub(crate) id: String,
    /// The first item.
    pub(crate) item: String,
    pub(crate) items: Vec<String>,
}

impl From<&SaleDetail> for Sale {
    fn from(detail: &SaleDetail) -> Self {
        let items: Vec<String> = detail.items.iter().map(|item| item.item_id.clone()).collect();
        Self { id: detail.sale_id.clone(), item: items[0].clone(), items }
    }
}

fn random() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

/// A configuration on free ports in `folder`, with random secrets; `settings` win.
pub(crate) fn config(folder: &Path, settings: &[(&str, &str)]) -> (Config, Staff, String) {
    let staff = Staff { admin: random(), operator: random(), viewer: random() };
    let secret = random();
    let tokens = folder.join("staff.tokens");
    let lines = format!("admin {}\noperator {}\nviewer {}\n", staff.admin, staff.operator, staff.viewer);
    write_private(&tokens, &lines);
    let base = [
        ("server.listen", "127.0.0.1:0".to_owned()),
        ("server.cores", "2".to_owned()),
        ("server.drain_timeout", "2s".to_owned()),
        ("admin.listen", "127.0.0.1:0".to_owned()),
        ("admin.token_file", tokens.display().to_string()),
        ("data.dir", folder.join("data").display().to_string()),
        ("gate.jwt.secret", secret.clone()),
        // The clock stands until a test moves it: a limit would not open again, nobody would be asked, and
        // nothing would return.
        ("gate.limits.user_rate", "0".to_owned()),
        ("gate.limits.other_rate", "0".to_owned()),
        ("sale.release_spread", "0s".to_owned()),
        ("payments.hold", "0s".to_owned()),
        ("payments.late", "refund".to_owned()),
    ];
    let servers = servers(&std::env::var("DOORBUSTER_TEST_BACKENDS").unwrap_or_default());
    let base = base.into_iter().chain(servers);
    let own = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let flags: Vec<_> = base.map(|(key, value)| (key.to_owned(), value)).chain(own).collect();
    (Config::read(None, [], &flags).unwrap(), staff, secret)
}

/// Where a server is. A missing one is a failure, never a skip.
pub(crate) fn address_of(service: &str) -> String {
    let variable = format!("DOORBUSTER_TEST_{service}_URL");
    std::env::var(&variable).unwrap_or_else(|_| {
        panic!(
            "{variable} is not set: start the servers with `cargo xtask services up` and set what it prints"
        )
    })
}

/// Settings for the backends that are servers, such as `redis,kafka,postgres`: a prefix, a topic and
/// a schema that nobody else has. `DOORBUSTER_TEST_BACKENDS` tells every story on them.
pub(crate) fn servers(named: &str) -> Vec<(&'static str, String)> {
    let own = format!("shop_{:016x}", rand::random::<u64>());
    let mut settings = Vec::new();
    for backend in named.split(',').filter(|name| !name.is_empty()) {
        settings.extend(match backend {
            "redis" => vec![
                ("stock.backend", "redis".to_owned()),
                ("redis.url", address_of("REDIS")),
                ("redis.prefix", format!("{own}:")),
            ],
            "kafka" => vec![
                ("queue.backend", "kafka".to_owned()),
                ("kafka.brokers", address_of("KAFKA")),
                ("kafka.topic", own.clone()),
                ("kafka.group", own.clone()),
                ("kafka.partitions", "3".to_owned()),
                ("kafka.replication", "1".to_owned()),
            ],
            "postgres" => vec![
                ("ledger.backend", "postgres".to_owned()),
                ("postgres.url", address_of("POSTGRES")),
                ("postgres.schema", own.clone()),
            ],
            other => panic!("there is no server called {other}"),
        });
    }
    settings
}

/// Writes a file that only its owner may read.
pub(crate) fn write_private(path: &PathBuf, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// RFC 3339 with milliseconds.
pub(crate) fn text_of(at: Timestamp) -> String {
    format!("{:.3}", jiff::Timestamp::from_millisecond(at.as_ms()).unwrap())
}

/// Awaits a condition, looking every few milliseconds; panics when it does not come true.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let looking = async {
        let mut pace = interval(Duration::from_millis(5));
        while !condition().await {
            pace.tick().await;
        }
    };
    assert!(timeout(PATIENCE, looking).await.is_ok(), "waited in vain until {what}");
}

impl Shop {
    /// A server on two cores.
    pub(crate) async fn open() -> Self {
        Self::open_with(&[]).await
    }

    /// A server with these settings on top.
    pub(crate) async fn open_with(settings: &[(&str, &str)]) -> Self {
        Self::try_open(settings).await.unwrap()
    }

    /// The same where the start may be refused.
    pub(crate) async fn try_open(settings: &[(&str, &str)]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().unwrap();
        let (config, staff, secret) = config(folder.path(), settings);
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(START_MS)));
        let app = start(&config, &clock).await?;
        let admin = tls::staff_client(&config, &app, &staff.admin)?;
        let signer = TokenSigner::with_defaults(secret.as_bytes()).unwrap();
        Ok(Self { app: Some(app), config, clock, admin, signer, staff, folder })
    }

    pub(crate) fn app(&self) -> &App {
        self.app.as_ref().unwrap()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.app().public_address()
    }

    /// The folder of queue and ledger.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A staff client with one of the roles.
    pub(crate) fn staff(&self, role: impl Fn(&Staff) -> &str) -> AdminClient {
        tls::staff_client(&self.config, self.app(), role(&self.staff)).unwrap()
    }

    /// Stops the server in order; [`start_again`](Self::start_again) brings it back.
    pub(crate) async fn stop(&mut self) {
        self.app.take().unwrap().stop().await;
    }

    /// Starts a stopped server on the same directory and waits until its stocks are loaded.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let app = start(&self.config, &self.clock).await?;
        assert!(app.ready_within(PATIENCE).await, "the stocks did not load");
        self.admin = tls::staff_client(&self.config, &app, &self.staff.admin)?;
        self.app = Some(app);
        Ok(())
    }

    /// Starts another process of the same sale, with these roles, on the same clock and servers.
    pub(crate) async fn join(&self, roles: &[Role]) -> App {
        let mut config = self.config.clone();
        config.server.roles = roles.to_vec();
        start(&config, &self.clock).await.unwrap()
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, duration: Duration) {
        self.clock.advance(duration);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(crate) fn draft_of(&self, offer: &Offer) -> SaleDraft {
        let opens_at = self.now().plus(offer.opens_in);
        let item = |(number, quantity): (usize, &u64)| ItemDraft {
            product_id: format!("P-{number}"),
            title: None,
            quantity: *quantity,
            price_minor: PRICE,
            list_price_minor: None,
            currency: "EUR".to_owned(),
        };
        SaleDraft {
            name: "Drop".to_owned(),
            opens_at: text_of(opens_at),
            closes_at: text_of(opens_at.plus(offer.lasts)),
            payment_window_seconds: None,
            max_units_per_user: Some(offer.limit),
            items: offer.quantities.iter().enumerate().map(item).collect(),
        }
    }

    /// A sale in state draft.
    pub(crate) async fn draft(&self, offer: Offer) -> Sale {
        Sale::from(&self.admin.create_sale(&self.draft_of(&offer)).await.unwrap())
    }

    /// A sale that is preheated and opened now.
    pub(crate) async fn sale_of(&self, offer: Offer) -> Sale {
        let sale = self.draft(offer).await;
        let report = self.admin.preheat(&sale.id).await.unwrap();
        assert!(report.ok, "{report:?}");
        assert_eq!(self.admin.open(&sale.id).await.unwrap().state, "open");
        sale
    }

    /// An open sale of one item, one unit per user.
    pub(crate) async fn sale(&self, quantity: u64) -> Sale {
        self.sale_of(Offer { quantities: vec![quantity], ..Offer::default() }).await
    }

    /// Units of an item that nobody holds.
    pub(crate) async fn free(&self, sale: &Sale, item: &str) -> u64 {
        let detail = self.admin.sale(&sale.id).await.unwrap();
        let item = detail.items.iter().find(|it| it.item_id == item).unwrap();
        item.free.unwrap_or_else(|| panic!("the stock is not loaded: {detail:?}"))
    }

    /// Waits until `units` of the sale's first item are free.
    pub(crate) async fn until_free(&self, sale: &Sale, units: u64) {
        until(&format!("{units} units are free"), async || self.free(sale, &sale.item).await == units).await;
    }

    /// Waits until the order is in the ledger and answers it.
    pub(crate) async fn recorded(&self, order: &str) -> OrderRow {
        until("the order is recorded", async || self.admin.order(order).await.is_ok()).await;
        self.admin.order(order).await.unwrap()
    }

    /// Enters the full payment of an order that is in the ledger.
    pub(crate) async fn pay(&self, order: &str, event: &str) -> Paid {
        let row = self.recorded(order).await;
        let paid = MarkPaid {
            event_id: event.to_owned(),
            payment_id: None,
            amount_minor: row.total.minor,
            currency: row.total.currency,
        };
        self.admin.mark_paid(order, &paid).await.unwrap()
    }

    /// Changes an item's quantity under a new operation id.
    pub(crate) async fn restock(&self, sale: &Sale, units: i64) -> Result<SaleDetail, AdminError> {
        let operation_id = uuid::Uuid::from_u128(rand::random()).to_string();
        self.admin.restock(&sale.id, &sale.item, &Restock { operation_id, units }).await
    }

    pub(crate) fn buyer(&self, user: &str) -> Buyer<'_> {
        Buyer { shop: self, user: user.to_owned() }
    }

    /// A click at another gateway of the same sale.
    pub(crate) async fn click_at(&self, gateway: SocketAddr, user: &str, item: &str) -> Reply {
        let authorization = format!("Bearer {}", self.token(user));
        let headers = [("connection", "close"), ("authorization", authorization.as_str())];
        let mut line = Line::connect(gateway).await.unwrap();
        line.send(&request("POST", &purchase_path(item), &headers, b"")).await.unwrap();
        line.reply(false).await.unwrap()
    }

    /// What signs the access tokens, for buyers who sign their own.
    pub(crate) fn signer(&self) -> TokenSigner {
        self.signer.clone()
    }

    /// An access token that begins now.
    pub(crate) fn token(&self, user: &str) -> String {
        self.signer.sign(user, self.now_secs(), 3_600)
    }

    pub(crate) fn now_secs(&self) -> u64 {
        u64::try_from(self.now().as_ms() / 1_000).unwrap()
    }

    /// One request on a connection of its own.
    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let headers = [&[("connection", "close")], headers].concat();
        let mut line = self.line().await;
        line.send(&request(method, path, &headers, body)).await.unwrap();
        line.reply(method == "HEAD").await.unwrap_or_else(|error| panic!("{method} {path}: {error}"))
    }

    /// The Authorization header of an operator.
    pub(crate) fn operator(&self) -> String {
        format!("Bearer {}", self.staff.operator)
    }

    /// A connection to the staff's listener.
    pub(crate) async fn staff_line(&self) -> Line {
        tls::line(self.app().admin_address, &self.config.admin.tls).await.unwrap()
    }

    /// What the staff's `/metrics` says.
    pub(crate) async fn metrics(&self) -> String {
        let bearer = format!("Bearer {}", self.staff.viewer);
        let headers = [("connection", "close"), ("authorization", bearer.as_str())];
        let mut line = self.staff_line().await;
        line.send(&request("GET", "/metrics", &headers, b"")).await.unwrap();
        line.reply(false).await.unwrap().said()
    }

    pub(crate) async fn line(&self) -> Line {
        tls::line(self.address(), &self.config.server.tls).await.unwrap()
    }

    /// Sends these bytes and hears everything until the server closes, at most `patience`.
    pub(crate) async fn raw(&self, bytes: &[u8], patience: Duration) -> Heard {
        let mut line = self.line().await;
        // The server may close before it has read everything.
        let _ = line.send(bytes).await;
        line.rest(patience).await
    }

    /// Waits until nothing is in flight, proves that the books are right, and stops the server.
    pub(crate) async fn finish(mut self) {
        let mut last: Option<AuditReport> = None;
        let rest = async {
            let mut pace = interval(Duration::from_millis(10));
            loop {
                // What was cut off a moment ago may still have to be reached again.
                let Ok(report) = self.admin.audit().await else {
                    pace.tick().await;
                    continue;
                };
                let at_rest = report.at_rest;
                last = Some(report);
                if at_rest {
                    return;
                }
                // A worker that met a stock that was still loading waits by this clock before it looks again.
                self.clock.advance(RETRY);
                pace.tick().await;
            }
        };
        let rested = timeout(PATIENCE, rest).await.is_ok();
        let report = last.unwrap();
        assert!(rested, "the shop does not come to rest: {report:?}");
        assert!(report.ok, "the books are wrong: {:#?}", report.findings);
        assert!(report.checked.contains(&"I8".to_owned()), "{:?}", report.checked);
        self.stop().await;
    }
}

/// Starts a server on this clock.
pub(crate) async fn start(config: &Config, clock: &Arc<ManualClock>) -> anyhow::Result<App> {
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    let opened = backend::open(config, clock, ServerClocks::Given).await?;
    App::start_on(opened, config, Default::default()).await
}

/// What a refused request of the staff was told: status and word.
pub(crate) fn refusal<T: std::fmt::Debug>(result: Result<T, AdminError>) -> (u16, String) {
    match result {
        Err(AdminError::Refused { status, error, .. }) => (status, error),
        other => panic!("not refused: {other:?}"),
    }
}

/// One user and their clicks; each is signed at the clock's time.
#[derive(Clone)]
pub(crate) struct Buyer<'a> {
    shop: &'a Shop,
    pub(crate) user: String,
}

pub(crate) fn purchase_path(item: &str) -> String {
    format!("/api/flash-sales/items/{item}/purchase")
}

pub(crate) fn order_path(order: &str) -> String {
    format!("/api/flash-sales/orders/{order}")
}

impl Buyer<'_> {
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.shop.token(&self.user))
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        let bearer = self.bearer();
        let mut all = vec![("authorization", bearer.as_str())];
        if !body.is_empty() {
            all.push(("content-type", "application/json"));
        }
        all.extend(headers);
        self.shop.ask(method, path, &all, body.as_bytes()).await
    }

    /// One unit, no body.
    pub(crate) async fn buy(&self, item: &str) -> Reply {
        self.buy_with(item, &[], "").await
    }

    pub(crate) async fn buy_with(&self, item: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.ask("POST", &purchase_path(item), headers, body).await
    }

    /// So many units under an Idempotency-Key.
    pub(crate) async fn buy_units(&self, item: &str, key: &str, quantity: u32) -> Reply {
        self.buy_with(item, &[("idempotency-key", key)], &format!(r#"{{"quantity":{quantity}}}"#)).await
    }

    pub(crate) async fn order(&self, order: &str) -> Reply {
        self.ask("GET", &order_path(order), &[], "").await
    }

    pub(crate) async fn cancel(&self, order: &str) -> Reply {
        self.ask("DELETE", &order_path(order), &[], "").await
    }

    pub(crate) async fn my_orders(&self, sale: &Sale) -> Vec<Value> {
        let reply = self.ask("GET", &format!("/api/flash-sales/sales/{}/orders", sale.id), &[], "").await;
        assert_eq!(reply.status, 200, "{}", reply.said());
        reply.json()["orders"].as_array().unwrap().clone()
    }

    /// Waits until the order has this status and answers it.
    pub(crate) async fn until_status(&self, order: &str, status: &str) -> Value {
        until(&format!("the order is {status}"), async || self.order(order).await.text("status") == status)
            .await;
        self.order(order).await.json()
    }

    /// Waits until the order can be paid and answers it.
    pub(crate) async fn until_payable(&self, order: &str) -> Value {
        until("the order is payable", async || self.order(order).await.json()["payable"] == true).await;
        self.order(order).await.json()
    }
}
