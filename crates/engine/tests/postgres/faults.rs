//! What a server or a line can do in the middle of a call: the fault says what may have happened,
//! and nothing is half done.

use std::time::Duration;

use doorbuster_engine::conformance::sample;
use doorbuster_engine::fault::{BackendError, Fault};
use doorbuster_engine::ledger::{
    Books, Orders, Positions, PostgresError, PostgresLedger, PostgresTls, RecordOutcome, Releases, Sales,
};
use doorbuster_engine::order::{ItemId, OrderStatus, SaleId, UserId};
use futures_util::future::join_all;

use crate::link::{LossyLink, server_that_refuses, silent_server};
use crate::shop::{
    PATIENCE, Shop, WINDOW, batch_of, options, options_by, server_address, server_user, url_as,
};

#[tokio::test]
async fn a_commit_whose_reply_is_lost_may_have_happened_and_did() {
    let shop = Shop::open("lost_reply").await;
    shop.sale(10, 1).await;
    let link = LossyLink::to(server_address()).await;
    let through = options_by(&shop.options, url_as(&server_user(), &link.address));
    let ledger = PostgresLedger::connect(&through).await.unwrap();
    let batch = batch_of(0, 0, [sample::order_placed(1)]);
    link.lose_the_next_commit();
    let error = ledger.record(&batch).await.unwrap_err();
    assert_eq!(error.fault, Fault::Ambiguous, "{}", error.chain());
    // The recorder reads the position again and finds that it happened; a repetition is a zombie.
    let positions = async { ledger.positions().await.unwrap()[0].next };
    assert_eq!(tokio::time::timeout(PATIENCE, positions).await.unwrap(), 1);
    assert_eq!(ledger.record(&batch).await.unwrap(), RecordOutcome::Zombie);
    assert_eq!(shop.sound_books().await.orders.len(), 1);
    shop.close().await;
}

#[tokio::test]
async fn a_backend_that_is_killed_before_the_commit_did_nothing() {
    let shop = Shop::open("killed").await;
    shop.sale(10, 1).await;
    shop.sql.batch_execute("BEGIN; SELECT 1 FROM item FOR UPDATE").await.unwrap();
    let batch = batch_of(0, 0, [sample::order_placed(1)]);
    let (recorded, ()) = tokio::join!(shop.ledger.record(&batch), async {
        let backend = shop.blocked_backend().await;
        shop.sql.execute("SELECT pg_terminate_backend($1)", &[&backend]).await.unwrap();
    });
    let error = recorded.unwrap_err();
    assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
    shop.sql.batch_execute("ROLLBACK").await.unwrap();
    assert!(shop.sound_books().await.orders.is_empty());
    // The pool notices, and the same step is done.
    assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
    shop.close().await;
}

#[tokio::test]
async fn limits_of_time_end_a_call_that_did_nothing() {
    let limits: [(&str, Duration, Duration); 2] = [
        ("57014", Duration::from_millis(1_500), Duration::from_secs(20)),
        ("55P03", Duration::from_secs(20), Duration::from_millis(1_500)),
    ];
    for (code, statement_timeout, lock_timeout) in limits {
        let mut options = options("limits");
        // Under the usual limits: on a busy machine the schema takes longer than these.
        PostgresLedger::migrate_up(&options).await.unwrap();
        (options.statement_timeout, options.lock_timeout) = (statement_timeout, lock_timeout);
        let shop = Shop::with(options).await;
        shop.sale(10, 1).await;
        shop.sql.batch_execute("BEGIN; SELECT 1 FROM item FOR UPDATE").await.unwrap();
        let batch = batch_of(0, 0, [sample::order_placed(1)]);
        let error = shop.ledger.record(&batch).await.unwrap_err();
        assert_eq!(error.fault, Fault::Transient, "{}", error.chain());
        assert!(error.what.contains(code), "{}", error.chain());
        shop.sql.batch_execute("ROLLBACK").await.unwrap();
        assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
        shop.close().await;
    }
}

