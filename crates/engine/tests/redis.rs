//! The stock in a real Redis.

mod services;

use std::sync::Arc;

use doorbuster_engine::clock::ManualClock;
use doorbuster_engine::conformance::stock::{self, Bench};
use doorbuster_engine::stock::{RedisClock, RedisOptions, RedisStock};
use doorbuster_engine::stock_promises;

fn options(clock: &Arc<ManualClock>) -> RedisOptions {
    RedisOptions {
        prefix: services::own_name("test"),
        clock: RedisClock::Given(Arc::clone(clock) as _),
        ..RedisOptions::new(services::address_of("REDIS"))
    }
}

mod promises {
    use super::*;

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                let clock = Bench::clock();
                let redis = RedisStock::connect(options(&clock)).await.unwrap();
                stock::$promise(&Bench { stock: Arc::new(redis), clock }).await;
            }
        )*};
    }

    stock_promises!(tests);
}

mod room_promises {
    use super::*;
    use doorbuster_engine::conformance::room::{self, Bench, RULES};
    use doorbuster_engine::room::{RedisRoom, Room};

    macro_rules! tests {
        ($($promise:ident),* $(,)?) => {$(
            #[tokio::test]
            async fn $promise() {
                // Under another prefix nothing is known.
                let forget = Box::new(|| -> Arc<dyn Room> {
                    Arc::new(RedisRoom::new(&options(&doorbuster_engine::conformance::stock::Bench::clock()), RULES).unwrap())
                });
                room::$promise(&Bench { room: forget(), forget }).await;
            }
        )*};
    }

    doorbuster_engine::room_promises!(tests);
}
