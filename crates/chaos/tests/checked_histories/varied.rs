//! Good histories by chance: whatever a sound sale does, in whatever order, nothing is found.

use doorbuster_chaos::OrderId;
use proptest::prelude::*;

use crate::made::{Fate, Made, Model};

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Happening {
    Click { user: u8, item: bool, units: bool, key: Option<u8>, fate: Fate },
    Cancel(u8),
    Pay { order: u8, in_time: bool, lost: bool },
    Refund(u8),
    Expire(u8),
    Look(u8),
    Record,
    Sweep,
    Release,
    Restock(bool),
    Rebuild,
    Advance(u32),
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        8 => Just(Fate::Answered),
        1 => Just(Fate::AnswerLost),
        1 => Just(Fate::RequestLost),
        1 => Just(Fate::NotAcknowledged),
        1 => Just(Fate::Busy),
        1 => Just(Fate::NotSent),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    let click = (0_u8..12, any::<bool>(), any::<bool>(), prop::option::of(0_u8..3), fate());
    prop_oneof![
        12 => click.prop_map(|(user, item, units, key, fate)| Happening::Click { user, item, units, key, fate }),
        2 => any::<u8>().prop_map(Happening::Cancel),
        3 => (any::<u8>(), prop::bool::weighted(0.8), any::<bool>())
            .prop_map(|(order, in_time, lost)| Happening::Pay { order, in_time, lost }),
        1 => any::<u8>().prop_map(Happening::Refund),
        2 => any::<u8>().prop_map(Happening::Expire),
        1 => any::<u8>().prop_map(Happening::Look),
        4 => Just(Happening::Record),
        1 => Just(Happening::Sweep),
        3 => Just(Happening::Release),
        1 => any::<bool>().prop_map(Happening::Restock),
        1 => Just(Happening::Rebuild),
        2 => (0_u32..400_000).prop_map(Happening::Advance),
    ]
}

/// Orders that a 202 named, with their users: what buyers can do something about.
fn told(model: &Model) -> Vec<(String, OrderId)> {
    let calls = &model.made.history.calls;
    let accepted = calls.iter().filter_map(|call| {
        let (_, answer) = call.answer()?;
        answer.order.filter(|_| answer.status == 202).map(|order| (call.user.clone(), order))
    });
    accepted.collect()
}

fn happen(model: &mut Model, limit: u64, happening: Happening) {
    let told = told(model);
    let chosen = |number: u8| told.get(usize::from(number) % told.len().max(1)).cloned();
    match happening {
        Happening::Click { user, item, units, key, fate } => {
            // Above a limit of one the product demands a key.
            let key = key.or((limit > 1).then_some(9)).map(|key| format!("key-{key}"));
            let units = if units { limit } else { 1 };
            model.click(&format!("user-{user}"), 1 + i64::from(item), units, key.as_deref(), fate);
        }
        Happening::Cancel(number) => {
            if let Some((user, order)) = chosen(number) {
                model.cancel(&user, order);
            }
        }
        Happening::Pay { order, in_time, lost } => {
            if let Some((user, order)) = chosen(order) {
                model.pay(&user, order, &format!("pay-{order}"), in_time, lost);
            }
        }
        Happening::Refund(number) => chosen(number).into_iter().for_each(|(_, order)| model.refund(order)),
        Happening::Expire(number) => chosen(number).into_iter().for_each(|(_, order)| model.expire(order)),
        Happening::Look(number) => {
            if let Some((user, order)) = chosen(number) {
                model.look(&user, order);
            }
        }
        Happening::Record => model.record(),
        Happening::Sweep => model.sweep(),
        Happening::Release => model.release(),
        Happening::Restock(item) => model.restock(1 + i64::from(item), 2),
        Happening::Rebuild => model.rebuild(),
        Happening::Advance(us) => model.advance(u64::from(us)),
    }
}

fn after(seed: u64, limit: u64, happenings: &[Happening], at_rest: bool) -> Made {
    let mut model = Model::open(seed, limit, &[5, 3]);
    for happening in happenings {
        happen(&mut model, limit, *happening);
    }
    if at_rest { model.sell_out() } else { model.made }
}

proptest! {
    #[test]
    fn no_good_history_is_blamed(
        seed in any::<u64>(),
        limit in 1_u64..4,
        happenings in prop::collection::vec(happening(), 0..120),
        at_rest in any::<bool>(),
    ) {
        let mut made = after(seed, limit, &happenings, at_rest);
        // A model's calls take 3 ms at most, and its answers of the stock no time.
        made.circumstances.slack = std::time::Duration::from_millis(10);
        prop_assert_eq!(made.check(), vec![]);
    }
}
