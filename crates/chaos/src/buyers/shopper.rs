//! One lane: lives the lives of users, one after the other.

use std::sync::Arc;

use doorbuster_loadtest::AdminError;
use doorbuster_wire::MarkPaid;
use hyper::Method;
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::gateway::{Ask, Line};
use super::{Counts, Gateways, Plan};
use crate::history::{Answer, Ending, Recorder, Wish};
use crate::{ItemId, OrderId};

/// How long a token is good.
const TOKEN_LIFETIME_S: u64 = 24 * 3_600;

/// Most purchases of one user.
const PURCHASES_MAX: u32 = 3;

pub(super) struct Shopper {
    plan: Arc<Plan>,
    gateways: Gateways,
    recorder: Recorder,
    counts: watch::Sender<Counts>,
    stop: watch::Receiver<bool>,
    lines: Vec<Line>,
}

/// One user.
struct Life {
    user: String,
    random: StdRng,
    keyed: bool,
    cancels: bool,
    pays: bool,
    again: bool,
    until: Instant,
}

/// What a click wants; the same in every repetition.
struct Click {
    item: ItemId,
    units: u32,
    key: Option<String>,
}

impl Shopper {
    pub(super) fn new(
        plan: Arc<Plan>,
        gateways: Gateways,
        recorder: Recorder,
        counts: watch::Sender<Counts>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        Self { plan, gateways, recorder, counts, stop, lines: Vec::new() }
    }

