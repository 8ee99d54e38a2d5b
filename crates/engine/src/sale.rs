//! A sale, its items, and the snapshot of all sales that a gateway decides by.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Timestamp;
use crate::order::{Epoch, InvalidValue, ItemId, Money, SaleId, Units};
use crate::switches::Switches;

/// Where a sale stands in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SaleState {
    /// Written down; its stock is not loaded.
    Draft,
    /// Its stock is loaded and read back; it waits for its time.
    Preheated,
    /// Selling, between `opens_at` and `closes_at`.
    Open,
    /// Selling is stopped by the staff and may go on.
    Paused,
    /// Over for good.
    Closed,
}

impl SaleState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Draft, Self::Preheated, Self::Open, Self::Paused, Self::Closed];

    /// The word for it, in SQL, JSON and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Draft => "draft",
            Self::Preheated => "preheated",
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Closed => "closed",
        }
    }

    /// Whether the staff or the sale clock may move a sale from this state to `next`.
    /// Draft becomes preheated only by a finished load, never by this.
    pub const fn may_become(self, next: Self) -> bool {
        matches!(
            (self, next),
            (Self::Preheated | Self::Paused, Self::Open)
                | (Self::Open, Self::Paused)
                | (Self::Draft | Self::Preheated | Self::Open | Self::Paused, Self::Closed)
        )
    }
}

impl fmt::Display for SaleState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SaleState {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or(InvalidValue("not a sale state"))
    }
}

/// Why selling is stopped beside the sale's state, and who may lift it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fence {
    /// In words for the staff.
    pub reason: String,
    /// Names the loader that owns the rebuild; only it may load and lift.
    pub token: LoaderToken,
    /// When the owner took it.
    pub since: Timestamp,
}

/// Why a stock is loaded anew, where the product itself found out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RebuildReason {
    /// It was never loaded before.
    Preheat,
    /// It is not there.
    Missing,
    /// It is fenced or half loaded, and no rebuild stands in the ledger.
    NotOpen,
    /// It shows an earlier step than the ledger has recorded.
    WentBack,
    /// The ledger refused an order that it had room for.
    Refused,
    /// It differs from the ledger, and that stands.
    Differs,
}

impl RebuildReason {
    /// Every reason.
    pub const ALL: [Self; 6] =
        [Self::Preheat, Self::Missing, Self::NotOpen, Self::WentBack, Self::Refused, Self::Differs];

    /// What stands in the fence, for the staff.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Preheat => "preheat",
            Self::Missing => "the stock is missing",
            Self::NotOpen => "the stock is not open",
            Self::WentBack => "the stock has gone back",
            Self::Refused => "the ledger refused an order that the stock had room for",
            Self::Differs => "reconcile found a difference between stock and ledger",
        }
    }
}

/// Names one attempt to load a sale's stock; the newest one alone may write. Random, below 2^63, so
/// that every ledger can store it in a signed column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LoaderToken(pub u64);

impl LoaderToken {
    /// Stands in a fence that nobody works on yet: any loader may take it over at once.
    pub const NOBODY: Self = Self(0);
}

/// What the reserve step must know about a sale beside its items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// Selling needs [`SaleState::Open`].
    pub state: SaleState,
    /// When selling begins, by the stock's clock.
    pub opens_at: Timestamp,
    /// When selling ends, by the stock's clock.
    pub closes_at: Timestamp,
    /// Most units one user may hold in the whole sale.
    pub limit: Units,
}

/// One product in a sale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Its id, unique over all sales.
    pub id: ItemId,
    /// The shop's product id.
    pub product_id: String,
    /// What the page calls it.
    pub title: String,
    /// Units in the sale.
    pub quantity: u64,
    /// Units of live orders.
    pub sold: u64,
    /// Units of paid orders, among those of `sold`.
    pub paid: u64,
    /// Price of one unit.
    pub price: Money,
    /// Usual price of one unit, in minor units of the same currency.
    pub list_price_minor: Option<i64>,
}

