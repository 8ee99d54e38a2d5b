//! One winner's life after the storm, request by request as a browser would make them.

use std::time::Duration;

use bytes::Bytes;
use doorbuster_wire::{OrderView, PaymentStarted, PurchaseAccepted};
use hyper::Method;
use hyper::header::{ETAG, HeaderName, HeaderValue, IF_NONE_MATCH, LOCATION};
use tokio::time::Instant;

use super::line::{Ask, Line, Silent};
use super::shares::Life;
use crate::buyer::token_in;
use crate::link::{Answer, Refusal};
use crate::tally::SeenOrder;

const SALE_TOKEN: HeaderName = HeaderName::from_static("doorbuster-sale-token");
/// Longest wait of one look at an order; the server allows 30 s, and a request must end before its limit.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Pause between two tries to buy what one has just given back.
const BUY_AGAIN_EVERY: Duration = Duration::from_millis(250);
/// How long one tries that: a unit is back on sale within a second or so.
const BUY_AGAIN_FOR: Duration = Duration::from_secs(15);
/// Pause between two looks at an order, where the server does not wait for a change by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Pause when the provider has too much to do.
const CROWDED: Duration = Duration::from_millis(250);

/// What a client knows of its money.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spent {
    /// No payment was chosen.
    Nothing,
    /// A payment was chosen, and nobody answered.
    Maybe,
    /// The provider took the choice: minor units and currency, as the order's JSON said.
    Surely(i64, String),
}

/// One order of a winner, and what its client did and was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Winner {
    /// The order.
    pub order: SeenOrder,
    /// What its user does.
    pub life: Life,
    /// Whether it was bought again after another one was cancelled.
    pub again: bool,
    /// Tries that the provider took and that could not pay the order.
    pub failed_tries: u32,
    /// What was paid for it.
    pub spent: Spent,
    /// The status that its JSON had last.
    pub status: Option<String>,
    /// Whether a cancellation was answered by `CANCELLED`.
    pub cancelled: bool,
    /// Why the life ended before its time, as a word: an error of the API, a status, `NO_ANSWER`,
    /// `FOREIGN_PAGE` or `UNSEEN`.
    pub cut_short: Option<String>,
}

impl Winner {
    pub(super) fn new(order: SeenOrder, life: Life) -> Self {
        Self {
            order,
            life,
            again: false,
            failed_tries: 0,
            spent: Spent::Nothing,
            status: None,
            cancelled: false,
            cut_short: None,
        }
    }
}

/// Why a life ends before its time, as a word.
struct Cut(String);

impl From<Silent> for Cut {
    fn from(_: Silent) -> Self {
        Self("NO_ANSWER".to_owned())
    }
}

impl Cut {
    fn of_refusal(answer: &Answer) -> Self {
        let refusal = serde_json::from_slice::<Refusal>(&answer.body);
        Self(refusal.map_or_else(|_| format!("STATUS_{}", answer.status), |refusal| refusal.error))
    }

    fn invalid() -> Self {
        Self("INVALID".to_owned())
    }
}

/// One user's token.
type Bearer = HeaderValue;

impl Line {
    /// One winner's whole life; what it was is noted.
    pub(super) async fn live_one(&mut self, order: SeenOrder, life: Life) {
        let bearer = self.bearer(&order.user_id);
        let mut winner = Winner::new(order, life);
        let lived = match life {
            Life::Abandon => Ok(()),
            Life::Cancel | Life::CancelThenBuy => self.cancel(&mut winner, &bearer).await,
            Life::Pay | Life::FailThenPay | Life::PayToldTwice | Life::UnderpayThenPay => {
                self.pay(&mut winner, &bearer).await
            }
        };
        winner.cut_short = lived.err().map(|Cut(word)| word);
        if life != Life::CancelThenBuy || !winner.cancelled {
            return self.street.note(winner);
        }

        match self.buy_again(&winner.order, &bearer).await {
            Ok(order) => {
                let mut next = Winner { again: true, ..Winner::new(order, life) };
                next.cut_short = self.pay(&mut next, &bearer).await.err().map(|Cut(word)| word);
                self.street.note(next);
            }
            Err(Cut(word)) => winner.cut_short = Some(word),
        }
        self.street.note(winner);
    }

