//! The gate: the cheapest check first, so that 98 % of requests end here without crypto, network
//! or allocation.
//!
//! Which refusal wins, in this order: no such item, no token, outside the window, flagged sold out,
//! not taking orders, bad access token, not taking orders of this level, too often, not eligible (blocked,
//! strikes, region), before the time of this level, sale token missing or bad, bad request. An address whose bad tokens are
//! too many hears "too often" for each that would have to be checked by a public key.

mod address;
mod barred;
mod block_list;
mod captcha;
mod eligibility;
mod issuing;
mod jwt;
mod limits;
mod place;
mod rooms;
mod sale_token;
mod sold_out;
mod waiting;
mod winners;

pub use address::Caller;
pub use barred::Barred;
pub use block_list::BlockList;
pub use captcha::{CaptchaRules, Challenge, solve};
pub use eligibility::{Ineligible, Visitor};
pub use issuing::{CaptchaAnswer, IssuedToken, NotIssued};
pub use jwt::{
    BadToken, JwtAlgorithm, JwtKey, JwtKeys, JwtRules, JwtVerifier, NotAnAlgorithm, ProfileClaims, ReadJwks,
    UnusableKey,
};

pub use limits::{LimitOptions, Limits, Rate, Rates, TooOften};
pub use rooms::{RoomState, Rooms};
pub use sale_token::{
    BadSaleToken, SALE_TOKEN_PREFIX, SaleToken, SaleTokenRules, SaleTokens, WeakSaleSecret,
};

pub use waiting::AtDoor;

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::clock::{Clock, Timestamp};
use crate::member::{Known, Level};
use crate::order::{Epoch, ItemId, Money, OrderId, SaleId, Units, UserId};
use crate::sale::{Catalog, Sale, SaleState};
use crate::switches::Entry;
use sale_token::is_sale_token;
use sold_out::SoldOutFlags;
use winners::Winners;

/// Longest Idempotency-Key, in bytes.
pub const IDEMPOTENCY_KEY_MAX: usize = 128;

/// A purchase request as it came in, before anything is believed.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// From the path.
    pub item: ItemId,
    /// Where the request comes from.
    pub caller: Caller<'a>,
    /// What stands behind `Bearer `, when the request has it.
    pub bearer: Option<&'a [u8]>,
    /// A sale token beside an access token.
    pub sale_token: Option<&'a [u8]>,
    /// The Idempotency-Key header.
    pub idempotency_key: Option<&'a [u8]>,
    /// What the body says; read only by requests that came this far.
    pub wish: Wish,
    /// Trace context to travel with the order.
    pub trace: Option<&'a str>,
}

/// What the body of a purchase says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// A well-formed body, or none.
    Wanted {
        /// Units; 1 when the body does not say.
        quantity: i64,
        /// The price the buyer saw, in minor units.
        expected_price_minor: Option<i64>,
    },
    /// The quantity is not a whole number.
    BadQuantity,
    /// Not a JSON object, or a member of a wrong type.
    Malformed,
}

/// A request that may ask the stock.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The order it will be.
    pub order: OrderId,
    /// Whether the order id comes from an Idempotency-Key, so that a held order is a replay.
    pub keyed: bool,
    /// Who buys, from a verified token.
    pub user: UserId,
    /// The sale.
    pub sale: SaleId,
    /// The sale's epoch as the gateway knows it.
    pub epoch: Epoch,
    /// Most units per user.
    pub limit: Units,
    /// The item.
    pub item: ItemId,
    /// Units wanted.
    pub units: Units,
    /// Price of one unit.
    pub price: Money,
    /// Trace context to travel with the order.
    pub trace: Option<String>,
}

