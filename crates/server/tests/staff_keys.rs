//! Idempotency keys of the staff: a change that is sent again is answered as it was, and not done again.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use doorbuster_engine::ledger::{ActionAnswer, ActionKey, BeginActionOutcome, StaffAction};
use doorbuster_wire::SaleDraft;
use futures_util::future::join_all;
use serde_json::Value;
use shop::http::{Line, Reply, request};
use shop::{Offer, Shop, until, write_private};

const SALES: &str = "/admin/api/sales";
const ADA: &str = "ada-token-ada-token-ada-token-ada";
const BOB: &str = "bob-token-bob-token-bob-token-bob";
const EVE: &str = "eve-token-eve-token-eve-token-eve";

/// A shop with staff that has names.
struct Named {
    shop: Shop,
    _folder: tempfile::TempDir,
}

impl Named {
    async fn open() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("named.tokens");
        let lines = format!("operator {ADA} name=ada\nadmin {BOB} name=bob\nviewer {EVE} name=eve\n");
        write_private(&file, &lines);
        let shop = Shop::open_with(&[("admin.token_file", &file.display().to_string())]).await;
        Self { shop, _folder: folder }
    }

    async fn send(&self, who: &str, method: &str, path: &str, keys: &[&str], body: &[u8]) -> Reply {
        let mut line = self.shop.staff_line().await;
        line.send(&whole(who, method, path, keys, body)).await.unwrap();
        line.reply(false).await.unwrap()
    }

    /// A change of Ada's under this key.
    async fn change(&self, path: &str, key: &str, body: &str) -> Reply {
        self.send(ADA, "POST", path, &[key], body.as_bytes()).await
    }

    async fn draft(&self, name: &str) -> String {
        let draft = SaleDraft { name: name.to_owned(), ..self.shop.draft_of(&Offer::default()) };
        serde_json::to_string(&draft).unwrap()
    }

    /// The members of every item of a listing.
    async fn all(&self, path: &str) -> Vec<Value> {
        let reply = self.send(EVE, "GET", path, &[], b"").await;
        assert_eq!(reply.status, 200, "{}", reply.said());
        reply.json()["items"].as_array().unwrap().clone()
    }

    async fn sales(&self) -> usize {
        self.all(SALES).await.len()
    }
}

fn whole(who: &str, method: &str, path: &str, keys: &[&str], body: &[u8]) -> Vec<u8> {
    let bearer = format!("Bearer {who}");
    let mut headers = vec![("connection", "close"), ("authorization", bearer.as_str())];
    if !body.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    headers.extend(keys.iter().map(|key| ("idempotency-key", *key)));
    request(method, path, &headers, body)
}

/// Whether this is the first answer again.
fn is_again(reply: &Reply, first: &Reply) {
    assert_eq!((reply.status, &reply.body), (first.status, &first.body));
    assert_eq!(reply.header("content-type"), first.header("content-type"));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    assert_eq!(reply.header("idempotent-replayed"), Some("true"));
    assert_eq!(first.header("idempotent-replayed"), None);
    assert_ne!(reply.header("x-request-id"), first.header("x-request-id"));
}

