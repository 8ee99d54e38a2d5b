//! PostgreSQL through the proxy, by the client library that the engine has too.

use doorbuster_chaos::proxy::{Effect, Ending, Matching, Moment, Protocol, Proxy, Stream, Then, Toxic};
use futures_util::SinkExt as _;
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls};

use crate::{FOR_EVER, address_of, own_name, server_of, soon};

/// A proxy before PostgreSQL, a client through it, one beside it, and a table.
struct Way {
    proxy: Proxy,
    client: Client,
    beside: Client,
    table: String,
    connections: JoinSet<()>,
}

impl Way {
    async fn new() -> Self {
        let url = address_of("POSTGRES");
        let server = server_of(url.rsplit_once('/').unwrap().0);
        let proxy = Proxy::start(Protocol::Postgres, server).await.unwrap();
        let through = url.replace(&server.to_string(), &proxy.address().to_string());
        let mut connections = JoinSet::new();
        let client = connect(&through, &mut connections).await;
        let beside = connect(&url, &mut connections).await;
        let table = own_name("proxy");
        soon(beside.batch_execute(&format!("CREATE TABLE {table} (n int)"))).await.unwrap();
        Self { proxy, client, beside, table, connections }
    }

    fn insert(&self) -> String {
        format!("INSERT INTO {} VALUES (1)", self.table)
    }

    /// How many rows are committed, asked beside the proxy.
    async fn rows(&self) -> i64 {
        let sql = format!("SELECT count(*) FROM {}", self.table);
        soon(self.beside.query_one(&sql, &[])).await.unwrap().get(0)
    }

    async fn finish(mut self) {
        assert_eq!((self.proxy.counts().unparsed, self.proxy.counts().too_large), (0, 0));
        soon(self.beside.batch_execute(&format!("DROP TABLE {}", self.table))).await.unwrap();
        self.connections.abort_all();
    }
}

async fn connect(url: &str, connections: &mut JoinSet<()>) -> Client {
    let (client, connection) = soon(tokio_postgres::connect(url, NoTls)).await.unwrap();
    connections.spawn(async move {
        // Its client hears of the same error.
        let _ = connection.await;
    });
    client
}

#[tokio::test]
async fn a_commit_whose_reply_is_swallowed_is_committed() {
    let mut way = Way::new().await;
    let swallow = Toxic::new(Effect::SwallowReply(Then::End(Ending::Reset)));
    let swallow = way.proxy.add(swallow.on(Matching::sql("COMMIT")).first(1)).unwrap();
    let insert = way.insert();
    let transaction = soon(way.client.transaction()).await.unwrap();
    soon(transaction.execute(&insert, &[])).await.unwrap();
    soon(transaction.commit()).await.unwrap_err();
    assert_eq!(swallow.fired(), 1);
    assert_eq!(way.rows().await, 1);
    way.finish().await;
}

#[tokio::test]
async fn a_commit_that_is_cut_before_its_delivery_is_none() {
    let mut way = Way::new().await;
    let cut = Toxic::new(Effect::Cut(Moment::BeforeDelivery, Ending::Reset)).on(Matching::sql("commit"));
    let cut = way.proxy.add(cut).unwrap();
    let insert = way.insert();
    let transaction = soon(way.client.transaction()).await.unwrap();
    soon(transaction.execute(&insert, &[])).await.unwrap();
    soon(transaction.commit()).await.unwrap_err();
    assert_eq!(cut.fired(), 1);
    assert_eq!(way.rows().await, 0);
    way.finish().await;
}

#[tokio::test]
async fn a_commit_whose_reply_hangs_is_committed_while_its_client_waits() {
    let mut way = Way::new().await;
    let swallow = Toxic::new(Effect::SwallowReply(Then::Hang)).on(Matching::sql("COMMIT"));
    let swallow = way.proxy.add(swallow).unwrap();
    let insert = way.insert();
    let transaction = soon(way.client.transaction()).await.unwrap();
    soon(transaction.execute(&insert, &[])).await.unwrap();
    let mut commit = Box::pin(transaction.commit());
    tokio::select! {
        reply = &mut commit => panic!("{reply:?}"),
        () = soon(swallow.until_fired(1)) => {}
    }
    way.proxy.heal();
    soon(commit).await.unwrap_err();
    assert_eq!(way.rows().await, 1);
    way.finish().await;
}

#[tokio::test]
async fn a_doubled_query_is_done_twice_and_answered_once() {
    let way = Way::new().await;
    let duplicate = way.proxy.add(Toxic::new(Effect::Duplicate).on(Matching::sql("INSERT"))).unwrap();
    soon(way.client.batch_execute(&way.insert())).await.unwrap();
    soon(duplicate.until_fired(1)).await;
    assert_eq!(way.rows().await, 2);
    // Replies still follow their queries.
    for number in 0..5_i32 {
        let row = soon(way.client.query_one("SELECT $1::int", &[&number])).await.unwrap();
        assert_eq!(row.get::<_, i32>(0), number);
    }
    way.finish().await;
}

#[tokio::test]
async fn a_prepared_statement_is_found_by_its_sql_when_it_is_run() {
    let way = Way::new().await;
    let prepared = soon(way.client.prepare(&way.insert())).await.unwrap();
    let swallow = Toxic::new(Effect::SwallowReply(Then::End(Ending::Close)));
    let swallow = way.proxy.add(swallow.on(Matching::sql(&way.table))).unwrap();
    soon(way.client.query_one("SELECT 1", &[])).await.unwrap();
    soon(way.client.execute(&prepared, &[])).await.unwrap_err();
    assert_eq!(swallow.fired(), 1);
    assert_eq!(way.rows().await, 1);
    way.finish().await;
}

#[tokio::test]
async fn a_query_that_is_held_back_is_overtaken_by_another_connection() {
    let way = Way::new().await;
    let delay = Toxic::new(Effect::Delay(Stream::Upstream, FOR_EVER)).on(Matching::sql("INSERT"));
    let delay = way.proxy.add(delay).unwrap();
    let insert = way.insert();
    let mut waiting = Box::pin(way.client.batch_execute(&insert));
    tokio::select! {
        reply = &mut waiting => panic!("{reply:?}"),
        () = soon(delay.until_fired(1)) => {}
    }
    assert_eq!(way.rows().await, 0);
    way.proxy.heal();
    soon(waiting).await.unwrap();
    assert_eq!(way.rows().await, 1);
    way.finish().await;
}

#[tokio::test]
async fn replies_follow_their_requests_through_a_copy_and_an_error() {
    let way = Way::new().await;
    let sql = format!("COPY {} FROM STDIN", way.table);
    let mut sink = Box::pin(soon(way.client.copy_in(&sql)).await.unwrap());
    soon(sink.send(&b"1\n2\n"[..])).await.unwrap();
    assert_eq!(soon(sink.as_mut().finish()).await.unwrap(), 2);
    soon(way.client.query_one("SELECT 1/0", &[])).await.unwrap_err();

    // Only if they are matched rightly is this the reply that is swallowed.
    let swallow = Toxic::new(Effect::SwallowReply(Then::Hang)).on(Matching::sql("INSERT"));
    let swallow = way.proxy.add(swallow).unwrap();
    let insert = way.insert();
    let mut waiting = Box::pin(way.client.batch_execute(&insert));
    tokio::select! {
        reply = &mut waiting => panic!("{reply:?}"),
        () = soon(swallow.until_fired(1)) => {}
    }
    drop(waiting);
    assert_eq!(way.rows().await, 3);
    way.finish().await;
}
