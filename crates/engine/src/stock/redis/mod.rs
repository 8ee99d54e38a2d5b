//! The stock in Redis: one atomic script per call, on a bucket's keys in one hash slot.
//!
//! | key | holds |
//! | --- | --- |
//! | `cfg` | phase, loader token, terms, seq, pages, number of holds |
//! | `stk`, `alc` | item → free units, allocated units |
//! | `buy` | user → its holds, a line each |
//! | `out` | the outbox: order id and user, by the step that took the units |
//! | `gone` | order ids that can never hold again |
//! | `ops` | restock operations that were applied |
//!
//! Keys are named `{s<sale>.<bucket>}:<epoch>:<key>` behind the prefix, so that all of a sale's keys
//! share a slot and every generation has keys of its own. The empty name stands in each of them: an
//! empty key does not exist in Redis, and a key that was lost is told from an empty one.
//!
//! A hold is the line `order item units seq epoch reserved-at retake-of trace` with `-` for nothing.
//! The user never stands in it, so that no user id can imitate a field.

mod packed;
mod scripts;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use async_trait::async_trait;
use redis::{Cmd, Value};
use uuid::Uuid;

use super::{
    AdjustOutcome, BeginLoadOutcome, BucketId, FinishOutcome, HolderPage, Level, LoadOutcome, LoadPage,
    ReadBack, ReleaseOutcome, ReserveOutcome, ReserveRequest, Stock,
};
use crate::clock::Timestamp;
use crate::fault::{BackendError, Fault, Layer};
use crate::order::{Epoch, ItemId, OrderId, Reservation, UserId};
use crate::redis_links::{Links, RedisClock, RedisOptions, Script};
use crate::sale::{LoaderToken, Terms};
use crate::told::Told;
use packed::{Shape, hold_text, order_text};

/// What Redis replied, or why it did not.
type Reply = Result<Value, BackendError>;

/// The keys of a sale that closed are removed this long after its window.
const KEPT_AFTER_CLOSING: Duration = Duration::from_secs(30 * 24 * 3600);

/// Most outbox entries of one listing: more than there can be, and a number that Redis takes.
const OUTBOX_MAX: usize = 1_000_000_000;

/// The stock in Redis. Give it to every thread: each thread that calls it has a connection of its
/// own, which lives on that thread's runtime.
pub struct RedisStock {
    links: Links,
    prefix: String,
    clock: RedisClock,
    /// Per bucket, the highest step that this process has seen.
    seen: RwLock<HashMap<BucketId, Arc<AtomicU64>>>,
    went_back_told: Told,
    written_over_told: Told,
}

impl RedisStock {
    /// Reaches the server and checks that it keeps what it is given.
    ///
    /// # Errors
    /// When it cannot be reached, refuses the login, is too old, or may evict keys; the message says
    /// what to do.
    pub async fn connect(options: RedisOptions) -> Result<Self, BackendError> {
        let links = Links::new(Layer::Stock, &options)?;
        links.check().await?;
        Ok(Self {
            links,
            prefix: options.prefix,
            clock: options.clock,
            seen: RwLock::default(),
            went_back_told: Told::default(),
            written_over_told: Told::default(),
        })
    }

    fn key(&self, bucket: BucketId, name: &str) -> String {
        format!("{}{{s{}.0}}:{}:{name}", self.prefix, bucket.sale, bucket.epoch.0)
    }

    /// Runs a script on the bucket's keys. A bucket of which somebody wrote over a key counts as
    /// missing, and the reply is nothing: a script looks at every key before it writes to one.
    async fn run(
        &self,
        script: &'static Script,
        bucket: BucketId,
        arguments: &[Vec<u8>],
    ) -> Result<Value, BackendError> {
        let keys = ["cfg", "stk", "alc", "buy", "out", "gone", "ops"].map(|name| self.key(bucket, name));
        self.unless_written_over(bucket, self.links.run(script, &keys, arguments).await)
    }

    fn now(&self) -> Vec<u8> {
        match &self.clock {
            RedisClock::Server => Vec::new(),
            RedisClock::Given(clock) => text(clock.now().as_ms()),
        }
    }

    /// When a bucket's keys may go; nothing when the server does not go by its own clock.
    fn expiry(&self, terms: &Terms) -> Vec<u8> {
        match &self.clock {
            RedisClock::Server => text(terms.closes_at.plus(KEPT_AFTER_CLOSING).as_ms()),
            RedisClock::Given(_) => Vec::new(),
        }
    }

