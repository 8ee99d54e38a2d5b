//! `doorbuster demo`: everything on this machine, in one process.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use doorbuster_engine::clock::{Clock, SystemClock, Timestamp};
use doorbuster_engine::order::SaleId;
use doorbuster_loadtest::{AdminClient, Plan, Report, Shares, TokenSigner};
use doorbuster_wire::{ItemDraft, SaleDetail, SaleDraft, SetSwitch};

use super::output::{self, Output};
use super::rehearse::{self, balance_books, storm_with_progress, winners_live_on};
use super::report_file::ReportArgs;
use super::serve::stop_on_signal;
use super::shares::SharesArgs;
use super::{ConfigSource, Verdict};
use crate::admin;
use crate::app::App;
use crate::config::Config;
use crate::pages::Site;
use crate::telemetry;

/// What the winners do unless they are told otherwise: nine in ten pay in the end.
const SHARES: Shares = Shares {
    pay: 79,
    fail_then_pay: 5,
    pay_told_twice: 3,
    // The log warns of each, and nobody would see the demo for it.
    underpay_then_pay: 0,
    cancel: 3,
    cancel_then_buy: 3,
};
/// What the latecomers do, so that everything is sold in the end.
const ALL_PAY: Shares = Shares {
    pay: 100,
    fail_then_pay: 0,
    pay_told_twice: 0,
    underpay_then_pay: 0,
    cancel: 0,
    cancel_then_buy: 0,
};
/// Units of the sale for whoever opens the page afterwards, and their payment window in seconds.
const VISITORS_UNITS: u64 = 25;
const VISITORS_WINDOW: u64 = 120;

/// A whole flash sale on this machine: server, sale, storm, payments, balance, audit.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  doorbuster demo\n  doorbuster demo --exit --output json --users 20000 --units 500\n  doorbuster demo --exit --pay 50 --cancel 20 --abandon 30\n  doorbuster demo --exit --report demo.html --assert '202.p99<1s'\n\nExit code 3 when something was oversold, lost or sold twice, money or units are not where the clients'\nlists say, or the audit found something; 99 when only an assert does not hold."
)]
pub(crate) struct DemoArgs {
    /// Distinct users who click
    #[arg(long, default_value_t = 500_000, value_parser = clap::value_parser!(u64).range(10..=5_000_000))]
    users: u64,
    /// Units for sale
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    units: u64,
    /// Decides every click and who pays
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    shares: SharesArgs,
    /// End after the report instead of staying up
    #[arg(long)]
    exit: bool,
    #[command(flatten)]
    report: ReportArgs,
    /// How to print the report
    #[arg(long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) async fn run(args: DemoArgs) -> anyhow::Result<Verdict> {
    let shares = args.shares.shares()?.unwrap_or(SHARES);
    args.report.check()?;
    let folder =
        tempfile::Builder::new().prefix("doorbuster-demo-").tempdir().context("no temporary directory")?;
    let secret = secret();
    let config = config(folder.path(), &secret)?;
    telemetry::start(&config.log);
    let signer = TokenSigner::with_defaults(secret.as_bytes())?;
    let site = Site { demo_tokens: Some(signer.clone()), ..Site::default() };
    let clock = Arc::new(SystemClock::new());
    let app = App::start(&config, Arc::clone(&clock) as Arc<dyn Clock>, site).await?;
    let admin = AdminClient::new(
        &format!("http://{}", app.admin_address),
        &admin::first_token(&app.admin_token_file)?,
    )?;

    let sale = open_sale(&admin, &storm_sale(&args, clock.now())).await?;
    app.site().show_sale(&sale.sale_id);
    let mut report = storm_and_balance(&args, shares, &app, &admin, &sale, signer).await?;
    args.report.judge(&mut report);
    rehearse::print(args.output, &report)?;
    args.report.write(&report)?;
    let verdict = Verdict::of_report(&report);
    if args.exit {
        app.stop().await;
        return Ok(verdict);
    }
    let visitors = open_sale(&admin, &visitors(clock.now())).await?;
    invite(&app, &visitors, folder.path());
    stop_on_signal(app).await?;
    Ok(verdict)
}

