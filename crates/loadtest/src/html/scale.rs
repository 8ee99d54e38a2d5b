//! Axes: where a value lies, and which round values stand beside it.

/// A linear axis from zero to a round value at or above the largest.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) top: f64,
    pub(super) ticks: Vec<f64>,
}

impl Linear {
    /// About `count` round steps up to `largest`; the axis ends with its last tick.
    pub(super) fn rounded(largest: f64, count: f64) -> Self {
        let step = round_step(largest.max(f64::MIN_POSITIVE) / count);
        let steps = (largest / step).ceil().max(1.0);
        Self { top: steps * step, ticks: ticks(step, steps) }
    }

    /// The same, but the axis ends with `largest` itself.
    pub(super) fn exact(largest: f64, count: f64) -> Self {
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = round_step(largest / count);
        Self { top: largest, ticks: ticks(step, (largest / step + 1e-9).floor()) }
    }

    /// The share of the axis below `value`, 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        (value / self.top).clamp(0.0, 1.0)
    }
}

fn ticks(step: f64, steps: f64) -> Vec<f64> {
    let mut ticks = vec![0.0];
    while (ticks.len() as f64) <= steps && ticks.len() < 20 {
        ticks.push(ticks.len() as f64 * step);
    }
    ticks
}

/// The smallest of 1, 2 or 5 times a power of ten that is not below `step`.
fn round_step(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    // 10^log10 may miss a power of ten by its last bit.
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999_999);
    factor.unwrap_or(10.0) * power
}

/// A logarithmic axis over whole decades, given by the powers of ten at its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decades {
    from: i8,
    to: i8,
}

impl Decades {
    /// Latencies in milliseconds, from 1 µs up to a day.
    const BOUNDS: (i8, i8) = (-3, 8);

    /// The decades that hold every value; one at least. Values of zero count as the least.
    pub(super) fn around(values: impl Iterator<Item = f64>) -> Self {
        let (least, most) = Self::BOUNDS;
        let powers = || least..=most;
        let (mut low, mut high) = (f64::INFINITY, 0.0_f64);
        values.for_each(|value| (low, high) = (low.min(value), high.max(value)));
        let from = powers().rev().find(|power| value_of(*power) <= low).unwrap_or(least);
        let to = powers().find(|power| value_of(*power) >= high).unwrap_or(most);
        let from = from.min(most - 1);
        Self { from, to: to.max(from + 1) }
    }

    /// The powers of ten from one end to the other, as values.
    pub(super) fn ticks(self) -> impl Iterator<Item = f64> {
        (self.from..=self.to).map(value_of)
    }

    /// The share of the axis below `value`, 0 to 1.
    pub(super) fn share(self, value: f64) -> f64 {
        let decades = f64::from(self.to - self.from);
        ((value.max(value_of(self.from)).log10() - f64::from(self.from)) / decades).clamp(0.0, 1.0)
    }
}

fn value_of(power: i8) -> f64 {
    10_f64.powi(i32::from(power))
}

#[cfg(test)]
mod tests {
    use super::{Decades, Linear};

    #[test]
    fn linear_axes_have_round_ticks() {
        for (largest, top, ticks) in [
            (487.0, 500.0, vec![0.0, 100.0, 200.0, 300.0, 400.0, 500.0]),
            (10.0, 10.0, vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            (1_000.0, 1_000.0, vec![0.0, 200.0, 400.0, 600.0, 800.0, 1_000.0]),
            (1.0, 1.0, vec![0.0, 0.2, 0.4, 0.6, 0.8, 1.0]),
        ] {
            let axis = Linear::rounded(largest, 5.0);
            assert!((axis.top - top).abs() < 1e-9, "{largest}: {axis:?}");
            assert_eq!(axis.ticks.len(), ticks.len(), "{largest}: {axis:?}");
        }
        assert!(Linear::rounded(0.0, 5.0).top > 0.0);
        let exact = Linear::exact(2.63, 5.0);
        assert_eq!((exact.top, exact.ticks.len(), exact.share(2.63)), (2.63, 3, 1.0));
    }

    #[test]
    fn decades_hold_every_value() {
        for (values, ticks) in [
            (vec![1.5, 40.0], vec![1.0, 10.0, 100.0]),
            (vec![1.0, 10.0], vec![1.0, 10.0]),
            (vec![0.0], vec![0.001, 0.01]),
            (vec![5.0], vec![1.0, 10.0]),
        ] {
            let axis = Decades::around(values.iter().copied());
            let shown: Vec<f64> = axis.ticks().collect();
            assert_eq!(shown.len(), ticks.len(), "{values:?}: {shown:?}");
            assert!(shown.iter().zip(&ticks).all(|(a, b)| (a - b).abs() < 1e-9), "{shown:?}");
        }
        let axis = Decades::around([1.0, 100.0].into_iter());
        assert_eq!(
            (axis.share(1.0), axis.share(10.0), axis.share(1_000.0), axis.share(0.0)),
            (0.0, 0.5, 1.0, 0.0)
        );
    }
}