/// Why the gate lets a request go no further.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such item.
    ItemNotFound,
    /// No token was sent.
    NoToken,
    /// The sale has not begun.
    NotStarted {
        /// When it does.
        opens_at: Timestamp,
        /// Milliseconds until then, by the stock's clock as far as it is known.
        starts_in_ms: u64,
    },
    /// The sale is over.
    Ended,
    /// Nothing was free within the flag's life.
    SoldOut,
    /// The sale's stock is not loaded or fenced, or selling is paused.
    NotReady,
    /// Something behind the gate is down or too far behind.
    Busy,
    /// Something is falling behind, and orders of nearer users are taken first.
    Shed(Level),
    /// The token is not good.
    BadToken(BadToken),
    /// The user or the address comes too often.
    TooOften(TooOften),
    /// The user may not buy in this sale.
    NotEligible(Ineligible),
    /// The sale has begun, and the time of the user's level has not come.
    NotYet {
        /// When it does.
        opens_at: Timestamp,
        /// Milliseconds until then, by the stock's clock as far as it is known.
        starts_in_ms: u64,
    },
    /// The sale needs a sale token.
    SaleTokenRequired,
    /// The sale needs a sale token whose user was let in from the waiting room.
    RoomRequired(SaleId),
    /// The sale needs a sale token whose user has passed the captcha.
    CaptchaRequired,
    /// The sale token is forged, of another sale, or not of this time.
    BadSaleToken,
    /// The sale token is another user's than the access token.
    SaleTokenMismatch,
    /// The body or a header is malformed.
    InvalidRequest,
    /// The quantity is not in 1..=limit.
    InvalidQuantity {
        /// Most units per user.
        limit: Units,
    },
    /// With a limit above one, a repeated click would be a second order.
    IdempotencyKeyRequired,
    /// The price the buyer saw is not the price.
    PriceChanged {
        /// The price of one unit.
        price: Money,
    },
}

/// Why nobody is known to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdmitted {
    /// The token is not good.
    BadToken(BadToken),
    /// The user or the address comes too often.
    TooOften(TooOften),
}

/// Whether a sale is between its opening and its end.
fn within_window(sale: &Sale, stock_now: Timestamp) -> Result<(), Refusal> {
    if stock_now >= sale.terms.closes_at || sale.terms.state == SaleState::Closed {
        return Err(Refusal::Ended);
    }
    if stock_now < sale.terms.opens_at {
        let opens_at = sale.terms.opens_at;
        return Err(Refusal::NotStarted { opens_at, starts_in_ms: ms_between(stock_now, opens_at) });
    }
    Ok(())
}

fn ms_between(earlier: Timestamp, later: Timestamp) -> u64 {
    u64::try_from(later.since(earlier).as_millis()).unwrap_or(u64::MAX)
}

/// What a good sale token says of the way to it.
#[derive(Clone, Copy)]
struct Passed {
    captcha: bool,
    let_in: bool,
}

impl From<BadToken> for NotAdmitted {
    fn from(bad: BadToken) -> Self {
        Self::BadToken(bad)
    }
}

impl From<NotAdmitted> for Refusal {
    fn from(not: NotAdmitted) -> Self {
        match not {
            NotAdmitted::BadToken(bad) => Self::BadToken(bad),
            NotAdmitted::TooOften(limited) => Self::TooOften(limited),
        }
    }
}

/// One core's gate. Flags and winners are the core's own; what cores share (keys, limits, good tokens) has no
/// lock, or one for each of many thousand places.
pub struct Gate {
    catalog: Arc<ArcSwap<Catalog>>,
    tokens: Arc<JwtVerifier>,
    sale_tokens: Arc<SaleTokens>,
    limits: Arc<Limits>,
    barred: Arc<Barred>,
    rooms: Arc<Rooms>,
    clock: Arc<dyn Clock>,
    flags: SoldOutFlags,
    winners: Winners,
    ids: crate::order::OrderIds,
}

/// What all gates of a process share.
#[derive(Clone)]
pub struct GateParts {
    /// All sales, kept fresh by the watch.
    pub catalog: Arc<ArcSwap<Catalog>>,
    /// Verifies access tokens.
    pub tokens: Arc<JwtVerifier>,
    /// Makes and verifies sale tokens.
    pub sale_tokens: Arc<SaleTokens>,
    /// How often addresses and users may come.
    pub limits: Arc<Limits>,
    /// Who may not buy any more, kept fresh by the doorman.
    pub barred: Arc<Barred>,
    /// The waiting rooms, kept fresh by the usher.
    pub rooms: Arc<Rooms>,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

impl Gate {
    /// One core's gate over what all share.
    pub fn new(parts: GateParts) -> Self {
        let GateParts { catalog, tokens, sale_tokens, limits, barred, rooms, clock } = parts;
        Self {
            catalog,
            tokens,
            sale_tokens,
            limits,
            barred,
            rooms,
            clock,
            flags: SoldOutFlags::default(),
            winners: Winners::default(),
            ids: crate::order::OrderIds::new(),
        }
    }