#[tokio::test]
async fn a_pool_without_a_free_connection_says_so() {
    let mut options = options("pool");
    (options.pool_max, options.connect_timeout) = (1, Duration::from_millis(200));
    let shop = Shop::with(options).await;
    shop.sale(10, 1).await;
    shop.sql.batch_execute("BEGIN; SELECT 1 FROM item FOR UPDATE").await.unwrap();
    let batch = batch_of(0, 0, [sample::order_placed(1)]);
    let (recorded, ()) = tokio::join!(shop.ledger.record(&batch), async {
        shop.blocked_backend().await;
        let error = shop.ledger.sale(SaleId(1)).await.unwrap_err();
        assert_eq!(error.fault, Fault::Transient);
        assert!(error.what.contains("all 1 connections"), "{}", error.chain());
        shop.sql.batch_execute("ROLLBACK").await.unwrap();
    });
    recorded.unwrap();
    shop.close().await;
}

/// A caller that goes away leaves neither a half transaction nor a spoiled connection.
#[tokio::test]
async fn a_call_that_is_dropped_leaves_nothing_behind() {
    let mut options = options("dropped");
    options.pool_max = 1;
    let shop = Shop::with(options).await;
    shop.sale(10, 1).await;
    shop.sql.batch_execute("BEGIN; SELECT 1 FROM item FOR UPDATE").await.unwrap();
    let batch = batch_of(0, 0, [sample::order_placed(1)]);
    tokio::select! {
        _ = shop.ledger.record(&batch) => panic!("the item was free"),
        _ = shop.blocked_backend() => {}
    }
    shop.sql.batch_execute("ROLLBACK").await.unwrap();
    assert!(matches!(shop.ledger.record(&batch).await.unwrap(), RecordOutcome::Recorded(_)));
    assert_eq!(shop.sound_books().await.orders.len(), 1);
    shop.close().await;
}

/// A deadlock's loser is repeated inside the ledger: its caller hears nothing of it.
#[tokio::test]
async fn a_deadlock_is_repeated_until_it_passes() {
    let shop = Shop::open("deadlock").await;
    shop.sale(10, 1).await;
    shop.ledger.record(&batch_of(0, 0, [sample::order_placed(1)])).await.unwrap();
    // The wrong way round: the order first, then its item.
    shop.sql.batch_execute("BEGIN; SELECT 1 FROM orders FOR UPDATE").await.unwrap();
    let (id, user) = (sample::order_id(1), sample::user(1));
    let (cancelled, ()) = tokio::join!(shop.ledger.cancel(id, &user, None), async {
        shop.blocked_backend().await;
        // Whoever of the two is the victim: the ledger's call goes through.
        let _ = shop.sql.batch_execute("SELECT 1 FROM item WHERE id = 1 FOR UPDATE").await;
        shop.sql.batch_execute("ROLLBACK").await.unwrap();
    });
    cancelled.unwrap();
    assert_eq!(shop.ledger.statuses(&[id]).await.unwrap(), [Some(OrderStatus::Cancelled)]);
    shop.sound_books().await;
    shop.close().await;
}

/// What the database itself refuses is refused for good, so that the recorder looks for the record.
#[tokio::test]
async fn a_record_that_no_text_column_takes_is_refused_for_good_and_can_be_parked() {
    let shop = Shop::open("refused").await;
    shop.sale(10, 1).await;
    let mut bad = sample::order_placed(2);
    bad.reservation.trace = Some("a\0b".to_owned());
    let batch = batch_of(0, 0, [sample::order_placed(1), bad.clone(), sample::order_placed(3)]);
    let error = shop.ledger.record(&batch).await.unwrap_err();
    assert_eq!(error.fault, Fault::Permanent, "{}", error.chain());
    assert!(shop.sound_books().await.orders.is_empty());
    // As the recorder parks it once it stands alone.
    let mut parked = batch_of(0, 0, [bad]);
    parked.records[0].contents = doorbuster_engine::delivery::Decoded::Refused {
        order: Box::new(parked.records[0].contents.order().unwrap().clone()),
        why: error.chain() + "\0",
    };
    let RecordOutcome::Recorded(recorded) = shop.ledger.record(&parked).await.unwrap() else {
        panic!("refused as a zombie")
    };
    assert_eq!(recorded.dead, 1);
    assert_eq!(shop.ledger.statuses(&[sample::order_id(2)]).await.unwrap(), [Some(OrderStatus::Rejected)]);
    assert_eq!(shop.sound_books().await.releases.len(), 1);
    shop.close().await;
}

