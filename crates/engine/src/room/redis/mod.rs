//! The waiting rooms in Redis: one for each sale, for all gateways, in one hash slot.
//!
//! | key | holds |
//! | --- | --- |
//! | `cfg` | when the first came, the late comers' count, how many were let in, the rate, until when nobody is |
//! | `wait` | those who wait, by rank |
//! | `seen` | the same, by when they were seen |
//! | `in` | those who were let in, by when their turn ends |
//!
//! Keys are named `{r<sale>}:<key>` behind the prefix: in a cluster they may lie beside the stock of another sale.

use async_trait::async_trait;
use redis::Value;

use super::{ADMIT_BATCH_MAX, Asking, Crowd, Moment, Openings, Place, Rank, Room, RoomRules};
use crate::clock::Timestamp;
use crate::fault::{BackendError, Fault, Layer};
use crate::order::{SaleId, UserId};
use crate::redis_links::{Links, RedisClock, RedisOptions, Script};

static ASK: Script = Script::new("ask the waiting room", include_str!("ask.lua"));
static ADMIT: Script = Script::new("let users in", include_str!("admit.lua"));
static LEAVE: Script = Script::new("leave the waiting room", include_str!("leave.lua"));
static CLOSE: Script = Script::new("close the waiting room", include_str!("close.lua"));

/// The keys of a room that nobody has looked at for so long are removed: its sale is over.
const KEPT_MS: u64 = 2 * 24 * 3_600 * 1_000;

/// The waiting rooms in Redis. Each thread that calls has a connection of its own.
pub struct RedisRoom {
    links: Links,
    prefix: String,
    rules: RoomRules,
    clock: RedisClock,
}

impl RedisRoom {
    /// Rooms in the Redis of `options`; it is first reached when somebody asks.
    ///
    /// # Errors
    /// When the options cannot be used.
    pub fn new(options: &RedisOptions, rules: RoomRules) -> Result<Self, BackendError> {
        Ok(Self {
            links: Links::new(Layer::Room, options)?,
            prefix: options.prefix.clone(),
            rules,
            clock: options.clock.clone(),
        })
    }

    /// Now, for a server that does not go by its own clock: a gateway whose clock is wrong ends nobody's turn.
    fn now(&self, at: Moment) -> Vec<u8> {
        match &self.clock {
            RedisClock::Server => Vec::new(),
            RedisClock::Given(_) => text(at.now.as_ms()),
        }
    }

    async fn run(
        &self,
        script: &'static Script,
        sale: SaleId,
        arguments: &[Vec<u8>],
    ) -> Result<Value, BackendError> {
        let key = |name: &str| format!("{}{{r{sale}}}:{name}", self.prefix);
        self.links.run(script, &["cfg", "wait", "seen", "in"].map(key), arguments).await
    }
}

#[async_trait]
impl Room for RedisRoom {
    async fn ask(&self, sale: SaleId, asking: &[Asking], at: Moment) -> Result<Vec<Place>, BackendError> {
        let mut arguments = vec![
            self.now(at),
            text(at.opens_at.as_ms()),
            text(Rank::LATE_PER_MS),
            text(Rank::LATE.0),
            text(self.rules.waiting_max),
            text(self.rules.refill.as_millis()),
        ];
        for Asking { user, rank, sealed_at } in asking {
            arguments.push(user.as_bytes().to_vec());
            arguments.push(rank.map(|it| text(it.0)).unwrap_or_default());
            arguments.push(sealed_at.map(|at| text(at.as_ms())).unwrap_or_default());
        }
        let reply = self.run(&ASK, sale, &arguments).await?;
        let Value::Array(places) = reply else { return Err(strange("ask")) };
        places.iter().map(|place| place_of(place).ok_or_else(|| strange("ask"))).collect()
    }

    async fn admit(&self, sale: SaleId, openings: Openings, at: Moment) -> Result<Crowd, BackendError> {
        let arguments = [
            self.now(at),
            text(self.rules.grace.as_millis()),
            text(self.rules.turn.as_millis()),
            text(openings.inside.min(u64::from(u32::MAX))),
            text(openings.most.min(ADMIT_BATCH_MAX)),
            openings.per_minute.map(text).unwrap_or_default(),
            text(ADMIT_BATCH_MAX),
            text(KEPT_MS),
        ];
        let reply = self.run(&ADMIT, sale, &arguments).await?;
        let Value::Array(numbers) = &reply else { return Err(strange("admit")) };
        let number = |at: usize| numbers.get(at).and_then(number_of).ok_or_else(|| strange("admit"));
        Ok(Crowd { waiting: number(0)?, inside: number(1)?, admitted: number(2)?, admitted_now: number(3)? })
    }

    async fn leave(&self, sale: SaleId, user: &UserId) -> Result<(), BackendError> {
        self.run(&LEAVE, sale, &[user.as_bytes().to_vec()]).await.map(drop)
    }

    async fn close(&self, sale: SaleId) -> Result<(), BackendError> {
        self.run(&CLOSE, sale, &[]).await.map(drop)
    }
}

fn text(number: impl ToString) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// `rank ahead` of somebody who waits, `-1 until` of somebody inside, `-2 0` where the room is full.
fn place_of(value: &Value) -> Option<Place> {
    let Value::BulkString(bytes) = value else { return None };
    let (first, second) = std::str::from_utf8(bytes).ok()?.split_once(' ')?;
    Some(match first {
        "-1" => Place::Inside { until: Timestamp::from_ms(second.parse().ok()?) },
        "-2" => Place::Full,
        rank => Place::Waiting { rank: Rank(rank.parse().ok()?), ahead: second.parse().ok()? },
    })
}

fn number_of(value: &Value) -> Option<u64> {
    match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

fn strange(what: &str) -> BackendError {
    let what = format!("{what}: the waiting room's script answered something else than it can");
    BackendError::new(Layer::Room, Fault::Permanent, what)
}