    /// Decides whether a request may ask the stock. `taking` says from which level on the stages behind the gate
    /// take orders now, if they take any; it is asked only by requests that are not refused more cheaply.
    ///
    /// # Errors
    /// The [`Refusal`] that wins.
    pub fn admit(
        &self,
        attempt: &Attempt<'_>,
        taking: impl FnOnce() -> Option<Level>,
    ) -> Result<Claim, Refusal> {
        let catalog = self.catalog.load();
        let sale = catalog.sale_of(attempt.item).ok_or(Refusal::ItemNotFound)?;
        let bearer = attempt.bearer.ok_or(Refusal::NoToken)?;
        // By the stock's clock as far as it is known: a gateway whose own clock is wrong says the same as the others.
        let stock_now = self.clock.now().ahead_by(catalog.stock_ahead_ms());
        within_window(sale, stock_now)?;
        let flagged = self.flags.is_sold_out(attempt.item, self.clock.monotonic());
        if flagged && !self.winners.may_include(sale.id, bearer) {
            return Err(Refusal::SoldOut);
        }
        if sale.terms.state != SaleState::Open || sale.fence.is_some() {
            return Err(Refusal::NotReady);
        }
        let taken_from = taking().ok_or(Refusal::Busy)?;
        let address = self.limits.address(attempt.caller);
        let (client, now) = (self.limits.client(address), self.clock.monotonic());
        let (known, passed) = match self.identify(bearer, (sale.id, stock_now), client, flagged) {
            Ok((known, passed)) => (self.placed(known, attempt.caller), passed),
            // It names a holder. A forged one learns nothing about who bought, not even by a limit.
            Err(_) if flagged => return Err(Refusal::SoldOut),
            Err(refusal) => return Err(refusal),
        };
        let (level, switches) = (known.profile.level, catalog.switches());
        if level < taken_from {
            return Err(Refusal::Shed(level));
        }
        self.limits.click(client, &known.user, now).map_err(Refusal::TooOften)?;
        self.eligible(switches, sale.id, &known, address).map_err(Refusal::NotEligible)?;
        self.in_turn(switches, sale, level, stock_now)?;
        let sale_token = (passed, attempt.sale_token);
        self.enter(switches.entry(sale.id), &known.user, sale_token, (sale.id, stock_now))?;
        self.claim(attempt, sale, known.user)
    }

    /// Who buys, by an access token or by a sale token in its place; and what the latter says.
    fn identify(
        &self,
        bearer: &[u8],
        (sale, stock_now): (SaleId, Timestamp),
        client: Option<IpAddr>,
        flagged: bool,
    ) -> Result<(Known, Option<Passed>), Refusal> {
        if !is_sale_token(bearer) {
            return Ok((self.verify(bearer, client, flagged)?, None));
        }
        let mut room = sale_token::ROOM;
        match self.sale_tokens.verify(bearer, sale, stock_now, &mut room) {
            Ok(holder) => {
                let user = UserId::new(holder.user).map_err(|_| Refusal::BadSaleToken)?;
                let known = Known { user, profile: holder.profile };
                Ok((known, Some(Passed { captcha: holder.captcha, let_in: holder.let_in })))
            }
            Err(BadSaleToken) if flagged => Err(Refusal::BadSaleToken),
            // Too often comes before what is wrong with it, as with everything behind a 401.
            Err(BadSaleToken) => {
                self.limits.stranger(client, self.clock.monotonic()).map_err(Refusal::TooOften)?;
                Err(Refusal::BadSaleToken)
            }
        }
    }

    /// Whether somebody has what the sale requires beside an access token.
    fn enter(
        &self,
        required: Entry,
        user: &UserId,
        (passed, beside): (Option<Passed>, Option<&[u8]>),
        (sale, stock_now): (SaleId, Timestamp),
    ) -> Result<(), Refusal> {
        let waits = self.rooms.is_needed(sale, required.room);
        if !required.token && !waits {
            return Ok(());
        }
        let passed = match passed {
            Some(passed) => passed,
            None => {
                let missing = || if waits { Refusal::RoomRequired(sale) } else { Refusal::SaleTokenRequired };
                let token = beside.ok_or_else(missing)?;
                let mut room = sale_token::ROOM;
                let holder = self.sale_tokens.verify(token, sale, stock_now, &mut room);
                let holder = holder.map_err(|BadSaleToken| Refusal::BadSaleToken)?;
                if holder.user != user.as_str() {
                    return Err(Refusal::SaleTokenMismatch);
                }
                Passed { captcha: holder.captcha, let_in: holder.let_in }
            }
        };
        if waits && !passed.let_in {
            return Err(Refusal::RoomRequired(sale));
        }
        if required.captcha && !passed.captcha { Err(Refusal::CaptchaRequired) } else { Ok(()) }
    }

