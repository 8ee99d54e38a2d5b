//! Migrations and roles.

use std::time::Duration;

use doorbuster_engine::block::{Blocked, NewBlocks};
use doorbuster_engine::clock::Timestamp;
use doorbuster_engine::conformance::sample;
use doorbuster_engine::fault::Fault;
use doorbuster_engine::ledger::{
    ActionAnswer, ActionKey, Attempted, Attempts, BeginActionOutcome, BeginOutcome, BlockFilter,
    BlockOutcome, Blocks, EventType, Events, MigrationState, Orders, PayOutcome, PaymentEvent,
    PaymentEventKind, Payments, Positions, PostgresError, PostgresLedger, ProviderEvent, ReceiveOutcome,
    RefundReport, Releases, Restocks, Sales, Settlement, Staff, StaffAction, Then,
};
use doorbuster_engine::order::{Epoch, ItemId, SaleId};
use doorbuster_engine::sale::{LoaderToken, SaleState};
use doorbuster_engine::switches::SwitchChange;
use futures_util::future::join_all;

use crate::shop::{
    PATIENCE, Shop, WINDOW, batch_of, connect, options, options_by, payment_of, server_address, url_as,
};

#[tokio::test]
async fn an_empty_schema_is_refused_unless_migrations_may_run() {
    let mut options = options("empty");
    options.migrate = false;
    let refused = PostgresLedger::connect(&options).await.err();
    assert!(matches!(refused, Some(PostgresError::Behind { found: 0, known: 1.. })), "{refused:?}");
    let before = PostgresLedger::migrate_status(&options).await.unwrap();
    assert!(before.iter().all(|step| step.state == MigrationState::Missing));
    let after = PostgresLedger::migrate_up(&options).await.unwrap();
    assert!(after.iter().all(|step| matches!(step.state, MigrationState::Applied(_))), "{after:?}");
    let versions: Vec<u32> = after.iter().map(|step| step.version).collect();
    assert!((1..).zip(&versions).all(|(n, version)| n == *version), "{versions:?}");
    PostgresLedger::connect(&options).await.unwrap();
    assert_eq!(PostgresLedger::migrate_up(&options).await.unwrap(), after, "twice is once");
    drop_schema(&options.schema).await;
}

#[tokio::test]
async fn of_many_that_migrate_at_once_one_works() {
    let options = options("at_once");
    let ledgers = join_all((0..5).map(|_| PostgresLedger::connect(&options))).await;
    assert!(ledgers.iter().all(Result::is_ok), "{:?}", ledgers.iter().find_map(|it| it.as_ref().err()));
    drop_schema(&options.schema).await;
}

#[tokio::test]
async fn a_newer_schema_and_a_changed_step_are_refused() {
    let shop = Shop::open("newer").await;
    let newer = "INSERT INTO schema_version (version, name, checksum, at) VALUES (900, 'later', 'x', 0)";
    shop.sql.batch_execute(newer).await.unwrap();
    let error = PostgresLedger::connect(&shop.options).await.err().unwrap();
    assert!(matches!(error, PostgresError::Newer { found: 900, .. }), "{error}");
    assert!(error.to_string().contains("use the newer program"));
    assert!(matches!(PostgresLedger::migrate_up(&shop.options).await, Err(PostgresError::Newer { .. })));
    let changed = "DELETE FROM schema_version WHERE version = 900; UPDATE schema_version SET checksum = 'x' WHERE version = 1";
    shop.sql.batch_execute(changed).await.unwrap();
    let error = PostgresLedger::connect(&shop.options).await.err().unwrap();
    assert!(matches!(error, PostgresError::Changed { version: 1, .. }), "{error}");
    let status = PostgresLedger::migrate_status(&shop.options).await.unwrap();
    assert_eq!(status[0].state, MigrationState::Changed);
    shop.close().await;
}

#[tokio::test]
async fn a_schema_that_is_no_plain_name_is_refused() {
    for name in ["", "1a", "a;b", "A", "a\"", "a b", &"a".repeat(64)] {
        let mut options = options("x");
        options.schema = name.to_owned();
        let status = PostgresLedger::migrate_status(&options).await;
        assert!(matches!(status, Err(PostgresError::Schema(_))), "{name:?}");
    }
    // The longest name, and a word that SQL has for itself.
    for name in [crate::services::own_name(&"a".repeat(46)), "user".to_owned()] {
        let mut options = options("x");
        options.schema = name;
        assert!(PostgresLedger::migrate_status(&options).await.is_ok());
    }
}