    fn bearer(&self, user: &str) -> Bearer {
        let plan = &self.street.plan;
        let mut bearer = "Bearer ".to_owned();
        let issued = self.street.epoch_secs + self.street.begin.elapsed().as_secs();
        plan.tokens.sign_into(&mut bearer, user, issued, plan.token_lifetime_secs());
        HeaderValue::from_maybe_shared(Bytes::from(bearer))
            .unwrap_or_else(|_| HeaderValue::from_static("Bearer"))
    }

    fn ask(&self, method: Method, rest: &str, bearer: &Bearer) -> Ask {
        let target = self.home();
        let path = format!("{}/api/flash-sales/{rest}", self.street.targets[target].prefix);
        Ask { method, path, target, bearer: Some(bearer.clone()), header: None }
    }

    /// Tries to pay as the winner's life has it, and waits until the order says what became of it.
    async fn pay(&mut self, winner: &mut Winner, bearer: &Bearer) -> Result<(), Cut> {
        let (order, mut seen) = self.look(winner, bearer, None).await?;
        let choices = winner.life.choices();
        for choice in choices.iter().take(choices.len().saturating_sub(1)) {
            let (target, path) = self.start_payment(winner, bearer).await?;
            self.choose(target, &path, choice).await?;
            winner.failed_tries += 1;
        }
        let (target, path) = self.start_payment(winner, bearer).await?;
        let clicked = Instant::now();
        let chosen = match choices.last() {
            Some(choice) => self.choose(target, &path, choice).await,
            None => Ok(()),
        };
        winner.spent = match &chosen {
            Ok(()) => Spent::Surely(order.total.minor, order.total.currency),
            Err(NotChosen { may_have_acted: true, .. }) => Spent::Maybe,
            Err(_) => Spent::Nothing,
        };
        chosen?;

        loop {
            seen = self.look(winner, bearer, seen).await?.1;
            if winner.status.as_deref() != Some("PENDING") {
                break;
            }
            if !self.pause(LOOK_AGAIN).await {
                return Err(Cut("UNSEEN".to_owned()));
            }
        }
        match winner.status.as_deref() {
            Some("PAID") => {
                let took = u64::try_from(clicked.elapsed().as_micros()).unwrap_or(u64::MAX);
                self.street.payment_us.borrow_mut().saturating_record(took);
                Ok(())
            }
            status => Err(Cut(status.unwrap_or("INVALID").to_owned())),
        }
    }

    /// Reads the order; with the tag of what was `seen`, once it differs from that.
    async fn look(
        &mut self,
        winner: &mut Winner,
        bearer: &Bearer,
        seen: Option<HeaderValue>,
    ) -> Result<(OrderView, Option<HeaderValue>), Cut> {
        let id = &winner.order.order_id;
        let wait = LONGEST_WAIT.min(self.street.plan.request_timeout / 2).as_millis();
        let rest = match &seen {
            Some(_) => format!("orders/{id}?wait={wait}ms"),
            None => format!("orders/{id}"),
        };
        let ask =
            Ask { header: seen.map(|tag| (IF_NONE_MATCH, tag)), ..self.ask(Method::GET, &rest, bearer) };
        loop {
            let answer = self.insist(&ask).await?;
            match answer.status {
                200 => {
                    let order = read_order(&answer)?;
                    winner.status = Some(order.status.clone());
                    return Ok((order, answer.headers.get(ETAG).cloned()));
                }
                304 if self.pause(LOOK_AGAIN).await => {}
                304 => return Err(Cut("UNSEEN".to_owned())),
                _ => return Err(Cut::of_refusal(&answer)),
            }
        }
    }

    /// Begins or resumes the payment; answers where its page is.
    async fn start_payment(&mut self, winner: &Winner, bearer: &Bearer) -> Result<(usize, String), Cut> {
        let ask = self.ask(Method::POST, &format!("orders/{}/payment", winner.order.order_id), bearer);
        loop {
            let answer = self.insist(&ask).await?;
            if answer.status == 200 {
                let started: PaymentStarted =
                    serde_json::from_slice(&answer.body).map_err(|_| Cut::invalid())?;
                let page = self.own_page(&started.payment_url).await;
                return page.ok_or_else(|| Cut("FOREIGN_PAGE".to_owned()));
            }
            // Still queued: the ledger does not know it yet.
            let cut = Cut::of_refusal(&answer);
            let pause = Duration::from_secs(answer.retry_after_s.unwrap_or(1));
            if cut.0 != "NOT_PAYABLE" || !self.pause(pause).await {
                return Err(cut);
            }
        }
    }

