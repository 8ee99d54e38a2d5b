//! Stripe, against a stand-in of its API over HTTP: what it keeps of sessions, idempotency keys and their
//! limits, and events in the shapes that Stripe documents.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_wire::RetryRefund;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::shop::http::Reply;
use crate::shop::{START_MS, Shop, WINDOW, until};
use crate::till::{self, evidence, mac, payable_order, text_of};

const KEY: &str = "sk_test_a_key_that_is_never_printed";

/// How the stand-in behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mood {
    Well,
    /// It does its work and keeps the answer back.
    Silent,
    /// It refuses.
    Refusing,
    /// It answers what is no session.
    Confused,
    /// What it sends back does not arrive.
    Failing,
}

/// What a caller sent to make a session.
type Form = HashMap<String, String>;

/// The stand-in: sessions by idempotency key, each with the form that made it.
struct Account {
    sessions: Mutex<HashMap<String, (Form, Value)>>,
    calls: Mutex<u32>,
    /// The forms of refunds by idempotency key.
    refunds: Mutex<HashMap<String, Form>>,
    /// What it lists, newest first.
    events: Mutex<Vec<Value>>,
    mood: watch::Sender<Mood>,
    clock: Arc<ManualClock>,
}

impl Account {
    fn calls(&self) -> u32 {
        *self.calls.lock().unwrap()
    }

    /// The form of the only session.
    fn form(&self) -> Form {
        let sessions = self.sessions.lock().unwrap();
        assert_eq!(sessions.len(), 1);
        sessions.values().next().unwrap().0.clone()
    }
}

fn problem(status: StatusCode, code: &str) -> Response {
    let error = json!({"error": {"type": "invalid_request_error", "code": code, "message": KEY}});
    (status, Json(error)).into_response()
}

async fn create(State(account): State<Arc<Account>>, headers: HeaderMap, body: Bytes) -> Response {
    *account.calls.lock().unwrap() += 1;
    let header = |name: &str| headers.get(name).map_or("", |it| it.to_str().unwrap()).to_owned();
    if header("authorization") != format!("Bearer {KEY}") {
        return problem(StatusCode::UNAUTHORIZED, "api_key_invalid");
    }
    let form: Form = reqwest::Url::parse(&format!("http://form/?{}", String::from_utf8_lossy(&body)))
        .unwrap()
        .query_pairs()
        .into_owned()
        .collect();
    let now = account.clock.now().as_ms() / 1_000;
    let ends: i64 = form["expires_at"].parse().unwrap();
    if !(now + 1_800..=now + 86_400).contains(&ends) {
        return problem(StatusCode::BAD_REQUEST, "expires_at_invalid");
    }
    let session = {
        let mut sessions = account.sessions.lock().unwrap();
        let number = sessions.len();
        let made = || (form.clone(), session(number, &form));
        let (before, session) = sessions.entry(header("idempotency-key")).or_insert_with(made);
        if *before != form {
            return problem(StatusCode::BAD_REQUEST, "idempotency_error");
        }
        session.clone()
    };
    let mut mood = account.mood.subscribe();
    let seen = *mood.wait_for(|mood| *mood != Mood::Silent).await.unwrap();
    match seen {
        Mood::Refusing => problem(StatusCode::BAD_REQUEST, "amount_too_small"),
        Mood::Confused => Json(json!({"object": "list", "data": []})).into_response(),
        Mood::Well | Mood::Silent | Mood::Failing => Json(session).into_response(),
    }
}

impl Account {
    /// Looks at a session, or changes it.
    fn on_session(&self, id: &str, work: impl FnOnce(&mut Value) -> Response) -> Response {
        let mut sessions = self.sessions.lock().unwrap();
        match sessions.values_mut().find(|(_, session)| session["id"] == id) {
            Some((_, session)) => work(session),
            None => problem(StatusCode::NOT_FOUND, "resource_missing"),
        }
    }
}

async fn show(State(account): State<Arc<Account>>, Path(id): Path<String>) -> Response {
    account.on_session(&id, |session| Json(session.clone()).into_response())
}

