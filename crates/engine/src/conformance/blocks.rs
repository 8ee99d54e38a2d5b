//! What a ledger promises of the list of those who are kept out; run with the others of
//! [`ledger_promises`](crate::ledger_promises).

use std::time::Duration;

use super::ledger::Bench;
use super::{sample, sound};
use crate::block::{Block, Blocked, Lifted, NewBlocks};
use crate::clock::Clock;
use crate::ledger::{BlockFilter, BlockOutcome};
use crate::order::SaleId;

/// More than any test adds.
const MANY: u64 = 1_000;

fn user(n: u64) -> Blocked {
    Blocked::User(sample::user(n))
}

fn network(text: &str) -> Blocked {
    Blocked::of("network", text).expect("the test writes it well")
}

impl Bench {
    async fn block(&self, blocked: &[Blocked], sale: Option<i64>, most: u64) -> BlockOutcome {
        let new = NewBlocks {
            blocked: blocked.to_vec(),
            sale: sale.map(SaleId),
            reason: "'; DROP TABLE block; --".to_owned(),
            by: "ada".to_owned(),
        };
        self.clock.advance(Duration::from_secs(1));
        sound(self.ledger.block(&new, most).await)
    }

    /// Whom the standing blocks are of, newest first.
    async fn standing(&self) -> Vec<(Blocked, Option<SaleId>)> {
        let blocks = sound(self.ledger.blocks(&BlockFilter::default(), None, 100).await);
        blocks.into_iter().map(|it| (it.blocked, it.sale)).collect()
    }

    /// What happened behind a number, read in pages of this size: whose block, and whether it stands.
    async fn changes(&self, mut seen: i64, page: usize) -> (Vec<(Blocked, bool)>, i64) {
        let mut all = Vec::new();
        loop {
            let read = sound(self.ledger.block_changes(seen, page).await);
            let whole = read.changes.len() < page;
            for change in read.changes {
                assert!(change.number > seen, "{change:?} behind {seen}");
                seen = change.number;
                all.push((change.blocked, change.stands));
            }
            if whole {
                assert!(read.newest >= seen);
                return (all, read.newest);
            }
        }
    }
}

/// Promise 23.
pub async fn a_block_stands_until_it_is_lifted(bench: &Bench) {
    bench.sale(2, 1).await;
    assert_eq!(bench.changes(0, 10).await, (vec![], 0));
    let datacentre = network("192.0.2.0/24");
    let first = [user(1), datacentre.clone(), user(2)];
    assert_eq!(bench.block(&first, None, MANY).await, BlockOutcome::Stand { added: 3 });
    let at = bench.clock.now();
    // The same of one sale is another block; who is blocked already stays so by the first.
    assert_eq!(bench.block(&[user(1), user(1)], Some(1), MANY).await, BlockOutcome::Stand { added: 1 });
    assert_eq!(bench.block(&[user(2), user(3)], None, MANY).await, BlockOutcome::Stand { added: 1 });
    assert_eq!(bench.block(&[user(9)], Some(99), MANY).await, BlockOutcome::NoSale);
    let (one, all) = (Some(SaleId(1)), None);
    let standing =
        [(user(3), all), (user(1), one), (user(2), all), (datacentre.clone(), all), (user(1), all)];
    assert_eq!(bench.standing().await, standing);
    let (told, seen) = bench.changes(0, 2).await;
    let told: Vec<Blocked> = told.into_iter().filter(|(_, stands)| *stands).map(|(it, _)| it).collect();
    assert_eq!(told, [user(1), datacentre.clone(), user(2), user(1), user(3)]);
    assert_eq!(bench.changes(seen, 2).await, (vec![], seen));

    let of = |value: &str, lifted| BlockFilter { lifted, value: Some(value.to_owned()) };
    let found = sound(bench.ledger.blocks(&of("192.0.2.0/24", false), None, 10).await);
    let [block] = found.as_slice() else { panic!("{found:?}") };
    let (reason, by) = ("'; DROP TABLE block; --".to_owned(), "ada".to_owned());
    let expected =
        Block { id: block.id, blocked: datacentre.clone(), sale: None, reason, by, at, lifted: None };
    assert_eq!(*block, expected);
    bench.clock.advance(Duration::from_secs(1));
    let ended = Lifted { reason: "a customer".to_owned(), by: "bob".to_owned(), at: bench.clock.now() };
    let lifted = Block { lifted: Some(ended), ..expected };
    assert_eq!(sound(bench.ledger.lift_block(block.id, "a customer", "bob").await), Some(lifted.clone()));
    bench.clock.advance(Duration::from_secs(1));
    let again = bench.ledger.lift_block(block.id, "once more", "eve").await;
    assert_eq!(sound(again), Some(lifted.clone()), "it ends once");
    assert_eq!(sound(bench.ledger.lift_block(9_999, "none", "eve").await), None);
    assert_eq!(bench.standing().await.len(), 4);
    assert_eq!(sound(bench.ledger.blocks(&of("192.0.2.0/24", false), None, 10).await), []);
    assert_eq!(sound(bench.ledger.blocks(&of("192.0.2.0/24", true), None, 10).await), [lifted]);
    let (told, now) = bench.changes(seen, 2).await;
    assert_eq!(told, [(datacentre.clone(), false)]);
    // Whoever reads from the start is not told of what is over.
    let (told, newest) = bench.changes(0, 10).await;
    assert!(newest == now && told.iter().all(|(it, stands)| *stands && *it != datacentre), "{told:?}");

    // It can be blocked anew, by another block.
    assert_eq!(
        bench.block(std::slice::from_ref(&datacentre), None, MANY).await,
        BlockOutcome::Stand { added: 1 }
    );
    assert_eq!(bench.changes(now, 2).await.0, [(datacentre.clone(), true)]);
    assert_eq!(sound(bench.ledger.blocks(&of("192.0.2.0/24", true), None, 10).await).len(), 2);
    let everything = BlockFilter { lifted: true, value: None };
    let page = sound(bench.ledger.blocks(&everything, None, 4).await);
    assert!(page.is_sorted_by(|a, b| a.id > b.id), "newest first: {page:?}");
    let rest = sound(bench.ledger.blocks(&everything, Some(page[3].id), 4).await);
    assert_eq!(rest.len(), 2);
    assert!(rest.iter().all(|it| it.id < page[3].id));
}

/// Promise 23, for how many stand.
pub async fn blocks_are_added_all_or_none(bench: &Bench) {
    assert_eq!(bench.block(&[user(1), user(2)], None, 3).await, BlockOutcome::Stand { added: 2 });
    assert_eq!(bench.block(&[user(3), user(4)], None, 3).await, BlockOutcome::Full { standing: 2 });
    assert_eq!(bench.standing().await.len(), 2);
    assert_eq!(bench.block(&[user(3)], None, 3).await, BlockOutcome::Stand { added: 1 });
    assert_eq!(bench.block(&[user(4)], None, 3).await, BlockOutcome::Full { standing: 3 });
    let one = sound(bench.ledger.blocks(&BlockFilter::default(), None, 1).await);
    sound(bench.ledger.lift_block(one[0].id, "room", "ada").await);
    sound(bench.ledger.lift_block(one[0].id, "room", "ada").await);
    assert_eq!(bench.block(&[user(4), user(5)], None, 3).await, BlockOutcome::Full { standing: 2 });
    assert_eq!(bench.block(&[user(4)], None, 3).await, BlockOutcome::Stand { added: 1 });
}
