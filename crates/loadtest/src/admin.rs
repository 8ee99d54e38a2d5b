//! A client of the admin listener, for the command line and for the witness after a storm.

mod blocks;
mod refunds;
mod staff;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use doorbuster_wire::{
    AuditReport, DeadLetter, DropDeadLetter, EventDelivery, EventsReplayed, MarkPaid, OrderRow, Page, Paid,
    PaymentRow, PreheatReport, Rebuild, RebuildReport, Repair, RepairReport, ReplayDeadLetter, Replayed,
    Restock, SaleDetail, SaleDraft,
};
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::OnceCell;

use crate::link::{Answer, BaseUrl, Broken, Link, Target};
use crate::plan::is_path_segment;
use crate::trust::Trust;

mod error;

pub use error::AdminError;

/// How long one request may take: an audit of a large ledger is the slowest.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Longest answer: 1,000 sales of 1,000 items would be longer, a page of orders has 0.5 MB.
const MAX_BODY: usize = 64 * 1024 * 1024;
/// Orders asked for at once; the server may give fewer.
const PAGE: usize = 1_000;
/// Most pages of one listing: 100 million orders at full pages.
const MAX_PAGES: usize = 100_000;

/// A connection to the admin listener of one server, with one token.
///
/// It keeps one connection alive and opens a new one when it has ended or is in use. A request may
/// take 60 seconds. When its connection broke it is sent again, once: whatever changes something carries an
/// Idempotency-Key of its own, by which the server knows it.
pub struct AdminClient {
    url: String,
    base: BaseUrl,
    bearer: HeaderValue,
    target: OnceCell<Target>,
    link: Mutex<Option<Link>>,
}

