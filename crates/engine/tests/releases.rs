//! Units of closed orders go back, whatever becomes of other sales' stocks.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::engine::PurchaseOutcome;
use doorbuster_engine::order::{ItemId, SaleId};
use doorbuster_engine::stock::BucketId;
use doorbuster_engine::workers::{Expirer, Releaser, Step, Worker};
use futures_util::future::join_all;
use support::{FIRST, SALE, WINDOW, World, accepted, attempt};

/// More than one step of the releaser handles.
const MANY: u64 = 1_100;

const OTHER: SaleId = SaleId(2);

async fn buy(world: &World, item: ItemId, user: &str) -> PurchaseOutcome {
    let token = world.token(user);
    world.engine.purchase(doorbuster_engine::gate::Attempt { item, ..attempt(&token, None, 1) }).await
}

async fn free(world: &World, sale: SaleId) -> u64 {
    let bucket = BucketId { sale, epoch: FIRST };
    world.backends.stock.level(bucket).await.unwrap().unwrap().items[0].free
}

/// One sale for each number of units, numbered from 1, sold out by as many users whose orders expire:
/// all of it is to be released.
async fn expired(sales: &[u64]) -> World {
    let world = World::new().await;
    for (item, units) in (1..).zip(sales) {
        world.sale(*units, 1).await;
        let users: Vec<String> = (0..*units).map(|n| format!("user-{n}")).collect();
        for outcome in join_all(users.iter().map(|user| buy(&world, ItemId(item), user))).await {
            accepted(outcome);
        }
    }
    world.work().await;
    world.clock.advance(WINDOW + Duration::from_secs(1));
    let mut expirer = Expirer::new(world.backends.clone());
    while matches!(expirer.step().await.unwrap(), Step::Worked(_)) {}
    assert_eq!(expirer.step().await.unwrap(), Step::Idle, "the step before was the last");
    world
}

#[tokio::test]
async fn a_step_says_whether_there_may_be_more() {
    let world = expired(&[MANY]).await;
    let mut releaser = Releaser::new(world.backends.clone());
    assert_eq!(releaser.step().await.unwrap(), Step::Worked(500));
    assert_eq!(releaser.step().await.unwrap(), Step::Worked(500));
    assert_eq!(releaser.step().await.unwrap(), Step::Done(MANY - 1_000));
    assert_eq!(releaser.step().await.unwrap(), Step::Idle);
    world.finish().await;
}

#[tokio::test]
async fn a_stock_that_does_not_answer_holds_up_no_other_sales_units() {
    let world = expired(&[MANY, 5]).await;
    *world.stock.silent.lock().unwrap() = vec![SALE];
    let mut releaser = Releaser::new(world.backends.clone());
    for _ in 0..10 {
        releaser.step().await.unwrap();
    }
    assert_eq!((free(&world, SALE).await, free(&world, OTHER).await), (0, 5));

    // As long as it is silent it is asked less and less often, and nobody waits for it.
    let asked = Arc::clone(&world.stock.releases);
    let before = asked.load(std::sync::atomic::Ordering::SeqCst);
    for _ in 0..1_000 {
        releaser.step().await.unwrap();
        world.clock.advance(Duration::from_millis(10));
    }
    let asked = asked.load(std::sync::atomic::Ordering::SeqCst) - before;
    assert!((10..=15).contains(&asked), "{asked} calls in ten seconds");

    world.stock.silent.lock().unwrap().clear();
    world.clock.advance(Duration::from_secs(1));
    while releaser.step().await.unwrap() != Step::Idle {}
    assert_eq!(free(&world, SALE).await, MANY);
    world.finish().await;
}

#[tokio::test]
async fn stocks_that_take_longer_to_fail_than_they_are_set_aside_hold_up_no_other_sales_units() {
    let world = expired(&[MANY, MANY, 5]).await;
    *world.stock.silent.lock().unwrap() = vec![SALE, OTHER];
    let mut releaser = Releaser::new(world.backends.clone());
    for _ in 0..10 {
        releaser.step().await.unwrap();
        world.clock.advance(Duration::from_secs(2));
    }
    let third = free(&world, SaleId(3)).await;
    assert_eq!((free(&world, SALE).await, free(&world, OTHER).await, third), (0, 0, 5));

    world.stock.silent.lock().unwrap().clear();
    while releaser.step().await.unwrap() != Step::Idle {}
    assert_eq!((free(&world, SALE).await, free(&world, OTHER).await), (MANY, MANY));
    world.finish().await;
}
