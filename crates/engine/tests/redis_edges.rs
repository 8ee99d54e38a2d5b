//! The edges of the scripts: hostile ids, large numbers, full batches and pages, and what a call costs.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod private_redis;

use std::collections::HashSet;
use std::sync::Arc;

use doorbuster_engine::clock::{Clock, ManualClock, SystemClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::order::{ItemId, OrderId, Reservation, SaleId, Units, UserId};
use doorbuster_engine::stock::{
    AdjustOutcome, BucketId, EmbeddedStock, LoadOutcome, LoadPage, PAGE_MAX, RESERVE_BATCH_MAX, RedisClock,
    RedisOptions, RedisStock, ReleaseOutcome, ReserveOutcome, ReserveRequest, Stock,
};
use private_redis::Server;
use private_redis::sale::{self, BUCKET, ITEM};
use uuid::Uuid;

async fn connect(server: &Server) -> RedisStock {
    RedisStock::connect(RedisOptions::new(server.url())).await.unwrap()
}

/// The same stock twice, in Redis and in memory, by one clock: the second is the judge of the first.
async fn both(server: &Server) -> [Arc<dyn Stock>; 2] {
    let clock = Arc::new(ManualClock::at(SystemClock::new().now()));
    let options =
        RedisOptions { clock: RedisClock::Given(Arc::clone(&clock) as _), ..RedisOptions::new(server.url()) };
    [Arc::new(RedisStock::connect(options).await.unwrap()), Arc::new(EmbeddedStock::new(clock))]
}

/// Opens the same sale in both.
async fn open(stocks: &[Arc<dyn Stock>; 2], limit: u32, items: &[(ItemId, u64)]) {
    let terms = sale::terms(limit);
    for stock in stocks {
        sale::load(stock.as_ref(), BUCKET, &terms, vec![LoadPage::Items(items.to_vec())]).await;
    }
}

/// What both answer, which is the same.
async fn reserve(stocks: &[Arc<dyn Stock>; 2], requests: &[ReserveRequest]) -> Vec<ReserveOutcome> {
    let outcomes = stocks[0].reserve(BUCKET, requests).await.unwrap();
    assert_eq!(outcomes, stocks[1].reserve(BUCKET, requests).await.unwrap());
    assert_eq!(stocks[0].level(BUCKET).await.unwrap(), stocks[1].level(BUCKET).await.unwrap());
    sale::lawful(stocks[0].as_ref(), BUCKET).await;
    outcomes
}

fn all_held(outcomes: &[ReserveOutcome]) -> bool {
    outcomes.iter().all(|it| matches!(it, ReserveOutcome::Held { .. }))
}

/// Ids that mean something to a key, a pattern, a line, a field or a script.
fn hostile_users() -> Vec<UserId> {
    let long = "ä".repeat(64);
    let texts = [
        "1}{",
        "}",
        "{s1.0}",
        " ",
        "a b",
        "a  b",
        "-",
        "*",
        "?[a-z]",
        "\"",
        "'",
        "\\n",
        "%s %d",
        "0",
        "-1",
        "+inf",
        "nil",
        "cfg",
        "doorbuster:{s1.0}:1:cfg",
        "x 1 1 1 1 1 - -",
        "Bob",
        "bob",
        "bob ",
        "😀",
        "\u{202e}",
        &long,
    ];
    texts.iter().map(|text| UserId::new(text).unwrap()).collect()
}

#[tokio::test]
async fn a_hostile_user_id_is_an_id_and_nothing_else() {
    let server = Server::start(&[]);
    let stocks = both(&server).await;
    open(&stocks, 2, &[(ITEM, 1_000)]).await;
    let users = hostile_users();
    let wish = |(n, user): (u64, &UserId)| ReserveRequest { user: user.clone(), ..sale::wish(n) };
    let wishes: Vec<_> = (1..).zip(&users).map(wish).collect();
    assert!(all_held(&reserve(&stocks, &wishes).await));
    let again = reserve(&stocks, &wishes).await;
    assert!(again.iter().all(|it| matches!(it, ReserveOutcome::HeldBefore { in_outbox: true, .. })));

    let stock = stocks[0].as_ref();
    let held = sale::holds(stock, BUCKET).await;
    let unconfirmed = stock.unconfirmed(BUCKET, Timestamp::from_ms(i64::MAX), 1_000).await.unwrap();
    assert_eq!((held.len(), unconfirmed.len()), (users.len(), users.len()));
    for (n, user) in (1..).zip(&users) {
        assert_eq!(&held[&sample::order_id(n)].user, user);
        let mine = stock.holds_of(BUCKET, user).await.unwrap().unwrap();
        assert_eq!(mine, [(held[&sample::order_id(n)].clone(), true)], "{user:?}");
    }
    let orders: Vec<(OrderId, UserId)> = (1..).map(sample::order_id).zip(users.iter().cloned()).collect();
    stock.confirm(BUCKET, &orders[..5]).await.unwrap();
    assert_eq!(stock.level(BUCKET).await.unwrap().unwrap().unconfirmed, users.len() as u64 - 5);
    let released = stock.release(BUCKET, &orders).await.unwrap();
    assert_eq!(released, vec![ReleaseOutcome::Released; users.len()]);
    assert!(sale::lawful(stock, BUCKET).await.is_empty());
}

#[tokio::test]
async fn a_trace_travels_with_its_order_or_not_at_all() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    sale::open(&stock, 10, 1).await;
    let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traces = [Some(good), Some("a b"), Some("a\n0 1 1 1 1 1 - -"), Some(""), Some("-"), None];
    let wish = |(n, trace): (u64, Option<&str>)| ReserveRequest {
        trace: trace.map(str::to_owned),
        retake_of: (n % 2 == 0).then(|| sample::order_id(n + 100)),
        ..sale::wish(n)
    };
    let wishes: Vec<_> = (1..).zip(traces).map(wish).collect();
    let outcomes = stock.reserve(BUCKET, &wishes).await.unwrap();
    let stored = sale::holds(&stock, BUCKET).await;
    for ((wish, outcome), trace) in
        wishes.iter().zip(outcomes).zip([Some(good), None, None, None, None, None])
    {
        let ReserveOutcome::Held { reservation, .. } = outcome else { panic!("{outcome:?}") };
        assert_eq!(stored[&wish.order], reservation, "what was answered is what is kept");
        assert_eq!((reservation.trace.as_deref(), reservation.retake_of), (trace, wish.retake_of));
    }
}