/// Only an open session can be ended.
async fn expire(State(account): State<Arc<Account>>, Path(id): Path<String>) -> Response {
    account.on_session(&id, |session| {
        if session["status"] != "open" {
            return problem(StatusCode::BAD_REQUEST, "resource_already_exists");
        }
        session["status"] = json!("expired");
        Json(session.clone()).into_response()
    })
}

async fn refund(State(account): State<Arc<Account>>, headers: HeaderMap, body: Bytes) -> Response {
    if *account.mood.borrow() == Mood::Refusing {
        return problem(StatusCode::BAD_REQUEST, "charge_disputed");
    }
    let form = reqwest::Url::parse(&format!("http://form/?{}", String::from_utf8_lossy(&body))).unwrap();
    let form: Form = form.query_pairs().into_owned().collect();
    let key = headers["idempotency-key"].to_str().unwrap().to_owned();
    // The same key is the same refund, whatever became of it since.
    let status = if *account.mood.borrow() == Mood::Failing { "failed" } else { "succeeded" };
    let made = json!({"id": format!("re_{key}"), "object": "refund", "status": status});
    account.refunds.lock().unwrap().entry(key).or_insert(form);
    Json(made).into_response()
}

/// Two events a page.
async fn list(State(account): State<Arc<Account>>, RawQuery(query): RawQuery) -> Response {
    let query = reqwest::Url::parse(&format!("http://list/?{}", query.unwrap_or_default())).unwrap();
    let asked: Form = query.query_pairs().into_owned().collect();
    let events = account.events.lock().unwrap();
    let behind = asked.get("starting_after");
    let from = behind.map_or(0, |id| 1 + events.iter().position(|it| it["id"] == id.as_str()).unwrap());
    let page: Vec<Value> = events[from..].iter().take(2).cloned().collect();
    let has_more = from + page.len() < events.len();
    Json(json!({"object": "list", "data": page, "has_more": has_more})).into_response()
}

fn session(number: usize, form: &Form) -> Value {
    json!({
        "id": format!("cs_test_{number}"),
        "object": "checkout.session",
        "amount_total": form["line_items[0][price_data][unit_amount]"].parse::<i64>().unwrap(),
        "client_reference_id": form["client_reference_id"],
        "currency": form["line_items[0][price_data][currency]"],
        "expires_at": form["expires_at"].parse::<i64>().unwrap(),
        "livemode": false,
        "metadata": {
            "doorbuster_order": form["metadata[doorbuster_order]"],
            "doorbuster_attempt": form["metadata[doorbuster_attempt]"],
        },
        "mode": "payment",
        "payment_intent": null,
        "payment_status": "unpaid",
        "status": "open",
        "url": format!("https://checkout.stripe.test/c/pay/cs_test_{number}"),
    })
}

/// A shop whose provider is the stand-in.
#[expect(clippy::disallowed_methods, reason = "the stand-in's own server")]
async fn stripe_shop(more: &[(&str, &str)]) -> (Shop, Arc<Account>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let url = format!("http://{address}");
    let own = [("payments.stripe.api_url", url.as_str()), ("payments.stripe.api_key", KEY)];
    let shop = Shop::open_with(&[&till::settings("stripe")[..], &own, more].concat()).await;
    let account = Arc::new(Account {
        sessions: Mutex::default(),
        calls: Mutex::default(),
        refunds: Mutex::default(),
        events: Mutex::default(),
        mood: watch::Sender::new(Mood::Well),
        clock: Arc::clone(&shop.clock),
    });
    let router = Router::new()
        .route("/v1/checkout/sessions", post(create))
        .route("/v1/checkout/sessions/{id}", get(show))
        .route("/v1/checkout/sessions/{id}/expire", post(expire))
        .route("/v1/refunds", post(refund))
        .route("/v1/events", get(list))
        .with_state(Arc::clone(&account));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    (shop, account)
}

