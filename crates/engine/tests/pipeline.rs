//! The pipeline at its joints: what a lost reply, a lost message, a dead process or a lost stock
//! leaves behind, and that it is settled.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use doorbuster_engine::block::{Blocked, NewBlocks};
use doorbuster_engine::clock::{Clock, ManualClock};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::engine::PurchaseOutcome;
use doorbuster_engine::fault::{BackendError, Fault, Layer};
use doorbuster_engine::gate::{BadToken, Ineligible, ProfileClaims, Refusal};
use doorbuster_engine::ledger::{BlockFilter, BlockOutcome, CancelOutcome};
use doorbuster_engine::member::{Level, Levels};
use doorbuster_engine::my_orders::BeginPaymentOutcome;
use doorbuster_engine::operate::{DifferencesReport, RebuildReport};
use doorbuster_engine::order::{Epoch, ItemId, OrderStatus, RejectReason, SaleId, Units};
use doorbuster_engine::sale::LoaderToken;
use doorbuster_engine::stock::{
    Batcher, BatcherLimits, BucketId, LoadPage, ReadBack, ReserveOutcome, ReserveReply, ReserveRequest,
};
use doorbuster_engine::workers::{
    Backpressure, Difference, Doorman, Progress, Rebuilder, Shedding, Step, WatchLimits, Worker,
};
use futures_util::FutureExt as _;
use support::{FIRST, Publishing, SALE, WINDOW, World, accepted, attempt, token_of_level, verifier};

fn lost(fault: Fault) -> BackendError {
    BackendError::new(Layer::Stock, fault, "lost, says the test")
}

async fn status(world: &World, order: doorbuster_engine::order::OrderId) -> Option<OrderStatus> {
    world.backends.ledger.statuses(&[order]).await.unwrap()[0]
}

#[tokio::test]
async fn an_accepted_order_becomes_payable_and_the_unit_stays_taken() {
    let world = World::new().await;
    world.sale(2, 1).await;
    let order = accepted(world.buy("alice").await);
    let user = doorbuster_engine::order::UserId::new("alice").unwrap();
    let queued = world.engine.my_order(&user, order).await.unwrap().unwrap();
    assert_eq!((queued.status, queued.payable, queued.expires_at), (OrderStatus::Pending, false, None));
    world.work().await;
    let recorded = world.engine.my_order(&user, order).await.unwrap().unwrap();
    assert!(recorded.payable);
    assert_eq!(recorded.expires_at, Some(world.clock.now().plus(WINDOW)));
    assert_eq!(world.buy("alice").await, PurchaseOutcome::AlreadyPurchased(order));
    assert_eq!((world.free().await, world.level().await.unconfirmed), (1, 0));
    world.finish().await;
}

#[tokio::test]
async fn a_payment_begins_once_the_order_is_recorded_and_for_its_owner_alone() {
    let world = World::new().await;
    world.sale(2, 1).await;
    let order = accepted(world.buy("alice").await);
    let begin = async |user: &str| {
        let user = doorbuster_engine::order::UserId::new(user).unwrap();
        world.engine.begin_payment(&user, order, "sandbox").await.unwrap()
    };
    assert_eq!(begin("alice").await, BeginPaymentOutcome::NotYet);
    assert_eq!(begin("bob").await, BeginPaymentOutcome::Unknown);
    world.work().await;
    assert!(matches!(begin("alice").await, BeginPaymentOutcome::Begun(attempt, _) if attempt.order == order));
    assert_eq!(begin("bob").await, BeginPaymentOutcome::Unknown);
    world.clock.advance(WINDOW + Duration::from_millis(1));
    assert_eq!(begin("alice").await, BeginPaymentOutcome::Closed);
    world.work().await;
    world.finish().await;
}

#[tokio::test]
async fn a_lost_reply_is_repeated_with_the_same_order_id() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let calls = AtomicU64::new(0);
    world.stock.tamper(move |stock, bucket, requests| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move {
            let outcomes = stock.reserve(bucket, &requests).await;
            if first { Err(lost(Fault::Ambiguous)) } else { outcomes }
        }
    });
    accepted(world.buy("alice").await);
    assert_eq!(world.free().await, 4);
    world.finish().await;
}

