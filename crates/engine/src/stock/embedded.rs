//! The stock in this process's memory: one lock, one step per call, nothing kept across a restart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use uuid::Uuid;

use super::{
    AdjustOutcome, BeginLoadOutcome, BucketId, FinishOutcome, HolderPage, ItemLevel, Level, LoadOutcome,
    LoadPage, ReadBack, ReleaseOutcome, ReserveOutcome, ReserveRequest, Stock,
};
use crate::clock::{Clock, Timestamp};
use crate::fault::BackendError;
use crate::order::{ItemId, OrderId, Reservation, UserId};
use crate::sale::{LoaderToken, SaleState, Terms};

/// The embedded stock. Its size is bounded by the units of the sales it holds and the orders
/// closed in them (about 200 bytes each).
pub struct EmbeddedStock {
    clock: Arc<dyn Clock>,
    buckets: Mutex<HashMap<BucketId, Bucket>>,
}

impl EmbeddedStock {
    /// An empty stock that reads `clock` for windows and reservation times.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, buckets: Mutex::default() }
    }

    /// The clock it stamps and checks by.
    pub fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// A stock with the same contents, as a replica or a snapshot would have them at this moment.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { clock: Arc::clone(&self.clock), buckets: Mutex::new(self.buckets().clone()) }
    }

    /// Every step is complete before the lock is given back, so a poisoned lock (a panic in
    /// another thread's step) guards a bucket that a rebuild will replace.
    fn buckets(&self) -> MutexGuard<'_, HashMap<BucketId, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Loading(LoaderToken),
    Open(LoaderToken),
    Fenced,
}

#[derive(Clone, Copy, Debug)]
struct Shelf {
    free: u64,
    allocated: u64,
}

#[derive(Clone)]
struct Bucket {
    phase: Phase,
    terms: Option<Terms>,
    seq: u64,
    pages: u32,
    items: BTreeMap<ItemId, Shelf>,
    holds: HashMap<OrderId, Reservation>,
    by_user: BTreeMap<UserId, Vec<OrderId>>,
    outbox: BTreeMap<(Timestamp, u64), OrderId>,
    gone: HashSet<OrderId>,
    /// What was answered to each adjustment, for good: somebody may have acted on it.
    operations: HashMap<Uuid, AdjustOutcome>,
}

impl Bucket {
    fn empty(phase: Phase, terms: Option<Terms>) -> Self {
        Self {
            phase,
            terms,
            seq: 0,
            pages: 0,
            items: BTreeMap::new(),
            holds: HashMap::new(),
            by_user: BTreeMap::new(),
            outbox: BTreeMap::new(),
            gone: HashSet::new(),
            operations: HashMap::new(),
        }
    }

    fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open(_))
    }

    fn held_by(&self, user: &UserId) -> impl Iterator<Item = &Reservation> {
        let orders = self.by_user.get(user).map_or(&[][..], Vec::as_slice);
        orders.iter().filter_map(|order| self.holds.get(order))
    }

    /// One request, decided in the protocol's order; nothing is written before the last check.
    fn reserve(&mut self, id: BucketId, request: &ReserveRequest, now: Timestamp) -> ReserveOutcome {
        let Some(terms) = self.terms else {
            return if self.phase == Phase::Fenced {
                ReserveOutcome::Fenced
            } else {
                ReserveOutcome::NotLoaded
            };
        };
        if matches!(self.phase, Phase::Loading(_)) {
            return ReserveOutcome::NotLoaded;
        }
        if let Some(outcome) = self.known(request) {
            return outcome;
        }
        if self.phase == Phase::Fenced {
            return ReserveOutcome::Fenced;
        }
        let held: u64 = self.held_by(&request.user).map(|hold| u64::from(hold.units.0)).sum();
        let wanted = u64::from(request.units.0);
        if held > 0 && held + wanted > u64::from(terms.limit.0) {
            let orders = self.held_by(&request.user).map(|hold| hold.order).collect();
            return ReserveOutcome::Limit { orders };
        }
        if let Some(outcome) = outside_window(&terms, now) {
            return outcome;
        }
        let in_limit = (1..=terms.limit.0).contains(&request.units.0);
        let Some(shelf) = self.items.get_mut(&request.item).filter(|_| in_limit) else {
            return ReserveOutcome::NoItem;
        };
        if shelf.free == 0 {
            return ReserveOutcome::SoldOut { seq: self.seq };
        }
        if shelf.free < wanted {
            return ReserveOutcome::NotEnough { left: shelf.free };
        }

        shelf.free -= wanted;
        let left = shelf.free;
        self.seq += 1;
        let reservation = Reservation {
            order: request.order,
            sale: id.sale,
            bucket: 0,
            item: request.item,
            user: request.user.clone(),
            units: request.units,
            epoch: id.epoch,
            seq: self.seq,
            reserved_at: now,
            trace: request.trace.clone(),
            retake_of: request.retake_of,
        };
        self.outbox.insert((now, self.seq), request.order);
        self.hold(reservation.clone());
        ReserveOutcome::Held { reservation, left }
    }

    /// What is to be said of an order id that the bucket has seen before.
    fn known(&self, request: &ReserveRequest) -> Option<ReserveOutcome> {
        if let Some(hold) = self.holds.get(&request.order) {
            let same = hold.item == request.item && hold.units == request.units && hold.user == request.user;
            return Some(if same {
                ReserveOutcome::HeldBefore {
                    reservation: hold.clone(),
                    in_outbox: self.outbox.contains_key(&(hold.reserved_at, hold.seq)),
                }
            } else {
                ReserveOutcome::Mismatch
            });
        }
        self.gone.contains(&request.order).then_some(ReserveOutcome::Gone)
    }

    fn hold(&mut self, reservation: Reservation) {
        self.by_user.entry(reservation.user.clone()).or_default().push(reservation.order);
        self.holds.insert(reservation.order, reservation);
    }

    fn release(&mut self, order: OrderId) -> ReleaseOutcome {
        if !self.is_open() {
            return ReleaseOutcome::NotNow;
        }
        self.gone.insert(order);
        let Some(hold) = self.holds.remove(&order) else {
            return ReleaseOutcome::NotHeld;
        };
        self.outbox.remove(&(hold.reserved_at, hold.seq));
        if let Some(orders) = self.by_user.get_mut(&hold.user) {
            orders.retain(|other| *other != order);
            if orders.is_empty() {
                self.by_user.remove(&hold.user);
            }
        }
        if let Some(shelf) = self.items.get_mut(&hold.item) {
            shelf.free += u64::from(hold.units.0);
        }
        self.seq += 1;
        ReleaseOutcome::Released
    }

    fn load(&mut self, contents: &LoadPage) -> LoadOutcome {
        match contents {
            LoadPage::Items(items) => {
                for (item, quantity) in items {
                    self.items.insert(*item, Shelf { free: *quantity, allocated: *quantity });
                }
            }
            LoadPage::Holds(holds) => {
                if !self.fits(holds) {
                    return LoadOutcome::Refused;
                }
                for hold in holds {
                    if let Some(shelf) = self.items.get_mut(&hold.item) {
                        shelf.free -= u64::from(hold.units.0);
                    }
                    self.hold(hold.clone());
                }
            }
            LoadPage::Closed(orders) => self.gone.extend(orders),
        }
        self.pages += 1;
        LoadOutcome::Loaded
    }

    fn fits(&self, holds: &[Reservation]) -> bool {
        let mut wanted: BTreeMap<ItemId, u64> = BTreeMap::new();
        for hold in holds {
            *wanted.entry(hold.item).or_default() += u64::from(hold.units.0);
        }
        let room = |item, units: u64| self.items.get(item).is_some_and(|shelf| shelf.free >= units);
        wanted.iter().all(|(item, units)| room(item, *units))
            && holds.iter().all(|hold| !self.holds.contains_key(&hold.order))
    }

    fn adjust(&mut self, operation: Uuid, item: ItemId, units: i64) -> AdjustOutcome {
        if !self.is_open() {
            return AdjustOutcome::NotNow;
        }
        if let Some(answered) = self.operations.get(&operation) {
            return *answered;
        }
        let Some(shelf) = self.items.get_mut(&item) else { return AdjustOutcome::NotNow };
        let (Some(free), Some(allocated)) =
            (shelf.free.checked_add_signed(units), shelf.allocated.checked_add_signed(units))
        else {
            let refused = AdjustOutcome::NotEnough { left: shelf.free };
            self.operations.insert(operation, refused);
            return refused;
        };

        *shelf = Shelf { free, allocated };
        self.seq += 1;
        self.operations.insert(operation, AdjustOutcome::Applied);
        AdjustOutcome::Applied
    }

    fn level(&self, now: Timestamp) -> Level {
        Level {
            loading: matches!(self.phase, Phase::Loading(_)),
            fenced: self.phase == Phase::Fenced,
            terms: self.terms.unwrap_or(Terms {
                state: SaleState::Draft,
                opens_at: Timestamp::from_ms(0),
                closes_at: Timestamp::from_ms(0),
                limit: crate::order::Units(0),
            }),
            seq: self.seq,
            pages: self.pages,
            now,
            holds: self.holds.len() as u64,
            unconfirmed: self.outbox.len() as u64,
            oldest_unconfirmed: self.outbox.keys().next().map(|(reserved_at, _)| *reserved_at),
            items: self
                .items
                .iter()
                .map(|(item, shelf)| ItemLevel { item: *item, free: shelf.free, allocated: shelf.allocated })
                .collect(),
        }
    }
}