fn secret() -> String {
    format!("{:032x}{:032x}", rand::random::<u128>(), rand::random::<u128>())
}

/// Quiet, in a folder of its own, on the usual ports where they are free.
fn config(folder: &std::path::Path, secret: &str) -> anyhow::Result<Config> {
    let port = |wanted: u16| {
        let free = TcpListener::bind(("127.0.0.1", wanted)).is_ok();
        SocketAddr::from(([127, 0, 0, 1], if free { wanted } else { 0 })).to_string()
    };
    let flags = [
        ("server.listen", port(8080)),
        ("admin.listen", port(8081)),
        ("data.dir", folder.join("data").display().to_string()),
        ("gate.jwt.secret", secret.to_owned()),
        ("gate.sale_tokens.secret", self::secret()),
        ("admin.token_file", String::new()),
        // Its addresses are printed for a browser on this machine, which would not trust a certificate for a name.
        ("server.tls.certificate_file", String::new()),
        ("server.tls.key_file", String::new()),
        ("admin.tls.certificate_file", String::new()),
        ("admin.tls.key_file", String::new()),
        ("log.level", "warn".to_owned()),
        ("payments.provider", "sandbox".to_owned()),
    ];
    ConfigSource::default().read(&flags.map(|(key, value)| (key.to_owned(), value)))
}

/// In seconds. The winners pay once the storm is over, which on a slow machine lasts for a minute: a shorter
/// window would sell the same units again and again while it rages.
fn payment_window(args: &DemoArgs) -> u64 {
    60 + args.users / 5_000
}

fn storm_sale(args: &DemoArgs, now: Timestamp) -> SaleDraft {
    draft("Doorbuster demo", args.units, payment_window(args), now)
}

/// A sale for whoever opens the page afterwards: time enough to pay by hand, short enough to wait for
/// what comes back.
fn visitors(now: Timestamp) -> SaleDraft {
    draft("Doorbuster demo, for you", VISITORS_UNITS, VISITORS_WINDOW, now)
}

fn draft(name: &str, units: u64, window: u64, now: Timestamp) -> SaleDraft {
    let item = ItemDraft {
        product_id: "DB-1".to_owned(),
        title: Some("Doorbuster headphones".to_owned()),
        quantity: units,
        price_minor: 1_990,
        list_price_minor: Some(9_900),
        currency: "EUR".to_owned(),
    };
    SaleDraft {
        name: name.to_owned(),
        opens_at: crate::views::time(now),
        closes_at: crate::views::time(now.plus(Duration::from_secs(24 * 3_600))),
        payment_window_seconds: Some(window),
        max_units_per_user: Some(1),
        items: vec![item],
    }
}

/// A sale that takes orders from those who have a sale token.
async fn open_sale(admin: &AdminClient, draft: &SaleDraft) -> anyhow::Result<SaleDetail> {
    let sale = admin.create_sale(draft).await.context("the sale could not be created")?;
    turn(admin, &sale.sale_id, "token_required", "on").await?;
    let report = admin.preheat(&sale.sale_id).await.context("the sale could not be preheated")?;
    anyhow::ensure!(report.ok, "the preheated stock differs from the ledger");
    admin.open(&sale.sale_id).await.context("the sale could not be opened")
}

async fn turn(admin: &AdminClient, sale: &str, name: &str, value: &str) -> anyhow::Result<()> {
    let (value, sale_id) = (Some(value.to_owned()), Some(sale.to_owned()));
    let asked = SetSwitch { value, sale_id, reason: "the demo has the gate on".to_owned() };
    admin.set_switch(name, &asked).await.with_context(|| format!("{name} could not be turned"))?;
    Ok(())
}

