//! A stand-in for the server: correct, or wrong in one chosen way.

mod paying;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use doorbuster_loadtest::{
    AdminClient, Audit, Balance, Plan, Report, Settled, Storm, TokenSigner, balance, settle, storm,
};
use doorbuster_wire::{
    AuditReport, ItemDetail, ItemView, Money, OrderRow, Page, PaymentRow, PurchaseAccepted, SaleDetail,
    SaleView,
};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub(crate) const SECRET: &[u8] = b"a secret that is long enough for HS256";
/// Two items of 30 and 20 units.
pub(crate) const QUANTITIES: [(&str, u64); 2] = [("11", 30), ("12", 20)];
/// Rows per page of the order list, few enough for several pages,
/// enough for a page to be longer than one read.
const PAGE: usize = 40;

/// What is wrong with the shop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// Sells this many units too many of every item.
    Oversells(u64),
    /// Every tenth order gets a 202 and no row.
    LosesOrders,
    /// Every tenth order gets a 202 and is rejected later.
    RejectsOrders,
    /// Never looks who bought before.
    SellsTwice,
    /// The first request of every user is put off.
    BusyFirst,
    /// Nobody ever gets in.
    AlwaysBusy,
    /// Every fifth request is cut off, every tenth of these after the order was taken.
    CutsConnections,
    /// Rows name another user.
    MixesUpUsers,
    /// Every third purchase ends with OUTCOME_UNKNOWN, although the order is taken.
    OutcomeUnknown,
    /// Answers with a status and bodies that no contract knows.
    TalksNonsense,
    /// Takes requests and never answers.
    NeverAnswers,
    /// Has no page on which to pay.
    NoSandbox,
    /// Names a payment page on another server.
    PagesElsewhere,
    /// No order can be paid in time.
    ClosesOrders,
    /// An order is payable at the second try only.
    RecordsLate,
    /// The provider has too much to do at first.
    CrowdedFirst,
    /// Every fifth choice of a payment leaves an order PAID and no payment.
    LosesPayments,
    /// Says that an order is cancelled and lets it live.
    KeepsCancelled,
    /// Never tells anybody that their order is paid.
    NeverSaysPaid,
    /// Requires sale tokens, and puts off every tenth who asks for one.
    RequiresTokens,
    /// Requires sale tokens, and gives none to one user.
    TokenForAllButOne,
    /// Has a waiting room, and lets every third user in when they come back with their place.
    LetsInEveryThird,
}

#[derive(Default)]
struct State {
    requests: u64,
    seen: HashMap<String, u64>,
    orders: HashMap<String, String>,
    sold: BTreeMap<String, u64>,
    rows: Vec<OrderRow>,
    payments: Vec<PaymentRow>,
    /// How often something was chosen on a payment page.
    chosen: u64,
    /// Orders that were put off once.
    late: HashSet<String>,
    tokens: HashMap<String, String>,
    changed_tokens: u64,
    sources: HashSet<std::net::IpAddr>,
}

/// A running shop; it ends when it is dropped.
pub(crate) struct Shop {
    pub(crate) url: String,
    pub(crate) admin: AdminClient,
    fault: Fault,
    state: Arc<Mutex<State>>,
    server: JoinHandle<()>,
}