    /// Who a token belongs to, and what it says of them. Whoever sends many that are not good costs no more signature checks.
    fn verify(&self, bearer: &[u8], client: Option<IpAddr>, flagged: bool) -> Result<Known, NotAdmitted> {
        let (now, checked) = (self.clock.monotonic(), Cell::new(false));
        let verified = self.tokens.verify_if(bearer, self.clock.now(), || {
            self.limits.may_check(client, flagged, now).map_err(NotAdmitted::TooOften)?;
            checked.set(true);
            Ok(())
        });
        if verified.is_err() && checked.get() {
            self.limits.note_bad_token(client, flagged, now);
        }
        verified
    }

    fn claim(&self, attempt: &Attempt<'_>, sale: &Sale, user: UserId) -> Result<Claim, Refusal> {
        let item = sale.item(attempt.item).ok_or(Refusal::ItemNotFound)?;
        let limit = sale.terms.limit;
        let (quantity, expected) = match attempt.wish {
            Wish::Wanted { quantity, expected_price_minor } => (quantity, expected_price_minor),
            Wish::BadQuantity => return Err(Refusal::InvalidQuantity { limit }),
            Wish::Malformed => return Err(Refusal::InvalidRequest),
        };
        let units = u32::try_from(quantity).ok().filter(|units| (1..=limit.0).contains(units));
        let units = units.map(Units).ok_or(Refusal::InvalidQuantity { limit })?;
        let key = attempt.idempotency_key;
        if key.is_some_and(|key| !(1..=IDEMPOTENCY_KEY_MAX).contains(&key.len())) {
            return Err(Refusal::InvalidRequest);
        }
        if limit > Units(1) && key.is_none() {
            return Err(Refusal::IdempotencyKeyRequired);
        }
        if expected.is_some_and(|expected| expected != item.price.minor) {
            return Err(Refusal::PriceChanged { price: item.price });
        }

        let order = match key {
            Some(key) => OrderId::derived(sale.id, &user, key),
            None => self.ids.next(self.clock.now()),
        };
        Ok(Claim {
            order,
            keyed: key.is_some(),
            user,
            sale: sale.id,
            epoch: sale.epoch,
            limit,
            item: item.id,
            units,
            price: item.price,
            trace: attempt.trace.map(str::to_owned),
        })
    }

    /// Who asks for something else than a purchase, to look at or, with `changes`, to change something; and where
    /// from, as far as a token or a proxy says.
    ///
    /// # Errors
    /// [`NotAdmitted`] when the token is not good now, or the user or the address comes too often.
    pub fn authenticate(
        &self,
        bearer: &[u8],
        caller: Caller<'_>,
        changes: bool,
    ) -> Result<Visitor, NotAdmitted> {
        let address = self.limits.address(caller);
        let known = self.verify(bearer, self.limits.client(address), false)?;
        self.limits.other(&known.user, changes, self.clock.monotonic()).map_err(NotAdmitted::TooOften)?;
        Ok(Visitor { known: self.placed(known, caller), address })
    }

    /// The stock said at its step `seq` that an item has nothing free. Answers whether the list of the
    /// sale's holders is to be read anew.
    pub(crate) fn note_sold_out(&self, sale: SaleId, item: ItemId, seq: u64) -> bool {
        let now = self.clock.monotonic();
        self.flags.set(item, now);
        self.winners.is_due(sale, seq, now)
    }

    /// The stock said that an item has something free.
    pub(crate) fn note_free(&self, item: ItemId) {
        self.flags.clear(item);
    }

    /// The stock said that this user holds units of the sale.
    pub(crate) fn note_holder(&self, sale: SaleId, user: &UserId) {
        self.winners.add(sale, user.clone());
    }

    /// Everybody who holds units of the sale, as read from the stock.
    pub(crate) fn replace_holders(&self, sale: SaleId, users: Vec<UserId>) {
        self.winners.replace(sale, users);
    }
}
