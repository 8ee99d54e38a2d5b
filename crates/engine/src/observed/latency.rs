//! How long calls take: a histogram of plain atomics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets in microseconds, from half a millisecond to 2.5 s; 0.1 s, the aim for
/// an answer to a buyer, is one of them. A last bucket takes the rest.
pub const BOUNDS_US: [u64; 12] =
    [500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000];

/// A histogram.
#[derive(Debug, Default)]
pub struct Latency {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_us: AtomicU64,
}

/// A histogram's figures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// Calls per bucket, not added up; the last one is above every bound.
    pub buckets: [u64; BOUNDS_US.len() + 1],
    /// Time of all calls, in microseconds.
    pub sum_us: u64,
}

impl Latency {
    /// Notes one call; any thread may.
    pub fn note(&self, took: Duration) {
        let (bucket, us) = place(took);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// Notes one call where one thread alone ever notes: no locked instruction.
    pub fn note_alone(&self, took: Duration) {
        let (bucket, us) = place(took);
        let add = |to: &AtomicU64, count| to.store(to.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        add(&self.buckets[bucket], 1);
        add(&self.sum_us, us);
    }

    /// The figures so far. A call noted meanwhile may be in some and not yet in others.
    pub fn read(&self) -> Reading {
        let buckets = std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed));
        Reading { buckets, sum_us: self.sum_us.load(Ordering::Relaxed) }
    }
}

impl Reading {
    /// How many calls there were.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds another histogram's figures.
    pub fn add(&mut self, other: &Self) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(own, more)| *own += more);
        self.sum_us += other.sum_us;
    }
}

fn place(took: Duration) -> (usize, u64) {
    let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    (BOUNDS_US.partition_point(|bound| *bound < us), us)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_the_first_bucket_that_is_not_shorter() {
        for (us, bucket) in [(0, 0), (500, 0), (501, 1), (100_000, 7), (100_001, 8), (3_000_000, 12)] {
            let latency = Latency::default();
            latency.note(Duration::from_micros(us));
            latency.note_alone(Duration::from_micros(us));
            let reading = latency.read();
            assert_eq!((reading.buckets[bucket], reading.count(), reading.sum_us), (2, 2, 2 * us), "{us}");
        }
    }

    #[test]
    fn readings_add_up() {
        let latency = Latency::default();
        latency.note(Duration::from_millis(1));
        let mut sum = latency.read();
        sum.add(&latency.read());
        assert_eq!((sum.count(), sum.sum_us), (2, 2_000));
    }
}
