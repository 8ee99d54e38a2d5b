//! Buyers at their provider's pages: a page begins, the buyer pays or does not, webhooks tell of it soon, late or
//! never, and a keeper asks about pages whose order is held, or cancelled, and ends them.

use std::time::Duration;

use doorbuster_engine::clock::Clock as _;
use doorbuster_engine::conformance::sample;
use doorbuster_engine::ledger::{
    BeginOutcome, PayOutcome, PaymentAttemptId, PaymentEvent, PaymentEventKind, ProviderEvent, ReceiveOutcome,
};
use doorbuster_engine::order::{OrderId, OrderStatus};

use crate::planted::Planted;
use crate::random::Random;
use crate::world::{Outside, Seen, World};

/// How long an order is held behind its deadline while its page is open.
const HOLD: Duration = Duration::from_secs(20);
const PROVIDER: &str = "pages";

/// One page, as the provider has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    minor: i64,
    /// Whether the ledger surely knows the page.
    noted: bool,
    paid: bool,
    /// Nothing can be paid there any more, or the keeper is about to write that down.
    ended: bool,
}

/// How long the system under test holds orders.
pub(crate) fn hold(planted: Option<Planted>) -> Duration {
    if planted == Some(Planted::NoHold) { Duration::ZERO } else { HOLD }
}

fn payment(order: OrderId) -> String {
    format!("page-{order}")
}

/// One thing that happens at some page. An error is a violation.
pub(crate) async fn happen(
    world: &World,
    outside: &mut Outside,
    random: &mut Random,
) -> Result<String, String> {
    let open: Vec<OrderId> = of(outside, |page| !page.paid && !page.ended);
    let paid: Vec<OrderId> = of(outside, |page| page.paid);
    Ok(match random.below(6) {
        0 | 1 => match random.pick(&outside.clients.accepted).cloned() {
            Some(seen) => format!("{} goes to pay: {}", seen.user, begin(world, outside, &seen).await),
            None => "nobody goes to pay".to_owned(),
        },
        2 => match random.pick(&open).copied() {
            Some(order) => {
                pays(outside, order);
                format!("order {order} is paid on its page")
            }
            None => "no page is open".to_owned(),
        },
        3 | 4 => match random.pick(&paid).copied() {
            Some(order) => {
                format!("a webhook tells of {order}: {}", tell(world, outside, order, random).await?)
            }
            None => "no webhook comes".to_owned(),
        },
        _ => format!("a keeper asks about {} pages", ask(world, outside).await?),
    })
}

fn of(outside: &Outside, wanted: impl Fn(&Page) -> bool) -> Vec<OrderId> {
    outside.clients.pages.iter().filter(|(_, page)| wanted(page)).map(|(order, _)| *order).collect()
}

/// The attempt is written down, the provider makes the page, and that is noted.
async fn begin(world: &World, outside: &mut Outside, seen: &Seen) -> &'static str {
    let ledger = &world.backends.ledger;
    let attempt = match ledger.begin_attempt(seen.order, PROVIDER).await {
        Ok(BeginOutcome::Begun(attempt, _)) => attempt,
        Ok(_) => return "not any more",
        Err(_) => return "failed",
    };
    let minor = sample::price().minor * seen.units;
    let page = Page { minor, noted: false, paid: false, ended: false };
    outside.clients.pages.entry(seen.order).or_insert(page);
    let noted = ledger.note_attempt(attempt.id, &payment(seen.order), "https://pay.example/").await;
    let page = outside.clients.pages.get_mut(&seen.order).expect("it was made");
    page.noted |= matches!(noted, Ok(Some(_)));
    if noted.is_ok() { "there is a page" } else { "there is a page that nobody noted" }
}

fn pays(outside: &mut Outside, order: OrderId) {
    let page = outside.clients.pages.get_mut(&order).expect("it is open");
    page.paid = true;
    outside.clients.captured.insert(payment(order), (order, page.minor));
}

/// A webhook comes, with an event's id of its own or one that came before.
async fn tell(
    world: &World,
    outside: &mut Outside,
    order: OrderId,
    random: &mut Random,
) -> Result<&'static str, String> {
    let event = format!("event-{}", random.below(3));
    receive(world, outside, order, &event).await
}

/// A keeper asks about every page that it should: one that is paid says so, any other is ended.
pub(crate) async fn ask(world: &World, outside: &mut Outside) -> Result<usize, String> {
    let ledger = &world.backends.ledger;
    let Ok(attempts) = ledger.take_attempts(PROVIDER, 10).await else { return Ok(0) };
    for attempt in &attempts {
        let paid = match outside.clients.pages.get_mut(&attempt.order) {
            Some(page) => {
                page.ended |= !page.paid;
                page.paid
            }
            None => false,
        };
        if paid && receive(world, outside, attempt.order, "asked").await? == "failed" {
            continue;
        }
        if let Some(page) = outside.clients.pages.get_mut(&attempt.order) {
            page.ended = true;
        }
        // What fails is asked again.
        let _ = ledger.close_attempt(attempt.id).await;
    }
    Ok(attempts.len())
}

/// What the provider repeats until it is heard.
pub(crate) async fn tell_all(world: &World, outside: &mut Outside) -> Result<(), String> {
    for order in of(outside, |page| page.paid) {
        receive(world, outside, order, "again").await?;
    }
    Ok(())
}

/// The ledger hears that an order's page was paid. An order whose page is open is held, so that this is in time.
async fn receive(
    world: &World,
    outside: &mut Outside,
    order: OrderId,
    event: &str,
) -> Result<&'static str, String> {
    let page = outside.clients.pages[&order];
    let event = ProviderEvent {
        attempt: PaymentAttemptId::derived(PROVIDER, order),
        kind: PaymentEventKind::Succeeded,
        payment: PaymentEvent {
            provider: PROVIDER.to_owned(),
            event_id: format!("{}-{event}", payment(order)),
            payment_id: payment(order),
            order,
            amount_minor: page.minor,
            currency: sample::price().currency,
        },
        refund: None,
    };
    let before = world.raw.ledger.order(order).await.unwrap();
    let outcome = world.backends.ledger.receive(&event, hold(outside.planted)).await;
    let Ok(ReceiveOutcome::Decided(outcome)) = outcome else { return Ok("failed") };
    outside.clients.told.insert(payment(order));

    let alone = outside.clients.captured.values().filter(|it| it.0 == order).count() == 1;
    let latest = outside.clients.latest.max(Some(outside.clock.now()));
    let in_time = before.as_ref().is_some_and(|it| latest < Some(it.expires_at.plus(HOLD)));
    // Whoever cancels, or pays otherwise too, has said so.
    let waits = before.is_some_and(|it| matches!(it.status, OrderStatus::Pending | OrderStatus::Expired));
    if page.noted && !page.ended && alone && in_time && waits && outcome != PayOutcome::Paid {
        return Err(format!("order {order} was to be held for its payment, which is {}", outcome.as_str()));
    }
    Ok(outcome.as_str())
}
