//! An order and the values it is made of.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::clock::Timestamp;

macro_rules! integer_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub i64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidValue;

            /// Takes `1` to `9223372036854775807` without sign, blanks or leading zeros.
            fn from_str(text: &str) -> Result<Self, InvalidValue> {
                let plain = text.bytes().all(|byte| byte.is_ascii_digit());
                if !plain || text.starts_with('0') {
                    return Err(InvalidValue("an id is a whole number from 1 to 9223372036854775807"));
                }
                text.parse().map($name).map_err(|_| {
                    InvalidValue("an id is a whole number from 1 to 9223372036854775807")
                })
            }
        }
    };
}

integer_id! {
    /// Names a sale.
    SaleId
}
integer_id! {
    /// Names an item of a sale; unique over all sales.
    ItemId
}

/// A value that cannot be what its text says, in words for the person who sent it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidValue(pub &'static str);

/// Names an order from the click to the ledger row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OrderId(pub Uuid);

impl OrderId {
    /// The id that one user's Idempotency-Key always yields in one sale: UUIDv8 of SHA-256 over
    /// the length-prefixed sale, user and key, so that no two triples share their bytes.
    pub fn derived(sale: SaleId, user: &UserId, key: &[u8]) -> Self {
        let mut hash = Sha256::new();
        for part in [&sale.0.to_be_bytes()[..], user.as_bytes(), key] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let digest = hash.finalize();
        let mut bytes = [0_u8; 16];
        bytes.copy_from_slice(&digest[..16]);
        Self(Uuid::new_v8(bytes))
    }
}

impl fmt::Display for OrderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OrderId {
    type Err = InvalidValue;

    /// Takes the hyphenated form of 36 characters only.
    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let error = InvalidValue("an order id is a UUID such as 0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e");
        if text.len() != 36 {
            return Err(error);
        }
        Uuid::try_parse(text).map(Self).map_err(|_| error)
    }
}

/// Makes the ids of new orders: UUIDv7, one maker per core, so that no lock is shared.
#[derive(Debug)]
pub struct OrderIds {
    // One core's threads only: never contended.
    context: std::sync::Mutex<uuid::ContextV7>,
}

impl OrderIds {
    /// A maker whose ids grow within this process and core.
    pub fn new() -> Self {
        Self { context: std::sync::Mutex::new(uuid::ContextV7::new()) }
    }

    /// A new id whose time part is `now`.
    pub fn next(&self, now: Timestamp) -> OrderId {
        let ms = u64::try_from(now.as_ms()).unwrap_or(0);
        let nanos = u32::try_from(ms % 1_000).unwrap_or(0) * 1_000_000;
        OrderId(Uuid::new_v7(uuid::Timestamp::from_unix(&self.context, ms / 1_000, nanos)))
    }
}

impl Default for OrderIds {
    fn default() -> Self {
        Self::new()
    }
}

/// Who buys: the `sub` of a verified token, opaque, 1 to 128 bytes, compared byte for byte.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserId(Arc<str>);

impl UserId {
    /// The most bytes an id may have.
    pub const MAX_BYTES: usize = 128;

    /// The id's bytes, as the ledger stores them.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Takes 1 to 128 bytes of text without control characters.
    ///
    /// # Errors
    /// [`InvalidValue`] for anything else.
    pub fn new(text: &str) -> Result<Self, InvalidValue> {
        let fits = (1..=Self::MAX_BYTES).contains(&text.len());
        if !fits || text.chars().any(char::is_control) {
            return Err(InvalidValue("a user id has 1 to 128 bytes and no control characters"));
        }
        Ok(Self(Arc::from(text)))
    }
}

impl TryFrom<String> for UserId {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        Self::new(&text)
    }
}

impl From<UserId> for String {
    fn from(user: UserId) -> Self {
        user.0.as_ref().to_owned()
    }
}

impl std::borrow::Borrow<str> for UserId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How many units an order claims: 1 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Units(pub u32);

/// A currency by its ISO 4217 code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Currency([u8; 3]);

