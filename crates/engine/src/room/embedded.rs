//! The waiting rooms of one process, in memory. Whoever waits keeps a sealed note of his place, so that a restart
//! loses nobody who comes back in time.

mod line;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;

use super::{ADMIT_BATCH_MAX, Asking, Crowd, Moment, Openings, Place, Rank, Room, RoomRules};
use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{SaleId, UserId};
use line::Line;

/// The rooms in this process's memory. A call holds the lock for at most some thousand users.
pub struct EmbeddedRoom {
    rules: RoomRules,
    rooms: Mutex<HashMap<SaleId, OneRoom>>,
}

#[derive(Default)]
struct OneRoom {
    line: Line,
    waiting: HashMap<UserId, Waiting>,
    /// Those who wait, by when they were seen.
    seen: BTreeSet<(Timestamp, UserId)>,
    inside: HashMap<UserId, Timestamp>,
    /// Those inside, by when their turn ends.
    turns: BTreeSet<(Timestamp, UserId)>,
    /// The last number that a late comer got.
    late: u64,
    admitted: u64,
    /// When the first user came.
    began: Option<Timestamp>,
    /// Nobody is let in before.
    closed_until: Option<Timestamp>,
    /// Up to when the rate has been used up, in microseconds of the epoch.
    used_up_to_us: i64,
}

struct Waiting {
    rank: Rank,
    seen: Timestamp,
}

impl EmbeddedRoom {
    /// Empty rooms.
    pub fn new(rules: RoomRules) -> Self {
        Self { rules, rooms: Mutex::default() }
    }

    fn with<T>(&self, sale: SaleId, work: impl FnOnce(&mut OneRoom) -> T) -> T {
        let mut rooms = self.rooms.lock().unwrap_or_else(PoisonError::into_inner);
        work(rooms.entry(sale).or_default())
    }
}

#[async_trait]
impl Room for EmbeddedRoom {
    async fn ask(&self, sale: SaleId, asking: &[Asking], at: Moment) -> Result<Vec<Place>, BackendError> {
        Ok(self.with(sale, |room| {
            let mut places: Vec<Place> = asking.iter().map(|it| room.take_in(it, at, &self.rules)).collect();
            // Only now: those of one call stand where their ranks put them, not where the call has them.
            for (place, Asking { user, .. }) in places.iter_mut().zip(asking) {
                if let Place::Waiting { rank, ahead } = place {
                    *ahead = room.line.ahead_of(*rank, user);
                }
            }
            places
        }))
    }

    async fn admit(&self, sale: SaleId, openings: Openings, at: Moment) -> Result<Crowd, BackendError> {
        Ok(self.with(sale, |room| {
            room.end_turns(at.now);
            room.forget_who_left(at.now, &self.rules);
            room.admit(openings, at.now, &self.rules)
        }))
    }

    async fn leave(&self, sale: SaleId, user: &UserId) -> Result<(), BackendError> {
        self.with(sale, |room| room.take_out(user));
        Ok(())
    }

    async fn close(&self, sale: SaleId) -> Result<(), BackendError> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner).remove(&sale);
        Ok(())
    }
}

impl OneRoom {
    /// How many stand before him is not known yet.
    fn take_in(&mut self, asking: &Asking, at: Moment, rules: &RoomRules) -> Place {
        let user = &asking.user;
        if let Some(&until) = self.inside.get(user)
            && until > at.now
        {
            return Place::Inside { until };
        }
        self.end_turn(user);
        let rank = match self.waiting.get(user) {
            Some(waiting) => {
                self.seen.remove(&(waiting.seen, user.clone()));
                waiting.rank
            }
            None if self.line.len() >= rules.waiting_max => return Place::Full,
            None => {
                let rank = self.rank_for(asking, at, rules);
                self.line.insert(rank, user.clone());
                rank
            }
        };
        self.seen.insert((at.now, user.clone()));
        self.waiting.insert(user.clone(), Waiting { rank, seen: at.now });
        Place::Waiting { rank, ahead: 0 }
    }

    /// The place of somebody new. Who shows a young room one that is older than it tells that it forgot.
    fn rank_for(&mut self, asking: &Asking, at: Moment, rules: &RoomRules) -> Rank {
        let began = *self.began.get_or_insert(at.now);
        let refilled = began.plus(rules.refill);
        if at.now < refilled && asking.sealed_at.is_some_and(|sealed| sealed < began) {
            self.closed_until = Some(refilled);
        }
        let Some(rank) = asking.rank else {
            self.late = at.late_after(self.late);
            return Rank(Rank::LATE.0 + self.late);
        };
        self.late = self.late.max(rank.0.saturating_sub(Rank::LATE.0));
        rank
    }

    fn take_out(&mut self, user: &UserId) {
        if let Some(Waiting { rank, seen }) = self.waiting.remove(user) {
            self.line.remove(rank, user);
            self.seen.remove(&(seen, user.clone()));
        }
    }

    fn end_turn(&mut self, user: &UserId) {
        if let Some(until) = self.inside.remove(user) {
            self.turns.remove(&(until, user.clone()));
        }
    }

    fn end_turns(&mut self, now: Timestamp) {
        for _ in 0..ADMIT_BATCH_MAX {
            let over = self.turns.first().filter(|(until, _)| *until <= now).cloned();
            let Some((_, user)) = over else { return };
            self.end_turn(&user);
        }
    }

    fn forget_who_left(&mut self, now: Timestamp, rules: &RoomRules) {
        for _ in 0..ADMIT_BATCH_MAX {
            let gone = |seen: &Timestamp| now.since(*seen) > rules.grace;
            let Some((_, user)) = self.seen.first().filter(|(seen, _)| gone(seen)).cloned() else { return };
            self.take_out(&user);
        }
    }

    fn admit(&mut self, openings: Openings, now: Timestamp, rules: &RoomRules) -> Crowd {
        let inside = u64::try_from(self.inside.len()).unwrap_or(u64::MAX);
        let closed = self.closed_until.is_some_and(|until| now < until);
        let mut most =
            openings.inside.saturating_sub(inside).min(u64::from(openings.most.min(ADMIT_BATCH_MAX)));
        most = if closed { 0 } else { most.min(self.line.len()) };
        let (admitted_now, used_up_to_us) = openings.within_rate(most, self.used_up_to_us, now);
        self.used_up_to_us = used_up_to_us;
        let until = now.plus(rules.turn);
        for _ in 0..admitted_now {
            let Some((_, user)) = self.line.first().cloned() else { break };
            self.take_out(&user);
            self.turns.insert((until, user.clone()));
            self.inside.insert(user, until);
        }
        self.admitted += admitted_now;
        Crowd {
            waiting: self.line.len(),
            inside: inside + admitted_now,
            admitted: self.admitted,
            admitted_now,
        }
    }
}
