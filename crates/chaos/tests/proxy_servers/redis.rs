//! Redis through the proxy, by the client library that the engine has too.

use std::sync::Arc;

use doorbuster_chaos::proxy::{
    Effect, Ending, Installed, Matching, Moment, Protocol, Proxy, Stream, Then, Toxic,
};
use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands as _, AsyncConnectionConfig, RedisResult};

use crate::{FOR_EVER, address_of, own_name, server_of, soon};

/// A proxy before Redis, a client through it, and one beside it.
struct Way {
    proxy: Proxy,
    client: MultiplexedConnection,
    beside: MultiplexedConnection,
    key: String,
}

async fn connect(url: String) -> MultiplexedConnection {
    // What never comes must not look like a slow reply.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    let client = redis::Client::open(url).unwrap();
    soon(client.get_multiplexed_async_connection_with_config(&config)).await.unwrap()
}

impl Way {
    async fn new(parameters: &str) -> Self {
        let server = server_of(&address_of("REDIS"));
        let proxy = Proxy::start(Protocol::Resp, server).await.unwrap();
        let client = connect(format!("redis://{}/{parameters}", proxy.address())).await;
        let beside = connect(format!("redis://{server}/")).await;
        Self { proxy, client, beside, key: own_name("proxy") }
    }

    /// The library says INCR as INCRBY.
    fn on_incr(&self, effect: Effect) -> Arc<Installed> {
        self.proxy.add(Toxic::new(effect).on(Matching::command_with("INCRBY", &self.key)).first(1)).unwrap()
    }

    async fn incr(&mut self) -> RedisResult<i64> {
        soon(self.client.incr(&self.key, 1)).await
    }

    /// What the server has, asked beside the proxy.
    async fn count(&mut self) -> i64 {
        let count: Option<i64> = soon(self.beside.get(&self.key)).await.unwrap();
        count.unwrap_or(0)
    }

    fn understood_all(&self) {
        assert_eq!((self.proxy.counts().unparsed, self.proxy.counts().too_large), (0, 0));
    }
}

#[tokio::test]
async fn a_swallowed_reply_leaves_the_work_done_once() {
    for protocol in ["", "?protocol=resp3"] {
        let mut way = Way::new(protocol).await;
        let swallow = way.on_incr(Effect::SwallowReply(Then::End(Ending::Reset)));
        way.incr().await.unwrap_err();
        soon(swallow.until_fired(1)).await;
        assert_eq!(way.count().await, 1);
        way.understood_all();
    }
}

#[tokio::test]
async fn a_client_whose_reply_hangs_waits_until_the_proxy_is_healed() {
    let mut way = Way::new("").await;
    let swallow = way.on_incr(Effect::SwallowReply(Then::Hang));
    let (mut client, key) = (way.client.clone(), way.key.clone());
    let mut waiting = Box::pin(client.incr::<_, _, i64>(&key, 1));
    tokio::select! {
        reply = &mut waiting => panic!("{reply:?}"),
        () = soon(swallow.until_fired(1)) => {}
    }
    assert_eq!(way.count().await, 1);
    // Later commands of this connection are done, and not answered either.
    tokio::select! {
        reply = way.client.incr::<_, _, i64>(&key, 1) => panic!("{reply:?}"),
        () = soon(async { while way.beside.get::<_, i64>(&key).await.unwrap() < 2 {} }) => {}
    }
    way.proxy.heal();
    soon(waiting).await.unwrap_err();
}

#[tokio::test]
async fn a_doubled_command_is_done_twice_and_answered_once() {
    for protocol in ["", "?protocol=resp3"] {
        let mut way = Way::new(protocol).await;
        let duplicate = way.on_incr(Effect::Duplicate);
        assert_eq!(way.incr().await.unwrap(), 1);
        soon(duplicate.until_fired(1)).await;
        assert_eq!(way.count().await, 2);
        // Replies still follow their commands.
        assert_eq!(way.incr().await.unwrap(), 3);
        let key = way.key.clone();
        let mut pipe = redis::pipe();
        pipe.get(&key).incr(&key, 1).cmd("ECHO").arg("x").get(&key);
        let replies: (i64, i64, String, i64) = soon(pipe.query_async(&mut way.client)).await.unwrap();
        assert_eq!(replies, (3, 4, "x".to_owned(), 4));
        way.understood_all();
    }
}