/// A user with one role only, by a connection of its own.
struct Member {
    name: String,
    ledger: PostgresLedger,
}

impl Member {
    async fn of(shop: &Shop, role: &str) -> Self {
        let name = crate::services::own_name("member");
        let sql = format!("CREATE ROLE {name} LOGIN PASSWORD 'secret' IN ROLE {role}");
        shop.sql.batch_execute(&sql).await.unwrap();
        let mut options = options_by(&shop.options, url_as(&format!("{name}:secret"), &server_address()));
        options.migrate = false;
        let ledger = PostgresLedger::connect(&options).await.unwrap();
        Self { name, ledger }
    }

    async fn leave(self, shop: &Shop) {
        drop(self.ledger);
        shop.sql.batch_execute(&format!("DROP ROLE {}", self.name)).await.unwrap();
    }
}

/// Each role does its own work and is kept from the others'.
#[tokio::test]
async fn roles_can_do_their_work_and_no_more() {
    let shop = Shop::open("roles").await;
    for _ in 0..2 {
        PostgresLedger::create_roles(&shop.options).await.unwrap();
    }
    let gateway = Member::of(&shop, "doorbuster_gateway").await;
    let recorder = Member::of(&shop, "doorbuster_recorder").await;
    let keeper = Member::of(&shop, "doorbuster_keeper").await;
    shop.sale(100, 1).await;
    sell(&shop, &gateway.ledger, &recorder.ledger, &keeper.ledger).await;

    let mut due = sample::order_placed(6);
    due.reservation.epoch = Epoch(2);
    recorder.ledger.record(&batch_of(0, 5, [due])).await.unwrap();
    shop.clock.advance(WINDOW * 2);
    // Every process has a listener for the staff: all may write its book, and nobody may change what stands in it.
    for member in [&gateway, &recorder, &keeper] {
        let ledger = &member.ledger;
        let (name, reason, by) = ("user_rate".to_owned(), "a test".to_owned(), "ada".to_owned());
        let change = SwitchChange { name, sale: None, value: Some("1".to_owned()), reason, by };
        ledger.turn_switch(&change).await.unwrap().unwrap();
        assert_eq!(ledger.switches().await.unwrap().len(), 1);
        let text = String::new;
        let action = StaffAction {
            by: text(),
            role: text(),
            method: text(),
            path: text(),
            body: text(),
            request: text(),
            key: Some(ActionKey::new(&format!("key {}", member.name), "POST", "/", b"")),
        };
        let BeginActionOutcome::Begun(begun) = ledger.begin_action(&action).await.unwrap() else {
            panic!("a new key is not begun")
        };
        let answer = ActionAnswer { status: 200, body: Some("{}".to_owned()) };
        ledger.end_action(begun, &answer).await.unwrap();
        let again = ledger.begin_action(&action).await.unwrap();
        assert_eq!(again, BeginActionOutcome::Answered { status: 200, body: "{}".to_owned() });
        assert!(ledger.trail(None, 9).await.unwrap().iter().all(|entry| entry.status == Some(200)));
        ledger.struck(SaleId(1), 1).await.unwrap();
        let (reason, by) = ("a test".to_owned(), "ada".to_owned());
        let new = NewBlocks { blocked: vec![Blocked::User(sample::user(1))], sale: None, reason, by };
        assert_eq!(ledger.block(&new, 9).await.unwrap(), BlockOutcome::Stand { added: 1 });
        let standing = ledger.blocks(&BlockFilter::default(), None, 9).await.unwrap();
        assert!(ledger.lift_block(standing[0].id, "over", "ada").await.unwrap().unwrap().lifted.is_some());
        assert!(ledger.block_changes(0, 9).await.unwrap().changes.is_empty());
    }
    let may: Vec<bool> = shop
        .sql
        .query(
            "SELECT has_table_privilege(role::name, $1::text || '.' || name, privilege) FROM unnest(ARRAY['doorbuster_gateway', \
             'doorbuster_recorder', 'doorbuster_keeper']) role, unnest(ARRAY['switch', 'staff_action', 'block', 'block_state']) name, \
             unnest(ARRAY['UPDATE', 'DELETE', 'TRUNCATE']) privilege",
            &[&shop.options.schema],
        )
        .await
        .unwrap()
        .iter()
        .map(|row| row.get(0))
        .collect();
    assert_eq!(may, [false; 36]);
    let mut refusals = vec![
        ("a gateway records", gateway.ledger.record(&batch_of(0, 6, [sample::order_placed(9)])).await.err()),
        ("a gateway releases", gateway.ledger.releases_done(&[sample::order_id(1)]).await.err()),
        ("a recorder expires", recorder.ledger.expire(10, Duration::ZERO).await.err()),
        ("a recorder pays", recorder.ledger.pay(&payment_of(2, "x", "x")).await.err()),
        ("a keeper records", keeper.ledger.record(&batch_of(0, 6, [sample::order_placed(9)])).await.err()),
        ("a recorder refunds", recorder.ledger.refund_order(sample::order_id(2)).await.err()),
    ];
    let paused = recorder.ledger.change_state(SaleId(1), SaleState::Paused, None).await;
    refusals.push(("a recorder pauses", paused.err()));
    let planned = recorder.ledger.register_endpoint("other").await;
    refusals.push(("a recorder makes endpoints known", planned.err()));
    for (what, error) in refusals {
        let error = error.unwrap_or_else(|| panic!("{what}, and was let"));
        assert_eq!(error.fault, Fault::Transient, "{what}: {}", error.chain());
        assert!(error.chain().contains("42501"), "{what}: {}", error.chain());
    }
    for member in [gateway, recorder, keeper] {
        member.leave(&shop).await;
    }
    shop.close().await;
}