/// A2s.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_sent_again_is_answered_as_it_was_and_not_done_again() {
    let mut named = Named::open().await;
    let draft = named.draft("Drop").await;
    let first = named.change(SALES, "k-1", &draft).await;
    assert_eq!(first.status, 201, "{}", first.said());
    is_again(&named.change(SALES, "k-1", &draft).await, &first);
    assert_eq!(named.sales().await, 1);

    // Another body, path or query under the same key is another request.
    let sale = format!("{SALES}/{}", first.text("saleId"));
    named.change(SALES, "k-1", &named.draft("Other").await).await.refused(422, "IDEMPOTENCY_MISMATCH");
    named.change(&format!("{sale}/pause"), "k-1", &draft).await.refused(422, "IDEMPOTENCY_MISMATCH");
    named.change(&format!("{SALES}?a=b"), "k-1", &draft).await.refused(422, "IDEMPOTENCY_MISMATCH");
    // What nobody serves is no change, whatever its key.
    named.send(ADA, "PUT", SALES, &["k-1"], draft.as_bytes()).await.refused(405, "METHOD_NOT_ALLOWED");
    named.change("/admin/api/nothing", "k-1", "").await.refused(404, "NOT_FOUND");
    assert_eq!(named.sales().await, 1);
    // Another member's key is another key; who may not change anything learns nothing by a key.
    let bobs = named.send(BOB, "POST", SALES, &["k-1"], draft.as_bytes()).await;
    assert_eq!((bobs.status, bobs.header("idempotent-replayed")), (201, None));
    named.send(EVE, "POST", SALES, &["k-1"], draft.as_bytes()).await.refused(403, "FORBIDDEN");
    named.send("nobody", "POST", SALES, &["k-1"], draft.as_bytes()).await.refused(401, "UNAUTHENTICATED");
    // Without a key each is a change of its own.
    for _ in 0..2 {
        assert_eq!(named.send(ADA, "POST", SALES, &[], draft.as_bytes()).await.status, 201);
    }
    assert_eq!(named.sales().await, 4);

    // A refusal is an answer too, although it would be another one by now.
    let early = named.change(&format!("{sale}/pause"), "k-2", "").await;
    early.refused(409, "CONFLICT");
    assert_eq!(named.change(&format!("{sale}/preheat"), "k-3", "").await.status, 200);
    assert_eq!(named.change(&format!("{sale}/open"), "k-4", "").await.status, 200);
    is_again(&named.change(&format!("{sale}/pause"), "k-2", "").await, &early);
    assert_eq!(named.change(&format!("{sale}/pause"), "k-5", "").await.text("state"), "paused");

    // The next server of this ledger knows the keys too.
    named.shop.stop().await;
    named.shop.start_again().await.unwrap();
    is_again(&named.change(SALES, "k-1", &draft).await, &first);
    assert_eq!(named.sales().await, 4);
    let trail = named.all("/admin/api/trail").await;
    let keys: Vec<_> = trail.iter().rev().map(|it| it["idempotencyKey"].as_str()).collect();
    let some = Some;
    assert_eq!(
        keys,
        [some("k-1"), some("k-1"), None, None, some("k-2"), some("k-3"), some("k-4"), some("k-5")],
        "what was not done is not in the trail"
    );
    named.shop.admin = named_client(&named.shop);
    named.shop.finish().await;
}

