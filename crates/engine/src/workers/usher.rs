//! Usher: lets users from the waiting rooms in, as the stock and the pipeline allow.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;

use super::round::{Round, Rounds};
use super::{Backends, Backpressure, Step, Worker};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::gate::{RoomState, Rooms};
use crate::order::SaleId;
use crate::room::{ADMIT_BATCH_MAX, Crowd, Moment, Openings, Room};
use crate::sale::{Catalog, Sale, SaleState};
use crate::stock::BucketId;
use crate::switches::RoomMode;

/// Most calls for one sale in one step: twenty thousand users come in at the opening, and other sales' rooms are
/// not kept waiting.
const CALLS_MAX: u32 = 20;

/// The pace is taken over so long.
const PACE_OVER: Duration = Duration::from_secs(30);

/// An automatic room that nobody needed for so long is needed no more.
const CALM_AFTER: Duration = Duration::from_secs(10);

/// Lets users in.
pub struct Usher {
    backends: Backends,
    room: Arc<dyn Room>,
    catalog: Arc<ArcSwap<Catalog>>,
    backpressure: Arc<Backpressure>,
    rooms: Arc<Rooms>,
    /// For 100 free units, so many users may be inside.
    inside_percent: u32,
    seen: BTreeMap<SaleId, Seen>,
    /// Whether all rooms answered in this round.
    rooms_answer: bool,
    rounds: Rounds,
}

/// What an usher remembers of one sale.
#[derive(Default)]
struct Seen {
    /// How many had been let in, and when.
    admitted: VecDeque<(Duration, u64)>,
    /// When an automatic room was last needed.
    needed: Option<Duration>,
}

impl Usher {
    /// An usher of `room` who tells `rooms` what he sees; while `backpressure` is on, he lets nobody in. For 100
    /// free units, `inside_percent` users may be inside.
    pub fn new(
        backends: Backends,
        room: Arc<dyn Room>,
        catalog: Arc<ArcSwap<Catalog>>,
        (backpressure, rooms): (Arc<Backpressure>, Arc<Rooms>),
        inside_percent: u32,
    ) -> Self {
        let (seen, rounds) = (BTreeMap::new(), Rounds::default());
        Self {
            backends,
            room,
            catalog,
            backpressure,
            rooms,
            inside_percent,
            seen,
            rooms_answer: true,
            rounds,
        }
    }

    /// Looks at one sale's room and lets in who may come.
    async fn look(
        &mut self,
        sale: &Sale,
        now: Timestamp,
        mode: RoomMode,
        per_minute: Option<u32>,
    ) -> Result<RoomState, BackendError> {
        let level = self.backends.stock.level(BucketId { sale: sale.id, epoch: sale.epoch }).await;
        let free = level.as_ref().ok().and_then(Option::as_ref).filter(|it| !it.loading && !it.fenced);
        let free = free.map(|it| it.items.iter().map(|item| item.free).sum::<u64>());
        let places = free.map_or(0, |free| self.places_for(free));
        let sells = sale.terms.state == SaleState::Open && sale.fence.is_none() && now >= sale.terms.opens_at;
        let most = if sells && !self.backpressure.is_on() { ADMIT_BATCH_MAX } else { 0 };
        let openings = Openings { inside: places, most, per_minute };
        let at = Moment { now, opens_at: sale.terms.opens_at };
        let admitted = self.admit(sale.id, openings, at).await;
        self.rooms_answer &= admitted.is_ok();
        let crowd = admitted?;
        // The room's answer counts all the same; that the stock gave none is the round's to tell.
        level.map(|_| self.state(sale, mode, crowd, free))
    }

    async fn admit(&self, sale: SaleId, openings: Openings, at: Moment) -> Result<Crowd, BackendError> {
        let mut crowd = self.room.admit(sale, openings, at).await?;
        for _ in 1..CALLS_MAX {
            if crowd.admitted_now < u64::from(ADMIT_BATCH_MAX) {
                break;
            }
            crowd = self.room.admit(sale, openings, at).await?;
        }
        Ok(crowd)
    }

    fn places_for(&self, free: u64) -> u64 {
        free.saturating_mul(u64::from(self.inside_percent)).div_ceil(100)
    }

