//! Captchas of others: their provider is asked whether an answer is good, before a sale token and nowhere else.
//!
//! It fails closed: without a verdict there is no token. Nobody who buys waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use doorbuster_engine::order::SaleId;
use doorbuster_engine::told::Told;
use doorbuster_wire::CaptchaWidget;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::config::{CaptchaProvider, Config, Secret};

/// Longest answer of a user, in bytes: Turnstile's are at most as long, hCaptcha's about.
const ANSWER_MAX: usize = 2_048;

/// Longest verdict that is read, in bytes; a usual one has some hundred.
const VERDICT_MAX: usize = 16 * 1024;

/// What providers say when it is not the answer that is wrong but our keys.
const OUR_FAULT: [&str; 6] = [
    "missing-input-secret",
    "invalid-input-secret",
    "sitekey-secret-mismatch",
    "not-using-dummy-secret",
    // Turnstile: the secret is one, but of no widget.
    "invalid-parsed-secret",
    "invalid-widget-id",
];

/// What Turnstile says when it could not judge.
const NOT_JUDGED: &str = "internal-error";

/// What became of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Good, for this user in this sale.
    Good,
    /// Wrong, over, or judged before.
    Bad,
    /// Good, for another user, sale or host.
    OfAnother,
    /// The provider does not take our secret.
    OurFault,
    /// The provider did not say.
    Silent,
    /// Too many are being judged: it was not asked.
    TooMany,
}

/// How often each verdict was given.
#[derive(Debug, Default)]
pub(crate) struct Verdicts([AtomicU64; Verdict::ALL.len()]);

impl Verdict {
    const ALL: [Self; 6] =
        [Self::Good, Self::Bad, Self::OfAnother, Self::OurFault, Self::Silent, Self::TooMany];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::OfAnother => "of_another",
            Self::OurFault => "our_fault",
            Self::Silent => "silent",
            Self::TooMany => "too_many",
        }
    }
}

impl Verdicts {
    /// Each verdict's word with its count.
    pub(crate) fn read(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        Verdict::ALL
            .iter()
            .zip(&self.0)
            .map(|(verdict, count)| (verdict.as_str(), count.load(Ordering::Relaxed)))
    }

    fn add(&self, verdict: Verdict) {
        for (it, count) in Verdict::ALL.iter().zip(&self.0) {
            count.fetch_add(u64::from(*it == verdict), Ordering::Relaxed);
        }
    }
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
enum NoVerdict {
    #[error("no answer")]
    Unreachable(#[source] reqwest::Error),
    #[error("the verdict is longer than {VERDICT_MAX} bytes")]
    TooLong,
    #[error("it answers {0}, and no verdict")]
    Unreadable(u16),
}

/// A verdict as both providers write it.
#[derive(Deserialize)]
struct Said {
    success: bool,
    hostname: Option<String>,
    action: Option<String>,
    cdata: Option<String>,
    #[serde(rename = "error-codes")]
    error_codes: Option<Vec<String>>,
}

impl Said {
    fn has(&self, code: &str) -> bool {
        self.error_codes.iter().flatten().any(|it| it == code)
    }

    /// The word for what is wrong with our keys, in our own writing: the provider's goes into no log.
    fn our_fault(&self) -> Option<&'static str> {
        OUR_FAULT.into_iter().find(|code| self.has(code))
    }
}

/// The provider's judge, and our keys there.
pub(crate) struct Siteverify {
    provider: CaptchaProvider,
    client: Client,
    url: String,
    script_url: String,
    site_key: String,
    secret: Secret,
    hostname: String,
    permits: Semaphore,
    verdicts: Arc<Verdicts>,
    silence_told: Told,
    fault_told: Told,
}

impl Siteverify {
    /// The provider that the configuration names; nothing where the captcha is our own.
    ///
    /// # Errors
    /// When its secret cannot be read.
    pub(crate) fn of(config: &Config, verdicts: &Arc<Verdicts>) -> anyhow::Result<Option<Self>> {
        let captcha = &config.gate.captcha;
        if captcha.provider == CaptchaProvider::Altcha {
            return Ok(None);
        }
        // A redirect or a proxy of the environment's would hear our secret, and give the verdict.
        let client = Client::builder().redirect(Policy::none()).no_proxy();
        let client = client.connect_timeout(captcha.timeout).timeout(captcha.timeout).build();
        Ok(Some(Self {
            provider: captcha.provider,
            client: client.context("the HTTP client for gate.captcha cannot be made")?,
            url: captcha.siteverify().to_owned(),
            script_url: captcha.script().to_owned(),
            site_key: captcha.site_key.clone(),
            secret: config.captcha_secret()?,
            hostname: captcha.hostname.clone(),
            permits: Semaphore::new(captcha.calls_max),
            verdicts: Arc::clone(verdicts),
            silence_told: Told::default(),
            fault_told: Told::default(),
        }))
    }

    /// What the sale page must let in besides its own, as a Content-Security-Policy names it: where the script
    /// comes from, and what the script loads and shows.
    pub(crate) fn page_sources(&self) -> String {
        let mut sources = match self.provider {
            CaptchaProvider::Turnstile => vec!["https://challenges.cloudflare.com".to_owned()],
            CaptchaProvider::Hcaptcha => {
                vec!["https://hcaptcha.com".to_owned(), "https://*.hcaptcha.com".to_owned()]
            }
            CaptchaProvider::Altcha => Vec::new(),
        };
        if self.script_url != self.provider.script_url()
            && let Ok(url) = Url::parse(&self.script_url)
        {
            sources.push(url.origin().ascii_serialization());
        }
        sources.join(" ")
    }

