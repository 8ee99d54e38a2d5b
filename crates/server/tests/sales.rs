//! What the staff does with a sale, and who of them may.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use std::collections::HashSet;
use std::time::Duration;

use doorbuster_engine::order::{Epoch, UserId};
use doorbuster_engine::stock::BucketId;
use doorbuster_loadtest::AdminClient;
use doorbuster_wire::{Repair, Restock, SaleDetail};
use futures_util::future::join_all;
use serde_json::{Value, json};
use sha2::Digest;

use shop::http::request;
use shop::{FLAG_LIFE, Offer, Shop, WINDOW, refusal, until};

const HOUR: Duration = Duration::from_secs(3_600);

fn conflict() -> (u16, String) {
    (409, "CONFLICT".to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_preheat_tells_the_same_and_loads_nothing_anew() {
    let shop = Shop::open().await;
    let sale = shop.draft(Offer { quantities: vec![10, 20], ..Offer::default() }).await;
    assert_eq!(refusal(shop.admin.open(&sale.id).await), conflict());
    assert_eq!(refusal(shop.restock(&sale, 1).await), conflict());

    let first = shop.admin.preheat(&sale.id).await.unwrap();
    let second = shop.admin.preheat(&sale.id).await.unwrap();

    assert!(first.ok && first.epoch == 1, "{first:?}");
    assert_eq!(first, second);
    let figures: Vec<_> =
        first.items.iter().map(|item| (item.quantity, item.free, item.held, item.ok)).collect();
    assert_eq!(figures, [(10, 10, 0, true), (20, 20, 0, true)]);
    assert_eq!(shop.admin.sale(&sale.id).await.unwrap().state, "preheated");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preheats_at_once_agree() {
    let shop = Shop::open().await;
    let sale = shop.draft(Offer::default()).await;

    let staff: Vec<AdminClient> = (0..8).map(|_| shop.admin.another()).collect();
    let reports = join_all(staff.iter().map(|staff| staff.preheat(&sale.id))).await;

    for report in reports {
        let report = report.unwrap();
        assert!(report.ok && report.epoch == 1, "{report:?}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_sale_is_not_ready_until_it_is_opened_again() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    let order = alice.buy(&sale.item).await.accepted();
    shop.recorded(&order).await;

    assert_eq!(shop.admin.pause(&sale.id).await.unwrap().state, "paused");
    for _ in 0..10 {
        let reply = bob.buy(&sale.item).await;
        reply.refused(503, "NOT_READY");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
    // What was ordered goes on.
    assert_eq!(shop.pay(&order, "paid").await.outcome, "PAID");
    assert_eq!(shop.admin.open(&sale.id).await.unwrap().state, "open");
    let order = bob.buy(&sale.item).await.accepted();

    shop.recorded(&order).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_sale_stays_closed_and_its_orders_go_on() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let (alice, bob, carol) = (shop.buyer("alice"), shop.buyer("bob"), shop.buyer("carol"));
    let mut orders = Vec::new();
    for buyer in [&alice, &bob, &carol] {
        orders.push(buyer.buy(&sale.item).await.accepted());
    }
    shop.recorded(&orders[2]).await;

    assert_eq!(shop.admin.close(&sale.id).await.unwrap().state, "closed");

    for _ in 0..10 {
        assert_eq!(shop.buyer("late").buy(&sale.item).await.refused(410, "ENDED")["mayReturn"], false);
    }
    for verb in ["open", "pause"] {
        let path = format!("/admin/api/sales/{}/{verb}", sale.id);
        assert_eq!(refusal(shop.admin.post::<(), SaleDetail>(&path, &()).await), conflict(), "{verb}");
    }
    assert_eq!(refusal(shop.restock(&sale, 1).await), conflict());
    assert_eq!(shop.admin.close(&sale.id).await.unwrap().state, "closed");
    assert_eq!(shop.pay(&orders[0], "paid").await.outcome, "PAID");
    assert_eq!(bob.cancel(&orders[1]).await.text("status"), "CANCELLED");
    shop.advance(WINDOW + Duration::from_millis(1));
    carol.until_status(&orders[2], "EXPIRED").await;
    shop.until_free(&sale, 9).await;
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_a_sale_a_second_early_lets_buyers_in_now() {
    let shop = Shop::open().await;
    let sale = shop.draft(Offer { opens_in: HOUR, ..Offer::default() }).await;
    shop.admin.preheat(&sale.id).await.unwrap();
    shop.advance(HOUR - Duration::from_secs(1));
    // The sale clock has set the state by itself, ahead of the window.
    until("the state is open", async || shop.admin.sale(&sale.id).await.unwrap().state == "open").await;

    shop.admin.open(&sale.id).await.unwrap();

    let reply = shop.buyer("alice").buy(&sale.item).await;
    assert_eq!(reply.status, 202, "the staff opened it: {}", reply.said());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restock_is_a_difference_and_counts_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(2).await;
    let (alice, bob) = (shop.buyer("alice"), shop.buyer("bob"));
    alice.buy(&sale.item).await.accepted();
    let order = bob.buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    shop.buyer("carol").buy(&sale.item).await.refused(410, "SOLD_OUT");

    let operation_id = uuid::Uuid::from_u128(rand::random()).to_string();
    let more = Restock { operation_id: operation_id.clone(), units: 3 };
    for _ in 0..3 {
        let detail = shop.admin.restock(&sale.id, &sale.item, &more).await.unwrap();
        assert_eq!((detail.items[0].quantity, detail.items[0].free), (5, Some(3)));
    }
    let other = Restock { operation_id, units: 4 };
    assert_eq!(
        refusal(shop.admin.restock(&sale.id, &sale.item, &other).await),
        (422, "IDEMPOTENCY_MISMATCH".to_owned())
    );
    shop.advance(FLAG_LIFE);
    let order = shop.buyer("carol").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;

    let less = shop.restock(&sale, -1).await.unwrap();
    assert_eq!((less.items[0].quantity, less.items[0].free), (4, Some(1)));
    assert_eq!(refusal(shop.restock(&sale, -2).await), conflict(), "only one is free");
    assert_eq!(refusal(shop.restock(&sale, -5).await), (422, "UNPROCESSABLE".to_owned()), "below zero");
    for nonsense in [0, i64::MAX, i64::MIN, 1 << 31] {
        assert_eq!(
            refusal(shop.restock(&sale, nonsense).await),
            (422, "UNPROCESSABLE".to_owned()),
            "{nonsense}"
        );
    }
    let detail = shop.admin.sale(&sale.id).await.unwrap();
    assert_eq!((detail.items[0].quantity, detail.items[0].free), (4, Some(1)));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restocks_in_the_middle_of_a_rush_sell_every_unit_once() {
    let shop = Shop::open().await;
    let sale = shop.sale(20).await;
    let buyers: Vec<_> = (0..200).map(|user| shop.buyer(&format!("user-{user}"))).collect();
    let rush = join_all(buyers.iter().map(|buyer| buyer.buy(&sale.item)));
    let staff = async {
        let mut quantity = 20;
        for units in [5, -3, 7, -1, 2] {
            if shop.restock(&sale, units).await.is_ok() {
                quantity += units;
            }
        }
        quantity
    };

    let (replies, quantity) = tokio::join!(rush, staff);

    let sold = replies.iter().filter(|reply| reply.status == 202).count();
    until("all are recorded", async || shop.admin.all_orders(&sale.id).await.unwrap().len() == sold).await;
    let detail = shop.admin.sale(&sale.id).await.unwrap();
    let item = &detail.items[0];
    assert_eq!(item.quantity, u64::try_from(quantity).unwrap());
    assert_eq!(item.sold + item.free.unwrap(), item.quantity, "{item:?}");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_is_per_sale_and_not_per_item() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![5, 5], ..Offer::default() }).await;
    let other = shop.sale(5).await;
    let alice = shop.buyer("alice");

    let order = alice.buy(&sale.items[0]).await.accepted();
    let problem = alice.buy(&sale.items[1]).await.refused(409, "ALREADY_PURCHASED");

    assert_eq!(problem["orderId"], order);
    let elsewhere = alice.buy(&other.item).await.accepted();
    shop.recorded(&elsewhere).await;
    assert_eq!(shop.free(&sale, &sale.items[1]).await, 5);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draft_that_makes_no_sense_is_refused_in_words() {
    let shop = Shop::open().await;
    let good = serde_json::to_value(shop.draft_of(&Offer::default())).unwrap();
    let create = async |draft: &Value| shop.admin.post::<Value, SaleDetail>("/admin/api/sales", draft).await;

    for (what, path, value, status) in [
        ("a time without an offset", "/opensAt", json!("2026-11-27T09:00:00"), 422),
        ("a date", "/closesAt", json!("2026-11-27"), 422),
        ("closing before opening", "/closesAt", json!("2026-11-27T08:30:00Z"), 422),
        ("no name", "/name", json!(""), 422),
        ("no items", "/items", json!([]), 422),
        ("no units", "/items/0/quantity", json!(0), 422),
        ("half a unit", "/items/0/quantity", json!(1.5), 400),
        ("units less than none", "/items/0/quantity", json!(-1), 400),
        ("a price below nothing", "/items/0/priceMinor", json!(-1), 422),
        ("no currency", "/items/0/currency", json!("euro"), 422),
        ("an unknown member", "/maxUnitPerUser", json!(1), 400),
        ("an unknown member of an item", "/items/0/stock", json!(1), 400),
        ("a limit of none", "/maxUnitsPerUser", json!(0), 422),
        ("a window of none", "/paymentWindowSeconds", json!(0), 422),
    ] {
        let mut draft = good.clone();
        let (parent, member) = path.rsplit_once('/').unwrap();
        draft.pointer_mut(parent).unwrap()[member] = value;
        let word = if status == 422 { "UNPROCESSABLE" } else { "INVALID_REQUEST" };
        assert_eq!(refusal(create(&draft).await), (status, word.to_owned()), "{what}");
    }
    assert!(shop.admin.sales().await.unwrap().is_empty());
    let mut offset = good.clone();
    offset["opensAt"] = json!("2026-11-27T10:30:00+01:00");
    assert_eq!(create(&offset).await.unwrap().opens_at, "2026-11-27T09:30:00.000Z");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viewers_read_operators_run_sales_and_strangers_get_nothing() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    let (viewer, operator) = (shop.staff(|it| &it.viewer), shop.staff(|it| &it.operator));

    assert_eq!(viewer.sale(&sale.id).await.unwrap().state, "open");
    assert_eq!(viewer.all_orders(&sale.id).await.unwrap().len(), 1);
    assert!(viewer.audit().await.unwrap().ok);
    let forbidden = (403, "FORBIDDEN".to_owned());
    assert_eq!(refusal(viewer.create_sale(&shop.draft_of(&Offer::default())).await), forbidden);
    for verb in ["preheat", "open", "pause", "close"] {
        let path = format!("/admin/api/sales/{}/{verb}", sale.id);
        assert_eq!(refusal(viewer.post::<(), Value>(&path, &()).await), forbidden, "{verb}");
    }
    assert_eq!(operator.pause(&sale.id).await.unwrap().state, "paused");

    let unauthenticated = (401, "UNAUTHENTICATED".to_owned());
    let user = shop.token("alice");
    for stranger in ["x", &"0".repeat(64), &user] {
        let stranger = AdminClient::new(&format!("http://{}", shop.app().admin_address), stranger).unwrap();
        assert_eq!(refusal(stranger.sales().await), unauthenticated);
        assert_eq!(refusal(stranger.pause(&sale.id).await), unauthenticated);
        assert_eq!(refusal(stranger.get::<Value>("/nothing").await), unauthenticated);
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_the_staff_ends_in_time_and_is_kept_as_a_hash() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    let token = "an-openly-known-staff-token-of-a-test";
    let hash: String = sha2::Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect();
    shop::write_private(&file, &format!("operator sha256:{hash} name=ada until=2026-11-27T09:00:00Z\n"));
    let shop = Shop::open_with(&[("admin.token_file", file.to_str().unwrap())]).await;
    let admin =
        |token: &str| AdminClient::new(&format!("http://{}", shop.app().admin_address), token).unwrap();
    assert!(admin(token).create_sale(&shop.draft_of(&Offer::default())).await.is_ok());
    let unauthenticated = (401, "UNAUTHENTICATED".to_owned());
    for known_from_the_file in [hash.clone(), format!("sha256:{hash}")] {
        assert_eq!(refusal(admin(&known_from_the_file).sales().await), unauthenticated);
    }
    // It is eight o'clock when a story begins.
    shop.advance(Duration::from_secs(3_600));
    assert!(admin(token).sales().await.is_ok());
    shop.advance(Duration::from_millis(1));
    assert_eq!(refusal(admin(token).sales().await), unauthenticated);
    let mut shop = shop;
    shop.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_page_of_another_origin_may_speak_for_the_staff() {
    let shop = Shop::open().await;
    let asked = [
        ("connection", "close"),
        ("origin", "https://evil.example"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "authorization"),
    ];
    for (method, path) in [
        ("OPTIONS", "/admin/api/sales"),
        ("OPTIONS", "/admin/api/sales/1/close"),
        ("GET", "/admin/api/sales"),
        ("GET", "/livez"),
    ] {
        let mut line = shop.staff_line().await;
        line.send(&request(method, path, &asked, b"")).await.unwrap();
        let reply = line.reply(false).await.unwrap();
        let allowing: Vec<_> = ["origin", "methods", "headers", "credentials"]
            .map(|it| reply.header(&format!("access-control-allow-{it}")))
            .into();
        assert!(allowing.iter().all(Option::is_none), "{method} {path}: {allowing:?}");
        assert_eq!(reply.status, if path == "/livez" { 200 } else { 401 }, "{method} {path}");
    }
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_public_listener_knows_no_staff() {
    let shop = Shop::open().await;
    let sale = shop.sale(10).await;
    let staff = AdminClient::new(&format!("http://{}", shop.address()), &shop.token("alice")).unwrap();
    let token = std::fs::read_to_string(&shop.config.admin.token_file).unwrap();
    let token = format!("Bearer {}", token.lines().next().unwrap().trim_start_matches("admin "));

    for path in [
        "/admin/api/sales",
        "/admin/api/audit",
        "/admin",
        "/metrics",
        &format!("/admin/api/sales/{}/close", sale.id),
    ] {
        let reply = shop.ask("GET", path, &[("authorization", &token)], b"").await;
        reply.refused(404, "NOT_FOUND");
    }
    assert_eq!(refusal(staff.close(&sale.id).await), (404, "NOT_FOUND".to_owned()));
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_difference_between_stock_and_ledger_is_said_and_then_mended() {
    let shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let order = shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.recorded(&order).await;
    until("the order is confirmed", async || shop.admin.audit().await.is_ok_and(|report| report.at_rest))
        .await;
    let look = Repair { dry_run: true };
    let agreed = shop.admin.repair(&sale.id, &look).await.unwrap();
    assert!(agreed.ok && agreed.differences == 0 && agreed.rebuilt.is_none(), "{agreed:?}");

    // A fault of the program: a live order's unit is given back.
    let bucket = BucketId { sale: sale.id.parse().unwrap(), epoch: Epoch(1) };
    let held = [(order.parse().unwrap(), UserId::new("alice").unwrap())];
    shop.app().backends().stock.release(bucket, &held).await.unwrap();
    let found = shop.admin.repair(&sale.id, &look).await.unwrap();
    assert!(!found.ok && found.rebuilt.is_none(), "{found:?}");
    assert!(found.first[0].contains(&order), "{found:?}");

    let mended = shop.admin.repair(&sale.id, &Repair { dry_run: false }).await.unwrap();
    assert!(mended.ok && mended.rebuilt.is_some_and(|it| it.epoch == 2), "a rebuild in the next epoch");
    assert_eq!(shop.admin.repair(&sale.id, &look).await.unwrap().differences, 0);
    assert_eq!(shop.free(&sale, &sale.item).await, 4);
    assert_eq!(refusal(shop.admin.repair("999", &look).await), (404, "SALE_NOT_FOUND".to_owned()));
    let draft = shop.draft(Offer::default()).await;
    assert_eq!(refusal(shop.admin.repair(&draft.id, &look).await).0, 409);
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_staff_lists_every_order_once_page_by_page() {
    let shop = Shop::open().await;
    let sale = shop.sale_of(Offer { quantities: vec![60], limit: 2, ..Offer::default() }).await;
    let other = shop.sale(5).await;
    shop.buyer("elsewhere").buy(&other.item).await.accepted();
    let mut placed = HashSet::new();
    for user in 0..25 {
        placed.insert(shop.buyer(&format!("user-{user}")).buy_units(&sale.item, "key", 1).await.accepted());
    }
    until("all are recorded", async || shop.admin.all_orders(&sale.id).await.unwrap().len() == 25).await;

    for limit in [1, 5, 7, 25, 5_000] {
        let (mut listed, mut cursor) = (Vec::new(), None);
        loop {
            let page = shop.admin.orders_page(&sale.id, cursor.as_deref(), limit).await.unwrap();
            assert!(page.items.len() <= limit);
            listed.extend(page.items.into_iter().map(|row| row.order_id));
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!(listed.len(), 25, "with pages of {limit}");
        assert_eq!(listed.into_iter().collect::<HashSet<_>>(), placed, "with pages of {limit}");
    }
    for limit in [0, 5_001] {
        let page = shop.admin.orders_page(&sale.id, None, limit).await;
        assert_eq!(refusal(page), (400, "INVALID_REQUEST".to_owned()));
    }
    let page = shop.admin.orders_page(&sale.id, Some("x' OR 1=1"), 5).await;
    assert_eq!(refusal(page), (400, "INVALID_REQUEST".to_owned()));
    assert_eq!(refusal(shop.admin.orders_page("999", None, 5).await), (404, "SALE_NOT_FOUND".to_owned()));
    shop.finish().await;
}
