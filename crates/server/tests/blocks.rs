//! Whom the staff keeps out: users and networks, of one sale or of all, until that is lifted.

#![expect(clippy::unwrap_used, reason = "a story that cannot go on fails")]

#[expect(dead_code, reason = "each file of stories uses its own part of the harness")]
mod shop;

use doorbuster_server::config::Role;
use doorbuster_wire::{AddBlocks, BlockEntry, BlockRow, BlocksAdded};
use shop::http::Reply;
use shop::{Sale, Shop, purchase_path, refusal, until};

const SALE_TOKENS: (&str, &str) = ("gate.sale_tokens.secret", "a-secret-of-the-shop-that-nobody-knows");

fn these(entries: &[(&str, &str)], sale: Option<&Sale>) -> AddBlocks {
    let entry =
        |(kind, value): &(&str, &str)| BlockEntry { kind: (*kind).to_owned(), value: (*value).to_owned() };
    AddBlocks {
        entries: entries.iter().map(entry).collect(),
        sale_id: sale.map(|it| it.id.clone()),
        reason: "a test".to_owned(),
    }
}

async fn click(shop: &Shop, sale: &Sale, user: &str, from: &str) -> Reply {
    let bearer = format!("Bearer {}", shop.token(user));
    let headers = [("authorization", bearer.as_str()), ("x-forwarded-for", from)];
    shop.ask("POST", &purchase_path(&sale.item), &headers, b"").await
}

/// Waits until the gateway goes by `blocks` blocks.
async fn until_read(shop: &Shop, users: u64, networks: u64) {
    let wanted = [("user", users), ("network", networks)]
        .map(|(kind, count)| format!("doorbuster_blocks{{kind=\"{kind}\"}} {count}"));
    until("the gateway knows", async || {
        let page = shop.metrics().await;
        wanted.iter().all(|line| page.lines().any(|it| it == line))
    })
    .await;
}

