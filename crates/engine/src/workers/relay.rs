//! Relay: one endpoint of the shop is told of events.
//!
//! A step writes down what is new, sends what is due, at most [`BATCH`] at once, and writes down what
//! became of it. A claim that is not noted, since its process ended, is sent again when its lease is
//! over: whoever takes events must expect one twice. Each endpoint has a relay of its own, so that one
//! that hangs stops no other; any number of keepers may have them.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::{Backends, Step, Worker};
use crate::fault::BackendError;
use crate::ledger::{Attempted, DueDelivery, Event, EventType, Then};

/// Events of each list that are written down in one step.
const PLAN_MAX: usize = 500;

/// Deliveries that are sent at once, and so the most connections to one endpoint.
const BATCH: usize = 16;

/// Deliveries that are forgotten at once, and how often it is looked for them.
const FORGET_MAX: usize = 1_000;
const FORGET_EVERY: Duration = Duration::from_secs(60);

/// How long a claim lasts beyond the longest time that an attempt may take.
const LEASE_MARGIN: Duration = Duration::from_secs(30);

/// Waits before each repetition: most failures are short, and a shop that is down over a night is told
/// in the morning. They add up to 23 hours and 42 minutes; then the delivery is dead.
const WAITS: [Duration; 10] = {
    const MINUTE: u64 = 60;
    const HOUR: u64 = 60 * MINUTE;
    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }
    [
        secs(5),
        secs(30),
        secs(2 * MINUTE),
        secs(10 * MINUTE),
        secs(30 * MINUTE),
        secs(HOUR),
        secs(2 * HOUR),
        secs(4 * HOUR),
        secs(8 * HOUR),
        secs(8 * HOUR),
    ]
};

/// How far a wait lies from its middle at most, as a share of it: deliveries that failed together do not come together.
const JITTER: f64 = 0.2;

/// Carries events to one endpoint. It neither repeats nor remembers: the relay does.
#[async_trait]
pub trait Courier: Send + Sync + 'static {
    /// Tells the endpoint of one event. It ends within the time that the relay was made with.
    async fn carry(&self, event: &Event) -> Carried;
}

/// What a courier brought back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Whether the endpoint took it.
    pub taken: bool,
    /// The status of its answer, where there was one.
    pub status: Option<u16>,
    /// What became of it, in words for the staff.
    pub answer: String,
}

/// What a relay is about.
#[derive(Clone, Debug)]
pub struct RelayOptions {
    /// The endpoint's name.
    pub endpoint: String,
    /// What it is told of.
    pub types: Vec<EventType>,
    /// Longest time that an attempt may take.
    pub timeout: Duration,
    /// How long deliveries that have ended are kept.
    pub retention: Duration,
}

/// Tells one endpoint.
pub struct Relay {
    backends: Backends,
    courier: Arc<dyn Courier>,
    options: RelayOptions,
    /// When deliveries were last forgotten, by the monotonic clock.
    forgotten: Option<Duration>,
}

impl Relay {
    /// A relay for one endpoint, which must be registered.
    pub fn new(backends: Backends, courier: Arc<dyn Courier>, options: RelayOptions) -> Self {
        Self { backends, courier, options, forgotten: None }
    }

    async fn send(&self, due: DueDelivery) -> Attempted {
        let carried = self.courier.carry(&due.event).await;
        let then = if carried.taken { Then::Delivered } else { after_failure(due.tries, apart(&due)) };
        if then == Then::Dead {
            tracing::error!(
                endpoint = self.options.endpoint,
                delivery.id = due.id,
                event = due.event.id,
                answer = carried.answer,
                "an event is given up after the last attempt; `doorbuster event replay` sends it again"
            );
        }
        let Carried { status, answer, .. } = carried;
        Attempted { id: due.id, attempt: due.attempt, then, status, answer }
    }

    async fn forget(&mut self) -> Result<u64, BackendError> {
        let now = self.backends.clock.monotonic();
        if self.forgotten.is_some_and(|before| now.saturating_sub(before) < FORGET_EVERY) {
            return Ok(0);
        }
        let before = self.backends.clock.now().minus(self.options.retention);
        let dropped =
            self.backends.ledger.forget_deliveries(&self.options.endpoint, before, FORGET_MAX).await?;
        if dropped < FORGET_MAX as u64 {
            self.forgotten = Some(now);
        }
        Ok(dropped)
    }
}

/// Where a delivery's wait lies between its shortest, 0, and its longest, 1: all of them evenly, and neighbours
/// far apart, by the golden section.
fn apart(due: &DueDelivery) -> f64 {
    let turn = due.id.cast_unsigned().wrapping_add(due.attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    f64::from((turn >> 32) as u32) / f64::from(u32::MAX)
}

/// How a delivery goes on whose attempt number `tries` failed; `place` is from 0 to 1.
fn after_failure(tries: u32, place: f64) -> Then {
    let failed = usize::try_from(tries).unwrap_or(usize::MAX).saturating_sub(1);
    match WAITS.get(failed) {
        Some(wait) => Then::Again(wait.mul_f64(1.0 - JITTER + 2.0 * JITTER * place)),
        None => Then::Dead,
    }
}

#[async_trait]
impl Worker for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let RelayOptions { endpoint, types, timeout, .. } = &self.options;
        let ledger = &self.backends.ledger;
        let planned = ledger.plan_deliveries(endpoint, types, PLAN_MAX).await?;
        let lease = *timeout + LEASE_MARGIN;
        let due = ledger.claim_deliveries(endpoint, lease, BATCH).await?;
        if due.is_empty() {
            return Ok(Step::of(planned + self.forget().await?));
        }
        let sent = join_all(due.into_iter().map(|due| self.send(due))).await;
        ledger.note_deliveries(&sent).await?;
        Ok(Step::Worked(planned + sent.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::ledger::About;
    use crate::order::SaleId;

    #[test]
    fn neighbours_lie_apart() {
        let event = Event {
            id: String::new(),
            kind: EventType::SaleClosed,
            at: Timestamp::from_ms(0),
            about: About::Sale { sale: SaleId(1), item: None, units: None },
        };
        let place = |id, attempt| apart(&DueDelivery { id, attempt, tries: 1, event: event.clone() });
        for id in 1..1_000 {
            let places = [place(id, 1), place(id + 1, 1), place(id, 2)];
            assert!(places.iter().all(|it| (0.0..=1.0).contains(it)), "{places:?}");
            assert!((places[0] - places[1]).abs() > 0.3 && (places[0] - places[2]).abs() > 0.3, "{places:?}");
        }
        let low = (1..=1_000).filter(|id| place(*id, 1) < 0.5).count();
        assert!((490..=510).contains(&low), "{low} of 1,000 in the first half");
    }

    #[test]
    fn attempts_go_on_for_about_a_day_and_end() {
        let mut whole = [Duration::ZERO; 3];
        let mut tries = 0;
        loop {
            tries += 1;
            let waits = [0.0, 0.5, 1.0].map(|random| after_failure(tries, random));
            let [Then::Again(short), Then::Again(middle), Then::Again(long)] = waits else {
                assert_eq!(waits, [Then::Dead; 3]);
                break;
            };
            assert!(short < middle && middle < long);
            for (sum, wait) in whole.iter_mut().zip([short, middle, long]) {
                *sum += wait;
            }
        }
        assert_eq!(tries, 11);
        assert_eq!(whole[1], Duration::from_secs(23 * 3_600 + 42 * 60 + 35));
        let hours = |sum: Duration| sum.as_secs() / 3_600;
        assert_eq!((hours(whole[0]), hours(whole[2])), (18, 28));
    }
}
