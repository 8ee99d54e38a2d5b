//! The shop's endpoint for events, at the other end of a line that fails: what it has heard, and that it is what
//! the ledger decided.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use doorbuster_engine::fault::Layer;
use doorbuster_engine::ledger::{About, BookSnapshot, DeliveryFilter, DeliveryState, Event, EventType};
use doorbuster_engine::order::{ItemId, OrderId};
use doorbuster_engine::workers::{Backends, Carried, Courier, Relay, RelayOptions};

use crate::fate::Fate;
use crate::world::World;

/// Its name.
pub(crate) const SHOP: &str = "shop";

/// What it has heard, each event once; outlives every process.
#[derive(Default)]
pub(crate) struct Heard {
    by_id: BTreeMap<String, Event>,
    /// The steps of each order, in the order in which they were first heard.
    steps: BTreeMap<OrderId, Vec<EventType>>,
    /// An event that came again and was another.
    changed: Option<String>,
}

impl Heard {
    fn hear(&mut self, event: &Event) {
        let same = |it: &Event| (it.kind, it.at, subject(it)) == (event.kind, event.at, subject(event));
        match self.by_id.get(&event.id) {
            Some(before) if same(before) => {}
            Some(before) => self.changed = Some(format!("event {} was {before:?}, then {event:?}", event.id)),
            None => {
                if let Some(order) = subject(event) {
                    self.steps.entry(order).or_default().push(event.kind);
                }
                self.by_id.insert(event.id.clone(), event.clone());
            }
        }
    }

    /// What was heard of each order are its first steps, in their order: nothing untrue, nothing left out.
    pub(crate) fn check(&self, books: &BookSnapshot) -> Result<(), String> {
        if let Some(changed) = &self.changed {
            return Err(changed.clone());
        }
        let decided = decided(books);
        for (order, heard) in &self.steps {
            let steps = decided.get(order).map_or(&[][..], Vec::as_slice);
            if !steps.starts_with(heard) {
                return Err(format!("of order {order} the shop heard {heard:?}; its steps are {steps:?}"));
            }
        }
        Ok(())
    }

    /// Once all is quiet, everything was heard.
    pub(crate) fn check_at_rest(&self, books: &BookSnapshot, stock_was_lost: bool) -> Result<(), String> {
        for (order, steps) in decided(books) {
            let heard = self.steps.get(&order).map_or(&[][..], Vec::as_slice);
            if heard != steps {
                return Err(format!(
                    "at rest the shop has heard {heard:?} of order {order}, and not {steps:?}"
                ));
            }
        }
        let opened = self.by_id.values().filter(|it| it.kind == EventType::SaleOpened).count();
        if opened != 1 {
            return Err(format!("the shop heard {opened} times that the sale opened"));
        }
        let closed = books.orders.iter().filter(|it| !it.status.is_live() && it.reservation.has_step());
        let mut closed_units: BTreeMap<ItemId, u64> = BTreeMap::new();
        for order in closed {
            *closed_units.entry(order.reservation.item).or_default() += u64::from(order.reservation.units.0);
        }
        for (item, units) in closed_units {
            let returned = self.units_of(EventType::StockReturned, item);
            // A stock that went back may hold again what was returned: it returns once more.
            if returned < units || returned > units && !stock_was_lost {
                return Err(format!(
                    "the shop heard of {returned} units of item {item}, and {units} returned"
                ));
            }
        }
        Ok(())
    }

    fn units_of(&self, wanted: EventType, wanted_item: ItemId) -> u64 {
        let units = |event: &Event| match event.about {
            About::Sale { item: Some(item), units, .. } if event.kind == wanted && item == wanted_item => {
                units
            }
            _ => None,
        };
        self.by_id.values().filter_map(units).sum()
    }
}

fn subject(event: &Event) -> Option<OrderId> {
    match &event.about {
        About::Order(order) => Some(order.reservation.order),
        About::Sale { .. } => None,
    }
}

fn decided(books: &BookSnapshot) -> BTreeMap<OrderId, Vec<EventType>> {
    let mut steps: BTreeMap<OrderId, Vec<EventType>> = BTreeMap::new();
    for (order, _, to) in &books.steps {
        steps.entry(*order).or_default().push(EventType::of_step(*to));
    }
    steps
}

/// The line to it.
struct Line {
    heard: Arc<Mutex<Heard>>,
    fate: Fate,
}

#[async_trait]
impl Courier for Line {
    async fn carry(&self, event: &Event) -> Carried {
        let came_back = |taken, answer: &str| Carried { taken, status: None, answer: answer.to_owned() };
        if self.fate.before(Layer::Ledger).await.is_err() {
            return came_back(false, "refused");
        }
        self.heard.lock().unwrap().hear(event);
        match self.fate.after(Layer::Ledger).await {
            Ok(()) => came_back(true, "thank you"),
            Err(_) => came_back(false, "no answer"),
        }
    }
}

/// A keeper's relay to it.
pub(crate) fn relay(backends: Backends, heard: &Arc<Mutex<Heard>>, fate: &Fate) -> Relay {
    let options = RelayOptions {
        endpoint: SHOP.to_owned(),
        types: EventType::ALL.to_vec(),
        timeout: Duration::from_secs(1),
        retention: Duration::from_secs(3_600),
    };
    Relay::new(backends, Arc::new(Line { heard: Arc::clone(heard), fate: fate.clone() }), options)
}

/// Whether nothing is on its way to it. The staff sends again what was given up.
pub(crate) async fn has_heard_all(world: &World) -> bool {
    let ledger = &world.raw.ledger;
    ledger.replay_dead(SHOP, 1_000).await.unwrap();
    let waiting = DeliveryFilter { state: Some(DeliveryState::Waiting), ..DeliveryFilter::default() };
    ledger.deliveries(&waiting, None, 1).await.unwrap().is_empty()
}
