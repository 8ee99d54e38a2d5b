//! Payments at a provider.
//!
//! What every provider promises:
//!
//! 1. Starting the same attempt again is the same payment: buyers who click twice pay once.
//! 2. Nothing of a webhook is believed before its signature is: [`Refusal`] says why it is not.
//! 3. An event names an attempt of ours; what is about anything else is [`Verified::Other`].
//! 4. An attempt that was ended cannot be paid any more, or was paid: [`Ended`] says which.
//! 5. A refund that is asked for again is the same refund.
//!
//! No call to a provider holds a lock or a transaction: the attempt is written down first, the
//! provider is asked, and what it answered is noted. Each call ends by `payments.timeout`.

mod keeping;
pub(crate) mod sandbox;
mod stripe;
mod telling;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use axum::http::HeaderMap;
use doorbuster_engine::clock::{Clock, Timestamp};
use doorbuster_engine::engine::Engine;
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::ledger::{PaymentAttempt, ProviderEvent, ReceiveOutcome, Refund};
use doorbuster_engine::my_orders::BeginPaymentOutcome;
use doorbuster_engine::order::{Money, Order, OrderId, UserId};
use doorbuster_engine::told::Told;
use doorbuster_engine::workers::{Backends, Worker};

use crate::config::{Config, ProviderName, Secret};
use crate::signature::Secrets;
use crate::tls::{self, Shown};
pub(crate) use telling::tell;

use keeping::{Asker, Desk, Refunder, Rereader};
use sandbox::Sandbox;
use stripe::Stripe;

/// A provider of payments.
#[async_trait]
pub(crate) trait PaymentProvider: Send + Sync + 'static {
    /// Its word in addresses, the ledger and logs.
    fn name(&self) -> &'static str;

    /// Starts the payment of an attempt, or finds the one that was started for it.
    async fn start(&self, wish: &PaymentWish) -> Result<HostedPage, ProviderError>;

    /// Ends an attempt, so that nobody can pay by it any more, or says what was paid.
    async fn end(&self, attempt: &PaymentAttempt) -> Result<Ended, ProviderError>;

    /// Gives a payment's money back, all of it; answers the provider's name for the refund.
    async fn refund(&self, refund: &Refund) -> Result<String, ProviderError>;

    /// What happened to payments of ours from `since` on, oldest first, under the ids that webhooks have.
    async fn events_since(&self, since: Timestamp) -> Result<Vec<ProviderEvent>, ProviderError>;

    /// What a webhook says, once its signature and its time are good.
    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<Verified, Refusal>;
}

/// What is to be paid.
#[derive(Clone, Debug)]
pub(crate) struct PaymentWish {
    /// The attempt, which also names the payment at the provider.
    pub(crate) attempt: PaymentAttempt,
    /// How much.
    pub(crate) total: Money,
    /// What for, in words for the buyer.
    pub(crate) title: String,
    /// Until when a payment may begin.
    pub(crate) expires_at: Timestamp,
    /// Where the buyer goes afterwards, paid or not.
    pub(crate) return_url: String,
}

/// A page of the provider's on which a buyer pays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostedPage {
    /// What the provider calls the attempt.
    pub(crate) reference: String,
    /// Where the page is.
    pub(crate) url: String,
}

/// What a webhook with a good signature says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verified {
    /// Something about a payment of ours.
    Event(Box<ProviderEvent>),
    /// Something that is not ours or needs nothing done.
    Other,
}

/// How an attempt stands at its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Nothing was paid by it, and nothing can be any more.
    Over,
    /// It was paid.
    Paid(Box<ProviderEvent>),
    /// A payment is on its way, and the provider cannot stop it.
    Open,
}

/// Why a provider could not be asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProviderError {
    /// It cannot be reached, or did not answer in time.
    #[error("the payment provider does not answer")]
    Unreachable(#[source] Option<reqwest::Error>),
    /// It refused, with a status and a word of its own.
    #[error("the payment provider refused with status {status}: {word}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// Its error's code, which is not secret.
        word: String,
    },
    /// It answered what makes no sense.
    #[error("the payment provider's answer makes no sense: {0}")]
    Nonsense(&'static str),
}

impl ProviderError {
    /// Whether asking again will not help: what was asked for is refused, not who asks or when.
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused { status: 400 | 402 | 404 | 422, .. })
    }
}

/// Why a webhook is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// There is no signature, or it is not written as it must be.
    #[error("The webhook is not signed as its provider signs.")]
    NotSigned,
    /// No signature fits the body under any secret.
    #[error("The webhook's signature does not fit its body under any configured secret.")]
    BadSignature,
    /// It is too old, or from the future.
    #[error("The webhook's time is too far from this server's clock.")]
    Stale,
    /// The signature is good and the body is not what the provider sends.
    #[error("The webhook's signature is good, but its body cannot be read.")]
    Unreadable,
}

