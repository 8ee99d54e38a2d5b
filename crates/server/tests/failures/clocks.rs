//! F26: wrong clocks of single processes of ours, told by a file each. Windows go by Redis' clock and deadlines
//! by PostgreSQL's, so that a wrong one opens, closes and expires nothing early; tokens alone are judged by
//! the clock of the gateway that reads them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use doorbuster_chaos::checker::Circumstances;
use doorbuster_loadtest::TokenSigner;
use doorbuster_wire::SaleDraft;

use crate::engines::Engines;
use crate::http;
use crate::scene::{SECRET, Scene, Set};
use crate::waiting::{lasting, until_async};

/// By how many seconds each process is wrong. The gateway that jumps is right at first.
const CLOCKS: &[(&str, i64)] =
    &[("gateway-2", 600), (JUMPING, 0), ("keeper-1", -600), ("recorder-1", 0), ("recorder-2", 3_600)];
const JUMPING: &str = "gateway-3";
/// How far its clock jumps, and a recorder's with it.
const JUMP_S: i64 = -3_600;

/// The second sale's window, from its making on.
const OPENS_IN: i64 = 7_000;
const OPEN_FOR: i64 = 5_000;

/// Time between two looks at every gateway.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How far a window's ends may be off: a look takes time, and so does a sale's state on its way.
const EARLY_MS: i64 = 50;
const LATE_MS: i64 = 2_000;

/// Longest wait for what the workers do.
const PATIENCE: Duration = Duration::from_secs(40);

pub(crate) async fn f26(engines: &mut Engines) -> Result<String> {
    let set = Set {
        gateways: 3,
        window_s: 6,
        units: 300,
        users: 300,
        clocks: CLOCKS,
        by_hand: &["clock-", "window-"],
        ..Set::default()
    };
    let mut scene = Scene::open(engines, set).await?;
    let crowd = scene.crowd(scene.plan()?);
    ensure!(crowd.reaches(|counts| counts.accepted >= 60).await, "the sale never began");
    let gateways = scene.gateways();
    tokens_go_by_the_gateways_clock(&scene, &gateways).await?;
    // Nobody is sent to the gateway whose clock jumps: it refuses everybody, whose tokens are of the future.
    scene.gateways.replace(gateways[..2].to_vec());
    for player in [JUMPING, "recorder-1"] {
        scene.set_clock(player, JUMP_S)?;
    }
    crowd.join().await;
    let window = window(&scene, &gateways).await?;
    let expired = nothing_expired_early(&scene).await?;
    scene.finish(Circumstances::default()).await?;
    scene
        .shows(
            &["stock_clock_difference_seconds", "orders_total expired"],
            &["the stock's clock, which decides"],
        )
        .await?;
    Ok(format!("{window}; {expired} orders expired, none before PostgreSQL's deadline"))
}

/// The machine's time, which is that of Redis and PostgreSQL.
fn now_ms() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// A token for a new user, made `made_s` seconds from now and good for five minutes.
fn token(user: &str, made_s: i64) -> Result<String> {
    let tokens = TokenSigner::with_defaults(SECRET.as_bytes())?;
    Ok(tokens.sign(user, u64::try_from(now_ms() / 1_000 + made_s)?, 300))
}

/// A token that is over by the gateway's clock is refused there and nowhere else; so is one from its future.
async fn tokens_go_by_the_gateways_clock(scene: &Scene<'_>, gateways: &[SocketAddr]) -> Result<()> {
    let item = scene.offer.items[0].to_string();
    let heard = async |gateway: usize, made_s: i64| -> Result<u16> {
        let token = token(&format!("clock-{gateway}-{made_s}"), made_s)?;
        let answer = http::buy(gateways[gateway], &item, &token).await;
        Ok(answer.context("the gateway is there")?.0)
    };
    ensure!(heard(0, 0).await? != 401, "a right clock refused a fresh token");
    ensure!(heard(1, 0).await? == 401, "a clock 10 min ahead took a token of 5 min");
    ensure!(heard(1, 600).await? != 401, "a clock 10 min ahead refused a token of its own time");
    ensure!(heard(0, 600).await? == 401, "a right clock took a token from the future");
    Ok(())
}

/// What one gateway said at a time: asked, answered, the status.
struct Look {
    gateway: usize,
    asked: i64,
    answered: i64,
    status: u16,
}

/// A second sale, that opens and closes by its window alone, while somebody looks at every gateway.
async fn window(scene: &Scene<'_>, gateways: &[SocketAddr]) -> Result<String> {
    let staff = scene.staff("keeper")?;
    let made = now_ms();
    let (opens, closes) = (made + OPENS_IN, made + OPENS_IN + OPEN_FOR);
    let text = |ms: i64| jiff::Timestamp::from_millisecond(ms).map(|at| at.to_string());
    let draft = SaleDraft {
        name: "By its window".to_owned(),
        opens_at: text(opens)?,
        closes_at: text(closes)?,
        payment_window_seconds: Some(600),
        max_units_per_user: Some(1),
        items: vec![scene.item(5_000)],
    };
    let sale = staff.create_sale(&draft).await?;
    ensure!(staff.preheat(&sale.sale_id).await?.ok, "the preheat read back something else");
    let item = sale.items[0].item_id.clone();
    let mut looks = Vec::new();
    let mut users = 0;
    while now_ms() < closes + LATE_MS {
        for (gateway, offset_s) in [(0, 0), (1, 600), (2, JUMP_S)] {
            users += 1;
            let token = token(&format!("window-{users}"), offset_s)?;
            let asked = now_ms();
            let answer = http::buy(gateways[gateway], &item, &token).await;
            let status = answer.context("the gateway is there")?.0;
            looks.push(Look { gateway, asked, answered: now_ms(), status });
        }
        lasting(LOOK_EVERY).await;
    }
    let mut told = Vec::new();
    for gateway in 0..gateways.len() {
        let taken: Vec<&Look> = looks.iter().filter(|it| it.gateway == gateway && it.status == 202).collect();
        let (first, last) = taken.first().zip(taken.last()).with_context(|| {
            let heard: Vec<u16> =
                looks.iter().filter(|it| it.gateway == gateway).map(|it| it.status).collect();
            format!("gateway {} never sold: {heard:?}", gateway + 1)
        })?;
        ensure!(first.answered >= opens - EARLY_MS, "gateway {} sold early", gateway + 1);
        ensure!(first.answered <= opens + LATE_MS, "gateway {} opened late", gateway + 1);
        ensure!(last.asked <= closes + EARLY_MS, "gateway {} sold after the end", gateway + 1);
        ensure!(last.asked >= closes - LATE_MS, "gateway {} closed early", gateway + 1);
        told.push(format!("{} to {} ms", first.answered - opens, last.answered - opens));
    }
    Ok(format!("the window of {OPEN_FOR} ms was open from {} after its begin", told.join(", ")))
}

/// Every order of the first sale is unpaid, and expires by PostgreSQL's clock.
async fn nothing_expired_early(scene: &Scene<'_>) -> Result<u64> {
    let expired = until_async(PATIENCE, async || {
        Ok(scene.number("SELECT count(*) FROM orders WHERE sale = 1 AND status = 'PENDING'").await? == 0)
    });
    ensure!(expired.await?, "orders are pending behind their deadline");
    let early = "SELECT count(*) FROM order_event e JOIN orders o ON o.id = e.ord \
                 WHERE e.to_status = 'EXPIRED' AND e.at < o.hold_until";
    ensure!(scene.number(early).await? == 0, "an order expired early");
    scene.number("SELECT count(*) FROM orders WHERE sale = 1 AND status = 'EXPIRED'").await
}
