//! Whether memory is flat: the trend of samples, robust against single peaks.

use std::fs;

/// Runs shorter than this are not judged: allocators are still warming up and samples are few.
pub(crate) const JUDGED_FROM_MINUTES: u64 = 10;
/// What memory may grow by over the judged half of a run.
pub(crate) const BOUND_PERCENT: f64 = 1.0;

/// The resident memory of a process, in bytes.
pub(crate) fn resident(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kilobytes << 10)
}

/// How a series of samples goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Trend {
    /// Median of the samples.
    pub(crate) level: f64,
    /// Growth from the first to the last of them by the median slope, in percent of the level.
    pub(crate) growth_percent: f64,
}

/// The trend of the second half of `samples`, each of the same distance from the one before. The slope is the median of those
/// between all pairs (Theil and Sen), so that a few odd samples change nothing.
pub(crate) fn trend(samples: &[f64]) -> Option<Trend> {
    let half = &samples[samples.len() / 2..];
    if half.len() < 2 {
        return None;
    }
    let mut slopes = Vec::new();
    for (at, first) in half.iter().enumerate() {
        for (distance, second) in half[at + 1..].iter().enumerate() {
            slopes.push((second - first) / number(distance + 1));
        }
    }
    let level = median(&mut half.to_vec());
    let growth = median(&mut slopes) * number(half.len() - 1);
    (level > 0.0).then(|| Trend {
        level,
        growth_percent: growth / level * 100.0,
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of samples")]
fn number(count: usize) -> f64 {
    count as f64
}

/// The median of `values`, which hold at least one.
pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) {
        f64::midpoint(values[middle - 1], values[middle])
    } else {
        values[middle]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trends() {
        let line = |slope: f64| (0..20).map(|at| 100.0 + slope * f64::from(at)).collect();
        let mut peak: Vec<f64> = line(0.0);
        peak[15] = 180.0;
        let mut warm_up: Vec<f64> = vec![20.0; 10];
        warm_up.extend([100.0; 10]);
        let cases: [(&str, Vec<f64>, f64, bool); 5] = [
            ("flat", line(0.0), 0.0, true),
            ("one peak", peak, 0.0, true),
            ("growth before the second half", warm_up, 0.0, true),
            ("a leak of 1 a sample", line(1.0), 7.86, false),
            ("shrinks", line(-1.0), -10.53, true),
        ];
        for (name, samples, growth, flat) in cases {
            let trend = trend(&samples).unwrap();
            assert!(
                (trend.growth_percent - growth).abs() < 0.01,
                "{name}: {trend:?}"
            );
            assert_eq!(trend.growth_percent <= BOUND_PERCENT, flat, "{name}");
        }
    }

    #[test]
    fn two_samples_of_the_second_half_are_needed() {
        assert_eq!(trend(&[]), None);
        assert_eq!(trend(&[1.0, 1.0]), None);
        assert!(trend(&[1.0, 1.0, 1.0]).is_some());
    }
}
