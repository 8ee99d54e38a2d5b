//! Buyers in front of a gateway that does what a script says.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use doorbuster_chaos::buyers::{Counts, Crowd, Gateways, Offer, Plan, Shares};
use doorbuster_chaos::history::{Answer, Ending, History, Recorder, Wish};
use doorbuster_chaos::{ItemId, OrderId, SaleId};
use doorbuster_loadtest::TokenSigner;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const ORDER: &str = "0198c5a4-7b1e-7c3a-9d2f-3b8f6a1c2d4e";

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the gateway does with a request.
#[derive(Clone, Debug)]
enum Reaction {
    /// It reads it and closes the connection.
    Close,
    /// It answers with a status and a body.
    Say(u16, String),
}

fn accepts() -> Reaction {
    Reaction::Say(202, format!(r#"{{"orderId":"{ORDER}","status":"PENDING","payable":false}}"#))
}

fn refuses(status: u16, error: &str) -> Reaction {
    let body = r#"{"type":"t","title":"t","detail":"d","error":"WORD","status":0}"#;
    Reaction::Say(status, body.replace("WORD", error))
}

/// A gateway that answers the n-th request as the script says; and everything that it was asked.
struct Gateway {
    address: SocketAddr,
    asked: Arc<std::sync::Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

impl Gateway {
    async fn open(script: impl Fn(usize) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let mut serving = JoinSet::new();
        let (script, log) = (Arc::new(script), Arc::clone(&asked));
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                connections.spawn(async move { serve(stream, script.as_ref(), &log).await });
            }
        });
        Self { address, asked, _serving: serving }
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    script: &(impl Fn(usize) -> Reaction + Sync),
    log: &std::sync::Mutex<Vec<String>>,
) {
    while let Some(request) = read_request(&mut stream).await {
        let number = {
            let mut log = log.lock().unwrap();
            log.push(request);
            log.len() - 1
        };
        let Reaction::Say(status, body) = script(number) else { return };
        let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

/// The next request, its head in lower case and its body.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return Some(format!("{head}\n{body}"));
            }
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

fn plan(users: u32, shares: Shares) -> Plan {
    let offer = Offer {
        sale: SaleId(1),
        items: vec![ItemId(7)],
        limit: 1,
        price_minor: 1_990,
        currency: "EUR".to_owned(),
    };
    let mut plan = Plan::new(offer, users, TokenSigner::with_defaults(b"a secret").unwrap());
    plan.shares = shares;
    plan.longest_pause = Duration::from_millis(5);
    // A clock that stands: a token says its second, and repeated requests are compared byte for byte.
    plan.now_s = Arc::new(|| 1_796_000_000);
    plan
}

async fn lived(crowd: Crowd) -> (Counts, History) {
    timeout(PATIENCE, crowd.reaches(|_| false)).await.unwrap();
    (crowd.counts(), crowd.join().await)
}

fn statuses(history: &History) -> Vec<Option<u16>> {
    history.calls.iter().map(|call| call.answer().map(|(_, answer)| answer.status)).collect()
}

#[tokio::test]
async fn a_user_clicks_until_the_answer_is_final() {
    let gateway = Gateway::open(|number| match number {
        0 => Reaction::Close,
        1 => refuses(503, "BUSY"),
        2 => refuses(429, "RATE_LIMITED"),
        3 => refuses(403, "NOT_STARTED"),
        _ => accepts(),
    })
    .await;
    let shares = Shares { keyed: 100, ..Shares::default() };
    let crowd = Crowd::start(plan(1, shares), &Gateways::new(vec![gateway.address]), &Recorder::default());
    let (counts, history) = lived(crowd).await;

    assert_eq!(statuses(&history), [None, Some(503), Some(429), Some(403), Some(202)]);
    assert_eq!(history.calls[0].end.as_ref().unwrap().1, Ending::Unknown);
    let accepted = history.calls[4].answer().unwrap().1;
    assert_eq!(
        accepted,
        &Answer {
            status: 202,
            order: OrderId::read(ORDER),
            order_status: Some("PENDING".to_owned()),
            ..Answer::default()
        }
    );
    let expected = Counts { clicks: 5, accepted: 1, unresolved: 2, refused: 2, done: 1, ..Counts::default() };
    assert_eq!(counts, expected);
    // Repeated is the same wish, byte for byte, with the same key.
    let asked = gateway.asked();
    assert!(asked.iter().all(|it| it == &asked[0]), "{asked:#?}");
    assert!(asked[0].starts_with("post /api/flash-sales/items/7/purchase "), "{}", asked[0]);
    assert!(asked[0].contains("idempotency-key: user-0-0") && asked[0].ends_with(r#"{"quantity":1}"#));
    // Every time follows the one before it.
    let times: Vec<u64> =
        history.calls.iter().flat_map(|it| [it.invoked_us, it.end.as_ref().unwrap().0]).collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[tokio::test]
async fn a_final_refusal_is_final() {
    for (status, error) in [(410, "SOLD_OUT"), (409, "LIMIT_REACHED"), (404, "ITEM_NOT_FOUND")] {
        let gateway = Gateway::open(move |_| refuses(status, error)).await;
        let plan = plan(1, Shares { cancel: 100, again: 100, ..Shares::default() });
        let crowd = Crowd::start(plan, &Gateways::new(vec![gateway.address]), &Recorder::default());
        assert_eq!(statuses(&lived(crowd).await.1), [Some(status)], "{error}");
    }
}

#[tokio::test]
async fn who_cancels_asks_until_it_is_done_and_buys_again_with_another_key() {
    let cancelled = Reaction::Say(200, format!(r#"{{"orderId":"{ORDER}","status":"CANCELLED"}}"#));
    let gateway = Gateway::open(move |number| match number {
        0 => accepts(),
        1 => refuses(404, "ORDER_NOT_FOUND"),
        2 => cancelled.clone(),
        _ => refuses(410, "SOLD_OUT"),
    })
    .await;
    let shares = Shares { keyed: 100, cancel: 100, again: 100, ..Shares::default() };
    let crowd = Crowd::start(plan(1, shares), &Gateways::new(vec![gateway.address]), &Recorder::default());
    let (counts, history) = lived(crowd).await;

    assert_eq!(statuses(&history), [Some(202), Some(404), Some(200), Some(410)]);
    assert_eq!((counts.cancelled, counts.gone), (1, 1));
    assert_eq!(history.calls[2].wish, Wish::Cancel { order: OrderId::read(ORDER).unwrap() });
    let keys: Vec<&String> = history
        .calls
        .iter()
        .filter_map(|call| match &call.wish {
            Wish::Purchase { key, .. } => key.as_ref(),
            Wish::Cancel { .. } | Wish::Look { .. } | Wish::Pay { .. } => None,
        })
        .collect();
    assert_eq!(keys, ["user-0-0", "user-0-1"]);
}

#[tokio::test]
async fn gateways_may_change_under_the_crowd() {
    // Bound, so that nobody else gets the port, and not listening, so that connections are refused.
    let nobody = TcpSocket::new_v4().unwrap();
    nobody.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let gateways = Gateways::new(vec![nobody.local_addr().unwrap()]);
    let crowd = Crowd::start(plan(1, Shares::default()), &gateways, &Recorder::default());
    assert!(timeout(PATIENCE, crowd.reaches(|counts| counts.unresolved >= 2)).await.unwrap());
    let gateway = Gateway::open(|_| accepts()).await;
    gateways.replace(vec![gateway.address]);
    let (counts, history) = lived(crowd).await;

    assert_eq!(counts.accepted, 1);
    assert_eq!(history.calls[0].end.as_ref().unwrap().1, Ending::NotSent);
    // Without a key and for one unit, nothing is said but who and what.
    let asked = gateway.asked();
    assert!(asked[0].ends_with('\n') && !asked[0].contains("idempotency-key"), "{}", asked[0]);
}

#[tokio::test]
async fn a_stopped_crowd_ends_its_calls_and_begins_no_other() {
    let gateway = Gateway::open(|_| refuses(503, "BUSY")).await;
    let mut patient = plan(100, Shares::default());
    patient.lanes = 4;
    patient.longest_pause = Duration::from_secs(60);
    let crowd = Crowd::start(patient, &Gateways::new(vec![gateway.address]), &Recorder::default());
    assert!(timeout(PATIENCE, crowd.reaches(|counts| counts.clicks >= 4)).await.unwrap());
    crowd.stop();
    let (counts, history) = lived(crowd).await;

    // A lane each had clicked once, and waited; nobody waits for the pause's end.
    assert_eq!((counts.clicks, counts.done, counts.impatient), (4, 4, 4));
    assert!(history.calls.iter().all(|call| call.end.is_some()));
}

#[tokio::test]
async fn patience_ends() {
    let gateway = Gateway::open(|_| refuses(503, "BUSY")).await;
    let mut hasty = plan(3, Shares::default());
    hasty.patience = Duration::from_millis(50);
    let crowd = Crowd::start(hasty, &Gateways::new(vec![gateway.address]), &Recorder::default());
    let (counts, _) = lived(crowd).await;
    assert_eq!((counts.done, counts.impatient), (3, 3));
}