impl AdminClient {
    /// A client for `base_url`, such as `http://127.0.0.1:8081`; connects with the first request. At an
    /// `https://` address the server must prove its name to the system's authorities.
    ///
    /// # Errors
    /// [`AdminError::Url`] when it is no URL of HTTP,
    /// [`AdminError::Argument`] when the token cannot stand in a header.
    pub fn new(base_url: &str, token: &str) -> Result<Self, AdminError> {
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| AdminError::Argument("the admin token cannot stand in a header"))?;
        bearer.set_sensitive(true);
        Ok(Self {
            url: base_url.to_owned(),
            base: BaseUrl::parse_any(base_url)?,
            bearer,
            target: OnceCell::new(),
            link: Mutex::new(None),
        })
    }

    /// The same, believing the authorities in `pem` and no others.
    ///
    /// # Errors
    /// [`AdminError::Argument`] when there is none in it.
    pub fn trusting(self, pem: &[u8]) -> Result<Self, AdminError> {
        let trust = Trust::only(pem);
        let trust = trust.ok_or(AdminError::Argument("there is no authority's certificate in PEM in it"))?;
        Ok(Self { base: self.base.trusting(trust), ..self })
    }

    /// A client for the same server and token with a connection of its own.
    #[must_use]
    pub fn another(&self) -> Self {
        Self {
            url: self.url.clone(),
            base: self.base.clone(),
            bearer: self.bearer.clone(),
            target: OnceCell::new(),
            link: Mutex::new(None),
        }
    }

    /// Gets JSON from `path`, which begins with `/` and is already escaped.
    ///
    /// # Errors
    /// See [`AdminError`]; every method below has the same.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, AdminError> {
        self.call(Method::GET, path, Bytes::new()).await
    }

    /// Posts `body` as JSON to `path`; `()` sends an empty body.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn post<B: Serialize, T: DeserializeOwned>(
        &self,
        path: &str,
        body: &B,
    ) -> Result<T, AdminError> {
        let body = serde_json::to_vec(body)
            .map_err(|_| AdminError::Argument("the request cannot be written as JSON"))?;
        let body = if body == b"null" { Vec::new() } else { body };
        self.call(Method::POST, path, Bytes::from(body)).await
    }

    /// Creates a sale in state `draft`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn create_sale(&self, draft: &SaleDraft) -> Result<SaleDetail, AdminError> {
        self.post("/admin/api/sales", draft).await
    }

    /// All sales, in the listing's order.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn sales(&self) -> Result<Vec<SaleDetail>, AdminError> {
        self.all_pages("/admin/api/sales").await
    }

    /// One sale.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown sale is a refusal with status 404.
    pub async fn sale(&self, sale_id: &str) -> Result<SaleDetail, AdminError> {
        self.get(&sale_path(sale_id, "")?).await
    }

    /// Loads the sale's stock and reads it back.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn preheat(&self, sale_id: &str) -> Result<PreheatReport, AdminError> {
        self.post(&sale_path(sale_id, "/preheat")?, &()).await
    }

    /// Opens the sale now, whatever its `opensAt` says.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn open(&self, sale_id: &str) -> Result<SaleDetail, AdminError> {
        self.post(&sale_path(sale_id, "/open")?, &()).await
    }

    /// Stops new orders; [`open`](Self::open) goes on.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn pause(&self, sale_id: &str) -> Result<SaleDetail, AdminError> {
        self.post(&sale_path(sale_id, "/pause")?, &()).await
    }

    /// Ends the sale for good.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn close(&self, sale_id: &str) -> Result<SaleDetail, AdminError> {
        self.post(&sale_path(sale_id, "/close")?, &()).await
    }

    /// Loads the sale's stock anew from the ledger, in a new epoch, and reads it back.
    ///
    /// # Errors
    /// See [`AdminError`]; a refusal with status 503 says that the rebuild goes on.
    pub async fn rebuild(&self, sale_id: &str, rebuild: &Rebuild) -> Result<RebuildReport, AdminError> {
        self.post(&sale_path(sale_id, "/rebuild")?, rebuild).await
    }

    /// Says what differs between the sale's stock and the ledger, and mends it unless it is a dry run.
    ///
    /// # Errors
    /// See [`AdminError`]; a refusal with status 503 says that too much is under way.
    pub async fn repair(&self, sale_id: &str, repair: &Repair) -> Result<RepairReport, AdminError> {
        self.post(&sale_path(sale_id, "/repair")?, repair).await
    }

    /// Changes an item's quantity by a difference.
    ///
    /// # Errors
    /// See [`AdminError`]; after [`AdminError::Unreachable`] the same `operation_id` may be sent
    /// again without harm.
    pub async fn restock(
        &self,
        sale_id: &str,
        item_id: &str,
        restock: &Restock,
    ) -> Result<SaleDetail, AdminError> {
        let rest = format!("/items/{}/restock", checked(item_id)?);
        self.post(&sale_path(sale_id, &rest)?, restock).await
    }

    /// One page of a sale's orders; `cursor` is the last page's `next`, `None` for the first.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn orders_page(
        &self,
        sale_id: &str,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<OrderRow>, AdminError> {
        let path = sale_path(sale_id, "/orders")?;
        self.get(&page_path(&path, cursor, limit)).await
    }

    /// All orders of a sale, page by page. Orders recorded meanwhile may be missing.
    ///
    /// # Errors
    /// See [`AdminError`]; a listing that repeats a cursor or never ends is
    /// [`AdminError::Unreadable`].
    pub async fn all_orders(&self, sale_id: &str) -> Result<Vec<OrderRow>, AdminError> {
        self.all_pages(&sale_path(sale_id, "/orders")?).await
    }

    /// All payments for orders of a sale, page by page. Those made meanwhile may be missing.
    ///
    /// # Errors
    /// As [`all_orders`](Self::all_orders).
    pub async fn all_payments(&self, sale_id: &str) -> Result<Vec<PaymentRow>, AdminError> {
        self.all_pages(&sale_path(sale_id, "/payments")?).await
    }

    /// One order, of any sale.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown order is a refusal with status 404.
    pub async fn order(&self, order_id: &str) -> Result<OrderRow, AdminError> {
        self.get(&format!("/admin/api/orders/{}", checked(order_id)?)).await
    }

    /// Enters a payment by hand.
    ///
    /// # Errors
    /// See [`AdminError`]; after [`AdminError::Unreachable`] the same `event_id` may be sent again
    /// without harm.
    pub async fn mark_paid(&self, order_id: &str, paid: &MarkPaid) -> Result<Paid, AdminError> {
        let path = format!("/admin/api/orders/{}/mark-paid", checked(order_id)?);
        self.post(&path, paid).await
    }

    /// Checks the server's invariants now.
    ///
    /// # Errors
    /// See [`AdminError`]; findings are no error.
    pub async fn audit(&self) -> Result<AuditReport, AdminError> {
        self.get("/admin/api/audit").await
    }

    /// Dead letters that wait, page by page, without their bytes; with the closed ones if `closed`.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn dead_letters(&self, closed: bool) -> Result<Vec<DeadLetter>, AdminError> {
        self.all_pages(&format!("/admin/api/dead-letters?closed={closed}")).await
    }

    /// One dead letter.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown letter is a refusal with status 404.
    pub async fn dead_letter(&self, letter_id: &str) -> Result<DeadLetter, AdminError> {
        self.get(&format!("/admin/api/dead-letters/{}", checked(letter_id)?)).await
    }

    /// Applies a dead letter again.
    ///
    /// # Errors
    /// See [`AdminError`]; a record that still cannot be applied is a refusal with status 422, a letter
    /// that is closed or whose order is final one with 409.
    pub async fn replay_dead_letter(
        &self,
        letter_id: &str,
        replay: &ReplayDeadLetter,
    ) -> Result<Replayed, AdminError> {
        self.post(&format!("/admin/api/dead-letters/{}/replay", checked(letter_id)?), replay).await
    }

    /// Closes a dead letter without applying it.
    ///
    /// # Errors
    /// See [`AdminError`]; a letter that is closed is a refusal with status 409.
    pub async fn drop_dead_letter(
        &self,
        letter_id: &str,
        drop: &DropDeadLetter,
    ) -> Result<DeadLetter, AdminError> {
        let path = format!("/admin/api/dead-letters/{}", checked(letter_id)?);
        let body = serde_json::to_vec(drop)
            .map_err(|_| AdminError::Argument("the request cannot be written as JSON"))?;
        self.call(Method::DELETE, &path, Bytes::from(body)).await
    }

    /// The newest deliveries of events, at most `limit` of at most 1,000; `filter` is further
    /// parameters of the listing with their values.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn event_deliveries(
        &self,
        filter: &[(&str, &str)],
        limit: usize,
    ) -> Result<Vec<EventDelivery>, AdminError> {
        let mut path = "/admin/api/events?".to_owned();
        for (name, value) in filter {
            path.push_str(&format!("{name}={}&", checked(value)?));
        }
        let page: Page<EventDelivery> = self.get(&format!("{path}limit={}", limit.clamp(1, PAGE))).await?;
        Ok(page.items)
    }

    /// One delivery with what is sent.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown delivery is a refusal with status 404.
    pub async fn event_delivery(&self, delivery_id: &str) -> Result<EventDelivery, AdminError> {
        self.get(&format!("/admin/api/events/{}", checked(delivery_id)?)).await
    }

    /// Makes one delivery due now.
    ///
    /// # Errors
    /// See [`AdminError`]; an unknown delivery is a refusal with status 404.
    pub async fn replay_event(&self, delivery_id: &str) -> Result<EventDelivery, AdminError> {
        self.post(&format!("/admin/api/events/{}/replay", checked(delivery_id)?), &()).await
    }

    /// Makes the dead deliveries of an endpoint due now, at most 10,000.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub async fn replay_dead_events(&self, endpoint: &str) -> Result<EventsReplayed, AdminError> {
        self.post(&format!("/admin/api/events/endpoints/{}/replay", checked(endpoint)?), &()).await
    }

    async fn all_pages<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, AdminError> {
        let endless =
            |reason: &str| AdminError::Unreadable { path: path.to_owned(), reason: reason.to_owned() };
        let mut all = Vec::new();
        let mut cursors = HashSet::new();
        let mut cursor: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let page: Page<T> = self.get(&page_path(path, cursor.as_deref(), PAGE)).await?;
            all.extend(page.items);
            let Some(next) = page.next else {
                return Ok(all);
            };
            if !cursors.insert(next.clone()) {
                return Err(endless("the listing repeats a cursor"));
            }
            cursor = Some(next);
        }
        Err(endless("the listing has too many pages"))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, AdminError> {
        let answer = self.exchange(method, path, body).await?;
        if !(200..300).contains(&answer.status) {
            return Err(AdminError::of_refusal(&answer));
        }
        serde_json::from_slice(&answer.body)
            .map_err(|error| AdminError::Unreadable { path: path.to_owned(), reason: error.to_string() })
    }

    async fn exchange(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, AdminError> {
        let target = self.target.get_or_try_init(|| self.base.resolve()).await?;
        let uri: Uri = format!("{}{path}", target.prefix)
            .parse()
            .map_err(|_| AdminError::Argument("the path cannot be used"))?;
        let key = HeaderValue::from_str(&format!("{:032x}", rand::random::<u128>()))
            .map_err(|_| AdminError::Argument("the key cannot stand in a header"))?;
        let request = || {
            let mut request = Request::new(Full::new(body.clone()));
            *request.method_mut() = method.clone();
            *request.uri_mut() = uri.clone();
            let headers = request.headers_mut();
            headers.insert(HOST, target.host.clone());
            headers.insert(AUTHORIZATION, self.bearer.clone());
            if method != Method::GET {
                headers.insert("idempotency-key", key.clone());
            }
            if !body.is_empty() {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
            }
            request
        };

        // The connection is taken out for the exchange, so that no lock is held meanwhile; another
        // request at the same time opens its own, and the last one back is kept.
        let kept = self.kept_link().take();
        if let Some(mut link) = kept {
            match link.exchange(request(), REQUEST_LIMIT, MAX_BODY).await {
                Ok(answer) => {
                    *self.kept_link() = Some(link);
                    return Ok(answer);
                }
                Err(Broken::BeforeSending | Broken::Lost(_)) => {}
                Err(broken) => return Err(self.unreachable(&broken.to_string(), true)),
            }
        }
        let mut link = Link::open(target, None, REQUEST_LIMIT)
            .await
            .map_err(|error| AdminError::of_opening(&self.url, &error))?;
        let answer = link
            .exchange(request(), REQUEST_LIMIT, MAX_BODY)
            .await
            .map_err(|broken| self.unreachable(&broken.to_string(), true))?;
        *self.kept_link() = Some(link);
        Ok(answer)
    }

    fn kept_link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unreachable(&self, reason: &str, sent: bool) -> AdminError {
        AdminError::Unreachable { url: self.url.clone(), reason: reason.to_owned(), sent }
    }
}

impl std::fmt::Debug for AdminClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminClient").field("url", &self.url).finish_non_exhaustive()
    }
}

fn sale_path(sale_id: &str, rest: &str) -> Result<String, AdminError> {
    Ok(format!("/admin/api/sales/{}{rest}", checked(sale_id)?))
}

fn checked(id: &str) -> Result<&str, AdminError> {
    if id.is_empty() || !is_path_segment(id) {
        return Err(AdminError::Argument("an id must be letters, digits, '-', '_', '.' or '~'"));
    }
    Ok(id)
}

/// A cursor is opaque, so everything that is not plain in it is escaped.
fn page_path(path: &str, cursor: Option<&str>, limit: usize) -> String {
    let separator = if path.contains('?') { '&' } else { '?' };
    let mut full = format!("{path}{separator}limit={limit}");
    if let Some(cursor) = cursor {
        full.push_str(&format!("&cursor={}", encoded(cursor)));
    }
    full
}

/// A text as it stands in a query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| {
        let plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
        if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(byte).collect()
}