    fn state(&mut self, sale: &Sale, mode: RoomMode, crowd: Crowd, free: Option<u64>) -> RoomState {
        let (now, busy) = (self.backends.clock.monotonic(), self.backpressure.is_on());
        let places = free.map_or(0, |free| self.places_for(free));
        let opened = sale.terms.state == SaleState::Open;
        // Whom a room in memory forgot with its process has as long to come back.
        let begun = opened || sale.terms.state == SaleState::Paused;
        let first = || Seen { needed: begun.then_some(now), ..Seen::default() };
        let seen = self.seen.entry(sale.id).or_insert_with(first);
        // Before the opening all who wait would fit in, or would not.
        if busy || (opened && crowd.waiting > 0) || crowd.waiting > places {
            seen.needed = Some(now);
        }
        let lately = seen.needed.is_some_and(|needed| now.saturating_sub(needed) < CALM_AFTER);
        RoomState {
            is_needed: mode == RoomMode::Automatic && lately,
            waiting: crowd.waiting,
            inside: crowd.inside,
            admitted: crowd.admitted,
            free,
            per_second: seen.pace(now, crowd.admitted),
        }
    }
}

impl Seen {
    /// Users let in per second; not known before somebody was, and some seconds have passed.
    fn pace(&mut self, now: Duration, admitted: u64) -> Option<f64> {
        // A room that forgot counts anew.
        if self.admitted.back().is_some_and(|(_, before)| *before > admitted) {
            self.admitted.clear();
        }
        while self.admitted.front().is_some_and(|(at, _)| now.saturating_sub(*at) > PACE_OVER) {
            self.admitted.pop_front();
        }
        if self.admitted.back().is_none_or(|(at, _)| now.saturating_sub(*at) >= Duration::from_secs(1)) {
            self.admitted.push_back((now, admitted));
        }
        let &(since, before) = self.admitted.front()?;
        let (time, count) = (now.saturating_sub(since), u32::try_from(admitted - before).ok()?);
        (count > 0 && time >= Duration::from_secs(2)).then(|| f64::from(count) / time.as_secs_f64())
    }
}

/// Whether a sale has no waiting room any more, by the ledger's word. A clock's alone empties no room that other
/// gateways share: it may be wrong.
fn has_no_room(catalog: &Catalog, sale: SaleId) -> bool {
    let closed = catalog.sale(sale).is_none_or(|sale| sale.terms.state == SaleState::Closed);
    closed || catalog.switches().room(sale).mode == RoomMode::Off
}

#[async_trait]
impl Worker for Usher {
    fn name(&self) -> &'static str {
        "usher"
    }

    async fn step(&mut self) -> Result<Step, BackendError> {
        let catalog = self.catalog.load_full();
        let now = self.backends.clock.now().ahead_by(catalog.stock_ahead_ms());
        let (mut round, mut states) = (Round::default(), BTreeMap::new());
        self.rooms_answer = true;
        for sale in catalog.sales() {
            let switch = catalog.switches().room(sale.id);
            let over = sale.terms.state == SaleState::Closed || now >= sale.terms.closes_at;
            if switch.mode == RoomMode::Off || over {
                continue;
            }
            let looked = self.look(sale, now, switch.mode, switch.per_minute).await;
            // Who cannot be seen stands as before: nobody gets in without his turn.
            if let Some(state) = looked.as_ref().ok().copied().or_else(|| self.rooms.of(sale.id)) {
                states.insert(sale.id, state);
            }
            round.note(looked.map(|_| 0));
        }
        let over: Vec<SaleId> =
            self.seen.keys().copied().filter(|sale| has_no_room(&catalog, *sale)).collect();
        for sale in over {
            let closed = self.room.close(sale).await;
            self.rooms_answer &= closed.is_ok();
            if closed.is_ok() {
                self.seen.remove(&sale);
            }
            round.note(closed.map(|()| 0));
        }
        self.rooms.note_answer(self.rooms_answer);
        self.rooms.replace(states);
        self.rounds.end(round, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::sample;
    use crate::order::Units;
    use crate::sale::Terms;

    fn catalog(state: SaleState, room: &str) -> Catalog {
        let at = Timestamp::from_ms(0);
        // By any clock its window is over.
        let terms = Terms { state, opens_at: at, closes_at: at, limit: Units(1) };
        let switches = sample::switches([("room", room)]);
        Catalog::new(vec![sample::known_sale(terms)]).with_switches(Arc::new(switches))
    }

    #[test]
    fn a_room_is_emptied_by_the_ledgers_word_and_by_no_clock() {
        for (state, room, gone) in [
            (SaleState::Open, "on", false),
            (SaleState::Paused, "auto", false),
            (SaleState::Open, "off", true),
            (SaleState::Closed, "on", true),
        ] {
            assert_eq!(has_no_room(&catalog(state, room), SaleId(1)), gone, "{state} {room}");
        }
        assert!(has_no_room(&Catalog::default(), SaleId(1)));
    }
}
