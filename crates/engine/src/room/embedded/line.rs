//! An order in which everybody's number is known at once: sorted pieces of bounded length. To know who stands
//! before somebody, the lengths of the pieces before his are added up, some thousand numbers for a million users.

use crate::order::UserId;
use crate::room::Rank;

/// Most in one piece; a longer one is cut in two.
const PIECE_MAX: usize = 1_024;

/// Everybody who waits, in order.
#[derive(Debug, Default)]
pub(super) struct Line {
    /// Sorted, each in itself and one after the other; none is empty.
    pieces: Vec<Vec<(Rank, UserId)>>,
    len: u64,
}

impl Line {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn first(&self) -> Option<&(Rank, UserId)> {
        self.pieces.first()?.first()
    }

    pub(super) fn insert(&mut self, rank: Rank, user: UserId) {
        let entry = (rank, user);
        let piece = self.piece_of(&entry).min(self.pieces.len().saturating_sub(1));
        if self.pieces.is_empty() {
            self.pieces.push(Vec::new());
        }
        let entries = &mut self.pieces[piece];
        let Err(at) = entries.binary_search(&entry) else { return };
        entries.insert(at, entry);
        self.len += 1;
        if entries.len() > PIECE_MAX {
            let rest = entries.split_off(PIECE_MAX / 2);
            self.pieces.insert(piece + 1, rest);
        }
    }

    pub(super) fn remove(&mut self, rank: Rank, user: &UserId) {
        let entry = (rank, user.clone());
        let piece = self.piece_of(&entry);
        let Some(entries) = self.pieces.get_mut(piece) else { return };
        let Ok(at) = entries.binary_search(&entry) else { return };
        entries.remove(at);
        self.len -= 1;
        if entries.is_empty() {
            self.pieces.remove(piece);
        }
    }

    /// How many stand before this place.
    pub(super) fn ahead_of(&self, rank: Rank, user: &UserId) -> u64 {
        let entry = (rank, user.clone());
        let piece = self.piece_of(&entry);
        let before: usize = self.pieces[..piece].iter().map(Vec::len).sum();
        let within = self.pieces.get(piece).map_or(0, |entries| entries.partition_point(|it| *it < entry));
        u64::try_from(before + within).unwrap_or(u64::MAX)
    }

    /// The first piece that does not end before this place.
    fn piece_of(&self, entry: &(Rank, UserId)) -> usize {
        self.pieces.partition_point(|entries| entries.last().is_some_and(|last| last < entry))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_sorted_set_that_knows_everybodys_number(
            steps in prop::collection::vec((0_u64..300, 0_u8..4), 1..4_000),
        ) {
            let (mut line, mut plain) = (Line::default(), BTreeSet::new());
            for (number, what) in steps {
                let entry = (Rank(number / 2), UserId::new(&format!("u{number}")).unwrap());
                if what == 0 {
                    line.remove(entry.0, &entry.1);
                    plain.remove(&entry);
                } else {
                    line.insert(entry.0, entry.1.clone());
                    plain.insert(entry.clone());
                }
                prop_assert_eq!(line.len(), plain.len() as u64);
                prop_assert_eq!(line.first(), plain.first());
                prop_assert_eq!(line.ahead_of(entry.0, &entry.1), plain.range(..&entry).count() as u64);
            }
        }
    }

    #[test]
    fn long_lines_are_cut_and_emptied() {
        let mut line = Line::default();
        let users: Vec<UserId> = (0..5_000).map(|it| UserId::new(&format!("u{it}")).unwrap()).collect();
        for (rank, user) in users.iter().enumerate().rev() {
            line.insert(Rank(rank as u64), user.clone());
        }
        assert!(line.pieces.iter().all(|piece| piece.len() <= PIECE_MAX) && line.pieces.len() > 4);
        for (rank, user) in users.iter().enumerate() {
            assert_eq!(line.ahead_of(Rank(rank as u64), user), rank as u64);
        }
        for (rank, user) in users.iter().enumerate() {
            assert_eq!(line.first(), Some(&(Rank(rank as u64), user.clone())));
            line.remove(Rank(rank as u64), user);
        }
        assert!(line.pieces.is_empty() && line.len() == 0);
    }
}
