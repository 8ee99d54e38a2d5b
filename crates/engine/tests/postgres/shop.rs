//! A ledger in a schema of its own, with a clock that tests move, and a second connection for what
//! a ledger does not do: looking into its tables, and harming it.

use std::sync::Arc;
use std::time::Duration;

use doorbuster_engine::audit;
use doorbuster_engine::clock::{Clock, ManualClock, Timestamp};
use doorbuster_engine::conformance::sample;
use doorbuster_engine::delivery::{Batch, Decoded, Delivered, Position};
use doorbuster_engine::ledger::{
    BookSnapshot, Books, Ledger, PaymentEvent, PostgresLedger, PostgresOptions, PostgresTls, PostgresUrl,
};
use doorbuster_engine::order::{OrderPlaced, Units};
use doorbuster_engine::sale::{LoaderToken, NewItem, NewSale, Sale};
use tokio_postgres::{Client, NoTls};

use crate::services;

/// The sample sale's payment window.
pub(crate) const WINDOW: Duration = Duration::from_secs(600);

/// Longest that a test waits for something to come about.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One test's ledger.
pub(crate) struct Shop {
    pub(crate) ledger: Arc<PostgresLedger>,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) options: PostgresOptions,
    /// Another connection, with the same schema.
    pub(crate) sql: Client,
}

/// A second connection to the tests' server.
#[expect(clippy::disallowed_methods, reason = "the client library's own connection task")]
pub(crate) async fn connect(schema: &str) -> Client {
    let (client, connection) =
        tokio_postgres::connect(&services::address_of("POSTGRES"), NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("SET search_path = {schema}")).await.unwrap();
    client
}

/// Options for a schema of this test's own.
pub(crate) fn options(test: &str) -> PostgresOptions {
    let mut options = PostgresOptions::new(PostgresUrl::new(services::address_of("POSTGRES")));
    let short: String = test.chars().take(40).collect();
    options.schema = services::own_name(&short);
    options
}

/// The same, by another way to the server.
pub(crate) fn options_by(options: &PostgresOptions, url: impl Into<String>) -> PostgresOptions {
    PostgresOptions { url: PostgresUrl::new(url), tls: PostgresTls::Disable, ..options.clone() }
}

/// The tests' server as it is named in a URL, with `user` (and a password, if any) and an address.
pub(crate) fn url_as(user: &str, host_and_port: &str) -> String {
    let config: tokio_postgres::Config = services::address_of("POSTGRES").parse().unwrap();
    format!("postgresql://{user}@{host_and_port}/{}", config.get_dbname().unwrap_or("postgres"))
}

/// Host and port of the tests' server.
pub(crate) fn server_address() -> String {
    let config: tokio_postgres::Config = services::address_of("POSTGRES").parse().unwrap();
    let tokio_postgres::config::Host::Tcp(host) = &config.get_hosts()[0] else { panic!("not a TCP server") };
    format!("{host}:{}", config.get_ports().first().unwrap_or(&5432))
}

/// Who the tests are at the server, with the password if there is one.
pub(crate) fn server_user() -> String {
    let config: tokio_postgres::Config = services::address_of("POSTGRES").parse().unwrap();
    let password = config.get_password().map(|it| format!(":{}", String::from_utf8_lossy(it)));
    format!("{}{}", config.get_user().unwrap(), password.unwrap_or_default())
}

impl Shop {
    pub(crate) async fn open(test: &str) -> Self {
        Self::with(options(test)).await
    }