#[tokio::test]
async fn a_refusal_of_a_repeated_call_is_never_said_as_one() {
    let world = World::new().await;
    world.sale(1, 1).await;
    accepted(world.buy("bob").await);
    let calls = AtomicU64::new(0);
    world.stock.tamper(move |stock, bucket, requests| {
        let first = calls.fetch_add(1, Ordering::SeqCst) == 0;
        async move { if first { Err(lost(Fault::Ambiguous)) } else { stock.reserve(bucket, &requests).await } }
    });
    world.clock.advance(Duration::from_secs(1));
    assert!(matches!(world.buy("alice").await, PurchaseOutcome::OutcomeUnknown(_)));
    world.stock.tamper(|_, _, _| async { Err(lost(Fault::Ambiguous)) });
    assert!(matches!(world.buy("alice").await, PurchaseOutcome::OutcomeUnknown(_)));
    world.stock.tamper(|_, _, _| async { Err(lost(Fault::Transient)) });
    assert_eq!(world.buy("alice").await, PurchaseOutcome::Refused(Refusal::Busy));
    world.stock.honest();
    world.finish().await;
}

#[tokio::test]
async fn an_order_whose_message_was_lost_is_published_again_until_it_is_recorded() {
    let world = World::new().await;
    world.sale(5, 1).await;
    *world.queue.publishing.lock().unwrap() = Publishing::Lost;
    let PurchaseOutcome::OutcomeUnknown(order) = world.buy("alice").await else { panic!("not unknown") };
    // The unit stays taken and the buyer finds the order.
    assert_eq!(world.free().await, 4);
    assert_eq!(world.buy("alice").await, PurchaseOutcome::AlreadyPurchased(order));
    world.clock.advance(Duration::from_secs(3));
    for _ in 0..3 {
        world.sweep().await;
    }
    assert_eq!(status(&world, order).await, None, "the queue is still down");
    *world.queue.publishing.lock().unwrap() = Publishing::Honest;
    world.clock.advance(Duration::from_secs(600));
    world.work().await;
    world.work().await;
    assert_eq!(status(&world, order).await, Some(OrderStatus::Pending));
    world.finish().await;
}

#[tokio::test]
async fn a_lost_acknowledgement_and_a_doubled_message_make_one_order() {
    let world = World::new().await;
    world.sale(5, 1).await;
    *world.queue.publishing.lock().unwrap() = Publishing::AckLost;
    let PurchaseOutcome::OutcomeUnknown(order) = world.buy("alice").await else { panic!("not unknown") };
    *world.queue.publishing.lock().unwrap() = Publishing::Twice;
    let other = accepted(world.buy("bob").await);
    world.work().await;
    assert_eq!([status(&world, order).await, status(&world, other).await], [Some(OrderStatus::Pending); 2]);
    world.finish().await;
}

#[tokio::test]
async fn nothing_is_published_again_while_the_recorder_is_behind() {
    let world = World::new().await;
    world.sale(100, 1).await;
    for n in 0..20 {
        accepted(world.buy(&format!("user-{n}")).await);
    }
    world.clock.advance(Duration::from_secs(30));
    for _ in 0..10 {
        world.sweep().await;
        world.clock.advance(Duration::from_secs(30));
    }
    assert_eq!(world.queue.published.load(Ordering::SeqCst), 20, "copies would bury the recorder");
    world.finish().await;
}

#[tokio::test]
async fn a_ledger_that_went_back_gets_the_queue_again_without_a_further_order() {
    let world = World::new().await;
    world.sale(3, 1).await;
    let order = accepted(world.buy("alice").await);
    world.work().await;
    let before = world.backends.ledger.positions().await.unwrap();
    assert!(world.backends.ledger.cut_back(&before[0], 0).await.unwrap());
    world.work().await;
    assert_eq!(world.backends.ledger.positions().await.unwrap(), before);
    assert_eq!(status(&world, order).await, Some(OrderStatus::Pending));
    world.finish().await;
}

#[tokio::test]
async fn a_message_of_a_newer_version_stops_the_partition_and_loses_nothing() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let before = accepted(world.buy("before").await);
    world.append_bytes(br#"{"v":2,"order":{"new":"shape"}}"#).await;
    let behind = accepted(world.buy("behind").await);
    while world.try_record().await.is_ok() {}
    let error = world.try_record().await.unwrap_err().to_string();
    assert!(error.contains("version"), "{error}");
    assert_eq!(status(&world, before).await, Some(OrderStatus::Pending));
    assert_eq!(status(&world, behind).await, None, "it waits behind the record");
    let next = world.backends.ledger.positions().await.unwrap()[0].next;
    assert_eq!(next, 1, "the position stays before the record");
}