    fn seen(&self, bucket: BucketId) -> Arc<AtomicU64> {
        if let Some(seen) = self.seen.read().unwrap_or_else(PoisonError::into_inner).get(&bucket) {
            return Arc::clone(seen);
        }
        let mut seen = self.seen.write().unwrap_or_else(PoisonError::into_inner);
        // Of each sale, two generations: the present one, and the last that calls may still be on.
        seen.retain(|id, _| id.sale != bucket.sale || id.epoch.0 + 1 >= bucket.epoch.0);
        Arc::clone(seen.entry(bucket).or_default())
    }

    /// Notes the steps that a reply shows: the last one that its call found, and the last one it left.
    /// `known` is what was known when the call was sent. A call that found a lower step met a server
    /// that went back, to a snapshot or a replica that was behind. (What it left says nothing: it may
    /// have taken more steps than were lost.) Such a bucket is stopped at once, and the rebuilder finds
    /// it so.
    async fn note_seq(
        &self,
        bucket: BucketId,
        known: u64,
        (found, left): (u64, u64),
    ) -> Result<bool, BackendError> {
        if found >= known {
            self.seen(bucket).fetch_max(left, Ordering::Relaxed);
            return Ok(true);
        }
        if self.went_back_told.due(1).is_some() {
            tracing::error!(
                sale.id = %bucket.sale, epoch = bucket.epoch.0, found, known,
                "the stock went back to an earlier state (a failover to a stale replica, or an old snapshot): \
                 stopping it; it is rebuilt from the ledger"
            );
        }
        self.fence(bucket).await?;
        Ok(false)
    }

    /// Nothing instead of the error that says that a key has another type than we gave it.
    fn unless_written_over(&self, bucket: BucketId, reply: Reply) -> Reply {
        match reply {
            Err(error) if error.fault == Fault::Permanent && error.chain().contains("WRONGTYPE") => {
                if let Some(calls) = self.written_over_told.due(1) {
                    tracing::error!(
                        error = error.chain(), sale.id = %bucket.sale, epoch = bucket.epoch.0, calls,
                        "somebody wrote over a key of the stock, which counts as missing now; it is rebuilt from the ledger"
                    );
                }
                Ok(Value::Nil)
            }
            reply => reply,
        }
    }

    /// Drops the contents of generations that are over. What a crash leaves of them costs memory only.
    async fn retire_before(&self, bucket: BucketId) {
        for epoch in (1..bucket.epoch.0).rev() {
            let old = BucketId { epoch: Epoch(epoch), ..bucket };
            match self.run(&scripts::FENCE, old, &[b"retire".to_vec()]).await {
                Ok(Value::Int(1)) => {}
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(
                        error = error.chain(),
                        "an old generation of a stock could not be emptied"
                    );
                    return;
                }
            }
        }
    }
}

fn text(value: impl std::fmt::Display) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn terms_arguments(terms: &Terms) -> [Vec<u8>; 4] {
    [text(terms.state), text(terms.opens_at.as_ms()), text(terms.closes_at.as_ms()), text(terms.limit.0)]
}

/// A reply that no script of ours gives.
fn strange(what: &str, value: &Value) -> BackendError {
    let text = format!("{what}: unexpected reply {value:?}");
    BackendError::new(Layer::Stock, Fault::Permanent, text.chars().take(300).collect::<String>())
}