/// Has the latecomers wait for what comes back, and waits until the gateway knows.
async fn open_waiting_room(admin: &AdminClient, app: &App, sale: &str) -> anyhow::Result<()> {
    turn(admin, sale, "room", "on").await?;
    let sale: SaleId = sale.parse().context("the sale's id")?;
    let mut look = tokio::time::interval(Duration::from_millis(50));
    while !app.has_waiting_room(sale) {
        look.tick().await;
    }
    Ok(())
}

/// The storm; most winners pay; some cancel, and latecomers buy what comes back. Who never pays keeps the
/// unit until the window is over, which nobody waits for here.
async fn storm_and_balance(
    args: &DemoArgs,
    shares: Shares,
    app: &App,
    admin: &AdminClient,
    sale: &SaleDetail,
    signer: TokenSigner,
) -> anyhow::Result<Report> {
    let cancelled = args.units * u64::from(shares.cancel) / 100;
    let latecomers = (2 * cancelled).min(args.users / 4);
    let say = |text: String| {
        if args.output == Output::Table {
            output::say(&text)
        }
    };
    let plan = |first_user: u64, users: u64| {
        let mut plan =
            Plan::new(vec![format!("http://{}", app.public_address())], &sale.sale_id, users, signer.clone());
        (plan.first_user, plan.seed) = (first_user, args.seed.wrapping_add(first_user));
        plan
    };
    let first = plan(0, args.users - latecomers);
    say(format!(
        "{} users get their sale tokens, then click within 2 s for {} units …",
        first.users, args.units
    ));
    let mut seen = storm_with_progress(first.clone(), "the storm").await?;
    say(format!(
        "{} orders accepted in {:.1} s; their winners pay, fail, cancel, or never come back …",
        seen.accepted.len(),
        seen.wall.as_secs_f64()
    ));
    let mut lived = winners_live_on(admin, &first, shares, &mut seen).await?;
    say(format!(
        "done in {:.1} s; units that were cancelled come back; latecomers wait until they are let in, and take them …",
        lived.wall.as_secs_f64()
    ));
    if latecomers > 0 && wait_for_returns(admin, &sale.sale_id).await? > 0 {
        open_waiting_room(admin, app, &sale.sale_id).await?;
        let second = plan(args.users - latecomers, latecomers);
        let mut late = storm_with_progress(second.clone(), "latecomers").await?;
        lived.merge(winners_live_on(admin, &second, ALL_PAY, &mut late).await?);
        seen.merge(late);
    }
    balance_books(admin, &sale.sale_id, &seen, Some(&lived)).await
}

/// Longest wait for units to come back, which takes a second.
const RETURNS_MAX: Duration = Duration::from_secs(30);

/// Waits until every unit that nobody has is on sale; answers how many are.
async fn wait_for_returns(admin: &AdminClient, sale: &str) -> anyhow::Result<u64> {
    let mut look = tokio::time::interval(Duration::from_millis(100));
    let until = tokio::time::Instant::now() + RETURNS_MAX;
    loop {
        let detail = admin.sale(sale).await?;
        let free: u64 = detail.items.iter().filter_map(|item| item.free).sum();
        let open: u64 = detail.items.iter().map(|item| item.quantity.saturating_sub(item.sold)).sum();
        if free == open || tokio::time::Instant::now() > until {
            return Ok(free);
        }
        look.tick().await;
    }
}

fn invite(app: &App, sale: &SaleDetail, folder: &std::path::Path) {
    output::say(&format!(
        "\nStill up. Open http://{}/?sale={}\n\
         and buy one: pay for it in the sandbox, where no money moves, or let its two minutes pass and see it \
         back on sale.\nMore of them, from another terminal:\n  \
         doorbuster sale restock {} {} --units +5 --admin-url http://{} --admin-token-file {}\n\
         Everything is in {} and goes when you press Ctrl-C.",
        app.public_address(),
        sale.sale_id,
        sale.sale_id,
        sale.items.first().map_or("1", |item| item.item_id.as_str()),
        app.admin_address,
        app.admin_token_file.display(),
        folder.display(),
    ));
}