#[tokio::test]
async fn the_same_key_again_is_the_same_order() {
    let world = World::new().await;
    world.sale(9, 3).await;
    let order = accepted(world.buy_as("alice", Some("k1"), 2).await);
    let replay = |status, payable| PurchaseOutcome::Replayed { order, status, payable };
    let again = world.buy_as("alice", Some("k1"), 2).await;
    assert_eq!(again, replay(OrderStatus::Pending, false), "still in the outbox: published again");
    assert_eq!(world.buy_as("alice", Some("k1"), 1).await, PurchaseOutcome::IdempotencyMismatch);
    world.work().await;
    assert_eq!(world.buy_as("alice", Some("k1"), 2).await, replay(OrderStatus::Pending, true));
    world.clock.advance(WINDOW + Duration::from_millis(1));
    world.work().await;
    assert_eq!(world.buy_as("alice", Some("k1"), 2).await, replay(OrderStatus::Expired, false));
    assert_eq!(world.buy_as("alice", Some("k1"), 1).await, PurchaseOutcome::IdempotencyMismatch);
    assert_eq!(world.free().await, 9);
    world.finish().await;
}

#[tokio::test]
async fn a_buyer_who_goes_away_has_the_order_all_the_same() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let token = world.token("alice");
    let gone = world.engine.purchase(attempt(&token, None, 1)).now_or_never();
    assert!(gone.is_none(), "answered before it was asked");
    // The admitted order runs to its end; the next click waits behind it.
    accepted(world.buy("bob").await);
    let user = doorbuster_engine::order::UserId::new("alice").unwrap();
    let mine = world.engine.my_orders(&user, SALE).await.unwrap().unwrap();
    assert_eq!(mine.len(), 1);
    world.finish().await;
}

#[tokio::test]
async fn after_a_restart_every_acknowledged_order_is_there_and_unanswered_holds_are_not() {
    let world = World::new().await;
    world.sale(10, 1).await;
    let recorded = accepted(world.buy("recorded").await);
    world.work().await;
    let queued = accepted(world.buy("queued").await);
    *world.queue.publishing.lock().unwrap() = Publishing::Lost;
    assert!(matches!(world.buy("unanswered").await, PurchaseOutcome::OutcomeUnknown(_)));
    let world = world.restarted().await;
    world.work().await;
    assert_eq!(
        [status(&world, recorded).await, status(&world, queued).await],
        [Some(OrderStatus::Pending); 2]
    );
    assert_eq!(world.free().await, 8);
    assert_eq!(world.read_sale(SALE).await.epoch, Epoch(2));
    assert_eq!(world.buy("recorded").await, PurchaseOutcome::AlreadyPurchased(recorded));
    accepted(world.buy("unanswered").await);
    world.finish().await;
}

#[tokio::test]
async fn a_lost_stock_is_rebuilt_and_what_was_oversold_meanwhile_is_rejected() {
    let world = World::new().await;
    world.sale(3, 1).await;
    for user in ["a", "b", "c"] {
        accepted(world.buy(user).await);
    }
    // The stock comes back from an old copy that knows none of them, in the same epoch.
    let old = world.fresh_stock();
    world.stock.replace(std::sync::Arc::clone(&old));
    load(&world, old.as_ref(), 3).await;
    world.clock.advance(Duration::from_secs(1));
    let late: Vec<_> = [accepted(world.buy("d").await), accepted(world.buy("e").await)].to_vec();
    world.work().await;
    for order in late {
        let row = world.backends.ledger.order(order).await.unwrap().unwrap();
        assert_eq!(row.reason, Some(RejectReason::NoStock));
    }
    let sale = world.read_sale(SALE).await;
    assert_eq!((sale.epoch, sale.fence, sale.items[0].sold), (Epoch(2), None, 3));
    world.clock.advance(Duration::from_secs(1));
    assert_eq!(world.buy("f").await, PurchaseOutcome::Refused(Refusal::SoldOut));
    world.finish().await;
}