#[tokio::test]
async fn one_user_many_times_in_one_batch_holds_up_to_the_limit() {
    let server = Server::start(&[]);
    let stocks = both(&server).await;
    open(&stocks, 5, &[(ItemId(1), 4), (ItemId(2), 9)]).await;
    let by = |user: u64, n: u64, item: i64, units: u32| ReserveRequest {
        user: sample::user(user),
        item: ItemId(item),
        units: Units(units),
        ..sale::wish(n)
    };
    let batch = [
        by(1, 1, 1, 2),
        by(1, 2, 2, 2),
        by(1, 3, 1, 2),
        by(1, 1, 1, 2),
        by(1, 1, 1, 1),
        by(1, 4, 2, 1),
        by(2, 5, 1, 3),
        by(2, 5, 2, 3),
        by(2, 6, 1, 1),
        by(3, 7, 1, 1),
        by(3, 8, 1, 1),
        by(3, 9, 2, 0),
        by(3, 9, 2, u32::MAX),
        by(3, 9, 2, 6),
    ];
    let outcomes = reserve(&stocks, &batch).await;
    assert!(
        matches!(outcomes[2], ReserveOutcome::Limit { .. })
            && matches!(outcomes[3], ReserveOutcome::HeldBefore { .. })
    );
    assert!(matches!(
        (&outcomes[4], &outcomes[6]),
        (ReserveOutcome::Mismatch, ReserveOutcome::NotEnough { left: 2 })
    ));
    // Released twice in one call, with an order that never was.
    let orders = [sample::order_id(1), sample::order_id(1), sample::order_id(2), sample::order_id(77)];
    let orders = orders.map(|order| (order, sample::user(1)));
    for stock in &stocks {
        let outcomes = stock.release(BUCKET, &orders).await.unwrap();
        let (yes, no) = (ReleaseOutcome::Released, ReleaseOutcome::NotHeld);
        assert_eq!(outcomes, [yes, no, yes, no]);
    }
    reserve(&stocks, &batch).await;
}

#[tokio::test]
async fn numbers_at_their_ends_are_kept_exactly() {
    let server = Server::start(&[]);
    let stocks = both(&server).await;
    let ids = [ItemId(i64::MAX), ItemId(i64::MAX - 1), ItemId(1 << 53), ItemId((1 << 53) + 1), ItemId(1)];
    let units = 1_000_000_000_000;
    open(&stocks, u32::MAX, &ids.map(|id| (id, units))).await;
    let wish = |(n, item): (u64, &ItemId)| ReserveRequest {
        item: *item,
        units: Units(u32::MAX - u32::try_from(n).unwrap()),
        ..sale::wish(n)
    };
    let mut wishes: Vec<_> = (0..).zip(&ids).map(wish).collect();
    assert!(all_held(&reserve(&stocks, &wishes).await));
    // Together they would be above the limit, and above 32 bits.
    wishes.iter_mut().for_each(|it| it.order = OrderId(Uuid::from_u128(it.order.0.as_u128() + 1_000)));
    assert!(reserve(&stocks, &wishes[..3]).await.iter().all(|it| matches!(it, ReserveOutcome::Limit { .. })));
    for stock in &stocks {
        for (operation, difference, expected) in [
            (1, 1_000_000_000_000, AdjustOutcome::Applied),
            (1, 1_000_000_000_000, AdjustOutcome::Applied),
            (2, -1_999_999_999_999, AdjustOutcome::NotEnough { left: 2 * units - u64::from(u32::MAX) }),
            (3, i64::MIN, AdjustOutcome::NotEnough { left: 2 * units - u64::from(u32::MAX) }),
        ] {
            let outcome = stock.adjust(BUCKET, Uuid::from_u128(operation), ids[0], difference).await.unwrap();
            assert_eq!(outcome, expected);
        }
    }
    reserve(&stocks, &[]).await;
}

