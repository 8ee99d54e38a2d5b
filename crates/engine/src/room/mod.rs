//! The waiting room: who waits for a sale, in which order, and who has been let in.
//!
//! Who comes before the sale opens is shuffled: a user's place follows from a keyed hash, whenever he came. Who
//! comes later stands behind them, first come first served. Nobody stands in it twice, since a place is a user's.
//!
//! What every backend promises:
//!
//! 1. Who asks again keeps his place, and nobody stands in the room twice:
//!    `who_asks_again_keeps_the_one_place`.
//! 2. Places that were drawn come in their order, whoever came first; behind them, first come first served:
//!    `drawn_places_come_first_and_late_ones_by_arrival`.
//! 3. Those who waited longest are let in, no more than there are places inside, and no more than is said at
//!    once: `the_first_are_let_in_as_far_as_there_are_places`.
//! 4. A turn ends, its place inside is free again, and who comes back stands at the end:
//!    `a_turn_ends_and_its_place_is_given_to_the_next`.
//! 5. Who is not seen for longer than the grace loses his place; who comes back in time keeps it:
//!    `who_left_is_not_let_in_and_holds_up_nobody`.
//! 6. Who brings the place that he had is given it again by a room that forgot it, and nobody is let in until
//!    they had time to come back: `a_room_that_forgot_lets_nobody_in_before_those_who_waited`.
//! 7. Who leaves waits no more. A turn that was given ends by its time alone, since its token does:
//!    `who_leaves_waits_no_more_and_keeps_a_turn_that_was_given`.
//! 8. A rate holds however many ask for it: `the_rate_holds_whoever_lets_in`.
//! 9. One sale's room knows nothing of another's: `rooms_know_nothing_of_each_other`.
//! 10. A full room takes nobody in, and those in it keep their places: `a_full_room_takes_nobody_more`.
//! 11. A room that is closed is as one that never was: `a_closed_room_is_empty`.

mod batch;
mod embedded;
#[cfg(feature = "distributed")]
mod redis;

pub use batch::{Desk, DeskWork};
pub use embedded::EmbeddedRoom;
#[cfg(feature = "distributed")]
pub use redis::RedisRoom;

use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Timestamp;
use crate::fault::BackendError;
use crate::order::{SaleId, UserId};

/// Most users of one [`Room::ask`].
pub const ASK_BATCH_MAX: usize = 256;

/// Most users that one [`Room::admit`] lets in, most that it finds to have left, and most turns that it ends.
pub const ADMIT_BATCH_MAX: u32 = 1_000;

/// Where a user stands in the order: lower goes in first. Below [`Rank::LATE`] it was drawn, from there on it
/// was come by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u64);

impl Rank {
    /// The first that is given to whoever comes when the sale is open. Twice as much is still a whole number
    /// that a Redis score holds exactly.
    pub const LATE: Self = Self(1 << 51);

    /// Late comers get numbers that grow by so much in a millisecond at least. So those of a room that forgot
    /// its count still come behind those it gave before.
    pub(crate) const LATE_PER_MS: u64 = 64;

    /// The rank that 8 random bytes draw.
    pub fn drawn(random: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(random) % Self::LATE.0)
    }
}

/// A user at the door.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asking {
    /// Who.
    pub user: UserId,
    /// The place to take if he has none: drawn, or one that he shows he had.
    pub rank: Option<Rank>,
    /// When the place that he shows was sealed: before this room began, it forgot him.
    pub sealed_at: Option<Timestamp>,
}

/// When something is asked of a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Now, by the stock's clock as far as it is known. A room that has a clock of its own goes by that one.
    pub now: Timestamp,
    /// When the sale opens; late comers are counted from there.
    pub opens_at: Timestamp,
}

impl Moment {
    /// The number of a late comer behind the one with `last`.
    pub(crate) fn late_after(self, last: u64) -> u64 {
        let open_ms = u64::try_from(self.now.since(self.opens_at).as_millis()).unwrap_or(u64::MAX);
        (last + 1).max(open_ms.saturating_mul(Rank::LATE_PER_MS).min(Rank::LATE.0 / 2))
    }
}

/// Where a user stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// He waits.
    Waiting {
        /// His place in the order.
        rank: Rank,
        /// How many stand before him.
        ahead: u64,
    },
    /// He is in and may buy.
    Inside {
        /// Until then.
        until: Timestamp,
    },
    /// As many wait as may.
    Full,
}

/// How a room is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomRules {
    /// Who is not seen for longer has left.
    pub grace: Duration,
    /// How long somebody who was let in may buy.
    pub turn: Duration,
    /// A room that forgot who waits lets nobody in for so long after it began anew.
    pub refill: Duration,
    /// Most who may wait for one sale.
    pub waiting_max: u64,
}

/// How many may be let in now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Openings {
    /// Most who may be inside at once.
    pub inside: u64,
    /// Most to let in now, at most [`ADMIT_BATCH_MAX`].
    pub most: u32,
    /// Most to let in per minute, over all who let in; nothing is no limit.
    pub per_minute: Option<u32>,
}

impl Openings {
    /// How many of `most` the rate allows, which was used up to `used_up_to` microseconds of the epoch; and up to
    /// when it is then. At most a second's worth comes at once, or one.
    pub(crate) fn within_rate(self, most: u64, used_up_to: i64, now: Timestamp) -> (u64, i64) {
        let Some(per_minute) = self.per_minute else { return (most, used_up_to) };
        if per_minute == 0 {
            return (0, used_up_to);
        }
        let (cost, now) = ((60_000_000 / i64::from(per_minute)).max(1), now.as_ms().saturating_mul(1_000));
        let from = used_up_to.max(now - cost.max(1_000_000)).min(now);
        let count = most.min(u64::try_from((now - from) / cost).unwrap_or(0));
        (count, from.saturating_add(cost * i64::try_from(count).unwrap_or(i64::MAX)))
    }
}

/// A room as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// Users who wait.
    pub waiting: u64,
    /// Users who were let in and whose turn is not over.
    pub inside: u64,
    /// Users let in since the room began.
    pub admitted: u64,
    /// Users let in by this call.
    pub admitted_now: u64,
}

/// The waiting rooms of all sales. The module's text lists the promises.
#[async_trait]
pub trait Room: Send + Sync + 'static {
    /// Takes users in, or finds where they stand and notes that they are here; `places[i]` is that of
    /// `asking[i]`, of whom there are at most [`ASK_BATCH_MAX`]. Doing it again changes nothing.
    async fn ask(&self, sale: SaleId, asking: &[Asking], at: Moment) -> Result<Vec<Place>, BackendError>;

    /// Forgets who left, ends turns that are over, and lets the next in. Any number may do so at once.
    async fn admit(&self, sale: SaleId, openings: Openings, at: Moment) -> Result<Crowd, BackendError>;

    /// A user waits no more.
    async fn leave(&self, sale: SaleId, user: &UserId) -> Result<(), BackendError>;

    /// Forgets everybody: the sale is over, or has no waiting room any more.
    async fn close(&self, sale: SaleId) -> Result<(), BackendError>;
}