fn outside_window(terms: &Terms, now: Timestamp) -> Option<ReserveOutcome> {
    if now >= terms.closes_at || terms.state == SaleState::Closed {
        return Some(ReserveOutcome::Ended);
    }
    if now < terms.opens_at {
        let wait = terms.opens_at.since(now).as_millis();
        return Some(ReserveOutcome::Early { starts_in_ms: u64::try_from(wait).unwrap_or(u64::MAX) });
    }
    (terms.state != SaleState::Open).then_some(ReserveOutcome::NotOpen)
}

#[async_trait]
impl Stock for EmbeddedStock {
    async fn begin_load(
        &self,
        bucket: BucketId,
        terms: &Terms,
        token: LoaderToken,
    ) -> Result<BeginLoadOutcome, BackendError> {
        let mut buckets = self.buckets();
        match buckets.get(&bucket).map(|it| it.phase) {
            Some(Phase::Open(_)) => return Ok(BeginLoadOutcome::AlreadyOpen),
            Some(Phase::Fenced) => return Ok(BeginLoadOutcome::Fenced),
            Some(Phase::Loading(_)) | None => {}
        }
        buckets.insert(bucket, Bucket::empty(Phase::Loading(token), Some(*terms)));
        Ok(BeginLoadOutcome::Started)
    }