async fn load(world: &World, stock: &dyn doorbuster_engine::stock::Stock, quantity: u64) {
    use doorbuster_engine::stock::{BucketId, LoadPage, ReadBack};
    let sale = world.read_sale(SALE).await;
    let (bucket, token) = (BucketId { sale: SALE, epoch: sale.epoch }, LoaderToken(1));
    stock.begin_load(bucket, &sale.terms, token).await.unwrap();
    stock.load(bucket, token, 0, &LoadPage::Items(vec![(support::ITEM, quantity)])).await.unwrap();
    stock.finish_load(bucket, token, ReadBack { seq: 0, pages: 1 }).await.unwrap();
}

#[tokio::test]
async fn a_gateway_whose_clock_is_wrong_opens_with_the_stock() {
    use doorbuster_engine::workers::Worker as _;
    let world = World::new().await;
    let sale = world.sale(5, 1).await;
    // The stock's clock stays; this machine's falls back to before the sale.
    let theirs = Arc::new(ManualClock::at(world.clock.now()));
    let stock: Arc<dyn doorbuster_engine::stock::Stock> =
        Arc::new(doorbuster_engine::stock::EmbeddedStock::new(theirs));
    load(&world, stock.as_ref(), 5).await;
    world.stock.replace(stock);
    let before = sale.terms.opens_at.minus(Duration::from_secs(30));
    world.clock.jump(before);
    let refused = world.buy("alice").await;
    assert!(matches!(refused, PurchaseOutcome::Refused(Refusal::NotStarted { .. })), "{refused:?}");

    world.watch().step().await.unwrap();
    accepted(world.buy("alice").await);
}

#[tokio::test]
async fn a_rebuild_waits_for_what_is_in_flight() {
    let world = World::new().await;
    world.sale(5, 1).await;
    *world.queue.publishing.lock().unwrap() = Publishing::Lost;
    assert!(matches!(world.buy("unacknowledged").await, PurchaseOutcome::OutcomeUnknown(_)));
    *world.queue.publishing.lock().unwrap() = Publishing::Honest;
    let queued = accepted(world.buy("queued").await);
    let ledger = &world.backends.ledger;
    ledger.begin_rebuild(SALE, Epoch(1), "test", LoaderToken::NOBODY, Duration::MAX).await.unwrap();
    assert_eq!(world.rebuild().await, Step::Idle, "the outbox is not recorded yet");
    assert_eq!(status(&world, queued).await, None);
    world.refresh().await;
    assert_eq!(world.buy("other").await, PurchaseOutcome::Refused(Refusal::NotReady));
    // Recording alone is not enough: the unacknowledged order must be in the queue first.
    for _ in 0..6 {
        world.record().await;
        world.rebuild().await;
        world.clock.advance(Duration::from_secs(10));
    }
    world.work().await;
    assert_eq!(world.free().await, 3);
    assert_eq!(world.read_sale(SALE).await.fence, None);
    world.finish().await;
}

#[tokio::test]
async fn a_rebuild_that_another_has_finished_is_not_done_again() {
    let world = World::new().await;
    let open = world.sale(5, 1).await;
    let ledger = &world.backends.ledger;
    let (epoch, nobody) = (open.epoch, LoaderToken::NOBODY);
    ledger.begin_rebuild(SALE, epoch, "a test", nobody, Duration::ZERO).await.unwrap();
    // Another keeper reads the sale while it is fenced, and goes on once it is not any more.
    let fenced = world.read_sale(SALE).await;
    assert!(fenced.fence.is_some());
    world.work().await;
    let rebuilt = world.read_sale(SALE).await;
    assert_eq!((rebuilt.fence, rebuilt.epoch), (None, Epoch(epoch.0 + 1)));
    let mut other = Rebuilder::new(world.backends.clone(), Duration::ZERO);
    assert_eq!(other.advance(&fenced, "taken over").await.unwrap(), Progress::Done);
    let left = world.read_sale(SALE).await;
    assert_eq!((left.fence, left.epoch), (None, Epoch(epoch.0 + 1)));
    world.finish().await;
}

