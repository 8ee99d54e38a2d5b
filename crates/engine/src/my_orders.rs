//! What a buyer may see and do with an order: one order, all of a sale's, cancel, begin to pay.

use crate::clock::Timestamp;
use crate::engine::Engine;
use crate::fault::BackendError;
use crate::ledger::{Aftermath, BeginOutcome, CancelOutcome, PaymentAttempt};
use crate::order::{Epoch, Money, Order, OrderId, OrderPlaced, OrderStatus, Reservation, SaleId, UserId};
use crate::sale::Sale;
use crate::stock::BucketId;

/// Most orders of one user that are shown for one sale.
const MY_ORDERS_MAX: usize = 200;

/// An order as its owner may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MyOrder {
    /// What was taken.
    pub reservation: Reservation,
    /// What is to be paid.
    pub total: Money,
    /// Where it stands; `Pending` for one that is still queued.
    pub status: OrderStatus,
    /// Why the ledger refused it.
    pub reason: Option<&'static str>,
    /// Whether a payment may begin now.
    pub payable: bool,
    /// Until when one may begin; `None` while queued.
    pub expires_at: Option<Timestamp>,
    /// What followed on its end; nothing in a list of orders.
    pub aftermath: Aftermath,
}

/// What [`Engine::begin_payment`] answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BeginPaymentOutcome {
    /// The attempt, new or as it stands, and its order.
    Begun(PaymentAttempt, Box<Order>),
    /// The order is not recorded yet.
    NotYet,
    /// The order is paid.
    Paid,
    /// The order is closed, or its deadline is over.
    Closed,
    /// The user has no such order.
    Unknown,
}

impl MyOrder {
    fn recorded(order: Order, now: Timestamp) -> Self {
        Self {
            payable: order.payable(now),
            total: order.total,
            status: order.status,
            reason: order.reason.map(crate::order::RejectReason::as_str),
            expires_at: Some(order.expires_at),
            aftermath: Aftermath::default(),
            reservation: order.reservation,
        }
    }

    fn queued(placed: OrderPlaced) -> Self {
        Self {
            total: placed.price.times(placed.reservation.units),
            status: OrderStatus::Pending,
            reason: None,
            payable: false,
            expires_at: None,
            aftermath: Aftermath::default(),
            reservation: placed.reservation,
        }
    }
}

impl Engine {
    /// A user's own order, stock first, then ledger: known from the 202 on. `None` only when both
    /// answered and neither has it under this user.
    ///
    /// # Errors
    /// When a layer that could know it does not answer.
    pub async fn my_order(&self, user: &UserId, id: OrderId) -> Result<Option<MyOrder>, BackendError> {
        // The stock first: an order that is being recorded is in one of the two at every moment.
        let queued = self.queued(user, id).await;
        let backends = &self.shared.backends;
        if let Some(order) = backends.ledger.order(id).await? {
            if order.reservation.user != *user {
                return Ok(None);
            }
            let ended = !order.status.is_live();
            let aftermath = if ended { backends.ledger.aftermath(id).await? } else { Aftermath::default() };
            return Ok(Some(MyOrder { aftermath, ..MyOrder::recorded(order, backends.clock.now()) }));
        }
        Ok(queued?.map(MyOrder::queued))
    }

    /// What the stock holds under this id for this user, in any sale that runs.
    async fn queued(&self, user: &UserId, id: OrderId) -> Result<Option<OrderPlaced>, BackendError> {
        for sale in self.shared.catalog.load_full().sales() {
            if let Some(placed) =
                self.queued_in(sale, user).await?.into_iter().find(|it| it.reservation.order == id)
            {
                return Ok(Some(placed));
            }
        }
        Ok(None)
    }

    async fn queued_in(&self, sale: &Sale, user: &UserId) -> Result<Vec<OrderPlaced>, BackendError> {
        if sale.epoch == Epoch(0) {
            return Ok(Vec::new());
        }
        let bucket = BucketId { sale: sale.id, epoch: sale.epoch };
        let holds = self.shared.backends.stock.holds_of(bucket, user).await?.unwrap_or_default();
        let priced = holds.into_iter().filter_map(|(reservation, _)| {
            let price = sale.item(reservation.item)?.price;
            Some(OrderPlaced { reservation, price })
        });
        Ok(priced.collect())
    }

    /// A user's orders in one sale, newest first; `None` when there is no such sale.
    ///
    /// # Errors
    /// When a layer that could know one does not answer.
    pub async fn my_orders(&self, user: &UserId, sale: SaleId) -> Result<Option<Vec<MyOrder>>, BackendError> {
        let catalog = self.shared.catalog.load_full();
        let Some(sale) = catalog.sale(sale) else { return Ok(None) };
        let queued = self.queued_in(sale, user).await?;
        let backends = &self.shared.backends;
        let now = backends.clock.now();
        let recorded = backends.ledger.orders_of(sale.id, user, MY_ORDERS_MAX).await?;
        let known: Vec<OrderId> = recorded.iter().map(|order| order.reservation.order).collect();
        let mut orders: Vec<MyOrder> = queued
            .into_iter()
            .filter(|placed| !known.contains(&placed.reservation.order))
            .map(MyOrder::queued)
            .collect();
        orders.extend(recorded.into_iter().map(|order| MyOrder::recorded(order, now)));
        orders.sort_by_key(|order| std::cmp::Reverse(order.reservation.reserved_at));
        Ok(Some(orders))
    }

    /// Cancels a user's own order, recorded or still queued.
    ///
    /// # Errors
    /// When a layer does not answer; repeating is safe.
    pub async fn cancel(&self, user: &UserId, id: OrderId) -> Result<CancelOutcome, BackendError> {
        let queued = self.queued(user, id).await;
        let ledger = &self.shared.backends.ledger;
        match ledger.cancel(id, user, queued.as_ref().ok().and_then(Option::as_ref)).await? {
            CancelOutcome::Unknown => queued.map(|_| CancelOutcome::Unknown),
            outcome => Ok(outcome),
        }
    }

    /// Begins the payment of a user's own order at `provider`, or goes on with the one that was begun.
    ///
    /// # Errors
    /// When a layer does not answer; repeating is safe.
    pub async fn begin_payment(
        &self,
        user: &UserId,
        id: OrderId,
        provider: &str,
    ) -> Result<BeginPaymentOutcome, BackendError> {
        match self.my_order(user, id).await? {
            None => return Ok(BeginPaymentOutcome::Unknown),
            Some(order) if order.expires_at.is_none() => return Ok(BeginPaymentOutcome::NotYet),
            Some(_) => {}
        }
        // The ledger decides by its own clock; an order that it has stays its owner's.
        Ok(match self.shared.backends.ledger.begin_attempt(id, provider).await? {
            BeginOutcome::Begun(attempt, order) => BeginPaymentOutcome::Begun(attempt, order),
            BeginOutcome::Paid => BeginPaymentOutcome::Paid,
            BeginOutcome::Closed => BeginPaymentOutcome::Closed,
            BeginOutcome::NoOrder => BeginPaymentOutcome::Unknown,
        })
    }
}