    async fn load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        page: u32,
        contents: &LoadPage,
    ) -> Result<LoadOutcome, BackendError> {
        let mut buckets = self.buckets();
        let Some(bucket) = buckets.get_mut(&bucket).filter(|it| it.phase == Phase::Loading(token)) else {
            return Ok(LoadOutcome::NotLoader);
        };
        if page < bucket.pages {
            return Ok(LoadOutcome::Loaded);
        }
        if page > bucket.pages {
            return Ok(LoadOutcome::Refused);
        }
        Ok(bucket.load(contents))
    }

    async fn finish_load(
        &self,
        bucket: BucketId,
        token: LoaderToken,
        read_back: ReadBack,
    ) -> Result<FinishOutcome, BackendError> {
        let mut buckets = self.buckets();
        let Some(loaded) = buckets.get_mut(&bucket) else { return Ok(FinishOutcome::NotLoader) };
        if loaded.phase == Phase::Open(token) {
            return Ok(FinishOutcome::Open);
        }
        if loaded.phase != Phase::Loading(token) {
            return Ok(FinishOutcome::NotLoader);
        }
        if read_back != (ReadBack { seq: loaded.seq, pages: loaded.pages }) {
            return Ok(FinishOutcome::Changed);
        }

        loaded.phase = Phase::Open(token);
        // The epochs before this one are over: only their marks are still needed.
        for (id, old) in buckets.iter_mut() {
            if id.sale == bucket.sale && id.epoch < bucket.epoch {
                *old = Bucket::empty(Phase::Fenced, None);
            }
        }
        Ok(FinishOutcome::Open)
    }

    async fn fence(&self, bucket: BucketId) -> Result<(), BackendError> {
        let mut buckets = self.buckets();
        buckets.entry(bucket).or_insert_with(|| Bucket::empty(Phase::Fenced, None)).phase = Phase::Fenced;
        Ok(())
    }

    async fn set_terms(&self, bucket: BucketId, terms: &Terms) -> Result<bool, BackendError> {
        let mut buckets = self.buckets();
        let Some(bucket) = buckets.get_mut(&bucket).filter(|it| it.is_open()) else { return Ok(false) };
        bucket.terms = Some(*terms);
        Ok(true)
    }

    async fn reserve(
        &self,
        bucket: BucketId,
        requests: &[ReserveRequest],
    ) -> Result<Vec<ReserveOutcome>, BackendError> {
        let now = self.clock.now();
        let mut buckets = self.buckets();
        let Some(found) = buckets.get_mut(&bucket) else {
            return Ok(vec![ReserveOutcome::NotLoaded; requests.len()]);
        };
        Ok(requests.iter().map(|request| found.reserve(bucket, request, now)).collect())
    }

    async fn confirm(&self, bucket: BucketId, orders: &[(OrderId, UserId)]) -> Result<(), BackendError> {
        let mut buckets = self.buckets();
        let Some(bucket) = buckets.get_mut(&bucket) else { return Ok(()) };
        for (order, _) in orders {
            if let Some(hold) = bucket.holds.get(order) {
                bucket.outbox.remove(&(hold.reserved_at, hold.seq));
            }
        }
        Ok(())
    }

    async fn release(
        &self,
        bucket: BucketId,
        orders: &[(OrderId, UserId)],
    ) -> Result<Vec<ReleaseOutcome>, BackendError> {
        let mut buckets = self.buckets();
        let Some(bucket) = buckets.get_mut(&bucket) else {
            return Ok(vec![ReleaseOutcome::NotNow; orders.len()]);
        };
        Ok(orders.iter().map(|(order, _)| bucket.release(*order)).collect())
    }

    async fn adjust(
        &self,
        bucket: BucketId,
        operation: Uuid,
        item: ItemId,
        units: i64,
    ) -> Result<AdjustOutcome, BackendError> {
        let mut buckets = self.buckets();
        Ok(buckets.get_mut(&bucket).map_or(AdjustOutcome::NotNow, |it| it.adjust(operation, item, units)))
    }

    async fn unconfirmed(
        &self,
        bucket: BucketId,
        before: Timestamp,
        limit: usize,
    ) -> Result<Vec<Reservation>, BackendError> {
        let buckets = self.buckets();
        let Some(bucket) = buckets.get(&bucket) else { return Ok(Vec::new()) };
        let old = bucket.outbox.range(..(before, 0)).take(limit);
        Ok(old.filter_map(|(_, order)| bucket.holds.get(order)).cloned().collect())
    }

    async fn holds_of(
        &self,
        bucket: BucketId,
        user: &UserId,
    ) -> Result<Option<Vec<(Reservation, bool)>>, BackendError> {
        let buckets = self.buckets();
        let Some(bucket) = buckets.get(&bucket) else { return Ok(None) };
        if bucket.terms.is_none() || matches!(bucket.phase, Phase::Loading(_)) {
            return Ok(None);
        }
        let in_outbox = |hold: &Reservation| bucket.outbox.contains_key(&(hold.reserved_at, hold.seq));
        Ok(Some(bucket.held_by(user).map(|hold| (hold.clone(), in_outbox(hold))).collect()))
    }

    async fn holders(
        &self,
        bucket: BucketId,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<HolderPage, BackendError> {
        let buckets = self.buckets();
        let Some(bucket) = buckets.get(&bucket) else { return Ok(HolderPage::default()) };
        let after = cursor.unwrap_or("");
        let bounds = (std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded);
        let mut page = HolderPage::default();
        for (user, _) in bucket.by_user.range::<str, _>(bounds) {
            if page.holds.len() >= limit {
                break;
            }
            page.holds.extend(bucket.held_by(user).cloned());
            page.next = Some(user.as_str().to_owned());
        }
        if page.holds.len() < limit {
            page.next = None;
        }
        Ok(page)
    }

    async fn level(&self, bucket: BucketId) -> Result<Option<Level>, BackendError> {
        let now = self.clock.now();
        Ok(self.buckets().get(&bucket).map(|it| it.level(now)))
    }
}
