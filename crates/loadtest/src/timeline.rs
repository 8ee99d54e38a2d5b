//! Answers over time: one row of counters per status code, in a fixed number of buckets.
//!
//! A storm may last two seconds or an hour, and neither its length nor the codes are known before.
//! So the buckets begin at 10 ms and double whenever the last one is passed: counting is one search
//! in a short list, one division and one addition, and the memory has a bound.

use std::time::Duration;

/// Buckets of one row, 4 bytes each: 5 s of 10 ms, 10 s of 20 ms, an hour of about 10 s.
const BUCKETS: usize = 512;
const FINEST_US: u64 = 10_000;
/// Most rows; answers with yet another status are counted under [`OTHER_STATUS`].
const MAX_ROWS: usize = 16;
/// The status of answers beyond the bound; no server can send it.
const OTHER_STATUS: u16 = 0;

/// How many answers came when, by status code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    bucket_us: u64,
    rows: Vec<(u16, Vec<u32>)>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { bucket_us: FINEST_US, rows: Vec::new() }
    }
}

impl Timeline {
    /// Counts one answer. Only the first one of a status allocates.
    pub(crate) fn count(&mut self, status: u16, at_us: u64) {
        let bucket = self.bucket_at(at_us);
        let row = self.row(status);
        row[bucket] = row[bucket].saturating_add(1);
    }

    /// Adds another thread's counts of the same storm.
    pub(crate) fn add(&mut self, other: &Timeline) {
        while self.bucket_us < other.bucket_us {
            self.fold();
        }
        for (status, counts) in &other.rows {
            for (place, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
                let bucket = self.bucket_at(place as u64 * other.bucket_us);
                let row = self.row(*status);
                row[bucket] = row[bucket].saturating_add(*count);
            }
        }
    }

    /// How long one bucket is.
    pub fn bucket(&self) -> Duration {
        Duration::from_micros(self.bucket_us)
    }

    /// The status codes that came, in ascending order; 0 stands for one too many.
    pub fn statuses(&self) -> Vec<u16> {
        let mut statuses: Vec<_> = self.rows.iter().map(|(status, _)| *status).collect();
        statuses.sort_unstable();
        statuses
    }

    /// The counts of one status by bucket, from the first possible click to the last answer.
    pub fn counts(&self, status: u16) -> &[u32] {
        let row = self.rows.iter().find(|(code, _)| *code == status);
        row.map_or(&[], |(_, counts)| &counts[..self.len()])
    }

    /// How many buckets there are up to the last answer.
    pub fn len(&self) -> usize {
        let last = |(_, counts): &(u16, Vec<u32>)| counts.iter().rposition(|count| *count > 0);
        self.rows.iter().filter_map(last).max().map_or(0, |last| last + 1)
    }

    /// Whether nothing was answered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bucket_at(&mut self, at_us: u64) -> usize {
        while at_us / self.bucket_us >= BUCKETS as u64 {
            self.fold();
        }
        usize::try_from(at_us / self.bucket_us).unwrap_or(BUCKETS - 1)
    }

    fn row(&mut self, status: u16) -> &mut [u32] {
        let is_full = self.rows.len() >= MAX_ROWS;
        let known = |wanted: u16| self.rows.iter().position(|(code, _)| *code == wanted);
        let place = known(status).or_else(|| if is_full { known(OTHER_STATUS) } else { None });
        let place = place.unwrap_or_else(|| {
            self.rows.push((if is_full { OTHER_STATUS } else { status }, vec![0; BUCKETS]));
            self.rows.len() - 1
        });
        &mut self.rows[place].1
    }

    /// Doubles the length of the buckets.
    fn fold(&mut self) {
        self.bucket_us *= 2;
        for (_, counts) in &mut self.rows {
            for place in 0..BUCKETS / 2 {
                counts[place] = counts[2 * place].saturating_add(counts[2 * place + 1]);
            }
            counts[BUCKETS / 2..].fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Timeline;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn answers_stay_at_their_time_while_the_buckets_grow() {
        let mut timeline = Timeline::default();
        timeline.count(202, 0);
        timeline.count(202, SECOND);
        timeline.count(410, SECOND + 9_999);
        assert_eq!((timeline.bucket().as_millis(), timeline.len()), (10, 101));
        assert_eq!((timeline.counts(202)[100], timeline.counts(410)[100]), (1, 1));

        timeline.count(410, 6 * SECOND);
        assert_eq!((timeline.bucket().as_millis(), timeline.len()), (20, 301));
        assert_eq!(
            (timeline.counts(202)[50], timeline.counts(410)[50], timeline.counts(410)[300]),
            (1, 1, 1)
        );

        timeline.count(503, 3_600 * SECOND);
        assert!(timeline.len() <= 512, "{}", timeline.len());
        let all: u32 = [202, 410, 503].iter().flat_map(|status| timeline.counts(*status)).sum();
        assert_eq!(all, 5);
        assert_eq!(timeline.statuses(), [202, 410, 503]);
    }

    #[test]
    fn threads_with_different_buckets_are_added() {
        let (mut fine, mut coarse) = (Timeline::default(), Timeline::default());
        fine.count(202, 3 * SECOND);
        coarse.count(202, 3 * SECOND);
        coarse.count(410, 9 * SECOND);
        let mut one = fine.clone();
        one.add(&coarse);
        coarse.add(&fine);
        assert_eq!(one, coarse);
        assert_eq!((one.bucket().as_millis(), one.counts(202)[150], one.counts(410)[450]), (20, 2, 1));
        assert!(Timeline::default().is_empty() && one.counts(500).is_empty());
    }

    #[test]
    fn number_of_rows_is_bounded() {
        let mut timeline = Timeline::default();
        for status in 200..400 {
            timeline.count(status, 0);
        }
        assert_eq!(timeline.statuses().len(), 17);
        assert_eq!(timeline.counts(0), [184]);
    }
}