#[tokio::test]
async fn a_command_that_is_cut_off_is_done_only_when_it_was_delivered() {
    for (moment, done) in [(Moment::BeforeDelivery, 0), (Moment::AfterDelivery, 1)] {
        let mut way = Way::new("").await;
        let cut = way.on_incr(Effect::Cut(moment, Ending::Reset));
        way.incr().await.unwrap_err();
        assert_eq!(cut.fired(), 1);
        if done == 1 {
            // The server may still be about to do it.
            soon(async { while way.count().await == 0 {} }).await;
        }
        // This comes to the server later than what was delivered.
        assert_eq!(way.count().await, done, "{moment:?}");
    }
}

#[tokio::test]
async fn one_direction_alone_says_whether_the_work_is_done() {
    for (lost, done) in [(Stream::Upstream, 0), (Stream::Downstream, 1)] {
        let mut way = Way::new("").await;
        let one_way = way.proxy.add(Effect::OneWay(lost)).unwrap();
        let (mut client, key) = (way.client.clone(), way.key.clone());
        tokio::select! {
            reply = client.incr::<_, _, i64>(&key, 1) => panic!("{reply:?}"),
            () = soon(one_way.until_fired(1)) => {}
        }
        assert_eq!(way.count().await, done, "{lost:?}");
    }
}

#[tokio::test]
async fn on_a_half_open_connection_nothing_is_done() {
    let mut way = Way::new("").await;
    let half_open = way.proxy.add(Effect::HalfOpen).unwrap();
    let (mut client, key) = (way.client.clone(), way.key.clone());
    tokio::select! {
        reply = client.incr::<_, _, i64>(&key, 1) => panic!("{reply:?}"),
        () = soon(half_open.until_fired(1)) => {}
    }
    assert_eq!(way.count().await, 0);
    way.proxy.heal();
    way.incr().await.unwrap_err();
    let mut again = connect(format!("redis://{}/", way.proxy.address())).await;
    let count: i64 = soon(again.incr(&way.key, 1)).await.unwrap();
    assert_eq!(count, 1);
}

#[tokio::test]
async fn a_command_that_is_held_back_is_overtaken_by_another_connection() {
    for (held, seen_before) in [(Stream::Upstream, 1), (Stream::Downstream, 2)] {
        let mut way = Way::new("").await;
        let delay = way.on_incr(Effect::Delay(held, FOR_EVER));
        let (mut client, key) = (way.client.clone(), way.key.clone());
        let mut waiting = Box::pin(client.incr::<_, _, i64>(&key, 1));
        tokio::select! {
            reply = &mut waiting => panic!("{reply:?}"),
            () = soon(delay.until_fired(1)) => {}
        }
        let other: i64 = soon(way.beside.incr(&key, 1)).await.unwrap();
        assert_eq!(other, seen_before, "{held:?}");
        way.proxy.heal();
        assert_eq!(soon(waiting).await.unwrap(), 3 - seen_before, "{held:?}");
        // It lost nothing, so it goes on.
        assert_eq!(way.incr().await.unwrap(), 3);
    }
}

#[tokio::test]
async fn a_script_is_found_by_its_sha() {
    let mut way = Way::new("").await;
    let script = redis::Script::new("return redis.call('INCR', KEYS[1])");
    let sha = script.get_hash().to_owned();
    let swallow = Toxic::new(Effect::SwallowReply(Then::End(Ending::Close)));
    let swallow = way.proxy.add(swallow.on(Matching::command_with("evalsha", &sha)).first(1)).unwrap();
    let other = redis::Script::new("return 1");
    soon(other.invoke_async::<_, i64>(&mut way.client)).await.unwrap();
    soon(script.load_async(&mut way.beside)).await.unwrap();
    soon(script.key(&way.key).invoke_async::<i64>(&mut way.client)).await.unwrap_err();
    assert_eq!(swallow.fired(), 1);
    assert_eq!(way.count().await, 1);
}