#[async_trait]
impl Stock for RedisStock {
    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Result<BeginLoadOutcome, BackendError> {
        let [state, opens, closes, limit] = terms_arguments(terms);
        let arguments = [text(token.0), state, opens, closes, limit];
        let reply = self.run(&scripts::BEGIN_LOAD, bucket, &arguments).await?;
        match packed::word(&reply) {
            "STARTED" => Ok(BeginLoadOutcome::Started),
            "OPEN" => Ok(BeginLoadOutcome::AlreadyOpen),
            "FENCED" => Ok(BeginLoadOutcome::Fenced),
            _ => Err(strange("begin a load", &reply)),
        }
    }

    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Result<LoadOutcome, BackendError> {
        let mut arguments = vec![text(token.0), text(page)];
        match contents {
            LoadPage::Items(items) => {
                arguments.push(b"items".to_vec());
                arguments.extend(items.iter().flat_map(|(item, quantity)| [text(item), text(quantity)]));
            }
            LoadPage::Holds(holds) => {
                arguments.push(b"holds".to_vec());
                arguments.extend(
                    holds.iter().flat_map(|it| [it.user.as_bytes().to_vec(), hold_text(it).into_bytes()]),
                );
            }
            LoadPage::Closed(orders) => {
                arguments.push(b"closed".to_vec());
                arguments.extend(orders.iter().map(|order| order_text(*order).into_bytes()));
            }
        }
        let reply = self.run(&scripts::LOAD, bucket, &arguments).await?;
        match packed::word(&reply) {
            "LOADED" => Ok(LoadOutcome::Loaded),
            _ if reply == Value::Nil => Ok(LoadOutcome::NotLoader),
            "NOT_LOADER" => Ok(LoadOutcome::NotLoader),
            "REFUSED" => Ok(LoadOutcome::Refused),
            _ => Err(strange("load a page", &reply)),
        }
    }

    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Result<FinishOutcome, BackendError> {
        let expiry = match self.level(bucket).await? {
            Some(level) => self.expiry(&level.terms),
            None => return Ok(FinishOutcome::NotLoader),
        };
        let arguments = [text(token.0), text(read_back.seq), text(read_back.pages), expiry];
        let reply = self.run(&scripts::FINISH_LOAD, bucket, &arguments).await?;
        match packed::word(&reply) {
            "OPEN" => {
                self.retire_before(bucket).await;
                Ok(FinishOutcome::Open)
            }
            "NOT_LOADER" => Ok(FinishOutcome::NotLoader),
            _ if reply == Value::Nil => Ok(FinishOutcome::NotLoader),
            "CHANGED" => Ok(FinishOutcome::Changed),
            _ => Err(strange("open a loaded stock", &reply)),
        }
    }

    async fn fence(&self, bucket: BucketId) -> Result<(), BackendError> {
        self.run(&scripts::FENCE, bucket, &[Vec::new()]).await.map(|_| ())
    }

    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Result<bool, BackendError> {
        let [state, opens, closes, limit] = terms_arguments(terms);
        let arguments = [state, opens, closes, limit, self.expiry(terms)];
        match self.run(&scripts::SET_TERMS, bucket, &arguments).await? {
            Value::Int(set) => Ok(set == 1),
            Value::Nil => Ok(false),
            reply => Err(strange("set a sale's terms", &reply)),
        }
    }