    pub(super) fn users(&self) -> u32 {
        self.plan.users
    }

    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow()
    }

    /// A user's whole life.
    pub(super) async fn live(&mut self, number: u32) {
        let mut life = self.birth(number);
        for purchase in 0..PURCHASES_MAX {
            let Some(order) = self.buy(&mut life, purchase).await else { break };
            let closed = if life.cancels {
                self.cancel(&mut life, order).await
            } else if life.pays {
                self.pay(&mut life, order).await
            } else {
                false
            };
            if !(closed && life.again && self.goes_on(&life)) {
                break;
            }
        }
        self.count(|counts| counts.done += 1);
    }

    fn birth(&self, number: u32) -> Life {
        let Plan { shares, seed, patience, name, offer, .. } = self.plan.as_ref();
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(number));
        let mut one_of = |share: u8| random.random_range(0..100) < share;
        let keyed = one_of(shares.keyed) || offer.limit > 1;
        let cancels = one_of(shares.cancel);
        let pays = one_of(shares.pay) && !self.plan.staff.is_empty();
        let again = one_of(shares.again);
        let user = format!("{name}-{number}");
        Life { user, random, keyed, cancels, pays, again, until: Instant::now() + *patience }
    }

    fn goes_on(&self, life: &Life) -> bool {
        Instant::now() < life.until && !self.is_stopped()
    }

    /// Clicks until the answer is final; answers the order, if the user has one.
    async fn buy(&mut self, life: &mut Life, purchase: u32) -> Option<OrderId> {
        let offer = &self.plan.offer;
        let click = Click {
            item: offer.items[life.random.random_range(0..offer.items.len())],
            units: life.random.random_range(1..=offer.limit),
            key: life.keyed.then(|| format!("{}-{purchase}", life.user)),
        };
        while self.goes_on(life) {
            let ending = self.click(life, &click).await;
            match ending {
                Ending::Answered(answer) if is_worth_repeating(&answer) => {
                    self.pause(life, answer.retry_after_s).await;
                }
                Ending::Answered(Answer { order, holding, .. }) => {
                    return order.or_else(|| holding.first().copied());
                }
                Ending::NotSent | Ending::Unknown => self.pause(life, None).await,
            }
        }
        self.count(|counts| counts.impatient += 1);
        None
    }

    async fn click(&mut self, life: &mut Life, click: &Click) -> Ending {
        let wish = Wish::Purchase {
            sale: self.plan.offer.sale,
            item: click.item,
            units: click.units,
            key: click.key.clone(),
        };
        // Without a body it is one unit: both ways of saying so are used.
        let body =
            (click.units > 1 || click.key.is_some()).then(|| format!(r#"{{"quantity":{}}}"#, click.units));
        let ask = Ask {
            method: Method::POST,
            path: format!("/api/flash-sales/items/{}/purchase", click.item),
            token: self.token(life),
            key: click.key.as_deref(),
            body,
        };
        let ending = self.ask(life, wish, &ask).await;
        self.count(|counts| count_click(counts, &ending));
        ending
    }

    /// Cancels until it is known to be closed, or that it cannot be; answers whether it is closed.
    async fn cancel(&mut self, life: &mut Life, order: OrderId) -> bool {
        while self.goes_on(life) {
            let ask = Ask {
                method: Method::DELETE,
                path: format!("/api/flash-sales/orders/{order}"),
                token: self.token(life),
                key: None,
                body: None,
            };
            let ending = self.ask(life, Wish::Cancel { order }, &ask).await;
            match ending {
                Ending::Answered(Answer { status: 200, .. }) => {
                    self.count(|counts| counts.cancelled += 1);
                    return true;
                }
                Ending::Answered(Answer { status: 409, error, .. }) => {
                    return error.as_deref() == Some("ORDER_CLOSED");
                }
                // It may be on its way from the stock to the ledger past a gateway that knows neither yet.
                Ending::Answered(Answer { status: 404 | 429 | 500.., retry_after_s, .. }) => {
                    self.pause(life, retry_after_s).await;
                }
                Ending::Answered(_) => return false,
                Ending::NotSent | Ending::Unknown => self.pause(life, None).await,
            }
        }
        self.count(|counts| counts.impatient += 1);
        false
    }

    /// Has the full payment entered until it is decided; answers whether the order is closed.
    async fn pay(&mut self, life: &mut Life, order: OrderId) -> bool {
        let Some(total_minor) = self.total(life, order).await else { return false };
        let event = format!("pay-{order}");
        while self.goes_on(life) {
            let ending = self.enter_payment(life, order, &event, total_minor).await;
            if let Ending::Answered(answer) = &ending {
                match answer.outcome.as_deref() {
                    Some("PAID") => {
                        self.count(|counts| counts.paid += 1);
                        return false;
                    }
                    // An earlier try whose answer was lost has decided it; where the order stands, it says too.
                    Some(_) => return !matches!(answer.order_status.as_deref(), Some("PENDING" | "PAID")),
                    None => {}
                }
            }
            self.pause(life, None).await;
        }
        self.count(|counts| counts.impatient += 1);
        false
    }

    async fn enter_payment(
        &mut self,
        life: &mut Life,
        order: OrderId,
        event: &str,
        amount_minor: i64,
    ) -> Ending {
        let desk = life.random.random_range(0..self.plan.staff.len());
        let currency = self.plan.offer.currency.clone();
        let wish = Wish::Pay {
            order,
            event: event.to_owned(),
            payment: event.to_owned(),
            amount_minor,
            currency: currency.clone(),
        };
        let paid = MarkPaid { event_id: event.to_owned(), payment_id: None, amount_minor, currency };
        let call = self.recorder.begin(&life.user, desk, wish);
        let deadline = Instant::now() + self.plan.call_limit;
        let answered = timeout_at(deadline, self.plan.staff[desk].mark_paid(&order.to_string(), &paid)).await;
        let ending = match answered {
            Ok(Ok(paid)) => Ending::Answered(Answer {
                status: 200,
                order: OrderId::read(&paid.order_id),
                order_status: paid.status,
                outcome: Some(paid.outcome),
                ..Answer::default()
            }),
            Ok(Err(AdminError::Refused { status, error, .. })) => {
                Ending::Answered(Answer { status, error: Some(error), ..Answer::default() })
            }
            Ok(Err(AdminError::Unreachable { sent: false, .. })) => Ending::NotSent,
            Ok(Err(_)) | Err(_) => Ending::Unknown,
        };
        self.recorder.end(call, ending.clone());
        ending
    }

    /// What the order costs: asked, since an order that a 409 named may have other units.
    async fn total(&mut self, life: &mut Life, order: OrderId) -> Option<i64> {
        while self.goes_on(life) {
            let desk = life.random.random_range(0..self.plan.staff.len());
            let deadline = Instant::now() + self.plan.call_limit;
            let row = timeout_at(deadline, self.plan.staff[desk].order(&order.to_string())).await;
            if let Ok(Ok(row)) = row {
                return Some(row.total.minor);
            }
            // Not recorded yet, or the desk is closed for a while.
            self.pause(life, None).await;
        }
        self.count(|counts| counts.impatient += 1);
        None
    }

    /// Asks a gateway chosen anew, and writes it down.
    async fn ask(&mut self, life: &mut Life, wish: Wish, ask: &Ask<'_>) -> Ending {
        let gateways = self.gateways.all();
        if gateways.is_empty() {
            return Ending::NotSent;
        }
        let gateway = life.random.random_range(0..gateways.len());
        let address = gateways[gateway];
        self.lines.retain(|line| gateways.contains(&line.address));
        let place = self.lines.iter().position(|line| line.address == address).unwrap_or_else(|| {
            self.lines.push(Line::to(address));
            self.lines.len() - 1
        });
        let call = self.recorder.begin(&life.user, gateway, wish);
        let ending = self.lines[place].ask(ask, self.plan.call_limit).await;
        self.recorder.end(call, ending.clone());
        ending
    }

    fn token(&self, life: &Life) -> String {
        self.plan.tokens.sign(&life.user, (self.plan.now_s)(), TOKEN_LIFETIME_S)
    }

    /// Waits as the server asks, but never longer than the plan allows; a stop ends it.
    async fn pause(&mut self, life: &mut Life, retry_after_s: Option<u64>) {
        let longest = self.plan.longest_pause;
        let wanted = retry_after_s.map_or(longest, std::time::Duration::from_secs).min(longest);
        // Spread, so that those who were refused together do not come back together.
        let pause = wanted.mul_f64(life.random.random_range(0.5..=1.0));
        let until = (Instant::now() + pause).min(life.until);
        let _ = timeout_at(until, self.stop.wait_for(|stopped| *stopped)).await;
    }

    fn count(&self, change: impl FnOnce(&mut Counts)) {
        self.counts.send_modify(change);
    }
}

/// Whether the same click may hear something else soon. Gateways hear of an opening one after the other.
fn is_worth_repeating(answer: &Answer) -> bool {
    matches!(answer.status, 429 | 500..) || answer.error.as_deref() == Some("NOT_STARTED")
}

fn count_click(counts: &mut Counts, ending: &Ending) {
    counts.clicks += 1;
    let count = match ending {
        Ending::NotSent | Ending::Unknown => &mut counts.unresolved,
        Ending::Answered(answer) => match answer.status {
            202 if answer.replayed => &mut counts.replayed,
            202 => &mut counts.accepted,
            409 if answer.order.is_some() || !answer.holding.is_empty() => &mut counts.held,
            410 => &mut counts.gone,
            500.. => &mut counts.unresolved,
            _ => &mut counts.refused,
        },
    };
    *count += 1;
}