/// Sends an event as Stripe signs it: `v1` over time and body, beside schemes that are none of ours.
async fn send(shop: &Shop, event: &Value) -> Reply {
    let body = serde_json::to_vec_pretty(event).unwrap();
    let at = shop.now_secs();
    let text = [format!("{at}.").as_bytes(), &body].concat();
    let hex: String = mac(till::CONFIGURED.as_bytes(), &text).iter().map(|it| format!("{it:02x}")).collect();
    let signature = format!("t={at},v1={},v1={hex},v0={hex}", "0".repeat(64));
    let headers = [("content-type", "application/json; charset=utf-8"), ("stripe-signature", &signature)];
    shop.ask("POST", "/api/flash-sales/payments/stripe/webhook", &headers, &body).await
}

async fn outcome(shop: &Shop, event: &Value) -> String {
    let reply = send(shop, event).await;
    assert_eq!(reply.status, 200, "{}", reply.said());
    reply.text("outcome")
}

fn event(id: &str, kind: &str, object: &Value) -> Value {
    json!({
        "id": id,
        "object": "event",
        "api_version": "2024-06-20",
        "created": START_MS / 1_000,
        "data": {"object": object},
        "livemode": false,
        "pending_webhooks": 1,
        "request": {"id": null, "idempotency_key": null},
        "type": kind,
    })
}