#[tokio::test]
async fn the_staff_rebuilds_a_stock_in_a_new_epoch_and_hears_what_it_holds() {
    let world = World::new().await;
    let patience = Duration::from_secs(30);
    let operations = world.operations();
    assert_eq!(operations.rebuild(SALE, "test", patience).await.unwrap(), RebuildReport::NoSale);
    world.sale(5, 1).await;
    accepted(world.buy("queued").await);

    // Nothing works meanwhile, so it goes on; asking again joins it instead of beginning another.
    for _ in 0..2 {
        let waiting = operations.rebuild(SALE, "test", Duration::ZERO).await.unwrap();
        assert_eq!(waiting, RebuildReport::StillRebuilding);
        assert_eq!(world.read_sale(SALE).await.epoch, Epoch(2));
    }
    let (report, ()) = tokio::join!(operations.rebuild(SALE, "test", patience), world.work());
    let RebuildReport::Rebuilt { sale, items } = report.unwrap() else { panic!("it is rebuilt") };
    assert_eq!((sale.epoch, sale.fence), (Epoch(2), None));
    assert_eq!((items[0].quantity, items[0].sold, items[0].free, items[0].held), (5, 1, 4, 1));
    world.clock.advance(Duration::from_secs(1));
    accepted(world.buy("next").await);
    world.finish().await;
}

#[tokio::test]
async fn a_cancelled_queued_order_makes_its_message_a_no_op() {
    let world = World::new().await;
    world.sale(1, 1).await;
    let order = accepted(world.buy("alice").await);
    let alice = doorbuster_engine::order::UserId::new("alice").unwrap();
    let bob = doorbuster_engine::order::UserId::new("bob").unwrap();
    assert_eq!(world.engine.cancel(&bob, order).await.unwrap(), CancelOutcome::Unknown);
    assert!(matches!(world.engine.cancel(&alice, order).await.unwrap(), CancelOutcome::Cancelled(_)));
    world.work().await;
    assert_eq!(status(&world, order).await, Some(OrderStatus::Cancelled));
    world.clock.advance(Duration::from_secs(1));
    accepted(world.buy("bob").await);
    world.finish().await;
}

#[tokio::test]
async fn after_the_sell_out_the_stock_sees_a_handful_of_calls() {
    let world = World::new().await;
    world.sale(1, 1).await;
    let order = accepted(world.buy("winner").await);
    let before = world.stock.reserves.load(Ordering::SeqCst);
    for n in 0..1_000 {
        assert_eq!(world.buy(&format!("user-{n}")).await, PurchaseOutcome::Refused(Refusal::SoldOut));
        world.clock.advance(Duration::from_millis(1));
    }
    let calls = world.stock.reserves.load(Ordering::SeqCst) - before;
    assert!((1..=8).contains(&calls), "{calls} calls in a second");
    // The winner hears of the order all the same; a forged winner hears what everybody hears.
    assert_eq!(world.buy("winner").await, PurchaseOutcome::AlreadyPurchased(order));
    let token = world.token("winner");
    let forged = format!("{}x", &token[..token.len() - 1]);
    let outcome = world.engine.purchase(attempt(&forged, None, 1)).await;
    assert_eq!(outcome, PurchaseOutcome::Refused(Refusal::SoldOut));
    // A unit that came back is on sale within the flag's life.
    world.work().await;
    world.clock.advance(WINDOW + Duration::from_millis(1));
    world.work().await;
    world.clock.advance(Duration::from_millis(200));
    accepted(world.buy("patient").await);
    world.finish().await;
}

#[tokio::test]
async fn somebody_who_wants_three_does_not_lock_out_those_who_want_one() {
    let world = World::new().await;
    world.sale(5, 3).await;
    accepted(world.buy_as("a", Some("k"), 3).await);
    assert_eq!(world.buy_as("b", Some("k"), 3).await, PurchaseOutcome::NotEnough { left: 2 });
    accepted(world.buy_as("c", Some("k"), 2).await);
    assert_eq!(world.buy_as("d", Some("k"), 1).await, PurchaseOutcome::Refused(Refusal::SoldOut));
    world.finish().await;
}

#[tokio::test]
async fn many_buyers_at_once_share_calls_and_get_exactly_what_is_there() {
    let world = World::new().await;
    world.sale(100, 1).await;
    let users: Vec<String> = (0..1_000).map(|n| format!("user-{n}")).collect();
    let before = world.stock.reserves.load(Ordering::SeqCst);
    let outcomes = futures_util::future::join_all(users.iter().map(|user| world.buy(user))).await;
    let won = outcomes.iter().filter(|it| matches!(it, PurchaseOutcome::Accepted(_))).count();
    assert_eq!(won, 100);
    let calls = world.stock.reserves.load(Ordering::SeqCst) - before;
    assert!(calls <= 20, "{calls} calls for 1,000 buyers");
    world.finish().await;
}

