//! Latencies of one status code, at the percentiles that reports and asserts know.

use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies of one status code in milliseconds, from the intended moment of the click.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Latency {
    /// Half of the answers came within this.
    pub p50: f64,
    /// 90 % of the answers came within this.
    pub p90: f64,
    /// 95 % of the answers came within this.
    pub p95: f64,
    /// 99 % of the answers came within this.
    pub p99: f64,
    /// 99.9 % of the answers came within this.
    #[serde(rename = "p99.9")]
    pub p99_9: f64,
    /// 99.99 % of the answers came within this.
    #[serde(rename = "p99.99")]
    pub p99_99: f64,
    /// The slowest answer.
    pub max: f64,
}

/// One of the figures of a [`Latency`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Percentile {
    P50,
    P90,
    P95,
    P99,
    P99_9,
    P99_99,
    Max,
}

impl Percentile {
    /// From the lowest to the slowest answer.
    pub(crate) const ALL: [Self; 7] =
        [Self::P50, Self::P90, Self::P95, Self::P99, Self::P99_9, Self::P99_99, Self::Max];

    /// The name in JSON, asserts and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P95 => "p95",
            Self::P99 => "p99",
            Self::P99_9 => "p99.9",
            Self::P99_99 => "p99.99",
            Self::Max => "max",
        }
    }

    /// One answer in how many is slower; `None` for the slowest answer.
    pub(crate) fn one_in(self) -> Option<u32> {
        match self {
            Self::P50 => Some(2),
            Self::P90 => Some(10),
            Self::P95 => Some(20),
            Self::P99 => Some(100),
            Self::P99_9 => Some(1_000),
            Self::P99_99 => Some(10_000),
            Self::Max => None,
        }
    }

    /// Whether so many answers tell this figure from the slowest one.
    pub(crate) fn is_told_by(self, answers: u64) -> bool {
        self.one_in().is_none_or(|one_in| answers >= u64::from(one_in))
    }
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        // The value of a quantile is the upper edge of its bucket, which may lie above the maximum.
        let ms = |us: u64| us.min(histogram.max()) as f64 / 1_000.0;
        let at = |percentile: Percentile| match percentile.one_in() {
            Some(one_in) => ms(histogram.value_at_quantile(1.0 - 1.0 / f64::from(one_in))),
            None => ms(histogram.max()),
        };
        Self {
            p50: at(Percentile::P50),
            p90: at(Percentile::P90),
            p95: at(Percentile::P95),
            p99: at(Percentile::P99),
            p99_9: at(Percentile::P99_9),
            p99_99: at(Percentile::P99_99),
            max: at(Percentile::Max),
        }
    }

    pub(crate) fn at(&self, percentile: Percentile) -> f64 {
        match percentile {
            Percentile::P50 => self.p50,
            Percentile::P90 => self.p90,
            Percentile::P95 => self.p95,
            Percentile::P99 => self.p99,
            Percentile::P99_9 => self.p99_9,
            Percentile::P99_99 => self.p99_99,
            Percentile::Max => self.max,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Latency, Percentile};
    use crate::tally::new_histogram;

    #[test]
    fn percentiles_are_those_of_the_answers() {
        let mut histogram = new_histogram();
        for ms in 1..=10_000_u64 {
            histogram.saturating_record(ms * 1_000);
        }
        let latency = Latency::of(&histogram);
        for (percentile, ms) in [
            (Percentile::P50, 5_000.0),
            (Percentile::P90, 9_000.0),
            (Percentile::P99, 9_900.0),
            (Percentile::P99_9, 9_990.0),
            (Percentile::P99_99, 9_999.0),
            (Percentile::Max, 10_000.0),
        ] {
            let error = (latency.at(percentile) - ms).abs() / ms;
            assert!(error < 0.002, "{}: {}", percentile.name(), latency.at(percentile));
        }
        assert!(Percentile::P99_9.is_told_by(1_000) && !Percentile::P99_9.is_told_by(999));
    }
}
