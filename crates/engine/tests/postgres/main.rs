//! The ledger in PostgreSQL, on a real server: its promises, and what only a server can do to it.
#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod concurrency;
mod differential;
mod events;
mod faults;
mod link;
mod plans;
#[path = "../simulation/random.rs"]
mod random;
mod schema;
#[path = "../services/mod.rs"]
mod services;
mod shop;
mod tls;

/// Every promise of the ledger's traits.
mod promises {
    use std::sync::Arc;
    use std::time::Duration;

    use doorbuster_engine::conformance;
    use doorbuster_engine::ledger::PostgresOptions;
    use doorbuster_engine::{event_promises, ledger_promises};

    use crate::shop::{Shop, options};

    fn bench(shop: &Shop) -> conformance::ledger::Bench {
        conformance::ledger::Bench { ledger: Arc::clone(&shop.ledger) as _, clock: Arc::clone(&shop.clock) }
    }

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let shop = Shop::open(stringify!($promise)).await;
                conformance::ledger::$promise(&bench(&shop)).await;
                shop.close().await;
            }
        )*};
    }

    macro_rules! event_tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let shop = Shop::open(stringify!($promise)).await;
                conformance::events::$promise(&bench(&shop)).await;
                shop.close().await;
            }
        )*};
    }

    /// Of a ledger that spreads its releases.
    #[tokio::test]
    async fn units_return_at_random_moments() {
        let spread = Duration::from_millis(800);
        let options = PostgresOptions { release_spread: spread, ..options("spread") };
        let shop = Shop::with(options).await;
        conformance::ledger::units_return_at_random_moments(&bench(&shop), spread).await;
        shop.close().await;
    }

    ledger_promises!(tests);
    event_promises!(event_tests);
}