    /// Presses a button of the sandbox's page: the form's address, by POST, with no body.
    async fn choose(&mut self, target: usize, page: &str, choice: &str) -> Result<(), NotChosen> {
        let path = format!("{page}?do={choice}&lang=en");
        let ask = Ask { method: Method::POST, path, target, bearer: None, header: None };
        loop {
            let silence =
                |silent: Silent| NotChosen { may_have_acted: silent.may_have_acted, cut: Cut::from(silent) };
            let answer = self.insist(&ask).await.map_err(silence)?;
            let place = answer.headers.get(LOCATION).and_then(|place| place.to_str().ok()).unwrap_or("");
            let done = place.strip_prefix("?done=").and_then(|rest| rest.split('&').next());
            match (answer.status, done) {
                (303, Some(done)) if done == choice => return Ok(()),
                (303, Some("crowded")) if self.pause(CROWDED).await => {}
                _ => return Err(NotChosen { cut: Cut("NOT_CHOSEN".to_owned()), may_have_acted: false }),
            }
        }
    }

    /// Cancels, and believes it when the answer says so.
    async fn cancel(&mut self, winner: &mut Winner, bearer: &Bearer) -> Result<(), Cut> {
        let ask = self.ask(Method::DELETE, &format!("orders/{}", winner.order.order_id), bearer);
        let answer = self.insist(&ask).await?;
        if answer.status != 200 {
            return Err(Cut::of_refusal(&answer));
        }
        let order = read_order(&answer)?;
        winner.cancelled = order.status == "CANCELLED";
        winner.status = Some(order.status.clone());
        if winner.cancelled { Ok(()) } else { Err(Cut(order.status)) }
    }

    /// A sale token, where one is needed to buy.
    async fn sale_token(&mut self, bearer: &Bearer) -> Result<HeaderValue, Cut> {
        let sale = &self.street.plan.sale_id;
        let ask = self.ask(Method::POST, &format!("sales/{sale}/token"), bearer);
        let answer = self.insist(&ask).await?;
        let token = token_in(&answer).and_then(|token| HeaderValue::try_from(token).ok());
        token.ok_or_else(|| Cut::of_refusal(&answer))
    }

    /// Buys what was cancelled a moment ago, once it is back on sale. Until then the shop says that it is
    /// sold out, or that the user still has the old order.
    async fn buy_again(&mut self, old: &SeenOrder, bearer: &Bearer) -> Result<SeenOrder, Cut> {
        let mut ask = self.ask(Method::POST, &format!("items/{}/purchase", old.item_id), bearer);
        let until = Instant::now() + BUY_AGAIN_FOR;
        loop {
            let answer = self.insist(&ask).await?;
            if answer.status == 403 && ask.header.is_none() {
                ask.header = Some((SALE_TOKEN, self.sale_token(bearer).await?));
                continue;
            }
            let bought = match answer.status {
                202 => {
                    let accepted = serde_json::from_slice::<PurchaseAccepted>(&answer.body);
                    Some(accepted.map_err(|_| Cut::invalid())?.order_id)
                }
                // The 202 was lost on the way.
                409 => serde_json::from_slice::<Refusal>(&answer.body).ok().and_then(|it| it.order_id),
                410 => None,
                _ => return Err(Cut::of_refusal(&answer)),
            };
            if let Some(order_id) = bought.filter(|id| *id != old.order_id) {
                let at_us = old.at_us.saturating_add(self.street.now_us());
                return Ok(SeenOrder { order_id, at_us, ..old.clone() });
            }
            if Instant::now() > until || !self.pause(BUY_AGAIN_EVERY).await {
                return Err(Cut::of_refusal(&answer));
            }
        }
    }
}

/// Why a button was not pressed.
struct NotChosen {
    cut: Cut,
    /// Whether it may have been nonetheless.
    may_have_acted: bool,
}

impl From<NotChosen> for Cut {
    fn from(not: NotChosen) -> Self {
        not.cut
    }
}

fn read_order(answer: &Answer) -> Result<OrderView, Cut> {
    serde_json::from_slice(&answer.body).map_err(|_| Cut::invalid())
}
