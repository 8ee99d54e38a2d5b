//! What the keeper does at the provider: ask how open attempts ended, give money back, and read again
//! what webhooks should have told.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::clock::{Clock, Timestamp};
use doorbuster_engine::fault::BackendError;
use doorbuster_engine::ledger::{
    Ledger, PayOutcome, PaymentAttempt, ReceiveOutcome, Refund, RefundReport, RefundState,
};
use doorbuster_engine::told::Told;
use doorbuster_engine::workers::{Step, Worker};
use futures_util::future::join_all;

use super::{Ended, PaymentProvider, ProviderError, tell};

/// Attempts that are asked about at once.
const ASK_MAX: usize = 32;

/// Refunds that are asked for at once.
const REFUND_MAX: usize = 16;

/// No provider keeps a page open for longer: an attempt that nobody could say anything about is over.
const ATTEMPT_MOST: Duration = Duration::from_secs(25 * 3_600);

/// How much of what was read before is read again: webhooks and lists come in no order.
const OVERLAP: Duration = Duration::from_secs(600);

/// How far a keeper that starts reads back: whoever stopped may have missed a day.
const FIRST_LOOK: Duration = Duration::from_secs(24 * 3_600);

/// The provider and where its answers go.
#[derive(Clone)]
pub(super) struct Desk {
    pub(super) provider: Arc<dyn PaymentProvider>,
    pub(super) ledger: Arc<dyn Ledger>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) timeout: Duration,
    /// How long an order is held behind its deadline while its payment is open.
    pub(super) hold: Duration,
}

impl Desk {
    /// The provider's answer; one that takes too long is none.
    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, ProviderError>>,
    ) -> Result<T, ProviderError> {
        tokio::time::timeout(self.timeout, asked).await.unwrap_or(Err(ProviderError::Unreachable(None)))
    }
}

/// Ends attempts whose order's deadline is over, or whose order is closed: what was paid is applied, and
/// on what was not, nobody can pay any more.
pub(super) struct Asker {
    desk: Desk,
    down_told: Told,
}

impl Asker {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, down_told: Told::default() }
    }

    async fn ask(&self, attempt: &PaymentAttempt) -> Result<(), BackendError> {
        let Desk { provider, ledger, clock, hold, .. } = &self.desk;
        match self.desk.in_time(provider.end(attempt)).await {
            Ok(Ended::Over) => return ledger.close_attempt(attempt.id).await,
            Ok(Ended::Paid(event)) => {
                let outcome = ledger.receive(&event, *hold).await?;
                tracing::info!(
                    order.id = %attempt.order,
                    outcome = outcome.as_str(),
                    "the provider was asked, and says that the order was paid"
                );
                return ledger.close_attempt(attempt.id).await;
            }
            Ok(Ended::Open) => {}
            Err(error) => {
                if let Some(attempts) = self.down_told.due(1) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        attempts,
                        error,
                        "the payment provider could not be asked how payments ended; it will be asked again"
                    );
                }
            }
        }
        if clock.now().since(attempt.begun_at) > ATTEMPT_MOST {
            return ledger.close_attempt(attempt.id).await;
        }
        Ok(())
    }
}

#[async_trait]
impl Worker for Asker {
    fn name(&self) -> &'static str {
        "ask"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let attempts = self.desk.ledger.take_attempts(self.desk.provider.name(), ASK_MAX).await?;
        let asked = join_all(attempts.iter().map(|attempt| self.ask(attempt))).await;
        asked.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(Step::of(attempts.len() as u64))
    }
}

/// Gives money back. A refund is named by its payment at the provider too, so one that is asked for
/// twice is given once.
pub(super) struct Refunder {
    desk: Desk,
    down_told: Told,
}

impl Refunder {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, down_told: Told::default() }
    }

    async fn give_back(&self, refund: &Refund) -> Result<(), BackendError> {
        let report = match self.desk.in_time(self.desk.provider.refund(refund)).await {
            Ok(reference) => RefundReport::Done { reference },
            Err(error) if error.is_final() => RefundReport::Refused { why: error.to_string() },
            Err(error) => {
                if let Some(refunds) = self.down_told.due(1) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(refunds, error, "money could not be given back yet; it will be");
                }
                RefundReport::Later { why: error.to_string() }
            }
        };
        let noted = self.desk.ledger.note_refund(&refund.key, &report).await?;
        match noted.map(|it| it.state) {
            Some(RefundState::Refused) => tracing::error!(
                order.id = %refund.order,
                payment.id = refund.key.payment_id,
                "the provider refuses to give this payment back: the staff has to (`doorbuster refund list`)"
            ),
            Some(RefundState::Done) => tracing::info!(
                order.id = %refund.order,
                payment.id = refund.key.payment_id,
                "money was given back"
            ),
            Some(RefundState::Due) | None => {}
        }
        Ok(())
    }
}

#[async_trait]
impl Worker for Refunder {
    fn name(&self) -> &'static str {
        "refund"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let Desk { provider, ledger, timeout, .. } = &self.desk;
        // Longer than asking takes, so that nobody else asks meanwhile.
        let lease = *timeout * 2 + Duration::from_secs(5);
        let refunds = ledger.take_refunds(provider.name(), REFUND_MAX, lease).await?;
        let given = join_all(refunds.iter().map(|refund| self.give_back(refund))).await;
        given.into_iter().collect::<Result<Vec<()>, _>>()?;
        Ok(Step::of(refunds.len() as u64))
    }
}

/// Reads the provider's list of events again, for webhooks that never came, or whose effect a ledger
/// has lost. What is known already changes nothing.
pub(super) struct Rereader {
    desk: Desk,
    /// How far the list was read, if it was.
    read_to: Option<Timestamp>,
    down_told: Told,
}

impl Rereader {
    pub(super) fn new(desk: Desk) -> Self {
        Self { desk, read_to: None, down_told: Told::default() }
    }
}

#[async_trait]
impl Worker for Rereader {
    fn name(&self) -> &'static str {
        "reread"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let now = self.desk.clock.now();
        let since = self.read_to.map_or(now.minus(FIRST_LOOK), |to| to.minus(OVERLAP));
        let events = match self.desk.provider.events_since(since).await {
            Ok(events) => events,
            Err(error) => {
                if let Some(times) = self.down_told.due(1) {
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(times, error, "the payment provider's events could not be read again");
                }
                return Ok(Step::Idle);
            }
        };
        let mut missed = 0_u64;
        for event in &events {
            let outcome = self.desk.ledger.receive(event, self.desk.hold).await?;
            missed += u64::from(outcome != ReceiveOutcome::Decided(PayOutcome::Duplicate));
            tell(event, outcome);
        }
        self.read_to = Some(now);
        if missed > 0 {
            tracing::warn!(events = missed, "webhooks had not arrived; what they would have told is applied");
        }
        // Once is enough until the next time.
        Ok(Step::Idle)
    }
}
