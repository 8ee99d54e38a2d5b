//! What a ledger promises of switches and of the staff's trail; run with the others of
//! [`ledger_promises`](crate::ledger_promises).

use std::time::Duration;

use futures_util::future::join_all;

use super::ledger::Bench;
use super::sound;
use crate::clock::Clock;
use crate::ledger::{ActionAnswer, ActionKey, BeginActionOutcome, StaffAction};
use crate::order::SaleId;
use crate::switches::{SwitchChange, TurnedSwitch};

impl Bench {
    /// Turns a switch for sale 1, or for all.
    async fn turn(&self, name: &str, sale: Option<i64>, value: Option<&str>) -> TurnedSwitch {
        let change = SwitchChange {
            name: name.to_owned(),
            sale: sale.map(SaleId),
            value: value.map(str::to_owned),
            reason: format!("{name}, a test"),
            by: "ada".to_owned(),
        };
        self.clock.advance(Duration::from_secs(1));
        let turned = sound(self.ledger.turn_switch(&change).await).expect("the sale is there");
        assert_eq!((&turned.change, turned.at), (&change, self.clock.now()));
        turned
    }
}

/// Promise 20.
pub async fn the_newest_turn_of_a_switch_stands(bench: &Bench) {
    bench.sale(2, 1).await;
    assert_eq!(sound(bench.ledger.switches().await), []);
    let all_on = bench.turn("b", None, Some("on")).await;
    let first = all_on.id;
    let one_on = bench.turn("b", Some(1), Some("on")).await;
    assert_eq!(sound(bench.ledger.switches().await), [all_on.clone(), one_on.clone()]);

    let one_off = bench.turn("b", Some(1), Some("off")).await;
    let other = bench.turn("a", None, Some("5s")).await;
    assert_eq!(sound(bench.ledger.switches().await), [other.clone(), all_on.clone(), one_off.clone()]);

    let back = bench.turn("b", None, None).await;
    assert_eq!(sound(bench.ledger.switches().await), [other.clone(), one_off.clone()]);

    let nowhere = SwitchChange { sale: Some(SaleId(99)), ..other.change.clone() };
    assert_eq!(sound(bench.ledger.turn_switch(&nowhere).await), None);
    let page = |before| bench.ledger.switch_history(before, 3);
    assert_eq!(sound(page(None).await), [back, other.clone(), one_off]);
    assert_eq!(sound(page(Some(other.id)).await).len(), 3);
    assert_eq!(sound(page(Some(one_on.id)).await), [all_on]);
    assert_eq!(sound(page(Some(first)).await), []);
}

/// An action on sale `n`, under a key if it has one.
fn action(n: u32, key: Option<ActionKey>) -> StaffAction {
    StaffAction {
        by: "ada".to_owned(),
        role: "operator".to_owned(),
        method: "POST".to_owned(),
        path: format!("/admin/api/sales/{n}/pause"),
        body: "{\"reason\":\"'; DROP TABLE switch; --\"}".to_owned(),
        request: format!("request-{n}"),
        key,
    }
}

fn begun(outcome: BeginActionOutcome) -> i64 {
    match outcome {
        BeginActionOutcome::Begun(id) => id,
        other => panic!("not begun: {other:?}"),
    }
}

/// Promise 21.
pub async fn an_action_is_in_the_trail_before_it_has_ended(bench: &Bench) {
    let mut ids = Vec::new();
    for n in 1..=3 {
        bench.clock.advance(Duration::from_secs(1));
        ids.push(begun(sound(bench.ledger.begin_action(&action(n, None)).await)));
    }
    assert!(ids.is_sorted());
    sound(bench.ledger.end_action(ids[1], &ActionAnswer { status: 409, body: None }).await);
    let trail = sound(bench.ledger.trail(None, 2).await);
    let seen: Vec<_> = trail.iter().map(|it| (it.id, it.action.clone(), it.status)).collect();
    assert_eq!(seen, [(ids[2], action(3, None), None), (ids[1], action(2, None), Some(409))]);
    assert_eq!(trail[0].at, bench.clock.now());
    let rest = sound(bench.ledger.trail(Some(ids[1]), 2).await);
    assert_eq!(rest.iter().map(|it| it.id).collect::<Vec<_>>(), [ids[0]]);
}

/// Promise 22.
pub async fn a_key_begins_one_action_once(bench: &Bench) {
    let key = |key: &str, body: &str| {
        Some(ActionKey::new(key, "POST", "/admin/api/sales/1/pause", body.as_bytes()))
    };
    let first = action(1, key("k", "a"));
    // However many come at once, one is begun; each is a try of its own.
    let tries: Vec<_> =
        (0..8).map(|n| StaffAction { request: format!("try-{n}"), ..first.clone() }).collect();
    let outcomes = join_all(tries.iter().map(|it| bench.ledger.begin_action(it))).await;
    let outcomes: Vec<_> = outcomes.into_iter().map(sound).collect();
    let ids: Vec<_> = outcomes
        .iter()
        .filter_map(|it| match it {
            BeginActionOutcome::Begun(id) => Some(*id),
            _ => None,
        })
        .collect();
    let &[id] = &ids[..] else { panic!("begun more or less than once: {outcomes:?}") };
    let winner = sound(bench.ledger.trail(None, 9).await);
    assert_eq!((winner.len(), &winner[0].action.key), (1, &first.key));
    let request = winner[0].action.request.clone();
    let under_way = BeginActionOutcome::Unanswered { request: request.clone(), status: None };
    for outcome in outcomes.iter().filter(|it| !matches!(it, BeginActionOutcome::Begun(_))) {
        assert_eq!(*outcome, under_way);
    }

    // Another request, and another member with the same key.
    let begin = async |it: StaffAction| sound(bench.ledger.begin_action(&it).await);
    assert_eq!(begin(action(1, key("k", "b"))).await, BeginActionOutcome::OtherRequest);
    begun(begin(StaffAction { by: "bob".to_owned(), ..first.clone() }).await);
    begun(begin(action(1, key("K", "a"))).await);
    begun(begin(action(1, None)).await);

    // Without an answer that may be given again nobody hears one; with one everybody does.
    sound(bench.ledger.end_action(id, &ActionAnswer { status: 503, body: None }).await);
    assert_eq!(begin(first.clone()).await, BeginActionOutcome::Unanswered { request, status: Some(503) });
    let body = "{\"said\":\"d\u{e9}j\u{e0}\"}".to_owned();
    sound(bench.ledger.end_action(id, &ActionAnswer { status: 201, body: Some(body.clone()) }).await);
    assert_eq!(begin(first).await, BeginActionOutcome::Answered { status: 201, body });
    assert_eq!(begin(action(1, key("k", "b"))).await, BeginActionOutcome::OtherRequest);
    assert_eq!(sound(bench.ledger.trail(None, 99).await).len(), 4, "what is not begun is in no trail");
}