/// What a buyer who wants to pay hears.
#[derive(Debug)]
pub(crate) enum PayAnswer {
    /// Pay here, beginning before this time.
    Page {
        /// The provider's page.
        url: String,
        /// Until when a payment may begin.
        expires_at: Timestamp,
    },
    /// The order is not recorded yet.
    NotYet,
    /// The order is paid.
    Paid,
    /// The order is closed, or its deadline is over.
    Closed,
    /// The user has no such order.
    Unknown,
    /// The provider could not be asked; the attempt stays and may be started again.
    ProviderDown(ProviderError),
}

/// The configured provider and what stands around it.
pub(crate) struct Payments {
    provider: Arc<dyn PaymentProvider>,
    /// The same, where it is the sandbox, for its page and its sender.
    sandbox: Option<Arc<Sandbox>>,
    return_url: String,
    timeout: Duration,
    /// How long an order is held behind its deadline while its payment is open.
    hold: Duration,
    /// The line of refused webhooks, which anybody can send.
    pub(crate) refused_told: Told,
    /// The line of payments that the provider did not start, one per click while it is down.
    pub(crate) down_told: Told,
}

impl Payments {
    /// The provider that the configuration names; `reached` is where buyers reach this server, if they do.
    ///
    /// # Errors
    /// When a secret or a key is missing or weak, or an address is none.
    pub(crate) fn open(
        config: &Config,
        reached: Option<Reached>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let payments = &config.payments;
        if payments.provider == ProviderName::None {
            return Ok(None);
        }
        // A keeper alone makes no pages, and is told nothing.
        let reached =
            reached.unwrap_or_else(|| Reached { address: (Ipv4Addr::LOCALHOST, 0).into(), shown: None });
        let local = reached.url();
        let public = match payments.public_url.trim_end_matches('/') {
            "" => local.clone(),
            url => checked(url, "payments.public_url")?,
        };
        let return_url = match payments.return_url.as_str() {
            "" => format!("{public}/orders/{{order}}"),
            url => checked(url, "payments.return_url")?,
        };
        let secrets = config.webhook_secrets()?;
        let (timeout, tolerance) = (payments.timeout, payments.webhook_tolerance);
        let (provider, sandbox): (Arc<dyn PaymentProvider>, _) = match payments.provider {
            ProviderName::None => return Ok(None),
            ProviderName::Sandbox => {
                // Without secrets of its own it takes one that all gateways of this shop share.
                let secrets = match Secrets::standard(&secrets, tolerance, "payments.webhook_secret")? {
                    Some(secrets) => secrets,
                    None => Secrets::derived(shared_secret(config)?.reveal().as_bytes(), tolerance),
                };
                let client = reached.client(timeout)?;
                let sandbox = Arc::new(Sandbox::new(secrets, public, &local, Arc::clone(clock), client));
                (Arc::clone(&sandbox) as _, Some(sandbox))
            }
            ProviderName::Stripe => {
                let Some(secrets) = Secrets::plain(&secrets, tolerance) else {
                    bail!(
                        "payments.provider = stripe needs the signing secret of its webhook endpoint: set \
                         payments.webhook_secret_file to a file with it (`whsec_…`)"
                    );
                };
                let api = checked(&payments.stripe.api_url, "payments.stripe.api_url")?;
                (Arc::new(Stripe::new(config.stripe_key()?, &api, secrets, timeout)?), None)
            }
        };
        let (refused_told, down_told) = (Told::default(), Told::default());
        let hold = payments.hold;
        Ok(Some(Self { provider, sandbox, return_url, timeout, hold, refused_told, down_told }))
    }

    /// The keeper's work at the provider, each with how long it waits when nothing is to be done.
    pub(crate) fn workers(&self, backends: &Backends, reread: Duration) -> [(Box<dyn Worker>, Duration); 3] {
        let desk = Desk {
            provider: Arc::clone(&self.provider),
            ledger: Arc::clone(&backends.ledger),
            clock: Arc::clone(&backends.clock),
            timeout: self.timeout,
            hold: self.hold,
        };
        let pause = Duration::from_millis(250);
        [
            (Box::new(Asker::new(desk.clone())), pause),
            (Box::new(Refunder::new(desk.clone())), pause),
            (Box::new(Rereader::new(desk)), reread),
        ]
    }