async fn standing(shop: &Shop) -> Vec<BlockRow> {
    shop.admin.blocks_page(false, None, None, 100).await.unwrap().items
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_blocked_buys_nothing_until_that_is_lifted() {
    let shop = Shop::open_with(&[("server.trusted_proxies", "127.0.0.0/8"), SALE_TOKENS]).await;
    let (sale, other) = (shop.sale(10).await, shop.sale(10).await);
    let operator = shop.staff(|staff| &staff.operator);
    let everywhere =
        these(&[("user", "eve"), ("network", "192.0.2.7/24"), ("network", "2001:db8::/32")], None);
    assert_eq!(operator.add_blocks(&everywhere).await.unwrap(), BlocksAdded { added: 3, known: 0 });
    let here = these(&[("user", "mallory"), ("network", "198.51.100.7")], Some(&sale));
    assert_eq!(operator.add_blocks(&here).await.unwrap(), BlocksAdded { added: 2, known: 0 });
    assert_eq!(operator.add_blocks(&here).await.unwrap(), BlocksAdded { added: 0, known: 2 });
    until_read(&shop, 2, 3).await;

    let away = "203.0.113.1";
    for (user, from, in_sale, in_other) in [
        ("eve", away, 403, 403),
        ("alice", "192.0.2.255", 403, 403),
        ("alice", "::ffff:192.0.2.1", 403, 403),
        ("alice", "2001:db8:1::1", 403, 403),
        ("mallory", away, 403, 202),
        ("alice", "198.51.100.7", 403, 202),
        ("bob", "198.51.100.8", 202, 202),
    ] {
        for (sale, expected) in [(&sale, in_sale), (&other, in_other)] {
            let reply = click(&shop, sale, user, from).await;
            assert_eq!(reply.status, expected, "{user} from {from}: {}", reply.said());
            if expected == 403 {
                let detail = reply.refused(403, "NOT_ELIGIBLE")["detail"].as_str().unwrap().to_owned();
                assert!(detail.contains("may not buy in this sale") && !detail.contains(from), "{detail}");
            }
        }
    }
    // Nor is a token or a captcha to be had.
    for (method, what) in [("POST", "token"), ("GET", "challenge")] {
        let path = |sale: &Sale| format!("/api/flash-sales/sales/{}/{what}", sale.id);
        shop.buyer("mallory").ask(method, &path(&sale), &[], "").await.refused(403, "NOT_ELIGIBLE");
        let from = [("x-forwarded-for", "192.0.2.1")];
        shop.buyer("carol").ask(method, &path(&other), &from, "").await.refused(403, "NOT_ELIGIBLE");
        let reply = shop.buyer("mallory").ask(method, &path(&other), &[], "").await;
        assert!(reply.error() != "NOT_ELIGIBLE", "{}", reply.said());
    }
    // Who bought before still looks, pays and cancels.
    assert_eq!(shop.buyer("mallory").my_orders(&other).await.len(), 1);

    let blocks = standing(&shop).await;
    let block = |value: &str| blocks.iter().find(|it| it.value == value).unwrap().clone();
    assert_eq!(blocks.len(), 5);
    assert_eq!(block("192.0.2.0/24").by, block("eve").by);
    for value in ["eve", "192.0.2.0/24", "198.51.100.7/32"] {
        let lifted = shop.admin.lift_block(&block(value).block_id, "a mistake").await.unwrap();
        assert_eq!((lifted.lifted_reason.as_deref(), lifted.value.as_str()), (Some("a mistake"), value));
    }
    until_read(&shop, 1, 1).await;
    click(&shop, &sale, "eve", "192.0.2.1").await.accepted();
    click(&shop, &sale, "dora", "198.51.100.7").await.accepted();
    click(&shop, &sale, "mallory", away).await.refused(403, "NOT_ELIGIBLE");
    assert_eq!(standing(&shop).await.len(), 2);
    let of_eve = shop.admin.blocks_page(true, Some("eve"), None, 100).await.unwrap().items;
    assert_eq!(of_eve.len(), 1);
    assert!(of_eve[0].lifted_at.is_some());
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_without_limits_is_blocked_all_the_same_and_so_after_a_restart() {
    let mut shop = Shop::open().await;
    let sale = shop.sale(5).await;
    let alone = shop.config.uses_data_dir();
    let gateways = if alone { Vec::new() } else { vec![shop.join(&[Role::Gateway]).await] };
    shop.buyer("alice").buy(&sale.item).await.accepted();
    shop.admin.add_blocks(&these(&[("network", "127.0.0.0/8")], None)).await.unwrap();
    until_read(&shop, 0, 1).await;
    shop.buyer("bob").buy(&sale.item).await.refused(403, "NOT_ELIGIBLE");
    for gateway in &gateways {
        until("so it is elsewhere", async || {
            shop.click_at(gateway.public_address(), "bob", &sale.item).await.error() == "NOT_ELIGIBLE"
        })
        .await;
    }
    for gateway in gateways {
        gateway.stop().await;
    }
    shop.stop().await;
    shop.start_again().await.unwrap();
    // From the first click on.
    shop.buyer("bob").buy(&sale.item).await.refused(403, "NOT_ELIGIBLE");
    shop.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_is_taken_whole_or_refused_with_the_entry_that_is_wrong() {
    let shop = Shop::open().await;
    let sale = shop.sale(1).await;
    let nowhere = Sale { id: "99".to_owned(), ..sale.clone() };
    let many: Vec<(&str, &str)> = vec![("user", "x"); 1_001];
    for (asked, status, word, says) in [
        (these(&[("user", "eve"), ("user", "")], None), 422, "UNPROCESSABLE", "Entry 2: "),
        (these(&[("network", "everywhere")], None), 422, "UNPROCESSABLE", "Entry 1: "),
        (
            these(&[("user", "a"), ("user", "b"), ("network", "0.0.0.0/0")], None),
            422,
            "UNPROCESSABLE",
            "Entry 3: ",
        ),
        (these(&[("asn", "64496")], None), 422, "UNPROCESSABLE", "Entry 1: "),
        (these(&[], None), 422, "UNPROCESSABLE", "1 to 1000"),
        (these(&many, None), 422, "UNPROCESSABLE", "1 to 1000"),
        (these(&[("user", "eve")], Some(&nowhere)), 404, "SALE_NOT_FOUND", "no sale"),
        (
            AddBlocks { reason: " ".to_owned(), ..these(&[("user", "eve")], None) },
            422,
            "UNPROCESSABLE",
            "reason",
        ),
    ] {
        let said = shop.admin.add_blocks(&asked).await;
        let text = format!("{said:?}");
        assert_eq!(refusal(said), (status, word.to_owned()), "{says}");
        assert!(text.contains(says) && !text.contains("everywhere"), "{text}");
    }
    assert_eq!(standing(&shop).await, []);
    let viewer = shop.staff(|staff| &staff.viewer);
    assert_eq!(refusal(viewer.add_blocks(&these(&[("user", "eve")], None)).await).0, 403);
    assert_eq!(viewer.blocks_page(true, None, None, 1).await.unwrap().items, []);
    assert_eq!(refusal(shop.admin.lift_block("99", "none").await), (404, "BLOCK_NOT_FOUND".to_owned()));

    let thousand: Vec<String> = (0..1_000).map(|n| format!("user-{n}")).collect();
    let entries: Vec<(&str, &str)> = thousand.iter().map(|it| ("user", it.as_str())).collect();
    let added = shop.admin.add_blocks(&these(&entries, None)).await.unwrap();
    assert_eq!(added, BlocksAdded { added: 1_000, known: 0 });
    until_read(&shop, 1_000, 0).await;
    let page = shop.admin.blocks_page(false, None, None, 400).await.unwrap();
    let next = shop.admin.blocks_page(false, None, page.next.as_deref(), 600).await.unwrap();
    assert_eq!((page.items.len(), next.items.len()), (400, 600));
    assert_eq!(next.items[599].value, "user-0", "the oldest comes last");
    let trail = shop.admin.trail(1).await.unwrap();
    assert_eq!((trail[0].path.as_str(), trail[0].status), ("/admin/api/blocks", Some(200)));
    shop.finish().await;
}