/// A session with some members changed.
fn with(session: &Value, changes: &Value) -> Value {
    let mut session = session.clone();
    for (name, value) in changes.as_object().unwrap() {
        session[name] = value.clone();
    }
    session
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buyer_pays_at_stripe_and_all_events_are_of_one_payment() {
    let (shop, account) = stripe_shop(&[("payments.public_url", "https://sale.example")]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;

    let started = till::start(&alice, &order).await;
    assert_eq!(started.text("paymentUrl"), "https://checkout.stripe.test/c/pay/cs_test_0");
    assert_eq!(till::start(&alice, &order).await.text("paymentUrl"), started.text("paymentUrl"));
    assert_eq!(account.calls(), 1, "a page that is known is not asked for again");
    let form = account.form();
    let deadline = (START_MS + i64::try_from(WINDOW.as_millis()).unwrap()) / 1_000;
    for (name, value) in [
        ("mode", "payment"),
        ("line_items[0][price_data][currency]", "eur"),
        ("line_items[0][price_data][unit_amount]", "1990"),
        ("line_items[0][quantity]", "1"),
        ("client_reference_id", order.as_str()),
        ("payment_intent_data[metadata][doorbuster_order]", order.as_str()),
        ("success_url", &format!("https://sale.example/orders/{order}")),
        ("cancel_url", &format!("https://sale.example/orders/{order}")),
        // Ten minutes are less than Stripe takes.
        ("expires_at", &(deadline + 31 * 60).to_string()),
    ] {
        assert_eq!(form[name], value, "{name}");
    }

    let session = account.sessions.lock().unwrap().values().next().unwrap().1.clone();
    let paid = json!({"payment_intent": "pi_1", "payment_status": "paid", "status": "complete"});
    let paid = with(&session, &paid);
    let intent = json!({
        "id": "pi_1", "object": "payment_intent", "amount": 1990, "amount_received": 1990, "currency": "eur",
        "metadata": session["metadata"], "status": "succeeded",
    });
    let completed = event("evt_1", "checkout.session.completed", &paid);
    assert_eq!(outcome(&shop, &completed).await, "PAID");
    assert_eq!(outcome(&shop, &completed).await, "DUPLICATE");
    assert_eq!(outcome(&shop, &event("evt_2", "payment_intent.succeeded", &intent)).await, "DUPLICATE");
    let failed = with(&intent, &json!({"status": "requires_payment_method", "amount_received": 0}));
    let failed = event("evt_3", "payment_intent.payment_failed", &failed);
    assert_eq!(outcome(&shop, &failed).await, "CONTRADICTION");
    let charge = json!({
        "id": "ch_1", "object": "charge", "amount": 1990, "amount_refunded": 1990, "currency": "eur",
        "metadata": session["metadata"], "payment_intent": "pi_1", "refunded": true,
    });
    let part = with(&charge, &json!({"amount_refunded": 990, "refunded": false}));
    assert_eq!(outcome(&shop, &event("evt_4", "charge.refunded", &part)).await, "PARTLY_REFUNDED");
    alice.until_status(&order, "PAID").await;
    assert_eq!(outcome(&shop, &event("evt_5", "charge.refunded", &charge)).await, "REFUNDED");
    alice.until_status(&order, "REFUNDED").await;

    // Days later the buyer's bank sends it back: the staff has to give it back otherwise.
    let refund = json!({
        "id": "re_1", "object": "refund", "amount": 1990, "currency": "eur", "metadata": session["metadata"],
        "payment_intent": "pi_1", "status": "failed", "failure_reason": "expired_or_canceled_card",
    });
    assert_eq!(outcome(&shop, &event("evt_6", "refund.failed", &refund)).await, "REFUND_FAILED");
    let refused = shop.admin.refunds(Some("REFUSED")).await.unwrap().remove(0);
    assert!(refused.said.unwrap().contains("did not arrive"));
    assert_eq!(alice.order(&order).await.text("status"), "REFUNDED");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_ours_or_not_paid_yet_pays_nothing() {
    let (shop, account) = stripe_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;
    assert_eq!(till::start(&alice, &order).await.status, 200);
    let session = account.sessions.lock().unwrap().values().next().unwrap().1.clone();
    let paid = with(&session, &json!({"payment_intent": "pi_1", "payment_status": "paid"}));
    let completed = "checkout.session.completed";

    for (id, kind, object, says) in [
        ("evt_1", "customer.created", json!({"id": "cus_1"}), "IGNORED"),
        ("evt_2", completed, with(&paid, &json!({"metadata": {}})), "IGNORED"),
        ("evt_3", completed, with(&paid, &json!({"payment_status": "unpaid"})), "IGNORED"),
        ("evt_4", completed, with(&paid, &json!({"amount_total": 1989})), "AMOUNT_MISMATCH"),
        ("evt_5", completed, with(&paid, &json!({"currency": "usd"})), "AMOUNT_MISMATCH"),
        ("evt_6", "checkout.session.async_payment_failed", paid.clone(), "FAILED"),
        ("evt_7", "checkout.session.expired", session.clone(), "FAILED"),
    ] {
        assert_eq!(outcome(&shop, &event(id, kind, &object)).await, says, "{id}");
    }
    for broken in [json!({"amount_total": "1990"}), json!({"currency": null}), json!({"payment_intent": ""})]
    {
        send(&shop, &event("evt_8", completed, &with(&paid, &broken))).await.refused(400, "WEBHOOK_REFUSED");
    }
    assert_eq!(alice.order(&order).await.text("status"), "PENDING");
    assert_eq!(evidence(&shop, &order).await.len(), 4);
    // Paid by a delayed way in the end.
    let late = event("evt_9", "checkout.session.async_payment_succeeded", &paid);
    assert_eq!(outcome(&shop, &late).await, "PAID");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_provider_that_does_not_answer_costs_no_order_and_goes_on_with_the_same_session() {
    let (shop, account) = stripe_shop(&[("payments.timeout", "300ms")]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;

    for mood in [Mood::Silent, Mood::Refusing, Mood::Confused] {
        account.mood.send_replace(mood);
        let refused = till::start(&alice, &order).await;
        let told = refused.refused(503, "PAYMENT_UNAVAILABLE");
        assert_eq!(refused.header("retry-after"), Some("3"), "{mood:?}");
        assert!(!told.to_string().contains(KEY));
        assert_eq!(alice.order(&order).await.json()["payable"], true);
    }
    account.mood.send_replace(Mood::Well);
    shop.advance(Duration::from_secs(300));
    let started = till::start(&alice, &order).await;
    assert_eq!(started.text("paymentUrl"), "https://checkout.stripe.test/c/pay/cs_test_0");
    assert_eq!(account.sessions.lock().unwrap().len(), 1, "four calls, one session");

    // The webhook may come although the answer with the page's address was lost.
    let session = account.sessions.lock().unwrap().values().next().unwrap().1.clone();
    assert_eq!(text_of(&session["metadata"], "doorbuster_attempt"), till::attempt_of(&order, "stripe"));
    let paid = with(&session, &json!({"payment_intent": "pi_1", "payment_status": "paid"}));
    assert_eq!(outcome(&shop, &event("evt_1", "checkout.session.completed", &paid)).await, "PAID");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_provider_holds_up_nobody_else() {
    let (shop, account) = stripe_shop(&[("payments.timeout", "1m")]).await;
    let sale = shop.sale(100).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;
    account.mood.send_replace(Mood::Silent);
    let mut waiting = Box::pin(till::start(&alice, &order));

    // While the provider keeps its answer back, a sale goes on: orders, records, payments by hand, cancels.
    let others = async {
        until("the provider was asked", async || account.calls() == 1).await;
        for number in 0..40 {
            let buyer = shop.buyer(&format!("user-{number}"));
            let other = payable_order(&shop, &buyer, &sale).await;
            if number % 2 == 0 {
                assert_eq!(shop.pay(&other, &other).await.outcome, "PAID");
            } else {
                assert_eq!(buyer.cancel(&other).await.text("status"), "CANCELLED");
            }
        }
    };
    tokio::select! {
        biased;
        early = &mut waiting => panic!("answered before the provider did: {}", early.said()),
        () = others => {}
    }
    account.mood.send_replace(Mood::Well);
    assert_eq!(waiting.as_mut().await.status, 200);
    drop(waiting);
    assert!(shop.now() == Timestamp::from_ms(START_MS), "all of it within one moment of the shop's clock");
    shop.finish().await;
}

/// How a session stands once it was paid.
fn paid(session: &Value, intent: &str) -> Value {
    with(session, &json!({"status": "complete", "payment_status": "paid", "payment_intent": intent}))
}

/// Behind the deadline Stripe is asked: an open session is ended, and one that was paid counts, though its
/// webhook never came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_the_deadline_sessions_are_ended_and_payments_are_found() {
    let (shop, account) = stripe_shop(&[("payments.hold", "20s")]).await;
    let sale = shop.sale(5).await;
    let (alice, bob, carol) = (shop.buyer("alice"), shop.buyer("bob"), shop.buyer("carol"));
    let mut orders = Vec::new();
    for buyer in [&alice, &bob, &carol] {
        let order = payable_order(&shop, buyer, &sale).await;
        assert_eq!(till::start(buyer, &order).await.status, 200);
        orders.push(order);
    }
    let of = |order: &str, change: &dyn Fn(&mut Value)| {
        let mut sessions = account.sessions.lock().unwrap();
        let found = sessions.values_mut().find(|it| it.1["client_reference_id"] == order).unwrap();
        change(&mut found.1);
        found.1.clone()
    };
    of(&orders[1], &|session| *session = paid(session, "pi_bob"));
    // A way of paying that takes days: nobody can say, so it is waited for as long as the hold lasts.
    of(&orders[2], &|session| session["status"] = json!("complete"));
    shop.advance(WINDOW + Duration::from_millis(1));

    alice.until_status(&orders[0], "EXPIRED").await;
    assert_eq!(of(&orders[0], &|_| {})["status"], "expired", "nobody can pay there any more");
    bob.until_status(&orders[1], "PAID").await;
    assert_eq!(carol.order(&orders[2]).await.text("status"), "PENDING");
    shop.advance(Duration::from_secs(20));
    carol.until_status(&orders[2], "EXPIRED").await;
    // The webhook comes after all, and is the same payment.
    let session = of(&orders[1], &|_| {});
    assert_eq!(outcome(&shop, &event("evt_late", "checkout.session.completed", &session)).await, "DUPLICATE");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_is_given_back_once_and_what_stripe_refuses_waits_for_the_staff() {
    let (shop, account) = stripe_shop(&[]).await;
    let sale = shop.sale(5).await;
    let alice = shop.buyer("alice");
    let order = payable_order(&shop, &alice, &sale).await;
    till::start(&alice, &order).await;
    let session = account.sessions.lock().unwrap().values().next().unwrap().1.clone();
    let pays = async |event_id: &str, intent: &str| {
        outcome(&shop, &event(event_id, "checkout.session.completed", &paid(&session, intent))).await
    };
    assert_eq!(pays("evt_1", "pi_1").await, "PAID");
    assert_eq!(pays("evt_2", "pi_2").await, "REFUND_DUE");
    let state = async |wanted: &str| {
        shop.admin
            .refunds(Some(wanted))
            .await
            .unwrap()
            .into_iter()
            .map(|it| it.payment_id)
            .collect::<Vec<_>>()
    };
    until("it is given back", async || state("DONE").await == ["pi_2"]).await;
    {
        let refunds = account.refunds.lock().unwrap();
        assert_eq!(refunds.len(), 1);
        let form = &refunds["refund-pi_2"];
        assert_eq!((form["payment_intent"].as_str(), form["amount"].as_str()), ("pi_2", "1990"));
    }
    account.mood.send_replace(Mood::Refusing);
    assert_eq!(pays("evt_3", "pi_3").await, "REFUND_DUE");
    until("it is refused", async || state("REFUSED").await == ["pi_3"]).await;
    let refused = shop.admin.refunds(Some("REFUSED")).await.unwrap().remove(0);
    assert!(refused.said.unwrap().contains("charge_disputed"));
    // The staff has talked to the bank, and lets it be asked again.
    account.mood.send_replace(Mood::Well);
    let retry = RetryRefund { provider: "stripe".into(), payment_id: "pi_3".into(), by: "ada".into() };
    assert_eq!(shop.admin.retry_refund(&retry).await.unwrap().state, "DUE");
    shop.advance(Duration::from_secs(3_600));
    until("it is given back", async || state("DONE").await == ["pi_2", "pi_3"]).await;

    // One does not arrive, and carries what it was asked for with. Asking again would only hear of that one again.
    let order_said = account.refunds.lock().unwrap()["refund-pi_2"]["metadata[doorbuster_order]"].clone();
    let pending = json!({
        "id": "re_refund-pi_2", "object": "refund", "amount": 1990, "currency": "eur", "payment_intent": "pi_2",
        "metadata": {"doorbuster_order": order_said}, "status": "pending",
    });
    assert_eq!(outcome(&shop, &event("evt_4", "charge.refund.updated", &pending)).await, "IGNORED");
    let failed = with(&pending, &json!({"status": "failed"}));
    assert_eq!(outcome(&shop, &event("evt_5", "charge.refund.updated", &failed)).await, "REFUND_FAILED");
    assert_eq!(outcome(&shop, &event("evt_6", "refund.failed", &failed)).await, "REFUND_FAILED");
    let retry = RetryRefund { payment_id: "pi_2".into(), ..retry };
    let refused = shop.admin.retry_refund(&retry).await.unwrap();
    assert_eq!((refused.state.as_str(), refused.said.unwrap().contains("did not arrive")), ("REFUSED", true));

    // One fails at once.
    account.mood.send_replace(Mood::Failing);
    assert_eq!(pays("evt_7", "pi_4").await, "REFUND_DUE");
    until("it is refused", async || state("REFUSED").await == ["pi_2", "pi_4"]).await;
    shop.finish().await;
}

/// W5 and a ledger that was restored: what webhooks should have told is read from Stripe's list.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn payments_whose_webhooks_never_came_are_read_from_the_list() {
    let (shop, account) = stripe_shop(&[("payments.reread", "100ms")]).await;
    let sale = shop.sale(5).await;
    let mut orders = Vec::new();
    for (user, intent) in [("alice", "pi_a"), ("bob", "pi_b"), ("carol", "pi_c")] {
        let buyer = shop.buyer(user);
        let order = payable_order(&shop, &buyer, &sale).await;
        till::start(&buyer, &order).await;
        let sessions: Vec<Value> =
            account.sessions.lock().unwrap().values().map(|(_, session)| session.clone()).collect();
        let session = sessions.iter().find(|it| it["client_reference_id"] == order.as_str()).unwrap();
        let told = event(&format!("evt_{user}"), "checkout.session.completed", &paid(session, intent));
        account.events.lock().unwrap().insert(0, told);
        orders.push((user, order));
    }
    let foreign = event("evt_other", "charge.refunded", &json!({"id": "ch_1", "object": "charge"}));
    account.events.lock().unwrap().insert(1, foreign);
    for (user, order) in &orders {
        shop.buyer(user).until_status(order, "PAID").await;
    }
    shop.finish().await;
}