    /// The provider's word.
    pub(crate) fn name(&self) -> &'static str {
        self.provider.name()
    }

    /// The sandbox, where that is the provider.
    pub(crate) fn sandbox(&self) -> Option<&Arc<Sandbox>> {
        self.sandbox.as_ref()
    }

    /// Starts or resumes the payment of a user's own order.
    pub(crate) async fn start(
        &self,
        engine: &Engine,
        user: &UserId,
        order: OrderId,
    ) -> Result<PayAnswer, BackendError> {
        let (attempt, order) = match engine.begin_payment(user, order, self.name()).await? {
            BeginPaymentOutcome::Begun(attempt, order) => (attempt, order),
            BeginPaymentOutcome::NotYet => return Ok(PayAnswer::NotYet),
            BeginPaymentOutcome::Paid => return Ok(PayAnswer::Paid),
            BeginPaymentOutcome::Closed => return Ok(PayAnswer::Closed),
            BeginPaymentOutcome::Unknown => return Ok(PayAnswer::Unknown),
        };
        let expires_at = order.expires_at;
        if let Some(url) = attempt.url {
            return Ok(PayAnswer::Page { url, expires_at });
        }
        let wish = self.wish(engine, attempt, &order);

        let asked = tokio::time::timeout(self.timeout, self.provider.start(&wish)).await;
        let page = match asked.unwrap_or(Err(ProviderError::Unreachable(None))) {
            Ok(page) => page,
            Err(error) => return Ok(PayAnswer::ProviderDown(error)),
        };
        let ledger = &engine.shared().backends.ledger;
        let noted = ledger.note_attempt(wish.attempt.id, &page.reference, &page.url).await?;
        Ok(match noted.and_then(|it| it.url) {
            Some(url) => PayAnswer::Page { url, expires_at },
            None => PayAnswer::ProviderDown(ProviderError::Nonsense("it names another order's payment")),
        })
    }

    fn wish(&self, engine: &Engine, attempt: PaymentAttempt, order: &Order) -> PaymentWish {
        let it = &order.reservation;
        let catalog = engine.shared().catalog.load_full();
        let item = catalog.sale(it.sale).and_then(|sale| sale.item(it.item));
        let title = item.map_or_else(|| format!("Order {}", it.order), |item| item.title.clone());
        let return_url =
            self.return_url.replace("{sale}", &it.sale.to_string()).replace("{order}", &it.order.to_string());
        PaymentWish {
            attempt,
            total: order.total,
            title: if it.units.0 > 1 { format!("{} × {title}", it.units.0) } else { title },
            expires_at: order.expires_at,
            return_url,
        }
    }

    /// Verifies a webhook, stores what it says, and decides it. `None` for what is not ours.
    pub(crate) async fn receive(
        &self,
        engine: &Engine,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<Result<Option<(ProviderEvent, ReceiveOutcome)>, Refusal>, BackendError> {
        let backends = &engine.shared().backends;
        let event = match self.provider.verify(headers, body, backends.clock.now()) {
            Ok(Verified::Event(event)) => event,
            Ok(Verified::Other) => return Ok(Ok(None)),
            Err(refusal) => return Ok(Err(refusal)),
        };
        let outcome = backends.ledger.receive(&event, self.hold).await?;
        Ok(Ok(Some((*event, outcome))))
    }
}

/// How this process reaches its own public listener.
pub(crate) struct Reached {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// What it shows, where it has TLS.
    pub(crate) shown: Option<Arc<Shown>>,
}

impl Reached {
    fn url(&self) -> String {
        let scheme = if self.shown.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", reachable(self.address))
    }

    /// A client for calls to ourselves: no proxy stands between.
    fn client(&self, timeout: Duration) -> anyhow::Result<reqwest::Client> {
        let builder = match &self.shown {
            None => reqwest::Client::builder(),
            Some(shown) => tls::client_of(shown)?,
        };
        builder.no_proxy().timeout(timeout).build().context("the sandbox's HTTP client cannot be made")
    }
}

/// Where this server's own listener is reached from this machine.
fn reachable(listener: SocketAddr) -> SocketAddr {
    match listener.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, listener.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (std::net::Ipv6Addr::LOCALHOST, listener.port()).into(),
        _ => listener,
    }
}

/// A secret that all gateways of this shop have.
fn shared_secret(config: &Config) -> anyhow::Result<Secret> {
    config.jwt_secret().context(
        "payments.provider = sandbox signs with a secret derived from gate.jwt.secret; without one, set \
         payments.webhook_secret_file to a file with `whsec_…`",
    )
}

fn checked(url: &str, key: &str) -> anyhow::Result<String> {
    let parsed = reqwest::Url::parse(url).with_context(|| format!("{key} = {url} is not a URL"))?;
    if !is_web(&parsed) {
        bail!("{key} = {url} must begin with https:// or http:// and name a host");
    }
    Ok(url.trim_end_matches('/').to_owned())
}

/// Whether a browser may be sent there.
fn is_web(url: &reqwest::Url) -> bool {
    matches!(url.scheme(), "https" | "http") && url.has_host()
}

/// An id of a provider's that can be stored: 1 to 255 bytes without control characters.
fn is_id(text: &str) -> bool {
    (1..=255).contains(&text.len()) && !text.chars().any(char::is_control)
}