#[tokio::test]
async fn a_full_batch_is_one_round_trip() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    sale::open(&stock, 1_000, 1).await;
    stock.reserve(BUCKET, &[]).await.unwrap();
    let commands = || server.info("total_commands_processed").parse::<u64>().unwrap();
    let (calls, before) = (server.calls("evalsha"), commands());
    let wishes: Vec<_> = (0..RESERVE_BATCH_MAX as u64).map(sale::wish).collect();
    assert!(all_held(&stock.reserve(BUCKET, &wishes).await.unwrap()));
    assert_eq!(server.calls("evalsha"), calls + 1);
    // Within the script: HMGET cfg buy, SMISMEMBER gone, five looks for the empty name, the time, one
    // item's units, and four writes; and beside it the two commands by which the test asks.
    assert!(commands() - before <= 1 + 13 + 3, "{}", commands() - before);
    let again = stock.reserve(BUCKET, &wishes).await.unwrap();
    assert!(again.iter().all(|it| matches!(it, ReserveOutcome::HeldBefore { .. })));
    assert_eq!(sale::lawful(&stock, BUCKET).await.len(), RESERVE_BATCH_MAX);
}

#[tokio::test]
async fn full_pages_are_loaded_listed_and_released_whole() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    let hold = |n: u64| Reservation { seq: 0, ..sample::order_placed(n).reservation };
    let count = 2 * PAGE_MAX as u64;
    let holds: Vec<_> = (1..=count).map(hold).collect();
    let closed = (count + 1..=count + PAGE_MAX as u64).map(sample::order_id).collect();
    let items = (1..=PAGE_MAX).map(|n| (ItemId(n as i64), 5_000)).collect();
    let pages = vec![
        LoadPage::Items(items),
        LoadPage::Holds(holds[..PAGE_MAX].to_vec()),
        LoadPage::Closed(closed),
        LoadPage::Holds(holds[PAGE_MAX..].to_vec()),
        LoadPage::Closed(Vec::new()),
    ];
    sale::load(&stock, BUCKET, &sale::terms(1), pages).await;
    let level = stock.level(BUCKET).await.unwrap().unwrap();
    assert_eq!((level.items.len(), level.holds, level.unconfirmed), (PAGE_MAX, count, 0));
    let listed: HashSet<OrderId> = sale::holds(&stock, BUCKET).await.into_keys().collect();
    assert_eq!(listed, holds.iter().map(|it| it.order).collect());
    assert_eq!(sale::reserve(&stock, count + 1).await, ReserveOutcome::Gone);

    let orders: Vec<_> = (1..=count).map(sale::pair).collect();
    for page in orders.chunks(PAGE_MAX) {
        let released = stock.release(BUCKET, page).await.unwrap();
        assert!(released.iter().all(|it| *it == ReleaseOutcome::Released));
    }
    let level = stock.level(BUCKET).await.unwrap().unwrap();
    assert_eq!((level.holds, level.seq), (0, count));
    assert!(level.items.iter().all(|it| it.free == it.allocated));
}

#[tokio::test]
async fn a_page_that_does_not_fit_is_refused_whole() {
    let server = Server::start(&[]);
    let stock = connect(&server).await;
    stock.begin_load(BUCKET, &sale::terms(9), sale::TOKEN).await.unwrap();
    let load = |page: u32, contents: LoadPage| {
        let stock = &stock;
        async move { stock.load(BUCKET, sale::TOKEN, page, &contents).await.unwrap() }
    };
    assert_eq!(load(0, LoadPage::Items(vec![(ITEM, 2)])).await, LoadOutcome::Loaded);
    let hold = |n: u64| sample::order_placed(n).reservation;
    let unknown = Reservation { item: ItemId(9), ..hold(2) };
    for page in [vec![hold(1), hold(1)], vec![hold(1), unknown], vec![hold(1), hold(2), hold(3)]] {
        assert_eq!(load(1, LoadPage::Holds(page)).await, LoadOutcome::Refused);
        let level = stock.level(BUCKET).await.unwrap().unwrap();
        assert_eq!((level.holds, level.pages, level.items[0].free), (0, 1, 2));
    }
    let other = BucketId { sale: SaleId(2), ..BUCKET };
    assert_eq!(stock.level(other).await.unwrap(), None);
}