/// One flash sale as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sale {
    /// Its id.
    pub id: SaleId,
    /// What the staff calls it.
    pub name: String,
    /// State, window and limit.
    pub terms: Terms,
    /// How long an order may stay unpaid.
    pub payment_window: Duration,
    /// The generation of its stock; 0 before the first preheat.
    pub epoch: Epoch,
    /// The highest step of this epoch's stock that an order was recorded from. A stock that shows a
    /// lower one has gone back.
    pub recorded_seq: u64,
    /// Stands beside the state while the stock is loaded or rebuilt.
    pub fence: Option<Fence>,
    /// The items, in the order of their ids.
    pub items: Vec<Item>,
}

impl Sale {
    /// Whether it was closed so long ago that nothing of it is under way any more.
    pub fn is_settled(&self, now: Timestamp) -> bool {
        let last_payment = self.terms.closes_at.plus(self.payment_window).plus(SETTLED_AFTER);
        self.terms.state == SaleState::Closed && now > last_payment
    }

    /// The item with this id.
    pub fn item(&self, id: ItemId) -> Option<&Item> {
        self.items.iter().find(|item| item.id == id)
    }
}

/// A closed sale is looked after until this long after its last payment could have begun.
const SETTLED_AFTER: Duration = Duration::from_secs(3_600);

/// A sale to be written down.
#[derive(Clone, Debug)]
pub struct NewSale {
    /// What the staff calls it.
    pub name: String,
    /// When it opens.
    pub opens_at: Timestamp,
    /// When it closes.
    pub closes_at: Timestamp,
    /// How long an order may stay unpaid.
    pub payment_window: Duration,
    /// Most units one user may hold in the whole sale.
    pub limit: Units,
    /// Its items.
    pub items: Vec<NewItem>,
}

/// An item to be written down.
#[derive(Clone, Debug)]
pub struct NewItem {
    /// The shop's product id.
    pub product_id: String,
    /// What the page calls it.
    pub title: String,
    /// Units for sale.
    pub quantity: u64,
    /// Price of one unit.
    pub price: Money,
    /// Usual price of one unit, in minor units of the same currency.
    pub list_price_minor: Option<i64>,
}

/// All sales as a gateway last read them from the ledger. Replaced whole, never changed.
#[derive(Debug, Default)]
pub struct Catalog {
    sales: Vec<Arc<Sale>>,
    // A tree over integers: found sooner than by a hash that an enemy cannot foresee.
    by_item: BTreeMap<ItemId, Arc<Sale>>,
    stock_ahead_ms: i64,
    switches: Arc<Switches>,
}

impl Catalog {
    /// The snapshot of these sales.
    pub fn new(sales: Vec<Sale>) -> Self {
        let sales: Vec<Arc<Sale>> = sales.into_iter().map(Arc::new).collect();
        let by_item =
            sales.iter().flat_map(|sale| sale.items.iter().map(|item| (item.id, Arc::clone(sale)))).collect();
        Self { sales, by_item, stock_ahead_ms: 0, switches: Arc::default() }
    }

    /// The same with the switches that stand.
    #[must_use]
    pub fn with_switches(self, switches: Arc<Switches>) -> Self {
        Self { switches, ..self }
    }

    /// What the staff has turned.
    pub fn switches(&self) -> &Arc<Switches> {
        &self.switches
    }

    /// The same with how far the stock's clock is ahead of ours.
    #[must_use]
    pub fn with_stock_ahead(self, ms: i64) -> Self {
        Self { stock_ahead_ms: ms, ..self }
    }

    /// How many milliseconds the stock's clock, which decides windows, is ahead of this machine's, as
    /// last seen; negative when it is behind.
    pub fn stock_ahead_ms(&self) -> i64 {
        self.stock_ahead_ms
    }

    /// The sale an item is in.
    pub fn sale_of(&self, item: ItemId) -> Option<&Arc<Sale>> {
        self.by_item.get(&item)
    }

    /// One sale.
    pub fn sale(&self, id: SaleId) -> Option<&Arc<Sale>> {
        self.sales.iter().find(|sale| sale.id == id)
    }

    /// Every sale, by id.
    pub fn sales(&self) -> &[Arc<Sale>] {
        &self.sales
    }
}
