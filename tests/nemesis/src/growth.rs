//! Estimates how fast a quantity grows: the slope of its samples, with a confidence interval.

use std::time::Duration;

/// Initial share of the samples to ignore, because caches and allocators are still filling.
const WARM_UP: f64 = 0.25;
/// Number of blocks. Neighboring samples are correlated, so the line is fitted to the means of
/// blocks of samples. The errors of these means are nearly independent.
const BLOCKS: usize = 20;
/// The 97.5th percentile of Student's t with `BLOCKS - 2` degrees of freedom.
const T_975: f64 = 2.101;
/// Maximum growth per hour that still counts as flat, as a share of the mean. For a daemon, 2% per
/// hour is a leak of 0.3 MB in two hours.
const FLAT: f64 = 0.02;
const HOUR: f64 = 3_600.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    pub(crate) mean: f64,
    /// Change per hour.
    pub(crate) slope: f64,
    /// Half the width of the slope's 95% confidence interval.
    pub(crate) error: f64,
}

impl Growth {
    /// Fits a line to samples in chronological order. Returns `None` if a block has no sample.
    pub(crate) fn of(samples: &[(Duration, f64)]) -> Option<Self> {
        let (first, last) = (samples.first()?.0, samples.last()?.0);
        let from = first + (last - first).mul_f64(WARM_UP);
        let width = (last - from) / u32::try_from(BLOCKS).expect("few blocks");
        let mut means = [(0.0, 0.0); BLOCKS];
        for (block, mean) in (0_u32..).zip(&mut means) {
            let (begin, end) = (from + width * block, from + width * (block + 1));
            let mine = samples.iter().filter(|(at, _)| (begin..end).contains(at));
            let (count, sum) = mine.fold((0.0, 0.0), |(count, sum), (_, value)| {
                (count + 1.0, sum + value)
            });
            if count == 0.0 {
                return None;
            }
            *mean = ((begin + width / 2).as_secs_f64() / HOUR, sum / count);
        }
        let count = means.len() as f64;
        let middle = |of: fn(&(f64, f64)) -> f64| means.iter().map(of).sum::<f64>() / count;
        let (hour, mean) = (middle(|mean| mean.0), middle(|mean| mean.1));
        let spread: f64 = means.iter().map(|(at, _)| (at - hour).powi(2)).sum();
        let together: f64 = means
            .iter()
            .map(|(at, value)| (at - hour) * (value - mean))
            .sum();
        let slope = together / spread;
        let residue = |(at, value): &(f64, f64)| (value - mean - slope * (at - hour)).powi(2);
        let variance = means.iter().map(residue).sum::<f64>() / (count - 2.0);
        Some(Self {
            mean,
            slope,
            error: T_975 * (variance / spread).sqrt(),
        })
    }

    /// True if the growth per hour exceeds [`FLAT`] with 95% confidence.
    pub(crate) fn is_certain(&self) -> bool {
        self.slope - self.error > FLAT * self.mean
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns two hours of samples, one every five seconds, with noise that stays correlated for
    /// about a minute.
    fn samples(mut value: impl FnMut(f64) -> f64) -> Vec<(Duration, f64)> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut noise = 0.0;
        let at = (0..1_440).map(|n| Duration::from_secs(5 * n));
        at.map(|at| {
            if at.as_secs() % 60 == 0 {
                noise = 0.01 * (random.f64() - 0.5);
            }
            (at, value(at.as_secs_f64() / HOUR) * (1.0 + noise))
        })
        .collect()
    }

    #[test]
    fn a_constant_is_flat() {
        let growth = Growth::of(&samples(|_| 9e6)).expect("all blocks have samples");
        assert!(growth.slope.abs() < growth.error, "{growth:?}");
        assert!(!growth.is_certain());
        assert!((growth.mean - 9e6).abs() < 1e5);
    }

    #[test]
    fn a_leak_of_five_percent_an_hour_is_certain() {
        let growth = Growth::of(&samples(|hours| 9e6 * (1.0 + 0.05 * hours))).expect("samples");
        assert!(growth.is_certain(), "{growth:?}");
        assert!((growth.slope - 4.5e5).abs() < growth.error.max(1e4));
    }

    #[test]
    fn initial_growth_counts_as_flat() {
        let fills = |hours: f64| 9e6 - 2e6 * (-10.0 * hours).exp();
        let growth = Growth::of(&samples(fills)).expect("samples");
        assert!(!growth.is_certain(), "{growth:?}");
    }

    #[test]
    fn a_time_without_samples_gives_no_slope() {
        let mut samples = samples(|_| 1.0);
        samples.retain(|(at, _)| at.as_secs() < 4_000 || at.as_secs() > 6_000);
        assert_eq!(Growth::of(&samples), None);
        assert_eq!(Growth::of(&[]), None);
    }
}