impl Currency {
    /// The code, such as `EUR`.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or("XXX")
    }

    /// How many decimal digits the minor unit has below the major one.
    pub fn digits(self) -> usize {
        match &self.0 {
            b"BIF" | b"CLP" | b"DJF" | b"GNF" | b"ISK" | b"JPY" | b"KMF" | b"KRW" | b"PYG" | b"RWF"
            | b"UGX" | b"VND" | b"VUV" | b"XAF" | b"XOF" | b"XPF" => 0,
            b"BHD" | b"IQD" | b"JOD" | b"KWD" | b"LYD" | b"OMR" | b"TND" => 3,
            _ => 2,
        }
    }
}

impl FromStr for Currency {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        match <[u8; 3]>::try_from(text.as_bytes()) {
            Ok(code) if code.iter().all(u8::is_ascii_uppercase) => Ok(Self(code)),
            _ => Err(InvalidValue("a currency is an ISO 4217 code of three capitals, such as EUR")),
        }
    }
}

impl TryFrom<String> for Currency {
    type Error = InvalidValue;

    fn try_from(text: String) -> Result<Self, InvalidValue> {
        text.parse()
    }
}

impl From<Currency> for String {
    fn from(currency: Currency) -> Self {
        currency.as_str().to_owned()
    }
}

/// An amount of money in minor units of a currency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Money {
    /// Minor units, such as cents.
    pub minor: i64,
    /// The currency.
    pub currency: Currency,
}

impl Money {
    /// This amount for each of `units`, at most the largest representable amount.
    #[must_use]
    pub fn times(self, units: Units) -> Self {
        Self { minor: self.minor.saturating_mul(i64::from(units.0)), ..self }
    }

    /// Decimal text in the major unit, such as `19.90`.
    pub fn decimal(self) -> String {
        let digits = self.currency.digits();
        let sign = if self.minor < 0 { "-" } else { "" };
        let text = format!("{:0width$}", self.minor.unsigned_abs(), width = digits + 1);
        let (major, minor) = text.split_at(text.len() - digits);
        if digits == 0 { format!("{sign}{major}") } else { format!("{sign}{major}.{minor}") }
    }
}

/// One generation of a sale's stock; 0 before the first preheat.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// What the reserve step took, with every field its message needs that differs per order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reservation {
    /// The order that holds the units.
    pub order: OrderId,
    /// Its sale.
    pub sale: SaleId,
    /// The share of the stock it came from; always 0 for now.
    pub bucket: u16,
    /// The item.
    pub item: ItemId,
    /// The user.
    pub user: UserId,
    /// The units taken.
    pub units: Units,
    /// The generation of the stock that was asked.
    pub epoch: Epoch,
    /// The step of that generation that took them; distinct within an epoch. 0 for what never held any: a
    /// retake that the stock refused.
    pub seq: u64,
    /// When, by the stock's clock.
    pub reserved_at: Timestamp,
    /// W3C trace context of the request, when it was sampled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// The expired order that a late payment buys again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retake_of: Option<OrderId>,
}

impl Reservation {
    /// Whether a step of the stock took its units.
    pub fn has_step(&self) -> bool {
        self.seq != 0
    }
}

/// The message in the queue: a reservation and the price it was made at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderPlaced {
    /// What was taken.
    #[serde(flatten)]
    pub reservation: Reservation,
    /// The price of one unit.
    pub price: Money,
}

/// Where an order stands in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OrderStatus {
    /// Recorded and not yet paid.
    Pending,
    /// Paid.
    Paid,
    /// Not paid in time; the units went back.
    Expired,
    /// Cancelled by its user before paying; the units went back.
    Cancelled,
    /// Refused by the ledger.
    Rejected,
    /// Paid and given back; the units went back.
    Refunded,
}

impl OrderStatus {
    /// Every status.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Paid, Self::Expired, Self::Cancelled, Self::Rejected, Self::Refunded];

    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Paid => "PAID",
            Self::Expired => "EXPIRED",
            Self::Cancelled => "CANCELLED",
            Self::Rejected => "REJECTED",
            Self::Refunded => "REFUNDED",
        }
    }

    /// Whether the order has its units.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Pending | Self::Paid)
    }

    /// Whether the ledger may move an order from this status to `next`.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Pending, Self::Paid | Self::Expired | Self::Cancelled) | (Self::Paid, Self::Refunded)
        )
    }
}

impl fmt::Display for OrderStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OrderStatus {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL
            .into_iter()
            .find(|status| status.as_str() == text)
            .ok_or(InvalidValue("not an order status"))
    }
}

