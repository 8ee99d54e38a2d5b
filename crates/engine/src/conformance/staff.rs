//! What a ledger promises of switches and of the staff's trail; run with the others of
//! [`ledger_promises`](crate::ledger_promises).

use std::time::Duration;

use super::ledger::Bench;
use super::sound;
use crate::clock::Clock;
use crate::ledger::StaffAction;
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

/// Promise 21.
pub async fn an_action_is_in_the_trail_before_it_has_ended(bench: &Bench) {
    let action = |n: u32| StaffAction {
        by: "ada".to_owned(),
        role: "operator".to_owned(),
        method: "POST".to_owned(),
        path: format!("/admin/api/sales/{n}/pause"),
        body: "{\"reason\":\"'; DROP TABLE switch; --\"}".to_owned(),
        request: format!("request-{n}"),
    };
    let mut ids = Vec::new();
    for n in 1..=3 {
        bench.clock.advance(Duration::from_secs(1));
        ids.push(sound(bench.ledger.begin_action(&action(n)).await));
    }
    assert!(ids.is_sorted());
    sound(bench.ledger.end_action(ids[1], 409).await);
    let trail = sound(bench.ledger.trail(None, 2).await);
    let seen: Vec<_> = trail.iter().map(|it| (it.id, it.action.clone(), it.status)).collect();
    assert_eq!(seen, [(ids[2], action(3), None), (ids[1], action(2), Some(409))]);
    assert_eq!(trail[0].at, bench.clock.now());
    let rest = sound(bench.ledger.trail(Some(ids[1]), 2).await);
    assert_eq!(rest.iter().map(|it| it.id).collect::<Vec<_>>(), [ids[0]]);
}