/// A payment is told twice and given back; an attempt is begun, asked about and closed.
async fn settle(gateway: &PostgresLedger, recorder: &PostgresLedger, keeper: &PostgresLedger) {
    recorder.record(&batch_of(0, 4, [sample::order_placed(7)])).await.unwrap();
    let begun = gateway.begin_attempt(sample::order_id(7), "test").await.unwrap();
    let BeginOutcome::Begun(attempt, _) = begun else { panic!("{begun:?}") };
    gateway.note_attempt(attempt.id, "session", "https://pay.example/").await.unwrap();
    gateway.cancel(sample::order_id(7), &sample::user(7), None).await.unwrap();
    gateway.pay(&payment_of(7, "e7", "p7")).await.unwrap();
    keeper.take_attempts("test", 10).await.unwrap();
    keeper.close_attempt(attempt.id).await.unwrap();
    keeper.pay(&payment_of(7, "e8", "p8")).await.unwrap();
    let refunds = keeper.take_refunds("test", 10, Duration::ZERO).await.unwrap();
    assert_eq!(refunds.len(), 2);
    let done = RefundReport::Done { reference: "re".to_owned() };
    keeper.note_refund(&refunds[0].key, &done).await.unwrap();
    gateway.note_refund(&refunds[1].key, &done).await.unwrap();
    assert!(keeper.late_payments(10).await.unwrap().is_empty());
}

