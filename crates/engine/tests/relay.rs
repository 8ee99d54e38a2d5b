//! The relay's steps: what is decided is told once, and again only when nobody noted that it was taken.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::ledger::{DeliveryFilter, DeliveryState, Event, EventType};
use doorbuster_engine::workers::{Carried, Courier, Relay, RelayOptions, Step, Worker};
use futures_util::future::join;
use support::{World, accepted};
use tokio::sync::Semaphore;

/// Takes everything while it is told to, and remembers.
struct Ear {
    heard: Mutex<Vec<Event>>,
    taking: Mutex<bool>,
    /// Calls that may end.
    open: Semaphore,
}

impl Ear {
    fn new(open: usize) -> Arc<Self> {
        let (heard, taking) = (Mutex::default(), Mutex::new(true));
        Arc::new(Self { heard, taking, open: Semaphore::new(open) })
    }

    fn ids(&self) -> Vec<String> {
        self.heard.lock().unwrap().iter().map(|it| it.id.clone()).collect()
    }
}

#[async_trait]
impl Courier for Ear {
    async fn carry(&self, event: &Event) -> Carried {
        self.heard.lock().unwrap().push(event.clone());
        self.open.acquire().await.unwrap().forget();
        let taken = *self.taking.lock().unwrap();
        Carried { taken, status: Some(if taken { 200 } else { 500 }), answer: "heard".to_owned() }
    }
}

const ENDPOINT: &str = "shop";
const TIMEOUT: Duration = Duration::from_secs(10);
const MANY: usize = 1_000;

fn relay(world: &World, ear: &Arc<Ear>) -> Relay {
    let options = RelayOptions {
        endpoint: ENDPOINT.to_owned(),
        types: vec![EventType::OrderPayable],
        timeout: TIMEOUT,
        retention: Duration::from_secs(3_600),
    };
    Relay::new(world.backends.clone(), Arc::clone(ear) as _, options)
}

/// A world in which this many users hold an order that can be paid.
async fn bought(users: usize) -> World {
    let world = World::new().await;
    world.sale(users as u64, 1).await;
    world.backends.ledger.register_endpoint(ENDPOINT).await.unwrap();
    for n in 0..users {
        accepted(world.buy(&format!("user-{n}")).await);
    }
    world.work().await;
    world
}

async fn to_the_end(relay: &mut Relay) {
    while relay.step().await.unwrap() != Step::Idle {}
}

#[tokio::test]
async fn what_was_told_is_not_told_again_by_the_next_step() {
    let world = bought(40).await;
    let ear = Ear::new(MANY);
    let mut one = relay(&world, &ear);
    to_the_end(&mut one).await;
    let told = ear.ids();
    assert_eq!(told.len(), 40);
    to_the_end(&mut one).await;
    to_the_end(&mut relay(&world, &ear)).await;
    assert_eq!(ear.ids(), told);
    world.finish().await;
}

#[tokio::test]
async fn two_relays_of_one_endpoint_share_its_deliveries() {
    let world = bought(60).await;
    let (first, second) = (Ear::new(MANY), Ear::new(MANY));
    let (mut one, mut other) = (relay(&world, &first), relay(&world, &second));
    join(to_the_end(&mut one), to_the_end(&mut other)).await;
    let mut all = [first.ids(), second.ids()].concat();
    all.sort_unstable();
    all.dedup();
    assert_eq!((all.len(), first.ids().len() + second.ids().len()), (60, 60));
    world.finish().await;
}

/// Its process ended between the endpoint's answer and the note of it.
#[tokio::test]
async fn a_relay_that_died_before_its_note_leaves_the_event_to_be_sent_again() {
    let world = bought(1).await;
    let dying = Ear::new(0);
    let mut one = relay(&world, &dying);
    let mut step = Box::pin(one.step());
    while dying.ids().is_empty() {
        // Until the courier has the event; then the relay goes away in the middle of its step.
        let _ = tokio::time::timeout(Duration::from_millis(5), &mut step).await;
    }
    drop(step);

    let ear = Ear::new(MANY);
    let mut other = relay(&world, &ear);
    to_the_end(&mut other).await;
    assert!(ear.ids().is_empty(), "its lease is not over");
    world.clock.advance(TIMEOUT + Duration::from_secs(30));
    to_the_end(&mut other).await;
    assert_eq!(ear.ids(), dying.ids(), "the same event under the same id");
    world.finish().await;
}

#[tokio::test]
async fn a_delivery_that_ended_is_forgotten_behind_its_retention() {
    let world = bought(3).await;
    let ear = Ear::new(MANY);
    let mut one = relay(&world, &ear);
    *ear.taking.lock().unwrap() = false;
    to_the_end(&mut one).await;
    let all = || async {
        let all = world.backends.ledger.deliveries(&DeliveryFilter::default(), None, 10).await.unwrap();
        all.into_iter().map(|it| it.state).collect::<Vec<_>>()
    };
    assert_eq!(all().await, [DeliveryState::Waiting; 3]);
    *ear.taking.lock().unwrap() = true;
    world.clock.advance(Duration::from_secs(6));
    to_the_end(&mut one).await;
    assert_eq!((all().await, ear.ids().len()), (vec![DeliveryState::Delivered; 3], 6));
    world.clock.advance(Duration::from_secs(3_601));
    to_the_end(&mut one).await;
    assert_eq!(all().await, []);
    world.finish().await;
}