impl Drop for Shop {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// How a request is answered; `None` cuts the connection.
type Reply = Option<Response<Full<Bytes>>>;

impl Shop {
    #[expect(clippy::disallowed_methods, reason = "the stand-in server has a task per connection")]
    pub(crate) async fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let own = url.clone();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        let server = tokio::spawn(async move {
            loop {
                let (stream, from) = listener.accept().await.unwrap();
                let (state, own) = (Arc::clone(&shared), own.clone());
                tokio::spawn(async move {
                    let service = service_fn(|request| serve(fault, &state, (from, &own), request));
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Self { admin: AdminClient::new(&url, "staff").unwrap(), url, fault, state, server }
    }

    /// 500 users within 200 ms, every fifth of them impatient.
    pub(crate) fn plan(&self) -> Plan {
        let tokens = TokenSigner::with_defaults(SECRET).unwrap();
        Plan {
            window: Duration::from_millis(200),
            impatient: 0.2,
            patience: Duration::from_secs(20),
            connections: 16,
            ..Plan::new(vec![self.url.clone()], "1", 500, tokens)
        }
    }

    pub(crate) async fn storm(&self, plan: Plan) -> Storm {
        storm(plan, |_| {}).await.unwrap()
    }

    pub(crate) async fn settle(&self, storm: &Storm) -> Settled {
        let deadline = match self.fault {
            Fault::LosesOrders => Duration::from_millis(100),
            _ => Duration::from_secs(10),
        };
        settle(&self.admin, "1", storm, deadline).await.unwrap()
    }

    pub(crate) async fn balance(&self, storm: &Storm) -> Balance {
        let quantities = QUANTITIES.map(|(item, units)| (item.to_owned(), units)).into();
        balance(&quantities, 1, storm, &self.settle(storm).await.rows)
    }

    /// The whole rehearsal with the shop's usual plan.
    pub(crate) async fn rehearse(&self) -> (Storm, Report) {
        let storm = self.storm(self.plan()).await;
        let balance = self.balance(&storm).await;
        let audit = Audit::from(&self.admin.audit().await.unwrap());
        let report = Report::new(&storm, &balance, audit);
        (storm, report)
    }

    /// How often something was chosen on a payment page.
    pub(crate) fn chosen(&self) -> u64 {
        self.state.lock().unwrap().chosen
    }

    /// How many different addresses asked, and how many users changed their token.
    pub(crate) fn sources_and_changed_tokens(&self) -> (usize, u64) {
        let state = self.state.lock().unwrap();
        (state.sources.len(), state.changed_tokens)
    }
}

async fn serve(
    fault: Fault,
    state: &Mutex<State>,
    (from, own): (SocketAddr, &str),
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let path: Vec<&str> = request.uri().path().split('/').skip(1).collect();
    let reply = match (request.method(), path.as_slice()) {
        (&Method::GET, ["api", "flash-sales", "sales", "1"]) => Some(json(200, &sale_view(fault))),
        (&Method::POST, ["api", "flash-sales", "sales", "1", "token"]) => {
            sale_token(fault, &mut state.lock().unwrap(), &request)
        }
        (&Method::POST, ["api", "flash-sales", "sales", "1", "waiting-room"]) => {
            let user = user_of(&mut state.lock().unwrap(), &request).unwrap_or_default();
            let shown = request.into_body().collect().await.map_or_else(|_| Bytes::new(), |it| it.to_bytes());
            Some(waiting_room(&user, &shown))
        }
        (&Method::GET, ["admin", "api", "sales", "1"]) => {
            Some(json(200, &sale_detail(&state.lock().unwrap())))
        }
        (&Method::GET, ["admin", "api", "sales", "1", "orders"]) => {
            Some(json(200, &orders(state, request.uri().query())))
        }
        (&Method::GET, ["admin", "api", "sales", "1", "payments"]) => {
            Some(json(200, &paying::payments(&state.lock().unwrap())))
        }
        (&Method::GET, ["sandbox", "pay", "none"]) => paying::lost_page(fault),
        (&Method::POST, ["sandbox", "pay", order]) => {
            paying::choose(fault, &mut state.lock().unwrap(), order, &request)
        }
        (&Method::GET, ["api", "flash-sales", "orders", order]) => {
            paying::show(fault, &mut state.lock().unwrap(), order, &request)
        }
        (&Method::DELETE, ["api", "flash-sales", "orders", order]) => {
            paying::cancel(fault, &mut state.lock().unwrap(), order, &request)
        }
        (&Method::POST, ["api", "flash-sales", "orders", order, "payment"]) => {
            paying::start(fault, &mut state.lock().unwrap(), order, &request, own)
        }
        (&Method::GET, ["admin", "api", "audit"]) => Some(json(200, &audit())),
        (&Method::POST, ["api", "flash-sales", "items", item, "purchase"]) => {
            if fault == Fault::NeverAnswers {
                std::future::pending::<Infallible>().await;
            }
            let item = (*item).to_owned();
            state.lock().unwrap().sources.insert(from.ip());
            purchase(fault, &mut state.lock().unwrap(), &item, &request)
        }
        _ => Some(problem(404, "NOT_FOUND", None)),
    };
    // An error of the service makes hyper close the connection without an answer.
    reply.ok_or_else(|| std::io::Error::other("cut"))
}

fn sale_token(fault: Fault, state: &mut State, request: &Request<Incoming>) -> Reply {
    let user = user_of(state, request)?;
    state.requests += 1;
    if fault == Fault::TokenForAllButOne && user == "user-77" {
        return Some(problem(403, "NOT_ELIGIBLE", None));
    }
    if state.requests.is_multiple_of(10) {
        return Some(busy(None));
    }
    let token = json!({"saleId": "1", "token": format!("dbs1.{user}"), "expiresAt": ""});
    Some(json(200, &token))
}

fn waiting_room(user: &str, shown: &[u8]) -> Response<Full<Bytes>> {
    let place = format!("dbp1.{user}");
    let shown: Option<Value> = serde_json::from_slice(shown).ok();
    let is_back = match &shown {
        Some(shown) if shown["place"] == place.as_str() => true,
        Some(_) => return problem(400, "INVALID_REQUEST", None),
        None => false,
    };
    let third = user.rsplit('-').next().and_then(|number| number.parse::<u32>().ok()).map(|it| it % 3);
    if is_back && third == Some(0) {
        return json(200, &json!({"saleId": "1", "status": "ADMITTED", "token": format!("dbs1.{user}")}));
    }
    json(200, &json!({"saleId": "1", "status": "WAITING", "place": place, "ahead": 5}))
}

fn purchase(fault: Fault, state: &mut State, item: &str, request: &Request<Incoming>) -> Reply {
    let Some(user) = user_of(state, request) else {
        return Some(problem(401, "UNAUTHENTICATED", None));
    };
    if matches!(fault, Fault::RequiresTokens | Fault::LetsInEveryThird)
        && !bearer(request).is_some_and(|token| token.starts_with("dbs1."))
    {
        return Some(problem(403, "TOKEN_REQUIRED", None));
    }
    state.requests += 1;
    let seen = state.seen.entry(user.clone()).or_default();
    *seen += 1;
    match fault {
        Fault::AlwaysBusy => return Some(busy(None)),
        Fault::BusyFirst if *seen == 1 => return Some(busy(None)),
        Fault::CutsConnections if state.requests.is_multiple_of(5) => {
            if state.requests.is_multiple_of(50) {
                let _ = sell(fault, state, item, &user);
            }
            return None;
        }
        Fault::TalksNonsense => {
            return Some(match state.requests % 4 {
                0 => text(202, "<html>thanks</html>"),
                1 => text(500, "oops"),
                2 => text(410, "gone"),
                _ => text(409, "{\"error\":7}"),
            });
        }
        _ => {}
    }

    match sell(fault, state, item, &user) {
        Ok(order_id) if fault == Fault::OutcomeUnknown && state.requests.is_multiple_of(3) => {
            Some(busy(Some(order_id)))
        }
        Ok(order_id) => {
            let status = "PENDING".to_owned();
            let accepted = PurchaseAccepted { order_id, status, payable: false };
            Some(json(202, &accepted))
        }
        Err(refusal) => Some(refusal),
    }
}

fn sell(fault: Fault, state: &mut State, item: &str, user: &str) -> Result<String, Response<Full<Bytes>>> {
    if fault != Fault::SellsTwice
        && let Some(order_id) = state.orders.get(user)
    {
        return Err(problem(409, "ALREADY_PURCHASED", Some(order_id)));
    }
    let quantity = QUANTITIES.iter().find(|(known, _)| *known == item).unwrap().1;
    let quantity = match fault {
        Fault::Oversells(extra) => quantity + extra,
        // Everybody finds a unit, so that every second click does.
        Fault::SellsTwice => 1_000_000,
        _ => quantity,
    };
    let sold = state.sold.entry(item.to_owned()).or_default();
    if *sold >= quantity {
        return Err(json(410, &json!({"error": "SOLD_OUT", "mayReturn": true})));
    }

    *sold += 1;
    let order_id = format!("00000000-0000-7000-8000-{:012x}", state.requests);
    state.orders.insert(user.to_owned(), order_id.clone());
    let tenth = state.orders.len().is_multiple_of(10);
    if fault == Fault::LosesOrders && tenth {
        return Ok(order_id);
    }
    let mut row = row(&order_id, item, user);
    if fault == Fault::RejectsOrders && tenth {
        row.status = "REJECTED".to_owned();
        row.reason = Some("STALE_EPOCH".to_owned());
    }
    if fault == Fault::MixesUpUsers && tenth {
        row.user_id = format!("not-{user}");
    }
    state.rows.push(row);
    Ok(order_id)
}

fn bearer(request: &Request<Incoming>) -> Option<&str> {
    request.headers().get(AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ")
}

fn user_of(state: &mut State, request: &Request<Incoming>) -> Option<String> {
    let token = bearer(request)?;
    if let Some(user) = token.strip_prefix("dbs1.") {
        return Some(user.to_owned());
    }
    let mut rules = Validation::new(Algorithm::HS256);
    rules.set_audience(&["doorbuster"]);
    rules.set_issuer(&["doorbuster"]);
    let key = DecodingKey::from_secret(SECRET).unwrap();
    let user = decode::<Value>(token, &key, &rules).ok()?.claims["sub"].as_str()?.to_owned();
    // Two clicks of one user may lie in different seconds, so only a retry must not change it.
    let first = state.tokens.entry(user.clone()).or_insert_with(|| token.to_owned());
    state.changed_tokens += u64::from(first != token);
    Some(user)
}

fn json(status: u16, body: &impl Serialize) -> Response<Full<Bytes>> {
    text(status, &serde_json::to_string(body).unwrap())
}

fn text(status: u16, body: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::from(body.to_owned()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}

fn problem(status: u16, error: &str, order_id: Option<&str>) -> Response<Full<Bytes>> {
    let mut body = json!({"type": "about:blank", "title": error, "status": status,
                          "detail": "no", "error": error});
    if let Some(order_id) = order_id {
        body["orderId"] = json!(order_id);
    }
    json(status, &body)
}

fn busy(order_id: Option<String>) -> Response<Full<Bytes>> {
    let error = if order_id.is_some() { "OUTCOME_UNKNOWN" } else { "BUSY" };
    let mut response = problem(503, error, order_id.as_deref());
    response.headers_mut().insert(RETRY_AFTER, "1".parse().unwrap());
    response
}

fn orders(state: &Mutex<State>, query: Option<&str>) -> Page<OrderRow> {
    let cursor = query.unwrap_or_default().split('&').find_map(|part| {
        // The cursor holds a character that must be escaped.
        part.strip_prefix("cursor=after%2F")?.parse().ok()
    });
    let from: usize = cursor.unwrap_or(0);
    let rows = &state.lock().unwrap().rows;
    Page {
        items: rows.iter().skip(from).take(PAGE).cloned().collect(),
        next: (from + PAGE < rows.len()).then(|| format!("after/{}", from + PAGE)),
    }
}

fn money() -> Money {
    Money { amount: "19.90".to_owned(), currency: "EUR".to_owned(), minor: 1_990 }
}

fn row(order_id: &str, item: &str, user: &str) -> OrderRow {
    OrderRow {
        order_id: order_id.to_owned(),
        sale_id: "1".to_owned(),
        item_id: item.to_owned(),
        user_id: user.to_owned(),
        quantity: 1,
        status: "PENDING".to_owned(),
        reason: None,
        total: money(),
        reserved_at: String::new(),
        expires_at: String::new(),
    }
}

fn sale_view(fault: Fault) -> SaleView {
    let item = |(item, quantity): (&str, u64)| ItemView {
        item_id: item.to_owned(),
        product_id: item.to_owned(),
        title: item.to_owned(),
        price: money(),
        list_price: None,
        quantity: Some(quantity),
        free: None,
        held: Some(0),
        sold: Some(0),
    };
    SaleView {
        sale_id: "1".to_owned(),
        name: "Drop".to_owned(),
        state: "open".to_owned(),
        opens_at: String::new(),
        closes_at: String::new(),
        server_time: String::new(),
        max_units_per_user: 1,
        payment_window_seconds: 600,
        captcha_required: false,
        waiting_room: fault == Fault::LetsInEveryThird,
        token_required: matches!(fault, Fault::RequiresTokens | Fault::TokenForAllButOne),
        items: QUANTITIES.map(item).into(),
    }
}

fn sale_detail(state: &State) -> SaleDetail {
    let sold = |item: &str| state.sold.get(item).copied().unwrap_or(0);
    let item = |(item, quantity): (&str, u64)| ItemDetail {
        item_id: item.to_owned(),
        product_id: item.to_owned(),
        title: item.to_owned(),
        price: money(),
        list_price: None,
        quantity,
        sold: sold(item),
        free: Some(quantity.saturating_sub(sold(item))),
    };
    SaleDetail {
        sale_id: "1".to_owned(),
        name: "Drop".to_owned(),
        state: "open".to_owned(),
        fence: None,
        epoch: 1,
        opens_at: String::new(),
        closes_at: String::new(),
        payment_window_seconds: 600,
        max_units_per_user: 1,
        items: QUANTITIES.map(item).into(),
    }
}

fn audit() -> AuditReport {
    AuditReport { ok: true, at_rest: true, checked: vec!["I1".to_owned()], orders: 0, findings: Vec::new() }
}