/// Why the ledger refused an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejectReason {
    /// The item had no room; only after a stock loss.
    NoStock,
    /// The user had no room; only after a stock loss.
    Limit,
    /// The order's epoch ended before it was recorded.
    StaleEpoch,
    /// The record could not be applied.
    Unreadable,
    /// The stock had nothing for a late payment that was to buy again; no client was promised it.
    RetakeRefused,
}

impl RejectReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::NoStock, Self::Limit, Self::StaleEpoch, Self::Unreadable, Self::RetakeRefused];

    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoStock => "NO_STOCK",
            Self::Limit => "LIMIT",
            Self::StaleEpoch => "STALE_EPOCH",
            Self::Unreadable => "UNREADABLE",
            Self::RetakeRefused => "RETAKE_REFUSED",
        }
    }
}

impl FromStr for RejectReason {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL
            .into_iter()
            .find(|reason| reason.as_str() == text)
            .ok_or(InvalidValue("not a reject reason"))
    }
}

/// One order as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// What was taken and when.
    pub reservation: Reservation,
    /// What is to be paid for all units.
    pub total: Money,
    /// Where it stands.
    pub status: OrderStatus,
    /// Why it was refused; only with [`OrderStatus::Rejected`].
    pub reason: Option<RejectReason>,
    /// Until when a payment may begin.
    pub expires_at: Timestamp,
    /// What decides whether a payment is late; `expires_at`, or later while a provider is asked.
    pub hold_until: Timestamp,
}

impl Order {
    /// Whether a payment may begin at `now`, by the ledger's clock. An order that buys again has its
    /// payment already.
    pub fn payable(&self, now: Timestamp) -> bool {
        self.status == OrderStatus::Pending && now <= self.expires_at && self.reservation.retake_of.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_taken_only_in_their_one_form() {
        assert_eq!("1001".parse(), Ok(ItemId(1001)));
        assert_eq!("9223372036854775807".parse(), Ok(ItemId(i64::MAX)));
        for bad in
            ["", "0", "-1", "+1", "01", "1 ", " 1", "1;DROP", "{1}", "*", "１", "1e3", "9223372036854775808"]
        {
            assert!(bad.parse::<ItemId>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn order_ids_are_hyphenated_uuids() {
        assert!("0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e".parse::<OrderId>().is_ok());
        for bad in ["", "x", "0198c5a47b1e7c3a9d2f3b8f6a1c2d4e", "{0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4}"] {
            assert!(bad.parse::<OrderId>().is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn a_user_id_is_opaque_text_of_one_to_128_bytes() {
        for good in ["1 OR 1=1", "1}{`", "*", "12345678901234567890", "１", "Bob ", &"x".repeat(128)] {
            assert_eq!(UserId::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "\0", "a\nb", "\u{1b}[31m", &"x".repeat(129)] {
            assert!(UserId::new(bad).is_err(), "{bad:?} was taken");
        }
    }

    #[test]
    fn derived_ids_depend_on_every_part_and_not_on_where_it_ends() {
        let user = |text: &str| UserId::new(text).unwrap();
        let one = OrderId::derived(SaleId(1), &user("ab"), b"c");
        assert_eq!(one, OrderId::derived(SaleId(1), &user("ab"), b"c"));
        assert_ne!(one, OrderId::derived(SaleId(1), &user("a"), b"bc"));
        assert_ne!(one, OrderId::derived(SaleId(2), &user("ab"), b"c"));
        assert_eq!(one.0.get_version_num(), 8);
    }

    #[test]
    fn money_is_written_with_its_currencys_digits() {
        let money = |minor, code: &str| Money { minor, currency: code.parse().unwrap() }.decimal();
        assert_eq!(money(1990, "EUR"), "19.90");
        assert_eq!(money(5, "EUR"), "0.05");
        assert_eq!(money(-5, "EUR"), "-0.05");
        assert_eq!(money(1990, "JPY"), "1990");
        assert_eq!(money(1990, "KWD"), "1.990");
    }

    #[test]
    fn terminal_states_are_final() {
        for from in OrderStatus::ALL {
            for to in OrderStatus::ALL {
                let live = from.is_live();
                assert!(live || !from.may_become(to), "{from} may become {to}");
            }
        }
        assert!(!OrderStatus::Paid.may_become(OrderStatus::Expired));
        assert!(!OrderStatus::Paid.may_become(OrderStatus::Cancelled));
    }
}