    /// What a page shows the captcha with. `mark` says whose it is, in which sale.
    pub(crate) fn widget(&self, sale: SaleId, mark: String) -> CaptchaWidget {
        // hCaptcha's answers carry nothing of ours.
        let bound = self.provider == CaptchaProvider::Turnstile;
        CaptchaWidget {
            provider: self.provider.as_str().to_owned(),
            site_key: self.site_key.clone(),
            script_url: self.script_url.clone(),
            action: bound.then(|| action(sale)),
            cdata: bound.then_some(mark),
        }
    }

    /// Asks the provider whether `answer` is good in this sale. `is_mark` knows the mark of whoever sent it.
    pub(crate) async fn judge(
        &self,
        answer: &str,
        sale: SaleId,
        is_mark: impl Fn(&str) -> bool + Send,
    ) -> Verdict {
        let verdict = self.verdict(answer, sale, is_mark).await;
        self.verdicts.add(verdict);
        verdict
    }

    async fn verdict(&self, answer: &str, sale: SaleId, is_mark: impl Fn(&str) -> bool + Send) -> Verdict {
        if answer.is_empty() || answer.len() > ANSWER_MAX {
            return Verdict::Bad;
        }
        let Ok(_permit) = self.permits.try_acquire() else { return Verdict::TooMany };
        let said = match self.ask(answer).await {
            Ok(said) => said,
            Err(error) => {
                self.tell_silence(&error);
                return Verdict::Silent;
            }
        };
        let verdict = self.weigh(&said, sale, is_mark);
        match verdict {
            Verdict::OurFault => self.tell_fault(&said),
            Verdict::Silent => self.tell_silence(&NoVerdict::Unreadable(StatusCode::OK.as_u16())),
            Verdict::Good | Verdict::Bad | Verdict::OfAnother | Verdict::TooMany => {}
        }
        verdict
    }

    async fn ask(&self, answer: &str) -> Result<Said, NoVerdict> {
        let mut form = vec![("secret", self.secret.reveal()), ("response", answer)];
        if self.provider == CaptchaProvider::Hcaptcha {
            form.push(("sitekey", &self.site_key));
        }
        let silent = |error: reqwest::Error| NoVerdict::Unreachable(error.without_url());
        let mut reply = self.client.post(&self.url).form(&form).send().await.map_err(silent)?;
        let status = reply.status();
        let unreadable = || NoVerdict::Unreadable(status.as_u16());
        // A wrong question may be refused by the status too, with the reason in the body.
        if status != StatusCode::OK && !status.is_client_error() {
            return Err(unreadable());
        }
        let mut body = Vec::new();
        while let Some(part) = reply.chunk().await.map_err(silent)? {
            body.extend_from_slice(&part);
            if body.len() > VERDICT_MAX {
                return Err(NoVerdict::TooLong);
            }
        }
        let said: Said = serde_json::from_slice(&body).map_err(|_| unreadable())?;
        if said.success && status != StatusCode::OK { Err(unreadable()) } else { Ok(said) }
    }

    fn weigh(&self, said: &Said, sale: SaleId, is_mark: impl Fn(&str) -> bool) -> Verdict {
        if !said.success {
            return if said.our_fault().is_some() {
                Verdict::OurFault
            } else if said.has(NOT_JUDGED) {
                Verdict::Silent
            } else {
                Verdict::Bad
            };
        }
        let host = said.hostname.as_deref().unwrap_or_default();
        if !self.hostname.is_empty() && !host.eq_ignore_ascii_case(&self.hostname) {
            return Verdict::OfAnother;
        }
        let bound = match self.provider {
            CaptchaProvider::Turnstile => {
                said.action.as_deref() == Some(&action(sale)) && said.cdata.as_deref().is_some_and(is_mark)
            }
            CaptchaProvider::Hcaptcha | CaptchaProvider::Altcha => true,
        };
        if bound { Verdict::Good } else { Verdict::OfAnother }
    }

    fn tell_silence(&self, error: &NoVerdict) {
        if let Some(answers) = self.silence_told.due(1) {
            let (provider, error): (_, &dyn std::error::Error) = (self.provider.as_str(), error);
            tracing::warn!(
                answers,
                provider,
                error,
                "the captcha's provider (gate.captcha.siteverify_url) gave no verdict: whoever needs a captcha gets no \
                 sale token"
            );
        }
    }

    fn tell_fault(&self, said: &Said) {
        if let Some(answers) = self.fault_told.due(1) {
            let provider = self.provider.as_str();
            tracing::error!(
                answers,
                provider,
                code = said.our_fault(),
                "the captcha's provider does not take our keys, so nobody passes: compare gate.captcha.site_key and \
                 gate.captcha.secret_file with its page, and restart, or turn the switch captcha_required off"
            );
        }
    }
}

/// What Turnstile's counts show a sale's captchas by: at most 32 characters.
fn action(sale: SaleId) -> String {
    format!("sale_{sale}")
}
