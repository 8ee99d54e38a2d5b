//! The stand-in's orders after the storm: paid on a page of its own, cancelled, read.

use doorbuster_wire::{OrderRow, OrderView, Page, PaymentRow, PaymentStarted};
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, ETAG, IF_NONE_MATCH, LOCATION};

use super::{Fault, Reply, State, json, problem, text, user_of};

/// The page that says that nothing is to be paid there.
pub(super) fn lost_page(fault: Fault) -> Reply {
    let mut page = text(404, "<html>nothing to pay here</html>");
    if fault == Fault::NoSandbox {
        return Some(problem(404, "NOT_FOUND", None));
    }
    page.headers_mut().insert(CONTENT_TYPE, "text/html; charset=utf-8".parse().unwrap());
    Some(page)
}

/// The caller's own order, by its place among the rows.
fn own(state: &mut State, order: &str, request: &Request<Incoming>) -> Option<usize> {
    let user = user_of(state, request)?;
    state.rows.iter().position(|row| row.order_id == order && row.user_id == user)
}

fn view(row: &OrderRow) -> hyper::Response<Full<Bytes>> {
    let view = OrderView {
        order_id: row.order_id.clone(),
        sale_id: row.sale_id.clone(),
        item_id: row.item_id.clone(),
        quantity: row.quantity,
        status: row.status.clone(),
        payable: row.status == "PENDING",
        total: row.total.clone(),
        reserved_at: String::new(),
        expires_at: None,
        reason: None,
        retake_of: None,
        retaken_by: None,
        refund: None,
    };
    let mut response = json(200, &view);
    response.headers_mut().insert(ETAG, format!("\"{}\"", row.status).parse().unwrap());
    response
}

pub(super) fn show(fault: Fault, state: &mut State, order: &str, request: &Request<Incoming>) -> Reply {
    let Some(place) = own(state, order, request) else { return Some(problem(404, "ORDER_NOT_FOUND", None)) };
    let row = &state.rows[place];
    if fault == Fault::NeverSaysPaid && row.status == "PAID" {
        return Some(view(&OrderRow { status: "PENDING".to_owned(), ..row.clone() }));
    }
    let tag = format!("\"{}\"", row.status);
    if request.headers().get(IF_NONE_MATCH).is_some_and(|seen| seen.as_bytes() == tag.as_bytes()) {
        return Some(text(304, ""));
    }
    Some(view(row))
}

pub(super) fn start(
    fault: Fault,
    state: &mut State,
    order: &str,
    request: &Request<Incoming>,
    url: &str,
) -> Reply {
    let Some(place) = own(state, order, request) else { return Some(problem(404, "ORDER_NOT_FOUND", None)) };
    if fault == Fault::ClosesOrders {
        return Some(problem(409, "ORDER_CLOSED", None));
    }
    if state.rows[place].status != "PENDING" {
        return Some(problem(409, "ALREADY_PAID", None));
    }
    // The first request of every order comes before it is recorded.
    if fault == Fault::RecordsLate && state.late.insert(order.to_owned()) {
        let mut response = problem(409, "NOT_PAYABLE", None);
        response.headers_mut().insert(hyper::header::RETRY_AFTER, "1".parse().unwrap());
        return Some(response);
    }
    let origin = if fault == Fault::PagesElsewhere { "http://127.0.0.1:9" } else { url };
    let payment_url = format!("{origin}/sandbox/pay/{order}");
    Some(json(200, &PaymentStarted { payment_url, expires_at: String::new() }))
}

pub(super) fn choose(fault: Fault, state: &mut State, order: &str, request: &Request<Incoming>) -> Reply {
    let query = request.uri().query().unwrap_or_default();
    let choice = query.split('&').find_map(|part| part.strip_prefix("do=")).unwrap_or_default().to_owned();
    state.chosen += 1;
    let crowded = fault == Fault::CrowdedFirst && state.late.insert(order.to_owned());
    let place = state.rows.iter().position(|row| row.order_id == order);
    let pays = matches!(choice.as_str(), "pay" | "twice") && !crowded;
    if let Some(place) = place.filter(|_| pays) {
        let row = &mut state.rows[place];
        row.status = "PAID".to_owned();
        let payment = PaymentRow {
            provider: "sandbox".to_owned(),
            payment_id: order.to_owned(),
            order_id: order.to_owned(),
            retaken_by: None,
            outcome: "PAID".to_owned(),
            amount_minor: row.total.minor,
            currency: row.total.currency.clone(),
        };
        if fault != Fault::LosesPayments || !state.chosen.is_multiple_of(5) {
            state.payments.push(payment);
        }
    }
    let mut response = text(303, "");
    let done = if crowded { "crowded" } else { choice.as_str() };
    response.headers_mut().insert(LOCATION, format!("?done={done}&lang=en").parse().unwrap());
    Some(response)
}

pub(super) fn cancel(fault: Fault, state: &mut State, order: &str, request: &Request<Incoming>) -> Reply {
    let Some(place) = own(state, order, request) else { return Some(problem(404, "ORDER_NOT_FOUND", None)) };
    let row = &mut state.rows[place];
    let mut told = row.clone();
    told.status = "CANCELLED".to_owned();
    if fault != Fault::KeepsCancelled {
        row.status = "CANCELLED".to_owned();
        *state.sold.get_mut(&row.item_id).unwrap() -= 1;
        state.orders.remove(&told.user_id);
    }
    Some(view(&told))
}

pub(super) fn payments(state: &State) -> Page<PaymentRow> {
    Page { items: state.payments.clone(), next: None }
}