/// The shop's own client, with a token that this shop knows.
fn named_client(shop: &Shop) -> doorbuster_loadtest::AdminClient {
    doorbuster_loadtest::AdminClient::new(&format!("http://{}", shop.app().admin_address), BOB).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_begun_and_has_no_answer_is_not_done_again_by_its_key() {
    let mut named = Named::open().await;
    let draft = named.draft("Drop").await;
    // Another server has begun it, and has died, or is at it.
    let ledger = &named.shop.app().backends().ledger;
    let action = |key: &str| StaffAction {
        by: "ada".to_owned(),
        role: "operator".to_owned(),
        method: "POST".to_owned(),
        path: SALES.to_owned(),
        body: draft.clone(),
        request: "of-another-server".to_owned(),
        key: Some(ActionKey::new(key, "POST", SALES, draft.as_bytes())),
    };
    let begin = async |key: &str| match ledger.begin_action(&action(key)).await.unwrap() {
        BeginActionOutcome::Begun(id) => id,
        other => panic!("{other:?}"),
    };
    let (_, failed, done) = (begin("k-1").await, begin("k-2").await, begin("k-3").await);
    let problem = named.change(SALES, "k-1", &draft).await.refused(409, "CONFLICT");
    let says = problem["detail"].as_str().unwrap();
    assert!(
        says.contains("of-another-server") && says.contains("under way") && says.contains("trail"),
        "{says}"
    );
    named.change(SALES, "k-1", "{}").await.refused(422, "IDEMPOTENCY_MISMATCH");

    // A server that failed may have done it all the same.
    ledger.end_action(failed, &ActionAnswer { status: 503, body: None }).await.unwrap();
    let problem = named.change(SALES, "k-2", &draft).await.refused(409, "CONFLICT");
    assert!(problem["detail"].as_str().unwrap().contains("answered 503"), "{problem}");
    // Another server's answer is given here too.
    let answer = ActionAnswer { status: 201, body: Some("{\"saleId\":\"7\"}".to_owned()) };
    ledger.end_action(done, &answer).await.unwrap();
    let again = named.change(SALES, "k-3", &draft).await;
    assert_eq!((again.status, again.text("saleId").as_str()), (201, "7"));
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(named.sales().await, 0);

    // An answer that is too long to be kept is not given again.
    let many = Offer { quantities: vec![1; 900], ..Offer::default() };
    let many = serde_json::to_string(&named.shop.draft_of(&many)).unwrap();
    let first = named.change(SALES, "k-4", &many).await;
    assert_eq!(first.status, 201);
    assert!(first.body.len() > 64 * 1024, "{}", first.body.len());
    let problem = named.change(SALES, "k-4", &many).await.refused(409, "CONFLICT");
    assert!(problem["detail"].as_str().unwrap().contains("answered 201"), "{problem}");
    assert_eq!(named.sales().await, 1);
    named.shop.admin = named_client(&named.shop);
    named.shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_done_once_however_many_send_it_and_whoever_hangs_up() {
    let mut named = Named::open().await;
    let draft = named.draft("Drop").await;
    let answers = join_all((0..20).map(|_| named.change(SALES, "k-1", &draft))).await;
    for reply in &answers {
        match reply.status {
            201 => assert_eq!(reply.body, answers.iter().find(|it| it.status == 201).unwrap().body),
            _ => drop(reply.refused(409, "CONFLICT")),
        }
    }
    assert_eq!(named.sales().await, 1);

    for round in 0..20 {
        let key = format!("gone-{round}");
        let mut line = Line::connect(named.shop.app().admin_address).await.unwrap();
        line.send(&whole(ADA, "POST", SALES, &[&key], draft.as_bytes())).await.unwrap();
        drop(line);
        // Under way for a moment, then answered as it was; or it never came so far, and is done now.
        until("there is an answer", async || {
            let reply = named.change(SALES, &key, &draft).await;
            assert!([201, 409].contains(&reply.status), "{}", reply.said());
            reply.status == 201
        })
        .await;
    }
    assert_eq!(named.sales().await, 21);
    let trail = named.all("/admin/api/trail").await;
    assert!(trail.iter().all(|it| it["status"] == 201) && trail.len() == 21, "{trail:?}");
    named.shop.admin = named_client(&named.shop);
    named.shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_is_one_text_of_visible_characters() {
    let mut named = Named::open().await;
    let draft = named.draft("Drop").await;
    let long = "k".repeat(129);
    for keys in [&[""][..], &["a b"], &["a\tb"], &["\u{e9}"], &["\u{7f}"], &[&long], &["a", "a"], &["a", "b"]]
    {
        let reply = named.send(ADA, "POST", SALES, keys, draft.as_bytes()).await;
        assert_eq!(reply.status, 400, "{keys:?}: {}", reply.said());
    }
    assert_eq!((named.sales().await, named.all("/admin/api/trail").await.len()), (0, 0));
    let all: String = ('!'..='~').chain('!'..='B').collect();
    assert_eq!(all.len(), 128);
    for key in ["!", &all] {
        assert_eq!(named.change(SALES, key, &draft).await.status, 201, "{key}");
    }
    // Who only looks needs none, and it does not matter.
    assert_eq!(named.send(EVE, "GET", SALES, &["a b"], b"").await.status, 200);
    named.shop.admin = named_client(&named.shop);
    named.shop.finish().await;
}
