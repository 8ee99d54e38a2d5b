//! Events for the shop, over HTTP: signed as Standard Webhooks says, to addresses that were checked.
//!
//! What a request to the outside must not do: follow a redirect, take a proxy from the environment,
//! reach a private address that nobody allowed, read an answer without end, wait for longer than
//! `events.timeout`. Whatever is refused stands in words in the delivery log.

pub(crate) mod address;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use async_trait::async_trait;
use doorbuster_engine::clock::Clock;
use doorbuster_engine::ledger::Event;
use doorbuster_engine::workers::{Backends, Carried, Courier, Relay, RelayOptions};
use reqwest::header::CONTENT_TYPE;
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use crate::config::{Config, Endpoint};
use crate::signature::Secrets;
use crate::views;
use address::{Allowed, CheckedNames, NotCalled};

/// Most of an answer that is read, so that its connection can be used again. What it says is not kept.
const ANSWER_MAX: usize = 4_096;

/// Most idle connections to one endpoint.
const IDLE_MAX: usize = 4;

/// One relay for each configured endpoint, which is told of what is decided from now on or, if the
/// ledger knows it, goes on where it was.
///
/// # Errors
/// When a secret cannot be read or is none, an address may not be called, or the ledger fails.
pub(crate) async fn relays(config: &Config, backends: &Backends) -> anyhow::Result<Vec<Relay>> {
    let events = &config.events;
    let mut relays = Vec::with_capacity(events.endpoints.len());
    for endpoint in &events.endpoints {
        let courier = HttpCourier::new(config, endpoint, Arc::clone(&backends.clock))?;
        backends.ledger.register_endpoint(&endpoint.name).await?;
        let options = RelayOptions {
            endpoint: endpoint.name.clone(),
            types: endpoint.event_types(),
            timeout: events.timeout,
            retention: events.retention,
        };
        relays.push(Relay::new(backends.clone(), Arc::new(courier), options));
    }
    Ok(relays)
}

/// Carries events to one endpoint.
struct HttpCourier {
    client: Client,
    url: Url,
    secrets: Secrets,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

impl HttpCourier {
    fn new(config: &Config, endpoint: &Endpoint, clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let events = &config.events;
        let allowed = Allowed::new(&events.allow_private);
        let url = match allowed.checked(&endpoint.url) {
            Ok(url) => url,
            Err(why) => bail!("the url of the endpoint `{}` in events.endpoints {why}", endpoint.name),
        };
        let Some(secrets) =
            Secrets::standard(&endpoint.secrets()?, Duration::ZERO, "the secret_file of events.endpoints")?
        else {
            bail!("the secret_file of the endpoint `{}` in events.endpoints has no secret", endpoint.name);
        };
        let client = Client::builder()
            .dns_resolver(Arc::new(CheckedNames::new(allowed)))
            .redirect(Policy::none())
            .referer(false)
            .no_proxy()
            .https_only(url.scheme() == "https")
            .pool_max_idle_per_host(IDLE_MAX)
            .connect_timeout(events.timeout)
            .timeout(events.timeout)
            .user_agent(concat!("doorbuster/", env!("CARGO_PKG_VERSION")))
            .build()
            .context("the HTTP client for events cannot be made")?;
        Ok(Self { client, url, secrets, clock, timeout: events.timeout })
    }

    async fn post(&self, event: &Event) -> Result<Response, reqwest::Error> {
        let body = body_of(event);
        let at = self.clock.now().as_ms().div_euclid(1_000).to_string();
        let signature = self.secrets.header(&event.id, &at, &body);
        let request = self.client.post(self.url.clone()).header(CONTENT_TYPE, "application/json");
        let request = request.header("webhook-id", &event.id).header("webhook-timestamp", at);
        request.header("webhook-signature", signature).body(body).send().await
    }

    /// Why there is no answer.
    fn silence(&self, error: &reqwest::Error) -> String {
        let mut cause: Option<&(dyn Error + 'static)> = Some(error);
        let mut last = String::new();
        while let Some(it) = cause {
            if let Some(refused) = it.downcast_ref::<NotCalled>() {
                return refused.to_string();
            }
            last = it.to_string();
            cause = it.source();
        }
        if error.is_timeout() {
            return format!("no answer within {}", humantime::format_duration(self.timeout));
        }
        format!("cannot be reached: {last}")
    }
}

/// The body of an event's webhook.
pub(crate) fn body_of(event: &Event) -> Vec<u8> {
    serde_json::to_vec(&views::event_message(event)).unwrap_or_default()
}

#[async_trait]
impl Courier for HttpCourier {
    async fn carry(&self, event: &Event) -> Carried {
        let mut response = match self.post(event).await {
            Ok(response) => response,
            Err(error) => return Carried { taken: false, status: None, answer: self.silence(&error) },
        };
        let status = response.status();
        let answer = match status.as_u16() {
            200..=299 => "taken",
            300..=399 => "a redirect, which is not followed: mend the endpoint's url",
            _ => "refused",
        };
        // The status decides; what comes behind it is read to its end or not at all.
        let mut read = 0;
        while read <= ANSWER_MAX
            && let Ok(Some(chunk)) = response.chunk().await
        {
            read += chunk.len();
        }
        Carried { taken: status.is_success(), status: Some(status.as_u16()), answer: answer.to_owned() }
    }
}