/// Nothing checks it but the statement itself: orders have no foreign key.
#[tokio::test]
async fn a_queued_order_of_no_item_is_not_written() {
    let shop = Shop::open("no_item").await;
    shop.sale(10, 1).await;
    for (sale, item) in [(1, 9), (9, 1)] {
        let mut stranger = sample::order_placed(1);
        (stranger.reservation.sale, stranger.reservation.item) = (SaleId(sale), ItemId(item));
        let cancelled =
            shop.ledger.cancel(sample::order_id(1), &sample::user(1), Some(&stranger)).await.unwrap_err();
        assert_eq!(cancelled.fault, Fault::Permanent, "{}", cancelled.chain());
    }
    assert!(shop.sound_books().await.orders.is_empty());
    shop.close().await;
}

#[tokio::test]
async fn user_ids_are_bytes_and_nothing_else() {
    let shop = Shop::open("bytes").await;
    shop.sale(100, 1).await;
    let long = "ü".repeat(64);
    let names = [
        "Bob",
        "bob",
        "bob ",
        "'; DROP TABLE orders; --",
        "\\x00",
        "{1,2}",
        "NULL",
        "１",
        "\u{feff}x",
        &long,
    ];
    let order_of = |(n, name): (u64, &&str)| {
        let mut order = sample::order_placed(n);
        order.reservation.user = UserId::new(name).unwrap();
        order
    };
    let orders: Vec<_> = (0..).zip(&names).map(order_of).collect();
    shop.ledger.record(&batch_of(0, 0, orders)).await.unwrap();
    for (n, name) in (0..).zip(&names) {
        let user = UserId::new(name).unwrap();
        let found = shop.ledger.orders_of(SaleId(1), &user, 10).await.unwrap();
        assert_eq!(found.len(), 1, "{name:?}");
        assert_eq!((found[0].reservation.order, &found[0].reservation.user), (sample::order_id(n), &user));
    }
    assert_eq!(shop.sound_books().await.buyers.len(), names.len());
    shop.close().await;
}

#[tokio::test]
async fn one_bad_row_does_not_stop_the_others_from_expiring() {
    let shop = Shop::open("bad_rows").await;
    shop.sale(100, 1).await;
    shop.ledger.record(&batch_of(0, 0, (0..9).map(sample::order_placed))).await.unwrap();
    // One that the database refuses to close, and one that cannot be read.
    let user = b"user-4".as_slice();
    shop.sql.execute("UPDATE buyer SET units = 0 WHERE user_id = $1", &[&user]).await.unwrap();
    let unreadable = sample::order_id(6).0;
    shop.sql.execute("UPDATE orders SET currency = 'euros' WHERE id = $1", &[&unreadable]).await.unwrap();
    shop.clock.advance(WINDOW + Duration::from_millis(1));
    assert_eq!(shop.ledger.expire(100, Duration::ZERO).await.unwrap().closed, 7);
    assert_eq!(shop.ledger.expire(100, Duration::ZERO).await.unwrap().closed, 0);
    assert_eq!(shop.ledger.releases_due(&[], 100).await.unwrap().len(), 7);
    shop.close().await;
}