    pub(crate) async fn with(mut options: PostgresOptions) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_800_000_000_000)));
        options.clock = Some(Arc::clone(&clock) as Arc<dyn Clock>);
        let ledger = Arc::new(PostgresLedger::connect(&options).await.unwrap());
        let sql = connect(&options.schema).await;
        Self { ledger, clock, options, sql }
    }

    /// The same around a ledger that is open; `sql` is another connection to its server.
    pub(crate) fn around(ledger: PostgresLedger, options: PostgresOptions, sql: Client) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_ms(1_800_000_000_000)));
        Self { ledger: Arc::new(ledger), clock, options, sql }
    }

    /// Takes the schema away again. A test that fails leaves it, to be looked at.
    pub(crate) async fn close(self) {
        drop(self.ledger);
        self.sql.batch_execute(&format!("DROP SCHEMA {} CASCADE", self.options.schema)).await.unwrap();
    }

    /// Sale 1, preheated, in epoch 1, with items 1 and 2.
    pub(crate) async fn sale(&self, quantity: u64, limit: u32) -> Sale {
        preheated_sale(self.ledger.as_ref(), &self.clock, quantity, limit).await
    }

    /// The books, in which every invariant holds.
    pub(crate) async fn sound_books(&self) -> BookSnapshot {
        let books = self.ledger.books().await.unwrap();
        assert_sound(&books);
        books
    }

    /// Waits until some transaction waits for a lock of `sql`'s open transaction; answers its
    /// backend's process id.
    pub(crate) async fn blocked_backend(&self) -> i32 {
        let looking = async {
            loop {
                let found = self
                    .sql
                    .query(
                        "SELECT pid FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))",
                        &[],
                    )
                    .await
                    .unwrap();
                match found.first() {
                    Some(row) => return row.get(0),
                    None => tokio::task::yield_now().await,
                }
            }
        };
        tokio::time::timeout(PATIENCE, looking).await.expect("somebody waits for the lock")
    }
}

pub(crate) fn assert_sound(books: &BookSnapshot) {
    let snapshot =
        audit::Snapshot { books: books.clone(), buckets: Vec::new(), ends: Vec::new(), at_rest: false };
    let report = audit::check(&snapshot);
    assert!(report.is_ok(), "{:?}", report.findings);
}

/// Sale 1 of an empty ledger, preheated, in epoch 1, with items 1 and 2.
pub(crate) async fn preheated_sale(
    ledger: &dyn Ledger,
    clock: &ManualClock,
    quantity: u64,
    limit: u32,
) -> Sale {
    let item = |product| NewItem { list_price_minor: Some(2990), ..sample::new_item(product, quantity) };
    let now = clock.now();
    let sale = NewSale {
        closes_at: now.plus(Duration::from_secs(7_200)),
        payment_window: WINDOW,
        limit: Units(limit),
        ..sample::new_sale(now, vec![item("A"), item("B")])
    };
    let sale = ledger.create_sale(&sale).await.unwrap();
    ledger.register(&[sample::position(0)]).await.unwrap();
    let token = LoaderToken(11);
    ledger.begin_rebuild(sale.id, sale.epoch, "test", token, Duration::ZERO).await.unwrap();
    assert!(ledger.finish_rebuild(sale.id, token).await.unwrap());
    ledger.sale(sale.id).await.unwrap().unwrap()
}

/// These records, as partition `partition` of the sample topic delivers them from `from` on.
pub(crate) fn batch_of(partition: u32, from: u64, orders: impl IntoIterator<Item = OrderPlaced>) -> Batch {
    let contents = orders.into_iter().map(|order| Decoded::Order(Box::new(order)));
    let records: Vec<Delivered> = contents
        .zip(from..)
        .map(|(contents, offset)| Delivered { offset, appended_at: Timestamp::from_ms(0), contents })
        .collect();
    let from = Position { partition, ..sample::position(from) };
    Batch { next: from.next + records.len() as u64, from, records }
}

/// A payment of order `n` in full.
pub(crate) fn payment_of(n: u64, event: &str, payment: &str) -> PaymentEvent {
    let price = sample::price();
    PaymentEvent {
        provider: "test".to_owned(),
        event_id: event.to_owned(),
        payment_id: payment.to_owned(),
        order: sample::order_id(n),
        amount_minor: price.minor,
        currency: price.currency,
    }
}