    async fn reserve(
        &self,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Result<Vec<ReserveOutcome>, BackendError> {
        let shape = Shape::of(requests);
        let arguments = shape.arguments(self.now(), bucket, requests);
        let known = self.seen(bucket).load(Ordering::Relaxed);
        let reply = self.run(&scripts::RESERVE, bucket, &arguments).await?;
        if reply == Value::Nil {
            return Ok(vec![ReserveOutcome::NotLoaded; requests.len()]);
        }
        let replies = packed::ReserveReplies::read(&reply).ok_or_else(|| strange("reserve", &reply))?;
        if let Some(found) = replies.found
            && !self.note_seq(bucket, known, (found, replies.seq)).await?
        {
            let what =
                "the stock went back to an earlier state; what this call took is settled by the rebuild";
            return Err(BackendError::new(Layer::Stock, Fault::Ambiguous, what));
        }
        replies.outcomes(bucket, requests).ok_or_else(|| strange("reserve", &reply))
    }

    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Result<(), BackendError> {
        if orders.is_empty() {
            return Ok(());
        }
        let mut command = redis::cmd("ZREM");
        command.arg(self.key(bucket, "out"));
        for (order, user) in orders {
            command.arg(format!("{}{user}", order_text(*order)));
        }
        self.unless_written_over(bucket, self.links.query("confirm orders", &command).await).map(|_| ())
    }

    async fn release(
        &self,
        bucket: BucketId,
        orders: &[(OrderId, UserId)],
    ) -> Result<Vec<ReleaseOutcome>, BackendError> {
        if orders.is_empty() {
            return Ok(Vec::new());
        }
        let arguments: Vec<Vec<u8>> = orders
            .iter()
            .flat_map(|(order, user)| [order_text(*order).into_bytes(), user.as_bytes().to_vec()])
            .collect();
        let known = self.seen(bucket).load(Ordering::Relaxed);
        let reply = self.run(&scripts::RELEASE, bucket, &arguments).await?;
        if reply == Value::Nil {
            return Ok(vec![ReleaseOutcome::NotNow; orders.len()]);
        }
        let Some((first, rest)) = packed::split(&reply) else { return Err(strange("release", &reply)) };
        let Value::Int(_) = first else {
            return Ok(vec![ReleaseOutcome::NotNow; orders.len()]);
        };
        let steps = packed::number(first).zip(rest.first().and_then(packed::number));
        let (Some(steps), Some(rest)) = (steps, rest.get(1..).filter(|it| it.len() == orders.len())) else {
            return Err(strange("release", &reply));
        };
        if !self.note_seq(bucket, known, steps).await? {
            return Ok(vec![ReleaseOutcome::NotNow; orders.len()]);
        }
        let outcome = |value: &Value| match packed::word(value) {
            "RELEASED" => ReleaseOutcome::Released,
            _ => ReleaseOutcome::NotHeld,
        };
        Ok(rest.iter().map(outcome).collect())
    }

    async fn adjust(
        &self,
        bucket: BucketId,
        operation: Uuid,
        item: ItemId,
        units: i64,
    ) -> Result<AdjustOutcome, BackendError> {
        let arguments = [text(operation.simple()), text(item), text(units)];
        let reply = self.run(&scripts::ADJUST, bucket, &arguments).await?;
        if reply == Value::Nil {
            return Ok(AdjustOutcome::NotNow);
        }
        let Some((first, rest)) = packed::split(&reply) else { return Err(strange("adjust", &reply)) };
        match (packed::word(first), rest.first().and_then(packed::number)) {
            ("APPLIED", _) => Ok(AdjustOutcome::Applied),
            ("NOT_NOW", _) => Ok(AdjustOutcome::NotNow),
            ("LEFT", Some(left)) => Ok(AdjustOutcome::NotEnough { left }),
            _ => Err(strange("adjust", &reply)),
        }
    }

    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Reservation>, BackendError> {
        let limit = limit.min(OUTBOX_MAX);
        let reply = self.run(&scripts::UNCONFIRMED, bucket, &[text(before.as_ms()), text(limit)]).await?;
        let fields = match &reply {
            Value::Nil => return Ok(Vec::new()),
            Value::Array(fields) => fields,
            _ => return Err(strange("read the outbox", &reply)),
        };
        let entry = |pair: &[Value]| packed::hold(bucket.sale, pair.first()?, pair.get(1)?);
        fields.chunks(2).map(|pair| entry(pair).ok_or_else(|| strange("read the outbox", &reply))).collect()
    }

    async fn holds_of(
        &self,
        bucket: BucketId,
        user: &UserId,
    ) -> Result<Option<Vec<(Reservation, bool)>>, BackendError> {
        let reply = self.run(&scripts::HOLDS_OF, bucket, &[user.as_bytes().to_vec()]).await?;
        let fields = match &reply {
            Value::Nil => return Ok(None),
            Value::Array(fields) => fields,
            _ => return Err(strange("read a user's holds", &reply)),
        };
        let entry = |pair: &[Value]| {
            let hold = packed::hold_of(bucket.sale, user.clone(), packed::word(pair.get(1)?))?;
            Some((hold, pair.first()? == &Value::Int(1)))
        };
        let holds = fields.chunks(2).map(entry).collect::<Option<_>>();
        holds.map(Some).ok_or_else(|| strange("read a user's holds", &reply))
    }

    async fn holders(
        &self,
        bucket: BucketId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<HolderPage, BackendError> {
        let mut command: Cmd = redis::cmd("HSCAN");
        command.arg(self.key(bucket, "buy")).arg(cursor.unwrap_or("0")).arg("COUNT").arg(limit.max(1));
        let reply = self.links.query("list the holders", &command).await?;
        packed::holder_page(bucket.sale, &reply).ok_or_else(|| strange("list the holders", &reply))
    }

    async fn level(&self, bucket: BucketId) -> Result<Option<Level>, BackendError> {
        let known = self.seen(bucket).load(Ordering::Relaxed);
        let reply = self.run(&scripts::LEVEL, bucket, &[self.now()]).await?;
        if reply == Value::Nil {
            return Ok(None);
        }
        let mut level = packed::level(&reply).ok_or_else(|| strange("read the stock's level", &reply))?;
        if !level.loading && !level.fenced {
            level.fenced = !self.note_seq(bucket, known, (level.seq, level.seq)).await?;
        }
        Ok(Some(level))
    }
}