async fn sell(shop: &Shop, gateway: &PostgresLedger, recorder: &PostgresLedger, keeper: &PostgresLedger) {
    keeper.register_endpoint("shop").await.unwrap();
    gateway.change_state(SaleId(1), SaleState::Open, None).await.unwrap();
    recorder.register(&[sample::position(0)]).await.unwrap();
    recorder.record(&batch_of(0, 0, (1..=4).map(sample::order_placed))).await.unwrap();
    gateway.cancel(sample::order_id(1), &sample::user(1), None).await.unwrap();
    gateway.pay(&payment_of(2, "e", "p")).await.unwrap();
    gateway.cancel(sample::order_id(5), &sample::user(5), Some(&sample::order_placed(5))).await.unwrap();
    let restock = uuid::Uuid::from_u128(1);
    gateway.begin_restock(restock, SaleId(1), ItemId(1), 5).await.unwrap();
    keeper.end_restock(restock, true).await.unwrap();
    settle(gateway, recorder, keeper).await;
    let paying = gateway.begin_attempt(sample::order_id(4), "test").await.unwrap();
    let BeginOutcome::Begun(attempt, _) = paying else { panic!("{paying:?}") };
    gateway.note_attempt(attempt.id, "session-4", "https://pay.example/").await.unwrap();
    shop.clock.advance(WINDOW + Duration::from_millis(1));
    // Behind the deadline, before the keeper looks: a gateway holds the order, whose amount is another.
    let cheap = PaymentEvent { amount_minor: 1, ..payment_of(4, "cheap", "p4") };
    let told = |kind, payment| ProviderEvent { attempt: attempt.id, kind, payment, refund: None };
    let held = gateway.receive(&told(PaymentEventKind::Succeeded, cheap), Duration::from_secs(1)).await;
    assert_eq!(held.unwrap(), ReceiveOutcome::Decided(PayOutcome::AmountMismatch));
    gateway.receive(&told(PaymentEventKind::RefundFailed, payment_of(7, "f", "p7")), WINDOW).await.unwrap();
    shop.clock.advance(Duration::from_secs(2));
    assert_eq!(keeper.expire(10, Duration::ZERO).await.unwrap().closed, 2);
    let due: Vec<_> = keeper.releases_due(&[], 10).await.unwrap().iter().map(|row| row.order).collect();
    assert_eq!(due.len(), 5);
    keeper.releases_done(&due[1..]).await.unwrap();
    keeper.ensure_releases(&due).await.unwrap();
    tell(keeper, gateway).await;
    let token = LoaderToken(5);
    let epoch = Epoch(1);
    keeper.begin_rebuild(SaleId(1), epoch, "test", token, Duration::ZERO).await.unwrap();
    keeper.put_barriers(SaleId(1), token, &[sample::position(4)]).await.unwrap();
    keeper.load_snapshot(SaleId(1), token, None, 10).await.unwrap();
    assert!(keeper.finish_rebuild(SaleId(1), token).await.unwrap());
    shop.sound_books().await;
}

/// A keeper sends, and the staff at a gateway looks and replays.
async fn tell(keeper: &PostgresLedger, gateway: &PostgresLedger) {
    let claimed = async {
        loop {
            keeper.plan_deliveries("shop", &EventType::ALL, 100).await.unwrap();
            let due = keeper.claim_deliveries("shop", Duration::from_secs(60), 1).await.unwrap();
            if let Some(due) = due.into_iter().next() {
                return due;
            }
        }
    };
    let due = tokio::time::timeout(PATIENCE, claimed).await.unwrap();
    let taken = Attempted {
        id: due.id,
        attempt: due.attempt,
        then: Then::Delivered,
        status: Some(200),
        answer: String::new(),
    };
    keeper.note_deliveries(&[taken]).await.unwrap();
    assert!(gateway.delivery(due.id).await.unwrap().is_some());
    gateway.replay_delivery(due.id).await.unwrap();
    gateway.replay_dead("shop", 10).await.unwrap();
    keeper.forget_deliveries("shop", Timestamp::from_ms(0), 10).await.unwrap();
}

/// Whoever is a member of the migrating role can bring the schema up, also after its tables were
/// given to it.
#[tokio::test]
async fn the_migrating_role_owns_what_it_must_change() {
    let shop = Shop::open("migrating").await;
    PostgresLedger::create_roles(&shop.options).await.unwrap();
    let member = Member::of(&shop, "doorbuster_migrate").await;
    let sql = connect(&shop.options.schema).await;
    sql.batch_execute(&format!("SET ROLE {}", member.name)).await.unwrap();
    sql.batch_execute("ALTER TABLE sale ADD COLUMN later bigint; CREATE TABLE later (id bigint)")
        .await
        .unwrap();
    drop(sql);
    shop.sql.batch_execute("DROP TABLE later").await.unwrap();
    member.leave(&shop).await;
    shop.close().await;
}

async fn drop_schema(schema: &str) {
    connect(schema).await.batch_execute(&format!("DROP SCHEMA {schema} CASCADE")).await.unwrap();
}