#[tokio::test]
async fn a_slow_sale_holds_up_no_other() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let (sender, gate) = tokio::sync::watch::channel(false);
    world.stock.tamper(move |stock, bucket, requests| {
        let mut gate = gate.clone();
        async move {
            if bucket.sale == SALE {
                gate.wait_for(|open| *open).await.unwrap();
            }
            stock.reserve(bucket, &requests).await
        }
    });
    let other = world.sale(5, 1).await;
    let token = world.token("bob");
    let mut bobs = attempt(&token, None, 1);
    bobs.item = other.items[0].id;
    let (slow, _) = tokio::join!(world.buy("alice"), async {
        accepted(world.engine.purchase(bobs).await);
        sender.send_replace(true);
    });
    accepted(slow);
    world.finish().await;
}

#[tokio::test]
async fn behind_a_stock_that_is_not_there_nobody_waits_his_turn() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let before = world.stock.reserves.load(Ordering::SeqCst);
    world.stock.tamper(|_, _, _| async {
        tokio::task::yield_now().await;
        Err(lost(Fault::Transient))
    });
    // Far more than fit into one call.
    let users: Vec<String> = (0..3_000).map(|n| format!("user-{n}")).collect();
    let outcomes = futures_util::future::join_all(users.iter().map(|user| world.buy(user))).await;
    let busy = PurchaseOutcome::Refused(Refusal::Busy);
    assert!(outcomes.iter().all(|it| *it == busy), "{:?}", outcomes.iter().find(|it| **it != busy));
    let calls = world.stock.reserves.load(Ordering::SeqCst) - before;
    assert!(calls <= 9, "{calls} calls to a stock that is not there");
    world.stock.honest();
    accepted(world.buy("alice").await);
    world.finish().await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test starts what the server would start")]
async fn a_stuck_sale_fills_its_own_queue_and_no_others() {
    let world = World::new().await;
    let calm = world.sale(5, 1).await;
    let stuck = BucketId { sale: SaleId(99), epoch: FIRST };
    world.stock.tamper(move |stock, bucket, requests| async move {
        if bucket == stuck {
            std::future::pending::<()>().await;
        }
        stock.reserve(bucket, &requests).await
    });
    let limits = BatcherLimits {
        waiting_max: 4,
        call_timeout: Duration::from_secs(3_600),
        ..BatcherLimits::default()
    };
    let (batcher, work) = Batcher::new(Arc::clone(&world.backends.stock), limits);
    tokio::spawn(work.run());
    let request = |n, item| ReserveRequest {
        order: sample::order_id(n),
        user: sample::user(n),
        item,
        units: Units(1),
        trace: None,
        retake_of: None,
    };

    let mut storm = tokio::task::JoinSet::new();
    for n in 0..20 {
        let (batcher, request) = (batcher.clone(), request(n, ItemId(99)));
        storm.spawn(async move { batcher.reserve(stuck, request).await });
        // The batcher takes what has come before the next one comes.
        for _ in 0..4 {
            tokio::task::yield_now().await;
        }
    }
    // One call is out and four wait for it.
    for _ in 0..20 - 5 {
        let refused = tokio::time::timeout(Duration::from_secs(10), storm.join_next()).await;
        assert!(matches!(refused.expect("more than four wait").unwrap().unwrap(), ReserveReply::Busy));
    }
    let bucket = BucketId { sale: calm.id, epoch: calm.epoch };
    let reply = batcher.reserve(bucket, request(20, calm.items[0].id)).await;
    assert!(
        matches!(reply, ReserveReply::Answered { outcome: ReserveOutcome::Held { .. }, .. }),
        "{reply:?}"
    );
    assert_eq!(storm.len(), 5);
}

#[tokio::test]
async fn a_stock_that_answers_too_few_outcomes_is_not_believed() {
    let world = World::new().await;
    world.sale(5, 1).await;
    world.stock.tamper(|_, _, _| async { Ok(Vec::<ReserveOutcome>::new()) });
    assert!(matches!(world.buy("alice").await, PurchaseOutcome::OutcomeUnknown(_)));
    world.stock.honest();
    world.finish().await;
}

