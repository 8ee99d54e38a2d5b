//! The engine's values as the wire types say them.

use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::ledger::{About, Delivery, DeliveryState, Event, PaymentRow};
use doorbuster_engine::my_orders::MyOrder;
use doorbuster_engine::order::{Money, Order};
use doorbuster_engine::sale::Sale;
use doorbuster_engine::stock::Level;
use doorbuster_engine::switches::Entry;
use doorbuster_wire as wire;

/// RFC 3339 in UTC with milliseconds.
pub(crate) fn time(at: Timestamp) -> String {
    match jiff::Timestamp::from_millisecond(at.as_ms()) {
        Ok(time) => format!("{time:.3}"),
        // Beyond the year 9999: the nearest that can be written.
        Err(_) => "9999-12-30T22:00:00.999Z".to_owned(),
    }
}

/// A time with an offset.
pub(crate) fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    match text.parse::<jiff::Timestamp>() {
        Ok(time) => Ok(Timestamp::from_ms(time.as_millisecond())),
        Err(_) => anyhow::bail!(
            "`{}` is not a time with an offset, such as 2026-11-27T09:00:00+01:00 or 2026-11-27T08:00:00Z",
            text.escape_default()
        ),
    }
}

pub(crate) fn money(money: Money) -> wire::Money {
    wire::Money { amount: money.decimal(), currency: money.currency.as_str().to_owned(), minor: money.minor }
}

pub(crate) fn my_order(order: &MyOrder) -> wire::OrderView {
    let it = &order.reservation;
    wire::OrderView {
        order_id: it.order.to_string(),
        sale_id: it.sale.to_string(),
        item_id: it.item.to_string(),
        quantity: it.units.0,
        status: order.status.as_str().to_owned(),
        payable: order.payable,
        total: money(order.total),
        reserved_at: time(it.reserved_at),
        expires_at: order.expires_at.map(time),
        reason: order.reason.map(str::to_owned),
        retake_of: it.retake_of.map(|id| id.to_string()),
        retaken_by: order.aftermath.retaken_by.map(|id| id.to_string()),
        refund: order.aftermath.refund.map(|state| wire::RefundState { status: state.as_str().to_owned() }),
    }
}

pub(crate) fn order_row(order: &Order) -> wire::OrderRow {
    let it = &order.reservation;
    wire::OrderRow {
        order_id: it.order.to_string(),
        sale_id: it.sale.to_string(),
        item_id: it.item.to_string(),
        user_id: it.user.to_string(),
        quantity: it.units.0,
        status: order.status.as_str().to_owned(),
        reason: order.reason.map(|reason| reason.as_str().to_owned()),
        total: money(order.total),
        reserved_at: time(it.reserved_at),
        expires_at: time(order.expires_at),
    }
}

pub(crate) fn payment_row(row: PaymentRow) -> wire::PaymentRow {
    wire::PaymentRow {
        provider: row.payment.provider,
        payment_id: row.payment.payment_id,
        order_id: row.meant.to_string(),
        retaken_by: (row.order != row.meant).then(|| row.order.to_string()),
        outcome: row.outcome,
        amount_minor: row.amount_minor,
        currency: row.currency,
    }
}

pub(crate) fn sale(sale: &Sale, entry: Entry, level: Option<&Level>, now: Timestamp) -> wire::SaleView {
    let item = |item: &doorbuster_engine::sale::Item| {
        let free = level.and_then(|level| level.items.iter().find(|it| it.item == item.id)).map(|it| it.free);
        wire::ItemView {
            item_id: item.id.to_string(),
            product_id: item.product_id.clone(),
            title: item.title.clone(),
            price: money(item.price),
            list_price: item.list_price_minor.map(|minor| money(Money { minor, ..item.price })),
            quantity: Some(item.quantity),
            free,
            held: free.map(|free| item.quantity.saturating_sub(free).saturating_sub(item.paid)),
            sold: Some(item.paid),
        }
    };
    wire::SaleView {
        sale_id: sale.id.to_string(),
        name: sale.name.clone(),
        state: sale.terms.state.as_str().to_owned(),
        opens_at: time(sale.terms.opens_at),
        closes_at: time(sale.terms.closes_at),
        server_time: time(now),
        max_units_per_user: sale.terms.limit.0,
        payment_window_seconds: sale.payment_window.as_secs(),
        token_required: entry.token,
        captcha_required: entry.captcha,
        waiting_room: false,
        items: sale.items.iter().map(item).collect(),
    }
}

pub(crate) fn sale_detail(sale: &Sale, level: Option<&Level>) -> wire::SaleDetail {
    let item = |item: &doorbuster_engine::sale::Item| wire::ItemDetail {
        item_id: item.id.to_string(),
        product_id: item.product_id.clone(),
        title: item.title.clone(),
        price: money(item.price),
        list_price: item.list_price_minor.map(|minor| money(Money { minor, ..item.price })),
        quantity: item.quantity,
        sold: item.sold,
        free: level.and_then(|level| level.items.iter().find(|it| it.item == item.id)).map(|it| it.free),
    };
    wire::SaleDetail {
        sale_id: sale.id.to_string(),
        name: sale.name.clone(),
        state: sale.terms.state.as_str().to_owned(),
        fence: sale.fence.as_ref().map(|fence| fence.reason.clone()),
        epoch: sale.epoch.0,
        opens_at: time(sale.terms.opens_at),
        closes_at: time(sale.terms.closes_at),
        payment_window_seconds: sale.payment_window.as_secs(),
        max_units_per_user: sale.terms.limit.0,
        items: sale.items.iter().map(item).collect(),
    }
}

/// What the shop is sent of an event. It is the same for every attempt.
pub(crate) fn event_message(event: &Event) -> wire::EventMessage {
    let data = match &event.about {
        About::Order(order) => {
            let it = &order.reservation;
            wire::EventData::Order(Box::new(wire::OrderEventData {
                order_id: it.order.to_string(),
                sale_id: it.sale.to_string(),
                item_id: it.item.to_string(),
                user_id: it.user.to_string(),
                quantity: it.units.0,
                status: order.status.as_str().to_owned(),
                reason: order.reason.map(|reason| reason.as_str().to_owned()),
                total: money(order.total),
                reserved_at: time(it.reserved_at),
                expires_at: time(order.expires_at),
                retake_of: it.retake_of.map(|id| id.to_string()),
            }))
        }
        About::Sale { sale, item, units } => wire::EventData::Sale(wire::SaleEventData {
            sale_id: sale.to_string(),
            item_id: item.map(|item| item.to_string()),
            quantity: *units,
        }),
    };
    let kind = event.kind.as_str().to_owned();
    wire::EventMessage { kind, timestamp: time(event.at), version: 1, data }
}

/// A line of the delivery log; with what is sent, where that is given.
pub(crate) fn delivery(delivery: &Delivery, event: Option<&Event>) -> wire::EventDelivery {
    wire::EventDelivery {
        id: delivery.id.to_string(),
        endpoint: delivery.endpoint.clone(),
        event_id: delivery.event.clone(),
        kind: delivery.kind.as_str().to_owned(),
        subject: delivery.subject.clone(),
        state: delivery.state.as_str().to_owned(),
        attempts: delivery.attempts,
        next_at: (delivery.state == DeliveryState::Waiting).then(|| time(delivery.next_at)),
        attempted_at: delivery.attempted_at.map(time),
        status: delivery.status,
        answer: delivery.answer.clone(),
        message: event.map(event_message),
    }
}
