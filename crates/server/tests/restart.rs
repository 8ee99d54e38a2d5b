//! Stopping and starting: what was promised before is kept after, and what cannot start says why.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use shop::http::{Line, request};
use shop::{FLAG_LIFE, Offer, Shop, WINDOW, purchase_path, start, until};

/// The log's only segment.
fn segment(shop: &Shop) -> PathBuf {
    let files = fs::read_dir(shop.data().join("queue")).unwrap();
    let mut logs = files
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|it| it == "log"));
    let segment = logs.next().unwrap();
    assert!(logs.next().is_none(), "one segment is enough for a test");
    segment
}

/// A stopped shop with five orders in its log, each written by itself.
async fn stopped_with_five_orders() -> (Shop, shop::Sale) {
    let mut shop = Shop::open().await;
    let sale = shop.sale(10).await;
    for user in 0..5 {
        let order = shop.buyer(&format!("user-{user}")).buy(&sale.item).await.accepted();
        shop.recorded(&order).await;
    }
    shop.stop().await;
    (shop, sale)
}

/// Why the shop does not start, in the words that a person reads.
async fn complaint(shop: &mut Shop) -> String {
    match shop.start_again().await {
        Ok(()) => panic!("it started"),
        Err(error) => format!("{error:#}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_holds_and_closed_ids_survive_a_restart() {
    let mut shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![10], limit: 2, ..Offer::default() }).await;
    let mut orders = Vec::new();
    for user in ["pending", "paid", "cancelled", "expired"] {
        if user == "pending" {
            continue;
        }
        let order = shop.buyer(user).buy_units(&sale.item, "key", 1).await.accepted();
        shop.recorded(&order).await;
        orders.push(order);
    }
    shop.pay(&orders[0], "paid").await;
    shop.buyer("cancelled").cancel(&orders[1]).await;
    shop.advance(WINDOW + Duration::from_millis(1));
    shop.buyer("expired").until_status(&orders[2], "EXPIRED").await;
    // Placed at the very end: it is in the log, and perhaps not yet in the ledger.
    let pending = shop.buyer("pending").buy_units(&sale.item, "key", 2).await.accepted();

    shop.stop().await;
    shop.start_again().await.unwrap();

    let seen = shop.buyer("pending").until_payable(&pending).await;
    assert_eq!(seen["quantity"], 2);
    assert_eq!(shop.free(&sale, &sale.item).await, 7);
    for (user, order, status) in [
        ("paid", &orders[0], "PAID"),
        ("cancelled", &orders[1], "CANCELLED"),
        ("expired", &orders[2], "EXPIRED"),
        ("pending", &pending, "PENDING"),
    ] {
        let buyer = shop.buyer(user);
        assert_eq!(buyer.order(order).await.text("status"), status);
        // The key still names its order, whatever became of it, and buys nothing new.
        let units = if user == "pending" { 2 } else { 1 };
        let replay = buyer.buy_units(&sale.item, "key", units).await;
        assert_eq!((replay.accepted(), replay.text("status").as_str()), (order.clone(), status));
        assert_eq!(replay.header("idempotent-replayed"), Some("true"));
    }
    shop.buyer("pending").buy_units(&sale.item, "other", 1).await.refused(409, "LIMIT_REACHED");
    let again = shop.buyer("expired").buy_units(&sale.item, "new", 2).await.accepted();
    shop.recorded(&again).await;
    assert_eq!(shop.free(&sale, &sale.item).await, 5);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sold_out_sale_is_sold_out_after_every_restart() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(3).await;
    let mut orders = Vec::new();
    for user in 0..3 {
        orders.push(shop.buyer(&format!("user-{user}")).buy(&sale.item).await.accepted());
    }

    for round in 0..3 {
        shop.stop().await;
        shop.start_again().await.unwrap();
        shop.buyer(&format!("late-{round}")).buy(&sale.item).await.refused(410, "SOLD_OUT");
        // The core that said so reads who holds units; until then a winner may hear the same.
        until("the winners are known", async || shop.buyer("user-0").buy(&sale.item).await.status == 409)
            .await;
        for (user, order) in orders.iter().enumerate() {
            let problem =
                shop.buyer(&format!("user-{user}")).buy(&sale.item).await.refused(409, "ALREADY_PURCHASED");
            assert_eq!(problem["orderId"], *order);
        }
    }

    // A unit that returns after the restarts is sold once.
    shop.buyer("user-0").cancel(&orders[0]).await;
    shop.until_free(&sale, 1).await;
    shop.advance(FLAG_LIFE);
    let order = shop.buyer("next").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_goes_on_where_it_was_paused_or_closed() {
    let mut shop = Shop::open().await;
    let (paused, closed, draft) =
        (shop.sale(5).await, shop.sale(5).await, shop.draft(Offer::default()).await);
    shop.admin.pause(&paused.id).await.unwrap();
    shop.admin.close(&closed.id).await.unwrap();
    shop.restock(&paused, 2).await.unwrap();

    shop.stop().await;
    shop.start_again().await.unwrap();

    let alice = shop.buyer("alice");
    until("the paused sale's stock is loaded", async || {
        shop.admin.sale(&paused.id).await.unwrap().items[0].free == Some(7)
    })
    .await;
    alice.buy(&paused.item).await.refused(503, "NOT_READY");
    alice.buy(&closed.item).await.refused(410, "ENDED");
    alice.buy(&draft.item).await.refused(403, "NOT_STARTED");
    shop.admin.open(&paused.id).await.unwrap();
    let order = alice.buy(&paused.item).await.accepted();
    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buyers_during_a_stop_get_their_answer_or_none() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(1_000).await;
    let address = shop.address();
    let clicks: Vec<_> = (0..200)
        .map(|user| {
            let user = format!("user-{user}");
            let bearer = format!("Bearer {}", shop.token(&user));
            (
                user,
                shop::http::request(
                    "POST",
                    &shop::purchase_path(&sale.item),
                    &[("authorization", &bearer), ("connection", "close")],
                    b"",
                ),
            )
        })
        .collect();

    let rush = futures_util::future::join_all(clicks.iter().map(async |(user, click)| {
        let mut line = shop::http::Line::connect(address).await.ok()?;
        line.send(click).await.ok()?;
        let reply = line.reply(false).await.ok()?;
        Some((user.clone(), reply.accepted()))
    }));
    let (answers, ()) = tokio::join!(rush, shop.stop());
    shop.start_again().await.unwrap();

    let accepted: Vec<_> = answers.into_iter().flatten().collect();
    for (user, order) in &accepted {
        assert_eq!(shop.recorded(order).await.user_id, *user);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_serves_one_process_and_names_it() {
    let shop = Shop::open().await;

    let error = start(&shop.config, &shop.clock).await.err().unwrap();

    let text = format!("{error:#}");
    for part in [shop.data().display().to_string(), std::process::id().to_string(), "--data-dir".to_owned()] {
        assert!(text.contains(&part), "{part} is not in: {text}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_taken_port_is_named_with_the_key_that_changes_it() {
    let shop = Shop::open().await;
    let folder = tempfile::tempdir().unwrap();

    for (key, taken) in [("server.listen", shop.address()), ("admin.listen", shop.app().admin_address)] {
        let taken = taken.to_string();
        let (config, _, _) = shop::config(folder.path(), &[(key, &taken)]);
        let error = start(&config, &shop.clock).await.err().unwrap();
        let text = format!("{error:#}");
        assert!(text.contains(&taken) && text.contains(key), "{text}");
        // What had begun is given up whole: the same directory can be used at once.
        let (config, _, _) = shop::config(folder.path(), &[]);
        until("the directory is free again", async || match start(&config, &shop.clock).await {
            Ok(app) => {
                app.stop().await;
                true
            }
            Err(_) => false,
        })
        .await;
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_torn_end_of_the_log_is_cut_off() {
    let (mut shop, sale) = stopped_with_five_orders().await;
    let segment = segment(&shop);
    let whole = fs::read(&segment).unwrap();

    // Half of a record that was being written when the power went, and then nothing but noise.
    for tail in [whole[..whole.len() / 10].to_vec(), vec![0xAA; 500], vec![0; 4_096]] {
        fs::write(&segment, [whole.as_slice(), &tail].concat()).unwrap();
        shop.start_again().await.unwrap();
        assert_eq!(shop.free(&sale, &sale.item).await, 5);
        shop.stop().await;
        assert_eq!(fs::read(&segment).unwrap(), whole);
    }

    shop.start_again().await.unwrap();
    let order = shop.buyer("next").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_log_refuses_to_start_and_says_what_is_lost() {
    let (mut shop, _) = stopped_with_five_orders().await;
    let segment = segment(&shop);
    let whole = fs::read(&segment).unwrap();

    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0x10;
    fs::write(&segment, &damaged).unwrap();
    let text = complaint(&mut shop).await;
    for part in ["damaged", "202", segment.to_str().unwrap()] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(fs::read(&segment).unwrap(), damaged, "a refused start changes nothing");

    // Cut short of what the ledger has from it.
    fs::write(&segment, &whole[..whole.len() / 2]).unwrap();
    let text = complaint(&mut shop).await;
    assert!(text.contains("the ledger has recorded up to 5"), "{text}");

    fs::write(&segment, &whole).unwrap();
    shop.start_again().await.unwrap();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_says_so_before_it_closes() {
    let mut shop = Shop::open_with(&[("server.unready_delay", "2s")]).await;
    let sale = shop.sale(5).await;
    let ready = shop.ask("GET", "/readyz", &[], b"").await;
    assert_eq!(ready.status, 200, "{}", ready.said());
    let (address, token) = (shop.address(), shop.token("alice"));
    let authorization = format!("Bearer {token}");

    let ((), ()) = tokio::join!(shop.stop(), async {
        let ask = async |method: &str, path: &str| {
            let headers = [("connection", "close"), ("authorization", authorization.as_str())];
            let mut line = Line::connect(address).await.unwrap();
            line.send(&request(method, path, &headers, b"")).await.unwrap();
            line.reply(false).await.unwrap()
        };
        until("it says that it stops", async || ask("GET", "/readyz").await.status == 503).await;
        // Whoever was sent here by a probe of a moment ago is still served.
        ask("POST", &purchase_path(&sale.item)).await.accepted();
    });
    shop.start_again().await.unwrap();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_is_not_the_ledgers_refuses_to_start() {
    let (mut shop, _) = stopped_with_five_orders().await;
    let (queue, aside) = (shop.data().join("queue"), shop.data().join("aside"));
    fs::rename(&queue, &aside).unwrap();

    let text = complaint(&mut shop).await;
    assert!(text.contains("the queue in") && text.contains('5'), "{text}");

    let _ = fs::remove_dir_all(&queue);
    fs::rename(&aside, &queue).unwrap();
    shop.start_again().await.unwrap();
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_weak_secret_and_open_tokens_refuse_to_start() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let clock = std::sync::Arc::new(doorbuster_engine::clock::ManualClock::at(
        doorbuster_engine::clock::Timestamp::from_ms(shop::START_MS),
    ));
    for (what, settings, named) in [
        ("no secret", [("gate.jwt.secret", "")], "gate.jwt.secret_file"),
        ("a short one", [("gate.jwt.secret", "short")], "gate.jwt.secret"),
        ("one letter", [("gate.jwt.secret", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa")], "gate.jwt.secret"),
    ] {
        let (config, _, _) = shop::config(folder.path(), &settings);
        let text = format!("{:#}", start(&config, &clock).await.err().unwrap());
        assert!(text.contains(named), "{what}: {text}");
    }
    let (config, _, _) = shop::config(folder.path(), &[]);
    fs::set_permissions(&config.admin.token_file, fs::Permissions::from_mode(0o644)).unwrap();
    let text = format!("{:#}", start(&config, &clock).await.err().unwrap());
    assert!(text.contains("chmod 600"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silent_and_idle_connections_do_not_hold_up_a_stop() {
    let mut shop = Shop::open_with(&[("server.drain_timeout", "5s")]).await;
    let silent = shop.line().await;
    let mut half = shop.line().await;
    half.send(b"GET /livez HT").await.unwrap();
    let mut idle = shop.line().await;
    idle.send(&shop::http::request("GET", "/livez", &[], b"")).await.unwrap();
    assert_eq!(idle.reply(false).await.unwrap().status, 200);

    let begin = tokio::time::Instant::now();
    shop.stop().await;

    let took = begin.elapsed();
    assert!(took < Duration::from_secs(2), "nobody had asked for anything, and it took {took:?}");
    drop((silent, half, idle));
    shop.start_again().await.unwrap();
    shop.finish().await;
}