#[tokio::test]
async fn a_restock_is_sold_and_a_removal_takes_only_what_is_free() {
    use doorbuster_engine::operate::RestockReport;
    let world = World::new().await;
    world.sale(1, 1).await;
    accepted(world.buy("a").await);
    let restock = |operation: u128, units: i64| {
        let operations = world.operations();
        async move {
            operations.restock(uuid::Uuid::from_u128(operation), SALE, support::ITEM, units).await.unwrap()
        }
    };
    for _ in 0..2 {
        assert!(matches!(restock(1, 2).await, RestockReport::Done(_)));
    }
    assert_eq!(restock(2, -3).await, RestockReport::NotEnough);
    assert!(matches!(restock(3, -1).await, RestockReport::Done(_)));
    world.clock.advance(Duration::from_secs(1));
    accepted(world.buy("b").await);
    assert_eq!(world.buy("c").await, PurchaseOutcome::Refused(Refusal::SoldOut));
    assert_eq!(world.read_sale(SALE).await.items[0].quantity, 2);
    world.finish().await;
}

#[tokio::test]
async fn the_staff_hears_what_differs_between_stock_and_ledger() {
    let world = World::new().await;
    world.sale(5, 1).await;
    let order = accepted(world.buy("alice").await);
    accepted(world.buy("bob").await);
    world.work().await;
    let compare = || async {
        match world.operations().differences(SALE, Duration::from_secs(20)).await.unwrap() {
            DifferencesReport::Compared { differences, .. } => differences,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(compare().await, []);

    // A program fault: a unit of a live order is given back.
    let alice = doorbuster_engine::order::UserId::new("alice").unwrap();
    world.backends.stock.release(BucketId { sale: SALE, epoch: FIRST }, &[(order, alice)]).await.unwrap();
    assert_eq!(compare().await, [Difference::NotHeld(order), Difference::WrongFree(1)]);
    assert_eq!(world.read_sale(SALE).await.epoch, FIRST, "looking changes nothing");

    let rebuilt =
        async { world.operations().rebuild(SALE, "repair", Duration::from_secs(20)).await.unwrap() };
    let (report, ()) = futures_util::future::join(rebuilt, async {
        while world.read_sale(SALE).await.epoch == FIRST || world.read_sale(SALE).await.fence.is_some() {
            world.work().await;
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(matches!(report, RebuildReport::Rebuilt { .. }), "{report:?}");
    assert_eq!(compare().await, []);
    world.finish().await;
}

#[tokio::test]
async fn a_step_that_two_orders_have_is_a_difference() {
    let world = World::new().await;
    let sale = world.sale(5, 1).await;
    accepted(world.buy("alice").await);
    world.work().await;
    // The stock is as it was before alice, and nobody saw it go back: bob gets her step.
    let (stock, bucket, token) = (world.fresh_stock(), BucketId { sale: SALE, epoch: FIRST }, LoaderToken(9));
    stock.begin_load(bucket, &sale.terms, token).await.unwrap();
    stock.load(bucket, token, 0, &LoadPage::Items(vec![(ItemId(1), 5)])).await.unwrap();
    let seq = stock.level(bucket).await.unwrap().unwrap().seq;
    stock.finish_load(bucket, token, ReadBack { seq, pages: 1 }).await.unwrap();
    world.stock.replace(stock);
    accepted(world.buy("bob").await);
    world.work().await;
    let report = world.operations().differences(SALE, Duration::from_secs(20)).await.unwrap();
    let DifferencesReport::Compared { differences, .. } = report else { panic!("{report:?}") };
    assert!(differences.contains(&Difference::SameStep(1)), "{differences:?}");
}

#[tokio::test]
async fn while_orders_pile_up_the_nearest_to_the_shop_are_taken_longest() {
    let levels = Levels::new(["silver", "gold"]).unwrap();
    let claims = ProfileClaims { level: "level".to_owned(), levels, ..ProfileClaims::default() };
    let world = World::with(|shared| {
        shared.backpressure = Arc::new(Backpressure::shedding_by(Shedding::new(70, Level(2))));
        shared.tokens = Arc::new(verifier().reading(claims));
    })
    .await;
    world.sale(100, 1).await;
    let mut watch = world.watch_within(WatchLimits { queue_lag_max: 20, ..WatchLimits::default() });
    let buy = async |user: &str, level: &str| {
        let token = token_of_level(user, level, world.clock.now());
        world.engine.purchase(attempt(&token, None, 1)).await
    };
    let busy = |level| PurchaseOutcome::Refused(Refusal::Shed(Level(level)));
    let mut waiting = 0;
    // So many orders wait to be recorded, at most 20; whose further ones are refused?
    for (orders, shed) in [(13, &[][..]), (14, &[0]), (16, &[0]), (17, &[0, 1]), (20, &[0, 1])] {
        while waiting < orders {
            accepted(buy(&format!("early-{waiting}"), "gold").await);
            waiting += 1;
        }
        watch.step().await.unwrap();
        for (level, name) in [(0, ""), (0, "platin"), (1, "silver"), (2, "gold")] {
            // Who comes through is told that nothing is no quantity.
            let token = token_of_level("somebody", name, world.clock.now());
            let said = world.engine.purchase(attempt(&token, None, 0)).await;
            let unfit = PurchaseOutcome::Refused(Refusal::InvalidQuantity { limit: Units(1) });
            let expected = if shed.contains(&level) { busy(level) } else { unfit };
            assert_eq!(said, expected, "{name:?} with {orders}");
        }
        let bad = world.engine.purchase(attempt("not.a.token", None, 1)).await;
        assert_eq!(bad, PurchaseOutcome::Refused(Refusal::BadToken(BadToken::Invalid)));
    }
    accepted(buy("early-20", "gold").await);
    watch.step().await.unwrap();
    for token in ["not.a.token", &token_of_level("gilt", "gold", world.clock.now())] {
        let said = world.engine.purchase(attempt(token, None, 1)).await;
        assert_eq!(said, PurchaseOutcome::Refused(Refusal::Busy), "nobody's signature is checked");
    }
    let shedding = world.engine.shared().backpressure.shedding();
    assert_eq!(shedding.counts().collect::<Vec<_>>(), [8, 2]);

    while world.record().await != Step::Idle {}
    watch.step().await.unwrap();
    accepted(buy("nobody's member", "").await);
    world.finish().await;
}

/// Runs SQL on the ledger's own file, as an accident would.
fn spoil(world: &World, sql: &str) {
    rusqlite::Connection::open(world.ledger_file()).unwrap().execute_batch(sql).unwrap();
}

#[tokio::test]
async fn who_is_blocked_stays_so_while_the_ledger_does_not_say() {
    let world = World::new().await;
    world.sale(10, 1).await;
    let barred = Arc::clone(&world.engine.shared().barred);
    let mut doorman = Doorman::new(world.backends.clone(), Arc::clone(&world.catalog), barred, 2);
    let block = async |user: &str| {
        let blocked = vec![Blocked::of("user", user).unwrap()];
        let new = NewBlocks { blocked, sale: None, reason: "a test".to_owned(), by: "ada".to_owned() };
        let added = world.backends.ledger.block(&new, 100).await.unwrap();
        assert_eq!(added, BlockOutcome::Stand { added: 1 });
    };
    let refused = PurchaseOutcome::Refused(Refusal::NotEligible(Ineligible::Blocked));
    block("eve").await;
    doorman.step().await.unwrap();
    assert_eq!(world.buy("eve").await, refused);
    accepted(world.buy("alice").await);

    // The list alone cannot be read; then nothing can.
    spoil(&world, "ALTER TABLE block RENAME TO elsewhere");
    for _ in 0..3 {
        world.clock.advance(Duration::from_secs(6));
        doorman.step().await.unwrap();
        assert_eq!(world.buy("eve").await, refused);
    }
    spoil(&world, "ALTER TABLE orders RENAME TO nowhere");
    world.clock.advance(Duration::from_secs(6));
    doorman.step().await.unwrap_err();
    assert_eq!(world.buy("eve").await, refused);
    spoil(&world, "ALTER TABLE nowhere RENAME TO orders; ALTER TABLE elsewhere RENAME TO block");
    block("mallory").await;
    let eve = world.backends.ledger.blocks(&BlockFilter::default(), None, 10).await.unwrap().pop().unwrap();
    world.backends.ledger.lift_block(eve.id, "a mistake", "ada").await.unwrap().unwrap();
    world.clock.advance(Duration::from_secs(6));
    doorman.step().await.unwrap();
    accepted(world.buy("eve").await);
    assert_eq!(world.buy("mallory").await, refused);

    // A ledger that was set back to an earlier day has no such block.
    spoil(&world, "DELETE FROM block; UPDATE block_state SET changed = 0, standing = 0");
    world.clock.advance(Duration::from_secs(6));
    doorman.step().await.unwrap();
    accepted(world.buy("mallory").await);
    world.finish().await;
}