/// The server's own clock decides where no other is given.
#[tokio::test]
async fn without_a_clock_the_server_tells_the_time() {
    let shop = Shop::open("own_clock").await;
    shop.sale(10, 1).await;
    let mut options = shop.options.clone();
    options.clock = None;
    let ledger = PostgresLedger::connect(&options).await.unwrap();
    ledger.record(&batch_of(0, 0, [sample::order_placed(1)])).await.unwrap();
    let order = ledger.order(sample::order_id(1)).await.unwrap().unwrap();
    let row = shop.sql.query_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]).await;
    let server_ms: i64 = row.unwrap().get(0);
    let left = order.expires_at.as_ms() - server_ms;
    let window = i64::try_from(WINDOW.as_millis()).unwrap();
    assert!((window - 60_000..=window).contains(&left), "{left} ms are left");
    assert_eq!(ledger.expire(10, Duration::ZERO).await.unwrap().closed, 0);
    shop.close().await;
}

#[tokio::test]
async fn what_is_wrong_at_the_start_is_said_in_words() {
    const PASSWORD: &str = "correct-horse";
    let all = options("start");
    let user = format!("shop:{PASSWORD}");
    let says_no = server_that_refuses("28P01", "password authentication failed for user \"shop\"").await;
    let no_rule = server_that_refuses("28000", "no pg_hba.conf entry").await;
    let silent = silent_server().await;
    let (host, _) =
        server_address().rsplit_once(':').map(|(host, port)| (host.to_owned(), port.to_owned())).unwrap();
    let missing = format!("postgresql://{}@{}/no_such_database_here", server_user(), server_address());
    let cases = [
        (url_as(&user, &says_no), "check user and password"),
        (url_as(&user, &no_rule), "pg_hba.conf"),
        (url_as(&user, &silent), "no answer in time"),
        (url_as(&user, &format!("{host}:1")), "check that it runs"),
        (missing, "create it"),
        ("postgresql://shop:correct-horse@[::1/x".to_owned(), "postgresql://user:password@host"),
    ];
    for (url, words) in cases {
        let mut options = options_by(&all, url.as_str());
        options.connect_timeout = Duration::from_millis(500);
        let Err(error) = PostgresLedger::connect(&options).await else { panic!("connected to {url}") };
        let text = format!("{error} {error:?} {options:?}");
        assert!(text.contains(words), "{text}");
        assert!(!text.contains(PASSWORD), "{text}");
    }
}

/// Encryption is had where the server offers it, and asked for in vain says so.
#[tokio::test]
async fn encryption_is_used_or_its_lack_is_said() {
    let shop = Shop::open("tls").await;
    let row = shop.sql.query_one("SELECT current_setting('ssl') = 'on'", &[]).await.unwrap();
    let offered: bool = row.get(0);
    let mut options = shop.options.clone();
    options.tls = PostgresTls::Prefer;
    PostgresLedger::connect(&options).await.unwrap();
    options.tls = PostgresTls::Require;
    match PostgresLedger::connect(&options).await {
        Ok(ledger) => {
            assert!(offered, "connected in the clear");
            drop(ledger);
        }
        Err(error) => assert!(!offered && error.to_string().contains("offers no encryption"), "{error}"),
    }
    let folder = tempfile::tempdir().unwrap();
    let ca_file = folder.path().join("ca.pem");
    options.tls = PostgresTls::VerifyFull { ca_file: Some(ca_file.clone()) };
    for contents in [None, Some("not a certificate")] {
        if let Some(contents) = contents {
            std::fs::write(&ca_file, contents).unwrap();
        }
        let error = PostgresLedger::connect(&options).await.err().unwrap();
        assert!(matches!(error, PostgresError::Tls(_)) && error.to_string().contains("ca.pem"), "{error}");
    }
    shop.close().await;
}

/// Everything at once on few connections: they are shared, not multiplied.
#[tokio::test]
async fn many_callers_share_few_connections() {
    let mut options = options("share");
    options.pool_max = 2;
    let shop = Shop::with(options).await;
    shop.sale(10, 1).await;
    let reads = join_all((0..100).map(|_| shop.ledger.sale(SaleId(1)))).await;
    assert!(reads.into_iter().collect::<Result<Vec<_>, BackendError>>().is_ok());
    let books = shop.ledger.books().await.unwrap();
    assert_eq!(books.sales.len(), 1);
    shop.close().await;
}
